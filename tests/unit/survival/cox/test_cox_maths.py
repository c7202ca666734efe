"""Residuals, tests and heterogeneity of the Cox model, each next to its own slow formula."""

import numpy as np
import pytest

from multicentre.survival.cox.maths import (
    covariance,
    dependent_columns,
    risk_means,
    schoenfeld_sums,
    score_products,
    score_residuals,
    transform_times,
)
from multicentre.survival.kernels.partial_likelihood import partial_likelihood, sum_terms
from multicentre.survival.kernels.risk_sets import RiskSets

EVERYONE = slice(None)


def sample(*, tied, n=50):
    rng = np.random.default_rng(3)
    X, time = rng.normal(size=(n, 2)), rng.exponential(size=n)
    patients = RiskSets.at_own_times(X, np.ceil(4 * time) if tied else time, rng.random(n) < 0.7)
    return patients, np.array([0.5, -0.3])


def means_of(patients, b, ties):
    theta = np.exp(patients.rows @ b)
    return theta, risk_means(patients.events, patients.sums(theta, ties), sum_terms(patients.tables(theta, ties)))


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_score_residuals_sum_to_the_gradient(ties):
    patients, b = sample(tied=True)
    theta, means = means_of(patients, b, ties)
    total = score_residuals(patients, theta, means, EVERYONE).sum(axis=0)
    np.testing.assert_allclose(total, partial_likelihood(patients, b, ties).gradient, atol=1e-12)


def test_a_score_residual_is_how_the_gradient_changes_with_a_patients_weight():
    patients, b = sample(tied=True)
    theta, means = means_of(patients, b, "breslow")
    found = score_residuals(patients, theta, means, EVERYONE)
    np.testing.assert_allclose(found.T @ found, score_products(patients, theta, means), rtol=1e-12)
    for who in range(0, 50, 7):
        slopes = []
        for change in (1e-5, -1e-5):
            weights = np.ones(50)
            weights[who] += change
            sets = RiskSets(patients.rows, patients.reached, patients.happened, patients.n_times, weights)
            slopes.append(partial_likelihood(sets, b, "breslow").gradient)
        np.testing.assert_allclose((slopes[0] - slopes[1]) / 2e-5, found[who], atol=1e-6)


def test_efrons_residuals_follow_their_own_formula():
    """Term by term: Therneau and Grambsch (2000), section 4.2, one patient and one term at a time."""
    patients, b = sample(tied=True, n=25)
    theta, means = means_of(patients, b, "efron")
    X, reached, happened = patients.rows, patients.reached, patients.happened
    slow = np.zeros_like(X)
    for k in range(patients.n_times):
        at_risk, tied = reached > k, happened & (reached == k + 1)
        for share in np.arange(tied.sum()) / tied.sum():
            mass = theta * (at_risk - share * tied)
            mean = mass @ X / mass.sum()
            slow -= (mass / mass.sum())[:, None] * (X - mean)
            slow[tied] += (X[tied] - mean) / tied.sum()
    np.testing.assert_allclose(score_residuals(patients, theta, means, EVERYONE), slow, atol=1e-12)


def test_schoenfelds_residuals_weighted_by_one_are_the_plain():
    patients, b = sample(tied=False)
    _, means = means_of(patients, b, "breslow")
    plain, weighted = schoenfeld_sums(patients, means.mean, np.ones(50))
    np.testing.assert_allclose(plain, partial_likelihood(patients, b, "breslow").gradient, atol=1e-12)
    np.testing.assert_allclose(plain, weighted)


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_derivatives_are_slopes_of_the_value(ties):
    patients, b = sample(tied=True)
    found, steps = partial_likelihood(patients, b, ties), 1e-5 * np.eye(2)
    ups, downs = ([partial_likelihood(patients, b + sign * h, ties) for h in steps] for sign in (1, -1))
    slopes = [(u.value - d.value) / 2e-5 for u, d in zip(ups, downs, strict=True)]
    bends = [(d.gradient - u.gradient) / 2e-5 for u, d in zip(ups, downs, strict=True)]
    np.testing.assert_allclose(found.gradient, slopes, atol=1e-6)
    np.testing.assert_allclose(found.information, bends, atol=1e-5)


def test_sums_in_blocks_are_sums_at_once(monkeypatch):
    patients, b = sample(tied=True)
    theta, whole = np.exp(patients.rows @ b), partial_likelihood(patients, b, "efron")
    sums = patients.sums(theta, "efron")
    monkeypatch.setattr("multicentre.survival.kernels.risk_sets.CHUNK", 3)
    np.testing.assert_allclose(partial_likelihood(patients, b, "efron").information, whole.information, rtol=1e-12)
    np.testing.assert_allclose(patients.sums(theta, "efron").risk, sums.risk, rtol=1e-12)
    risk = np.array([(theta * (patients.reached > k)) @ patients.rows for k in range(patients.n_times)])
    np.testing.assert_allclose(sums.risk, risk, rtol=1e-12, atol=1e-12)


def test_columns_that_add_up_to_another_are_found():
    rows = np.random.default_rng(0).normal(size=(40, 4))
    rows[:, 3] = rows[:, 0] - 2.0 * rows[:, 1]
    assert dependent_columns(rows.T @ rows).tolist() == [0, 1, 3]
    assert dependent_columns(rows[:, :3].T @ rows[:, :3]).tolist() == []


def test_a_ridge_narrows_and_a_sandwich_replaces():
    information = np.diag([4.0, 9.0])
    both = np.array([True, True])
    np.testing.assert_allclose(np.diagonal(covariance(information, 0.0, both)), [1 / 4, 1 / 9])
    np.testing.assert_allclose(np.diagonal(covariance(information, 1.0, both)), [4 / 25, 9 / 100])
    np.testing.assert_allclose(np.diagonal(covariance(information, 0.0, both, 2 * information)), [2 / 4, 2 / 9])


def test_times_are_transformed_from_0_to_1():
    times, events, at_risk = np.array([1.0, 2.0, 8.0]), np.array([1.0, 0.0, 2.0]), np.array([4.0, 3.0, 2.0])
    found = {kind: transform_times(times, events, at_risk, kind).tolist() for kind in ("km", "rank", "identity", "log")}
    assert found["km"] == [0.0, 1.0, 1.0]
    assert found["rank"] == pytest.approx([0.0, 0.5 / 1.5, 1.0])
    assert found["identity"] == pytest.approx([0.0, 1 / 7, 1.0])
    assert found["log"] == pytest.approx([0.0, 1 / 3, 1.0])
