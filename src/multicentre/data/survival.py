"""Container for right-censored survival data: baseline columns, follow-up times and events."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.core.ties import tied_times
from multicentre.data.cells import count_entries, numbers_of, reads_as_number
from multicentre.data.frames import to_pandas
from multicentre.data.screening import warn_of_codes, warn_of_events
from multicentre.data.table import encode_table
from multicentre.data.tabular import Tabular, asides
from multicentre.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

# Codes fit into one byte; a larger one is probably a time or an identifier in the wrong column.
MAX_CAUSES = 100
TIMES = "Pass one time per patient, as a number."
EVENT_CODES = "Code the event as 1, censoring as 0 and competing events as 2 and above."


class SurvivalData(Tabular):
    """Right-censored times of one site's patients.

    Parameters
    ----------
    X : array of shape (n, d) or pandas frame
        Baseline covariates as numbers; NaN for missing. See :meth:`from_frame` for categories.
    time : array of shape (n,)
        Time from entry to the event or to the end of follow-up, at least 0, in `unit`. Times that differ by at most
        1e-9 of their value are one time, as with R's `timefix`: the earliest of them.
    event : array of shape (n,)
        1 or True for the event, 0 for censoring. With competing risks, 2, 3, ... are events of other causes.
    ids : sequence, optional
        Identifiers of the patients; they never leave the site.
    columns : sequence of str, optional
        Names of the columns; by default those of the frame, or x0, x1, ... for an array.
    unit : str, default ""
        Unit of the times ("days"), the same at all sites.
    levels : sequence of str
        Declared levels, ``name=level``, of categories whose columns are in `X`; levels without a column are
        references. :meth:`from_frame` sets them.

    Raises
    ------
    DataError
        A time is negative, missing or infinite, an event is not an integer from 0, lengths differ, or there is no
        patient. The message counts the entries and never contains them.

    Warns
    -----
    DataWarning
        Events are 1 and 2 and never 0, a column has no entry, or a code such as 999 probably means missing.

    Examples
    --------
    >>> data = SurvivalData([[61.0, 1.0], [70.0, 0.0]], [12.0, 30.0], [1, 0], columns=["age", "stage"])
    >>> data
    SurvivalData(2 patients, 1 event; 2 columns)
    >>> data.outcome["time"].tolist()
    [12.0, 30.0]
    """

    __slots__ = ("_event", "_time", "_unit")
    _outcome_slots: ClassVar[tuple[str, ...]] = ("_time", "_event")

    def __init__(
        self,
        X: ArrayLike | pd.DataFrame,
        time: ArrayLike,
        event: ArrayLike,
        ids: Iterable[object] | None = None,
        *,
        columns: Sequence[str] | None = None,
        unit: str = "",
        levels: Sequence[str] = (),
    ) -> None:
        self._set_columns(X, columns, levels, ids)
        self._time = tied_times(checked_times(time, len(self._X)))
        self._event = checked_events(event, len(self._X))
        self._unit = str(unit)
        for array in (self._time, self._event):
            array.setflags(write=False)
        warn_of_codes(self._time, "time")
        warn_of_events(self._event)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        time: str,
        event: str,
        columns: Sequence[str] | None = None,
        categories: Mapping[str, Sequence[object]] | Sequence[str] | None = None,
        references: Mapping[str, object] | None = None,
        id_column: str | None = None,
        identifiers: Sequence[str] = (),
        unit: str = "",
    ) -> Self:
        """Create the data from a table; each level of a category becomes a column ``name=level`` of zeros and ones.

        Parameters
        ----------
        frame : pandas frame, polars frame (also lazy) or arrow table
            One row per patient.
        time, event : str
            Names of the columns with times and events.
        columns : sequence of str, optional
            Columns to use; by default all others.
        categories : mapping of str to sequence, or sequence of str, optional
            Levels of every categorical column, the same at all sites. If only columns are named, their levels are
            taken from this table, with a warning. Pandas categoricals define their levels. A missing level is missing
            in all columns of its category.
        references : mapping of str to level, optional
            Reference level by category. It has no column; the other levels are compared with it.
        id_column : str, optional
            Column of patients' ids.
        identifiers : sequence of str
            Columns that identify a patient across sites; they never leave the site.
        unit : str
            Unit of the times.

        Raises
        ------
        DataError
            Columns are missing, or contain entries other than numbers or declared levels. The message names all of
            them.
        ConfigurationError
            A reference is not a level of a category.

        Warns
        -----
        DataWarning
            See :class:`SurvivalData`.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"age": [61, 70], "sex": ["f", "m"], "t": [12.0, 30.0], "died": [1, 0]})
        >>> data = SurvivalData.from_frame(
        ...     frame, time="t", event="died", categories={"sex": ["f", "m"]}, references={"sex": "f"}
        ... )
        >>> data.columns, data.levels
        (('age', 'sex=m'), ('sex=f', 'sex=m'))
        """
        frame = to_pandas(frame)
        encoded = encode_table(
            frame,
            aside={
                **asides(identifiers, id_column),
                time: lambda column: checked_times(numbers_of(column, TIMES), len(column)),
                event: lambda column: checked_events(numbers_of(column, EVENT_CODES), len(column)),
            },
            columns=columns,
            categories=categories,
            references=references,
        )
        data = cls(
            encoded.values,
            frame[time].to_numpy(dtype=np.float64, na_value=np.nan),
            frame[event].to_numpy(dtype=np.float64, na_value=np.nan),
            None if id_column is None else frame[id_column].tolist(),
            columns=encoded.columns,
            unit=unit,
            levels=encoded.levels,
        )
        return data.with_identifier(frame[list(identifiers)]) if identifiers else data

    @property
    def time(self) -> Floats:
        """Times, shape (n,)."""
        return self._time

    @property
    def event(self) -> NDArray[np.int8]:
        """Event codes, shape (n,): 0 for censored, 1 for the event, 2 and above for competing events."""
        return self._event

    @property
    def outcome(self) -> NDArray[Any]:
        """Events (bool, of cause 1) and times as one structured array, in the format of scikit-survival."""
        y = np.empty(len(self), dtype=[("event", np.bool_), ("time", np.float64)])
        y["event"], y["time"] = self._event == 1, self._time
        return y

    @property
    def unit(self) -> str:
        """Unit of the times."""
        return self._unit

    @property
    def parts(self) -> dict[str, int]:
        """Number of patients with an event, of any cause."""
        return {"an event": int((self._event > 0).sum())}

    def digest(self) -> str:
        """Return the SHA-256 of columns, times, events and identifiers, by which a resumed run identifies its data."""
        ids = None if self._ids is None else self._ids.tolist()
        names = repr((self._columns, self._unit, ids)) + self._levels_digest()
        digest = hashlib.sha256(names.encode() + self._identifier_digest())
        for array in (self._X, self._time, self._event):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def __repr__(self) -> str:
        n_events, n_columns = int((self._event > 0).sum()), len(self._columns)
        return (
            f"SurvivalData({_counted(len(self), 'patient')}, {_counted(n_events, 'event')}; "
            f"{_counted(n_columns, 'column')})"
        )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


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
            hint="Use the time from entry to the event or the end of follow-up; leave out patients without either.",
        )
    return values


def checked_events(event: ArrayLike, n_patients: int) -> NDArray[np.int8]:
    """Return events as an array of small integers.

    Raises
    ------
    DataError
        The number of events differs from `n_patients`, or events are missing or not integers from 0 to 100.

    Examples
    --------
    >>> checked_events([True, False, 2], 3)
    array([1, 0, 2], dtype=int8)
    """
    values = _numbers(event, n_patients, "event", EVENT_CODES)
    with np.errstate(invalid="ignore"):
        invalid = ~((values >= 0) & (values <= MAX_CAUSES) & (values == np.round(values)))
    if invalid.any():
        raise DataError(
            f"events must be integers from 0 to {MAX_CAUSES}; {int(invalid.sum())} of {n_patients} are not",
            where="event",
            hint=EVENT_CODES,
        )
    return values.astype(np.int8)


def _numbers(column: ArrayLike, n_patients: int, where: str, hint: str) -> Floats:
    if getattr(getattr(column, "dtype", None), "kind", "O") in "mM":
        raise DataError(f"{where} must be numbers; got dates or durations", where=where, hint=hint)
    try:
        values = np.array(column, dtype=np.float64)
    except (TypeError, ValueError):
        import pandas as pd

        cells = list(np.asarray(column, dtype=object).ravel())
        rows = [row for row, cell in enumerate(cells) if not reads_as_number(cell)]
        what = count_entries(rows, pd.Series(cells, name=where), "not a number", "not numbers")
        raise DataError(what, where=where, hint=hint) from None
    if values.shape != (n_patients,):
        raise DataError(f"{where} must have shape ({n_patients},); got {values.shape}", where=where, hint=hint)
    return values
