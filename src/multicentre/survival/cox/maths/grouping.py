"""Times of a site joined, so that no sum by time rests on few of its patients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Grouping:
    """Patients by joined time.

    Parameters
    ----------
    reached : array of shape (n,)
        Number of times at which a patient is at risk, at least 1.
    happened : array of shape (n,)
    cells : array
        How many patients each time holds: in all, with the event, and without.
    """

    reached: Integers
    happened: Flags
    cells: Integers


def join_times(bins: Integers, happened: Flags, n_times: int, least: int) -> Grouping:
    """Join neighbouring times until each holds none or `least` of those with the event, and of those without.

    Patients move to the middle of what was joined; those of the last group without the event to its end.

    Sums over those at risk differ from one time to the next by the patients of a time: so no difference rests on fewer.
    What remains at the end joins the groups before it. A site with fewer events than `least` counts as one without.

    Parameters
    ----------
    bins : array of shape (n,)
        Time of every patient, from 0 to K; K beyond the horizon, where no event counts.
    happened : array of shape (n,)
    n_times : int
    least : int
        Nothing is joined for 0 or 1.

    Examples
    --------
    >>> joined = join_times(np.array([0, 0, 1, 2, 3]), np.array([True, False, True, False, False]), 3, 2)
    >>> joined.reached.tolist(), joined.cells.tolist()
    ([2, 3, 2, 3, 3], [2, 3, 2, 3])
    """
    time = np.minimum(bins, n_times - 1)
    if least > 1:
        happened = happened & (int(happened.sum()) >= least)
        middle, end = _moved_to(time, happened, n_times, least)
        time = np.where(happened, middle[time], end[time])
    counts = [np.bincount(time[of], minlength=n_times) for of in (time >= 0, happened, ~happened)]
    cells = np.concatenate([each[each > 0] for each in counts])
    return Grouping(time + 1, happened, cells.astype(np.int64))


def _moved_to(time: Integers, happened: Flags, n_times: int, least: int) -> tuple[Integers, Integers]:
    """Return the time to which those of every time move, with the event and without, shape (K,) each."""
    counts = np.stack([np.bincount(time[of], minlength=n_times) for of in (happened, ~happened)], axis=1)
    groups: list[tuple[int, NDArray[np.int64]]] = []
    waiting = np.zeros(2, dtype=np.int64)
    for place, here in enumerate(counts):
        waiting = waiting + here
        if waiting.any() and _is_enough(waiting, least):
            groups.append((place, waiting))
            waiting = np.zeros(2, dtype=np.int64)
    while groups and waiting.any() and not _is_enough(waiting, least):
        place, held = groups.pop()
        waiting = waiting + held
    ends = [place for place, _ in groups] + ([n_times - 1] if waiting.any() else [])
    ends = ends or [n_times - 1]
    middles = (np.array([0, *(end + 1 for end in ends[:-1])]) + np.array(ends)) // 2
    group = np.minimum(np.searchsorted(ends, np.arange(n_times)), len(ends) - 1)
    return middles[group], np.append(middles[:-1], ends[-1])[group]


def _is_enough(counts: NDArray[np.int64], least: int) -> bool:
    return bool(((counts == 0) | (counts >= least)).all())
