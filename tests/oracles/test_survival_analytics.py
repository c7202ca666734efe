"""Federated curves and tests against closed forms, brute force, lifelines' values and scikit-survival."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from scipy.stats import chi2

import multicentre as mc
from multicentre.survival import AalenJohansen, KaplanMeier, LogRank
from multicentre.survival.curves.kaplan_meier import Curves
from multicentre.survival.curves.tables.risk import RiskTable, count_table

OPEN = mc.Policy(min_patients=0, exact_times=True)
EXACT = {"policy": mc.Policy(exact_times=True)}
UNMASKED = {"policy": OPEN, "secure_sum": False}
either = pytest.mark.parametrize("terms", [UNMASKED, EXACT], ids=["unmasked", "masked"])


def ties(n=240):
    """Return whole-day times with many ties, three groups, and two causes: the data of lifelines' values below."""
    rng = np.random.default_rng(5)
    group = rng.integers(0, 3, n)
    event_time = np.ceil(rng.exponential(30 * (1 + 0.4 * group)))
    end = np.ceil(rng.uniform(5, 90, n))
    time, event = np.minimum(event_time, end), (event_time <= end).astype(int)
    assert (time.sum(), event.sum()) == (6055.0, 144)
    return time, event, group


def split(time, event, group, sizes, order=None):
    """Return the patients as sites of the given sizes."""
    order = np.arange(len(time)) if order is None else order
    parts = np.split(order, np.cumsum(sizes)[:-1])
    return {
        f"site-{i}": mc.data.SurvivalData(group[p][:, None], time[p], event[p], columns=["arm"], unit="days")
        for i, p in enumerate(parts)
    }


def federate(sites, terms):
    return mc.Federation.in_process(sites, **terms)


def by_hand(time, event):
    """Return times of events, survival and Greenwood's sum, patient by patient."""
    times = np.unique(time[event == 1])
    survival, terms, curve = 1.0, 0.0, []
    for t in times:
        n, d = (time >= t).sum(), ((time == t) & (event == 1)).sum()
        survival *= 1 - d / n
        terms += d / (n * (n - d)) if n > d else 0.0
        curve.append((survival, terms))
    return times, *np.array(curve).T


@either
def test_curves_are_those_of_the_pooled_patients(terms):
    time, event, group = ties()
    model = KaplanMeier("arm", levels=[0, 1, 2], times="exact").fit(
        federate(split(time, event, group, [80] * 3), terms)
    )
    for arm in range(3):
        times, survival, greenwood = by_hand(time[group == arm], event[group == arm])
        here = np.searchsorted(model.times_, times)
        np.testing.assert_allclose(model.survival_[arm, here], survival, atol=1e-10)
        np.testing.assert_allclose(model.curves_.variance[arm, here], greenwood, atol=1e-10)
        at_risk = [((time >= t) & (group == arm)).sum() for t in model.times_]
        np.testing.assert_allclose(model.at_risk_[arm], at_risk, atol=1e-9)
        np.testing.assert_allclose(model.numbers_at_risk(model.times_)[arm], at_risk, atol=1e-9)


@pytest.mark.filterwarnings("ignore:the median follow-up of:UserWarning")
@pytest.mark.parametrize(
    "kind", [KaplanMeier, partial(LogRank, stratify_by_site=False)], ids=["KaplanMeier", "LogRank, not by site"]
)
@pytest.mark.parametrize("times", [None, "exact"])
def test_the_split_does_not_matter(kind, times):
    time, event, group = ties()
    models = [
        kind("arm", levels=[0, 1, 2], times=times).fit(federate(split(time, event, group, sizes, order), UNMASKED))
        for sizes, order in [([240], None), ([30, 200, 10], np.argsort(time)), ([60] * 4, np.argsort(group))]
    ]
    for other in models[1:]:
        np.testing.assert_array_equal(other.times_, models[0].times_)
        np.testing.assert_allclose(other.table_.events, models[0].table_.events, atol=1e-10)
        np.testing.assert_allclose(other.table_.at_risk, models[0].table_.at_risk, atol=1e-10)


@either
def test_medians_and_follow_up(terms):
    time, event, group = ties()
    model = KaplanMeier(times="exact").fit(federate(split(time, event, group, [80] * 3), terms))
    # lifelines 0.30.3, KaplanMeierFitter().fit(time, event).median_survival_time_
    assert model.median_["all"].value == 30.0
    reverse = pytest.importorskip("sksurv.nonparametric").kaplan_meier_estimator
    times, follow_up = reverse(event == 1, time, reverse=True)
    here = np.searchsorted(times, model.times_, side="right") - 1
    np.testing.assert_allclose(model.curves_.reverse_survival[0], follow_up[here], atol=1e-10)


def test_restricted_mean_of_lifelines():
    time, event, group = ties()
    model = KaplanMeier(times="exact").fit(federate(split(time, event, group, [80] * 3), UNMASKED))
    # lifelines 0.30.3, restricted_mean_survival_time(KaplanMeierFitter().fit(time, event), t=60)
    assert model.restricted_mean(60.0)["all"].value == pytest.approx(32.37041398052279, abs=1e-9)


def test_standard_error_of_the_restricted_mean_is_the_spread_over_samples():
    rng = np.random.default_rng(1)
    means, errors = [], []
    for _ in range(400):
        event_time, end = rng.exponential(10.0, 120), rng.uniform(0, 30, 120)
        time, event = np.minimum(event_time, end), (event_time <= end).astype(int)
        grid = np.unique(time[event == 1])
        counts = count_table(time, event, np.zeros(120, int), grid, np.array([1]), 1)
        curves = Curves(RiskTable(("all",), grid, *(count.astype(float) for count in counts), True), 0.95, "log", 12.0)
        value, error, *_ = curves.restricted_mean()["all"]
        means.append(value)
        errors.append(error)
    assert np.mean(means) == pytest.approx(10 * (1 - np.exp(-1.2)), abs=0.06)
    assert np.std(means) == pytest.approx(np.mean(errors), rel=0.1)


def test_without_censoring_the_restricted_mean_is_a_mean():
    time = np.arange(1.0, 41.0)
    model = KaplanMeier(times="exact").fit(federate(split(time, np.ones(40, int), time, [20, 20]), UNMASKED))
    found = model.restricted_mean(30.0)["all"]
    cut = np.minimum(time, 30.0)
    assert found.value == pytest.approx(cut.mean())
    assert found.standard_error == pytest.approx(cut.std() / np.sqrt(40))


LIFELINES = {
    # lifelines 0.30.3, multivariate_logrank_test(time, group, event, weightings=..., p=rho, q=gamma)
    ("logrank", 1.0, 0.0): (32.87098452294065, 7.280419487676052e-08),
    ("wilcoxon", 1.0, 0.0): (27.17891823582659, 1.2536401509328735e-06),
    ("tarone-ware", 1.0, 0.0): (29.806192342206494, 3.370292311280701e-07),
    ("fleming-harrington", 1.0, 0.0): (29.409285105577595, 4.110123588166387e-07),
    ("fleming-harrington", 0.5, 1.0): (24.99952918329187, 3.727530560636331e-06),
}


@either
@pytest.mark.parametrize("test", LIFELINES, ids=str)
def test_log_rank_of_lifelines(test, terms):
    time, event, group = ties()
    weights, rho, gamma = test
    model = LogRank(
        "arm", levels=[0, 1, 2], stratify_by_site=False, times="exact", weights=weights, rho=rho, gamma=gamma
    )
    model.fit(federate(split(time, event, group, [100, 90, 50]), terms))
    statistic, p_value = LIFELINES[test]
    assert model.statistic_ == pytest.approx(statistic, abs=1e-8)
    assert model.p_value_ == pytest.approx(p_value, rel=1e-7)
    assert model.degrees_of_freedom_ == 2


def log_rank_by_hand(time, event, group):
    """Return observed less expected of the second of two groups, and its variance."""
    score = variance = 0.0
    for t in np.unique(time[event == 1]):
        at_risk, died = time >= t, (time == t) & (event == 1)
        n, n1, d, d1 = at_risk.sum(), (at_risk & (group == 1)).sum(), died.sum(), (died & (group == 1)).sum()
        score += d1 - d * n1 / n
        variance += d * (n1 / n) * (1 - n1 / n) * (n - d) / (n - 1) if n > 1 else 0.0
    return score, variance


@pytest.mark.parametrize(
    "terms", [{"secure_sum": False}, {}], ids=["unmasked, default policy", "masked, default policy"]
)
def test_a_test_by_strata_is_the_sum_of_the_sites(terms):
    time, event, group = ties()
    group = (group > 0).astype(int)
    sizes = [100, 90, 50]
    model = LogRank("arm").fit(federate(split(time, event, group, sizes), terms))
    edges = np.cumsum([0, *sizes])
    parts = [slice(a, b) for a, b in pairwise(edges)]
    score, variance = np.sum([log_rank_by_hand(time[p], event[p], group[p]) for p in parts], axis=0)
    assert model.score_[1] == pytest.approx(score, abs=1e-6)
    assert model.statistic_ == pytest.approx(score**2 / variance, abs=1e-6)
    assert model.p_value_ == pytest.approx(chi2.sf(score**2 / variance, 1), rel=1e-6)


def incidence_by_hand(time, cause, which):
    times = np.unique(time[cause > 0])
    survival, total, curve = 1.0, 0.0, []
    for t in times:
        n = (time >= t).sum()
        total += survival * ((time == t) & (cause == which)).sum() / n
        survival *= 1 - ((time == t) & (cause > 0)).sum() / n
        curve.append(total)
    return times, np.array(curve)


@either
def test_incidence_is_that_of_the_pooled_patients(terms):
    time, event, group = ties()
    cause = event * (1 + group % 2)
    model = AalenJohansen(times="exact").fit(federate(split(time, cause, group, [80] * 3), terms))
    for number in (1, 2):
        times, incidence = incidence_by_hand(time, cause, number)
        np.testing.assert_allclose(model.times_, times)
        np.testing.assert_allclose(model.incidence_[0, number - 1], incidence, atol=1e-10)
    np.testing.assert_allclose(model.survival_[0], by_hand(time, event)[1], atol=1e-10)


def test_with_one_cause_its_variance_is_greenwoods():
    time, event, group = ties()
    sites = split(time, event, group, [120, 120])
    incidence = AalenJohansen(causes=(1,), times="exact").fit(federate(sites, UNMASKED))
    curve = KaplanMeier(times="exact").fit(federate(sites, UNMASKED))
    np.testing.assert_allclose(incidence.incidence_[0, 0], 1 - curve.survival_[0], atol=1e-12)
    greenwood = curve.survival_[0] ** 2 * curve.curves_.variance[0]
    alive = curve.survival_[0] > 0
    np.testing.assert_allclose(incidence.variance_[0, 0][alive], greenwood[alive], atol=1e-12)


def test_intervals_of_scikit_survival():
    sksurv = pytest.importorskip("sksurv.nonparametric")
    time, event, group = ties()
    model = KaplanMeier(times="exact").fit(federate(split(time, event, group, [80] * 3), UNMASKED))
    times, survival, limits = sksurv.kaplan_meier_estimator(event == 1, time, conf_type="log-log")
    here = np.searchsorted(times, model.times_)
    np.testing.assert_allclose(
        [model.survival_[0], model.lower_[0], model.upper_[0]], [survival[here], *limits[:, here]]
    )


@pytest.mark.parametrize(("variance", "theirs"), [("delta", "Dinse_Approx"), ("aalen", "Aalen")])
def test_incidence_intervals_of_scikit_survival(variance, theirs):
    sksurv = pytest.importorskip("sksurv.nonparametric")
    time, event, group = ties()
    cause = event * (1 + group % 2)
    model = AalenJohansen(times="exact", variance=variance).fit(federate(split(time, cause, group, [80] * 3), UNMASKED))
    times, incidence, limits = sksurv.cumulative_incidence_competing_risks(
        cause, time, conf_type="log-log", var_type=theirs
    )
    here = np.searchsorted(times, model.times_)
    np.testing.assert_allclose(model.incidence_[0], incidence[1:, here], atol=1e-10)
    np.testing.assert_allclose(model.lower_[0], limits[1:, 0][:, here], atol=1e-9)
    np.testing.assert_allclose(model.upper_[0], limits[1:, 1][:, here], atol=1e-9)


def test_log_rank_of_scikit_survival():
    sksurv = pytest.importorskip("sksurv.compare")
    time, event, group = ties()
    outcome = np.array(list(zip(event == 1, time, strict=True)), dtype=[("event", bool), ("time", float)])
    statistic, p_value, stats, covariance = sksurv.compare_survival(outcome, group, return_stats=True)
    model = LogRank("arm", levels=[0, 1, 2], stratify_by_site=False, times="exact").fit(
        federate(split(time, event, group, [80] * 3), UNMASKED)
    )
    assert model.statistic_ == pytest.approx(statistic, abs=1e-8)
    assert model.p_value_ == pytest.approx(p_value, rel=1e-8)
    np.testing.assert_allclose(model.observed_, stats["observed"])
    np.testing.assert_allclose(model.expected_, stats["expected"], atol=1e-9)
    np.testing.assert_allclose(model.covariance_, covariance, atol=1e-9)


def test_a_grid_loses_little():
    rng = np.random.default_rng(2)
    event_time, end = rng.weibull(1.3, 3000) * 40, rng.uniform(0, 80, 3000)
    time, event = np.minimum(event_time, end), (event_time <= end).astype(int)
    sites = split(time, event, event, [1000] * 3)
    grid = KaplanMeier().fit(federate(sites, {}))
    exact = KaplanMeier(times="exact").fit(federate(sites, UNMASKED))
    assert np.abs(exact.survival_at(grid.times_) - grid.survival_).max() < 1e-3
    horizon = grid.horizon_
    one, other = grid.rmst_["all"], exact.restricted_mean(horizon)["all"]
    assert one.value == pytest.approx(other.value, rel=1e-3)
    assert one.standard_error == pytest.approx(other.standard_error, rel=1e-2)
    assert grid.median_["all"].value == pytest.approx(exact.median_["all"].value, rel=1e-2)
