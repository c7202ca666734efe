"""Patients with columns at entry, and the time until an event or the end of their follow-up."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.events.checking import checked_ids
from multicentre.data.identifiers import Identified
from multicentre.data.outcomes import checked_events, checked_times
from multicentre.data.table import check_present, checked_columns, encode_frame
from multicentre.federation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


class SurvivalData(Identified):
    """Right-censored times of one site's patients.

    Parameters
    ----------
    X : array of shape (n, d) or pandas frame
        What is known of a patient at entry, as numbers; NaN for missing. See :meth:`from_frame` for categories.
    time : array of shape (n,)
        Time from entry to the event or to the end of follow-up, above or equal to 0, in `unit`.
    event : array of shape (n,)
        1 or True where the event happened, 0 where follow-up ended before. With competing risks 2, 3, ... stand for
        events of other causes.
    ids : sequence, optional
        Identifiers of the patients; they never leave.
    columns : sequence of str, optional
        Names of the columns; a frame's own, or x0, x1, ... otherwise.
    unit : str, default ""
        Unit of the times ("days"); sites must name the same one.

    Raises
    ------
    DataError
        A time is negative, missing or infinite, an event is not a whole number from 0, lengths differ, or there is no
        patient. The message says how many, never which.

    Examples
    --------
    >>> data = SurvivalData([[61.0, 1.0], [70.0, 0.0]], [12.0, 30.0], [1, 0], columns=["age", "stage"])
    >>> data
    SurvivalData(2 patients, 1 event; 2 columns)
    >>> data.outcome["time"].tolist()
    [12.0, 30.0]
    """

    __slots__ = ("_X", "_columns", "_event", "_ids", "_time", "_unit")

    def __init__(
        self,
        X: ArrayLike | pd.DataFrame,
        time: ArrayLike,
        event: ArrayLike,
        ids: Iterable[object] | None = None,
        *,
        columns: Sequence[str] | None = None,
        unit: str = "",
    ) -> None:
        self._X, self._columns = checked_columns(X, columns)
        n_patients = len(self._X)
        self._time = checked_times(time, n_patients)
        self._event = checked_events(event, n_patients)
        self._ids = None if ids is None else checked_ids(ids, n_patients)
        self._unit = str(unit)
        for own in (self._X, self._time, self._event):
            own.setflags(write=False)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        time: str,
        event: str,
        columns: Sequence[str] | None = None,
        categories: Mapping[str, Sequence[object]] | None = None,
        id_column: str | None = None,
        identifiers: Sequence[str] = (),
        unit: str = "",
    ) -> Self:
        """Take the columns of a table; each level of a category becomes a column ``name=level`` of zeros and ones.

        Parameters
        ----------
        frame : pandas frame
            One row a patient.
        time, event : str
            Names of the columns with times and events.
        columns : sequence of str, optional
            Those to use; all others by default.
        categories : mapping of str to sequence, optional
            Levels of every column that holds categories, the same at all sites. A missing one has zeros throughout.
        id_column : str, optional
            Column of names of the patients.
        identifiers : sequence of str
            Columns by which a patient is known at other sites too; they never leave.
        unit : str
            Unit of the times.

        Raises
        ------
        DataError
            A column is absent, holds texts without declared levels, or a level that was not declared.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"age": [61, 70], "sex": ["f", "m"], "t": [12.0, 30.0], "died": [1, 0]})
        >>> SurvivalData.from_frame(frame, time="t", event="died", categories={"sex": ["f", "m"]}).columns
        ('age', 'sex=f', 'sex=m')
        """
        left_out = [time, event, id_column, *identifiers]
        check_present(frame, [name for name in left_out if name is not None])
        chosen = [name for name in frame.columns if name not in left_out] if columns is None else list(columns)
        values, names = encode_frame(frame, chosen, categories or {})
        ids = None if id_column is None else frame[id_column].tolist()
        data = cls(values, frame[time].to_numpy(), frame[event].to_numpy(), ids, columns=names, unit=unit)
        return data.with_identifier(frame[list(identifiers)]) if identifiers else data

    @property
    def X(self) -> Floats:  # noqa: N802
        """Columns at entry, shape (n, d); NaN where missing."""
        return self._X

    @property
    def time(self) -> Floats:
        """Times, shape (n,)."""
        return self._time

    @property
    def event(self) -> NDArray[np.int8]:
        """0 for censored, 1 for the event, 2 and above for competing events, shape (n,)."""
        return self._event

    @property
    def outcome(self) -> NDArray[Any]:
        """Events (bool, of cause 1) and times as one structured array, as scikit-survival takes them."""
        y = np.empty(len(self), dtype=[("event", np.bool_), ("time", np.float64)])
        y["event"], y["time"] = self._event == 1, self._time
        return y

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self._columns

    @property
    def unit(self) -> str:
        """Unit of the times."""
        return self._unit

    @property
    def ids(self) -> NDArray[np.str_] | None:
        """Identifiers of the patients, shape (n,), if any were given."""
        return self._ids

    @property
    def parts(self) -> dict[str, int]:
        """Number of patients with an event, of any cause."""
        return {"an event": int((self._event > 0).sum())}

    def take(self, rows: ArrayLike) -> Self:
        """Return the patients at `rows`."""
        chosen = np.asarray(rows)
        ids = None if self._ids is None else self._ids[chosen].tolist()
        taken = type(self)(
            self._X[chosen], self._time[chosen], self._event[chosen], ids, columns=self._columns, unit=self._unit
        )
        return self._carried_to(taken, chosen)

    def keep_columns(self, names: Iterable[str]) -> Self:
        """Return the data with only the columns that a policy names; ``sex`` stands for all of ``sex=...``.

        Raises
        ------
        DataError
            None of the columns is named.
        """
        allowed = set(names)
        kept = [place for place, name in enumerate(self._columns) if {name, name.partition("=")[0]} & allowed]
        if not kept:
            raise DataError("no column remains", where="columns", mend="Name some of the site's columns.")
        chosen = [self._columns[place] for place in kept]
        ids = None if self._ids is None else self._ids.tolist()
        fewer = type(self)(self._X[:, kept], self._time, self._event, ids, columns=chosen, unit=self._unit)
        return self._carried_to(fewer)

    def digest(self) -> str:
        """Return the SHA-256 of columns, times, events and identifiers, by which a resumed run knows its data."""
        ids = None if self._ids is None else self._ids.tolist()
        digest = hashlib.sha256(repr((self._columns, self._unit, ids)).encode() + self._identifier_digest())
        for array in (self._X, self._time, self._event):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self._time)

    def __repr__(self) -> str:
        n_events, n_columns = int((self._event > 0).sum()), len(self._columns)
        return (
            f"SurvivalData({_counted(len(self), 'patient')}, {_counted(n_events, 'event')}; "
            f"{_counted(n_columns, 'column')})"
        )


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")
