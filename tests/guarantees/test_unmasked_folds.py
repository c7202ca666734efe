"""A coordinator that asks one site unmasked about folds that were counted under masks learns of no few patients."""

from types import SimpleNamespace

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.messages import Nothing
from multicentre.errors import DisclosureRefused
from multicentre.linkage.persons import Persons
from multicentre.survival.agreement.messages import OfCause
from multicentre.survival.cox.site import CoxSite
from multicentre.validation import CovariateFoldKFold, cross_validate
from multicentre.validation.folds import rounds
from multicentre.validation.folds.by_site import SiteFolds
from multicentre.validation.folds.hashed import HashGroupKFold, RepeatedHashGroupKFold
from multicentre.validation.folds.site import Unshared
from support.fold_sites import folds_of

SITES = ("lyon", "oslo", "turin")
N = 200
# So few patients that some of the 16 buckets of a hash hold none, and some one.
FEW = 32


def survival_site(name, n, seed, n_unnamed=0):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(n, 3)), 3)
    data = mc.data.SurvivalData(X, rng.exponential(1.0, n), np.ones(n, dtype=int))
    return data.with_identifier([f"{name}-p{row}x" if row >= n_unnamed else None for row in range(n)])


def federation_of(n_at_oslo=N, n_unnamed=0, *, secure_sum=True):
    sizes = {name: n_at_oslo if name == "oslo" else N for name in SITES}
    sites = {name: survival_site(name, sizes[name], seed, n_unnamed) for seed, name in enumerate(SITES)}
    policy = mc.Policy(min_difference=0)  # the rules of folds hold without it
    return mc.Federation.in_process(sites, policy=policy, secure_sum=secure_sum), sites


def pack_with(monkeypatch, moved=None):
    """Have the coordinator put every second bucket into fold 1, but for one that it moves."""

    def packed(table, n_splits):
        folds = np.arange(len(table)) % 2
        if moved is not None:
            folds[moved] = 1 - folds[moved]
        return folds

    monkeypatch.setattr(rounds, "pack_buckets", packed)


def selected(plan, fold):
    return plan.session.select([fold], SITES)


def sizes_over(federation):
    """Ask every site unmasked for sums: numbers of patients and totals of their covariates."""
    return federation.unmasked().begin(CoxSite).collect(CoxSite.sum_sizes, OfCause(1))


def sizes_of(plan, fold=0):
    return sizes_over(selected(plan, fold))


def moved_plan(monkeypatch, federation, first, differs):
    """Return a plan by the same hash that moves one bucket, and by how many of oslo's patients it differs."""
    for bucket in range(16):
        pack_with(monkeypatch, bucket)
        second = HashGroupKFold(2).plan(federation)
        n_moved = int((folds_of(first)["oslo"] != folds_of(second)["oslo"]).sum())
        if n_moved == differs:
            return second
    raise AssertionError("no such bucket")


@pytest.mark.parametrize("differs", [1, 0])
def test_two_masked_plans_that_differ_by_one_bucket_are_not_both_answered_for_unmasked(monkeypatch, differs):
    """The difference of two unmasked sums would be one patient's row; a refusal must not tell whether there is one."""
    federation, sites = federation_of(FEW)
    pack_with(monkeypatch)
    first = HashGroupKFold(2).plan(federation)
    answers = sizes_of(first)
    rows = folds_of(first)["oslo"] == 0
    assert answers["oslo"].n_patients == rows.sum()
    assert np.allclose(answers["oslo"].total, sites["oslo"].X[rows].sum(axis=0))
    second = moved_plan(monkeypatch, federation, first, differs)
    for fold in (0, 1):
        with pytest.raises(DisclosureRefused, match="must be about one plan of folds"):
            sizes_of(second, fold)
    assert sizes_of(first, 1)["oslo"].n_patients == (~rows).sum()
    masked = selected(second, 0).begin(CoxSite).sum(CoxSite.sum_sizes, OfCause(1))
    assert masked.n_patients == sum(int((folds == 0).sum()) for folds in folds_of(second).values())


def test_answers_that_are_no_sums_are_refused_likewise(monkeypatch):
    federation, _ = federation_of()
    pack_with(monkeypatch)
    sizes_of(HashGroupKFold(2).plan(federation))
    pack_with(monkeypatch, 5)
    second = HashGroupKFold(2).plan(federation)
    with pytest.raises(DisclosureRefused, match="must be about one plan of folds"):
        selected(second, 0).begin(CoxSite).ask(CoxSite.report_gaps, Nothing())
    own = mc.survival.FedCox(n_times=20).fit(selected(second, 0)).by_site().refused
    scored = cross_validate(mc.survival.FedCox(n_times=20), federation, cv=second, scoring="concordance")
    assert np.isfinite(scored["test_concordance"]).all()
    for refused in (own, *scored["site_refusals"]):
        assert set(refused) == set(SITES)
        assert all("must be about one plan of folds" in reason for reason in refused.values())


@pytest.mark.parametrize("n_unnamed", [1, 9])
def test_few_in_no_fold_are_not_found_by_what_all_folds_lack(n_unnamed):
    federation, _ = federation_of(n_unnamed=n_unnamed)
    plan = HashGroupKFold(2, max_missing=0.1).plan(federation)
    with pytest.raises(DisclosureRefused, match="and the records in no fold, must be of at least 10 patients"):
        sizes_of(plan)
    selected(plan, 0).begin(CoxSite).sum(CoxSite.sum_sizes, OfCause(1))


def test_one_person_left_out_by_forged_marks_is_not_found_by_unmasked_sums():
    federation, _ = federation_of()
    opened = federation.begin(SiteFolds)
    told = HashGroupKFold(2)._request("study")
    persons = {name: getattr(told, name) for name in Persons.declarations()}
    opened.ask(SiteFolds.take_unshared, Unshared(**persons, roster=SITES, shared=np.arange(4096) < 40))
    opened.sum(SiteFolds.count_folds, Nothing())
    n_left_out = {site: int((folds < 0).sum()) for site, folds in folds_of(SimpleNamespace(session=opened)).items()}
    assert any(0 < number < 10 for number in n_left_out.values())
    for place, site in enumerate(SITES):
        alone = opened.select([place], [site]).unmasked().begin(CoxSite)
        if n_left_out[site] in (0, *range(10, N)):
            alone.collect(CoxSite.sum_sizes, OfCause(1))
        else:
            with pytest.raises(DisclosureRefused, match="must be of at least 10 patients"):
                alone.collect(CoxSite.sum_sizes, OfCause(1))


def test_thresholds_of_one_covariate_are_answered_for_unmasked_once():
    federation, _ = federation_of()
    for n_splits, fits in ((2, True), (3, False), (2, True)):
        plan = CovariateFoldKFold(n_splits, covariate="x0").plan(federation)
        if fits:
            sizes_of(plan)
        else:
            with pytest.raises(DisclosureRefused, match="must be about one plan of folds"):
                sizes_of(plan)


def test_masked_cross_validation_gives_scores_by_site_however_often_it_is_repeated():
    federation, _ = federation_of()
    for cv in (RepeatedHashGroupKFold(2, n_repeats=3), 2, HashGroupKFold(2)):
        found = cross_validate(mc.survival.FedCox(n_times=20), federation, cv=cv, scoring="concordance")
        assert not any(found["site_refusals"])


@pytest.mark.parametrize("secure_sum", [False, True])
def test_many_plans_and_all_records_are_answered_for_unmasked(secure_sum):
    """As in repeated and nested cross-validation of methods with unmasked steps, and a final fit on all."""
    federation, _ = federation_of(secure_sum=secure_sum)
    for repeat in range(3):
        plan = HashGroupKFold(2, repeat=repeat).plan(federation)
        for training, testing in plan:
            assert set(sizes_over(training)) == set(sizes_over(testing)) == set(SITES)
        inner = HashGroupKFold(2).plan(plan.train(0))
        assert sizes_over(inner.train(0))
    assert set(sizes_over(federation)) == set(SITES)
