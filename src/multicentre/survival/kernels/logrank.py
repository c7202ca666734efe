"""The log-rank statistic of every way to split a node's patients, from counts by bin of a column and of the time.

With d events among Y patients at risk at each event time of the node, and Y1 of them on the left, the statistic is

    (sum over times of d1 - Y1 d / Y)^2  /  sum over times of Y1 (Y - Y1) d (Y - d) / (Y^2 (Y - 1)).

Its numerator is a sum over the patients on the left of their log-rank scores (1 for an event, less the cumulative
hazard of the node up to the patient's time), so that one pass over the patients fills all bins of a column.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bins = NDArray[np.uint8]
Flags = NDArray[np.bool_]
TIES = 1e-9
SMALLEST = 1e-9


@njit(cache=True, nogil=True)
def score_patients(
    rows: Integers, bins: Integers, happened: Flags, weights: Floats, n_times: int
) -> tuple[Integers, Floats, Floats, Floats]:
    """Return what the statistics of a node need, for its patients and for its m times of events.

    Parameters
    ----------
    rows : array of shape (r,)
        The node's patients.
    bins, happened, weights : array of shape (n,)
        Bin of the time (K beyond the horizon), whether the event happened in it, and weight, of all patients.
    n_times : int
        K, the length of the grid.

    Returns
    -------
    places : array of shape (r,)
        At how many of the node's times of events each patient is at risk, from 0 to m.
    scores : array of shape (r,)
        Log-rank score times weight.
    at_risk, spread : array of shape (m,)
        Y, and d (Y - d) / (Y^2 (Y - 1)), at every time of events.

    Examples
    --------
    >>> bins, happened = np.array([0, 1, 2]), np.array([True, False, True])
    >>> places, scores, at_risk, spread = score_patients(np.arange(3), bins, happened, np.ones(3), 3)
    >>> places.tolist(), at_risk.tolist(), scores.round(2).tolist(), spread.round(2).tolist()
    ([1, 1, 2], [3.0, 1.0], [0.67, -0.33, -0.33], [0.11, 0.0])
    """
    events, leaving = np.zeros(n_times + 1), np.zeros(n_times + 1)
    for row in rows:
        leaving[bins[row]] += weights[row]
        if happened[row]:
            events[bins[row]] += weights[row]
    place_of = np.zeros(n_times + 1, dtype=np.int64)
    n_places = 0
    for time in range(n_times):
        n_places += events[time] > 0
        place_of[time] = n_places
    place_of[n_times] = n_places
    at_risk, spread, hazard = np.zeros(n_places), np.zeros(n_places), np.zeros(n_places + 1)
    staying = leaving[n_times]
    for time in range(n_times - 1, -1, -1):
        staying += leaving[time]
        if events[time] > 0:
            place, died = place_of[time] - 1, events[time]
            at_risk[place] = staying
            hazard[place + 1] = died / staying
            if staying > 1:
                spread[place] = died * max(staying - died, 0.0) / (staying * staying * (staying - 1))
    for place in range(n_places):
        hazard[place + 1] += hazard[place]
    places, scores = np.empty(len(rows), dtype=np.int64), np.empty(len(rows))
    for at, row in enumerate(rows):
        places[at] = place_of[bins[row]]
        scores[at] = weights[row] * (happened[row] - hazard[places[at]])
    return places, scores, at_risk, spread


@njit(cache=True, nogil=True)
def best_cut(
    of_column: Bins,
    n_bins: int,
    rows: Integers,
    happened: Flags,
    weights: Floats,
    places: Integers,
    scores: Floats,
    at_risk: Floats,
    spread: Floats,
    min_leaf: int,
    min_events: int,
) -> tuple[int, int, float]:
    """Return the number of bins in use, the best cut (-1 for none) and its log-rank statistic, of one column.

    Patients in bins up to the cut go left. Both sides keep at least `min_leaf` patients and `min_events` events, each
    patient counted once whatever the weight. Of cuts through empty bins the middle one is taken, of equal statistics
    the first.

    Examples
    --------
    >>> bins, happened, ones = np.array([0, 1, 2, 3]), np.ones(4, dtype=np.bool_), np.ones(4)
    >>> node = score_patients(np.arange(4), bins, happened, ones, 4)
    >>> column = np.array([0, 0, 1, 1], dtype=np.uint8)
    >>> used, cut, statistic = best_cut(column, 2, np.arange(4), happened, ones, *node, 1, 1)
    >>> used, cut, round(statistic, 3)
    (2, 0, 2.882)
    """
    n_places = len(at_risk)
    number, n_events, score = np.zeros(n_bins, dtype=np.int64), np.zeros(n_bins, dtype=np.int64), np.zeros(n_bins)
    leaving = np.zeros((n_bins, n_places + 1))
    for at in range(len(rows)):
        row = rows[at]
        own = of_column[row]
        number[own] += 1
        n_events[own] += happened[row]
        score[own] += scores[at]
        leaving[own, places[at]] += weights[row]
    used, cut, best = 0, -1, SMALLEST
    left, left_events, left_score, waiting = 0, 0, 0.0, -1
    all_events = 0
    for own in range(n_bins):
        all_events += n_events[own]
    gone = np.zeros(n_places + 1)
    for own in range(n_bins):
        if number[own] == 0:
            continue
        used += 1
        if waiting >= 0:
            cut, waiting = (waiting + own - 1) // 2, -1
        left += number[own]
        left_events += n_events[own]
        left_score += score[own]
        if len(rows) - left < min_leaf or all_events - left_events < min_events:
            continue
        for place in range(1, n_places + 1):
            gone[place] += leaving[own, place]
        if left < min_leaf or left_events < min_events:
            continue
        found = _statistic(left_score, gone, at_risk, spread)
        if found > best * (1.0 + TIES):
            best, waiting = found, own
    return used, cut, best


@njit(cache=True, nogil=True)
def _statistic(score: float, gone: Floats, at_risk: Floats, spread: Floats) -> float:
    left, variance = 0.0, 0.0
    for place in range(len(at_risk), 0, -1):
        left += gone[place]
        variance += spread[place - 1] * (at_risk[place - 1] - left) * left
    return score * score / variance if variance > SMALLEST else 0.0


@njit(cache=True, nogil=True)
def leaf_curve(rows: Integers, bins: Integers, happened: Flags, weights: Floats, n_times: int) -> Floats:
    """Return the Kaplan-Meier estimate of some patients on the grid, shape (K,); flat where nobody is at risk.

    Examples
    --------
    >>> bins, happened = np.array([0, 1, 2]), np.array([True, True, False])
    >>> leaf_curve(np.arange(3), bins, happened, np.ones(3), 2).round(3).tolist()
    [0.667, 0.333]
    """
    events, leaving = np.zeros(n_times + 1), np.zeros(n_times + 1)
    for row in rows:
        leaving[bins[row]] += weights[row]
        if happened[row]:
            events[bins[row]] += weights[row]
    staying = np.empty(n_times)
    left = leaving[n_times]
    for time in range(n_times - 1, -1, -1):
        left += leaving[time]
        staying[time] = left
    curve, survival = np.empty(n_times), 1.0
    for time in range(n_times):
        if events[time] > 0:
            survival *= max(0.0, 1.0 - events[time] / staying[time])
        curve[time] = survival
    return curve
