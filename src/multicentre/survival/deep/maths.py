"""The baseline hazard of a network from sums over sites, and the cells that a site's sums are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
ROUNDING = 1e-9


def baseline_hazard(events: Floats, at_risk: Floats) -> Floats:
    """Return Breslow's cumulative baseline hazard on the grid, shape (K,): the running sum of D_k / R_k.

    Parameters
    ----------
    events : array of shape (K,)
        Events by bin, D_k.
    at_risk : array of shape (K,)
        Sum of hazard ratios over patients of this bin or a later one, R_k.

    Examples
    --------
    >>> baseline_hazard(np.array([1.0, 1.0, 0.0]), np.array([4.0, 2.0, 0.0])).tolist()
    [0.25, 0.75, 0.75]
    """
    return np.cumsum(np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 0))


def sum_at_risk(bins: Integers, ratios: Floats, n_times: int) -> Floats:
    """Return R_k, the sum of hazard ratios over patients whose bin is k or later, shape (K,).

    Examples
    --------
    >>> sum_at_risk(np.array([0, 1, 2]), np.array([1.0, 2.0, 4.0]), 2).tolist()
    [7.0, 6.0]
    """
    leaving = np.bincount(bins, weights=ratios, minlength=n_times + 1)
    return np.asarray(np.cumsum(leaving[::-1])[::-1][:n_times], dtype=np.float64)


def join_by_risk(bins: Integers, ratios: Floats, n_times: int, least: int) -> Integers:
    """Return later bins of the patients, so that those who leave in each are in effect so many.

    They are (sum r)^2 / sum r^2 in effect (Kish, 1965): as many as there are where hazard ratios are equal, 1 where one
    outweighs all. Those beyond the horizon, if too few, leave in the last bin; where all are too few nobody leaves.

    Parameters
    ----------
    bins : array of shape (n,)
        From 0 to `n_times`, which stands for beyond the horizon.
    ratios : array of shape (n,)
        Hazard ratios.
    n_times : int
    least : int

    Examples
    --------
    >>> join_by_risk(np.array([0, 0, 1, 1, 3, 3]), np.array([1.0, 1.0, 9.0, 1.0, 5.0, 5.0]), 4, 2).tolist()
    [0, 0, 3, 3, 3, 3]
    """
    if least <= 1:
        return bins
    runs: list[tuple[int, float, float]] = []
    for place in np.unique(bins).tolist():
        own = ratios[bins == place]
        run = (place, float(own.sum()), float(own @ own))
        while runs and not _is_enough(runs[-1], least):
            run = _merged(runs.pop(), run, n_times)
        runs.append(run)
    while len(runs) > 1 and not _is_enough(runs[-1], least):
        last = runs.pop()
        runs.append(_merged(runs.pop(), last, n_times))
    if not _is_enough(runs[-1], least):
        return np.full_like(bins, n_times)
    ends = np.array([place for place, *_ in runs], dtype=np.int64)
    return np.asarray(ends[np.minimum(np.searchsorted(ends, bins), len(ends) - 1)], dtype=np.int64)


def cut_risks(log_risk: Floats, least: int) -> Floats:
    """Return log hazard ratios cut from above and from below, so that nobody's outweighs all others', shape (n,).

    Each cut is the least with which the patients are so many in effect, by hazard ratios and by their inverses; where
    they are fewer than `least` all become equal.

    Parameters
    ----------
    log_risk : array of shape (n,)
    least : int

    Examples
    --------
    >>> cut_risks(np.array([0.0, 0.1, 0.2, 50.0]), 2).round(6).tolist()
    [0.0, 0.1, 0.2, 0.2]
    """
    if least <= 1 or not len(log_risk):
        return log_risk
    low, high = -_highest(-log_risk, least), _highest(log_risk, least)
    return np.clip(log_risk, min(low, high), high)


def _highest(log_risk: Floats, least: int) -> float:
    ordered = np.sort(log_risk)
    cut = np.arange(len(ordered))[::-1]
    sums = cut + np.exp(np.logaddexp.accumulate(ordered) - ordered)
    squares = cut + np.exp(np.logaddexp.accumulate(2.0 * ordered) - 2.0 * ordered)
    enough = np.flatnonzero(sums**2 >= least * squares * (1.0 - ROUNDING))
    return float(ordered[enough[-1]] if len(enough) else ordered[0])


def _is_enough(run: tuple[int, float, float], least: int) -> bool:
    _, total, squares = run
    return total**2 >= least * squares * (1.0 - ROUNDING)


def _merged(
    earlier: tuple[int, float, float], later: tuple[int, float, float], n_times: int
) -> tuple[int, float, float]:
    place = later[0] if later[0] < n_times else earlier[0]
    return place, earlier[1] + later[1], earlier[2] + later[2]
