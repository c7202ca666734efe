"""Stretches of intervals, margins and log-loss against loops over every patient and interval."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from multicentre.survival.kernels.hazard import (
    UNIT,
    add_trees,
    count_leaves,
    derive_log_loss,
    find_stretches,
    survival_of_margins,
)
from support.examples import examples

N_TIMES, N_COLUMNS = 7, 3


def draw_tree(rng, n_splits):
    """Return column, threshold, left, right of a random tree over columns of 5 bins and 7 intervals."""
    column, cut, left, right = [-1], [-1], [-1], [-1]
    for _ in range(n_splits):
        node = int(rng.choice([k for k, each in enumerate(column) if each < 0]))
        column[node] = int(rng.integers(N_COLUMNS + 1))
        cut[node] = int(rng.integers(N_TIMES - 1 if column[node] == N_COLUMNS else 4))
        left[node], right[node] = len(column), len(column) + 1
        column, cut, left, right = column + [-1] * 2, cut + [-1] * 2, left + [-1] * 2, right + [-1] * 2
    return [np.array(each, dtype=np.int32) for each in (column, cut, left, right)]


def leaf_of(binned, patient, interval, column, cut, left, right):
    node = 0
    while column[node] >= 0:
        value = interval if column[node] == N_COLUMNS else binned[patient, column[node]]
        node = left[node] if value <= cut[node] else right[node]
    return node


seeds = st.integers(0, 10_000)


@examples(50)
@given(seeds, st.integers(0, 9))
def test_stretches_are_where_each_interval_falls(seed, n_splits):
    rng = np.random.default_rng(seed)
    column, cut, left, right = draw_tree(rng, n_splits)
    binned = rng.integers(0, 5, size=(4, N_COLUMNS)).astype(np.uint8)
    found = np.empty((N_TIMES + 1, 3), dtype=np.int32)
    for patient in range(4):
        last = int(rng.integers(N_TIMES))
        n = find_stretches(binned, patient, 0, last, column, cut.astype(float), left, right, found)
        leaves = {j: int(node) for node, low, high in found[:n] for j in range(low, high + 1)}
        assert leaves == {j: leaf_of(binned, patient, j, column, cut, left, right) for j in range(last + 1)}
        assert sum(high - low + 1 for _, low, high in found[:n]) == last + 1


@examples(50)
@given(seeds)
def test_trees_add_up_and_leaves_are_counted(seed):
    rng = np.random.default_rng(seed)
    binned = np.asfortranarray(rng.integers(0, 5, size=(9, N_COLUMNS)).astype(np.uint8))
    last = rng.integers(-1, N_TIMES, 9).astype(np.int32)
    column, cut, left, right = draw_tree(rng, 5)
    value = np.where(column < 0, rng.normal(size=len(column)), 0.0)
    margins = np.zeros((9, N_TIMES))
    add_trees(margins, binned, last, np.zeros(2, dtype=np.int32), column, cut.astype(float), left, right, value)
    expected, inside = np.zeros((9, N_TIMES)), [set() for _ in column]
    for i in range(9):
        for j in range(last[i] + 1):
            node = leaf_of(binned, i, j, column, cut, left, right)
            expected[i, j] = 2 * value[node]
            inside[node].add(i)
    np.testing.assert_allclose(margins, expected, rtol=1e-14)
    counts = count_leaves(binned, last, column, cut.astype(float), left, right, N_TIMES)
    assert counts.tolist() == [len(each) for each in inside]


def test_the_log_loss_has_the_slopes_of_its_differences():
    rng = np.random.default_rng(1)
    margins, last = rng.normal(size=(30, 4)), rng.integers(-1, 4, 30).astype(np.int32)
    happened = rng.random(30) < 0.5
    slopes, curvatures, losses = derive_log_loss(margins, last, happened)
    y = (np.arange(4) == last[:, None]) & happened[:, None]
    counts = np.arange(4) <= last[:, None]

    def loss(shift):
        m = margins + shift
        return np.where(counts, np.log1p(np.exp(m)) - y * m, 0.0)

    step = 1e-4
    np.testing.assert_allclose(slopes / UNIT, (loss(step) - loss(-step)) / (2 * step), atol=1e-7)
    curved = (loss(step) - 2 * loss(0.0) + loss(-step)) / step**2
    np.testing.assert_allclose(curvatures / UNIT, curved, atol=1e-6)
    np.testing.assert_allclose(losses / 2**20, loss(0.0).sum(axis=1), atol=1e-5)


def test_extreme_margins_give_whole_numbers_and_survival():
    margins = np.array([[1e9, -1e9], [-745.0, 710.0], [0.0, 40.0]])
    slopes, curvatures, losses = derive_log_loss(margins, np.full(3, 1, dtype=np.int32), np.array([True, False, True]))
    assert np.abs(slopes).max() <= UNIT
    assert (curvatures >= 0).all()
    assert (losses > 0).all()
    survival = survival_of_margins(margins)
    assert ((survival >= 0) & (survival <= 1)).all()
    assert (np.diff(survival, axis=1) <= 0).all()
