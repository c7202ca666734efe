"""Compiled search for splits, in the arithmetic and the order of xgboost."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.compilation import njit

Sums = NDArray[np.int64]
Singles = NDArray[np.float32]

# Parameters as tuples stay in registers; elements of arrays are read again after every write to an array.
Shape = tuple[np.float32, np.float32, np.float32, np.float32]
Units = tuple[float, float]
Cell = tuple[int, int, int]

_ZERO, _TWO = np.float32(0.0), np.float32(2.0)
_NONE = np.float32(-np.inf)


@njit(cache=True, nogil=True, error_model="numpy")
def take_steps(sums: Sums, bounds: Singles, shape: Shape, units: Units) -> Singles:
    """Return the Newton step of each node, shape (s,).

    Parameters
    ----------
    sums : array of shape (s, z)
        Slopes and curvatures in units.
    bounds : array of shape (s or 1, 2)
        Lowest and highest step of each node, or of all.
    shape : tuple of four single numbers
        `reg_lambda`, `reg_alpha`, `min_child_weight` and `largest_step` of the penalty.
    units : tuple of two float
        Units of slopes and curvatures.

    Examples
    --------
    >>> sums, bounds = np.array([[-6, 2]]), np.array([[-9, 9]], dtype=np.float32)
    >>> take_steps(sums, bounds, tuple(np.float32([1, 0, 1, 0])), (0.5, 1.0)).tolist()
    [1.0]
    """
    steps = np.empty(sums.shape[0], dtype=np.float32)
    for node in range(sums.shape[0]):
        limits = bounds[node if bounds.shape[0] > 1 else 0]
        steps[node] = _step(sums[node, 0] * units[0], sums[node, 1] * units[1], limits, shape)
    return steps


@njit(cache=True, nogil=True, error_model="numpy")
def scan_splits(
    sums: Sums,
    first: Sums,
    permitted: NDArray[np.bool_],
    bounds: Singles,
    direction: Sums,
    shape: Shape,
    units: Units,
    least_records: int,
) -> tuple[Sums, Singles, Sums]:
    """Return column, cut and side of missing values, gain, and sums of the left side of the best split of each node.

    Parameters
    ----------
    sums : array of shape (s, q, z)
    first : array of shape (d + 1,)
        First cell of every column, and the end.
    permitted : array of shape (s or 0, d)
        Columns on which a node may be split; empty for all.
    bounds : array of shape (s or 1, 2)
    direction : array of shape (d or 0,)
        Per column 1 if predictions must not fall with it, -1 if they must not rise, else 0; empty for no constraint.
    shape, units : tuples
        As in :func:`take_steps`.
    least_records : int
        Minimum number of records on either side.

    Returns
    -------
    splits : array of shape (s, 3)
        Column, -1 for none; last bin of the left side; 1 if missing values go left.
    gain : array of shape (s,)
    left : array of shape (s, z)

    Examples
    --------
    >>> sums, first = np.array([[[-2, 2], [1, 1], [1, 1], [0, 0]]]), np.array([0, 4])
    >>> bounds, shape = np.array([[-9, 9]], dtype=np.float32), tuple(np.float32([0, 0, 0.5, 0]))
    >>> rules = np.zeros((0, 1), dtype=np.bool_), bounds, np.zeros(0, dtype=np.int64), shape, (1.0, 1.0), 0
    >>> [each.tolist() for each in scan_splits(sums, first, *rules)]
    [[[0, 0, 0]], [4.0], [[-2, 2]]]
    """
    n_nodes, is_bound, has_rules = sums.shape[0], direction.shape[0] > 0, permitted.shape[0] > 0
    splits, gains = np.full((n_nodes, 3), -1, dtype=np.int64), np.full(n_nodes, _NONE)
    lefts = np.zeros((n_nodes, sums.shape[2]), dtype=np.int64)
    for node in range(n_nodes):
        limits, total = bounds[node if bounds.shape[0] > 1 else 0], _total(sums[node, first[0] : first[1]])
        whole = _score(total[0], total[1], limits, is_bound, shape, units)
        for column in range(first.shape[0] - 1):
            if has_rules and not permitted[node, column]:
                continue
            cells = sums[node, first[column] : first[column + 1]]
            order = direction[column] if is_bound else 0
            penalty = (is_bound, order, shape, units, least_records)
            gain, cut, side, left = _scan_column(cells, total, whole, limits, penalty)
            if gain > gains[node]:
                gains[node] = gain
                splits[node, 0], splits[node, 1], splits[node, 2] = column, cut, side
                for place in range(sums.shape[2]):
                    lefts[node, place] = left[place]
    return splits, gains, lefts


@njit(cache=True, nogil=True, error_model="numpy")
def _scan_column(
    cells: Sums, total: Cell, whole: np.float32, limits: Singles, penalty: tuple[bool, int, Shape, Units, int]
) -> tuple[np.float32, int, int, Cell]:
    """Return gain, last bin of the left side, side of missing values, and left sums of the best split on a column."""
    is_bound, order, shape, units, least_records = penalty
    n_bins = cells.shape[0] - 1
    best, best_cut, best_side, best_left = _NONE, 0, 0, (0, 0, 0)
    # First with missing values on the right and increasing cuts, then on the left and decreasing cuts.
    for side in range(2 if cells[n_bins].any() else 1):
        left = (0, 0, 0) if side == 0 else _less(total, _cell(cells, n_bins - 1))
        for number in range(n_bins):
            cut = number if side == 0 else n_bins - 2 - number
            if side == 0:
                left = _more(left, _cell(cells, cut))
            elif number > 0:
                left = _less(left, _cell(cells, cut + 1))
            right = _less(total, left)
            if min(left[1], right[1]) * units[1] < shape[2] or min(left[2], right[2]) < least_records:
                continue
            if is_bound and not _follows(left, right, limits, order, shape, units):
                continue
            gain = _score(left[0], left[1], limits, is_bound, shape, units)
            gain = gain + _score(right[0], right[1], limits, is_bound, shape, units) - whole
            if gain > best and np.isfinite(gain):
                best, best_cut, best_side, best_left = gain, cut, side, left
    return best, best_cut, best_side, best_left


@njit(cache=True, nogil=True, error_model="numpy")
def _cell(cells: Sums, place: int) -> Cell:
    """Return slopes, curvatures and number of records of a cell; no number if it was not requested."""
    return cells[place, 0], cells[place, 1], cells[place, 2] if cells.shape[1] > 2 else 0


@njit(cache=True, nogil=True, error_model="numpy")
def _total(cells: Sums) -> Cell:
    total = (0, 0, 0)
    for place in range(cells.shape[0]):
        total = _more(total, _cell(cells, place))
    return total


@njit(cache=True, nogil=True, error_model="numpy")
def _more(one: Cell, other: Cell) -> Cell:
    return one[0] + other[0], one[1] + other[1], one[2] + other[2]


@njit(cache=True, nogil=True, error_model="numpy")
def _less(one: Cell, other: Cell) -> Cell:
    return one[0] - other[0], one[1] - other[1], one[2] - other[2]


@njit(cache=True, nogil=True, error_model="numpy")
def _shrink(slope: float, alpha: np.float32) -> float:
    if alpha == _ZERO:
        return slope
    return float(np.sign(slope) * max(abs(slope) - alpha, 0.0))


@njit(cache=True, nogil=True, error_model="numpy")
def _step(slope: float, curvature: float, limits: Singles, shape: Shape) -> np.float32:
    """Return the Newton step: computed in double precision, rounded, and then bounded."""
    step, below = 0.0, float(curvature + shape[0])
    if curvature > 0 and curvature >= shape[2] and below > 0:
        step = -_shrink(slope, shape[1]) / below
    if shape[3] > _ZERO:
        step = min(max(step, -float(shape[3])), float(shape[3]))
    return min(max(np.float32(step), limits[0]), limits[1])


@njit(cache=True, nogil=True, error_model="numpy")
def _score(slopes: int, curvatures: int, limits: Singles, is_bound: bool, shape: Shape, units: Units) -> np.float32:
    """Return twice the reduction of the objective by the step of a node, in single precision."""
    slope, curvature = slopes * units[0], curvatures * units[1]
    below = np.float32(curvature + shape[0])
    if not (curvature > 0 and below > _ZERO):
        return _ZERO
    if shape[3] == _ZERO and not is_bound:
        shrunk = _shrink(slope, shape[1])
        return np.float32(shrunk * shrunk) / below
    step = _step(slope, curvature, limits, shape)
    curve = np.float32(curvature) + shape[0]
    return -(_TWO * np.float32(slope) * step + curve * (step * step))


@njit(cache=True, nogil=True, error_model="numpy")
def _follows(left: Cell, right: Cell, limits: Singles, direction: int, shape: Shape, units: Units) -> bool:
    """Return whether the steps of both sides are in the order that a monotone constraint requires."""
    rise = _step(right[0] * units[0], right[1] * units[1], limits, shape)
    rise -= _step(left[0] * units[0], left[1] * units[1], limits, shape)
    return bool(rise * direction >= 0)
