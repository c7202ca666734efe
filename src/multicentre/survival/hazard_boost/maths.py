"""Mathematics of boosted discrete hazards: intervals of follow-up, best splits, and values of leaves.

The hazard of an interval is the probability of an event in it for patients who reach it (D. R. Cox 1972, section 4, the
discrete logistic model). Its log odds are a sum of trees, each fitted by a Newton step on the log-loss (T. Chen and C.
Guestrin, "XGBoost", KDD 2016, equations 6 and 7). First derivatives are called slopes, second derivatives curvatures.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.trees.splits import Splits

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
Sums = NDArray[np.int64]
# Slopes and curvatures are summed as integers, in units of 2^-30.
UNIT = 2.0**30
# Largest magnitude of a leaf's value, in log odds.
MAX_STEP = 20.0


def last_intervals(bins: NDArray[np.int64], happened: NDArray[np.bool_], time: Floats, grid: Floats) -> Integers:
    """Return the last interval in which each patient counts, shape (n,); -1 for none.

    A patient with an event counts up to the interval of the event. A censored patient counts in the interval of
    censoring only if followed for at least half of it. A patient followed beyond the horizon counts in all intervals.

    Parameters
    ----------
    bins : array of shape (n,)
        Interval of every time, K beyond the horizon.
    happened : array of shape (n,)
    time : array of shape (n,)
    grid : array of shape (K,)
        Ends of the intervals.

    Examples
    --------
    >>> left = np.array([False, False, False, True])
    >>> time = np.array([1.4, 1.5, 9.0, 1.1])
    >>> last_intervals(np.array([1, 1, 2, 1]), left, time, np.array([1.0, 2.0])).tolist()
    [0, 1, 1, 1]
    """
    n_times = len(grid)
    inside = np.minimum(bins, n_times - 1)
    starts = np.concatenate([[0.0], grid[:-1]])[inside]
    stayed = (bins >= n_times) | happened | (time - starts >= 0.5 * (grid[inside] - starts))
    return np.where(stayed, inside, inside - 1).astype(np.int32)


def empirical_logits(events: Floats, leaving: Floats) -> Floats:
    """Return the log odds of the hazard in every interval, shape (K,), with 0.5 added to both counts.

    Parameters
    ----------
    events, leaving : arrays of shape (K,)
        Patients with an event in the interval, and patients for whom it is the last interval in which they count.

    Examples
    --------
    >>> empirical_logits(np.array([1.0, 0.0]), np.array([2.0, 2.0])).round(3).tolist()
    [-0.847, -1.609]
    """
    at_risk = np.cumsum(leaving[::-1])[::-1]
    without = np.maximum(at_risk - events, 0.0)
    return np.asarray(np.log((events + 0.5) / (without + 0.5)), dtype=np.float64)


def find_splits(sums: Sums, first: Sums, l2_regularization: float, least: float) -> Splits:
    """Return the split of each node with the largest gain (Chen and Guestrin 2016, equation 7); of ties, the first.

    Parameters
    ----------
    sums : array of shape (s, q, 2)
        Slopes and curvatures by cell, in units of 2**-30.
    first : array of shape (c + 1,)
        First cell of every column, and the end q.
    l2_regularization : float
        Penalty on the squared value of a leaf.
    least : float
        Smallest curvature of either side, above 0.

    Examples
    --------
    >>> unit = int(UNIT)
    >>> splits = find_splits(unit * np.array([[[-2, 2], [1, 1], [1, 1]]]), np.array([0, 3]), 0.0, 0.5)
    >>> splits.gain.tolist(), splits.cut.tolist(), (splits.left / unit).tolist(), (splits.right / unit).tolist()
    ([4.0], [0], [[-2.0, 2.0]], [[2.0, 2.0]])
    """
    left = _within_columns(sums, first)
    ends = np.repeat(first[1:] - 1, np.diff(first))
    right = left[:, ends] - left
    gain = _gain(left, l2_regularization) + _gain(right, l2_regularization)
    gain -= _gain(left[:, ends], l2_regularization)
    gain[np.minimum(left[..., 1], right[..., 1]) < least * UNIT] = 0.0
    cell = np.argmax(gain, axis=1)
    rows = np.arange(len(cell))
    best, column = gain[rows, cell], np.searchsorted(first, cell, side="right") - 1
    sides = left[rows, cell], right[rows, cell]
    return Splits(np.where(best > 0, column, -1), cell - first[column], np.maximum(best, 0.0), *sides)


def leaf_values(sums: Sums, l2_regularization: float, learning_rate: float) -> Floats:
    """Return the Newton step of every leaf (Chen and Guestrin 2016, equation 5), times the learning rate, at most 20.

    Examples
    --------
    >>> leaf_values(np.array([[-3 * int(UNIT), 2 * int(UNIT)]]), 1.0, 1.0).tolist()
    [1.0]
    """
    steps = -learning_rate * (sums[:, 0] / UNIT) / (sums[:, 1] / UNIT + l2_regularization)
    return np.asarray(np.clip(steps, -MAX_STEP, MAX_STEP), dtype=np.float64)


def first_cells(max_bins: NDArray[np.int64], n_times: int) -> Sums:
    """Return the first cell of every column and of the intervals, and the number of cells, shape (d + 2,).

    Examples
    --------
    >>> first_cells(np.array([2, 4]), 3).tolist()
    [0, 2, 6, 9]
    """
    return np.concatenate([[0], np.cumsum([*max_bins.tolist(), n_times])]).astype(np.int64)


def _within_columns(sums: Sums, first: Sums) -> Sums:
    cumulated = np.cumsum(sums, axis=1)
    before = np.concatenate([np.zeros_like(sums[:, :1]), cumulated], axis=1)[:, first[:-1]]
    return np.asarray(cumulated - np.repeat(before, np.diff(first), axis=1), dtype=np.int64)


def _gain(sums: Sums, l2_regularization: float) -> Floats:
    slope, curvature = sums[..., 0] / UNIT, sums[..., 1] / UNIT + l2_regularization
    return np.divide(slope * slope, curvature, out=np.zeros_like(slope), where=curvature > 0)
