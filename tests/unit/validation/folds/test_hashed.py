"""Folds by a keyed hash over a federation."""

import itertools

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

import multicentre as mc
from multicentre.core.session import Session
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, RefusedByPolicy
from multicentre.linkage.persons import check_keys
from multicentre.linkage.pseudonyms import PseudonymKey
from multicentre.privacy.secret_files import Secret
from multicentre.validation.folds.hashed import HashGroupKFold, RepeatedHashGroupKFold
from support.fold_sites import federate, folds_of, people_sites, table, violations

KEY, OTHER = (PseudonymKey(Secret(bytes([byte] * 32))) for byte in (1, 2))


def joined(folds):
    return np.concatenate([folds[site] for site in sorted(folds)])


@pytest.mark.parametrize("options", [{}, {"secure_sum": True}, {"policy": None}, {"policy": None, "secure_sum": True}])
def test_no_person_is_in_two_folds(options):
    sites, people = people_sites(150)
    plan = HashGroupKFold(4).plan(federate(sites, **options))
    folds = folds_of(plan)
    assert violations(folds, people) == 0
    assert plan.counts.tolist() == np.bincount(joined(folds)).tolist()
    assert plan.duplicate_safe
    assert plan.n_excluded == 0


def test_masked_and_exact_folds_are_the_same_and_unmasked_ones_say_that_they_are_not_balanced():
    sites, _ = people_sites(150)
    plans = [HashGroupKFold(4).plan(federate(sites, **options)) for options in ({}, {"secure_sum": False})]
    assert np.array_equal(*(joined(folds_of(plan)) for plan in plans))
    assert np.array_equal(plans[0].class_table, plans[1].class_table)
    assert [plan.facts["balanced"] for plan in plans] == [True, True]
    plain = HashGroupKFold(4).plan(federate(sites, policy=None, secure_sum=False))
    assert plain.facts["balanced"] is False
    assert plain.facts["n_buckets"] == 4
    assert plain.imbalance() >= plans[0].imbalance()
    assert "Their sizes are random" in plain.summary()


def test_large_sites_are_balanced_unmasked_by_counts_of_at_least_the_minimum():
    sites, people = people_sites(3000, rate=0.5, shared=300)
    federation = federate(sites, policy=None, secure_sum=False)
    plan = HashGroupKFold(4).plan(federation)
    assert plan.facts["balanced"]
    assert 16 <= plan.facts["n_buckets"] < 100
    assert violations(folds_of(plan), people) == 0
    entries = [entry for ledger in federation.ledgers.values() for entry in ledger.entries]
    behind = [field["records"] for entry in entries for field in entry.get("fields", []) if field["records"]]
    assert min(behind) >= 10


def test_unmasked_the_smallest_site_decides_how_finely_is_counted():
    sites, _ = people_sites(3000, rate=0.5, shared=300)
    small = table(np.random.default_rng(9), range(20_000, 20_150))
    federation = federate({**sites, "small": small}, policy=None, secure_sum=False)
    assert HashGroupKFold(4).plan(federation).facts["n_buckets"] == 4


def test_events_are_even_over_folds():
    sites, _ = people_sites(2400, 5, shared=200, rate=0.03)
    plan = HashGroupKFold(5).plan(federate(sites))
    assert np.abs(plan.class_table[:, 1] / plan.class_table[:, 1].mean() - 1).max() <= 0.05
    assert np.abs(plan.counts / plan.counts.mean() - 1).max() <= 0.05


def test_without_stratification_sizes_alone_are_even():
    sites, _ = people_sites(1000, rate=0.1)
    by_size = HashGroupKFold(5, stratify=False).plan(federate(sites))
    assert np.ptp(by_size.counts) <= 10, by_size.counts
    assert by_size.imbalance() > HashGroupKFold(5).plan(federate(sites)).imbalance()


def test_folds_do_not_depend_on_the_order_of_sites_or_records():
    sites, _ = people_sites(120)
    plan = HashGroupKFold(4).plan(federate(sites))
    shuffled = {name: np.random.default_rng(1).permutation(120) for name in reversed(sites)}
    again = HashGroupKFold(4).plan(federate({name: sites[name].take(order) for name, order in shuffled.items()}))
    folds, others = folds_of(plan), folds_of(again)
    assert all(np.array_equal(folds[name][order], others[name]) for name, order in shuffled.items())
    assert plan.digest == again.digest


def test_folds_do_not_depend_on_how_records_lie_over_sites():
    sites, people = people_sites(120)
    one = federate(
        {
            "all": mc.data.TableData(
                np.concatenate([sites[name].X for name in sites]),
                np.concatenate([sites[name].y for name in sites]),
                [f"p{number}" for name in sites for number in people[name]],
            )
        }
    )
    apart, together = (HashGroupKFold(4).plan(federation) for federation in (federate(sites), one))
    assert np.array_equal(np.concatenate([folds_of(apart)[name] for name in sites]), folds_of(together)["all"])


@pytest.mark.slow
def test_repeats_studies_and_keys_give_other_folds():
    sites, _ = people_sites(1500)
    plans = RepeatedHashGroupKFold(5, 3).plans(federate(sites))
    plans.append(HashGroupKFold(5, study="another").plan(federate(sites)))
    plans.append(HashGroupKFold(5).plan(federate(sites, pseudonym_key=KEY)))
    plans.append(HashGroupKFold(5, repeat=7).plan(federate(sites)))
    folds = [joined(folds_of(plan)) for plan in plans]
    assert all(abs(adjusted_rand_score(*pair)) < 0.02 for pair in itertools.combinations(folds, 2))
    assert len({plan.digest for plan in plans}) == len(plans)
    again = HashGroupKFold(5, repeat=1).plan(federate(sites))
    assert np.array_equal(folds[1], joined(folds_of(again)))


def test_an_inner_plan_divides_anew_what_the_outer_one_left_in():
    sites, people = people_sites(300)
    outer = HashGroupKFold(3).plan(federate(sites))
    inner = HashGroupKFold(4).plan(outer.train(0))
    kept = {name: people[name][fold != 0] for name, fold in folds_of(outer).items()}
    folds = folds_of(inner)
    assert violations(folds, kept) == 0
    assert inner.counts.sum() == sum(map(len, kept.values())) == outer.counts[1:].sum()
    before = np.concatenate([fold[fold != 0] for fold in folds_of(outer).values()])
    assert adjusted_rand_score(before, np.concatenate(list(folds.values()))) < 0.02
    as_many = joined(folds_of(HashGroupKFold(3).plan(outer.train(0))))
    assert adjusted_rand_score(before, as_many) < 0.02
    innermost = HashGroupKFold(2).plan(inner.train(1))
    assert innermost.counts.sum() == inner.counts.sum() - inner.counts[1]


def test_an_inner_plan_does_not_depend_on_what_was_fitted_before():
    sites, _ = people_sites(300)
    federation = federate(sites)
    first = HashGroupKFold(4).plan(HashGroupKFold(3).plan(federation).train(0))
    HashGroupKFold(5).plan(federation)
    second = HashGroupKFold(4).plan(HashGroupKFold(3).plan(federation).train(0))
    assert first.digest == second.digest
    assert np.array_equal(joined(folds_of(first)), joined(folds_of(second)))


def with_missing(n_missing, n=200):
    sites, people = people_sites(n)
    given = [f"p{number}" for number in people["site-1"]]
    given[:n_missing] = ["", None, "unknown", "0000", "N/A", None][:n_missing] + [None] * (n_missing - 6)
    return {**sites, "site-1": sites["site-1"].with_identifier(given)}, people


def test_few_missing_identifiers_are_in_no_fold_and_counted():
    sites, people = with_missing(6)
    plan = HashGroupKFold(4).plan(federate(sites))
    folds = folds_of(plan)
    assert plan.n_excluded == 6
    assert (folds["site-1"] == -1).tolist() == [True] * 6 + [False] * 194
    assert violations(folds, people) == 0
    assert plan.counts.sum() == 594


def test_many_missing_identifiers_are_refused_with_their_number_alone():
    sites, _ = with_missing(7)
    with pytest.raises(
        DataError, match=r"at most 0\.01 of the records may lack a readable identifier; got 7 of 600"
    ) as refused:
        HashGroupKFold(4).plan(federate(sites))
    assert "max_missing" in str(refused.value)
    assert HashGroupKFold(4, max_missing=0.02).plan(federate(sites)).n_excluded == 7


def test_unmasked_few_missing_identifiers_are_not_counted_but_refused():
    sites, _ = with_missing(6)
    with pytest.raises(
        DisclosureRefused, match="the patients without an identifier must be none or at least 10, because"
    ) as refused:
        HashGroupKFold(4).plan(federate(sites, policy=None, secure_sum=False))
    assert "secure_sum=True" in str(refused.value)
    assert "site-1" in str(refused.value)
    sites, _ = with_missing(12)
    with pytest.raises(
        DisclosureRefused, match="the patients without an identifier must be none or at least 10, because"
    ):
        HashGroupKFold(4, max_missing=0.1).plan(federate(sites, policy=None, secure_sum=False))
    assert HashGroupKFold(4, max_missing=0.1).plan(federate(sites, policy=None)).n_excluded == 12


def test_a_patients_records_share_the_identifier_that_most_have():
    rng = np.random.default_rng(0)
    patients = np.repeat(np.arange(80), 3)
    given = [[f"id{patient}", f"id{patient}", None] for patient in range(80)]
    given[0], given[1], given[2] = [None, None, "id900"], ["id902", "id901", None], [None] * 3
    data = table(rng, range(240), person=list(itertools.chain(*given)), local=[str(patient) for patient in patients])
    other = table(rng, range(80), person=[f"id{number}" for number in [900, 901, *range(2, 80)]], local=list("x" * 80))
    by_patient = HashGroupKFold(3, person_key="person", patient_key="local", max_missing=0.05)
    plan = by_patient.plan(
        federate(
            {
                "a": data,
                "b": other.with_identifier(
                    {"person": other.identifier.column("person"), "local": [str(i) for i in range(80)]}
                ),
            }
        )
    )
    folds = folds_of(plan)
    assert all(len(set(folds["a"][patients == patient].tolist())) == 1 for patient in range(80))
    assert plan.n_excluded == 3
    assert folds["a"][6:9].tolist() == [-1] * 3
    assert folds["a"][0] == folds["b"][0]
    assert folds["a"][3] == folds["b"][1]
    apart = HashGroupKFold(3, person_key="person", max_missing=0.5).plan(federate({"a": data, "b": other}))
    assert apart.n_excluded == 77 + 2 + 1 + 3


def test_a_site_without_key_or_with_another_is_named():
    sites, _ = people_sites()
    with pytest.raises(ConfigurationError, match="every site must have the study's key of pseudonyms"):
        HashGroupKFold().plan(federate(sites, pseudonym_key={"site-0": KEY, "site-1": KEY}))
    with pytest.raises(ConfigurationError, match="all sites must have the same key of pseudonyms"):
        HashGroupKFold().plan(federate(sites, pseudonym_key={"site-0": KEY, "site-1": OTHER, "site-2": KEY}))
    with pytest.raises(ConfigurationError, match="a, b: "):
        check_keys({"a": "00", "b": "11"})


def test_an_identifier_that_stands_for_many_is_noticed_where_it_is():
    sites, people = people_sites(200)
    crowded = [f"p{number}" if place > 30 else "pX" for place, number in enumerate(people["site-2"])]
    sites["site-2"] = sites["site-2"].with_identifier(crowded)
    with pytest.warns(UserWarning, match="^site-2: one value of 'identifier' has many more records") as caught:
        plan = HashGroupKFold(4).plan(federate(sites))
    assert "pX" not in str(caught[0].message)
    assert caught[0].filename == __file__
    assert len(set(folds_of(plan)["site-2"][:31].tolist())) == 1
    masked_only = mc.Policy(secure_sums_only=True)
    with pytest.warns(UserWarning, match="^a site: one value of 'identifier' has many more"):
        HashGroupKFold(4).plan(federate(sites, policy=masked_only))


def test_patients_with_many_records_each_are_no_crowd():
    rng = np.random.default_rng(0)
    data = table(rng, np.repeat(np.arange(60), 25))
    HashGroupKFold(4).plan(federate({"a": data, "b": table(rng, range(100))}))
    people = np.r_[np.zeros(40, dtype=int), np.arange(1, 200)]
    often = table(rng, people, nr=people.astype(str), local=people.astype(str))
    HashGroupKFold(4, person_key="nr", patient_key="local").plan(federate({"a": often}))
    with pytest.warns(UserWarning, match="^a: one value of 'nr' has many more"):
        HashGroupKFold(4, person_key="nr").plan(federate({"a": often}))


def born(n=120):
    days = np.datetime64("1930-01-01") + np.random.default_rng(0).choice(20_000, n, replace=False)
    return [str(day) for day in days]


def as_dmy(iso):
    return [f"{int(day)}/{month}/{year}" for year, month, day in (text.split("-") for text in iso)]


def test_dates_are_read_in_each_sites_declared_order():
    rng, iso = np.random.default_rng(0), born()
    sites = {"lyon": table(rng, iso, birth_date=as_dmy(iso)), "oslo": table(rng, iso, birth_date=iso)}
    by_date = {"person_key": "birth_date", "kind": "date"}
    plan = HashGroupKFold(3, date_order={"lyon": "dmy"}, **by_date).plan(federate(sites))
    assert np.array_equal(*folds_of(plan).values())
    for undeclared in ("iso", "mdy"):
        with pytest.raises(
            DataError, match=r"at most 0\.01 of the records may lack a readable identifier; got \d+ of 240"
        ):
            HashGroupKFold(3, date_order=undeclared, **by_date).plan(federate(sites))
    with pytest.raises(ConfigurationError, match="date_order must name participating sites; got Lyon"):
        HashGroupKFold(3, date_order={"Lyon": "dmy"}, **by_date).plan(federate(sites))
    with pytest.raises(ConfigurationError, match="date_order must be one of"):
        HashGroupKFold(3, date_order="german", **by_date).plan(federate(sites))


def test_years_of_two_digits_are_refused_without_saying_where():
    iso = born()
    sites = {"lyon": table(np.random.default_rng(0), iso, birth_date=[*iso[:-1], "31/12/53"])}
    with pytest.raises(DataError) as refused:
        HashGroupKFold(3, person_key="birth_date", kind="date").plan(federate(sites))
    assert refused.value.where == "lyon, birth_date"
    assert "53" not in str(refused.value)
    assert "120" not in str(refused.value)


def test_names_in_unicode_and_numbers_are_one_person_however_they_are_written():
    rng = np.random.default_rng(0)
    names = [f"{first} {last}" for first in ("Zoë", "Łukasz", "Jürgen", "Ångström") for last in map(chr, range(65, 91))]
    plain = [name.replace("ë", "e\u0308").replace("ü", "U").replace("Ł", "l").upper() for name in names]
    sites = {"a": table(rng, names, name=names), "b": table(rng, plain, name=plain)}
    plan = HashGroupKFold(3, person_key="name", kind="name").plan(federate(sites))
    assert np.array_equal(*folds_of(plan).values())
    numbers = [str(number) for number in range(1, 101)]
    sites = {"a": table(rng, numbers, nr=numbers), "b": table(rng, numbers, nr=[f" {number} " for number in numbers])}
    plan = HashGroupKFold(3, person_key="nr").plan(federate(sites))
    assert np.array_equal(*folds_of(plan).values())


def test_a_site_without_the_identifier_is_named():
    sites, _ = people_sites()
    sites["site-1"] = sites["site-1"].without_identifier()
    with pytest.raises(DataError, match="site-1, identifier: the records must have identifiers"):
        HashGroupKFold().plan(federate(sites))
    with pytest.raises(DataError, match="site-0"):
        HashGroupKFold(person_key="nhs").plan(federate(people_sites()[0]))


def test_sites_that_know_fewer_classes_are_named():
    sites, _ = people_sites()
    X, given = sites["site-1"].X, sites["site-1"].identifier
    sites["site-1"] = mc.data.TableData(X, np.arange(100) % 2, classes=["0", "1", "2"]).with_identifier(given)
    with pytest.raises(DataError, match="all sites must have the same 3 classes of the outcome"):
        HashGroupKFold().plan(federate(sites))


def test_a_fold_without_an_event_is_refused_and_one_with_few_warned_of():
    sites, _ = people_sites(100, rate=0.0, shared=0)
    few = {
        name: mc.data.TableData(
            data.X, (np.arange(100) < 1).astype(int), data.identifier.column("identifier"), classes=["0", "1"]
        )
        for name, data in sites.items()
    }
    with pytest.raises(DataError, match="every fold must have records of every class"):
        HashGroupKFold(4).plan(federate(few))
    some = {
        name: mc.data.TableData(
            data.X, (np.arange(100) < 8).astype(int), data.identifier.column("identifier"), classes=["0", "1"]
        )
        for name, data in sites.items()
    }
    with pytest.warns(UserWarning, match=r"HashGroupKFold: fold \d has (\d|<5) records of class 1"):
        HashGroupKFold(3).plan(federate(some))


def test_small_sites_are_told_what_to_do_unmasked():
    sites, _ = people_sites(50, shared=5)
    with pytest.raises(
        DisclosureRefused, match="every fold, and the records without a fold, must have at least 10"
    ) as refused:
        HashGroupKFold(5).plan(federate(sites, policy=None, secure_sum=False))
    assert "secure_sum=True" in str(refused.value)


def test_a_plan_is_made_where_nothing_but_masked_sums_may_leave():
    sites, people = people_sites()
    plan = HashGroupKFold(3).plan(federate(sites, policy=mc.Policy(secure_sums_only=True)))
    assert violations(folds_of(plan), people) == 0


def test_where_nothing_but_masked_sums_may_leave_small_folds_are_refused_with_a_remedy():
    sites, _ = people_sites(40)
    with pytest.raises(RefusedByPolicy, match="answers of this site must be masked sums"):
        HashGroupKFold(5).plan(federate(sites, policy=mc.Policy(secure_sums_only=True)))


def test_a_plan_travels_over_the_wire():
    sites, people = people_sites()
    plan = HashGroupKFold(3).plan(federate(sites, strict=True))
    assert violations(folds_of(plan), people) == 0
    assert HashGroupKFold(2).plan(plan.train(0)).counts.sum() == plan.counts[1:].sum()


@pytest.mark.parametrize("step", ["count_missing", "count_buckets", "assign", "count_folds"])
def test_a_plan_that_was_broken_off_goes_on_to_the_same_folds(step, tmp_path, monkeypatch):
    sites, _ = people_sites()
    whole = HashGroupKFold(3).plan(federate(sites))
    original = Session.collect

    def breaking(self, asked, *args, **kwargs):
        if asked.name == step:
            raise KeyboardInterrupt
        return original(self, asked, *args, **kwargs)

    monkeypatch.setattr(Session, "collect", breaking)
    with pytest.raises(KeyboardInterrupt):
        HashGroupKFold(3).plan(federate(sites, folder=tmp_path))
    monkeypatch.undo()
    federation = federate(sites, folder=tmp_path)
    plan = HashGroupKFold(3).plan(federation)
    assert plan.digest == whole.digest
    assert np.array_equal(joined(folds_of(plan)), joined(folds_of(whole)))
    finished = federate(sites, folder=tmp_path)
    taken_up = HashGroupKFold(3).plan(finished)
    assert not finished.traffic.calls
    assert np.array_equal(taken_up.class_table, plan.class_table)
    assert np.array_equal(joined(folds_of(taken_up)), joined(folds_of(whole)))


def test_the_wrong_number_of_folds_or_repeats_is_refused():
    federation = federate(people_sites()[0])
    for n_splits in (1, 101, 2.5):
        with pytest.raises(ConfigurationError, match="n_splits must be an integer from 2 to 100"):
            HashGroupKFold(n_splits).plan(federation)
    with pytest.raises(ConfigurationError, match="repeats"):
        RepeatedHashGroupKFold(5, 0).plans(federation)
