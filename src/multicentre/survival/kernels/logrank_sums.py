"""Log-rank splits of many nodes from counts summed over sites, with several counts per 64-bit word.

For each bin of a column there are 2 K + 3 counts: drawn patients with an event by time, drawn patients by end of
follow-up (K + 1, the last beyond the horizon), patients, and patients with an event, the latter two without
repetitions. A count is a field of `bits` bits, wide enough for the total over sites, so that words can be added without
overflow between fields.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.compilation import njit

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
Words = NDArray[np.int64]
Flags = NDArray[np.bool_]

# Bits of a word that hold counts.
WORD = 52
# Relative difference below which statistics are tied.
TIES = 1e-9
# Variance below which a statistic is 0.
SMALLEST = 1e-9


@njit(cache=True, nogil=True)
def n_words(n_times: int, bits: int) -> int:
    """Return the number of words that the counts of one bin take.

    Examples
    --------
    >>> n_words(16, 7), n_words(16, 13), n_words(16, 52)
    (5, 9, 35)
    """
    fields = WORD // bits
    return (2 * n_times + 3 + fields - 1) // fields


@njit(cache=True, nogil=True)
def count_patients(
    words: Words,
    binned: NDArray[np.uint8],
    bins: NDArray[np.int64],
    happened: Flags,
    drawn: NDArray[np.uint8],
    column: Integers,
    cut: Integers,
    left: Integers,
    right: Integers,
    row: Integers,
    tried: Integers,
    max_bins: NDArray[np.int64],
    start: NDArray[np.int64],
    bits: Integers,
    n_times: int,
) -> None:
    """Count the patients of one tree by node, column, bin and time, into the words.

    Parameters
    ----------
    words : array of shape (w,)
    binned : array of shape (n, d)
    bins, happened : array of shape (n,)
        Interval of the time, K beyond the horizon, and flag of an event.
    drawn : array of shape (n,)
        Number of times that the tree's sample holds each patient.
    column, cut, left, right : array of shape (m,)
        Nodes of the tree.
    row : array of shape (m,)
        Row of `tried`, `start` and `bits` for a requested leaf, else -1.
    tried : array of shape (s, c)
        Columns tried at a node.
    max_bins : array of shape (d,)
    start : array of shape (s,)
        First word of a node.
    bits : array of shape (s,)
    n_times : int
        K.

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> words = np.zeros(2, dtype=np.int64)
    >>> count_patients(words, np.array([[0], [1]], dtype=np.uint8), np.array([0, 1]), np.array([True, False]),
    ...              np.array([2, 1], dtype=np.uint8), i4(-1), i4(-1), i4(-1), i4(-1), i4(0), i4(0).reshape(1, 1),
    ...              np.array([2]), np.array([0]), i4(8), 1)
    >>> [[int(word) >> 8 * k & 255 for k in range(5)] for word in words]
    [[2, 2, 0, 1, 1], [0, 0, 1, 1, 0]]
    """
    n_fields = 2 * n_times + 3
    place, shift = np.empty(n_fields, dtype=np.int64), np.empty(n_fields, dtype=np.int64)
    laid = 0
    for patient in range(binned.shape[0]):
        if drawn[patient] == 0:
            continue
        node = 0
        while column[node] >= 0:
            node = left[node] if binned[patient, column[node]] <= cut[node] else right[node]
        slot = row[node]
        if slot < 0:
            continue
        if bits[slot] != laid:
            laid = bits[slot]
            _lay_out(place, shift, laid)
        number, at, is_event = np.int64(drawn[patient]), bins[patient], happened[patient]
        width, offset = n_words(n_times, laid), start[slot]
        for each in range(tried.shape[1]):
            tried_column = tried[slot, each]
            cell = offset + binned[patient, tried_column] * width
            if is_event:
                words[cell + place[at]] += number << shift[at]
                words[cell + place[n_fields - 1]] += np.int64(1) << shift[n_fields - 1]
            words[cell + place[n_times + at]] += number << shift[n_times + at]
            words[cell + place[n_fields - 2]] += np.int64(1) << shift[n_fields - 2]
            offset += max_bins[tried_column] * width


@njit(cache=True, nogil=True)
def count_leaves(
    counts: Words,
    binned: NDArray[np.uint8],
    bins: NDArray[np.int64],
    happened: Flags,
    drawn: NDArray[np.uint8],
    column: Integers,
    cut: Integers,
    left: Integers,
    right: Integers,
    row: Integers,
) -> None:
    """Count the patients of one tree by leaf and time, into `counts` of shape (L, 2 K + 1): events, ends of follow-up.

    Other parameters are those of :func:`count_patients`.

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> counts = np.zeros((1, 3), dtype=np.int64)
    >>> count_leaves(counts, np.zeros((2, 1), dtype=np.uint8), np.array([0, 1]), np.array([True, False]),
    ...              np.array([2, 1], dtype=np.uint8), i4(-1), i4(-1), i4(-1), i4(-1), i4(0))
    >>> counts.tolist()
    [[2, 2, 1]]
    """
    n_times = counts.shape[1] // 2
    for patient in range(binned.shape[0]):
        if drawn[patient] == 0:
            continue
        node = 0
        while column[node] >= 0:
            node = left[node] if binned[patient, column[node]] <= cut[node] else right[node]
        if row[node] >= 0:
            counts[row[node], n_times + bins[patient]] += drawn[patient]
            if happened[patient]:
                counts[row[node], bins[patient]] += drawn[patient]


@njit(cache=True, nogil=True)
def best_splits(
    words: Words,
    tried: Integers,
    max_bins: NDArray[np.int64],
    start: NDArray[np.int64],
    bits: Integers,
    n_times: int,
    min_samples_leaf: int,
    min_events_leaf: int,
) -> tuple[Integers, Integers, Floats, Words]:
    """Return the best split of each node, and the counts on either side.

    Parameters
    ----------
    words, tried, max_bins, start, bits, n_times
        As in :func:`count_patients`, summed over the sites.
    min_samples_leaf, min_events_leaf : int
        Minimum numbers of patients and events on either side, each patient counted once.

    Returns
    -------
    column, cut : array of shape (s,)
        Column (-1 without a permitted split) and last bin of the left side. Of cuts through empty bins the middle one
        is selected, of ties the first.
    statistic : array of shape (s,)
        Log-rank statistic.
    sides : array of shape (s, 2, 2 K + 3)
        Counts of the left and the right side.
    """
    n_nodes, n_fields = tried.shape[0], 2 * n_times + 3
    column, cut = np.full(n_nodes, -1, dtype=np.int32), np.full(n_nodes, -1, dtype=np.int32)
    statistic, sides = np.zeros(n_nodes), np.zeros((n_nodes, 2, n_fields), dtype=np.int64)
    place, shift = np.empty(n_fields, dtype=np.int64), np.empty(n_fields, dtype=np.int64)
    for node in range(n_nodes):
        _lay_out(place, shift, int(bits[node]))
        mask = (1 << int(bits[node])) - 1
        width, offset, best = n_words(n_times, int(bits[node])), start[node], SMALLEST
        whole = np.zeros(n_fields, dtype=np.int64)
        for bin_number in range(max_bins[tried[node, 0]]):
            _add_bin(whole, words, offset + bin_number * width, place, shift, mask)
        hazard, at_risk, spread = _score(whole, n_times)
        for each in range(tried.shape[1]):
            tried_column = tried[node, each]
            at, cut_statistic, gone = _best_cut(
                words, offset, max_bins[tried_column], width, place, shift, mask, whole, hazard, at_risk, spread,
                min_samples_leaf, min_events_leaf,
            )  # fmt: skip
            if at >= 0 and cut_statistic > best * (1.0 + TIES):
                column[node], cut[node], best = tried_column, at, cut_statistic
                statistic[node] = cut_statistic
                sides[node, 0], sides[node, 1] = gone, whole - gone
            offset += max_bins[tried_column] * width
    return column, cut, statistic, sides


@njit(cache=True, nogil=True)
def _best_cut(
    words: Words,
    offset: int,
    max_bins: int,
    width: int,
    place: Words,
    shift: Words,
    mask: int,
    whole: Words,
    hazard: Floats,
    at_risk: Floats,
    spread: Floats,
    min_samples_leaf: int,
    min_events_leaf: int,
) -> tuple[int, float, Words]:
    """Return the best cut of one column (-1 for none), its statistic, and the counts of the left side."""
    n_fields = len(whole)
    left, best_left = np.zeros(n_fields, dtype=np.int64), np.zeros(n_fields, dtype=np.int64)
    cut, best, waiting = -1, SMALLEST, -1
    for bin_number in range(max_bins):
        before = left[n_fields - 2]
        _add_bin(left, words, offset + bin_number * width, place, shift, mask)
        if left[n_fields - 2] == before:
            continue
        if waiting >= 0:
            cut, waiting = (waiting + bin_number - 1) // 2, -1
        if left[n_fields - 2] < min_samples_leaf or left[n_fields - 1] < min_events_leaf:
            continue
        if (
            whole[n_fields - 2] - left[n_fields - 2] < min_samples_leaf
            or whole[n_fields - 1] - left[n_fields - 1] < min_events_leaf
        ):
            break
        cut_statistic = _statistic(left, hazard, at_risk, spread)
        if cut_statistic > best * (1.0 + TIES):
            best, waiting = cut_statistic, bin_number
            best_left[:] = left
    return cut, best, best_left


@njit(cache=True, nogil=True)
def _statistic(left: Words, hazard: Floats, at_risk: Floats, spread: Floats) -> float:
    """Return the log-rank statistic of the left side: (observed minus expected events)^2 over its variance."""
    n_times = len(hazard)
    score, variance = 0.0, 0.0
    staying = float(left[2 * n_times])
    for time in range(n_times - 1, -1, -1):
        staying += left[n_times + time]
        score += left[time] - staying * hazard[time]
        variance += spread[time] * staying * (at_risk[time] - staying)
    return score * score / variance if variance > SMALLEST else 0.0


@njit(cache=True, nogil=True)
def _score(whole: Words, n_times: int) -> tuple[Floats, Floats, Floats]:
    """Return d / Y, Y, and d (Y - d) / (Y^2 (Y - 1)) at every time of a node."""
    hazard, at_risk, spread = np.zeros(n_times), np.zeros(n_times), np.zeros(n_times)
    staying = float(whole[2 * n_times])
    for time in range(n_times - 1, -1, -1):
        staying += whole[n_times + time]
        died = float(whole[time])
        at_risk[time] = staying
        if died > 0:
            hazard[time] = died / staying
            if staying > 1:
                spread[time] = died * (staying - died) / (staying * staying * (staying - 1.0))
    return hazard, at_risk, spread


@njit(cache=True, nogil=True)
def _lay_out(place: Words, shift: Words, bits: int) -> None:
    fields = WORD // bits
    for field in range(len(place)):
        place[field], shift[field] = field // fields, field % fields * bits


@njit(cache=True, nogil=True)
def _add_bin(counts: Words, words: Words, cell: int, place: Words, shift: Words, mask: int) -> None:
    for field in range(len(counts)):
        counts[field] += words[cell + place[field]] >> shift[field] & mask
