"""Coupled codes against a direct solver over both parts."""

import numpy as np
import pytest

from multicentre.clustering.fedmsgl.maths.coupling import (
    express_coupled,
    measure_coupled_objective,
    split_coupled,
)
from multicentre.clustering.fedmsgl.maths.expression import express, reduce_weights, split
from multicentre.clustering.fedmsgl.maths.preparation import factor_gram, manifold_weights, prepare_view
from support.expression_toy import EXACT, descend_both, two_groups
from support.msgl_optimality import derive_cost, measure_gap


def relations(n, seed=7):
    """Draw sparse relations of all sites, with some that exceed what a row may hold."""
    rng = np.random.default_rng(seed)
    G = np.maximum(rng.normal(0.0, 0.2, (n, n)), 0.0)
    np.fill_diagonal(G, 0.0)
    return G


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d"), [(14, 3), (14, 30), (2, 3), (3, 1)])
@pytest.mark.parametrize("lambda_2", [0.0, 3.0])
@pytest.mark.parametrize("pull", [0.0, 0.4, 20.0])
def test_coupled_parts_agree_with_a_direct_solver(n, d, lambda_2, pull):
    X, G = prepare_view(two_groups(n, d), "raw"), relations(n)
    a = 0.5 + lambda_2 * manifold_weights(X) ** 2
    C, U = express_coupled(factor_gram(X), a, 0.7, pull, G, **EXACT)
    direct_C, direct_U = descend_both(X @ X.T, a, 0.7, pull, G)
    assert pytest.approx(direct_C, abs=1e-6) == C
    assert pytest.approx(direct_U, abs=1e-6) == U


def test_without_pull_it_is_the_uncoupled_problem():
    X = prepare_view(two_groups(20, 4))
    factor = factor_gram(X)
    C, U = express_coupled(factor, 2.0, 3.0, 0.0, relations(20), **EXACT)
    expected = split(express(factor, reduce_weights(2.0, 3.0), **EXACT).codes, 2.0, 3.0)
    assert pytest.approx(expected[0], abs=1e-9) == C
    assert pytest.approx(expected[1], abs=1e-9) == U


def test_a_strong_pull_leaves_the_relations_of_all_sites():
    X, n = prepare_view(two_groups(12, 3)), 12
    G = relations(n)
    G /= G.sum(axis=1, keepdims=True)
    C, U = express_coupled(factor_gram(X), 1.0, 1.0, 1e6, G, **EXACT)
    assert pytest.approx(G, abs=1e-5) == C
    assert U.max() < 1e-4


def test_the_certificate_holds_for_coupled_codes():
    X, G = prepare_view(two_groups(30, 5)), relations(30)
    factor, a = factor_gram(X), 0.5 + manifold_weights(X) ** 2
    loose, exact = (
        express_coupled(factor, a, 0.7, 0.4, G, tol=tol, single=False, max_iterations=5000) for tol in (1e-2, 1e-8)
    )
    least = measure_coupled_objective(factor, *exact, a, 0.7, 0.4, G)
    gap = measure_gap(factor, loose[0] + loose[1], derive_cost(loose[0], a, 0.4, G))
    excess = measure_coupled_objective(factor, *loose, a, 0.7, 0.4, G) - least
    assert gap.max() > 1e-6
    assert np.all(excess <= gap + 1e-12)
    assert np.all(measure_gap(factor, sum(exact), derive_cost(exact[0], a, 0.4, G)) <= 1e-6 * least)


@pytest.mark.parametrize(("single", "tol"), [(True, 1e-4), (False, 1e-8)])
def test_coupled_parts_are_feasible(single, tol):
    factor = factor_gram(prepare_view(two_groups(40, 6)))
    C, U = express_coupled(factor, 2.0, 1.0, 3.0, relations(40), tol=tol, single=single)
    assert C.dtype == U.dtype == (np.float32 if single else np.float64)
    assert min(C.min(), U.min()) >= 0.0
    assert np.all(np.diag(C) == 0.0)
    assert np.all(np.diag(U) == 0.0)
    assert np.abs((C + U).sum(axis=1, dtype=np.float64) - 1.0).max() < (1e-5 if single else 1e-12)


def test_a_round_starts_where_the_last_one_ended():
    factor, G = factor_gram(prepare_view(two_groups(40, 5))), relations(40)
    before = express_coupled(factor, 1.0, 1.0, 0.5, G, **EXACT)
    short = {**EXACT, "max_iterations": 3}
    warm = express_coupled(factor, 1.0, 1.0, 0.5, G, start=before, **short)
    cold = express_coupled(factor, 1.0, 1.0, 0.5, G, **short)
    missed = [np.abs(found[0] + found[1] - before[0] - before[1]).max() for found in (warm, cold)]
    assert missed[0] < 1e-6 < missed[1]


def test_the_split_costs_least():
    rng = np.random.default_rng(8)
    Z, G, a = rng.uniform(size=(6, 6)), relations(6), rng.uniform(1.0, 5.0, (6, 6))
    C, U = split_coupled(Z, a, 2.0, 3.0, G)
    assert pytest.approx(Z) == C + U

    def cost(U):
        return a * (Z - U) ** 2 + 2.0 * U**2 + 3.0 * (Z - U - G) ** 2

    for step in (-1e-3, 1e-3):
        assert np.all(cost(np.clip(U + step, 0.0, Z)) >= cost(U) - 1e-12)
