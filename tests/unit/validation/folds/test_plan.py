"""A plan over sites: which federations it gives, what it counts unmasked, and random folds."""

import copy
import dataclasses
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, DisclosureWarning
from multicentre.linkage.persons import array_strata, outcome_strata
from multicentre.validation.cross_validation import cross_validate
from multicentre.validation.folds.by_site import FederatedKFold, LeaveOneSiteOut, draw_folds
from multicentre.validation.folds.group_sizes import spare_few
from multicentre.validation.folds.hashed import HashGroupKFold
from multicentre.validation.folds.plan import FoldPlan, check_outcomes
from support.fold_sites import federate, folds_of, people_sites, table, violations


def total(federation):
    """Return records of a federation, counted by another plan over it."""
    return FederatedKFold(2).plan(federation).counts.sum()


def test_training_and_testing_records_are_those_of_the_folds():
    sites, _ = people_sites(120)
    plan = FederatedKFold(4).plan(federate(sites))
    for fold, (train, test) in enumerate(plan):
        assert total(test) == plan.counts[fold]
        assert total(train) + total(test) == 360
    assert plan.n_splits == 4
    for fold in (-1, 4):
        with pytest.raises(ConfigurationError, match="fold must be from 0 to 3"):
            plan.test(fold)


def test_imbalance_is_the_largest_difference_of_a_share_in_percentage_points():
    made = FoldPlan("", True, np.array([[40.0, 10.0], [30.0, 20.0]]), 0, {}, {}, "", None)
    assert made.imbalance() == pytest.approx(10.0)
    assert made.counts.tolist() == [50.0, 50.0]


def outcomes(table, **options):
    return check_outcomes(FoldPlan("folds", True, np.array(table, dtype=float), 0, {}, {}, "", None), **options)


def test_outcomes_are_checked():
    outcomes([[10, 0, 10], [40, 0, 12]])
    with pytest.raises(DataError, match="every fold must have records of every class"):
        outcomes([[10, 0, 10], [40, 0, 0]])
    with pytest.warns(UserWarning, match="fold 0 has 9 records of class 2"):
        outcomes([[10, 0, 9], [40, 0, 10]])
    with pytest.warns(UserWarning, match="fold 0 has <5 records of class 2"):
        outcomes([[10, 0, 4], [40, 0, 10]])
    with pytest.warns(UserWarning, match="fold 1 has no records of class 2"):
        outcomes([[10, 0, 10], [40, 0, 0]], needed=False)


@pytest.mark.filterwarnings("ignore:HashGroupKFold.*are in no fold")
def test_a_study_over_too_few_sites_in_a_fold_is_refused_before_its_fits():
    sites, _ = people_sites(60)
    few = {**sites, "small": next(iter(sites.values())).take(np.arange(24))}
    for agreed, quorum in (("", "all"), ("digest", 3)):
        federation = mc.Federation.in_process(few, agreed=agreed, quorum=quorum)
        HashGroupKFold(4).plan(federation).check_quorum()
    federation = mc.Federation.in_process(few, agreed="digest")
    with pytest.raises(
        ConfigurationError, match=r"at 4 sites, the quorum of the study; fold \d has them at 3"
    ) as caught:
        cross_validate(mc.survival.FedCox(), federation, cv=HashGroupKFold(4))
    assert "quorum = 3" in caught.value.hint


def classes_of(fewest):
    """Return two sites of 60 patients each, of whom one has so many of the second class."""
    rng = np.random.default_rng(0)
    return {
        name: mc.data.TableData(rng.normal(size=(60, 1)), (np.arange(60) < n).astype(int))
        for name, n in {"a": 30, "b": fewest}.items()
    }


@pytest.mark.filterwarnings("ignore:LeaveOneSiteOut. fold . has")
def test_unmasked_classes_are_counted_as_they_are_or_refused():
    policy = mc.Policy(min_patients=10)
    plan = LeaveOneSiteOut().plan(federate(classes_of(10), policy=policy, secure_sum=False))
    masked = LeaveOneSiteOut().plan(federate(classes_of(10), policy=policy))
    assert plan.class_table.tolist() == masked.class_table.tolist() == [[30, 30], [50, 10]]
    assert LeaveOneSiteOut().plan(federate(classes_of(9), policy=policy)).class_table.tolist() == [[30, 30], [51, 9]]
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        LeaveOneSiteOut().plan(federate(classes_of(9), policy=policy, secure_sum=False))


def test_under_masks_records_in_folds_of_few_at_their_site_are_in_no_fold():
    sites, _ = people_sites(100)
    small = {**sites, "small": table(np.random.default_rng(1), range(1000, 1030))}
    said = (
        "30 of 330 records are in no fold, "
        "because their sites have fewer patients in a fold than their policies require."
    )
    with pytest.warns(UserWarning, match=f"{said} Use fewer folds"):
        plan = FederatedKFold(5).plan(federate(small, policy=None))
    assert plan.present["small"] == plan.tested["small"] == ()
    assert plan.train(0).sites == plan.test(0).sites == tuple(sites)
    assert plan.counts.sum() == 300
    assert plan.n_excluded == plan.n_left_out == 30
    assert plan.exclusions == said
    assert plan.summary() == f"FederatedKFold: 5 folds of 60 to 60 records. {said}"
    with pytest.raises(DisclosureRefused, match="small: every fold"):
        FederatedKFold(5).plan(federate(small, policy=None, secure_sum=False))
    assert FederatedKFold(5).plan(federate(sites)).exclusions == ""


def test_a_plan_says_how_many_records_are_in_no_fold_and_why():
    made = FoldPlan("folds", True, np.array([[40.0], [44.0]]), 16, {}, {}, "", None)
    assert made.exclusions == (
        "16 of 100 records are in no fold: they lack an identifier or covariate, or the strategy excludes them."
    )
    some = dataclasses.replace(made, n_left_out=12, facts={"balanced": False})
    assert some.summary() == (
        "folds: 2 folds of 40 to 44 records. Their sizes are random. 16 of 100 records are in no fold, "
        "12 of them because their sites have fewer patients in a fold than their policies require."
    )


@pytest.mark.filterwarnings("ignore:FederatedKFold. fold . has")
@pytest.mark.filterwarnings("ignore:FederatedKFold. 60 of 260 records are in no fold")
def test_a_fold_that_one_site_alone_can_be_tested_on_is_warned_of():
    rng = np.random.default_rng(0)
    sites = {"large": table(rng, range(200)), "a": table(rng, range(200, 230)), "b": table(rng, range(300, 330))}
    with pytest.warns(DisclosureWarning, match="FederatedKFold: fold 0 can be tested at one site only"):
        plan = FederatedKFold(5).plan(federate(sites, policy=None))
    assert plan.test(0).sites == ("large",)
    assert plan.test(0).protection == "unmasked"
    assert plan.session.protection == "masked"


def test_folds_that_no_site_has_enough_records_for_are_refused():
    sites, _ = people_sites(30, 3, shared=0)
    with (
        pytest.warns(UserWarning, match="90 of 90 records are in no fold"),
        pytest.raises(DataError, match="at least one site must have its policy's minimum of patients in a fold"),
    ):
        FederatedKFold(5).plan(federate(sites, policy=None))


def fold_column(sizes, n_splits, least):
    order = np.random.default_rng(0).permutation(sum(sizes))
    fold = np.repeat(np.arange(-1, n_splits), sizes)[order]
    return fold, spare_few(fold, n_splits, least, np.random.default_rng(1).permutation(len(fold)))


@given(st.lists(st.integers(0, 30), min_size=3, max_size=7), st.integers(0, 12))
def test_what_is_left_of_folds_and_what_is_left_out_is_none_or_enough(sizes, least):
    before, after = fold_column(sizes, len(sizes) - 1, least)
    left, kept = np.bincount(after[after >= 0], minlength=len(sizes) - 1), after >= 0
    assert ((left == 0) | (left >= least)).all()
    assert np.array_equal(after[kept], before[kept])
    n_left = int((~kept).sum()) - sizes[0]
    assert n_left == 0 or n_left >= least or not kept.any()
    if min((size for size in sizes[1:] if size), default=least) >= least:
        assert n_left == 0


def test_a_plan_that_travelled_tells_its_counts_and_that_it_has_no_federation():
    plan = HashGroupKFold(3).plan(federate(people_sites()[0]))
    for copied in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        assert np.array_equal(copied.class_table, plan.class_table)
        assert copied.digest == plan.digest
        assert repr(copied) == repr(plan)
        for part in (copied.train, copied.test):
            with pytest.raises(ConfigurationError, match="the plan must have a session with the sites"):
                part(0)
        with pytest.raises(AttributeError, match="no attribute 'folds'"):
            copied.folds()


@pytest.mark.parametrize("secure", [False, True])
@pytest.mark.parametrize(
    "step", ["describe_key", "count_missing", "count_buckets", "assign", "send_digest", "count_folds"]
)
def test_a_site_that_is_lost_is_not_in_the_plan(step, secure):
    sites, people = people_sites(200, 4)
    federation = federate(sites, quorum=3, secure_sum=secure, faults=Faults(lose={"site-2": step}))
    plan = HashGroupKFold(3).plan(federation)
    left = {name: own for name, own in people.items() if name != "site-2"}
    assert tuple(plan.present) == plan.train(0).sites == tuple(left)
    assert violations(folds_of(plan), left) == 0
    assert plan.counts.sum() == 600


@pytest.mark.parametrize("n_splits", [2, 3, 7])
def test_random_folds_are_even_and_keep_patients_together(n_splits):
    patients = np.random.default_rng(0).integers(40, size=100)
    folds = draw_folds(patients, n_splits, np.random.default_rng(1))
    by_patient = [set(folds[patients == patient].tolist()) for patient in np.unique(patients)]
    assert all(len(found) == 1 for found in by_patient)
    sizes = np.bincount(draw_folds(np.arange(100), n_splits, np.random.default_rng(1)), minlength=n_splits)
    assert np.ptp(sizes) <= 1


def test_random_folds_of_patients_follow_a_column_of_the_site():
    sites = {"a": table(np.random.default_rng(0), range(200), local=[str(row // 4) for row in range(200)])}
    plan = FederatedKFold(4, patient_key="local").plan(federate(sites))
    fold = folds_of(plan)["a"].reshape(50, 4)
    assert (fold == fold[:, :1]).all()
    other = FederatedKFold(4, patient_key="local", random_state=1).plan(federate(sites))
    assert not np.array_equal(folds_of(other)["a"].reshape(50, 4), fold)


def test_classes_of_all_kinds_of_data():
    rng = np.random.default_rng(0)
    survival = mc.data.SurvivalData(rng.normal(size=(4, 1)), [1.0, 2, 3, 4], [0, 1, 2, 0])
    numbers = mc.data.TableData(rng.normal(size=(4, 1)), rng.normal(size=4), outcome="number")
    assert outcome_strata(survival)[0].tolist() == [0, 1, 1, 0]
    assert outcome_strata(numbers) == (pytest.approx(np.zeros(4)), 1)
    assert array_strata(np.array([2.0, 5.0, 2.0, 5.0]), 4)[0].tolist() == [0, 1, 0, 1]
    assert array_strata(np.arange(20), 20)[1] == 1
    assert array_strata(None, 3)[0].tolist() == [0, 0, 0]
