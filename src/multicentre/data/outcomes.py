"""Validation of times and events."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.cells import count_entries, reads_as_number
from multicentre.federation.errors import DataError

Floats = NDArray[np.float64]
MOST_CAUSES = 100
TIMES = "Give every patient one time, as a number."
EVENT_CODES = "Code the event as 1, censoring as 0 and competing events as 2 and above."


def checked_times(time: ArrayLike, n_patients: int) -> Floats:
    """Return times as an array.

    Raises
    ------
    DataError
        The number of times differs from `n_patients`, or times are negative, missing or infinite.

    Examples
    --------
    >>> checked_times([3, 4.5], 2)
    array([3. , 4.5])
    """
    values = _numbers(time, n_patients, "time", TIMES)
    n_missing, n_negative = int((~np.isfinite(values)).sum()), int((values < 0).sum())
    if n_missing or n_negative:
        raise DataError(
            f"times must be finite and non-negative; {n_missing} of {n_patients} are missing or infinite, "
            f"{n_negative} negative",
            where="time",
            hint="Give the time from entry to the event or the end of follow-up; leave out patients without either.",
        )
    return values


def checked_events(event: ArrayLike, n_patients: int) -> NDArray[np.int8]:
    """Return events as an array of small whole numbers.

    Raises
    ------
    DataError
        The number of events differs from `n_patients`, or events are missing or not whole numbers from 0 to 100.

    Examples
    --------
    >>> checked_events([True, False, 2], 3)
    array([1, 0, 2], dtype=int8)
    """
    values = _numbers(event, n_patients, "event", EVENT_CODES)
    with np.errstate(invalid="ignore"):
        invalid = ~((values >= 0) & (values <= MOST_CAUSES) & (values == np.round(values)))
    if invalid.any():
        raise DataError(
            f"events must be whole numbers from 0 to {MOST_CAUSES}; {int(invalid.sum())} of {n_patients} are not",
            where="event",
            hint=EVENT_CODES,
        )
    return values.astype(np.int8)


def _numbers(column: ArrayLike, n_patients: int, where: str, hint: str) -> Floats:
    if getattr(getattr(column, "dtype", None), "kind", "O") in "mM":
        raise DataError(f"{where} must be numbers; got dates or lengths of time", where=where, hint=hint)
    try:
        values = np.array(column, dtype=np.float64)
    except (TypeError, ValueError):
        cells = list(np.asarray(column, dtype=object).ravel())
        rows = [row for row, cell in enumerate(cells) if not reads_as_number(cell)]
        what = count_entries(rows, len(cells), where, "not a number", "not numbers")
        raise DataError(what, where=where, hint=hint) from None
    if values.shape != (n_patients,):
        raise DataError(f"{where} must have shape ({n_patients},); got {values.shape}", where=where, hint=hint)
    return values
