"""Every block update of FedMVL is the minimiser of the augmented Lagrangian, written here anew."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize, nnls

from multicentre_papers.baselines.fedmvl.maths import (
    Penalties,
    data_weight,
    draw_rows,
    find_leading,
    indicate,
    log_error,
    rotate_columns,
    scale_view,
    solve_basis,
    solve_common,
    solve_guide,
    solve_rows,
    weight_term,
)
from multicentre_papers.baselines.fedmvl.nonnegative import minimise_quadratic
from support.examples import examples

PENALTIES = Penalties(rho=1.3, varrho=0.7, mu=2.1)
N, C = 9, 3


class Problem:
    """A point of the augmented Lagrangian, and its value there."""

    def __init__(self, seed=0, n_views=3):
        rng = np.random.default_rng(seed)
        self.X = [rng.normal(size=(N, 4 + m)) for m in range(n_views)]
        self.U = [rng.normal(size=(4 + m, C)) for m in range(n_views)]
        self.factors = [rng.random((N, C)) for _ in range(n_views)]
        self.duals = [rng.normal(size=(N, C)) for _ in range(n_views)]
        self.V, self.G, self.psi = (rng.normal(size=(N, C)) for _ in range(3))
        self.weights = rng.random(n_views) + 0.2

    def lagrangian(self, **changed):
        here = {**self.__dict__, **changed}
        V, G, p = here["V"], here["G"], PENALTIES
        value = p.mu / 2 * np.sum((G.T @ V - np.eye(C)) ** 2) + np.sum(here["psi"] * (V - G))
        value += p.varrho / 2 * np.sum((V - G) ** 2)
        for X, U, F, Y, a in zip(here["X"], here["U"], here["factors"], here["duals"], here["weights"], strict=True):
            value += a * np.sum((X - F @ U.T) ** 2) + p.rho * np.sum(Y * (F - V)) + p.rho / 2 * np.sum((F - V) ** 2)
        return value


def assert_is_least(value, found, *, nonnegative=False):
    """Hold a block against a numerical minimiser and against points about it."""
    rng = np.random.default_rng(1)
    best = value(found)
    for scale in (1e-3, 1e-1, 1.0):
        for _ in range(30):
            other = found + scale * rng.normal(size=found.shape)
            assert value(np.maximum(other, 0.0) if nonnegative else other) >= best - 1e-9
    bounds = [(0.0, None)] * found.size if nonnegative else None
    start = np.zeros(found.size)
    least = minimize(lambda flat: value(flat.reshape(found.shape)), start, method="L-BFGS-B", bounds=bounds)
    assert best <= least.fun + 1e-6 * (1 + abs(least.fun))


@pytest.mark.parametrize("m", [0, 2])
def test_the_basis_is_the_minimiser(m):
    problem = Problem()

    def value(U):
        return problem.lagrangian(U=[U if k == m else known for k, known in enumerate(problem.U)])

    assert_is_least(value, solve_basis(problem.X[m], problem.factors[m]))


@pytest.mark.parametrize("m", [0, 2])
def test_a_views_factor_is_the_minimiser_among_those_not_below_zero(m):
    problem = Problem()
    near = problem.V - problem.duals[m]
    start = problem.factors[m]
    found = solve_rows(problem.X[m], problem.U[m], near, problem.weights[m], PENALTIES.rho, start)
    assert (found == 0).any()
    assert (found > 0).any()

    def value(F):
        return problem.lagrangian(factors=[F if k == m else known for k, known in enumerate(problem.factors)])

    assert_is_least(value, found, nonnegative=True)


def test_the_published_step_leaves_the_minimiser():
    """One Newton step, damped by the number of views and clipped, rises from where nothing can fall."""
    problem = Problem()
    X, U, a = problem.X[0], problem.U[0], problem.weights[0]
    least = solve_rows(X, U, problem.V - problem.duals[0], a, PENALTIES.rho, problem.factors[0])
    slope = PENALTIES.rho * (problem.V - least - problem.duals[0]) + 2 * a * (X - least @ U.T) @ U
    damped = np.maximum(least + slope @ np.linalg.inv(3 * U.T @ U + PENALTIES.rho * np.eye(C)), 0.0)
    values = [problem.lagrangian(factors=[F, *problem.factors[1:]]) for F in (least, damped)]
    assert values[1] > values[0] + 1e-3
    again = solve_rows(X, U, problem.V - problem.duals[0], a, PENALTIES.rho, least)
    assert np.allclose(again, least, atol=1e-12)


def test_the_common_factor_is_the_minimiser():
    problem = Problem()
    total = np.sum(problem.factors, axis=0) + np.sum(problem.duals, axis=0)
    found = solve_common(total, problem.G, problem.psi, 3, PENALTIES)
    assert_is_least(lambda V: problem.lagrangian(V=V), found)
    system = PENALTIES.mu * problem.G @ problem.G.T + (PENALTIES.varrho + 3 * PENALTIES.rho) * np.eye(N)
    right = (PENALTIES.mu + PENALTIES.varrho) * problem.G - problem.psi + PENALTIES.rho * total
    assert np.allclose(found, np.linalg.solve(system, right), atol=1e-12)


def test_the_guide_is_the_minimiser():
    problem = Problem()
    assert_is_least(lambda G: problem.lagrangian(G=G), solve_guide(problem.V, problem.psi, PENALTIES))


@pytest.mark.parametrize("lam", [0.1, 0.5, 1.3])
def test_the_weights_are_the_minimiser_over_the_simplex(lam):
    errors, r = np.array([0.31, 0.52, 0.94]), 10.0**lam
    terms = np.array([weight_term(log_error(error), math.log(0.5), lam) for error in errors])
    alpha = terms / terms.sum()
    printed = (r * errors) ** (1 / (1 - r))
    assert np.allclose(alpha, printed / printed.sum(), rtol=1e-12)
    rng = np.random.default_rng(0)
    others = rng.dirichlet(np.ones(3), size=500)
    assert ((others**r) @ errors >= (alpha**r) @ errors - 1e-12).all()


def test_weights_stay_within_what_a_masked_sum_carries():
    assert weight_term(log_error(0.0), 0.0, 1e-3) == pytest.approx(math.exp(20))
    assert weight_term(log_error(1e300), 0.0, 1e-3) == pytest.approx(math.exp(-20))
    assert data_weight(0.5, 2, 1.7) == 1.0
    assert data_weight(0.9, 2, 0.3) > 1.0 > data_weight(0.1, 2, 0.3)


@given(seed=st.integers(0, 10_000), c=st.integers(1, 8), rank=st.integers(1, 8), ridge=st.floats(-5, 2))
@examples(60)
def test_the_quadratic_problem_agrees_with_nonnegative_least_squares(seed, c, rank, ridge):
    rng = np.random.default_rng(seed)
    root = rng.normal(size=(rank, c))
    curvature = root.T @ root + 10.0**ridge * np.eye(c)
    slope = rng.normal(size=(5, c))
    found = minimise_quadratic(curvature, slope, np.maximum(rng.normal(size=(5, c)), 0.0))
    factor = np.linalg.cholesky(curvature)
    expected = np.array([nnls(factor.T, np.linalg.solve(factor, one))[0] for one in slope])
    assert (found >= 0).all()
    assert np.abs(found - expected).max() <= 1e-7 * (1 + np.abs(expected).max())


def test_the_quadratic_problem_does_not_depend_on_its_start():
    rng = np.random.default_rng(3)
    root = rng.normal(size=(12, 6))
    curvature, slope = root.T @ root, rng.normal(size=(50, 6))
    one = minimise_quadratic(curvature, slope, np.zeros((50, 6)))
    two = minimise_quadratic(curvature, slope, np.ones((50, 6)))
    assert np.allclose(one, two, atol=1e-12)


def test_a_sample_is_brought_to_mean_zero_and_variance_one():
    rng = np.random.default_rng(0)
    X = rng.normal(3.0, 2.0, (20, 6))
    scaled = scale_view(X, "sample")
    assert np.allclose(scaled.mean(axis=1), 0.0)
    assert np.ptp(scaled.var(axis=1)) < 1e-12
    assert np.isclose((scaled**2).sum(axis=1).mean(), 1.0)
    assert np.allclose(scale_view(5.0 * X + 2.0, "sample"), scaled)


def test_a_feature_is_brought_to_mean_zero_and_variance_one():
    rng = np.random.default_rng(0)
    X = rng.normal(3.0, 2.0, (20, 6)) * np.logspace(-3, 3, 6)
    scaled = scale_view(X, "feature")
    assert np.allclose(scaled.mean(axis=0), 0.0)
    assert np.ptp(scaled.var(axis=0)) < 1e-12
    assert np.isclose((scaled**2).sum(axis=1).mean(), 1.0)


def test_only_a_single_number_is_taken_out_without_a_scale():
    X = np.random.default_rng(0).normal(3.0, 2.0, (20, 6))
    ratio = scale_view(X, "none") / X
    assert np.ptp(ratio) < 1e-12


@pytest.mark.parametrize("scale", ["sample", "feature", "none"])
@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_constant_samples_and_features_become_zero(scale, size):
    X = np.random.default_rng(0).normal(size=(8, 4))
    X[3], X[:, 1] = 0.1, 0.1
    scaled = scale_view(X * size, scale)
    assert np.isfinite(scaled).all()
    if scale == "sample":
        assert not scaled[3].any()
    if scale == "feature":
        assert not scaled[:, 1].any()
    assert not scale_view(np.full((4, 3), 0.3), "sample").any()
    assert not scale_view(np.zeros((4, 3)), scale).any()


def test_a_rotated_view_has_the_same_factors():
    """What leaves depends on products of rows alone."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(N, 25))
    short = rotate_columns(X)
    assert short.shape == (N, N)
    V, near = rng.random((N, C)), rng.random((N, C))
    factors = [solve_rows(x, solve_basis(x, V), near, 0.7, 0.4, V) for x in (X, short)]
    assert np.allclose(*factors, atol=1e-12)


def test_the_leading_eigenvectors_are_found():
    rng = np.random.default_rng(0)
    root = rng.normal(size=(30, 4)) * [8.0, 4.0, 2.0, 0.1]
    K = root @ root.T
    directions = np.linalg.qr(K @ K @ rng.normal(size=(30, 4)))[0]
    leading = find_leading(directions, K @ directions, 2)
    values, vectors = np.linalg.eigh(K)
    assert np.allclose(leading @ leading.T, vectors[:, -2:] * values[-2:] @ vectors[:, -2:].T, atol=1e-8)


def test_the_start_indicates_the_clusters():
    start = indicate(np.array([2, 0, 2, 0]), 3)
    assert np.allclose(np.linalg.norm(start, axis=0), 1.0)
    assert start.argmax(axis=1)[[0, 2]].tolist() == [2, 2]
    assert (start > 0).all()


def test_rows_are_drawn_by_the_views_name():
    drawn = [draw_rows(100, 0.3, 7, 2, view) for view in ("blood", "blood", "image")]
    assert drawn[0].tolist() == drawn[1].tolist() != drawn[2].tolist()
    sizes = [len(draw_rows(100, 0.3, seed, 1, "blood")) for seed in range(200)]
    assert min(sizes) >= 30
    assert max(sizes) > 90
    assert all(len(np.unique(rows)) == len(rows) for rows in drawn)
