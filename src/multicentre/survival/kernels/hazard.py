"""Histograms of derivatives of the log-loss of discrete-time hazards."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.compilation import njit

Floats = NDArray[np.float64]

Integers = NDArray[np.int32]

Columns = NDArray[np.float64] | NDArray[np.uint8]

# Slopes and curvatures are integers in units of 2^-30.
UNIT = 2.0**30


@njit(cache=True, nogil=True)
def find_stretches(
    values: Columns,
    patient: int,
    root: int,
    last: int,
    column: Integers,
    threshold: Floats,
    left: Integers,
    right: Integers,
    stretches: Integers,
) -> int:
    """Write a patient's leaves to `stretches`, and return their number.

    A row of `stretches`, shape (K + 1, 3), is a leaf with its first and last interval.

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> stretches = np.empty((4, 3), dtype=np.int32)
    >>> tree = i4(1, -1, -1), np.zeros(3), i4(1, -1, -1), i4(2, -1, -1)
    >>> n = find_stretches(np.zeros((1, 1)), 0, 0, 2, *tree, stretches)
    >>> stretches[:n].tolist()
    [[1, 0, 0], [2, 1, 2]]
    """
    n_columns = values.shape[1]
    waiting, n_leaves = 1, 0
    # Pending stretches are stored from the end. Stretches are disjoint, so the two parts do not overlap.
    top = stretches.shape[0] - 1
    stretches[top, 0], stretches[top, 1], stretches[top, 2] = root, 0, last
    while waiting > 0:
        place = top - waiting + 1
        node, low, high = stretches[place, 0], stretches[place, 1], stretches[place, 2]
        waiting -= 1
        while column[node] >= 0:
            if column[node] < n_columns:
                goes_left = values[patient, column[node]] <= threshold[node]
                node = left[node] if goes_left else right[node]
            elif high <= threshold[node]:
                node = left[node]
            elif low > threshold[node]:
                node = right[node]
            else:
                cut = np.int32(threshold[node])
                waiting += 1
                place = top - waiting + 1
                stretches[place, 0], stretches[place, 1], stretches[place, 2] = right[node], cut + 1, high
                node, high = left[node], cut
        stretches[n_leaves, 0], stretches[n_leaves, 1], stretches[n_leaves, 2] = node, low, high
        n_leaves += 1
    return n_leaves


@njit(cache=True, nogil=True)
def add_trees(
    margins: Floats,
    values: Columns,
    last: Integers,
    roots: Integers,
    column: Integers,
    threshold: Floats,
    left: Integers,
    right: Integers,
    value: Floats,
) -> None:
    """Add the trees' leaf values to the margins, shape (n, K), in place and in the order of the trees.

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> margins = np.zeros((1, 3))
    >>> add_trees(margins, np.zeros((1, 1)), i4(2), i4(0), i4(1, -1, -1), np.array([0.0, 0, 0]), i4(1, -1, -1),
    ...           i4(2, -1, -1), np.array([0.0, 0.5, -0.5]))
    >>> margins.tolist()
    [[0.5, -0.5, -0.5]]
    """
    stretches = np.empty((margins.shape[1] + 1, 3), dtype=np.int32)
    for patient in range(values.shape[0]):
        if last[patient] < 0:
            continue
        for tree in range(roots.shape[0]):
            n_leaves = find_stretches(
                values, patient, roots[tree], last[patient], column, threshold, left, right, stretches
            )
            for each in range(n_leaves):
                step = value[stretches[each, 0]]
                for interval in range(stretches[each, 1], stretches[each, 2] + 1):
                    margins[patient, interval] += step


@njit(cache=True, nogil=True)
def derive_log_loss(
    margins: Floats, last: Integers, happened: NDArray[np.bool_]
) -> tuple[Integers, Integers, NDArray[np.int64]]:
    """Return slopes and curvatures of the log-loss by patient and interval, (n, K), and its sum by patient, (n,).

    An interval has an event if it is the last of a patient with an event. All values are integers in units of 2**-30
    (losses: 2**-20), so sums do not depend on the order of summation.

    Examples
    --------
    >>> slopes, curvatures, losses = derive_log_loss(np.zeros((1, 2)), np.array([1], dtype=np.int32), np.array([True]))
    >>> (slopes / UNIT).tolist(), (curvatures / UNIT).tolist(), (losses / 2**20).round(3).tolist()
    ([[0.5, -0.5]], [[0.25, 0.25]], [1.386])
    """
    slopes = np.zeros(margins.shape, dtype=np.int32)
    curvatures = np.zeros(margins.shape, dtype=np.int32)
    losses = np.zeros(margins.shape[0], dtype=np.int64)
    for patient in range(margins.shape[0]):
        for interval in range(last[patient] + 1):
            margin = margins[patient, interval]
            hazard = 1.0 / (1.0 + np.exp(-margin))
            is_event = happened[patient] and interval == last[patient]
            slopes[patient, interval] = np.int32(np.rint((hazard - is_event) * 1073741824.0))
            curvatures[patient, interval] = np.int32(np.rint(hazard * (1.0 - hazard) * 1073741824.0))
            towards = -margin if is_event else margin
            loss = max(towards, 0.0) + np.log1p(np.exp(-abs(towards)))
            losses[patient] += np.int64(np.rint(loss * 1048576.0))
    return slopes, curvatures, losses


@njit(cache=True, nogil=True)
def survival_of_margins(margins: Floats) -> Floats:
    """Return the product of one minus the hazards up to every interval, shape (n, K), from log odds of the hazards.

    Examples
    --------
    >>> survival_of_margins(np.array([[0.0, 0.0], [-1000.0, 1000.0]])).tolist()
    [[0.5, 0.25], [1.0, 0.0]]
    """
    survival = np.empty(margins.shape)
    for patient in range(margins.shape[0]):
        left = 1.0
        for interval in range(margins.shape[1]):
            left *= 1.0 / (1.0 + np.exp(margins[patient, interval]))
            survival[patient, interval] = left
    return survival


@njit(cache=True, nogil=True)
def count_leaves(
    values: Columns,
    last: Integers,
    column: Integers,
    threshold: Floats,
    left: Integers,
    right: Integers,
    n_times: int,
) -> NDArray[np.int64]:
    """Return the number of patients in each leaf of a tree at any time, shape (m,); 0 at inner nodes.

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> count_leaves(np.zeros((2, 1)), i4(2, 0), i4(1, -1, -1), np.array([0.0, 0, 0]), i4(1, -1, -1), i4(2, -1, -1),
    ...              3).tolist()
    [0, 2, 1]
    """
    patients = np.zeros(column.shape[0], dtype=np.int64)
    stretches = np.empty((n_times + 1, 3), dtype=np.int32)
    for patient in range(values.shape[0]):
        if last[patient] < 0:
            continue
        n_leaves = find_stretches(values, patient, 0, last[patient], column, threshold, left, right, stretches)
        for each in range(n_leaves):
            patients[stretches[each, 0]] += 1
    return patients


Sums = NDArray[np.int64]

# Number of patients per block.
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
        Nodes of the tree; thresholds are numbers of bins.
    row : array of shape (m,)
        Row of a leaf's sums, -1 for leaves that are not requested; s is 1 + the largest row.
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
    stretches = np.empty((slopes.shape[1] + 1, 3), dtype=np.int32)
    entries = np.empty((CHUNK * slopes.shape[1], 4), dtype=np.int64)
    for start in range(0, binned.shape[0], CHUNK):
        n_entries = 0
        for patient in range(start, min(start + CHUNK, binned.shape[0])):
            if last[patient] < 0:
                continue
            n_leaves = find_stretches(binned, patient, 0, last[patient], column, threshold, left, right, stretches)
            for each in range(n_leaves):
                slot = row[stretches[each, 0]]
                if slot < 0:
                    continue
                entry = entries[n_entries]
                entry[0], entry[1], entry[2], entry[3] = patient, slot, 0, 0
                for interval in range(stretches[each, 1], stretches[each, 2] + 1):
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
