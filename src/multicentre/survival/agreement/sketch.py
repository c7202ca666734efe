"""Public bins, from which the sites' counts give quantiles independent of how patients are split over sites."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.statistics.quantiles import CountingPart
from multicentre.statistics.quantiles.maths import coarsen, move_to_borders

Floats = NDArray[np.float64]
# Bins of times are 0.34 % wide from 0.0001 to 100 million, whatever the unit.
N_TIME_BINS = 8192
EARLIEST, LATEST = 1e-4, 1e8
# Bins of columns reach 100 standard deviations from the mean, and are narrowest near it.
N_COLUMN_BINS = 1024
# Bins are 0.0015 deviations wide at the mean, and 1.5 % of the distance beyond a tenth (1 / STEEPNESS) of one.
STEEPNESS = 10.0
# At most one value in 10,000 lies beyond 100 standard deviations (Chebyshev's inequality: 1 / 100^2).
FARTHEST = 100.0
# A thousandth of a standard deviation: finer than the bins of `column_edges`, coarser than recorded values.
VALUE_BITS = 10
# Digits of a value that a choice of centre, spread or thresholds can disclose: a 4096th of it, as in quantile searches.
COLUMN_DIGITS = CountingPart.finest


def time_edges() -> Floats:
    """Return the upper edges of the bins of times, 0.34 % apart, shape (8192,); later times share a last bin."""
    return np.geomspace(EARLIEST, LATEST, N_TIME_BINS)


def public_times(times: Floats) -> Floats:
    """Round times up to the edges of the public bins; times after the last edge become infinite.

    Unmasked answers are cut at rounded times, so that no choice of a time separates patients within one public bin.

    Examples
    --------
    >>> edges = time_edges()
    >>> bool(public_times(np.array([365.0]))[0] in edges), bool((public_times(edges) == edges).all())
    (True, True)
    """
    return np.append(time_edges(), np.inf)[np.searchsorted(time_edges(), times, side="left")]


def public_values(X: Floats) -> Floats:
    """Round each column to a power of two, about a thousandth of its standard deviation, shape (n, d).

    Splits of a tree that leaves unmasked are searched among rounded values. The step depends on the records only, so no
    choice of thresholds separates patients whose values round to the same number.

    Examples
    --------
    >>> X = np.array([[0.0, 0.12345], [1.0, 1.0], [np.nan, 2.0]])
    >>> public_values(X)[:, 0].tolist(), bool(abs(public_values(X)[0, 1] - 0.12345) < 0.001)
    ([0.0, 1.0, nan], True)
    """
    rounded_values = X.astype(np.float64)
    for column in rounded_values.T:
        present = ~np.isnan(column)
        spread = float(column[present].std()) if present.any() else 0.0
        if spread > 0.0:
            step = 2.0 ** (np.floor(np.log2(spread)) - VALUE_BITS)
            column[present] = np.round(column[present] / step) * step
    return rounded_values


def column_edges(centre: Floats, spread: Floats) -> Floats:
    """Return the upper edges of every column's bins, narrow about its mean, shape (d, 1023).

    They lie on borders of public cells, whose width is about a 4096th of the value, independent of centre and spread.
    Where bins would be narrower than cells, some edges are equal and the bins between them are empty.

    Examples
    --------
    >>> edges = column_edges(np.array([5.0]), np.array([2.0]))
    >>> edges.shape, bool(np.diff(edges).min() > 0)
    ((1, 1023), True)
    """
    limit = np.arcsinh(STEEPNESS * FARTHEST)
    steps = np.sinh(np.linspace(-limit, limit, N_COLUMN_BINS - 1)) / STEEPNESS
    return move_to_borders(centre[:, None] + spread[:, None] * steps, COLUMN_DIGITS)


def to_column_bins(values: Floats, edges: Floats) -> NDArray[np.int64]:
    """Return the bin of every value of one column: the number of edges below the first value of its public cell.

    With edges of :func:`column_edges` this equals the number of edges below the value. Other edges, which could be
    chosen to lie next to one patient's value, do not separate values of the same cell.

    Examples
    --------
    >>> to_column_bins(np.array([-1.0, 60.001, 60.002, 61.0]), np.array([0.0, 60.0015])).tolist()
    [0, 1, 1, 2]
    """
    return np.searchsorted(edges, coarsen(values, COLUMN_DIGITS), side="left").astype(np.int64)


def rounded(values: Floats, unit: Floats) -> Floats:
    """Round values to a hundred-thousandth of a power of ten near `unit`, which removes rounding errors of sums.

    Examples
    --------
    >>> rounded(np.array([1e6 + 0.1 + 0.2, 0.0]), np.array([2.0, 3.0])).tolist()
    [1000000.3, 0.0]
    """
    digits = 5 - np.floor(np.log10(unit))
    return np.asarray(np.round(values * 10.0**digits) / 10.0**digits, dtype=np.float64)


def horizon_of(leaving: Floats, share: float = 0.95) -> float:
    """Return the time by which a share of the follow-ups ended, from counts by bin; the last bin holds all later times.

    Examples
    --------
    >>> counts = np.zeros(N_TIME_BINS + 1)
    >>> counts[[4000, 5000]] = 95.0, 5.0
    >>> bool(horizon_of(counts) == time_edges()[4000])
    True
    """
    reached = np.cumsum(leaving) >= share * leaving.sum() - 1e-6
    return float(time_edges()[min(int(np.argmax(reached)), N_TIME_BINS - 1)])


def event_grid(events: Floats, horizon: float, n_times: int) -> Floats:
    """Return at most `n_times` times with about equal numbers of events between them; the last is the horizon."""
    edges = time_edges()
    inside = edges < horizon
    cumulated = np.cumsum(events[:-1][inside])
    if not len(cumulated) or cumulated[-1] <= 0 or n_times == 1:
        return np.array([horizon])
    targets = np.arange(1, n_times) / n_times * (cumulated[-1] + 1e-9)
    places = np.unique(np.searchsorted(cumulated, targets - 1e-6))
    return np.append(edges[inside][np.minimum(places, len(cumulated) - 1)], horizon)


def move_to(grid: Floats, times: Floats) -> Floats:
    """Move the nearest times of a grid to given ones, so that intervals keep about equal numbers of events.

    The last time, the horizon, stays. Given times after it are left out.

    Examples
    --------
    >>> move_to(np.array([2.0, 5.5, 9.0, 20.0]), np.array([5.0, 10.0, 30.0])).tolist()
    [2.0, 5.0, 10.0, 20.0]
    """
    moved = np.array(grid, dtype=np.float64)
    free = np.ones(len(moved), dtype=np.bool_)
    free[-1] = False
    for time in times[times < grid[-1]].tolist():
        places = np.flatnonzero(free)
        if not len(places):
            moved, free = np.append(moved, time), np.append(free, False)
            continue
        nearest = places[np.abs(moved[places] - time).argmin()]
        moved[nearest], free[nearest] = time, False
    return np.unique(moved)


def bin_edges(counts: Floats, edges: Floats, n_bins: int) -> Floats:
    """Return thresholds that split a column into at most `n_bins` bins with about equal numbers of patients.

    Parameters
    ----------
    counts : array of shape (1024,)
        Patients by bin of :func:`column_edges`.
    edges : array of shape (1023,)
    n_bins : int

    Examples
    --------
    >>> edges = column_edges(np.array([0.5]), np.array([0.5]))[0]
    >>> counts = np.bincount(np.searchsorted(edges, [0.0, 0.0, 1.0]), minlength=N_COLUMN_BINS).astype(float)
    >>> thresholds = bin_edges(counts, edges, 64)
    >>> len(thresholds), bool(0.0 < thresholds[0] < 1.0)
    (1, True)
    """
    occupied = np.flatnonzero(counts)
    if len(occupied) < 2:
        return np.zeros(0)
    if len(occupied) <= n_bins:
        return edges[occupied[:-1]]
    cumulated = np.cumsum(counts)
    targets = np.arange(1, n_bins) / n_bins * cumulated[-1]
    places = np.unique(np.searchsorted(cumulated, targets - 1e-6))
    return np.asarray(edges[places[places < min(occupied[-1], len(edges))]], dtype=np.float64)
