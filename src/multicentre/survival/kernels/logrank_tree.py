"""Growth of one survival tree on binned columns and times, its splits chosen by the log-rank statistic."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from multicentre.survival.kernels.logrank import TIES, best_cut, leaf_curve, score_patients

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Nodes = NDArray[np.int32]
Bins = NDArray[np.uint8]
Flags = NDArray[np.bool_]


@njit(cache=True, nogil=True)
def grow_tree(
    binned: Bins,
    n_bins: Integers,
    bins: Integers,
    happened: Flags,
    weights: Floats,
    n_times: int,
    max_depth: int,
    min_leaf: int,
    min_events: int,
    n_columns: int,
    seed: int,
) -> tuple[Nodes, Nodes, Nodes, Nodes, Nodes, Floats, int]:
    """Grow a tree.

    Parameters
    ----------
    binned : array of shape (d, n)
        Bin of every value, column by column.
    n_bins : array of shape (d,)
        Bins of every column; one with a single bin is not split.
    bins, happened, weights : array of shape (n,)
        Bin of the time (K beyond the horizon), whether the event happened in it, and weight; those of weight 0 do not
        take part.
    n_times : int
        K, the length of the grid.
    max_depth : int
        Splits on the way to a leaf, at most.
    min_leaf, min_events : int
        Fewest patients and events of a leaf, each patient counted once.
    n_columns : int
        Columns that are tried at a node. One with a single value there does not count, and where none gives a split
        more are tried, as scikit-learn does.
    seed : int
        Of the draws of columns, from 0.

    Returns
    -------
    column, cut, left, right, leaf : array of shape (m,)
        Nodes, parents first. Patients whose bin is at most the cut go left; a leaf has -1 but for `leaf`, its curve.
    curves : array of shape (L, K)
        Kaplan-Meier estimate of every leaf.
    fewest : int
        Patients of the smallest leaf; 0 where the patients are too few for any tree, whose arrays are empty.

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
    most = _most_leaves(len(rows), max_depth, min_leaf)
    column, cut, leaf = _blank(2 * most - 1), _blank(2 * most - 1), _blank(2 * most - 1)
    left, right = _blank(2 * most - 1), _blank(2 * most - 1)
    curves = np.empty((most, n_times))
    if len(rows) < min_leaf or _count_events(rows, happened) < min_events:
        return column[:0], cut[:0], left[:0], right[:0], leaf[:0], curves[:0], 0
    tried = _above_zero((n_bins - 1).astype(np.float64))
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
        own = rows[start:end]
        chosen, at = -1, -1
        if depth < max_depth and end - start >= 2 * min_leaf:
            chosen, at = _find_split(
                binned, n_bins, own, bins, happened, weights, n_times, min_leaf, min_events, n_columns, tried, state
            )
        if chosen < 0:
            leaf[node] = n_leaves
            curve = leaf_curve(own, bins, happened, weights, n_times)
            for time in range(n_times):
                curves[n_leaves, time] = curve[time]
            n_leaves, fewest = n_leaves + 1, min(fewest, end - start)
            continue
        column[node], cut[node], left[node], right[node] = chosen, at, n_nodes, n_nodes + 1
        middle = start + _part(own, binned[chosen], at, buffer)
        _put(waiting[n_waiting], n_nodes + 1, middle, end, depth + 1)
        _put(waiting[n_waiting + 1], n_nodes, start, middle, depth + 1)
        n_waiting, n_nodes = n_waiting + 2, n_nodes + 2
    column, cut, leaf = column[:n_nodes], cut[:n_nodes], leaf[:n_nodes]
    return column, cut, left[:n_nodes], right[:n_nodes], leaf, curves[:n_leaves], fewest


@njit(cache=True, nogil=True)
def _find_split(
    binned: Bins,
    n_bins: Integers,
    rows: Integers,
    bins: Integers,
    happened: Flags,
    weights: Floats,
    n_times: int,
    min_leaf: int,
    min_events: int,
    n_columns: int,
    tried: Integers,
    state: NDArray[np.uint64],
) -> tuple[int, int]:
    """Return the column and cut of the best split among columns drawn at random, (-1, -1) for none."""
    chosen, at, best, n_seen = -1, -1, 0.0, 0
    if _count_events(rows, happened) < 2 * min_events:
        return chosen, at
    places, scores, at_risk, spread = score_patients(rows, bins, happened, weights, n_times)
    for drawn in range(len(tried)):
        if n_seen >= n_columns and chosen >= 0:
            break
        other = drawn + _draw(state, len(tried) - drawn)
        tried[drawn], tried[other] = tried[other], tried[drawn]
        column = tried[drawn]
        used, cut, found = best_cut(
            binned[column], n_bins[column], rows, happened, weights, places, scores, at_risk, spread,
            min_leaf, min_events,
        )  # fmt: skip
        n_seen += used > 1
        ties = best > 0 and abs(found - best) <= TIES * best
        if cut >= 0 and ((ties and column < chosen) or (not ties and found > best)):
            chosen, at, best = column, cut, found
    return chosen, at


@njit(cache=True, nogil=True)
def _part(rows: Integers, of_column: Bins, cut: int, buffer: Integers) -> int:
    """Put the patients who go left first, each side in its order, and return how many they are."""
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
    """Return a whole number from 0 up to, but not, `below` (SplitMix64, Steele, Lea and Flood 2014)."""
    state[0] += np.uint64(0x9E3779B97F4A7C15)
    mixed = state[0]
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed = mixed ^ (mixed >> np.uint64(31))
    return int(mixed % np.uint64(below))


@njit(cache=True, nogil=True)
def _most_leaves(n_patients: int, max_depth: int, min_leaf: int) -> int:
    most = max(1, n_patients // min_leaf)
    return min(most, 1 << max_depth) if max_depth < 31 else most


@njit(cache=True, nogil=True)
def _blank(n_nodes: int) -> Nodes:
    return np.full(n_nodes, -1, dtype=np.int32)
