"""A site's patients by group, outcome and time: counts that can be summed, and what is done where they are small.

A grid G_0 < ... < G_{K-1} splits time. An event in (G_{k-1}, G_k] has place k. Who leaves without one has one of 2K + 1
places: 2k strictly between G_{k-1} and G_k, 2k + 1 at G_k itself, 2K beyond the horizon.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def count_table(
    time: Floats, event: NDArray[np.integer], group: Integers, grid: Floats, causes: Integers, n_groups: int
) -> tuple[Integers, Integers]:
    """Return patients with an event, shape (g, c, K), and those who left without one, shape (g, 2K + 1).

    Parameters
    ----------
    time : array of shape (n,)
    event : array of shape (n,)
        Cause, 0 for none. An event of a cause that is not in `causes` ends the follow-up.
    group : array of shape (n,)
        Group from 0; patients of group -1 are left out.
    grid : array of shape (K,)
    causes : array of shape (c,)
    n_groups : int

    Examples
    --------
    >>> time, event, group = np.array([1.0, 2.0, 2.5, 9.0]), np.array([1, 0, 0, 1]), np.zeros(4, dtype=np.int64)
    >>> events, leaving = count_table(time, event, group, np.array([2.0, 3.0]), np.array([1]), 1)
    >>> events.tolist(), leaving.tolist()
    ([[[1, 0]]], [[0, 1, 1, 0, 1]])
    """
    n_times = len(grid)
    place = np.searchsorted(grid, time, side="left")
    events = np.zeros((n_groups, len(causes), n_times), dtype=np.int64)
    without = (group >= 0) & (~np.isin(event, causes) | (place == n_times))
    for number, cause in enumerate(causes):
        chosen = (group >= 0) & (event == cause) & (place < n_times)
        np.add.at(events, (group[chosen], number, place[chosen]), 1)
    leaving = np.zeros((n_groups, 2 * n_times + 1), dtype=np.int64)
    place = place + np.searchsorted(grid, time, side="right")
    np.add.at(leaving, (group[without], place[without]), 1)
    return events, leaving


def join_table(events: Integers, leaving: Integers, least: int) -> tuple[Floats, Floats, int]:
    """Return the counts as they may leave in clear, and the fewest patients behind one, 0 where nobody is told of.

    Neighbours in time are joined, outcome by outcome, until they are `least` or more, and are spread evenly over the
    places between; see :func:`join_places`. A patient is moved in time or left out, but keeps the outcome: numbers at
    risk stay sums of patients. A group in which an outcome has fewer than `least` events (but some) is left out;
    likewise those who left without an event, where they are so few.

    Examples
    --------
    >>> events, leaving, fewest = join_table(np.array([[[3, 3, 0, 6]]]), np.array([[0, 0, 6, 0, 0, 0, 0, 0, 1]]), 5)
    >>> events.tolist(), leaving[0, :5].tolist(), fewest
    ([[[3.0, 3.0, 0.0, 6.0]]], [0.0, 0.0, 7.0, 0.0, 0.0], 6)
    """
    joined, left = events.astype(np.float64), leaving.astype(np.float64)
    if least <= 1:
        return joined, left, 1
    fewest: list[int] = []
    between = np.arange(leaving.shape[-1]) % 2 == 0
    for group, rows in enumerate(events):
        totals = rows.sum(axis=1)
        told = not ((totals > 0) & (totals < least)).any()
        for place, row in enumerate(rows):
            joined[group, place], smallest = join_places(row * told, least, np.ones(len(row), dtype=np.bool_))
            fewest += smallest
        left[group], smallest = join_places(leaving[group] * told, least, between)
        fewest += smallest
    return joined, left, min(fewest, default=0)


def join_places(row: Integers, least: int, wide: NDArray[np.bool_]) -> tuple[Floats, list[int]]:
    """Return numbers by place that rest on `least` patients or more, and on how many; all 0 where they are fewer.

    Neighbours are joined until they are enough; what is left over joins the last. Their number is spread evenly over
    the places after those before, up to their own last one: what shows is where the ``least``-th of them stands. If one
    of the places holds enough by itself, all stand there.

    Parameters
    ----------
    row : array of shape (m,)
        Patients by place.
    least : int
    wide : array of shape (m,)
        Places over which a number may be spread.

    Examples
    --------
    >>> numbers, patients = join_places(np.array([1, 4, 0, 1, 7, 2]), 5, np.ones(6, dtype=bool))
    >>> numbers.tolist(), patients
    ([2.5, 2.5, 0.0, 0.0, 10.0, 0.0], [5, 10])
    """
    spread = np.zeros(len(row))
    if row.sum() < least:
        return spread, []
    blocks = _blocks(row, least)
    for start, end in blocks:
        largest = start + int(np.argmax(row[start:end]))
        alone = row[largest] >= least or not wide[start:end].any()
        places = [largest] if alone else start + np.flatnonzero(wide[start:end])
        spread[places] += row[start:end].sum() / len(places)
    return spread, [int(row[start:end].sum()) for start, end in blocks]


def _blocks(row: Integers, least: int) -> list[tuple[int, int]]:
    """Return first and last place (exclusive) of the neighbours that are joined."""
    starts, waiting = [0], 0
    for place in np.flatnonzero(row).tolist():
        waiting += int(row[place])
        if waiting >= least:
            starts.append(place + 1)
            waiting = 0
    last = int(np.flatnonzero(row)[-1]) + 1
    return list(pairwise([*starts[: -1 if len(starts) > 1 else None], last]))
