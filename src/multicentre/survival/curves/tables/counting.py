"""A site's patients by group, outcome and time: counts that can be summed.

A grid G_0 < ... < G_{K-1} splits time. An event in (G_{k-1}, G_k] has place k. Who leaves without one has one of 2K + 1
places: 2k strictly between G_{k-1} and G_k, 2k + 1 at G_k itself, 2K beyond the horizon.
"""

from __future__ import annotations

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
