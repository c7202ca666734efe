"""Self-expression against a direct solver over both parts, its certificate, and its invariances."""

import numpy as np
import pytest

from multicentre.clustering.fedmsgl.maths.coupling import measure_coupled_objective
from multicentre.clustering.fedmsgl.maths.expression import (
    express,
    keep_largest,
    list_largest,
    reduce_weights,
    split,
)
from multicentre.clustering.fedmsgl.maths.preparation import factor_gram, manifold_weights, prepare_view
from multicentre.clustering.kernels.simplex import project_rows
from support.expression_toy import EXACT, descend_both, two_groups
from support.msgl_optimality import measure_gap, measure_objective


@pytest.mark.slow
@pytest.mark.parametrize(("n", "d"), [(14, 3), (14, 30), (14, 1), (2, 3), (3, 2)])
@pytest.mark.parametrize(("lambda_2", "lambda_3"), [(0.0, 2.0), (3.0, 0.7)])
def test_the_reduced_problem_solves_that_in_both_parts(n, d, lambda_2, lambda_3):
    X = prepare_view(two_groups(n, d), "raw")
    factor, a = factor_gram(X), 0.5 + lambda_2 * manifold_weights(X) ** 2
    found = express(factor, reduce_weights(a, lambda_3), **EXACT)
    assert found.n_open == 0
    C, U = split(found.codes, a, lambda_3)
    direct_C, direct_U = descend_both(X @ X.T, a, lambda_3)
    assert pytest.approx(direct_C, abs=1e-6) == C
    assert pytest.approx(direct_U, abs=1e-6) == U


@pytest.mark.parametrize("weighted", [False, True])
def test_the_certificate_bounds_what_is_left(weighted):
    X = prepare_view(two_groups(40, 6))
    factor = factor_gram(X)
    weights = 0.3 + manifold_weights(X) ** 2 if weighted else 0.3
    loose, exact = (express(factor, weights, tol=tol, single=False, max_iterations=5000).codes for tol in (1e-2, 1e-8))
    least = measure_objective(factor, exact, weights)
    excess = measure_objective(factor, loose, weights) - least
    gap = measure_gap(factor, loose, weights * loose)
    assert gap.max() > 1e-6
    assert np.all(excess <= gap + 1e-12)
    assert np.all(excess >= -1e-10)
    assert np.all(measure_gap(factor, exact, weights * exact) <= 1e-6 * least)
    assert measure_gap(factor, exact, 0.3) == pytest.approx(measure_gap(factor, exact, 0.3 * exact))


@pytest.mark.parametrize(("single", "tol"), [(True, 1e-4), (False, 1e-8)])
def test_codes_are_on_the_simplex_without_their_own_entry(single, tol):
    factor = factor_gram(prepare_view(two_groups(50, 8)))
    codes = express(factor, 1.0, tol=tol, single=single).codes
    assert codes.dtype == (np.float32 if single else np.float64)
    assert codes.min() >= 0.0
    assert np.all(np.diag(codes) == 0.0)
    assert np.abs(codes.sum(axis=1, dtype=np.float64) - 1.0).max() < (1e-5 if single else 1e-12)


def test_single_precision_and_blocks_change_little():
    factor = factor_gram(prepare_view(two_groups(60, 5)))
    exact = express(factor, 0.5, **EXACT).codes
    assert express(factor, 0.5, tol=1e-5, max_iterations=2000).codes == pytest.approx(exact, abs=1e-4)
    assert express(factor, 0.5, **EXACT, block=7).codes == pytest.approx(exact, abs=1e-12)


def test_samples_settle_on_their_own():
    factor = factor_gram(prepare_view(two_groups(60, 5)))
    one_by_one = express(factor, 0.5, single=False, block=1)
    together = express(factor, 0.5, single=False)
    assert one_by_one.codes == pytest.approx(together.codes, abs=1e-12)
    assert one_by_one.n_iterations == together.n_iterations


def test_moving_and_turning_the_view_changes_nothing():
    rng = np.random.default_rng(1)
    X = two_groups(25, 4)
    turned = (X + rng.normal(size=4)) @ np.linalg.qr(rng.normal(size=(4, 4)))[0]
    codes, again, uncentred = (
        express(factor_gram(view), 0.7, **EXACT).codes for view in (X - X.mean(axis=0), turned - turned.mean(axis=0), X)
    )
    assert again == pytest.approx(codes, abs=1e-10)
    assert uncentred == pytest.approx(codes, abs=1e-6)


def test_reordering_samples_reorders_codes():
    X = prepare_view(two_groups(30, 4))
    order = np.random.default_rng(2).permutation(30)
    for effort in ({"single": False}, EXACT):
        codes = express(factor_gram(X), 0.5, **effort).codes
        reordered = express(factor_gram(X[order]), 0.5, **effort).codes
        assert reordered == pytest.approx(codes[np.ix_(order, order)], abs=1e-12)


def test_a_view_without_differences_mixes_evenly():
    even = (1.0 - np.eye(6)) / 5.0
    for weights in (1.0, np.ones((6, 6))):
        found = express(factor_gram(np.zeros((6, 3))), weights)
        assert found.codes == pytest.approx(even, abs=1e-7)
        assert found.n_iterations == 1


def test_duplicates_share_alike():
    X = prepare_view(np.vstack([two_groups(10, 3), two_groups(10, 3)[:3]]))
    factor = factor_gram(X)
    codes = express(factor, 0.5, **EXACT).codes
    for j in range(3, 10):
        assert codes[j, :3] == pytest.approx(codes[j, 10:], abs=1e-10)
    assert measure_gap(factor, codes, 0.5).max() < 1e-7


def test_two_samples_stand_for_each_other():
    found = express(factor_gram(prepare_view(np.array([[1.0, 2.0], [3.0, -1.0]]))), 5.0)
    assert np.array_equal(found.codes, [[0.0, 1.0], [1.0, 0.0]])


def test_what_did_not_settle_is_counted_and_still_feasible():
    factor = factor_gram(prepare_view(two_groups(20, 3)))
    found = express(factor, 0.01, tol=1e-12, single=False, max_iterations=3)
    assert (found.n_iterations, found.n_open) == (3, 20)
    assert found.codes.sum(axis=1) == pytest.approx(np.ones(20))


def test_a_good_start_saves_steps():
    factor = factor_gram(prepare_view(two_groups(40, 5)))
    cold = express(factor, 0.3, **EXACT)
    warm = express(factor, 0.3, **EXACT, start=cold.codes)
    assert warm.n_iterations < cold.n_iterations / 2
    assert warm.codes == pytest.approx(cold.codes, abs=1e-7)


def test_the_split_is_elementwise():
    Z = np.random.default_rng(3).uniform(size=(5, 5))
    a = np.random.default_rng(4).uniform(1.0, 9.0, (5, 5))
    C, U = split(Z, a, 4.0)
    assert pytest.approx(Z, abs=1e-15) == C + U
    assert pytest.approx(4.0 * U) == a * C


@pytest.mark.slow
def test_alternating_exact_steps_are_stuck():
    """Why C and U are not updated in turn: no exact step moves weight from one to the other."""
    X = prepare_view(two_groups(12, 3), "raw")
    K, n = X @ X.T, 12
    own = np.arange(n)
    C, U = 0.9 * (1 - np.eye(n)) / (n - 1), 0.1 * (1 - np.eye(n)) / (n - 1)

    def best_part(other, penalty):
        """Minimise over one part, its rows summing to what the other leaves, by projected gradients."""
        room = 1.0 - other.sum(axis=1, keepdims=True)
        part, bound = np.array(1 - np.eye(n)) / (n - 1) * room, np.linalg.eigvalsh(K)[-1] + penalty
        for _ in range(3000):
            slope = (part + other - np.eye(n)) @ K + penalty * part
            part = room * project_rows((part - slope / bound) / room, np.ones((1, 1)), own)
        return part

    for _ in range(3):
        C = best_part(U, 1.0)
        U = best_part(C, 5.0)
    assert C.sum(axis=1) == pytest.approx(np.full(n, 0.9))
    factor = factor_gram(X)
    best_C, best_U = split(express(factor, reduce_weights(1.0, 5.0), **EXACT).codes, 1.0, 5.0)
    assert best_C.sum(axis=1) == pytest.approx(np.full(n, 5.0 / 6.0))
    nothing = np.zeros((n, n))
    stuck = measure_coupled_objective(factor, C, U, 1.0, 5.0, 0.0, nothing)
    assert np.all(stuck > measure_coupled_objective(factor, best_C, best_U, 1.0, 5.0, 0.0, nothing) + 1e-5)


def test_the_largest_are_listed_as_sorting_lists_them():
    rng = np.random.default_rng(5)
    codes = np.round(np.maximum(rng.normal(size=(30, 30)), 0.0), 1)
    index, value = list_largest(codes, 6)
    assert (index.dtype, value.dtype) == (np.int32, np.float32)
    for j in range(30):
        row = codes[j].copy()
        row[j] = 0.0
        expected = [i for i in np.lexsort((np.arange(30), -row)) if row[i] > 0.0][:6]
        assert index[j, : len(expected)].tolist() == expected
        assert np.all(index[j, len(expected) :] == -1)
        assert value[j, : len(expected)] == pytest.approx(row[expected], rel=1e-6)


def test_truncated_codes_keep_the_largest_only():
    codes = express(factor_gram(prepare_view(two_groups(20, 4))), 1.0).codes
    kept = keep_largest(codes, 3)
    assert kept.dtype == codes.dtype
    assert np.all((kept > 0.0).sum(axis=1) <= 3)
    assert np.all((kept == codes) | (kept == 0.0))
    assert np.all(kept.max(axis=1) == codes.max(axis=1))
    assert np.array_equal(keep_largest(codes, 50), codes)
