"""Definition of co-occurrence: windows of days, admissions, or days within a maximum distance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import ConfigurationError

Anchor = Literal["first_event", "calendar", "admission", "sliding"]
Places = NDArray[np.int64]
# About 2,700 years, longer than any record; keeps patient * (days of record + window) within 64-bit integers.
MAX_DAYS = 10**6


def is_integer_from(value: object, lowest: int) -> bool:
    """Return whether a value is an integer of at least `lowest`."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= lowest


def _is_date(origin: object) -> bool:
    try:
        return isinstance(origin, str) and not np.isnat(np.datetime64(origin, "D"))
    except ValueError:
        return False


@dataclass(frozen=True)
class Windows:
    """Definition of co-occurring events.

    Parameters
    ----------
    anchor : {"first_event", "calendar", "admission", "sliding"}, default "first_event"
        ``first_event``: consecutive windows that start on the day of each patient's first event. ``calendar``:
        consecutive windows that start at `origin`, the same for all patients. ``admission``: every admission is one
        window. ``sliding``: events on days that are at most `days` apart, without windows.
    days : int, default 30
        Length of a window, from 1 to a million; day 30 belongs to the second window of 30 days. Not used by
        ``admission``.
    origin : str, default "2000-01-01"
        First day of a window of ``calendar``; public and independent of the patients.

    Raises
    ------
    ConfigurationError
        The anchor is unknown, `days` is not an integer from 1 to a million, or `origin` is not a date.

    Examples
    --------
    >>> Windows(days=30).number(np.array([0, 29, 30]))
    array([0, 0, 1])
    """

    anchor: Anchor = "first_event"
    days: int = 30
    origin: str = "2000-01-01"

    def __post_init__(self) -> None:
        if self.anchor not in get_args(Anchor):
            raise ConfigurationError(
                f"anchor must be one of {', '.join(map(repr, get_args(Anchor)))}; got {self.anchor!r}",
                where="anchor",
                hint="Correct the name.",
            )
        if not is_integer_from(self.days, 1) or self.days > MAX_DAYS:
            raise ConfigurationError(
                f"window_days must be an integer from 1 to {MAX_DAYS}; got {self.days!r}",
                where="window_days",
                hint="Example: 30.",
            )
        if not _is_date(self.origin):
            raise ConfigurationError(
                f"origin must be a date in ISO 8601; got {self.origin!r}", where="origin", hint="Example: 2000-01-01."
            )

    def number(self, days: Places) -> Places:
        """Return the index of the window of every day; day 0 begins window 0."""
        return np.floor_divide(days, self.days)


@dataclass(frozen=True)
class Timeline:
    """Events on one axis: co-occurring events are at most `reach` apart, and patients do not overlap.

    Parameters
    ----------
    place : array of int, shape (events,)
        Position of the event on the axis.
    reach : int
        Maximum distance between co-occurring events.
    """

    place: Places
    reach: int


def lay_out(windows: Windows, patient: Places, when: Places) -> Timeline:
    """Map events to positions on one axis, so that co-occurring events can be joined by position.

    Parameters
    ----------
    windows : Windows
    patient : array of int, shape (events,)
        Row of the patient.
    when : array of int, shape (events,)
        Days since 1970-01-01; with ``admission``, the index of the admission.

    Examples
    --------
    >>> lay_out(Windows(days=30), np.array([0, 0, 0, 1]), np.array([5, 34, 35, 34])).place.tolist()
    [0, 0, 1, 2]
    """
    if windows.anchor == "sliding":
        day = when - when.min()
        return Timeline(patient * (int(day.max()) + windows.days + 1) + day, windows.days)
    if windows.anchor == "admission":
        window = when
    elif windows.anchor == "calendar":
        window = windows.number(when - np.datetime64(windows.origin, "D").astype(np.int64))
    else:
        first = np.full(int(patient.max()) + 1, np.iinfo(np.int64).max)
        np.minimum.at(first, patient, when)
        window = windows.number(when - first[patient])
    lowest = int(window.min())
    pair = patient * (int(window.max()) - lowest + 1) + window - lowest
    return Timeline(np.unique(pair, return_inverse=True)[1].astype(np.int64), 0)


def join(sides: Sequence[tuple[Places, Places]], reach: int) -> tuple[Places, ...]:
    """Return all choices of one event per side that are at most `reach` apart, one row per choice.

    Time and memory are linear in the number of choices, apart from sorting.

    Parameters
    ----------
    sides : sequence of (places, codes)
        Events of every mode, each sorted by place; every pair (place, code) is unique.
    reach : int
        Largest distance between the first and the last place of a choice, at least 0.

    Returns
    -------
    tuple of arrays of int, shape (choices,)
        Place of the first side's event, followed by the code of every side.

    Examples
    --------
    >>> procedures = (np.array([0, 40]), np.array([7, 8]))
    >>> diagnoses = (np.array([30, 71]), np.array([1, 2]))
    >>> [column.tolist() for column in join([procedures, diagnoses], reach=30)]
    [[0, 40], [7, 8], [1, 1]]
    """
    place, code = sides[0]
    earliest = latest = place
    columns = [place, code]
    for places, codes in sides[1:]:
        start = np.searchsorted(places, latest - reach, side="left")
        n_joined = np.searchsorted(places, earliest + reach, side="right") - start
        rows = np.repeat(np.arange(len(n_joined)), n_joined)
        joined = np.arange(len(rows)) + np.repeat(start - (np.cumsum(n_joined) - n_joined), n_joined)
        earliest = np.minimum(earliest[rows], places[joined])
        latest = np.maximum(latest[rows], places[joined])
        columns = [*(column[rows] for column in columns), codes[joined]]
    return tuple(columns)
