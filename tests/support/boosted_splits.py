"""Search for the splits of boosted trees with plain numpy: the reference of the compiled search."""

from __future__ import annotations

import functools
import itertools

import numpy as np
from numpy.typing import NDArray

from multicentre.boosting.maths import MIN_GAIN, Penalty, Singles, Splits, Sums

Floats = NDArray[np.float64]


def newton_steps(sums: Sums, penalty: Penalty, bounds: Singles | None = None) -> Singles:
    """Return the Newton step of each node (equation 5), shape (...,)."""
    slope, curvature = _in_ones(sums, penalty)
    able = (curvature > 0) & (curvature >= np.float32(penalty.min_child_weight))
    below = curvature + np.float32(penalty.reg_lambda)
    step = np.divide(-_shrunk(slope, penalty), below, out=np.zeros_like(slope), where=able & (below > 0))
    if penalty.largest_step:
        step = np.clip(step, -np.float32(penalty.largest_step), np.float32(penalty.largest_step))
    single = step.astype(np.float32)
    return single if bounds is None else np.clip(single, bounds[..., 0], bounds[..., 1])


def score_nodes(sums: Sums, penalty: Penalty, bounds: Singles | None = None) -> Singles:
    """Return twice the reduction of the objective by the step of each node (equation 6), shape (...,)."""
    slope, curvature = _in_ones(sums, penalty)
    below = (curvature + np.float32(penalty.reg_lambda)).astype(np.float32)
    able = (curvature > 0) & (below > 0)
    if not penalty.largest_step and not penalty.monotone:
        above = np.square(_shrunk(slope, penalty)).astype(np.float32)
        return np.divide(above, below, out=np.zeros_like(below), where=able)
    step, two = newton_steps(sums, penalty, bounds), np.float32(2.0)
    single = slope.astype(np.float32)
    curve = curvature.astype(np.float32) + np.float32(penalty.reg_lambda)
    fall = -(two * single * step + curve * (step * step))
    return np.where(able, fall, np.float32(0.0)).astype(np.float32)


def find_splits(
    sums: Sums,
    first: Sums,
    penalty: Penalty,
    *,
    permitted: NDArray[np.bool_] | None = None,
    bounds: Singles | None = None,
) -> Splits:
    """Return the split of each node with the largest gain (equation 7)."""
    missing = sums[:, first[1:] - 1]
    place, column, cut, missing_left = _candidates(tuple(first.tolist()), bool(missing.any()))
    total = sums[:, first[0] : first[1]].sum(axis=1)
    cumulated = np.concatenate([np.zeros_like(sums[:, :1]), np.cumsum(sums, axis=1)], axis=1)
    left = cumulated[:, place] - cumulated[:, first[column]]
    missing = missing[:, column]
    if missing_left.any():
        left += np.where(missing_left[None, :, None], missing, 0)
    right = total[:, None] - left
    of_sides = None if bounds is None else bounds[:, None]
    gain = score_nodes(left, penalty, of_sides) + score_nodes(right, penalty, of_sides)
    gain = gain - score_nodes(total, penalty, bounds)[:, None]
    fewest = np.minimum(left[..., 1], right[..., 1]) * penalty.curvature_unit
    able = (fewest >= np.float32(penalty.min_child_weight)) & (~missing_left | missing.any(axis=2))
    if penalty.least_records:
        able &= np.minimum(left[..., 2], right[..., 2]) >= penalty.least_records
    if permitted is not None:
        able &= permitted[:, column]
    if penalty.monotone:
        direction = np.array(penalty.monotone)[column]
        rise = newton_steps(right, penalty, of_sides) - newton_steps(left, penalty, of_sides)
        able &= rise * direction >= 0
    gain = np.where(able & np.isfinite(gain), gain, np.float32(-np.inf)).astype(np.float32)
    best, rows = gain.argmax(axis=1), np.arange(len(sums))
    sides = left[rows, best], right[rows, best]
    made = (gain[rows, best] > MIN_GAIN) & (gain[rows, best] >= np.float32(penalty.gamma))
    made &= (sides[0][:, 1] != 0) & (sides[1][:, 1] != 0)
    return Splits(np.where(made, column[best], -1), cut[best], gain[rows, best], *sides, missing_left[best])


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
