"""The duplicate rate of a federation, beside the count of the same people in one place."""

from types import SimpleNamespace

import numpy as np
import pytest

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, QuorumLost, RefusedByPolicy
from multicentre.estimator.figures import read_figure
from multicentre.linkage import persons as keys
from multicentre.linkage.duplicates.estimator import UNPROVEN, estimate_duplicate_rate
from multicentre.linkage.duplicates.rate import HIDDEN_ERRORS
from multicentre.linkage.duplicates.site import DuplicatesPart
from multicentre.linkage.pseudonyms import PseudonymKey

FREE = mc.Policy(min_patients=0)


@pytest.fixture(autouse=True)
def _same_labels(monkeypatch):
    """Hash the same people into the same buckets in every run."""
    monkeypatch.setattr(keys, "secrets", SimpleNamespace(token_bytes=lambda size: bytes(range(size))))


def people(n_persons, n_copies, n_sites=5, seed=0):
    """Return the persons of each site: everybody at one, and copies at others."""
    rng = np.random.default_rng(seed)
    held = [set() for _ in range(n_sites)]
    for person, site in enumerate(rng.integers(0, n_sites, n_persons)):
        held[site].add(person)
    while sum(map(len, held)) < n_persons + n_copies:
        held[rng.integers(n_sites)].add(int(rng.integers(n_persons)))
    return [sorted(site) for site in held]


def table(identifiers, seed=0):
    n = len(identifiers)
    return mc.data.TableData(np.random.default_rng(seed).normal(size=(n, 2)), np.arange(n) % 2, identifiers)


def federation(sites, **terms):
    named = {f"site-{place}": table([f"p{one}" for one in site]) for place, site in enumerate(sites)}
    return mc.Federation.in_process(named, **{"secure_sum": True, **terms})


@pytest.mark.parametrize(("d", "n_copies"), [(0.0, 0), (0.01, 120), (0.05, 600), (0.167, 2004)])
def test_rate_is_within_the_accepted_error(d, n_copies):
    sites = people(12_000 - n_copies, n_copies)
    controls = ["TEST PATIENT A"]
    named = {f"s{place}": table([*(f"p{one}" for one in site), *controls]) for place, site in enumerate(sites)}
    found = estimate_duplicate_rate(mc.Federation.in_process(named, policy=FREE), controls=controls, sensitivity=1.0)
    assert abs(found.rate - d) <= 0.004
    assert found.n_buckets == 32 * 12_000
    assert (found.n_local, found.n_records, found.n_within) == (12_000, 12_000, 0)
    assert found.warnings == ()


@pytest.mark.slow
def test_masked_and_clear_sums_agree_within_the_interval():
    sites = people(3000, 600)
    true = 1 - 3000 / 3600
    for terms in ({"secure_sum": True, "strict": True}, {"secure_sum": False, "policy": FREE}):
        found = estimate_duplicate_rate(federation(sites, **terms), buckets_per_record=256, sensitivity=1.0)
        assert abs(found.rate - true) < 0.003
        assert found.interval[0] < found.rate < found.interval[1]
        assert found.n_shared == pytest.approx(600, abs=12)


def test_repeated_and_missing_records_are_told_apart():
    sites = {"lyon": table(["a1", "A-1", "a2", None, "unknown", *(f"p{i}" for i in range(60))]),
             "oslo": table([*(f"p{i}" for i in range(40, 100))])}  # fmt: skip
    found = estimate_duplicate_rate(mc.Federation.in_process(sites, secure_sum=True), buckets_per_record=512)
    assert (found.n_records, found.n_missing, found.n_within, found.n_local) == (125, 2, 1, 122)
    assert found.n_union == pytest.approx(102, abs=1.5)


def test_classes_of_the_outcome_have_rates_of_their_own():
    lyon = mc.data.TableData(np.zeros((200, 1)), np.arange(200) < 100, [f"p{i}" for i in range(200)])
    oslo = mc.data.TableData(np.zeros((200, 1)), np.arange(200) < 100, [f"p{i}" for i in range(100)] + [f"q{i}" for i in range(100)])  # fmt: skip  # noqa: E501
    found = estimate_duplicate_rate(
        mc.Federation.in_process({"lyon": lyon, "oslo": oslo}, secure_sum=True), by_outcome=True, buckets_per_record=512
    )
    frame = found.to_frame()
    assert frame.loc["class 1", "rate"] == pytest.approx(0.5, abs=0.02)
    assert frame.loc["class 0", "rate"] == pytest.approx(0.0, abs=0.02)
    assert frame.loc["all", "rate"] == pytest.approx(0.25, abs=0.02)
    [shown] = found.figures()
    assert read_figure(shown.to_dict()) == shown
    assert list(shown.rows) == ["all", "class 0", "class 1"]


def test_spelling_and_order_of_dates_do_not_matter():
    sites = {"lyon": table([f"{1 + i % 28:02d}/03/{1900 + i}" for i in range(1, 90)]),
             "oslo": table([f"{1900 + i}-03-{1 + i % 28:02d}" for i in range(1, 90)])}  # fmt: skip
    both = mc.Federation.in_process(sites, secure_sum=True)
    found = estimate_duplicate_rate(both, kind="date", date_order={"lyon": "dmy"}, buckets_per_record=512)
    assert found.rate == pytest.approx(0.5, abs=0.02)
    with pytest.raises(ConfigurationError, match="nice"):
        estimate_duplicate_rate(both, date_order={"nice": "dmy"})


def test_pseudonyms_of_each_sites_own_do_not_read_as_no_duplicates():
    shared = [f"p{i}" for i in range(80)]
    own = {name: table([f"{name}{one}" for one in shared]) for name in ("lyon", "oslo")}
    with pytest.warns(UserWarning, match="cannot be distinguished from identifiers that differ") as warned:
        found = estimate_duplicate_rate(mc.Federation.in_process(own, secure_sum=True))
    assert found.warnings == (HIDDEN_ERRORS, UNPROVEN)
    assert warned[0].filename == __file__
    registered = {name: table([f"{name}{one}" for one in [*shared, "TESTPATIENT1"]]) for name in own}
    with pytest.raises(ConfigurationError, match="TESTPATIENT1 at 0"):
        estimate_duplicate_rate(mc.Federation.in_process(registered, secure_sum=True), controls=["TESTPATIENT1"])


def test_controls_are_found_and_left_out_of_the_counts():
    sites = {name: table([f"{name}{i}" for i in range(80)] + ["TESTPATIENT1", "test-patient 2"]) for name in "abc"}
    found = estimate_duplicate_rate(
        mc.Federation.in_process(sites, secure_sum=True), controls=["TESTPATIENT1", "TESTPATIENT2"]
    )
    assert found.controls == {"TESTPATIENT1": 3, "TESTPATIENT2": 3}
    assert (found.n_records, found.n_local, found.rate) == (240, 240, pytest.approx(0, abs=0.02))
    assert "2 controls at all sites" in repr(found)


def test_different_keys_are_an_error_that_names_the_sites():
    keys = {"site-0": PseudonymKey.generate(), "site-1": (shared := PseudonymKey.generate()), "site-2": shared}
    with pytest.raises(ConfigurationError, match=r"^site-0: all sites must have the same key of pseudonyms"):
        estimate_duplicate_rate(federation(people(90, 9, 3), pseudonym_key=keys))


def test_the_fingerprint_is_that_of_the_key():
    key = PseudonymKey.generate()
    found = estimate_duplicate_rate(federation(people(90, 30, 3), pseudonym_key=key, study="hips"))
    assert found.fingerprint == key.fingerprint("hips")


def test_sums_in_clear_are_refused_under_a_minimum_of_patients():
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        estimate_duplicate_rate(federation(people(300, 30, 3), secure_sum=False))


def test_a_lost_site_is_an_error():
    lossy = federation(people(300, 30, 3), quorum=2, faults=Faults(lose={"site-2": "mark"}))
    with pytest.raises(QuorumLost, match="all sites of the first count must participate until the end"):
        estimate_duplicate_rate(lossy)


def test_columns_that_a_site_lacks_and_identifiers_that_nobody_has():
    with pytest.raises(DataError, match="person_key must be one of identifier; got 'passport'"):
        estimate_duplicate_rate(federation(people(90, 9, 3)), person_key="passport")
    empty = {name: table([None] * 40) for name in ("lyon", "oslo")}
    with pytest.raises(DataError, match="must have identifiers; got 0 of 2 sites"):
        estimate_duplicate_rate(mc.Federation.in_process(empty, secure_sum=True))


@pytest.mark.parametrize("per_record", [0, 1.5, 5000])
def test_unfit_numbers_of_buckets(per_record):
    with pytest.raises(ConfigurationError, match="buckets_per_record must be an integer from 1 to 4096"):
        estimate_duplicate_rate(federation(people(90, 9, 3)), buckets_per_record=per_record)


def test_a_resumed_run_finds_the_same_and_asks_nothing(tmp_path):
    sites = people(300, 60, 3)
    first = estimate_duplicate_rate(federation(sites, folder=tmp_path))
    again = federation(sites, folder=tmp_path)
    assert estimate_duplicate_rate(again) == first
    assert not again.traffic.calls


def test_policies_that_allow_masked_sums_alone_are_served_and_budgets_are_not(tmp_path):
    sites = people(300, 60, 3)
    strict = mc.Policy(secure_sums_only=True, methods=("duplicate-rate",))
    assert estimate_duplicate_rate(federation(sites, policy=strict)).n_local == 360
    budget = mc.Policy(epsilon=1.0, account=str(tmp_path / "account.jsonl"))
    with pytest.raises(RefusedByPolicy, match="epsilon"):
        estimate_duplicate_rate(federation(sites, policy=budget))


def test_the_card_tells_what_leaves():
    card = str(mc.Federation.in_process({"lyon": table(["a"])}).card(DuplicatesPart))
    assert "mark of each bucket" in card


FIRST, LAST = ("Mar", "Sol", "Ber", "Kin", "Dau", "Fer"), ("and", "oker", "eniwitz", "oson", "alli", "egue", "anov")
SURNAMES = [first + last for first in FIRST for last in LAST]
BY_TWO = ({"surname": "soundex", "born": "date"}, {"number": "identifier"})


def misspelt(text, rng):
    place = rng.integers(len(text))
    return text[:place] + rng.choice(list("xyz")) + text[place + 1 :]


def sites_with_errors(n_persons=1500, n_copies=300, error=0.15, n_repeated=300, seed=0, **terms):
    """Return two sites with patient numbers, repeated records, and errors in numbers, dates and names; and the rate."""
    rng = np.random.default_rng(seed)
    born = np.datetime64("1930-01-01") + rng.integers(0, 25_000, n_persons)
    surname = rng.choice(SURNAMES, n_persons)
    at_site = {"lyon": range(900), "oslo": range(900 - n_copies, n_persons)}
    sites = {}
    for name, people in at_site.items():
        rows = [*people, *rng.choice(people, n_repeated, replace=False)]
        columns = {"surname": [], "born": [], "number": [], "patient": [f"{name}{one}" for one in rows]}
        for one in rows:
            wrong = rng.random(3) < error
            columns["surname"].append(misspelt(surname[one], rng) if wrong[0] else surname[one])
            columns["born"].append(str(born[one] + np.timedelta64(10 * int(wrong[1]), "D")))
            columns["number"].append(misspelt(f"A{one:05d}", rng) if wrong[2] else f"A{one:05d}")
        data = mc.data.TableData(np.zeros((len(rows), 1)), np.arange(len(rows)) % 2)
        sites[name] = data.with_identifier(columns)
    return mc.Federation.in_process(sites, secure_sum=True, **terms), n_copies / (n_persons + n_copies)


def test_people_whom_typing_errors_hide_are_in_the_interval():
    both, true = sites_with_errors(strict=True)
    measured = estimate_duplicate_rate(both, person_keys=BY_TWO, patient_key="patient", buckets_per_record=256)
    assert measured.interval[0] <= true <= measured.interval[1]
    assert measured.interval[1] - measured.interval[0] < 0.05
    assert measured.rate == pytest.approx(true, abs=0.015)
    assert measured.detected_interval[1] < true
    assert (measured.n_local, measured.n_within, measured.n_records) == (1800, 600, 2400)
    number = 0.85**2
    assert measured.sensitivity.n_patients == 600
    assert measured.sensitivity.by_key[1] == pytest.approx(number, abs=0.06)
    assert measured.sensitivity.share > max(measured.sensitivity.by_key) + 0.05


def test_one_key_alone_finds_fewer_and_has_no_interval():
    both, true = sites_with_errors()
    alone = estimate_duplicate_rate(both, person_key="number", buckets_per_record=256)
    assert alone.rate < true - 0.03
    assert alone.interval is None
    assert alone.warnings == (HIDDEN_ERRORS,)
    assert "without interval" in repr(alone)
    assert alone.to_frame()[["lower", "upper"]].isna().all(axis=None)
    [shown] = alone.figures()
    assert shown.lower == [None]
    assert "typing errors hide" in shown.caption
    several = estimate_duplicate_rate(both, person_keys=BY_TWO, buckets_per_record=256)
    assert alone.rate < several.rate < true
    assert several.interval is None


def test_keys_that_many_people_share_give_no_interval():
    both, _ = sites_with_errors()
    with pytest.warns(UserWarning, match="different people agree in a key too often"):
        coarse = estimate_duplicate_rate(both, person_keys=[{"surname": "soundex"}], patient_key="patient")
    assert coarse.interval is None
    assert coarse.n_chance > 1000


def test_without_repeated_records_a_sensitivity_is_not_measured():
    both, _ = sites_with_errors(n_repeated=0)
    with pytest.warns(UserWarning, match="no patient has two records"):
        found = estimate_duplicate_rate(both, person_key="number", patient_key="patient")
    assert found.interval is None


def test_classes_have_intervals_of_their_own():
    both, _ = sites_with_errors()
    found = estimate_duplicate_rate(both, person_key="number", patient_key="patient", by_outcome=True)
    assert list(found.by_class) == ["class 0", "class 1"]
    assert all(low < rate < high for rate, (low, high) in found.by_class.values())


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"person_keys": ["number"], "person_key": "number"}, "without person_key"),
        ({"person_keys": "number"}, "must be a sequence of keys"),
        ({"patient_key": "patient", "sensitivity": 0.9}, "got both"),
    ],
)
def test_parameters_that_exclude_each_other(terms, message):
    both, _ = sites_with_errors()
    with pytest.raises(ConfigurationError, match=message):
        estimate_duplicate_rate(both, **terms)


def test_test_patients_are_values_of_the_first_key():
    names = [*(f"n{i}" for i in range(90)), "TESTPATIENT1"]
    sites = {
        name: mc.data.TableData(np.zeros((91, 1)), np.zeros(91)).with_identifier(
            {"number": [f"{name}{one}" if one[0] == "n" else one for one in names], "surname": names}
        )
        for name in ("lyon", "oslo")
    }
    both = mc.Federation.in_process(sites, secure_sum=True)
    keys = ["number", {"surname": "name"}]
    found = estimate_duplicate_rate(both, person_keys=keys, controls=["TESTPATIENT1"], buckets_per_record=512)
    assert (found.controls, found.n_local) == ({"TESTPATIENT1": 2}, 180)
    assert found.rate == pytest.approx(0.5, abs=0.02)
    joint = {"number": "identifier", "surname": "name"}
    with pytest.raises(RefusedByPolicy, match="got combined"):
        estimate_duplicate_rate(both, person_keys=[joint], controls=["TESTPATIENT1"])


def test_repeated_records_are_refused_under_a_minimum_for_totals():
    strict, _ = sites_with_errors(policy=mc.Policy(min_patients_in_total=10))
    with pytest.raises(DisclosureRefused, match="a patient must have one record"):
        estimate_duplicate_rate(strict, person_key="number", patient_key="patient")
