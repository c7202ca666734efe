"""Breslow's partial likelihood and baseline, against double sums over risk sets and repeated patients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.survival.learners.cohort import Cohort
from support.examples import examples


def draw(seed, n=12, n_times=5):
    rng = np.random.default_rng(seed)
    time, happened = rng.integers(1, n_times, n).astype(float), rng.random(n) < 0.6
    return time, happened, rng.integers(1, 4, n).astype(float), rng.normal(size=n)


def brute_force(time, happened, weights, log_risk):
    total = 0.0
    for i in np.flatnonzero(happened):
        at_risk = sum(weights[j] * np.exp(log_risk[j]) for j in range(len(time)) if time[j] >= time[i])
        total += weights[i] * (log_risk[i] - np.log(at_risk))
    return total


def cohort_of(time, happened, weights, log_risk):
    """The log risks ride along as the only column."""
    cohort = Cohort.of(log_risk[:, None], time, happened, weights)
    return cohort, cohort.rows[:, 0]


@examples(50)
@given(st.integers(0, 10**6))
def test_the_log_likelihood_is_the_double_sum(seed):
    drawn = draw(seed)
    cohort, log_risk = cohort_of(*drawn)
    np.testing.assert_allclose(cohort.log_likelihood(log_risk), brute_force(*drawn), rtol=1e-12, atol=1e-12)


@examples(50)
@given(st.integers(0, 10**6))
def test_a_weight_of_three_is_the_patient_three_times(seed):
    time, happened, weights, log_risk = draw(seed)
    again = np.repeat(np.arange(len(time)), weights.astype(int))
    times = np.array([0.5, 1.0, 2.5, 9.0])
    one, its_risk = cohort_of(time, happened, weights, log_risk)
    other, their_risk = cohort_of(time[again], happened[again], np.ones(len(again)), log_risk[again])
    np.testing.assert_allclose(one.log_likelihood(its_risk), other.log_likelihood(their_risk), rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(one.baseline(its_risk, times), other.baseline(their_risk, times), rtol=1e-12)


def test_the_baseline_without_risks_is_nelson_aalens():
    time, happened, weights, _ = draw(3)
    cohort = Cohort.of(np.zeros((len(time), 1)), time, happened, weights)
    times = np.array([1.0, 2.0, 3.0, 4.0])
    jumps = [weights[happened & (time == t)].sum() / weights[time >= t].sum() for t in times]
    np.testing.assert_allclose(cohort.baseline(np.zeros(len(time)), times), np.cumsum(jumps), rtol=1e-12)


def test_a_cohort_without_events_says_nothing():
    cohort = Cohort.of(np.zeros((3, 1)), np.array([3.0, 1.0, 2.0]), np.zeros(3, dtype=bool), np.ones(3))
    assert cohort.log_likelihood(np.ones(3)) == 0.0
    assert cohort.baseline(np.ones(3), np.array([1.0, 5.0])).tolist() == [0.0, 0.0]


def test_nobody_is_a_cohort():
    none = np.zeros(0)
    assert Cohort.of(np.zeros((0, 2)), none, none > 0, none).log_likelihood(none) == 0.0


def test_the_baseline_is_scikit_survivals():
    linear_model = pytest.importorskip("sksurv.linear_model")
    rng = np.random.default_rng(0)
    X, time, happened, _ = rng.normal(size=(60, 2)), *draw(7, 60, 20)[:2], None
    y = np.array(list(zip(happened, time, strict=True)), dtype=[("event", bool), ("time", float)])
    fitted = linear_model.CoxPHSurvivalAnalysis(ties="breslow").fit(X, y)
    cohort = Cohort.of(X, time, happened, np.ones(60))
    times = fitted.cum_baseline_hazard_.x
    found = cohort.baseline(cohort.rows @ fitted.coef_, times)
    np.testing.assert_allclose(found, fitted.cum_baseline_hazard_.y, rtol=1e-10)
