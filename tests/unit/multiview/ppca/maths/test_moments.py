import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import DataError
from multicentre.multiview.ppca.maths.model import Layout
from multicentre.multiview.ppca.maths.moments import RowMoments, ScatterMoments, reduce_chunks, reduce_rows
from support.examples import examples
from support.ppca_simulation import LAYOUT

DIRECTIONS = np.random.default_rng(9).normal(size=(33, 4))


def assert_same(one, other, tolerance=1e-9):
    assert one.n == other.n
    assert one.mean == pytest.approx(other.mean, abs=tolerance)
    assert one.scatter_diagonal == pytest.approx(other.scatter_diagonal, rel=tolerance)
    assert one.scatter_times(DIRECTIONS) == pytest.approx(other.scatter_times(DIRECTIONS), rel=1e-8, abs=1e-7)


@pytest.mark.parametrize(
    ("n", "carrier"), [(1, RowMoments), (16, RowMoments), (17, ScatterMoments), (90, ScatterMoments)]
)
def test_carrier_follows_the_number_of_rows(n, carrier):
    rows = np.random.default_rng(n).normal(size=(n, 33))
    (only,) = reduce_rows(rows, LAYOUT)
    assert isinstance(only.moments, carrier)
    centred = rows - rows.mean(axis=0)
    assert_same(only.moments, ScatterMoments(n, rows.mean(axis=0), centred.T @ centred))


@examples(25)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=8), st.integers(0, 2**31))
def test_blocks_give_what_all_rows_give(sizes, seed):
    rows = np.random.default_rng(seed).normal(size=(sum(sizes), 33)) + 3
    (whole,) = reduce_rows(rows, LAYOUT)
    (merged,) = reduce_chunks(np.split(rows, np.cumsum(sizes)[:-1]), LAYOUT)
    assert_same(merged.moments, whole.moments)


def test_blocks_far_from_zero_keep_their_digits():
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5000, 33))
    (near,) = reduce_rows(rows, LAYOUT)
    (far,) = reduce_chunks(iter(np.array_split(rows + 1e7, 25)), LAYOUT)
    assert far.moments.scatter_diagonal == pytest.approx(near.moments.scatter_diagonal, rel=1e-6)


def test_a_buffer_that_the_reader_reuses_is_not_kept():
    def read(buffer):
        for value in range(4):
            buffer[:] = value
            yield buffer

    (only,) = reduce_chunks(read(np.empty((2, 33))), LAYOUT)
    assert only.moments.mean == pytest.approx(np.full(33, 1.5))


def test_rows_are_grouped_by_the_views_that_they_show():
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(60, 33))
    rows[:20, LAYOUT.columns("first")] = np.nan
    rows[20:25] = np.nan
    without, whole = sorted(reduce_rows(rows, LAYOUT), key=lambda own: own.features.sum())
    assert without.moments.n == 20
    assert whole.moments.n == 35
    assert without.views(LAYOUT).tolist() == [False, True, True]
    assert without.moments.mean == pytest.approx(rows[:20, 15:].mean(axis=0))
    blocks = reduce_chunks(np.array_split(rows, 7), LAYOUT)
    assert [own.moments.n for own in blocks] == [own.moments.n for own in reduce_rows(rows, LAYOUT)]


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([[1.0, np.nan, 2.0]], "each row must have all columns of a view or none"),
        ([[1.0, 2.0, np.inf]], "must be finite or missing; got an infinite one"),
        ([[1.0, 2.0]], r"rows must have shape \(n, 3\); got \(1, 2\)"),
        ([[np.nan] * 3], "at least one row must have a complete view; got none"),
        (np.empty((0, 3)), "at least one row must have a complete view; got none"),
    ],
)
def test_rows_that_cannot_be_used_are_refused(rows, said):
    with pytest.raises(DataError, match=said):
        reduce_rows(np.array(rows), Layout(("a", "b"), (2, 1)))
