"""Splits and steps of boosted trees from sums of integers, in the arithmetic of xgboost's hist.

Equations are those of T. Chen and C. Guestrin, "XGBoost", KDD 2016. Sums are in double precision and gains in single
precision. Candidates are in the order of xgboost: by column; within a column first with missing values on the right and
increasing cuts, then with missing values on the left and decreasing cuts. Of equal gains the first is selected.
"""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Sums = NDArray[np.int64]
# Minimum gain of a split: the constant kRtEps of xgboost.
LEAST_GAIN = np.float32(1e-6)


@dataclass(frozen=True)
class Penalty:
    """Regularisation of splits and steps.

    Parameters
    ----------
    reg_lambda, reg_alpha : float
        Penalties of a step's square and of its magnitude.
    gamma : float
        Minimum gain of a split.
    min_child_weight : float
        Minimum sum of curvatures on either side of a split.
    least_records : int
        Minimum number of records over all sites on either side.
    largest_step : float
        Largest magnitude of a step; 0 for no limit.
    slope_unit, curvature_unit : float
        Unit of the sums.
    """

    reg_lambda: float
    reg_alpha: float
    gamma: float
    min_child_weight: float
    least_records: int
    largest_step: float
    slope_unit: float
    curvature_unit: float


@dataclass(frozen=True)
class Splits:
    """Best split of each node; without a column if no split is permitted.

    Parameters
    ----------
    column : array of shape (s,)
        -1 for none.
    cut : array of shape (s,)
        Last bin of the left side.
    default_left : array of shape (s,)
    gain : array of shape (s,)
    left, right : arrays of shape (s, z)
        Sums of either side.
    """

    column: NDArray[np.int64]
    cut: NDArray[np.int64]
    default_left: NDArray[np.bool_]
    gain: Singles
    left: Sums
    right: Sums


def newton_steps(sums: Sums, penalty: Penalty) -> Singles:
    """Return the Newton step of each node (equation 5), shape (...,).

    Parameters
    ----------
    sums : array of shape (..., 2 or 3)
        Slopes and curvatures in units.
    penalty : Penalty

    Examples
    --------
    >>> newton_steps(np.array([[-6, 2]]), Penalty(1.0, 0.0, 0.0, 1.0, 0, 0.0, 0.5, 1.0)).tolist()
    [1.0]
    """
    slope, curvature = _in_ones(sums, penalty)
    able = (curvature > 0) & (curvature >= np.float32(penalty.min_child_weight))
    below = curvature + np.float32(penalty.reg_lambda)
    step = np.divide(-_shrunk(slope, penalty), below, out=np.zeros_like(slope), where=able & (below > 0))
    if penalty.largest_step:
        step = np.clip(step, -np.float32(penalty.largest_step), np.float32(penalty.largest_step))
    return step.astype(np.float32)


def score_nodes(sums: Sums, penalty: Penalty) -> Singles:
    """Return twice the reduction of the objective by the step of each node (equation 6), shape (...,).

    Examples
    --------
    >>> score_nodes(np.array([[-6, 2]]), Penalty(1.0, 0.0, 0.0, 1.0, 0, 0.0, 0.5, 1.0)).tolist()
    [3.0]
    """
    slope, curvature = _in_ones(sums, penalty)
    below = (curvature + np.float32(penalty.reg_lambda)).astype(np.float32)
    able = (curvature > 0) & (below > 0)
    if not penalty.largest_step:
        above = np.square(_shrunk(slope, penalty)).astype(np.float32)
        return np.divide(above, below, out=np.zeros_like(below), where=able)
    step, two = newton_steps(sums, penalty), np.float32(2.0)
    single = slope.astype(np.float32)
    curve = curvature.astype(np.float32) + np.float32(penalty.reg_lambda)
    fall = -(two * single * step + curve * (step * step))
    return np.where(able, fall, np.float32(0.0)).astype(np.float32)


def find_splits(sums: Sums, first: Sums, penalty: Penalty) -> Splits:
    """Return the split of each node with the largest gain (equation 7).

    Parameters
    ----------
    sums : array of shape (s, q, z)
        Slopes, curvatures and, where z is 3, numbers of records by cell; a column's last cell has its missing values.
    first : array of shape (d + 1,)
        First cell of every column, and the end.
    penalty : Penalty

    Examples
    --------
    >>> sums = np.array([[[-2, 2], [1, 1], [1, 1], [0, 0]]])
    >>> splits = find_splits(sums, np.array([0, 4]), Penalty(0.0, 0.0, 0.0, 0.5, 0, 0.0, 1.0, 1.0))
    >>> splits.column.tolist(), splits.cut.tolist(), splits.gain.tolist(), splits.left.tolist()
    ([0], [0], [4.0], [[-2, 2]])
    """
    missing = sums[:, first[1:] - 1]
    place, column, cut, missing_left = _candidates(tuple(first.tolist()), bool(missing.any()))
    total = sums[:, first[0] : first[1]].sum(axis=1)
    cumulated = np.concatenate([np.zeros_like(sums[:, :1]), np.cumsum(sums, axis=1)], axis=1)
    left = cumulated[:, place] - cumulated[:, first[column]]
    missing = missing[:, column]
    if missing_left.any():
        left += np.where(missing_left[None, :, None], missing, 0)
    right = total[:, None] - left
    gain = (score_nodes(left, penalty) + score_nodes(right, penalty)) - score_nodes(total, penalty)[:, None]
    fewest = np.minimum(left[..., 1], right[..., 1]) * penalty.curvature_unit
    able = (fewest >= np.float32(penalty.min_child_weight)) & (~missing_left | missing.any(axis=2))
    if penalty.least_records:
        able &= np.minimum(left[..., 2], right[..., 2]) >= penalty.least_records
    gain = np.where(able & np.isfinite(gain), gain, np.float32(-np.inf)).astype(np.float32)
    best, rows = gain.argmax(axis=1), np.arange(len(sums))
    sides = left[rows, best], right[rows, best]
    made = (gain[rows, best] > LEAST_GAIN) & (gain[rows, best] >= np.float32(penalty.gamma))
    made &= (sides[0][:, 1] != 0) & (sides[1][:, 1] != 0)
    return Splits(np.where(made, column[best], -1), cut[best], missing_left[best], gain[rows, best], *sides)


@functools.lru_cache(maxsize=8)
def _candidates(first: tuple[int, ...], any_missing: bool) -> tuple[Sums, Sums, Sums, NDArray[np.bool_]]:
    """Return end of the left side, column, cut and side of missing values of all splits, in the order of xgboost."""
    parts = []
    for column, (start, end) in enumerate(itertools.pairwise(first)):
        cut = np.arange(end - start - 1)
        if any_missing:
            cut = np.concatenate([cut, cut[::-1] - 1])
        is_left = np.arange(len(cut)) >= end - start - 1
        parts.append(np.stack([start + cut + 1, np.full(len(cut), column), cut, is_left]))
    place, columns, cuts, is_left = np.concatenate(parts, axis=1)
    return place, columns, cuts, is_left.astype(np.bool_)


def _in_ones(sums: Sums, penalty: Penalty) -> tuple[Floats, Floats]:
    ones = sums[..., :2].astype(np.float64)
    return ones[..., 0] * penalty.slope_unit, ones[..., 1] * penalty.curvature_unit


def _shrunk(slope: Floats, penalty: Penalty) -> Floats:
    if not penalty.reg_alpha:
        return slope
    return np.sign(slope) * np.maximum(np.abs(slope) - np.float32(penalty.reg_alpha), 0.0)
