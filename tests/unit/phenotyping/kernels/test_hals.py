from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from multicentre.phenotyping.kernels.hals import solve_columns, solve_rows
from support.examples import examples


@pytest.fixture
def problem(rng):
    """Data, design, and the products and the Gram matrix that stand for them."""
    design, data = rng.standard_normal((30, 6)), rng.standard_normal((11, 30))
    return data, design, data @ design, design.T @ design


def test_rows_converge_to_nonnegative_least_squares(problem):
    data, design, products, gram = problem
    expected = np.array([nnls(design, row)[0] for row in data])
    assert (expected == 0).any()
    assert (expected > 0).any()
    np.testing.assert_allclose(solve_rows(products, gram, np.ones((11, 6)), 400), expected, atol=1e-10)


def test_one_sweep_is_cyclic_coordinate_descent(problem, rng):
    _, _, products, gram = problem
    start = rng.random((11, 6))
    expected = start.copy()
    for row, product in zip(expected, products, strict=True):
        for r in range(6):
            row[r] = max(0.0, row[r] + (product[r] - row @ gram[:, r]) / gram[r, r])
    np.testing.assert_allclose(solve_rows(products, gram, start, 1), expected, atol=1e-12)


def test_a_row_does_not_depend_on_the_others(problem, rng):
    _, _, products, gram = problem
    start = rng.random((11, 6))
    together = solve_rows(products, gram, start, 4)
    for i in range(11):
        np.testing.assert_array_equal(solve_rows(products[[i]], gram, start[[i]], 4)[0], together[i])
    order = rng.permutation(11)
    np.testing.assert_array_equal(solve_rows(products[order], gram, start[order], 4), together[order])


@pytest.mark.parametrize("solve", [solve_rows, lambda p, g, s, n: solve_columns(p, g, s, 0.0, n)])
def test_a_column_without_weight_becomes_zero(problem, solve):
    _, _, products, gram = problem
    dead = gram.copy()
    dead[:, 2] = dead[2] = 0.0
    found = solve(products, dead, np.ones((11, 6)), 3)
    assert not found[:, 2].any()
    assert np.isfinite(found).all()
    rest = [0, 1, 3, 4, 5]
    np.testing.assert_allclose(found[:, rest], solve(products[:, rest], gram[np.ix_(rest, rest)], np.ones((11, 5)), 3))


def test_the_start_is_not_changed(problem):
    _, _, products, gram = problem
    start = np.ones((11, 6))
    solve_rows(products, gram, start, 2)
    solve_columns(products, gram, start, 0.1, 2)
    assert (start == 1).all()


def test_columns_without_penalty_are_rows(problem):
    _, _, products, gram = problem
    np.testing.assert_allclose(
        solve_columns(products, gram, np.ones((11, 6)), 0.0, 3),
        solve_rows(products, gram, np.ones((11, 6)), 3),
        atol=1e-12,
    )


@examples(40)
@given(seed=st.integers(0, 10**6), share=st.floats(0.01, 1.2))
def test_columns_meet_the_conditions_of_the_group_lasso(seed, share):
    rng = np.random.default_rng(seed)
    design, data = rng.random((40, 4)) + 3 * np.eye(40, 4), rng.random((25, 40))
    products, gram = data @ design, design.T @ design
    penalty = share * np.linalg.norm(products, axis=0).max()
    found = solve_columns(products, gram, np.ones((25, 4)), penalty, 500)
    slope = found @ gram - products
    for column, down in zip(found.T, slope.T, strict=True):
        norm = np.linalg.norm(column)
        if norm > 0:
            residual = down + penalty * column / norm
            scale = np.abs(products).max()
            assert np.abs(residual[column > 0]).max() < 1e-8 * scale
            assert residual.min() > -1e-8 * scale
        else:
            assert np.linalg.norm(np.maximum(-down, 0)) <= penalty * (1 + 1e-8)


def test_a_large_penalty_leaves_nothing(problem):
    _, _, products, gram = problem
    penalty = np.linalg.norm(np.maximum(products, 0), axis=0).max()
    assert not solve_columns(products, gram, np.zeros((11, 6)), penalty, 2).any()
    assert solve_columns(products, gram, np.zeros((11, 6)), penalty * 0.9, 2).any()
