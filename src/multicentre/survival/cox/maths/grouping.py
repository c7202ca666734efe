"""Times of a site joined, so that no sum by time rests on few of its patients."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Floats = NDArray[np.float64]
LAST = 2
ROUNDING = 1e-9


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


def join_times(bins: Integers, happened: Flags, n_times: int, least: int, weights: Floats | None = None) -> Grouping:
    """Join neighbouring times until each holds none or in effect `least` of those with the event, and of the others.

    Patients move to the middle of what was joined; those of the last group without the event to its end.

    Sums over those at risk differ from one time to the next by the patients of a time: so no difference rests on fewer.
    What remains at the end joins the groups before it, and so do others until the last holds twice `least` of either:
    they are all who are at risk there. Where the site as a whole does not, all move to the middle of the times. A site
    with fewer events than `least` counts as one without.

    Parameters
    ----------
    bins : array of shape (n,)
        Time of every patient, from 0 to K; K beyond the horizon, where no event counts.
    happened : array of shape (n,)
    n_times : int
    least : int
        Nothing is joined for 0 or 1.
    weights : array of shape (n, r), optional
        By each column of which a group's effective number counts, (sum w)^2 / sum w^2; equal by default.

    Examples
    --------
    >>> joined = join_times(np.array([0, 0, 1, 2, 3]), np.array([True, False, True, False, False]), 3, 2)
    >>> joined.reached.tolist(), joined.cells.tolist()
    ([2, 2, 2, 2, 2], [5, 2, 3])
    """
    time = np.minimum(bins, n_times - 1)
    if least > 1:
        happened = happened & (int(happened.sum()) >= least)
        middle, end = _moved_to(time, happened, np.ones((len(time), 1)) if weights is None else weights, n_times, least)
        time = np.where(happened, middle[time], end[time])
    counts = [np.bincount(time[of], minlength=n_times) for of in (time >= 0, happened, ~happened)]
    cells = np.concatenate([each[each > 0] for each in counts])
    return Grouping(time + 1, happened, cells.astype(np.int64))


def _moved_to(time: Integers, happened: Flags, weights: Floats, n_times: int, least: int) -> tuple[Integers, Integers]:
    """Return the time to which those of every time move, with the event and without, shape (K,) each."""
    sums = np.stack(
        [_sums_by_time(time[of], weights[of] ** power, n_times) for of in (happened, ~happened) for power in (1, 2)],
        axis=1,
    ).reshape(n_times, 2, 2, -1)
    groups: list[tuple[int, Floats]] = []
    waiting = np.zeros_like(sums[0])
    for place, here in enumerate(sums):
        waiting = waiting + here
        if waiting.any() and _is_enough(waiting, least):
            groups.append((place, waiting))
            waiting = np.zeros_like(sums[0])
    last = n_times - 1 if waiting.any() or not groups else groups[-1][0]
    while groups and not _is_enough(waiting, LAST * least):
        waiting = waiting + groups.pop()[1]
    ends = [*(place for place, _ in groups), last]
    middles = (np.array([0, *(end + 1 for end in ends[:-1])]) + np.array(ends)) // 2
    group = np.minimum(np.searchsorted(ends, np.arange(n_times)), len(ends) - 1)
    stay = ends[-1] if groups or _is_enough(waiting, LAST * least) else middles[-1]
    return middles[group], np.append(middles[:-1], stay)[group]


def _sums_by_time(time: Integers, weights: Floats, n_times: int) -> Floats:
    return np.stack([np.bincount(time, column, n_times) for column in weights.T], axis=1)


def _is_enough(sums: Floats, least: int) -> bool:
    """Return whether the effective number behind sums of weights and of their squares is none or at least `least`."""
    return bool((sums[:, 0] ** 2 >= least * sums[:, 1] * (1.0 - ROUNDING)).all())
