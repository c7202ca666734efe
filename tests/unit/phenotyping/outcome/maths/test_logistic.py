"""Sums of a logistic regression, and what follows from them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from scipy.stats import norm

from multicentre.phenotyping.outcome import maths as logistic
from support.examples import examples


def problem(seed, n=40, r=3):
    rng = np.random.default_rng(seed)
    rows = np.column_stack([np.ones(n), rng.normal(size=(n, r))])
    return rows, (rng.random(n) < 0.4).astype(float), rng.normal(size=1 + r)


@given(st.integers(0, 2**20))
@examples(20)
def test_derivatives_are_those_of_the_log_likelihood(seed):
    rows, outcomes, at = problem(seed)
    found = logistic.derive(rows, outcomes, at)
    slopes = approx_fprime(at, lambda b: logistic.derive(rows, outcomes, b).log_likelihood, 1e-7)
    np.testing.assert_allclose(found.gradient, slopes, atol=1e-4)
    curved = approx_fprime(at, lambda b: logistic.derive(rows, outcomes, b).gradient, 1e-7)
    np.testing.assert_allclose(found.information, -curved, atol=1e-4)


@given(st.integers(0, 2**20), st.integers(1, 39))
@examples(20)
def test_derivatives_add_up_over_sites(seed, cut):
    rows, outcomes, at = problem(seed)
    whole = logistic.derive(rows, outcomes, at)
    parts = [logistic.derive(rows[part], outcomes[part], at) for part in (slice(cut), slice(cut, None))]
    np.testing.assert_allclose(sum(p.gradient for p in parts), whole.gradient, atol=1e-12)
    np.testing.assert_allclose(sum(p.information for p in parts), whole.information, atol=1e-12)
    assert sum(p.log_likelihood for p in parts) == pytest.approx(whole.log_likelihood, rel=1e-12)


def test_extreme_scores_stay_finite():
    found = logistic.derive(np.array([[1.0], [1.0]]), np.array([1.0, 0.0]), np.array([2000.0]))
    assert found.log_likelihood == -2000.0
    assert np.isfinite(found.information).all()


def test_standard_deviations_are_those_of_the_rows_and_one_without_spread():
    rows = np.random.default_rng(0).gamma(1.0, size=(50, 3))
    rows[:, 1] = 0.0
    rows[:, 2] = 0.3
    found = logistic.standard_deviations(rows.sum(axis=0), rows.T @ rows, 50.0)
    np.testing.assert_allclose(found, [rows[:, 0].std(), 1.0, 1.0], rtol=1e-12)


def test_a_step_leaves_directions_without_information_alone():
    step = logistic.newton_step(np.array([1.0, 1e-14]), np.diag([2.0, 1e-13]), np.zeros(2), 0.0)
    np.testing.assert_allclose(step, [0.5, 0.0])


def test_a_step_is_no_longer_than_five():
    step = logistic.newton_step(np.array([100.0, 10.0]), np.eye(2), np.zeros(2), 0.0)
    np.testing.assert_allclose(step, [5.0, 0.5])


def test_the_intercept_is_not_penalised():
    step = logistic.newton_step(np.zeros(2), np.eye(2), np.array([3.0, 3.0]), 1.0)
    np.testing.assert_allclose(step, [0.0, -1.5])


def test_errors_without_a_penalty_are_the_inverse_information():
    information = np.array([[4.0, 1.0], [1.0, 3.0]])
    expected = np.sqrt(np.diagonal(np.linalg.inv(information)))
    np.testing.assert_allclose(logistic.standard_errors(information, 0.0), expected)


def test_p_values_and_intervals_are_those_of_the_normal_law():
    coefficients, errors = np.array([0.4, -1.0, 0.0]), np.array([0.2, 0.3, 0.0])
    found = logistic.wald_p_values(coefficients, errors)
    np.testing.assert_allclose(found[:2], 2 * norm.sf([2.0, 10.0 / 3.0]))
    assert np.isnan(found[2])
    reach = norm.ppf(0.975) * errors
    expected = np.exp(np.stack([coefficients, coefficients - reach, coefficients + reach], axis=1))
    np.testing.assert_allclose(logistic.odds_ratios(coefficients, errors), expected)


def test_derivatives_rest_on_those_of_whom_the_model_is_not_sure():
    z = np.linspace(-1.0, 1.0, 101)
    rows = np.column_stack([np.ones(101), z])
    assert logistic.effective_number(rows, np.zeros(2)) == pytest.approx(101)
    assert logistic.effective_number(rows, np.array([0.0, 1e3])) == pytest.approx(1.0, abs=1e-6)
    assert logistic.effective_number(rows, np.array([1e5, 0.0])) == 0.0
    assert logistic.effective_number(rows, np.array([-40.0, 0.0])) == pytest.approx(101)


def test_errors_under_a_ridge_are_the_spread_of_ridge_estimates():
    information, alpha = np.array([[4.0, 1.0, 0.5], [1.0, 3.0, -0.5], [0.5, -0.5, 2.0]]), 3.0
    scores = np.random.default_rng(0).multivariate_normal(np.zeros(3), information, 200_000)
    estimates = np.linalg.solve(information + np.diag(logistic.ridge(3, alpha)), scores.T)
    np.testing.assert_allclose(logistic.standard_errors(information, alpha), estimates.std(axis=1), rtol=0.01)
