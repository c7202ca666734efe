"""Compiled sums by node and bin, and the joining of bins that rest on few records.

Cells stand column by column: one for each bin, then one for missing values.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Sums = NDArray[np.int64]
DEEPEST = 128


@njit(cache=True, nogil=True)
def sum_by_bin(
    binned: NDArray[np.uint16],
    leaves: NDArray[np.int32],
    row: NDArray[np.int32],
    derivatives: Sums,
    first: Sums,
    n_rows: int,
) -> Sums:
    """Return slopes, curvatures and numbers of records by node and cell, shape (s, q, 3).

    Parameters
    ----------
    binned : array of shape (n, d)
    leaves : array of shape (k, n)
        Leaf of every record in each of the growing trees.
    row : array of shape (m,)
        Row of a leaf's sums, below `n_rows`; -1 for those that are not wanted.
    derivatives : array of shape (k, n, 2)
    first : array of shape (d + 1,)
        First cell of every column, and the end q.
    n_rows : int

    Examples
    --------
    >>> i4, bins = (lambda *v: np.array(v, dtype=np.int32)), np.array([[0], [1], [1]], dtype=np.uint16)
    >>> sum_by_bin(bins, i4(0, 0, 0)[None], i4(0), np.ones((1, 3, 2), dtype=np.int64), np.array([0, 3]), 1).tolist()
    [[[1, 1, 1], [2, 2, 2], [0, 0, 0]]]
    """
    n_columns = binned.shape[1]
    sums = np.zeros((n_rows, first[n_columns], 3), dtype=np.int64)
    for tree in range(leaves.shape[0]):
        for record in range(binned.shape[0]):
            place = row[leaves[tree, record]]
            if place < 0:
                continue
            slope, curvature = derivatives[tree, record, 0], derivatives[tree, record, 1]
            for column in range(n_columns):
                cell = first[column] + binned[record, column]
                sums[place, cell, 0] += slope
                sums[place, cell, 1] += curvature
                sums[place, cell, 2] += 1
    return sums


@njit(cache=True, nogil=True)
def join_cells(sums: Sums, first: Sums, least: int) -> None:
    """Join neighbouring bins in place until each rests on `least` records or none; the last of the sums counts them.

    A column's bins are halved, halved again, and so on. A half with too few goes to the nearest bin of the other half;
    two halves with too few go to the last bin of both. Missing values that are too few go to the last bin.

    Parameters
    ----------
    sums : array of shape (s, q, 3)
    first : array of shape (d + 1,)
    least : int

    Examples
    --------
    >>> sums = np.repeat(np.array([[6, 1, 0, 5, 5, 0]])[:, :, None], 3, axis=2)
    >>> join_cells(sums, np.array([0, 6]), 5)
    >>> sums[0, :, 2].tolist()
    [7, 0, 0, 5, 5, 0]
    """
    last = sums.shape[2] - 1
    for row in range(sums.shape[0]):
        for column in range(first.shape[0] - 1):
            start, missing = first[column], first[column + 1] - 1
            n_missing, n_known = sums[row, missing, last], sums[row, start:missing, last].sum()
            if 0 < n_missing < least:
                _move(sums[row], missing, missing + 1, missing - 1)
            elif 0 < n_known < least:
                _move(sums[row], start, missing, missing)
            _join_halves(sums[row], start, missing, least)


@njit(cache=True, nogil=True)
def _join_halves(sums: Sums, first: int, after: int, least: int) -> None:
    stack = np.empty((DEEPEST, 2), dtype=np.int64)
    stack[0, 0], stack[0, 1] = first, after
    height, last = 1, sums.shape[1] - 1
    while height > 0:
        height -= 1
        start, end = stack[height, 0], stack[height, 1]
        if end - start < 2:
            continue
        middle = (start + end + 1) // 2
        low, high = sums[start:middle, last].sum(), sums[middle:end, last].sum()
        if 0 < low < least and 0 < high < least:
            _move(sums, start, end, end - 1)
            continue
        if 0 < low < least:
            _move(sums, start, middle, middle)
        elif 0 < high < least:
            _move(sums, middle, end, middle - 1)
        stack[height, 0], stack[height, 1] = start, middle
        stack[height + 1, 0], stack[height + 1, 1] = middle, end
        height += 2


@njit(cache=True, nogil=True)
def _move(sums: Sums, start: int, end: int, to: int) -> None:
    for each in range(sums.shape[1]):
        total = sums[start:end, each].sum()
        kept = 0 if start <= to < end else sums[to, each]
        sums[start:end, each] = 0
        sums[to, each] = kept + total
