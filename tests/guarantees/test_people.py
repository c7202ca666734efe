"""Minimum counts, ledgers, cohorts and budgets are about persons, however many records a person has."""

import warnings

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    MulticentreError,
    NoiseWarning,
    RefusedByPolicy,
)
from multicentre.linkage.persons import KeyedPart
from multicentre.multiview.ppca.maths.private import Clipping, sum_outer_products
from multicentre.multiview.ppca.messages import Clip
from multicentre.multiview.ppca.site import MvPPCASite
from multicentre.phenotyping import DPFact
from multicentre.privacy.budget import Account
from multicentre.privacy.conversions import rho_of_epsilon
from multicentre.privacy.patient_counts import People
from multicentre.survival.agreement.messages import OfCause
from multicentre.survival.cox.site import CoxSite
from multicentre.validation.folds.by_site import FederatedKFold
from multicentre.validation.stratifier.site import StratifierSite
from support.private_cases import STANDARDS, two_views
from support.recorded_protocol import parts as all_parts
from support.toy_private import PrivateMean

DELTA = 1e-5
SITES = ("lyon", "oslo", "porto")
REFERENCE = {"a": {"centre": [0.0] * 2, "spread": [1.0] * 2}, "b": {"centre": [0.0] * 3, "spread": [1.0] * 3}}
HOW_TO_NAME = r"id_column or identifiers.*one_row_per_patient = true"


def views(owners, seed=0):
    """Return two views of records whose persons have these names."""
    rows = np.random.default_rng(seed).standard_normal((len(owners), 5))
    return two_views(rows).with_identifier(owners)


def repeated(n_persons, n_records):
    return [f"p{person:03d}" for person in range(n_persons) for _ in range(n_records)]


def of_three(owners):
    return {site: views([one and f"{site} {one}" for one in owners], seed) for seed, site in enumerate(SITES)}


def budget(tmp_path, epsilon=5.0):
    return mc.Policy(min_patients=1, epsilon=epsilon, delta=DELTA, account=str(tmp_path / "account.jsonl"))


def spent(tmp_path, site="lyon", epsilon=5.0):
    return Account(epsilon, DELTA, tmp_path / f"account.{site}.jsonl").spent.rho


def private_fit(federation, epsilon=5.0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NoiseWarning)
        return mc.multiview.FedMvPPCA(1, epsilon=epsilon, delta=DELTA, reference=REFERENCE).fit(federation)


def released(federation, site="lyon"):
    """Return records and patients behind each field that tells of patients, as the ledger of a site has them."""
    return [
        (field["records"], field["patients"])
        for entry in federation.ledgers[site].entries
        for field in entry.get("fields", [])
        if field["records"] is not None
    ]


# --- minimum counts and ledgers ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("secure_sum", [True, False])
def test_24_records_of_one_person_do_not_reach_a_minimum_of_ten(secure_sum):
    federation = mc.Federation.in_process(of_three(["p"] * 24), secure_sum=secure_sum)
    with pytest.raises(
        DisclosureRefused, match="the site has fewer patients than its policy's minimum of 10"
    ) as caught:
        mc.multiview.FedMvPPCA(1).fit(federation)
    assert "24" not in str(caught.value)
    assert not released(federation)
    mc.multiview.FedMvPPCA(1).fit(mc.Federation.in_process(of_three(repeated(24, 1)), secure_sum=secure_sum))


def least_behind(names, part, site="lyon"):
    """Return the minimum that a part at a site is given."""
    rng = np.random.default_rng(0)
    columns = rng.normal(size=(len(names), 2)), rng.exponential(1.0, len(names)), np.ones(len(names), int)
    sites = {one: mc.data.SurvivalData(*columns).with_identifier(names) for one in SITES}
    federation = mc.Federation.in_process(sites, policy=mc.Policy(min_patients=10))
    opened = federation.begin(part)
    opened.sum(part.sum_sizes, OfCause(1))
    (made,) = (one for one in federation.engine._runtimes[site].sessions.parts.values() if isinstance(one, part))
    return made.least_behind


def test_a_part_that_compares_records_with_the_minimum_is_given_records_of_as_many_patients():
    """A leaf of ten records could else be one person's, and so could the records that share a time of a curve."""
    assert least_behind(repeated(40, 1), CoxSite) == 10
    crowded = repeated(40, 6)
    least = least_behind(crowded, CoxSite)
    # Nine people have 54 records: 55 or more are of ten people. The power of two hides the exact number.
    assert least == 64
    assert People(crowded).among().fewest(least) >= 10


def test_only_parts_that_count_patients_are_given_a_minimum_of_patients():
    """Any other part would compare records with it, of which one person may have as many."""
    counting = {part for part in all_parts().values() if part.counts_persons}
    assert StratifierSite in counting
    assert all(issubclass(part, StratifierSite | KeyedPart) for part in counting)


def test_the_ledger_tells_distinct_persons_next_to_records():
    federation = mc.Federation.in_process(of_three(repeated(24, 10)))
    mc.multiview.FedMvPPCA(1).fit(federation)
    assert set(released(federation)) == {(240, 24)}


def test_a_cell_of_15_records_counts_as_two_persons_with_ten_records_each():
    data = of_three(repeated(24, 10))
    rows = np.flatnonzero(np.arange(240) >= 15)
    for site in SITES:
        holes = {"a": data[site].array("a"), "b": data[site].array("b").copy()}
        holes["b"][rows] = np.nan
        data[site] = mc.data.MultiViewData(holes).with_identifier(data[site].identifier)
    policy = mc.Policy(min_patients=2)
    federation = mc.Federation.in_process(data, policy=policy)
    mc.multiview.FedMvPPCA(1).fit(federation)
    assert set(released(federation)) == {(15, 2)}
    with pytest.raises(DisclosureRefused, match="the answer must have at least 3 patients behind it"):
        mc.multiview.FedMvPPCA(1).fit(mc.Federation.in_process(data, policy=mc.Policy(min_patients=3)))


def test_the_records_of_a_fold_are_counted_by_the_persons_in_it():
    federation = mc.Federation.in_process(of_three(repeated(40, 6)), policy=mc.Policy(min_patients=5))
    model = mc.multiview.FedMvPPCA(1)
    mc.validation.cross_validate(model, federation, cv=FederatedKFold(3), allow_leakage=True, by_site=False)
    entries = [one for one in federation.ledgers["lyon"].entries if one["event"] == "release" and "records" in one]
    counts = {(f["records"], f["patients"]) for one in entries for f in one["fields"] if f["records"] is not None}
    # A third of 240 records: hardly fewer than all 40 persons have one of them, and never just 80 / 6.
    assert counts
    assert all(35 <= patients <= 40 for records, patients in counts if records in (80, 160))


@pytest.mark.parametrize(("n_persons", "is_revealed"), [(3, False), (4, True)])
def test_a_total_over_sites_is_counted_in_persons(n_persons, is_revealed):
    policy = mc.Policy(min_patients=1, min_patients_in_total=12)
    federation = mc.Federation.in_process(of_three(repeated(n_persons, 10)), policy=policy)
    if is_revealed:
        mc.multiview.FedMvPPCA(1).fit(federation)
        return
    with pytest.raises(DisclosureRefused, match="at least 12 patients of all sites"):
        mc.multiview.FedMvPPCA(1).fit(federation)


def test_cells_of_records_are_no_table_of_patients():
    policy = mc.Policy(min_patients=1, min_patients_in_total=2)

    def fit(owners):
        drawn = {site: mc.datasets.simulate_survival(len(owners), 2, seed) for seed, site in enumerate(SITES)}
        data = {site: mc.data.SurvivalData(one.X, one.time, one.event) for site, one in drawn.items()}
        named = {site: one.with_identifier([f"{site} {name}" for name in owners]) for site, one in data.items()}
        mc.survival.KaplanMeier(n_times=4).fit(mc.Federation.in_process(named, policy=policy))

    with pytest.raises(DisclosureRefused, match="a patient must have one record, because the cells of events, leaving"):
        fit(repeated(60, 2))
    fit(repeated(120, 1))


def test_without_identifiers_ledger_and_card_say_records():
    bare = {site: data.without_identifier() for site, data in of_three(repeated(24, 1)).items()}
    federation = mc.Federation.in_process(bare)
    mc.multiview.FedMvPPCA(1).fit(federation)
    assert set(released(federation)) == {(24, None)}
    card = str(federation.card(MvPPCASite))
    assert "Each value has at least 10 records" in card
    assert "cannot determine which of its records belong to the same patient" in card
    stated = mc.Federation.in_process(bare, one_row_per_patient=True)
    mc.multiview.FedMvPPCA(1).fit(stated)
    assert set(released(stated)) == {(24, 24)}
    assert "Each value has at least 10 patients" in str(stated.card(MvPPCASite))


def test_one_site_that_cannot_count_patients_makes_the_card_say_records():
    data = of_three(repeated(24, 1))
    data["oslo"] = data["oslo"].without_identifier()
    assert mc.Federation.in_process(data).card(MvPPCASite).counted == "records"
    assert mc.Federation.in_process(of_three(repeated(24, 1))).card(MvPPCASite).counted == "patients"


def test_a_statement_that_the_data_contradict_is_refused():
    with pytest.raises(ConfigurationError, match=r"lyon.*one_row_per_patient must be false"):
        mc.Federation.in_process(of_three(repeated(24, 2)), one_row_per_patient=True)


# --- cohorts ----------------------------------------------------------------------------------------------------------


def test_cohorts_that_differ_by_many_records_of_few_persons_are_refused(tmp_path):
    policy = mc.Policy(min_difference=5, cohorts=str(tmp_path / "cohorts"))
    whole = of_three(repeated(30, 8))

    def fit(rows):
        data = {site: one.take(rows) for site, one in whole.items()}
        return mc.multiview.FedMvPPCA(1).fit(mc.Federation.in_process(data, policy=policy))

    everyone = np.arange(240)
    fit(everyone)
    without_two, fewer_records_of_four = everyone[16:], np.setdiff1d(everyone, [7, 15, 23, 31])
    for rows in (without_two, fewer_records_of_four):
        with pytest.raises(
            DisclosureRefused, match="the cohort must differ from that of an earlier answer by at least 5"
        ):
            fit(rows)
    without_five = everyone[40:]
    fit(without_five)
    fit(everyone)


def test_a_record_without_an_identifier_leaves_cohorts_without_an_answer():
    data = of_three([*repeated(30, 1), None])
    with pytest.raises(DisclosureRefused, match="records must have patient ids to compare cohorts"):
        mc.multiview.FedMvPPCA(1).fit(mc.Federation.in_process(data, policy=mc.Policy(min_difference=5)))


# --- differential privacy ---------------------------------------------------------------------------------------------


class Rows(np.ndarray):
    """Rows of numbers with the patients that they belong to."""


def rows_of(owners):
    rows = np.random.default_rng(1).standard_normal((len(owners), 3)).view(Rows)
    rows.identifier = mc.data.Identifiers(owners)
    return rows


def test_noise_on_40_records_of_one_person_is_refused_and_not_charged(tmp_path):
    federation = mc.Federation.in_process({"lyon": rows_of(["p"] * 40)}, policy=budget(tmp_path))
    with pytest.raises(DataError, match="failed on the data of this site") as caught:
        PrivateMean(epsilon=5.0).fit(federation)
    assert not any(word in str(caught.value) for word in ("40", "100", "noise", "record"))
    reasons = [entry["reason"] for entry in federation.ledgers["lyon"].entries if entry["event"] == "refusal"]
    assert reasons == ["persons: a patient must have one record, because the noise hides one record; got up to 100"]
    assert spent(tmp_path) == 0
    usual = mc.Policy(epsilon=5.0, delta=DELTA, account=str(tmp_path / "account.jsonl"))
    with pytest.raises(DisclosureRefused, match=r"minimum of 10\. Pool small sites"):
        PrivateMean(epsilon=5.0).fit(mc.Federation.in_process({"lyon": rows_of(["p"] * 40)}, policy=usual))
    assert spent(tmp_path) == 0


@pytest.mark.parametrize(
    ("most", "told"),
    [
        (2, "a patient must have one record, because the noise hides one record; got up to 10"),
        (10, "a patient must have one record, because the noise hides one record; got up to 10"),
        (11, "a patient must have one record, because the noise hides one record; got up to 100"),
    ],
)
def test_without_a_budget_noise_that_hides_one_record_of_several_is_refused_in_words(most, told):
    federation = mc.Federation.in_process({"lyon": rows_of(["p"] * most + repeated(20, 1))})
    with pytest.raises(DisclosureRefused, match=told) as caught:
        PrivateMean(epsilon=5.0).fit(federation)
    assert "one record per patient" in caught.value.hint


def test_a_person_with_one_record_pays_as_before(tmp_path):
    PrivateMean(epsilon=5.0).fit(mc.Federation.in_process({"lyon": rows_of(repeated(40, 1))}, policy=budget(tmp_path)))
    assert spent(tmp_path) == pytest.approx(rho_of_epsilon(5.0, DELTA))


def test_a_budget_is_refused_if_the_patients_of_records_are_unknown(tmp_path):
    bare = {"lyon": np.random.default_rng(1).standard_normal((40, 3))}
    federation = mc.Federation.in_process(bare, policy=budget(tmp_path))
    with pytest.raises(RefusedByPolicy, match=HOW_TO_NAME):
        PrivateMean(epsilon=5.0).fit(federation)
    assert spent(tmp_path) == 0
    stated = mc.Federation.in_process(bare, policy=budget(tmp_path), one_row_per_patient=True)
    assert PrivateMean(epsilon=5.0).fit(stated).privacy_.unit == "patient"
    assert spent(tmp_path) == pytest.approx(rho_of_epsilon(5.0, DELTA))


def test_without_a_budget_noise_on_records_of_nobody_is_a_promise_to_a_record():
    federation = mc.Federation.in_process({"lyon": np.random.default_rng(1).standard_normal((40, 3))})
    model = PrivateMean(epsilon=5.0).fit(federation)
    assert "differential privacy for one record" in str(model.privacy_)
    assert [one["unit"] for one in federation.ledgers["lyon"].entries if one.get("rho")] == ["record"]
    assert "(one record: 1)" in str(federation.card(PrivateMean.site_part, model.privacy_plan()))


def test_a_method_that_clips_persons_is_charged_once_for_all_records_of_each(tmp_path):
    federation = mc.Federation.in_process(of_three(repeated(24, 10)), policy=budget(tmp_path))
    model = private_fit(federation)
    assert spent(tmp_path) == pytest.approx(rho_of_epsilon(5.0, DELTA))
    assert set(released(federation)) == {(240, 24)}
    assert model.privacy_.unit == "patient"


def test_a_method_that_clips_persons_is_refused_where_a_record_is_nobodys(tmp_path):
    data = of_three([*repeated(24, 10), None])
    with pytest.raises(DataError, match="failed on the data of this site"):
        private_fit(mc.Federation.in_process(data, policy=budget(tmp_path)))
    assert spent(tmp_path) == 0


def test_the_declaration_is_what_lets_it_pass(tmp_path, monkeypatch):
    monkeypatch.setattr(MvPPCASite, "clips_persons", False)
    with pytest.raises(DataError, match="failed on the data of this site"):
        private_fit(mc.Federation.in_process(of_three(repeated(24, 10)), policy=budget(tmp_path)))
    assert spent(tmp_path) == 0


def products(rows, persons):
    part = MvPPCASite("lyon", two_views(rows))
    part.persons = persons
    part.prepare(STANDARDS)
    return part.sum_outer_products(Clip(2.0)).products


@pytest.mark.parametrize("size", [0.0, 1e-3, 1.0, 1e3, 1e12, 1e300])
@pytest.mark.parametrize("n_records", [1, 2, 40, 3000])
def test_all_records_of_a_person_change_the_sum_by_at_most_one(size, n_records):
    random = np.random.default_rng(n_records)
    others = random.standard_normal((12, 5))
    theirs = size * random.choice([-1.0, 1.0], (n_records, 5)) if n_records == 2 else np.full((n_records, 5), size)
    persons = np.append(np.repeat(np.arange(6), 2), np.full(n_records, 6))
    moved = products(np.vstack([others, theirs]), persons) - products(others, persons[:12])
    assert np.linalg.norm(moved) <= 1
    # Without the persons the same records move it as often as there are of them.
    bare = products(np.vstack([others, theirs]), None) - products(others, None)
    assert np.linalg.norm(bare) > 0.05 * n_records


def test_a_person_with_many_records_stands_in_with_their_mean():
    random = np.random.default_rng(0)
    rows, persons = 0.1 * random.standard_normal((9, 5)), np.array([0, 1, 0, 2, 2, 2, 1, 0, 3])
    units = (rows - STANDARDS.centre) / STANDARDS.spread
    clipped = units * np.minimum(1.0, 2.0 / np.linalg.norm(units, axis=1, keepdims=True))
    means = np.array([clipped[persons == person].mean(axis=0) for person in range(4)])
    np.testing.assert_allclose(products(rows, persons), sum_outer_products([means], Clipping(2.0, 5)), atol=1e-4)
    same = rows[[0, 1, 3]]
    copies = np.repeat(same, 7, axis=0)
    np.testing.assert_array_equal(products(copies, np.repeat(np.arange(3), 7)), products(same, None))


@pytest.mark.filterwarnings("ignore")
def test_all_events_of_a_patient_are_one_row_and_paid_for_once(tmp_path):
    events = pd.DataFrame(
        [
            {"patient": f"p{patient}", "date": f"2020-{month:02d}-01", "system": system, "code": code}
            for patient in range(12)
            for month in range(1, 11)
            for system, code in (("proc", str(patient % 3)), ("dx", str(month % 4)))
        ]
    )
    tensor = mc.data.EventTensor.from_events(events, modes={"procedure": "proc", "diagnosis": "dx"}, window_days=20)
    assert (len(tensor), len(events)) == (12, 240)
    federation = mc.Federation.in_process({"lyon": tensor}, policy=budget(tmp_path))
    DPFact(2, epsilon=3.0, vocabulary=tensor.codes, max_iter=2).fit(federation)
    assert spent(tmp_path) <= rho_of_epsilon(3.0, DELTA) * (1 + 1e-6)
    assert spent(tmp_path) > 0
    assert set(released(federation)) == {(12, 12)}
    several = tensor.take(np.arange(12))
    several = mc.data.EventTensor(several.coordinates, several.counts, several.codes).with_identifier(repeated(6, 2))
    with pytest.raises(MulticentreError, match="failed on the data of this site"):
        DPFact(2, epsilon=3.0, vocabulary=tensor.codes, max_iter=2).fit(
            mc.Federation.in_process({"oslo": several}, policy=budget(tmp_path))
        )
    assert spent(tmp_path, "oslo") == 0


def encounters(seed=0):
    """Return 60 encounters of 3 persons, with an id for each encounter."""
    rng, owners = np.random.default_rng(seed), [f"{seed}-{i % 3}" for i in range(60)]
    ids = [f"{seed}-encounter-{i}" for i in range(60)]
    data = mc.data.MultiViewData({"a": rng.normal(size=(60, 2)), "b": rng.normal(size=(60, 3))}, ids=ids)
    return data.with_identifier(owners)


def test_ids_of_encounters_do_not_reach_a_minimum():
    sites = {site: encounters(seed) for seed, site in enumerate(SITES)}
    federation = mc.Federation.in_process(sites, policy=mc.Policy(min_patients=10))
    with pytest.raises(DisclosureRefused, match="fewer patients than its policy's minimum"):
        mc.multiview.FedMvPPCA(1).fit(federation)


def test_ids_of_encounters_are_counted_as_persons_behind_noise(tmp_path):
    sites = {site: encounters(seed) for seed, site in enumerate(SITES)}
    federation = mc.Federation.in_process(sites, study="s", policy=budget(tmp_path), secure_sum=False)
    private_fit(federation)
    assert {patients for _, patients in released(federation)} == {3}
