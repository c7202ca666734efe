"""Compiled gradients, curvatures and losses of records, in single precision as in xgboost."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from multicentre.compilation import njit

LOGISTIC, SOFTPROB, SQUARED, POISSON, GAMMA, TWEEDIE, NORMAL_TIME, LOGISTIC_TIME, EXTREME_TIME = range(9)

# Largest term of a sum in units: integers up to 2**53 are exact in double precision.
LARGEST = 2.0**52
# Largest step of a leaf's log mean: xgboost's default for Poisson regression.
MAX_DELTA_STEP = np.float32(0.7)
# Smallest curvature and offset of the logistic function, as in xgboost.
_TINY = np.float32(1e-16)
# Largest exponent of the logistic function, as in xgboost: its exponential is finite in single precision.
_STEEP = np.float32(88.7)
# Lowest largest margin with an offset of 0 in the softmax; exponentials of lower margins would vanish.
_LOWEST = np.float32(-80.0)

_ONE, _TWO = np.float32(1.0), np.float32(2.0)
# Smallest mean that divides an outcome: the smallest normal number in single precision.
_MIN_MEAN = np.float32(1.1754944e-38)
# Smallest mean in the loss of TWEEDIE, and term added to means and outcomes in that of GAMMA, as in xgboost.
_MIN_IN_LOSS = 1e-6
# Bounds of densities, gradients and curvatures of times to an event, as in xgboost.
_MIN_DENSITY, _MAX_SLOPE, _MIN_CURVATURE = 1e-12, 15.0, 1e-16


@njit(cache=True, nogil=True)
def derive(
    objective: int,
    margins: NDArray[np.float32],
    y: NDArray[np.float32],
    weights: NDArray[np.float32],
    shape: float,
    slope_units: float,
    curvature_units: float,
) -> NDArray[np.int64]:
    """Return slopes and curvatures of the loss in whole units, shape (k, n, 2).

    Parameters
    ----------
    objective : int
        LOGISTIC, SOFTPROB, SQUARED, POISSON, GAMMA, TWEEDIE, or a distribution of log times.
    margins : array of shape (n, k)
    y : array of shape (n,)
        Outcomes, or places of classes. Times without an event are negative.
    weights : array of shape (n,)
    shape : float
        Power of the mean in the variance (TWEEDIE), or scale of log times.
    slope_units, curvature_units : float
        Units in one.

    Examples
    --------
    >>> margins, y = np.zeros((2, 1), dtype=np.float32), np.array([0, 1], dtype=np.float32)
    >>> derive(LOGISTIC, margins, y, np.ones(2, dtype=np.float32), 0.0, 4.0, 4.0)[0].tolist()
    [[2, 1], [-2, 1]]
    """
    n_records, n_groups = margins.shape
    derivatives = np.empty((n_groups, n_records, 2), dtype=np.int64)
    shares = np.empty(n_groups, dtype=np.float32)
    for record in range(n_records):
        if objective == SOFTPROB:
            _soften(margins[record], shares)
        weight = weights[record]
        for group in range(n_groups):
            if objective == SOFTPROB:
                share = shares[group]
                curvature = max(_TWO * share * (_ONE - share) * weight, _TINY)
                slope = (share - _ONE if y[record] == np.float32(group) else share) * weight
            else:
                slope, curvature = _derive_one(objective, margins[record, group], y[record], shape)
                slope, curvature = slope * weight, curvature * weight
            derivatives[group, record, 0] = _whole(float(slope) * slope_units)
            derivatives[group, record, 1] = _whole(float(curvature) * curvature_units)
    return derivatives


@njit(cache=True, nogil=True)
def _derive_one(objective: int, margin: np.float32, outcome: np.float32, shape: float) -> tuple[np.float32, np.float32]:
    """Return slope and curvature of the loss of one record with one margin, in single precision as in xgboost."""
    if objective == LOGISTIC:
        share = _ONE / (np.float32(np.exp(min(-margin, _STEEP))) + _ONE + _TINY)
        return share - outcome, max(share * (_ONE - share), _TINY)
    if objective == SQUARED:
        return margin - outcome, _ONE
    if objective == POISSON:
        return np.float32(np.exp(margin)) - outcome, np.float32(np.exp(margin + MAX_DELTA_STEP))
    if objective == GAMMA:
        ratio = outcome / max(np.float32(np.exp(margin)), _MIN_MEAN)
        return _ONE - ratio, ratio
    if objective != TWEEDIE:
        slope, curvature = _derive_time(objective, float(margin), float(outcome), shape)
        return np.float32(slope), np.float32(curvature)
    power = np.float32(shape)
    below, above = np.float32(np.exp((_ONE - power) * margin)), np.float32(np.exp((_TWO - power) * margin))
    return above - outcome * below, (_TWO - power) * above - outcome * (_ONE - power) * below


@njit(cache=True, nogil=True)
def _describe_time(objective: int, z: float) -> tuple[float, float, float, float]:
    """Return distribution function, density and its first two derivatives of a standardised log time."""
    if objective == NORMAL_TIME:
        density = math.exp(-z * z / 2.0) / math.sqrt(2.0 * math.pi)
        return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0))), density, -z * density, (z * z - 1.0) * density
    w = math.exp(min(z, 350.0))  # its square is finite
    if objective == LOGISTIC_TIME:
        density = w / ((1.0 + w) * (1.0 + w))
        first, second = density * (1.0 - w) / (1.0 + w), density * (w * w - 4.0 * w + 1.0) / ((1.0 + w) * (1.0 + w))
        return w / (1.0 + w), density, first, second
    density = w * math.exp(-w)
    return 1.0 - math.exp(-w), density, (1.0 - w) * density, (w * w - 3.0 * w + 1.0) * density


@njit(cache=True, nogil=True)
def _derive_time(objective: int, margin: float, outcome: float, scale: float) -> tuple[float, float]:
    """Return slope and curvature of an accelerated failure time; an outcome below 0 is a time without an event."""
    z = (math.log(abs(outcome)) - margin) / scale
    below, density, first, second = _describe_time(objective, z)
    if outcome > 0.0:
        denominator, slope, curvature = scale * density, first, first * first - density * second
    else:
        denominator, slope, curvature = scale * (1.0 - below), -density, (1.0 - below) * first + density * density
    least = denominator * denominator
    if denominator > 0.0 and least > 0.0:
        slope, curvature = slope / denominator, curvature / least
    else:
        slope, curvature = _limit_of_time(objective, z > 0.0, outcome > 0.0, scale)
    slope = min(max(slope, -_MAX_SLOPE), _MAX_SLOPE)
    return slope, min(max(curvature, _MIN_CURVATURE), _MAX_SLOPE)


@njit(cache=True, nogil=True)
def _limit_of_time(objective: int, is_late: bool, is_event: bool, scale: float) -> tuple[float, float]:
    """Return slope and curvature where the density vanishes: far after the predicted time, or far before it."""
    if objective == LOGISTIC_TIME:
        slope = -1.0 / scale if is_late else (1.0 / scale if is_event else 0.0)
        return slope, _MIN_CURVATURE
    before = 1.0 / scale if objective == EXTREME_TIME else _MAX_SLOPE
    slope = -_MAX_SLOPE if is_late else (before if is_event else 0.0)
    if objective == EXTREME_TIME:
        return slope, _MAX_SLOPE if is_late else _MIN_CURVATURE
    return slope, 1.0 / (scale * scale) if is_late or is_event else _MIN_CURVATURE


@njit(cache=True, nogil=True)
def find_losses(
    objective: int,
    margins: NDArray[np.float32],
    y: NDArray[np.float32],
    weights: NDArray[np.float32],
    shape: float,
    units: float,
) -> NDArray[np.int64]:
    """Return the weighted loss of each record in whole units, shape (n,).

    Examples
    --------
    >>> margins, weights = np.zeros((2, 1), dtype=np.float32), np.array([1, 2], dtype=np.float32)
    >>> find_losses(SQUARED, margins, np.array([1, 3], dtype=np.float32), weights, 0.0, 1.0).tolist()
    [1, 18]
    """
    losses = np.empty(margins.shape[0], dtype=np.int64)
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
        elif objective == POISSON:
            loss = math.lgamma(outcome + 1.0) + math.exp(margin) - margin * outcome
        elif objective == GAMMA:
            mean, outcome = math.exp(margin) + _MIN_IN_LOSS, outcome + _MIN_IN_LOSS
            loss = 2.0 * (math.log(mean / outcome) + outcome / mean - 1.0)
        elif objective != TWEEDIE:
            below, density, _, _ = _describe_time(objective, (math.log(abs(outcome)) - margin) / shape)
            share = density / (shape * outcome) if outcome > 0.0 else 1.0 - below
            loss = -math.log(max(share, _MIN_DENSITY))
        else:
            mean, power = max(math.exp(margin), _MIN_IN_LOSS), shape
            loss = mean ** (2.0 - power) / (2.0 - power) - outcome * mean ** (1.0 - power) / (1.0 - power)
        losses[record] = _whole(loss * float(weights[record]) * units)
    return losses


@njit(cache=True, nogil=True)
def _soften(margins: NDArray[np.float32], shares: NDArray[np.float32]) -> None:
    """Set the shares of the classes by a softmax; as in xgboost the offset is positive unless shares vanish."""
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
