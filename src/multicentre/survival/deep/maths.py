"""The baseline hazard of a network from sums over sites, and the cells that a site's sums are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


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


def join_bins(bins: Integers, happened: NDArray[np.bool_], n_times: int, least: int) -> Integers:
    """Return later bins of the patients, so that each bin that somebody leaves in holds at least so many events.

    Patients after the last such bin stay at risk to the end where there are `least` of them, else they join it. With
    fewer than `least` events altogether there is no bin to join, and nobody leaves.

    Parameters
    ----------
    bins : array of shape (n,)
        From 0 to `n_times`, which stands for beyond the horizon.
    happened : array of shape (n,)
    n_times : int
    least : int

    Examples
    --------
    >>> happened = np.array([True, True, False, True, True, False])
    >>> join_bins(np.array([0, 1, 1, 2, 4, 4]), happened, 5, 2).tolist()
    [1, 1, 1, 4, 4, 4]
    """
    if least <= 1:
        return bins
    counts = np.bincount(bins[happened], minlength=n_times + 1)[:n_times]
    ends = _ends(counts, least)
    if not len(ends):
        return np.full_like(bins, n_times)
    places = np.searchsorted(ends, bins)
    beyond = places == len(ends)
    stay = bool(happened[beyond].sum() == 0 and beyond.sum() >= least)
    return np.asarray(np.append(ends, n_times if stay else ends[-1])[places], dtype=np.int64)


def _ends(counts: NDArray[np.int64], least: int) -> Integers:
    ends, waiting = [], 0
    for place, number in enumerate(counts.tolist()):
        waiting += number
        if number and waiting >= least:
            ends.append(place)
            waiting = 0
    if ends and waiting:
        ends[-1] = int(np.flatnonzero(counts)[-1])
    return np.array(ends, dtype=np.int64)
