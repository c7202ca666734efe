"""Sparse tensor of co-occurrence counts: one mode for the patients, one per group of code systems."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.events.checking import (
    Floats,
    Integers,
    check_places,
    checked_codes,
    checked_entries,
    checked_ids,
    checked_outcomes,
    checked_rows,
    checked_size,
    sorted_entries,
)
from multicentre.data.events.counting import Limits, count_events
from multicentre.data.events.windows import Anchor, Windows
from multicentre.data.identifiers import Identified
from multicentre.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


class EventTensor(Identified):
    """Sparse counts of co-occurring codes of several modes (such as procedures and diagnoses), by patient.

    The entry of a patient and one code per mode counts the time windows in which the patient had all of these codes.
    Entries that are not listed are observed zeros, not missing values. The object is immutable; its methods return new
    objects. Most users create one with :meth:`from_events`.

    Parameters
    ----------
    coordinates : array of int, shape (nnz, N)
        Row of the patient, then position of the code in each mode; rows are unique.
    counts : array of shape (nnz,)
        Entries, from 1e-6 to 2^31.
    codes : mapping from str to sequence of str
        Codes of every mode, in the order of the coordinates' columns after the first. Codes are texts such as
        ``icd9cm-dx:4280``, unique in their mode.
    n_patients : int, optional
        Number of patients, including those without an entry; by default up to the last one with an entry.
    ids : sequence of str, optional
        One identifier per patient. No method sends it.
    outcomes : sequence of {0, 1}, optional
        One outcome per patient (such as death in hospital), for models of the outcome; factorisations do not use it.

    Raises
    ------
    DataError
        A coordinate is out of range or repeated, a count is out of range, or numbers of patients differ. The message
        counts the entries and never contains them.

    Examples
    --------
    >>> tensor = EventTensor([[0, 0, 1], [1, 1, 0]], [2.0, 1.0], {"procedure": ["p1", "p2"], "diagnosis": ["d1", "d2"]})
    >>> tensor
    EventTensor(2 patients; 2 procedure codes x 2 diagnosis codes; 2 entries)
    >>> tensor.patients_by_code("procedure").tolist()
    [1, 1]
    """

    one_row_per_patient: ClassVar[bool] = True
    __slots__ = ("_codes", "_coordinates", "_counts", "_ids", "_n_patients", "_outcomes")
    _codes: dict[str, tuple[str, ...]]
    _coordinates: Integers
    _counts: Floats
    _ids: NDArray[np.str_] | None
    _n_patients: int
    _outcomes: NDArray[np.int8] | None

    def __init__(
        self,
        coordinates: ArrayLike,
        counts: ArrayLike,
        codes: Mapping[str, Sequence[str]],
        *,
        n_patients: int | None = None,
        ids: Iterable[object] | None = None,
        outcomes: ArrayLike | None = None,
    ) -> None:
        self._codes = checked_codes(codes)
        places, self._counts = checked_entries(coordinates, counts, len(self._codes) + 1)
        n_with_entry = int(places[:, 0].max(initial=-1)) + 1
        self._n_patients = checked_size(n_patients, n_with_entry)
        check_places(places, self.shape)
        self._coordinates, self._counts = sorted_entries(places, self._counts)
        self._ids = None if ids is None else checked_ids(ids, self._n_patients)
        self._outcomes = None if outcomes is None else checked_outcomes(outcomes, self._n_patients)

    @classmethod
    def from_events(
        cls,
        events: object,
        *,
        modes: Mapping[str, str | Sequence[str]],
        window_days: int = 30,
        anchor: Anchor = "first_event",
        origin: str = "2000-01-01",
        columns: Mapping[str, str] | None = None,
        vocabulary: Mapping[str, Sequence[str]] | None = None,
        cap: int | None = None,
        binary: bool = False,
        max_entries: int | None = None,
        random_state: int = 0,
        outcomes: Mapping[object, int] | pd.Series | None = None,
        keep_empty: bool = False,
    ) -> Self:
        """Count co-occurring codes of several code systems in the same patients.

        An entry counts the windows in which the patient had all of its codes, each combination once per window.
        Repeated events count once. With ``anchor="sliding"``, an entry counts the choices of one event per mode on
        days that are at most `window_days` apart; an event is a patient, a day and a code. Patients and codes are
        sorted by name, so the order of rows has no effect.

        Parameters
        ----------
        events : pandas frame, polars frame (also lazy), arrow table or mapping from str to sequence
            One row per event, with columns ``patient``, ``date``, ``system`` and ``code``; with ``anchor="admission"``,
            ``admission`` replaces ``date``. Only the calendar day of a date is used, as written, regardless of the
            time zone. Codes are texts; dots, blanks and case are ignored in ICD codes.
        modes : mapping from str to str or sequence of str
            Code systems of every mode, such as ``{"procedure": "icd9cm-proc", "diagnosis": "icd9cm-dx"}``. Events
            of other systems are ignored. Systems that are not in `SYSTEMS` are permitted.
        window_days : int, default 30
            Length of a window in days. Day 30 belongs to the second window of 30 days.
        anchor : {"first_event", "calendar", "admission", "sliding"}, default "first_event"
            Start of the windows; see `Windows`. Windows of ``first_event`` begin at the first event of any mode.
        origin : str, default "2000-01-01"
            First day of a window of ``anchor="calendar"``.
        columns : mapping from str to str, optional
            Column names by role, if they differ from the role, such as ``{"patient": "subject_id"}``.
        vocabulary : mapping from str to sequence of str, optional
            Agreed codes of every mode, in order; other codes are not counted. By default all codes with an entry,
            sorted.
        cap : int, optional
            Largest count; higher counts are set to it.
        binary : bool, default False
            Set every count to 1.
        max_entries : int, optional
            Maximum number of entries per patient; excess entries are dropped at random, independently per patient.
        random_state : int, default 0
            Seed of that draw, at least 0.
        outcomes : mapping from patient to {0, 1} or pandas Series, optional
            Outcome of every patient; patients without events are ignored.
        keep_empty : bool, default False
            Include patients of the table without an entry. Otherwise their number is written to the log
            ``multicentre.data.events``.

        Raises
        ------
        ConfigurationError
            Two modes have the same code system, a code system is unknown, or an argument is out of range.
        DataError
            A column is missing; cells are missing or unreadable (the message counts them); a mode has no event; no
            patient has codes of every mode in one window; patients have no outcome.

        Warns
        -----
        CodesReadAsNumbers
            Codes were read as integers: leading zeros may be lost.

        References
        ----------
        J. Ma, Q. Zhang, J. Lou, J. C. Ho, L. Xiong, X. Jiang (2019), Privacy-preserving tensor factorization for
        collaborative health data analysis, CIKM, section 5.1.

        Examples
        --------
        >>> rows = {
        ...     "patient": ["a", "a", "a", "b"],
        ...     "date": ["2020-01-01", "2020-01-30", "2020-01-31", "2020-01-01"],
        ...     "system": ["icd9cm-proc", "icd9cm-dx", "icd9cm-dx", "icd9cm-dx"],
        ...     "code": ["39.95", "585.6", "428.0", "428.0"],
        ... }
        >>> tensor = EventTensor.from_events(rows, modes={"procedure": "icd9cm-proc", "diagnosis": "icd9cm-dx"})
        >>> tensor.codes
        {'procedure': ('icd9cm-proc:3995',), 'diagnosis': ('icd9cm-dx:5856',)}
        """
        parts = count_events(
            events,
            modes,
            Windows(anchor, window_days, origin),
            columns=columns,
            vocabulary=vocabulary,
            limits=Limits(cap, binary, max_entries, random_state),
            outcomes=outcomes,
            keep_empty=keep_empty,
        )
        return cls(
            parts.coordinates,
            parts.counts,
            parts.codes,
            n_patients=len(parts.ids),
            ids=parts.ids,
            outcomes=parts.outcomes,
        )

    @property
    def modes(self) -> tuple[str, ...]:
        """Names of the modes, without the patients."""
        return tuple(self._codes)

    @property
    def codes(self) -> dict[str, tuple[str, ...]]:
        """Codes of every mode."""
        return dict(self._codes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of patients, followed by the number of codes of every mode."""
        return (self._n_patients, *(len(names) for names in self._codes.values()))

    @property
    def coordinates(self) -> Integers:
        """Patient and codes of every entry, shape (nnz, N), sorted; read-only."""
        return self._coordinates

    @property
    def counts(self) -> Floats:
        """Entries, shape (nnz,), read-only."""
        return self._counts

    @property
    def nnz(self) -> int:
        """Number of non-zero entries."""
        return len(self._counts)

    @property
    def ids(self) -> NDArray[np.str_] | None:
        """Identifiers of the patients, shape (n,), or None. Private to the site."""
        return self._ids

    @property
    def outcomes(self) -> NDArray[np.int8] | None:
        """Outcomes of the patients, shape (n,), or None. Private to the site."""
        return self._outcomes

    @property
    def n_patients(self) -> int:
        """Number of patients."""
        return self._n_patients

    @property
    def parts(self) -> dict[str, int]:
        """Number of patients with an entry, by mode; equal for all modes, because an entry has a code of every mode."""
        return dict.fromkeys(self._codes, len(np.unique(self._coordinates[:, 0])))

    def __len__(self) -> int:
        return self._n_patients

    def __repr__(self) -> str:
        sizes = " x ".join(f"{len(names)} {mode} codes" for mode, names in self._codes.items())
        return f"EventTensor({self._n_patients} patients; {sizes}; {self.nnz} entries)"

    def patients_by_code(self, mode: str) -> NDArray[np.int64]:
        """Return the number of patients with an entry of each code of a mode, shape (codes,).

        Raises
        ------
        DataError
            The mode is unknown.
        """
        axis = self._axis(mode)
        size = self.shape[axis]
        pairs = np.unique(self._coordinates[:, 0].astype(np.int64) * size + self._coordinates[:, axis])
        return np.bincount(pairs % size, minlength=size)

    def take(self, rows: ArrayLike) -> Self:
        """Return the patients at `rows`, with all codes.

        Parameters
        ----------
        rows : array of int, or of bool with shape (n,)
            Patients to return, each once; integers also define their order.

        Raises
        ------
        DataError
            No patient is selected, one is repeated, or a row does not exist.
        """
        chosen = checked_rows(rows, self._n_patients)
        place = np.full(self._n_patients, -1, dtype=np.int32)
        place[chosen] = np.arange(len(chosen), dtype=np.int32)
        is_chosen = place[self._coordinates[:, 0]] >= 0
        coordinates = self._coordinates[is_chosen]
        coordinates[:, 0] = place[coordinates[:, 0]]
        taken = type(self)(
            coordinates,
            self._counts[is_chosen],
            self._codes,
            n_patients=len(chosen),
            ids=None if self._ids is None else self._ids[chosen].tolist(),
            outcomes=None if self._outcomes is None else self._outcomes[chosen],
        )
        return self._carried_to(taken, chosen)

    def align(self, codes: Mapping[str, Sequence[str]]) -> Self:
        """Return the same patients with other lists of codes; entries with an unlisted code are left out.

        Parameters
        ----------
        codes : mapping from str to sequence of str
            Codes of every mode, in the required order; may include codes that these patients lack.

        Raises
        ------
        DataError
            The modes differ.
        """
        if tuple(codes) != self.modes:
            raise DataError(
                f"codes must have the modes {', '.join(self.modes)}; got {', '.join(codes)}",
                where="modes",
                hint="Use the same modes in the same order at every site.",
            )
        coordinates = self._coordinates.copy()
        for axis, (mode, names) in enumerate(codes.items(), start=1):
            place = {name: position for position, name in enumerate(names)}
            moved = np.array([place.get(name, -1) for name in self._codes[mode]], dtype=np.int32)
            coordinates[:, axis] = moved[coordinates[:, axis]] if len(moved) else -1
        is_listed = (coordinates >= 0).all(axis=1)
        aligned = type(self)(
            coordinates[is_listed],
            self._counts[is_listed],
            codes,
            n_patients=self._n_patients,
            ids=None if self._ids is None else self._ids.tolist(),
            outcomes=self._outcomes,
        )
        return self._carried_to(aligned)

    def keep_columns(self, names: Iterable[str]) -> Self:
        """Return the data with only these codes; the name of a mode selects all its codes.

        Raises
        ------
        DataError
            A mode would have no code.
        """
        selected = set(names)
        codes_by_mode = {
            mode: codes if mode in selected else tuple(code for code in codes if code in selected)
            for mode, codes in self._codes.items()
        }
        for mode, codes in codes_by_mode.items():
            if not codes:
                raise DataError(
                    "at least one code per mode must remain; none does",
                    where=f"mode {mode!r}",
                    hint="Name at least one of its codes.",
                )
        return self.align(codes_by_mode)

    def digest(self) -> str:
        """Return the SHA-256 of codes, ids, outcomes and entries, by which a resumed run identifies its data."""
        outcomes = None if self._outcomes is None else self._outcomes.tolist()
        ids = None if self._ids is None else self._ids.tolist()
        digest = hashlib.sha256(
            repr((self._codes, self._n_patients, ids, outcomes)).encode() + self._identifier_digest()
        )
        digest.update(self._coordinates.tobytes())
        digest.update(self._counts.tobytes())
        return digest.hexdigest()

    def _axis(self, mode: str) -> int:
        if mode not in self._codes:
            raise DataError(
                f"mode must be one of {', '.join(self._codes)}; got {mode!r}",
                where=f"mode {mode!r}",
                hint="Correct the name.",
            )
        return 1 + self.modes.index(mode)
