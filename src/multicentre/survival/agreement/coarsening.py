"""Coarser grid for a table in which some counts are of few patients.

Neighbouring times are joined from the first on until every count is 0 or at least a minimum. The table itself decides,
where it is already present: at the only site of a study, or in the coordinator's process, which holds the masked total.
No site is asked a second time.
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

Number = TypeVar("Number", np.int64, np.float64)
Ints = NDArray[np.int64]


def places_to_keep(events: NDArray[Number], leaving: NDArray[Number], least: int) -> Ints | None:
    """Return places of the grid such that every count is 0 or at least `least`; None if no grid with events meets it.

    Parameters
    ----------
    events : array of shape (g, c, K)
        See :class:`~multicentre.survival.curves.tables.risk.RiskTable`.
    leaving : array of shape (g, 2K + 1)
    least : int

    Examples
    --------
    >>> events, leaving = np.array([[[6, 2, 4, 1]]]), np.array([[0, 0, 0, 0, 0, 0, 0, 0, 8]])
    >>> places_to_keep(events, leaving, 5).tolist(), places_to_keep(events, leaving, 1).tolist()
    ([0, 2], [0, 1, 2, 3])
    """
    n_times = events.shape[-1]
    if not has_small(events, leaving, least=least):
        return np.arange(n_times)
    places: list[int] = []
    start = 0
    for place in range(n_times):
        between = leaving[:, 2 * start : 2 * place + 1].sum(axis=1)
        if not has_small(events[..., start : place + 1].sum(axis=-1), between, leaving[:, 2 * place + 1], least=least):
            places.append(place)
            start = place + 1
    while places:  # who is followed beyond the last time is a count too
        joined = join_times(events, leaving, np.array(places))
        if not has_small(*joined, least=least):
            return np.array(places) if joined[0].any() else None
        places.pop()
    return None


def join_times(
    events: NDArray[Number], leaving: NDArray[Number], places: Ints
) -> tuple[NDArray[Number], NDArray[Number]]:
    """Return the counts on a grid of some of the times.

    Events after the last of these count as followed beyond it. So do patients who leave at the last one if the grid is
    coarser, which changes no curve.

    Examples
    --------
    >>> events, leaving = np.array([[[6, 2, 4, 1]]]), np.array([[0, 1, 1, 0, 0, 0, 0, 0, 8]])
    >>> [each.tolist() for each in join_times(events, leaving, np.array([0, 2]))]
    [[[[6, 6]]], [[0, 1, 1, 0, 9]]]
    """
    n_times = events.shape[-1]
    if len(places) == n_times:
        return events, leaving
    starts, end = np.append(0, places[:-1] + 1), places[-1] + 1
    joined = np.add.reduceat(events[..., :end], starts, axis=-1)
    counts = np.zeros((len(leaving), 2 * len(places) + 1), dtype=leaving.dtype)
    at = leaving[:, 2 * places + 1]
    counts[:, 1::2] = at
    counts[:, :-1:2] = np.add.reduceat(leaving[:, : 2 * end], 2 * starts, axis=1) - at
    counts[:, -1] = leaving[:, 2 * end :].sum(axis=1) + events[..., end:].sum(axis=(1, 2)) + at[:, -1]
    counts[:, -2] = 0
    return joined, counts


def on_full_grid(
    events: NDArray[Number], leaving: NDArray[Number], places: Ints
) -> tuple[NDArray[Number], NDArray[Number]]:
    """Return the counts of :func:`join_times` at their places of the whole grid; the others are 0.

    Examples
    --------
    >>> events, leaving = np.array([[[6, 2, 4, 1]]]), np.array([[0, 1, 1, 0, 0, 0, 0, 0, 8]])
    >>> [each.tolist() for each in on_full_grid(events, leaving, np.array([0, 2]))]
    [[[[6, 0, 6, 0]]], [[0, 1, 0, 0, 1, 0, 0, 0, 9]]]
    """
    joined, counts = join_times(events, leaving, places)
    whole, left = np.zeros_like(events), np.zeros_like(leaving)
    whole[..., places], left[:, 2 * places], left[:, 2 * places + 1] = joined, counts[:, :-1:2], counts[:, 1::2]
    left[:, -1] = counts[:, -1]
    return whole, left


def occupied_places(events: NDArray[Number], leaving: NDArray[Number]) -> Ints:
    """Return the places of the grid with an event or the end of a follow-up; joined times have none.

    Examples
    --------
    >>> occupied_places(np.array([[[6, 0, 6, 0]]]), np.array([[0, 1, 0, 0, 1, 0, 0, 0, 9]])).tolist()
    [0, 2]
    """
    counted = events.sum(axis=(0, 1)) + leaving[:, :-1:2].sum(axis=0) + leaving[:, 1::2].sum(axis=0)
    return np.flatnonzero(counted)


def has_small(*counts: NDArray[Number], least: int) -> bool:
    """Return whether a count is above 0 and below `least`."""
    return any(bool(((each > 0) & (each < least)).any()) for each in counts)


def join_bins(counts: NDArray[np.float64], least: int) -> NDArray[np.float64]:
    """Return counts by kind and bin, joined to runs of bins in which each kind has 0 or at least `least` patients.

    The counts of a run are in its last bin. Bins after the last run join it.

    Parameters
    ----------
    counts : array of shape (k, b)
    least : int

    Examples
    --------
    >>> join_bins(np.array([[3.0, 4.0, 0.0, 6.0, 0.0, 1.0], [0.0, 5.0, 0.0, 0.0, 0.0, 0.0]]), 5).tolist()
    [[0.0, 7.0, 0.0, 0.0, 0.0, 7.0], [0.0, 5.0, 0.0, 0.0, 0.0, 0.0]]
    """
    runs: list[tuple[int, NDArray[np.float64]]] = []
    rest = np.zeros(len(counts))
    occupied = np.flatnonzero(counts.sum(axis=0)).tolist()
    for place in occupied:
        rest = rest + counts[:, place]
        if not has_small(rest, least=least):
            runs.append((place, rest))
            rest = np.zeros(len(counts))
    if rest.any():
        runs[-1:] = [(occupied[-1], rest + (runs[-1][1] if runs else 0))]
    joined = np.zeros_like(counts)
    for place, counted in runs:
        joined[:, place] = counted
    return joined
