"""Prediction under Fed-mv-PPCA against scipy's Gaussian, the conditional-Gaussian formula and scikit-learn."""

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.decomposition import PCA, FactorAnalysis

from multicentre.multiview.ppca.maths.model import LatentLaw, Parameters
from multicentre.multiview.ppca.maths.predict import impute, posterior_latent, reconstruct, row_log_likelihood
from multicentre.multiview.ppca.maths.rows import sum_entries


@pytest.fixture
def problem():
    rng = np.random.default_rng(5)
    d, q, n = 9, 3, 40
    parameters = Parameters(rng.standard_normal((d, q)), rng.standard_normal(d), rng.uniform(0.2, 2, d))
    root = rng.standard_normal((q, q))
    law = LatentLaw(rng.standard_normal(q), root @ root.T + 0.1 * np.eye(q))
    X = rng.standard_normal((n, d)) * 2
    X[rng.random((n, d)) < 0.35] = np.nan
    return X, parameters, law


def dense(parameters, law):
    W = parameters.loadings
    return parameters.mean + W @ law.mean, W @ law.covariance @ W.T + np.diag(parameters.noise)


def test_likelihood_is_scipys_over_the_observed_entries(problem):
    X, parameters, law = problem
    mean, covariance = dense(parameters, law)
    expected = []
    for row in X:
        seen = ~np.isnan(row)
        expected.append(multivariate_normal(mean[seen], covariance[np.ix_(seen, seen)]).logpdf(row[seen]))
    np.testing.assert_allclose(row_log_likelihood(X, parameters, law), expected, atol=1e-10)


def test_likelihood_of_complete_simulated_rows_is_scipys_to_a_millionth():
    from support.ppca_predict_simulation import LAYOUT, fit_entries, simulate

    rows = simulate(0, shift="paper", scale="none").rows
    parameters, path = fit_entries(rows, LAYOUT, 5, iterations=30)
    mean, covariance = dense(parameters, LatentLaw.standard(5))
    expected = multivariate_normal(mean, covariance).logpdf(rows).sum()
    assert row_log_likelihood(rows, parameters).sum() == pytest.approx(expected, abs=1e-6)
    assert path[-1] == pytest.approx(expected, abs=1e-6)


def test_imputation_is_the_conditional_gaussian(problem):
    X, parameters, law = problem
    wanted = np.arange(9) >= 6
    hidden = np.where(wanted, np.nan, X)
    guess = impute(hidden, parameters, wanted, law)
    mean, covariance = dense(parameters, law)
    for n, row in enumerate(hidden):
        seen = ~np.isnan(row)
        gain = np.linalg.solve(covariance[np.ix_(seen, seen)], covariance[np.ix_(seen, wanted)]).T
        np.testing.assert_allclose(guess.mean[n], mean[wanted] + gain @ (row[seen] - mean[seen]), atol=1e-10)
        left = covariance[np.ix_(wanted, wanted)] - gain @ covariance[np.ix_(seen, wanted)]
        np.testing.assert_allclose(guess.covariance(n), left, atol=1e-10)
        np.testing.assert_allclose(guess.variance[n], np.diag(left), atol=1e-10)


def test_sums_are_those_of_the_joint_gaussian_of_rows_and_latents(problem):
    X, parameters, law = problem
    d, q = parameters.loadings.shape
    mean, covariance = dense(parameters, law)
    cross, second, squares = np.zeros((d, q + 1)), np.zeros((d, q + 1, q + 1)), np.zeros(d)
    for row in X:
        seen = ~np.isnan(row)
        shared = law.covariance @ parameters.loadings[seen].T
        gain = np.linalg.solve(covariance[np.ix_(seen, seen)], shared.T).T
        z = np.append(law.mean + gain @ (row[seen] - mean[seen]), 1.0)
        moment = np.outer(z, z)
        moment[:q, :q] += law.covariance - gain @ shared.T
        deviation = row[seen] - parameters.mean[seen]
        cross[seen] += deviation[:, None] * z
        second[seen] += moment
        squares[seen] += deviation**2
    sums = sum_entries(X, parameters, law)
    np.testing.assert_allclose(sums.cross, cross, atol=1e-9)
    np.testing.assert_allclose(sums.second, second, atol=1e-9)
    np.testing.assert_allclose(sums.squares, squares, atol=1e-9)


def test_factor_analysis_agrees_on_scores_and_likelihood():
    rng = np.random.default_rng(2)
    X = rng.standard_normal((80, 3)) @ rng.standard_normal((3, 7)) + rng.standard_normal((80, 7))
    other = FactorAnalysis(3, svd_method="lapack").fit(X)
    parameters = Parameters(other.components_.T, other.mean_, other.noise_variance_)
    np.testing.assert_allclose(row_log_likelihood(X, parameters), other.score_samples(X), atol=1e-9)
    np.testing.assert_allclose(posterior_latent(X, parameters).mean, other.transform(X), atol=1e-9)


def test_pca_agrees_on_likelihood_and_in_the_noiseless_limit_on_reconstruction():
    rng = np.random.default_rng(3)
    X = rng.standard_normal((60, 2)) @ rng.standard_normal((2, 6)) + 0.3 * rng.standard_normal((60, 6))
    other = PCA(2, svd_solver="full").fit(X)
    W = other.components_.T * np.sqrt(other.explained_variance_ - other.noise_variance_)
    parameters = Parameters(W, other.mean_, np.full(6, other.noise_variance_))
    np.testing.assert_allclose(row_log_likelihood(X, parameters), other.score_samples(X), atol=1e-9)
    quiet = Parameters(W, other.mean_, np.full(6, 1e-10))
    np.testing.assert_allclose(reconstruct(X, quiet), other.inverse_transform(other.transform(X)), atol=1e-7)
