"""Packing, batches and leaves' curves."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from multicentre.survival.rsf.maths import batches, bits_for, draw_columns, drawn_total, group_times, leaf_curves
from multicentre.survival.times import kaplan_meier
from support.examples import examples


@given(st.integers(1, 2**51))
def test_a_total_fits_its_bits_and_no_fewer(total):
    (bits,) = bits_for(np.array([total])).tolist()
    assert 2 ** (bits - 1) <= total < 2**bits


@examples(60)
@given(st.lists(st.integers(1, 50), min_size=1, max_size=30), st.integers(1, 120))
def test_batches_hold_every_node_once_and_no_more_words_than_asked(sizes, most):
    words = np.concatenate([[0], np.cumsum(sizes)])
    parts = list(batches(words, most))
    assert [k for part in parts for k in range(part.start, part.stop)] == list(range(len(sizes)))
    for part in parts:
        assert words[part.stop] - words[part.start] <= most or part.stop - part.start == 1


def test_columns_are_drawn_alike_and_constant_ones_never():
    max_bins = np.array([1, 4, 2, 9, 2])
    drawn = draw_columns(np.random.default_rng(0), 4000, max_bins, 2)
    assert np.array_equal(drawn[:, 0] < drawn[:, 1], np.ones(4000, dtype=bool))
    shares = np.bincount(drawn.ravel(), minlength=5) / 4000
    assert shares[0] == 0
    np.testing.assert_allclose(shares[1:], 0.5, atol=0.04)
    assert draw_columns(np.random.default_rng(0), 3, np.array([1, 1]), 2).shape == (3, 0)


def test_leaves_have_kaplan_meier_curves_of_their_own():
    events, leaving = np.array([[2, 0, 1], [0, 3, 0]]), np.array([[3, 1, 1, 4], [0, 4, 0, 0]])
    counts = np.concatenate([events, leaving], axis=1)
    curves = leaf_curves(counts)
    for row in range(2):
        at_risk = np.cumsum(leaving[row, ::-1])[::-1][:3].astype(float)
        np.testing.assert_allclose(curves[row], kaplan_meier(events[row].astype(float), at_risk))
    assert drawn_total(np.concatenate([counts, np.ones((2, 2), dtype=int)], axis=1)).tolist() == [9, 4]


@given(st.integers(1, 80), st.integers(1, 80))
def test_groups_are_stretches_of_times_of_about_one_length(n_times, n_groups):
    n_groups = min(n_times, n_groups)
    groups = group_times(np.arange(n_times + 1), n_times, n_groups)
    assert groups[-1] == n_groups
    lengths = np.bincount(groups[:-1], minlength=n_groups)
    assert (np.diff(groups) >= 0).all()
    assert lengths.max() - lengths.min() <= 1
