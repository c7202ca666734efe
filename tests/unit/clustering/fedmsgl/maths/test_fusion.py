"""What the coordinator makes of relations: weights, the consensus, a falling objective, lists and missing samples."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.sparse import csr_array, issparse

from multicentre.clustering.fedmsgl.maths.coupling import express_coupled, measure_coupled_objective
from multicentre.clustering.fedmsgl.maths.expression import express, split
from multicentre.clustering.fedmsgl.maths.fusion import (
    Neighbours,
    apply_force,
    majorise,
    objective,
    pack_pairs,
    place_lists,
    pull_together,
    spread,
    unpack_pairs,
    weigh_views,
)
from multicentre.clustering.fedmsgl.maths.preparation import (
    count_pairs,
    divide_by_pairs,
    factor_gram,
    mark_present,
    prepare_view,
)
from multicentre.clustering.hypergraph import unit_rows
from multicentre.errors import DataError

EXACT = {"tol": 1e-9, "max_iterations": 20_000, "single": False}
MAKERS = (np.asarray, csr_array)


def add_weighted(matrices, weights=None):
    """Return the weighted sum of matrices, their mean without weights."""
    shares = np.full(len(matrices), 1 / len(matrices)) if weights is None else weights
    return sum(matrix * share for matrix, share in zip(matrices, shares, strict=True))


def dense(matrix):
    return matrix.toarray() if issparse(matrix) else np.asarray(matrix)


def relations(n=9, seed=0, kept=0.6):
    rng = np.random.default_rng(seed)
    matrix = rng.random((n, n)) * (rng.random((n, n)) < kept)
    np.fill_diagonal(matrix, 0.0)
    return matrix


def embedded(n=9, seed=1):
    return unit_rows(np.random.default_rng(seed).normal(size=(n, 3)))


def project(rows):
    """Each row on the simplex, by sorting."""
    ordered = -np.sort(-rows, axis=1)
    excess = (np.cumsum(ordered, axis=1) - 1) / np.arange(1, rows.shape[1] + 1)
    last = (ordered > excess).sum(axis=1) - 1
    return np.maximum(rows - excess[np.arange(len(rows)), last][:, None], 0.0)


# --- weights of the views


def test_weights_are_equation_6_in_units_of_the_mean_distance():
    d = np.array([0.5, 1.0, 3.0])
    expected = np.exp(-d / 1.5) / np.exp(-d / 1.5).sum()
    np.testing.assert_allclose(weigh_views(d), expected, rtol=1e-14)


@given(st.lists(st.floats(0.0, 1e150), min_size=1, max_size=6), st.floats(1e-100, 1e100))
def test_weights_add_up_to_one_at_any_unit_and_favour_the_near(distances, unit):
    weights = weigh_views(distances)
    assert weights.sum() == pytest.approx(1.0)
    order = np.argsort(distances, kind="stable")
    assert (np.diff(weights[order]) <= 1e-15).all()
    if min(distances) * unit > 1e-200:
        np.testing.assert_allclose(weigh_views(np.array(distances) * unit), weights, rtol=1e-9)


def test_views_at_the_consensus_weigh_the_same():
    np.testing.assert_array_equal(weigh_views(np.zeros(4)), np.full(4, 0.25))
    for distances in ([np.nan, 1.0], [-1.0, 1.0], [[1.0]]):
        with pytest.raises(DataError, match="finite and non-negative"):
            weigh_views(distances)


@given(st.floats(0.01, 5.0), st.floats(0.0, 10.0))
def test_majorising_weights_lie_above_the_function_and_touch_it(at, elsewhere):
    def h(x):
        return 1 - (1 + x) * np.exp(-x)

    scale = 1.7
    weight = majorise([at * scale], scale)[0]
    tangent = scale**2 * h(at) + weight / 2 * scale**2 * (elsewhere**2 - at**2)
    assert scale**2 * h(elsewhere) <= tangent + 1e-12


# --- the consensus


@pytest.mark.parametrize("make", MAKERS)
def test_distances_between_rows_of_the_embedding(make):
    F, support = embedded(), relations()
    expected = ((F[:, None] - F[None]) ** 2).sum(axis=2)
    if make is csr_array:
        expected = expected * (support > 0)
    np.testing.assert_allclose(dense(spread(F, make(support))), expected, atol=1e-14)


@pytest.mark.parametrize("make", MAKERS)
def test_the_consensus_is_the_minimiser_entry_by_entry(make):
    views, theta, F, beta = [relations(5, seed) for seed in range(3)], np.array([0.5, 0.3, 0.2]), embedded(5), 2.0
    mean = add_weighted([make(C) for C in views], theta)
    consensus, force = pull_together(mean, F, beta)
    reference = sum(t * C for t, C in zip(theta, views, strict=True))
    assert force == pytest.approx(beta * reference[reference > 0].mean())
    apart = ((F[:, None] - F[None]) ** 2).sum(axis=2)
    for i in range(5):
        for j in range(5):
            if i != j:
                best = minimize_scalar(
                    lambda g, i=i, j=j: sum(t * (C[i, j] - g) ** 2 / 2 for t, C in zip(theta, views, strict=True))
                    + force / 4 * apart[i, j] * g,
                    bounds=(0.0, 2.0), method="bounded", options={"xatol": 1e-12},
                ).x  # fmt: skip
                assert dense(consensus)[i, j] == pytest.approx(best, abs=1e-5)
    np.testing.assert_array_equal(np.diag(dense(consensus)), 0.0)


def test_lists_and_arrays_give_one_consensus_and_one_objective():
    mean, F = relations(), embedded()
    listed, force = pull_together(csr_array(mean), F, 1.0)
    full, same = pull_together(mean, F, 1.0)
    assert force == pytest.approx(same)
    np.testing.assert_allclose(listed.toarray(), full, atol=1e-15)
    assert listed.nnz == (full > 0).sum() < (mean > 0).sum()
    how = {"scale": 1.5, "strength": 2.0, "force": force}
    values = [objective([1.0], [0.5], G, F, **how) for G in (listed, full)]
    assert values[0] == pytest.approx(values[1], rel=1e-13)


@pytest.mark.parametrize("make", MAKERS)
def test_a_diagonal_is_dropped_and_no_force_changes_nothing_else(make):
    mean = relations() + np.eye(9)
    np.testing.assert_array_equal(dense(apply_force(make(mean), embedded(), 0.0)), relations())
    consensus, force = pull_together(make(np.zeros((9, 9))), embedded(), 2.0)
    assert force == 0.0
    assert not dense(consensus).any()


def test_the_objective_falls_in_every_step_with_embedding_and_scale_held():
    """Three views; exact weights and consensus, local problems by projected gradient from where they stand."""
    rng = np.random.default_rng(4)
    n, strength, a, l3 = 12, 3.0, 0.8, 0.5
    views = [rng.normal(size=(n, d)) / np.sqrt(d) for d in (2, 4, 9)]
    grams, F = [X @ X.T for X in views], embedded(n)
    stacked = [project(rng.random((n, 2 * n)) - 9.0 * np.tile(np.eye(n), 2)) for _ in views]

    def local(K, CU):
        C, U = CU[:, :n], CU[:, n:]
        residual = np.eye(n) - C - U
        return (np.trace(residual @ K @ residual.T) + a * (C**2).sum() + l3 * (U**2).sum()) / 2

    def descend(K, CU, G, weight):
        step = 1.0 / (2 * np.linalg.eigvalsh(K)[-1] + max(a + strength * weight, l3))
        for _ in range(60):
            common = (CU[:, :n] + CU[:, n:] - np.eye(n)) @ K
            toward = common + a * CU[:, :n] + strength * weight * (CU[:, :n] - G)
            CU = CU - step * np.hstack([toward, common + l3 * CU[:, n:]])
            CU = project(CU - 1e6 * np.tile(np.eye(n), 2))
        return CU

    def distances(G):
        return np.array([np.linalg.norm(CU[:, :n] - G) for CU in stacked])

    G = add_weighted([CU[:, :n] for CU in stacked])
    scale = float(distances(G).mean())
    force = 0.3 * strength * G[G > 0].mean()
    trace = []
    for _ in range(7):
        w = majorise(distances(G), scale)
        mean = add_weighted([CU[:, :n] for CU in stacked], w / w.sum())
        for update in ("consensus", "sites"):
            if update == "consensus":
                G = apply_force(mean, F, force / (strength * w.sum()))
            else:
                w = majorise(distances(G), scale)
                stacked = [descend(K, CU, G, one) for K, CU, one in zip(grams, stacked, w, strict=True)]
            values = [local(K, CU) for K, CU in zip(grams, stacked, strict=True)]
            trace.append(objective(values, distances(G), G, F, scale=scale, strength=strength, force=force))
    falls = np.diff(trace)
    assert (falls <= 1e-7 * np.abs(trace[:-1])).all()
    assert trace[-1] < trace[0] - 1e-3


def test_the_objective_falls_in_rounds_with_the_sites_own_solver():
    rng = np.random.default_rng(7)
    n, strength, a, l3 = 25, 4.0, 1.5, 1.0
    factors = [factor_gram(prepare_view(rng.normal(size=(n, d)) + 2.0 * (np.arange(n) % 3)[:, None])) for d in (3, 8)]
    parts, F = [split(express(one, a * l3 / (a + l3), **EXACT).codes, a, l3) for one in factors], embedded(n)
    G = add_weighted([C for C, _ in parts])
    d = np.array([np.linalg.norm(C - G) for C, _ in parts])
    scale, force, trace = float(d.mean()), 0.4 * float(G[G > 0].mean()), []
    for _ in range(6):
        w = majorise(d, scale)
        parts = [express_coupled(one, a, l3, strength * x, G, **EXACT) for one, x in zip(factors, w, strict=True)]
        local = [
            measure_coupled_objective(one, C, U, a, l3, 0.0, G).sum()
            for one, (C, U) in zip(factors, parts, strict=True)
        ]
        for update in (False, True):
            d = np.array([np.linalg.norm(C - G) for C, _ in parts])
            if update:
                w = majorise(d, scale)
                G = apply_force(add_weighted([C for C, _ in parts], w / w.sum()), F, force / (strength * w.sum()))
                d = np.array([np.linalg.norm(C - G) for C, _ in parts])
            trace.append(objective(local, d, G, F, scale=scale, strength=strength, force=force))
    assert (np.diff(trace) <= 1e-7 * np.abs(trace[:-1])).all()
    assert trace[-1] < trace[0]


def test_the_objective_adds_what_its_formula_says():
    d, G, F = np.array([0.3, 1.2, 4.0]), relations(), embedded()
    x = d / 0.8
    apart = ((F[:, None] - F[None]) ** 2).sum(axis=2)
    expected = 6.0 + 2.5 * 0.8**2 * (1 - np.exp(-x) - x * np.exp(-x)).sum() + 0.7 / 4 * (apart * G).sum()
    found = objective([1.0, 2.0, 3.0], d, G, F, scale=0.8, strength=2.5, force=0.7)
    assert found == pytest.approx(expected, rel=1e-13)
    assert objective([1.0], [0.0], G, F, scale=0.0, strength=1.0, force=0.0) == 1.0


# --- sums


@given(st.integers(1, 12))
def test_pairs_are_packed_row_by_row_and_come_back(n):
    symmetric = relations(n) + relations(n).T
    packed = pack_pairs(symmetric)
    np.testing.assert_array_equal(packed, symmetric[np.triu_indices(n, 1)])
    np.testing.assert_array_equal(unpack_pairs(packed, n), symmetric)
    with pytest.raises(DataError, match="pairs"):
        unpack_pairs(np.append(packed, 0.0), n)


# --- lists of views, and views without some samples


def test_lists_are_placed_in_the_common_order():
    lists = Neighbours(np.array([4, 0, 2]), np.array([[0, 2], [4, -1], [0, 4]]), np.array([[1, 2], [3, 0], [5, 6.0]]))
    expected = np.zeros((5, 5))
    expected[4, [0, 2]], expected[0, 4], expected[2, [0, 4]] = [1, 2], 3, [5, 6]
    np.testing.assert_array_equal(place_lists(lists, 5).toarray(), expected)


@pytest.mark.parametrize(
    ("places", "columns", "values", "why"),
    [
        ([0, 5], [[5], [0]], [[1.0], [1.0]], "distinct and from 0 to 4"),
        ([0, -1], [[1], [0]], [[1.0], [1.0]], "distinct and from 0 to 4"),
        ([1, 1], [[1], [1]], [[1.0], [1.0]], "distinct and from 0 to 4; got repeated"),
        ([0, 1], [[1], [7]], [[1.0], [1.0]], "outside the view"),
        ([0, 1], [[1], [2]], [[1.0], [1.0]], "outside the view"),
        ([0, 1], [[0], [0]], [[1.0], [1.0]], "themselves"),
        ([0, 1], [[1, 1], [0, -1]], [[1.0, 1.0], [1.0, 1.0]], "got a pair twice"),
        ([0, 1], [[1], [0]], [[np.nan], [1.0]], "finite"),
        ([0, 1], [[1], [0]], [[-1.0], [1.0]], "finite and non-negative"),
        ([0, 1, 2], [[1], [0]], [[1.0], [1.0]], "must have equal shapes with one row per place"),
        ([0, 1], [[1], [0]], [[1.0, 1.0], [1.0, 1.0]], "must have equal shapes with one row per place"),
    ],
)
def test_lists_that_cannot_be_are_refused(places, columns, values, why):
    with pytest.raises(DataError, match=why):
        place_lists(Neighbours(np.array(places), np.array(columns), np.array(values)), 5)


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("weights", [None, np.array([0.2, 0.5, 0.3])])
def test_a_mean_over_pairs_divides_by_the_views_that_have_both(make, weights):
    present = np.array([[1, 1, 1, 0, 0], [0, 1, 1, 1, 0], [1, 1, 1, 1, 0]], dtype=bool)
    shares = np.ones(3) if weights is None else weights
    views = [relations(5, seed, 1.0) * np.outer(p, p) for seed, p in enumerate(present)]
    total = sum(share * make(view) for share, view in zip(shares, views, strict=True))
    mean = dense(divide_by_pairs(total, count_pairs(present, total, weights)))
    for i in range(5):
        for j in range(5):
            both = present[:, i] & present[:, j]
            expected = np.average([v[i, j] for v in views], weights=shares * both) if both.any() else 0.0
            assert mean[i, j] == pytest.approx(expected, abs=1e-15)


def test_complete_views_have_their_plain_mean():
    views = [relations(7, seed) for seed in range(3)]
    present = np.array([mark_present(np.random.default_rng(k).permutation(7), 7) for k in range(3)])
    total = sum(views)
    np.testing.assert_allclose(divide_by_pairs(total, count_pairs(present, total)), np.mean(views, axis=0), atol=1e-15)
