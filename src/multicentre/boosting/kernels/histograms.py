"""Compiled sums of gradients and curvatures by node and bin."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.compilation import njit

Sums = NDArray[np.int64]
Integers = NDArray[np.int32]


@njit(cache=True, nogil=True)
def sum_by_bin(
    binned: NDArray[np.uint16],
    roots: Integers,
    places: Integers,
    row: Integers,
    derivatives: Sums,
    first: Sums,
    n_rows: int,
    n_sums: int,
    drawn: NDArray[np.bool_],
) -> Sums:
    """Return slopes, curvatures and, if requested, numbers of records by node and cell, shape (s, q, z).

    Parameters
    ----------
    binned : array of shape (n, d)
    roots : array of shape (k,)
        Roots of the growing trees.
    places : array of shape (k, n)
        Leaf of every record in each of the growing trees, counted from its root.
    row : array of shape (m,)
        Row of the sums of a leaf, below `n_rows`; -1 for other nodes.
    derivatives : array of shape (k, n, 2)
    first : array of shape (d + 1,)
        First cell of every column, and the end q.
    n_rows : int
    n_sums : int
        2 for slopes and curvatures; 3 for numbers of records as well.
    drawn : array of shape (n,)
        Records that are summed; empty for all.

    Examples
    --------
    >>> i4, bins = (lambda *v: np.array(v, dtype=np.int32)), np.array([[0], [1], [1]], dtype=np.uint16)
    >>> ones, every = np.ones((1, 3, 2), dtype=np.int64), np.zeros(0, dtype=np.bool_)
    >>> sum_by_bin(bins, i4(0), i4(0, 0, 0)[None], i4(0), ones, np.array([0, 3]), 1, 3, every).tolist()
    [[[1, 1, 1], [2, 2, 2], [0, 0, 0]]]
    """
    # Indices without a sign spare the check for negative ones, a third of the time.
    n_columns, n_cells, width = np.uint64(binned.shape[1]), np.uint64(first[-1]), np.uint64(n_sums)
    sums = np.zeros((n_rows, first[-1], n_sums), dtype=np.int64)
    flat, cells, bins, one = sums.reshape(-1), first.astype(np.uint64), binned.reshape(-1), np.uint64(1)
    is_drawn = drawn.shape[0] == 0
    for tree in range(places.shape[0]):
        for record in range(binned.shape[0]):
            place = row[roots[tree] + places[tree, record]]
            if place < 0 or not (is_drawn or drawn[record]):
                continue
            slope, curvature = derivatives[tree, record, 0], derivatives[tree, record, 1]
            start, values = np.uint64(place) * n_cells, np.uint64(record) * n_columns
            for column in range(n_columns):
                cell = (start + cells[column] + np.uint64(bins[values + column])) * width
                flat[cell] += slope
                flat[cell + one] += curvature
                if n_sums == 3:
                    flat[cell + one + one] += 1
    return sums
