"""Ridge regression of a view on the others against scikit-learn, brute force and fits without the site."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from multicentre.multiview.ppca.maths.model import Layout, Parameters
from multicentre.multiview.ppca.maths.predict import impute
from multicentre.multiview.ppca.maths.regression import (
    SHRINKAGES,
    PredictionSums,
    Regression,
    choose_prediction,
    compare_candidates,
    complete_products,
    regress_view,
)

LAYOUT = Layout(("a", "b"), (3, 2))
WANTED = LAYOUT.features_of(["b"])


@pytest.fixture
def law():
    rng = np.random.default_rng(0)
    return Parameters(rng.standard_normal((5, 2)), rng.standard_normal(5), rng.uniform(0.3, 1, 5))


def draw(law, n, seed=1, offset=0.0):
    rng = np.random.default_rng(seed)
    noise = rng.standard_normal((n, 5)) * np.sqrt(law.noise)
    return law.mean + rng.standard_normal((n, 2)) @ law.loadings.T + noise + offset * rng.standard_normal(5)


@pytest.mark.parametrize("shrinkage", SHRINKAGES[1:])
def test_regression_is_scikit_learns_ridge_on_standardised_columns(law, shrinkage):
    X = draw(law, 60)
    X = X - X.mean(axis=0)
    centred = Parameters(law.loadings, np.zeros(5), law.noise)
    products = complete_products(X, centred)
    scaled = X[:, ~WANTED] / X[:, ~WANTED].std(axis=0)
    ridge = Ridge(alpha=60 * shrinkage / (1 - shrinkage), fit_intercept=False).fit(scaled, X[:, WANTED])
    guess = regress_view(X, centred, Regression(products / 60, np.full(2, shrinkage)), "b", LAYOUT)
    np.testing.assert_allclose(guess.mean, ridge.predict(scaled), atol=1e-9)


def test_full_shrinkage_is_the_mean(law):
    guess = regress_view(draw(law, 9), law, Regression(np.eye(5), np.ones(2)), "b", LAYOUT)
    np.testing.assert_allclose(guess.mean, np.tile(law.mean[WANTED], (9, 1)), atol=1e-12)
    np.testing.assert_allclose(guess.variance, 1.0)


def test_completed_products_are_the_expectation_given_the_observed_entries(law):
    X = draw(law, 4)
    X[1, WANTED] = np.nan
    X[2, 0] = np.nan
    joint = law.loadings @ law.loadings.T + np.diag(law.noise)
    expected = np.zeros((5, 5))
    for row in X:
        seen = ~np.isnan(row)
        gain = np.linalg.solve(joint[np.ix_(seen, seen)], joint[seen]).T
        mean = gain @ (row - law.mean)[seen]
        expected += np.outer(mean, mean) + joint - gain @ joint[seen]
    np.testing.assert_allclose(complete_products(X, law), expected, atol=1e-9)


def test_a_site_is_predicted_by_what_the_other_sites_contributed(law):
    sites = [draw(law, 40, seed, offset=0.5) for seed in range(5)]
    products = sum(complete_products(X, law) for X in sites)
    counts = np.full(2, 5.0)
    sums = compare_candidates(sites[0], law, products, 200.0, LAYOUT, counts)
    rest = sum(complete_products(X, law) for X in sites[1:]) / 160
    freed = Parameters(law.loadings, law.mean - (sites[0] - law.mean).mean(axis=0) / 4, law.noise)
    for number, shrinkage in enumerate(SHRINKAGES, start=1):
        guess = regress_view(sites[0], freed, Regression(rest, np.full(2, shrinkage)), "b", LAYOUT)
        errors = np.abs(sites[0][:, WANTED] - guess.mean).sum(axis=0)
        np.testing.assert_allclose(sums.absolute[WANTED, number], errors, rtol=1e-9)
        np.testing.assert_allclose(sums.variances[WANTED, number], guess.variance.sum(axis=0), rtol=1e-9)
    model = impute(np.where(WANTED, np.nan, sites[0]), freed, WANTED)
    np.testing.assert_allclose(sums.absolute[WANTED, 0], np.abs(sites[0][:, WANTED] - model.mean).sum(axis=0))
    assert (sums.entries == 40).all()


def test_rows_without_another_view_are_not_compared(law):
    X = draw(law, 10)
    X[:4, ~WANTED] = np.nan
    products = complete_products(X, law) + complete_products(draw(law, 50), law)
    sums = compare_candidates(X, law, products, 60.0, LAYOUT, np.full(2, 3.0))
    assert sums.entries.tolist() == [6, 6, 6, 6, 6]


def test_the_strongest_shrinkage_near_the_least_error_is_chosen_and_the_model_where_it_is_better():
    errors = np.array([[1.0, 2.0, 1.5, 1.205, 1.2, 1.3, 1.4, 1.5], [1.3, 2.0, 1.5, 1.205, 1.2, 1.3, 1.4, 1.5]])
    absolute = errors[LAYOUT.view_of] * 10
    sums = PredictionSums(absolute, 2 * absolute, absolute, np.full(5, 10.0))
    choice = choose_prediction(sums, LAYOUT, np.ones(5))
    assert choice.candidate.tolist() == [0, 3]
    assert choice.shrinkage.tolist() == [SHRINKAGES[2], SHRINKAGES[2]]
    np.testing.assert_allclose(choice.inflation, 2.0)


@pytest.mark.parametrize("freedom", [4.0, 8.0, np.inf])
def test_intervals_cover_errors_with_heavy_tails(law, freedom):
    rng = np.random.default_rng(3)
    draws = rng.standard_normal((20_000, 5)) if np.isinf(freedom) else rng.standard_t(freedom, (20_000, 5))
    absolute, squares = np.abs(draws).sum(axis=0), np.square(draws).sum(axis=0)
    columns = np.ones((1, len(SHRINKAGES) + 1))
    sums = PredictionSums(
        absolute[:, None] * columns, squares[:, None] * columns, 20_000.0 * np.ones((5, 8)), np.full(5, 2e4)
    )
    choice = choose_prediction(sums, LAYOUT, np.ones(5))
    guess = regress_view(draws, law, Regression(np.eye(5), np.ones(2)), "b", LAYOUT)
    calibrated = guess.calibrated(choice.inflation[WANTED, 1], float(choice.freedom[1, 1]))
    low, high = calibrated.interval(0.9)
    errors = draws[:, WANTED] + law.mean[WANTED]
    assert 0.885 < ((errors >= low) & (errors <= high)).mean() < 0.915
