"""Curves and tests on sites with small cells are those of the pooled patients under a mask, and refused without one."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import binom

import multicentre as mc
from multicentre.errors import DisclosureRefused
from multicentre.survival import AalenJohansen, KaplanMeier, LogRank

MONTHS = np.arange(1.0, 41.0)  # every time of the patients is one of them: a given grid loses nothing


def federate(time, event, arm, site, **options):
    sites = {
        f"site-{name}": mc.data.SurvivalData(arm[here][:, None], time[here], event[here], columns=["arm"])
        for name in np.unique(site)
        for here in [site == name]
    }
    return mc.Federation.in_process(sites, **options)


def pooled_test(time, event, arm):
    """Return chi-square and p-value of scikit-survival."""
    compare_survival = pytest.importorskip("sksurv.compare").compare_survival
    outcome = np.array(list(zip(event == 1, time, strict=True)), dtype=[("event", bool), ("time", float)])
    return compare_survival(outcome, arm)


def null_study(seed):
    """Return a study of four sites in which two groups survive alike.

    The groups' shares differ by site, and so does the follow-up by group: the few censored patients of a group at a
    site are not like its others, so that leaving them out would not be left to chance.
    """
    rng = np.random.default_rng(seed)
    site = np.repeat(np.arange(4), [30, 45, 60, 75])
    arm = (rng.random(len(site)) < np.array([0.1, 0.3, 0.2, 0.4])[site]).astype(float)
    died, end = np.ceil(rng.exponential(9.0, len(site))), np.ceil(rng.uniform(6.0 + 12.0 * arm, 40.0))
    return np.minimum(died, end), (died <= end).astype(int), arm, site


def few_censored(seed=0):
    """Return patients of two arms at four sites, of whom one to nine of each arm and site leave late, without event."""
    rng = np.random.default_rng(seed)
    site, arm = np.repeat(np.arange(4), 90), np.tile([0.0, 1.0], 180)
    time = np.minimum(np.ceil(rng.exponential(7.0 + 5.0 * arm)), 40.0)
    event = np.ones(len(time), dtype=int)
    for group in range(8):
        here = np.flatnonzero((site == group // 2) & (arm == group % 2))
        event[here[np.argsort(-time[here], kind="stable")[: 2 + group % 7]]] = 0
    return time, event, arm, site


def rare_groups(seed=0):
    """Return patients with two causes of events, in three arms, of which the last has one to three at a site."""
    rng = np.random.default_rng(seed)
    site, n_rare = np.repeat(np.arange(5), 24), [1, 2, 3, 1, 2]
    arm = np.concatenate([np.arange(24) % 2 + (2 - np.arange(24) % 2) * (np.arange(24) < n) for n in n_rare])
    died, end = np.ceil(rng.exponential(8.0, 120)), np.ceil(rng.uniform(2.0, 40.0, 120))
    return np.minimum(died, end), np.where(died <= end, rng.integers(1, 3, 120), 0), arm.astype(float), site


def test_a_few_censored_patients_of_each_group_and_site_count():
    time, event, arm, site = patients = few_censored()
    cells = [np.count_nonzero((site == s) & (arm == a) & (event == 0)) for s in range(4) for a in (0, 1)]
    assert set(cells) <= set(range(1, 10))
    masked = LogRank("arm", stratify_by_site=False, times=MONTHS).fit(federate(*patients))
    statistic, p_value = pooled_test(time, event, arm)
    assert masked.statistic_ == pytest.approx(statistic, abs=1e-6)
    assert masked.p_value_ == pytest.approx(p_value, rel=1e-6)
    assert masked.n_left_out_ == 0
    known = event == 1
    without, _ = pooled_test(time[known], event[known], arm[known])
    assert abs(without - statistic) > 5.0  # what leaving them out would change
    for kind in (partial(LogRank, stratify_by_site=False), KaplanMeier):
        with pytest.raises(DisclosureRefused, match="secure_sum=True"):
            kind("arm", times=MONTHS).fit(federate(*patients, secure_sum=False))


def test_curves_of_rare_groups_are_those_of_the_pooled_patients():
    theirs = pytest.importorskip("sksurv.nonparametric")
    time, event, arm, site = rare_groups()
    federation, grouped = federate(time, event, arm, site), {"levels": [0, 1, 2], "times": MONTHS}
    curves = KaplanMeier("arm", **grouped).fit(federation)
    incidence = AalenJohansen("arm", **grouped).fit(federation)
    assert curves.n_patients_["2"] == 9
    for group in range(3):
        here = arm == group
        times, survival, limits = theirs.kaplan_meier_estimator(event[here] == 1, time[here], conf_type="log-log")
        at = np.searchsorted(MONTHS, times)
        np.testing.assert_allclose(curves.survival_[group, at], survival, rtol=0, atol=1e-9)
        bounds = np.array([curves.lower_[group, at], curves.upper_[group, at]])
        np.testing.assert_allclose(bounds, limits, rtol=0, atol=1e-9)
        times, shares = theirs.cumulative_incidence_competing_risks(event[here], time[here])
        at = np.searchsorted(MONTHS, times)
        np.testing.assert_allclose(incidence.incidence_[group][:, at], shares[1:], rtol=0, atol=1e-9)


def test_tests_of_rare_groups_are_those_of_the_pooled_patients():
    time, event, arm, site = rare_groups()
    found = LogRank("arm", levels=[0, 1, 2], stratify_by_site=False, times=MONTHS).fit(federate(time, event, arm, site))
    statistic, p_value = pooled_test(time, np.where(event == 1, 1, 0), arm)
    assert found.degrees_of_freedom_ == 2
    assert found.statistic_ == pytest.approx(statistic, abs=1e-6)
    assert found.p_value_ == pytest.approx(p_value, rel=1e-6)


def p_values(n_studies):
    """Return p-values over sites, each statistic compared with that of the pooled patients."""
    found = []
    for seed in range(n_studies):
        patients = null_study(seed)
        test = LogRank("arm", stratify_by_site=False, times=MONTHS).fit(federate(*patients))
        assert test.statistic_ == pytest.approx(pooled_test(*patients[:3])[0], abs=1e-6)
        found.append(test.p_value_)
    return np.array(found)


def test_statistics_of_null_studies_are_the_pooled_ones():
    assert len(np.unique(p_values(60))) == 60


def test_null_studies_are_refused_unmasked():
    for seed in range(20):
        with pytest.raises(DisclosureRefused, match="secure_sum=True"):
            LogRank("arm", stratify_by_site=False, times=MONTHS).fit(federate(*null_study(seed), secure_sum=False))


@pytest.mark.slow
def test_one_null_study_in_twenty_is_rejected_at_05():
    low, high = binom.interval(0.999, 500, 0.05)
    assert low <= np.count_nonzero(p_values(500) < 0.05) <= high
