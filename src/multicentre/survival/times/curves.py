"""Curves from counts, and numbers from curves. Curves are right-continuous steps on a grid, 1 before its first time."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
SMALLEST = 1e-12


def kaplan_meier(events: Floats, at_risk: Floats) -> Floats:
    """Return the product-limit estimate, shape (K,); flat where nobody is at risk.

    Examples
    --------
    >>> kaplan_meier(np.array([1.0, 1.0, 0.0]), np.array([4.0, 2.0, 0.0])).tolist()
    [0.75, 0.375, 0.375]
    """
    return np.asarray(np.cumprod(1.0 - hazard(events, at_risk)), dtype=np.float64)


def nelson_aalen(events: Floats, at_risk: Floats) -> Floats:
    """Return the cumulative hazard, shape (K,).

    Examples
    --------
    >>> nelson_aalen(np.array([1.0, 1.0]), np.array([4.0, 2.0])).tolist()
    [0.25, 0.75]
    """
    return np.cumsum(hazard(events, at_risk))


def hazard(events: Floats, at_risk: Floats) -> Floats:
    """Return events over patients at risk, 0 where nobody is; shape as given."""
    return np.divide(events, at_risk, out=np.zeros_like(events, dtype=np.float64), where=at_risk > 0)


def restricted_mean(survival: Floats, grid: Floats) -> Floats:
    """Return the mean time survived up to the horizon: the area under each curve, shape (...,).

    Parameters
    ----------
    survival : array of shape (..., K)
    grid : array of shape (K,)

    Examples
    --------
    >>> float(restricted_mean(np.array([0.5, 0.0]), np.array([1.0, 3.0])))
    2.0
    """
    widths = np.diff(grid, prepend=0.0)
    return np.asarray(widths[0] + survival[..., :-1] @ widths[1:], dtype=np.float64)


def time_to_share(survival: Floats, grid: Floats, share: float = 0.5) -> Floats:
    """Return the first time at which each curve is at or below `share`, the horizon where none is; shape (...,).

    Examples
    --------
    >>> time_to_share(np.array([[0.6, 0.4], [0.9, 0.8]]), np.array([1.0, 3.0])).tolist()
    [3.0, 3.0]
    """
    below = survival <= share
    return np.asarray(np.where(below.any(axis=-1), grid[np.argmax(below, axis=-1)], grid[-1]), dtype=np.float64)


def at_times(survival: Floats, grid: Floats, times: Floats) -> Floats:
    """Return the curves' values at given times, shape (..., len(times)); flat beyond the horizon.

    Examples
    --------
    >>> at_times(np.array([0.5, 0.2]), np.array([1.0, 3.0]), np.array([0.5, 1.0, 2.9, 7.0])).tolist()
    [1.0, 0.5, 0.5, 0.2]
    """
    places = np.searchsorted(grid, times, side="right")
    padded = np.concatenate([np.ones((*survival.shape[:-1], 1)), survival], axis=-1)
    return np.asarray(padded[..., places], dtype=np.float64)


def cumulative_hazard(survival: Floats) -> Floats:
    """Return minus the logarithm of curves, those below 1e-12 taken for 1e-12.

    Examples
    --------
    >>> float(cumulative_hazard(np.array(0.0)).round(2))
    27.63
    """
    return -np.log(np.maximum(survival, SMALLEST))
