"""The quadratic form of the Brier score and its minimum, against scipy, scikit-survival and double sums."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from multicentre.survival.stack.maths import (
    BrierForm,
    chance_of_staying,
    error_weights,
    minimise_on_simplex,
    sum_products,
)
from multicentre.survival.times import censored_by_bin, count_by_bin, kaplan_meier
from support.examples import examples

seeds = st.integers(0, 10**6)
GRID = np.array([1.0, 2.0, 4.0, 5.0, 9.0])


def draw(seed, n=40):
    rng = np.random.default_rng(seed)
    bins = rng.integers(0, 6, n)
    return rng, bins, (rng.random(n) < 0.5) & (bins < 5)


def ends(bins, happened):
    return tuple(np.bincount(bins[chosen], minlength=6)[:5].astype(float) for chosen in (happened, ~happened))


def draw_problem(seed, n_models, rank=None):
    rng = np.random.default_rng(seed)
    factor = rng.normal(size=(n_models, rank or n_models + 2))
    return factor @ factor.T, rng.normal(size=n_models)


@examples(50)
@given(seeds)
def test_the_chance_of_staying_is_the_reverse_kaplan_meier_curve(seed):
    _, bins, happened = draw(seed)
    expected = kaplan_meier(*censored_by_bin(bins, happened, 5))
    np.testing.assert_allclose(chance_of_staying(*ends(bins, happened), 40.0), expected, atol=1e-12)


@examples(50)
@given(seeds)
def test_the_weights_stand_for_every_patient_where_none_is_capped(seed):
    _, bins, happened = draw(seed)
    staying = chance_of_staying(*ends(bins, happened), 40.0)
    weights = error_weights(bins, happened, staying, GRID)
    if staying.min() >= 0.1:
        np.testing.assert_allclose(weights.sum(axis=0), 40.0 * np.diff(GRID, prepend=0.0) / 9.0, rtol=1e-10)
    assert weights.max() <= 10.0


@examples(50)
@given(seeds)
def test_the_quadratic_form_is_the_mean_of_squared_errors(seed):
    rng, bins, happened = draw(seed)
    weights = error_weights(bins, happened, chance_of_staying(*ends(bins, happened), 40.0), GRID)
    outcomes = (bins[:, None] > np.arange(5)).astype(float)
    curves, shares = rng.random((3, 40, 5)), rng.dirichlet(np.ones(3))
    mixed = sum(share * curve for share, curve in zip(shares, curves, strict=True))
    found = BrierForm(*sum_products(curves, outcomes, weights), 1.0).score(shares)
    np.testing.assert_allclose(found, (weights * (mixed - outcomes) ** 2).sum(), rtol=1e-10)


def test_without_censoring_kaplan_meiers_score_is_the_variance():
    bins = np.repeat(np.arange(6), 5)
    happened = bins < 5
    curve = kaplan_meier(*count_by_bin(bins, happened, 5))
    weights = error_weights(bins, happened, np.ones(5), GRID) / 30
    outcomes = (bins[:, None] > np.arange(5)).astype(float)
    found = BrierForm(*sum_products(np.tile(curve, (1, 30, 1)), outcomes, weights), 1.0).score(np.ones(1))
    assert found == pytest.approx(float((curve * (1 - curve)) @ np.diff(GRID, prepend=0.0) / 9.0))


def test_the_score_at_a_time_is_scikit_survivals():
    metrics = pytest.importorskip("sksurv.metrics")
    rng = np.random.default_rng(3)
    happened, time = rng.random(200) < 0.6, rng.permutation(200) + 1.0
    curves = rng.random(200)
    y = np.array(list(zip(happened, time, strict=True)), dtype=[("event", bool), ("time", float)])
    grid = np.arange(1.0, 201.0)
    bins = np.searchsorted(grid, time)
    staying = kaplan_meier(*censored_by_bin(bins, happened, 200))
    at = 119
    weights = error_weights(bins, happened, staying, grid)[:, at] * 200.0 / 200
    outcomes = (bins > at).astype(float)
    expected = metrics.brier_score(y, y, curves, grid[at])[1][0]
    assert staying[at] > 0.1
    assert float((weights * (curves - outcomes) ** 2).sum()) == pytest.approx(expected, rel=1e-10)


@examples(50)
@given(seeds, st.integers(1, 7))
def test_the_least_mixture_is_scipys(seed, n_models):
    products, targets = draw_problem(seed, n_models)
    found = minimise_on_simplex(products, targets)
    assert found.min() >= 0
    assert found.sum() == pytest.approx(1.0, abs=1e-12)

    def score(w):
        return w @ products @ w - 2 * targets @ w

    other = minimize(
        score, np.full(n_models, 1 / n_models), jac=lambda w: 2 * (products @ w - targets), method="SLSQP",
        bounds=[(0, 1)] * n_models, constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 500},
    )  # fmt: skip
    theirs = np.clip(other.x, 0, 1) / np.clip(other.x, 0, 1).sum()
    assert score(found) <= score(theirs) + 1e-9 * np.trace(products)


@examples(50)
@given(seeds, st.integers(1, 8), st.integers(1, 8))
def test_no_exchange_of_weight_lowers_the_score(seed, n_models, rank):
    """The conditions of Karush, Kuhn and Tucker, whatever the rank; they are enough for a convex problem."""
    products, targets = draw_problem(seed, n_models, rank)
    found = minimise_on_simplex(products, targets)
    slopes = products @ found - targets
    scale = 1.0 + np.abs(products).max()
    assert slopes.min() >= slopes[found > 0].max() - 1e-7 * scale


def test_one_model_has_all_the_weight():
    assert minimise_on_simplex(np.array([[0.3]]), np.array([0.9])).tolist() == [1.0]


@examples(50)
@given(seeds, st.integers(2, 5))
def test_the_same_model_twice_shares_its_weight(seed, n_models):
    products, targets = draw_problem(seed, n_models)
    places = [*range(n_models), 0]
    alone = minimise_on_simplex(products, targets)
    twice = minimise_on_simplex(products[np.ix_(places, places)], targets[places])
    np.testing.assert_allclose(twice[0], twice[-1], atol=1e-4)
    np.testing.assert_allclose(np.append(twice[0] + twice[-1], twice[1:-1]), alone, atol=1e-4)


@examples(50)
@given(seeds)
def test_no_model_is_better_than_the_mixture(seed):
    products, targets = draw_problem(seed, 5)
    found = minimise_on_simplex(products, targets)
    form = BrierForm(products, targets, 0.0, 1.0)
    best = min(form.score(one) for one in np.eye(5))
    assert form.score(found) <= best + 1e-8 * np.trace(products)
