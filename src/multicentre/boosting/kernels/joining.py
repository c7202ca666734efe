"""Compiled joining of bins that rest on few records, or whose sums rest on few.

Sums rest on as many records as would make them with equal shares: the square of the sum of magnitudes by the sum of
squares (L. Kish, "Survey sampling", 1965). Cells stand column by column: one for each bin, then one for missing values.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Sums = NDArray[np.int64]
Floats = NDArray[np.float64]
DEEPEST = 128
N_WEIGHTS = 5
_ROUNDING = 1e-6


@njit(cache=True, nogil=True)
def sum_weights(
    binned: NDArray[np.uint16],
    leaves: NDArray[np.int32],
    row: NDArray[np.int32],
    weights: Floats,
    first: Sums,
    n_rows: int,
) -> Floats:
    """Return sums of the records' weights by node and cell, shape (s, q, 5).

    Parameters
    ----------
    binned, leaves, row, first, n_rows
        As in :func:`~multicentre.boosting.kernels.histograms.sum_by_bin`.
    weights : array of shape (k, n, 5)
        One, magnitude and square of the slope, curvature and its square.

    Examples
    --------
    >>> i4, bins = (lambda *v: np.array(v, dtype=np.int32)), np.array([[0], [1], [1]], dtype=np.uint16)
    >>> sum_weights(bins, i4(0, 0, 0)[None], i4(0), np.ones((1, 3, 5)), np.array([0, 3]), 1)[0, :, 0].tolist()
    [1.0, 2.0, 0.0]
    """
    n_columns = binned.shape[1]
    sums = np.zeros((n_rows, first[n_columns], N_WEIGHTS))
    for tree in range(leaves.shape[0]):
        for record in range(binned.shape[0]):
            place = row[leaves[tree, record]]
            if place < 0:
                continue
            for column in range(n_columns):
                cell = first[column] + binned[record, column]
                for each in range(N_WEIGHTS):
                    sums[place, cell, each] += weights[tree, record, each]
    return sums


@njit(cache=True, nogil=True)
def effective_number(weights: Floats) -> float:
    """Return on how many records sums rest: the least of their number and of those of slopes and of curvatures.

    Parameters
    ----------
    weights : array of shape (5,)
        Sums of :func:`sum_weights`. Sums that are zero rest on all.

    Examples
    --------
    >>> round(effective_number(np.array([20.0, 10.0, 5.0, 1.0, 1.0])), 3)
    1.0
    """
    found = float(weights[0])
    for each in (1, 3):
        if weights[each + 1] > 0:
            found = min(found, float(weights[each] * weights[each] / weights[each + 1] + _ROUNDING))
    return found


@njit(cache=True, nogil=True)
def effective_numbers(weights: Floats) -> Floats:
    """Return the effective number of records of each row of sums, shape (m,).

    Examples
    --------
    >>> effective_numbers(np.array([[3.0, 0.0, 0.0, 0.0, 0.0]])).tolist()
    [3.0]
    """
    found = np.empty(weights.shape[0])
    for row in range(weights.shape[0]):
        found[row] = effective_number(weights[row])
    return found


@njit(cache=True, nogil=True)
def join_cells(sums: Sums, weights: Floats, first: Sums, least: int) -> None:
    """Join neighbouring bins in place until each rests on `least` records or none.

    A column's bins are halved, halved again, and so on. A half with too few goes to the nearest bin of the other half;
    two halves with too few go to the last bin of both. Missing values that are too few go to the last bin.

    Parameters
    ----------
    sums : array of shape (s, q, z)
    weights : array of shape (s, q, 5)
    first : array of shape (d + 1,)
    least : int

    Examples
    --------
    >>> sums = np.array([[6, 1, 0, 5, 5, 0]])[:, :, None]
    >>> weights = np.zeros((1, 6, 5))
    >>> weights[..., 0] = sums[..., 0]
    >>> join_cells(sums, weights, np.array([0, 6]), 5)
    >>> sums[0, :, 0].tolist()
    [7, 0, 0, 5, 5, 0]
    """
    for row in range(sums.shape[0]):
        for column in range(first.shape[0] - 1):
            start, missing = first[column], first[column + 1] - 1
            if _are_few(weights[row], missing, missing + 1, least):
                _move(sums[row], weights[row], missing, missing + 1, missing - 1)
            elif _are_few(weights[row], start, missing, least):
                _move(sums[row], weights[row], start, missing, missing)
            _join_halves(sums[row], weights[row], start, missing, least)


@njit(cache=True, nogil=True)
def _join_halves(sums: Sums, weights: Floats, first: int, after: int, least: int) -> None:
    stack = np.empty((DEEPEST, 2), dtype=np.int64)
    stack[0, 0], stack[0, 1] = first, after
    height = 1
    while height > 0:
        height -= 1
        start, end = stack[height, 0], stack[height, 1]
        if end - start < 2:
            continue
        middle = (start + end + 1) // 2
        low, high = _are_few(weights, start, middle, least), _are_few(weights, middle, end, least)
        if low and high:
            _move(sums, weights, start, end, end - 1)
            continue
        if low:
            _move(sums, weights, start, middle, middle)
        elif high:
            _move(sums, weights, middle, end, middle - 1)
        stack[height, 0], stack[height, 1] = start, middle
        stack[height + 1, 0], stack[height + 1, 1] = middle, end
        height += 2


@njit(cache=True, nogil=True)
def _are_few(weights: Floats, start: int, end: int, least: int) -> bool:
    total = np.zeros(N_WEIGHTS)
    for cell in range(start, end):
        for each in range(N_WEIGHTS):
            total[each] += weights[cell, each]
    return total[0] > 0 and effective_number(total) < least


@njit(cache=True, nogil=True)
def _move(sums: Sums, weights: Floats, start: int, end: int, to: int) -> None:
    for each in range(sums.shape[1]):
        total = sums[start:end, each].sum()
        kept = 0 if start <= to < end else sums[to, each]
        sums[start:end, each] = 0
        sums[to, each] = kept + total
    for each in range(N_WEIGHTS):
        whole = weights[start:end, each].sum()
        own = 0.0 if start <= to < end else weights[to, each]
        weights[start:end, each] = 0.0
        weights[to, each] = own + whole
