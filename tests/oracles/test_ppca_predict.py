"""Prediction under Fed-mv-PPCA against scipy's Gaussian, the conditional-Gaussian formula and scikit-learn."""

import pickle
import warnings

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.base import clone
from sklearn.decomposition import PCA, FactorAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import RidgeCV
from sklearn.utils.estimator_checks import (
    check_get_params_invariance,
    check_no_attributes_set_in_init,
    check_set_params,
)

import multicentre as mc
from multicentre.data import MultiViewData
from multicentre.datasets import simulate_sd
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused
from multicentre.multiview.ppca.maths.model import LatentLaw, Parameters, absorb_law
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
    np.testing.assert_allclose(row_log_likelihood(X, absorb_law(parameters, law)), expected, atol=1e-10)


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
    guess = impute(hidden, absorb_law(parameters, law), wanted)
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


# --- acceptance: the interface of scikit-learn, data that cannot be fitted, and time ---------------------------------


def digits_like(n_patients, sizes, seed=0, n_latent=10):
    rng = np.random.default_rng(seed)
    latent = rng.standard_normal((n_patients, n_latent))
    views = {
        f"view_{k}": latent @ rng.standard_normal((n_latent, d)) + rng.standard_normal((n_patients, d))
        for k, d in enumerate(sizes)
    }
    return MultiViewData(views)


@pytest.mark.parametrize(
    "check", [check_get_params_invariance, check_set_params, check_no_attributes_set_in_init], ids=lambda c: c.__name__
)
def test_parameters_pass_scikit_learns_checks(check):
    check("FedMvPPCA", mc.multiview.FedMvPPCA(3, noise="diagonal"))


def test_a_pickled_fit_and_a_refitted_clone_predict_the_same():
    site = digits_like(80, (5, 4), n_latent=2)
    model = mc.multiview.FedMvPPCA(2).fit(mc.Federation.in_process({"one": site}))
    again = clone(model).fit(mc.Federation.in_process({"one": site}))
    for other in (pickle.loads(pickle.dumps(model)), again):
        assert other.get_params() == model.get_params()
        np.testing.assert_array_equal(other.transform(site), model.transform(site))


def test_one_site_and_one_view_is_the_pca_of_the_concatenated_columns():
    X = digits_like(300, (9,), n_latent=2).array("view_0")
    site = MultiViewData({"all": X})
    likelihood = {"loadings_sd": float("inf"), "case_mix_weight": 0.0}
    model = mc.multiview.FedMvPPCA(2, scale="none", tol=1e-12, max_iter=500, **likelihood)
    model.fit(mc.Federation.in_process({"one": site}))
    values, vectors = np.linalg.eigh(np.cov(X.T, bias=True))
    noise = values[:-2].mean()
    expected = (vectors[:, -2:] * (values[-2:] - noise)) @ vectors[:, -2:].T
    loadings = model.loadings_["all"]
    np.testing.assert_allclose(loadings @ loadings.T, expected, atol=1e-5 * values[-1])


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda views: views["view_0"].__setitem__((3, 1), np.inf), DataError),
        (lambda views: views["view_0"].__setitem__((slice(None), 2), 4.0), DataError),
        (lambda views: views.update(view_0=views["view_0"][:1], view_1=views["view_1"][:1]), DisclosureRefused),
        (lambda views: views.update(view_1=views["view_1"][:, :1]), ConfigurationError),
        (lambda views: views.update(view_0=views["view_0"][:, :1], view_1=views["view_1"][:, :1]), ConfigurationError),
    ],
    ids=["infinite", "constant", "one patient", "one column", "as many dimensions as columns"],
)
def test_what_cannot_be_fitted_is_refused(change, error):
    site = digits_like(30, (5, 4), n_latent=2)
    views = {view: site.array(view).copy() for view in site.views}
    change(views)
    with pytest.raises(error):
        mc.multiview.FedMvPPCA(2).fit(mc.Federation.in_process({"one": MultiViewData(views)}))


def offset_sites(seed, offset):
    rng = np.random.default_rng(seed)
    X = simulate_sd(random_state=seed, shift="mild", n_patients=1000).data.stacked(("view_1", "view_2", "view_3"))
    X = (X - X.mean(axis=0)) / X.std(axis=0)
    rows = [part + offset * rng.standard_normal(33) for part in np.array_split(X[rng.permutation(1000)], 20)]
    columns = {"view_1": slice(0, 15), "view_2": slice(15, 23), "view_3": slice(23, 33)}
    lacking = {i: f"view_{(i // 2) % 3 + 1}" for i in range(1, 20, 2)}
    data = {
        f"site-{i:02d}": MultiViewData({v: each[:, c] for v, c in columns.items() if lacking.get(i) != v})
        for i, each in enumerate(rows)
    }
    return rows, columns, lacking, data


@pytest.mark.slow
@pytest.mark.parametrize("offset", [0.0, 0.5, 1.0])
def test_a_lacking_view_is_imputed_better_than_by_the_mean_and_as_well_as_by_pooled_ridge(offset):
    errors, inside = {"ours": [], "mean": [], "ridge": []}, []
    for seed in (11, 12, 13):
        rows, columns, lacking, data = offset_sites(seed, offset)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            model = mc.multiview.FedMvPPCA(5, scale="feature", max_iter=40).fit(mc.Federation.in_process(data))
        complete = np.concatenate([each for i, each in enumerate(rows) if i not in lacking])
        for i, view in lacking.items():
            wanted = np.zeros(33, dtype=bool)
            wanted[columns[view]] = True
            truth, guess = rows[i][:, wanted], model.impute(data[f"site-{i:02d}"], view)
            ridge = RidgeCV(np.geomspace(1, 1e4, 9)).fit(complete[:, ~wanted], complete[:, wanted])
            errors["ours"].append(np.abs(truth - guess.mean).mean())
            errors["mean"].append(np.abs(truth - complete[:, wanted].mean(axis=0)).mean())
            errors["ridge"].append(np.abs(truth - ridge.predict(rows[i][:, ~wanted])).mean())
            low, high = guess.interval(0.9)
            inside.append(((truth >= low) & (truth <= high)).mean())
    ours, mean, ridge = (np.mean(errors[name]) for name in ("ours", "mean", "ridge"))
    assert ours < mean
    assert ours < 1.05 * ridge
    assert 0.84 < np.mean(inside) < 0.94
