"""Compiled sums by node and bin.

Cells stand column by column: one for each bin, then one for missing values.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Sums = NDArray[np.int64]


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
