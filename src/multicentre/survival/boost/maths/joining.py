"""Times of a few patients moved together, so that sums by time rest on a policy's minimum."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]


def joined_bins(bins: Integers, happened: Flags, n_times: int, least: int) -> tuple[Integers, Flags]:
    """Move patients to later bins until in each so many have an event or none, and so many leave or none.

    What remains at the end joins the last bin that holds some, and so do patients beyond the horizon where they are too
    few. Where the events of all are too few nothing happened, and nobody leaves.

    Parameters
    ----------
    bins, happened : arrays of shape (n,)
    n_times : int
    least : int

    Examples
    --------
    >>> bins, happened = joined_bins(np.array([0, 1, 2, 2]), np.array([True, True, True, False]), 3, 2)
    >>> bins.tolist(), happened.tolist()
    ([1, 1, 1, 1], [True, True, True, False])
    """
    inside = bins < n_times
    events = np.bincount(bins[happened], minlength=n_times)[:n_times]
    leaving = np.bincount(bins[inside], minlength=n_times)[:n_times]
    ends, waiting_events, waiting = [], 0, 0
    for place in np.flatnonzero(leaving).tolist():
        waiting_events, waiting = waiting_events + int(events[place]), waiting + int(leaving[place])
        if waiting_events >= least and waiting >= least:
            ends.append(place)
            waiting_events, waiting = 0, 0
    if not ends:
        return np.full(len(bins), n_times), np.zeros(len(bins), dtype=np.bool_)
    places = np.minimum(np.searchsorted(ends, bins), len(ends) - 1)
    stay = ~inside & (int((~inside).sum()) >= least)
    return np.where(stay, n_times, np.asarray(ends)[places]), happened
