"""Signs of separation on reported parameters, and the covariance of the others."""

import numpy as np
import pytest

from multicentre.likelihood.separation import FALLEN, Reported, covariance_of


def logistic(X, beta):
    """Return the information of a logistic regression."""
    share = 1.0 / (1.0 + np.exp(-X @ beta))
    return X.T @ (X * (share * (1.0 - share))[:, None])


def separated_data():
    rng = np.random.default_rng(0)
    marker = (rng.random(400) < 0.2).astype(float)
    centred = np.column_stack([np.ones(400), marker - marker.mean(), rng.normal(size=400)])
    matrix = np.eye(3)
    matrix[0, 1] = -marker.mean()
    return centred, matrix, marker


def test_a_separated_level_is_flagged_and_its_intercept_is_not():
    X, matrix, marker = separated_data()
    reported = Reported(matrix, 0.25 * X.T @ X, 400.0)
    reached = logistic(X, np.array([0.2 + 20.0 * marker.mean(), 20.0, 0.5]))
    assert reported.has_fallen(reached, FALLEN).tolist() == [False, True, False]
    step = reported.step(np.array([marker.mean(), 1.0, 0.0]))
    assert step[0] == pytest.approx(0.0, abs=1e-12)
    assert step[1] == 1.0


def test_both_are_flagged_if_the_reference_level_is_separated():
    X, matrix, marker = separated_data()
    reported = Reported(matrix, 0.25 * X.T @ X, 400.0)
    reached = logistic(X, np.array([20.0 - 20.0 * marker.mean(), -20.0, 0.5]))
    assert reported.has_fallen(reached, FALLEN).tolist() == [True, True, False]


def test_a_parameter_outside_the_fit_does_not_hide_the_others():
    """Dummies of all levels add up to the intercept, which a model without intercept does not fit."""
    X = np.column_stack([np.ones(4), np.eye(4)[:, :2], [0, 0, 1, 1]]).astype(float)
    null = 0.25 * X.T @ X
    null[0] = null[:, 0] = 0.0
    assert not Reported(np.eye(4), null, 4.0).has_fallen(0.2 * X.T @ X, FALLEN).any()


def test_errors_of_the_others_are_those_of_the_patients_who_are_not_separated():
    X, matrix, marker = separated_data()
    beta = np.array([0.2 + 40.0 * marker.mean(), 40.0, 0.5])
    covariance = covariance_of(matrix, logistic(X, beta), np.array([False, True, False]))
    rest = marker == 0
    right = np.linalg.inv(logistic(X[rest][:, [0, 2]], np.array([0.2, 0.5])))
    np.testing.assert_allclose(covariance[np.ix_([0, 2], [0, 2])], right, rtol=1e-6)
    assert np.isnan(covariance[1]).all()


def test_a_robust_covariance_leaves_the_parameter_out_of_both_parts():
    X, matrix, _ = separated_data()
    bread, meat = X.T @ X, X.T @ (X * np.linspace(0.5, 2.0, 400)[:, None])
    omitted = np.array([False, True, False])
    covariance = covariance_of(matrix, bread, omitted, meat)
    reported = X @ np.linalg.inv(matrix)
    kept = reported[:, [0, 2]]
    inverse = np.linalg.inv(kept.T @ kept)
    right = inverse @ (kept.T @ (kept * np.linspace(0.5, 2.0, 400)[:, None])) @ inverse
    np.testing.assert_allclose(covariance[np.ix_([0, 2], [0, 2])], right, rtol=1e-9)


def test_without_omitted_parameters_it_is_the_usual_one():
    X, matrix, _ = separated_data()
    usual = matrix @ np.linalg.inv(X.T @ X) @ matrix.T
    np.testing.assert_allclose(covariance_of(matrix, X.T @ X, np.zeros(3, dtype=bool)), usual, rtol=1e-12)
    assert np.isnan(covariance_of(matrix, X.T @ X, np.ones(3, dtype=bool))).all()
