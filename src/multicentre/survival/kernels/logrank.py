"""Log-rank statistics of all splits of a node's patients, from counts by bin of a column and of the time.

With d events among Y patients at risk at each event time of the node, Y1 of them on the left, the statistic is

    (sum over times of d1 - Y1 d / Y)^2  /  sum over times of Y1 (Y - Y1) d (Y - d) / (Y^2 (Y - 1)).

The numerator is the squared sum of the log-rank scores of the patients on the left. A score is 1 for an event, minus
the cumulative hazard of the node up to the patient's time. So one pass over the patients fills all bins of a column.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.compilation import njit

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

Bins = NDArray[np.uint8]

Flags = NDArray[np.bool_]

# Relative difference below which statistics are tied.
TIES = 1e-9

# Variance below which a statistic is 0.
SMALLEST = 1e-9


@njit(cache=True, nogil=True)
def score_patients(
    rows: Integers, bins: Integers, happened: Flags, weights: Floats, n_times: int
) -> tuple[Integers, Floats, Floats, Floats]:
    """Return the scores of a node's patients, and the sums at its m event times, from which statistics are computed.

    Parameters
    ----------
    rows : array of shape (r,)
        Patients of the node.
    bins, happened, weights : array of shape (n,)
        Bin of the time (K beyond the horizon), flag of an event, and weight, of all patients.
    n_times : int
        Length of the grid, K.

    Returns
    -------
    places : array of shape (r,)
        Number of event times of the node at which each patient is at risk, from 0 to m.
    scores : array of shape (r,)
        Log-rank score times weight.
    at_risk, spread : array of shape (m,)
        Y, and d (Y - d) / (Y^2 (Y - 1)), at every event time.

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
    max_bins: int,
    rows: Integers,
    happened: Flags,
    weights: Floats,
    places: Integers,
    scores: Floats,
    at_risk: Floats,
    spread: Floats,
    min_samples_leaf: int,
    min_events_leaf: int,
) -> tuple[int, int, float]:
    """Return the number of bins in use, the best cut (-1 for none) and its log-rank statistic, of one column.

    Patients in bins up to the cut go left. Both sides have at least `min_samples_leaf` patients and `min_events_leaf`
    events, each patient counted once independent of the weight. Of cuts through empty bins the middle one is selected,
    of ties the first.

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
    number, n_events, score = np.zeros(max_bins, dtype=np.int64), np.zeros(max_bins, dtype=np.int64), np.zeros(max_bins)
    leaving = np.zeros((max_bins, n_places + 1))
    for at in range(len(rows)):
        row = rows[at]
        bin_number = of_column[row]
        number[bin_number] += 1
        n_events[bin_number] += happened[row]
        score[bin_number] += scores[at]
        leaving[bin_number, places[at]] += weights[row]
    used, cut, best = 0, -1, SMALLEST
    left, left_events, left_score, waiting = 0, 0, 0.0, -1
    all_events = 0
    for bin_number in range(max_bins):
        all_events += n_events[bin_number]
    gone = np.zeros(n_places + 1)
    for bin_number in range(max_bins):
        if number[bin_number] == 0:
            continue
        used += 1
        if waiting >= 0:
            cut, waiting = (waiting + bin_number - 1) // 2, -1
        left += number[bin_number]
        left_events += n_events[bin_number]
        left_score += score[bin_number]
        if len(rows) - left < min_samples_leaf or all_events - left_events < min_events_leaf:
            continue
        for place in range(1, n_places + 1):
            gone[place] += leaving[bin_number, place]
        if left < min_samples_leaf or left_events < min_events_leaf:
            continue
        cut_statistic = _statistic(left_score, gone, at_risk, spread)
        if cut_statistic > best * (1.0 + TIES):
            best, waiting = cut_statistic, bin_number
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
    """Return the Kaplan-Meier estimate of some patients on the grid, shape (K,); constant where nobody is at risk.

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


Nodes = NDArray[np.int32]


@njit(cache=True, nogil=True)
def grow_tree(
    binned: Bins,
    max_bins: Integers,
    bins: Integers,
    happened: Flags,
    weights: Floats,
    n_times: int,
    max_depth: int,
    min_samples_leaf: int,
    min_events_leaf: int,
    n_columns: int,
    seed: int,
) -> tuple[Nodes, Nodes, Nodes, Nodes, Nodes, Floats, int]:
    """Grow a survival tree.

    Parameters
    ----------
    binned : array of shape (d, n)
        Bin of every value, column by column.
    max_bins : array of shape (d,)
        Number of bins per column; a column with a single bin is not split.
    bins, happened, weights : array of shape (n,)
        Bin of the time (K beyond the horizon), flag of an event, and weight; patients of weight 0 are not used.
    n_times : int
        Length of the grid, K.
    max_depth : int
        Maximum depth of the tree.
    min_samples_leaf, min_events_leaf : int
        Minimum numbers of patients and events of a leaf, each patient counted once.
    n_columns : int
        Number of columns tried at a node. Columns that are constant at the node do not count, and more columns are
        tried if none gives a split, as in scikit-learn.
    seed : int
        Seed of the draws of columns, from 0.

    Returns
    -------
    column, cut, left, right, leaf : array of shape (m,)
        Nodes, parents first. Patients whose bin is at most the cut go left. A leaf has -1 except for `leaf`, the row of
        its curve.
    curves : array of shape (L, K)
        Kaplan-Meier estimate of every leaf.
    fewest : int
        Number of patients of the smallest leaf; 0, with empty arrays, if there are too few patients for a tree.

    Examples
    --------
    >>> binned = np.array([[0, 0, 1, 1]], dtype=np.uint8)
    >>> patients = np.array([0, 1, 2, 3]), np.ones(4, dtype=np.bool_), np.ones(4)
    >>> column, cut, left, right, leaf, curves, fewest = grow_tree(
    ...     binned, np.array([2]), *patients, 4, 9, 1, 1, 1, 0)
    >>> column.tolist(), left.tolist(), right.tolist(), curves.tolist(), fewest
    ([0, -1, -1], [1, -1, -1], [2, -1, -1], [[0.5, 0.0, 0.0, 0.0], [1.0, 1.0, 0.5, 0.0]], 2)
    """
    rows = _above_zero(weights)
    most = _most_leaves(len(rows), max_depth, min_samples_leaf)
    column, cut, leaf = _blank(2 * most - 1), _blank(2 * most - 1), _blank(2 * most - 1)
    left, right = _blank(2 * most - 1), _blank(2 * most - 1)
    curves = np.empty((most, n_times))
    if len(rows) < min_samples_leaf or _count_events(rows, happened) < min_events_leaf:
        return column[:0], cut[:0], left[:0], right[:0], leaf[:0], curves[:0], 0
    tried = _above_zero((max_bins - 1).astype(np.float64))
    state = np.empty(1, dtype=np.uint64)
    state[0] = seed
    buffer = np.empty(len(rows), dtype=np.int64)
    waiting = np.zeros((most + 1, 4), dtype=np.int64)
    waiting[0, 2] = len(rows)
    n_waiting, n_nodes, n_leaves, fewest = 1, 1, 0, len(rows)
    while n_waiting > 0:
        n_waiting -= 1
        node, start = waiting[n_waiting, 0], waiting[n_waiting, 1]
        end, depth = waiting[n_waiting, 2], waiting[n_waiting, 3]
        node_rows = rows[start:end]
        chosen, at = -1, -1
        if depth < max_depth and end - start >= 2 * min_samples_leaf:
            chosen, at = _find_split(
                binned,
                max_bins,
                node_rows,
                bins,
                happened,
                weights,
                n_times,
                min_samples_leaf,
                min_events_leaf,
                n_columns,
                tried,
                state,
            )
        if chosen < 0:
            leaf[node] = n_leaves
            curve = leaf_curve(node_rows, bins, happened, weights, n_times)
            for time in range(n_times):
                curves[n_leaves, time] = curve[time]
            n_leaves, fewest = n_leaves + 1, min(fewest, end - start)
            continue
        column[node], cut[node], left[node], right[node] = chosen, at, n_nodes, n_nodes + 1
        middle = start + _part(node_rows, binned[chosen], at, buffer)
        _put(waiting[n_waiting], n_nodes + 1, middle, end, depth + 1)
        _put(waiting[n_waiting + 1], n_nodes, start, middle, depth + 1)
        n_waiting, n_nodes = n_waiting + 2, n_nodes + 2
    column, cut, leaf = column[:n_nodes], cut[:n_nodes], leaf[:n_nodes]
    return column, cut, left[:n_nodes], right[:n_nodes], leaf, curves[:n_leaves], fewest


@njit(cache=True, nogil=True)
def _find_split(
    binned: Bins,
    max_bins: Integers,
    rows: Integers,
    bins: Integers,
    happened: Flags,
    weights: Floats,
    n_times: int,
    min_samples_leaf: int,
    min_events_leaf: int,
    n_columns: int,
    tried: Integers,
    state: NDArray[np.uint64],
) -> tuple[int, int]:
    """Return the column and cut of the best split among columns drawn at random, (-1, -1) for none."""
    chosen, at, best, n_seen = -1, -1, 0.0, 0
    if _count_events(rows, happened) < 2 * min_events_leaf:
        return chosen, at
    places, scores, at_risk, spread = score_patients(rows, bins, happened, weights, n_times)
    for drawn in range(len(tried)):
        if n_seen >= n_columns and chosen >= 0:
            break
        other = drawn + _draw(state, len(tried) - drawn)
        tried[drawn], tried[other] = tried[other], tried[drawn]
        column = tried[drawn]
        used, cut, cut_statistic = best_cut(
            binned[column], max_bins[column], rows, happened, weights, places, scores, at_risk, spread,
            min_samples_leaf, min_events_leaf,
        )  # fmt: skip
        n_seen += used > 1
        ties = best > 0 and abs(cut_statistic - best) <= TIES * best
        if cut >= 0 and ((ties and column < chosen) or (not ties and cut_statistic > best)):
            chosen, at, best = column, cut, cut_statistic
    return chosen, at


@njit(cache=True, nogil=True)
def _part(rows: Integers, of_column: Bins, cut: int, buffer: Integers) -> int:
    """Move the patients who go left to the front, each side in order, and return their number."""
    n_left, n_right = 0, 0
    for at in range(len(rows)):
        row = rows[at]
        if of_column[row] <= cut:
            rows[n_left] = row
            n_left += 1
        else:
            buffer[n_right] = row
            n_right += 1
    for at in range(n_right):
        rows[n_left + at] = buffer[at]
    return n_left


@njit(cache=True, nogil=True)
def _put(waiting: Integers, node: int, start: int, end: int, depth: int) -> None:
    waiting[0], waiting[1], waiting[2], waiting[3] = node, start, end, depth


@njit(cache=True, nogil=True)
def _above_zero(values: Floats) -> Integers:
    """Return the places of values above 0."""
    places, n_found = np.empty(len(values), dtype=np.int64), 0
    for at in range(len(values)):
        if values[at] > 0:
            places[n_found] = at
            n_found += 1
    return places[:n_found]


@njit(cache=True, nogil=True)
def _count_events(rows: Integers, happened: Flags) -> int:
    total = 0
    for row in rows:
        total += happened[row]
    return total


@njit(cache=True, nogil=True)
def _draw(state: NDArray[np.uint64], below: int) -> int:
    """Draw an integer from 0 to `below` - 1 (SplitMix64, Steele, Lea and Flood 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    mixed = state[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return int(mixed % np.uint64(below))


@njit(cache=True, nogil=True)
def _most_leaves(n_patients: int, max_depth: int, min_samples_leaf: int) -> int:
    most = max(1, n_patients // min_samples_leaf)
    return min(most, 1 << max_depth) if max_depth < 31 else most


@njit(cache=True, nogil=True)
def _blank(n_nodes: int) -> Nodes:
    return np.full(n_nodes, -1, dtype=np.int32)
