"""The weighted simplex step against sorting, its optimality conditions, and awkward rows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from multicentre.clustering.kernels.simplex import project_rows
from support.examples import examples

ONE = np.ones((1, 1))
NONE = np.array([-1])


def project_by_sorting(b):
    """Project one vector on the simplex by sorting it."""
    descending = np.sort(b - b.max())[::-1]
    sums = np.cumsum(descending) - 1.0
    size = np.nonzero(descending > sums / np.arange(1, len(b) + 1))[0][-1] + 1
    return np.maximum(b - b.max() - sums[size - 1] / size, 0.0)


@pytest.mark.parametrize("scale", [1e-9, 1e-3, 1.0, 1e6])
def test_equal_weights_agree_with_sorting(scale):
    rng = np.random.default_rng(3)
    rows = rng.normal(0.0, scale, (40, 30))
    expected = np.array([project_by_sorting(row) for row in rows])
    assert np.abs(project_rows(rows, ONE, np.full(40, -1)) - expected).max() < 1e-12


@examples(200)
@given(
    arrays(np.float64, (3, 7), elements=st.floats(-50.0, 50.0)),
    arrays(np.float64, (3, 7), elements=st.floats(0.01, 100.0)),
    st.integers(0, 6),
)
def test_weighted_rows_are_optimal(linear, weights, own):
    found = project_rows(linear, weights, np.full(3, own))
    assert found.min() >= 0.0
    assert np.all(found[:, own] == 0.0)
    assert np.abs(found.sum(axis=1) - 1.0).max() < 1e-12
    price = linear - weights * found
    for j in range(3):
        held = found[j] > 0.0
        tau = price[j][held]
        rounding = 1e-9 * max(1.0, float(np.abs(linear[j]).max()))
        assert np.ptp(tau) < rounding
        others = ~held
        others[own] = False
        assert np.all(linear[j][others] <= tau.max() + rounding)


def test_the_left_out_entry_is_as_good_as_absent():
    rng = np.random.default_rng(4)
    linear, weights = rng.normal(size=(5, 9)), rng.uniform(0.5, 2.0, (5, 9))
    found = project_rows(linear, weights, np.full(5, 4))
    kept = np.delete(np.arange(9), 4)
    alone = project_rows(linear[:, kept].copy(), weights[:, kept].copy(), np.full(5, -1))
    assert np.array_equal(found[:, kept], alone)


def test_two_samples_leave_one_choice():
    found = project_rows(np.array([[1e9, -5.0], [2.0, 7.0]]), ONE, np.array([0, 1]))
    assert np.array_equal(found, [[0.0, 1.0], [1.0, 0.0]])


def test_ties_share_alike():
    assert np.array_equal(
        project_rows(np.array([[3.0, 3.0, -9.0, 3.0, 3.0]]), ONE, NONE), [[0.25, 0.25, 0.0, 0.25, 0.25]]
    )


def test_masked_entries_get_nought():
    found = project_rows(np.array([[-np.inf, 0.25, -np.inf, 0.25]]), ONE, NONE)
    assert np.array_equal(found, [[0.0, 0.5, 0.0, 0.5]])


@pytest.mark.parametrize("size", [1e-30, 1.0, 1e8, 1e12])
def test_sums_stay_one_far_from_nought(size):
    rng = np.random.default_rng(5)
    rows = size + rng.uniform(0.0, 0.2, (20, 50))
    assert np.abs(project_rows(rows, ONE, np.full(20, -1)).sum(axis=1) - 1.0).max() < 1e-12


def test_single_precision_sums_to_one():
    rng = np.random.default_rng(6)
    rows = rng.normal(0.0, 0.01, (30, 2000)).astype(np.float32)
    found = project_rows(rows, np.full((1, 1), 5.0, np.float32), np.arange(30))
    assert found.dtype == np.float32
    assert np.abs(found.astype(np.float64).sum(axis=1) - 1.0).max() < 1e-5
