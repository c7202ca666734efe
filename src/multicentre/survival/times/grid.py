"""Times on a shared grid, and counts of events and of patients at risk there.

A grid is an increasing array of times G_0 < ... < G_{K-1}; its last time is the horizon. A time t belongs to the first
bin k with t <= G_k, and to bin K beyond the horizon. An event in bin k < K counts; a patient is at risk in bin k when
the own bin is k or later.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def check_grid(times: Floats) -> None:
    """Raise ConfigurationError unless times are finite, at least one, not negative and increasing."""
    good = times.ndim == 1 and len(times) > 0 and np.isfinite(times).all() and times[0] >= 0
    if not good or (np.diff(times) <= 0).any():
        raise ConfigurationError("the grid's times do not increase", where="times", mend="Sort them; list each once.")


def to_bins(time: Floats, grid: Floats) -> Integers:
    """Return the bin of every time, shape (n,); len(grid) beyond the horizon.

    Examples
    --------
    >>> to_bins(np.array([0.0, 1.0, 1.5, 9.0]), np.array([1.0, 2.0])).tolist()
    [0, 0, 1, 2]
    """
    return np.searchsorted(grid, time, side="left").astype(np.int64)


def count_by_bin(
    bins: Integers, happened: NDArray[np.bool_], n_times: int, weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return weighted numbers of events and of patients at risk, each of shape (K,).

    Parameters
    ----------
    bins : array of shape (n,)
        Bin of every patient's time, from 0 to K.
    happened : array of shape (n,)
        Whether the patient's time is that of an event.
    n_times : int
        K, the length of the grid.
    weights : array of shape (n,), optional
        Weights of the patients, 1 by default.

    Examples
    --------
    >>> events, at_risk = count_by_bin(np.array([0, 1, 2]), np.array([True, False, True]), 2)
    >>> events.tolist(), at_risk.tolist()
    ([1.0, 0.0], [3.0, 2.0])
    """
    mass = np.ones(len(bins)) if weights is None else weights
    leaving = np.bincount(bins, weights=mass, minlength=n_times + 1).astype(np.float64)
    events = np.bincount(bins[happened], weights=mass[happened], minlength=n_times + 1).astype(np.float64)
    return events[:n_times], np.cumsum(leaving[::-1])[::-1][:n_times].copy()


def censored_by_bin(
    bins: Integers, happened: NDArray[np.bool_], n_times: int, weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return numbers of censorings and of patients at risk of one: those at risk less the events of the same bin.

    Events come before censorings of the same time, as in scikit-survival; the curve of these numbers is the reverse
    Kaplan-Meier estimate.

    Examples
    --------
    >>> censored, at_risk = censored_by_bin(np.array([0, 0, 1]), np.array([True, False, False]), 2)
    >>> censored.tolist(), at_risk.tolist()
    ([1.0, 1.0], [2.0, 1.0])
    """
    events, at_risk = count_by_bin(bins, happened, n_times, weights)
    censored, _ = count_by_bin(bins, ~happened, n_times, weights)
    return censored, at_risk - events
