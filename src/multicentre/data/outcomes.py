"""What is checked of times and events before they are used."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.cells import count_entries, reads_as_number
from multicentre.federation.errors import DataError

Floats = NDArray[np.float64]
MOST_CAUSES = 100
TIMES = "Give every patient one time, as a number."
EVENT_CODES = "Write 1 for the event, 0 for none, 2 and above for competing ones."


def checked_times(time: ArrayLike, n_patients: int) -> Floats:
    """Return times as an array.

    Raises
    ------
    DataError
        There are too many or too few, or some are negative, missing or infinite.

    Examples
    --------
    >>> checked_times([3, 4.5], 2)
    array([3. , 4.5])
    """
    values = _numbers(time, n_patients, "time", TIMES)
    n_missing, n_negative = int((~np.isfinite(values)).sum()), int((values < 0).sum())
    if n_missing or n_negative:
        raise DataError(
            f"{n_missing} of {n_patients} times are missing or infinite, {n_negative} negative",
            where="time",
            hint="Count from entry to the event or the end of follow-up; leave out patients without either.",
        )
    return values


def checked_events(event: ArrayLike, n_patients: int) -> NDArray[np.int8]:
    """Return events as an array of small whole numbers.

    Raises
    ------
    DataError
        There are too many or too few, or some are missing or not a whole number from 0 to 100.

    Examples
    --------
    >>> checked_events([True, False, 2], 3)
    array([1, 0, 2], dtype=int8)
    """
    values = _numbers(event, n_patients, "event", EVENT_CODES)
    with np.errstate(invalid="ignore"):
        unfit = ~((values >= 0) & (values <= MOST_CAUSES) & (values == np.round(values)))
    if unfit.any():
        raise DataError(
            f"{int(unfit.sum())} of {n_patients} events are missing or not a whole number from 0 to {MOST_CAUSES}",
            where="event",
            hint=EVENT_CODES,
        )
    return values.astype(np.int8)


def _numbers(given: ArrayLike, n_patients: int, where: str, hint: str) -> Floats:
    if getattr(getattr(given, "dtype", None), "kind", "O") in "mM":
        raise DataError("dates or lengths of time are given, not numbers", where=where, hint=hint)
    try:
        values = np.array(given, dtype=np.float64)
    except (TypeError, ValueError):
        cells = list(np.asarray(given, dtype=object).ravel())
        rows = [row for row, cell in enumerate(cells) if not reads_as_number(cell)]
        what = count_entries(rows, len(cells), where, "not a number", "not numbers")
        raise DataError(what, where=where, hint=hint) from None
    if values.shape != (n_patients,):
        raise DataError(f"shape ({n_patients},) is needed, {values.shape} was given", where=where, hint=hint)
    return values
