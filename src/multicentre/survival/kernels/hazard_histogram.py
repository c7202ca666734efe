"""Compiled histograms of slopes and curvatures by node, column and bin.

Cells stand column by column, one for each bin; those of the intervals come last. Patients are taken a few thousand at a
time, so that memory does not grow with their number.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from multicentre.survival.kernels.hazard_rows import Floats, Integers, find_stretches

Sums = NDArray[np.int64]
CHUNK = 4096


@njit(cache=True, nogil=True)
def sum_by_bin(
    binned: NDArray[np.uint8],
    last: Integers,
    slopes: Integers,
    curvatures: Integers,
    column: Integers,
    threshold: Floats,
    left: Integers,
    right: Integers,
    row: Integers,
    first: Sums,
) -> tuple[Sums, Sums, Sums]:
    """Return sums of slopes and of curvatures, and numbers of patients, each of shape (s, q), at nodes of a tree.

    Parameters
    ----------
    binned : array of shape (n, d)
    last : array of shape (n,)
        Last interval in which a patient counts, -1 for none.
    slopes, curvatures : arrays of shape (n, K)
    column, threshold, left, right : arrays of shape (m,)
        The tree; thresholds are numbers of bins.
    row : array of shape (m,)
        Row of a leaf's sums, -1 for those that are not wanted; below s = 1 + the largest.
    first : array of shape (d + 2,)
        First cell of every column, of the intervals, and the end q.

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> ones = np.ones((2, 2), dtype=np.int32)
    >>> sums, _, patients = sum_by_bin(np.array([[0], [1]], dtype=np.uint8), i4(0, 1), ones, ones, i4(-1),
    ...                                np.zeros(1), i4(-1), i4(-1), i4(0), np.array([0, 2, 4]))
    >>> sums.tolist(), patients.tolist()
    ([[1, 2, 2, 1]], [[1, 1, 2, 1]])
    """
    n_columns, n_rows = binned.shape[1], 0
    for node in range(row.shape[0]):
        n_rows = max(n_rows, row[node] + 1)
    cells = np.zeros((n_rows, first[first.shape[0] - 1], 3), dtype=np.int64)
    found = np.empty((slopes.shape[1] + 1, 3), dtype=np.int32)
    entries = np.empty((CHUNK * slopes.shape[1], 4), dtype=np.int64)
    for start in range(0, binned.shape[0], CHUNK):
        n_entries = 0
        for patient in range(start, min(start + CHUNK, binned.shape[0])):
            if last[patient] < 0:
                continue
            n_leaves = find_stretches(binned, patient, 0, last[patient], column, threshold, left, right, found)
            for each in range(n_leaves):
                slot = row[found[each, 0]]
                if slot < 0:
                    continue
                entry = entries[n_entries]
                entry[0], entry[1], entry[2], entry[3] = patient, slot, 0, 0
                for interval in range(found[each, 1], found[each, 2] + 1):
                    slope, curvature = slopes[patient, interval], curvatures[patient, interval]
                    _add(cells[slot, first[n_columns] + interval], slope, curvature)
                    entry[2] += slope
                    entry[3] += curvature
                n_entries += 1
        for each_column in range(n_columns):
            bins, offset = binned[:, each_column], first[each_column]
            for entry in entries[:n_entries]:
                _add(cells[entry[1], offset + bins[entry[0]]], entry[2], entry[3])
    return cells[:, :, 0].copy(), cells[:, :, 1].copy(), cells[:, :, 2].copy()


@njit(inline="always")
def _add(cell: Sums, slope: int, curvature: int) -> None:
    cell[0] += slope
    cell[1] += curvature
    cell[2] += 1
