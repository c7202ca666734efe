"""Compiled gradients of the losses, as xgboost takes them in single precision, and the losses themselves.

Gradients become whole numbers, so that their sums do not depend on the order of the records.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit
from numpy.typing import NDArray

LOGISTIC, SOFTPROB, SQUARED, POISSON = range(4)
LARGEST = 2.0**52
MAX_DELTA_STEP = np.float32(0.7)
_TINY = np.float32(1e-16)
_STEEP = np.float32(88.7)
_LOWEST = np.float32(-80.0)
_ONE, _TWO = np.float32(1.0), np.float32(2.0)


@njit(cache=True, nogil=True)
def derive(
    objective: int,
    margins: NDArray[np.float32],
    y: NDArray[np.float32],
    positive: float,
    slope_units: float,
    curvature_units: float,
) -> NDArray[np.int64]:
    """Return slopes and curvatures of the loss in whole units, shape (k, n, 2).

    Parameters
    ----------
    objective : int
        LOGISTIC, SOFTPROB, SQUARED or POISSON.
    margins : array of shape (n, k)
    y : array of shape (n,)
        Outcomes, or places of classes.
    positive : float
        Weight of the records of the second class (LOGISTIC).
    slope_units, curvature_units : float
        Units in one.

    Examples
    --------
    >>> margins, y = np.zeros((2, 1), dtype=np.float32), np.array([0, 1], dtype=np.float32)
    >>> derive(LOGISTIC, margins, y, 1.0, 4.0, 4.0)[0].tolist()
    [[2, 1], [-2, 1]]
    """
    n_records, n_groups = margins.shape
    found = np.empty((n_groups, n_records, 2), dtype=np.int64)
    shares = np.empty(n_groups, dtype=np.float32)
    for record in range(n_records):
        if objective == SOFTPROB:
            _soften(margins[record], shares)
        for group in range(n_groups):
            margin = margins[record, group]
            if objective == LOGISTIC:
                share = _ONE / (np.float32(np.exp(min(-margin, _STEEP))) + _ONE + _TINY)
                weight = np.float32(positive) if y[record] == _ONE else _ONE
                slope, curvature = (share - y[record]) * weight, max(share * (_ONE - share), _TINY) * weight
            elif objective == SOFTPROB:
                share = shares[group]
                curvature = max(_TWO * share * (_ONE - share), _TINY)
                slope = share - _ONE if y[record] == np.float32(group) else share
            elif objective == SQUARED:
                slope, curvature = margin - y[record], _ONE
            else:
                slope = np.float32(np.exp(margin)) - y[record]
                curvature = np.float32(np.exp(margin + MAX_DELTA_STEP))
            found[group, record, 0] = _whole(float(slope) * slope_units)
            found[group, record, 1] = _whole(float(curvature) * curvature_units)
    return found


@njit(cache=True, nogil=True)
def find_losses(
    objective: int, margins: NDArray[np.float32], y: NDArray[np.float32], units: float
) -> NDArray[np.int64]:
    """Return every record's loss in whole units, shape (n,).

    Examples
    --------
    >>> find_losses(SQUARED, np.zeros((2, 1), dtype=np.float32), np.array([1, 3], dtype=np.float32), 1.0).tolist()
    [1, 9]
    """
    found = np.empty(margins.shape[0], dtype=np.int64)
    for record in range(margins.shape[0]):
        place = int(y[record]) if objective == SOFTPROB else 0
        margin, outcome = float(margins[record, place]), float(y[record])
        if objective == LOGISTIC:
            loss = max(margin, 0.0) - margin * outcome + math.log1p(math.exp(-abs(margin)))
        elif objective == SOFTPROB:
            largest = float(margins[record].max())
            total_share = 0.0
            for group in range(margins.shape[1]):
                total_share += math.exp(float(margins[record, group]) - largest)
            loss = largest + math.log(total_share) - margin
        elif objective == SQUARED:
            loss = (margin - outcome) ** 2
        else:
            loss = math.lgamma(outcome + 1.0) + math.exp(margin) - margin * outcome
        found[record] = _whole(loss * units)
    return found


@njit(cache=True, nogil=True)
def _soften(margins: NDArray[np.float32], shares: NDArray[np.float32]) -> None:
    """Set the shares of the classes; as in xgboost the largest margin counts as above 0, where shares do not vanish."""
    highest = margins.max()
    largest = max(np.float32(1.1754944e-38), highest) if highest > _LOWEST else highest
    total = 0.0
    for group in range(margins.shape[0]):
        shares[group] = np.float32(np.exp(margins[group] - largest))
        total += float(shares[group])
    for group in range(margins.shape[0]):
        shares[group] = shares[group] / np.float32(total)


@njit(cache=True, nogil=True)
def _whole(value: float) -> int:
    if not math.isfinite(value):
        return int(LARGEST) if value > 0 else -int(LARGEST)
    return int(np.rint(min(max(value, -LARGEST), LARGEST)))
