"""Counts of codes that occur together in the same patients: one mode for the patients, one for each code system."""

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
from multicentre.federation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd


class EventTensor(Identified):
    """How often codes of several modes (procedures and diagnoses, say) occur together, by patient; sparse.

    The entry of a patient and one code a mode counts the windows of time in which the patient had all of them. Entries
    that are not listed are zero: they are observations, not gaps. The object cannot be changed; its methods return new
    ones. Most users make one with :meth:`from_events`.

    Parameters
    ----------
    coordinates : array of int, shape (nnz, N)
        Row of the patient, then position of the code in each mode; no row twice.
    counts : array of shape (nnz,)
        Entries, from 1e-6 to 2^31.
    codes : mapping from str to sequence of str
        Codes of every mode, in the order of the coordinates' columns after the first. Codes are texts such as
        ``icd9cm-dx:4280``, each once in its mode.
    n_patients : int, optional
        Number of patients, those without an entry among them; by default up to the last one with an entry.
    ids : sequence of str, optional
        One identifier a patient. No method sends it.
    outcomes : sequence of {0, 1}, optional
        One outcome a patient (died in hospital, say), for models of the outcome; methods that factorise do not see it.

    Raises
    ------
    DataError
        A coordinate is out of range or listed twice, a count is out of range, or numbers of patients differ. The
        message says how many, never which.

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
        n_seen = int(places[:, 0].max(initial=-1)) + 1
        self._n_patients = checked_size(n_patients, n_seen)
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
        """Count how often codes of several systems occur together in the same patients.

        An entry counts the windows in which the patient had all of its codes, each combination once a window; an event
        that is listed twice is one event. With ``anchor="sliding"`` it counts the choices of one event a mode, on days
        that are at most `window_days` apart, an event being a patient, a day and a code. Patients and codes are sorted
        by name, so that the order of rows does not matter.

        Parameters
        ----------
        events : pandas frame, polars frame or mapping from str to sequence
            One row an event, with columns ``patient``, ``date``, ``system`` and ``code``; ``admission`` in place of
            ``date`` with ``anchor="admission"``. Only the calendar day of a date is used, as written, whatever the
            time zone. Codes are texts; dots, blanks and lower case do not matter in ICD codes.
        modes : mapping from str to str or sequence of str
            The code systems of every mode, such as ``{"procedure": "icd9cm-proc", "diagnosis": "icd9cm-dx"}``; events
            of other systems are set aside. The package knows those of `SYSTEMS`; others may be named here.
        window_days : int, default 30
            Length of a window in days. Day 30 belongs to the second window of 30 days.
        anchor : {"first_event", "calendar", "admission", "sliding"}, default "first_event"
            Where windows begin; see `Windows`. Windows of ``first_event`` begin at the first event of any mode.
        origin : str, default "2000-01-01"
            First day of a window of ``anchor="calendar"``.
        columns : mapping from str to str, optional
            Names of columns that have other names, such as ``{"patient": "subject_id"}``.
        vocabulary : mapping from str to sequence of str, optional
            Codes of every mode that sites agreed on, in their order; other codes are not counted. By default the codes
            that have an entry, sorted.
        cap : int, optional
            Largest count; higher ones are set to it.
        binary : bool, default False
            Set every count to 1.
        max_entries : int, optional
            Keep at most so many entries a patient, drawn at random for each patient alone.
        random_state : int, default 0
            Seed of that draw, at least 0.
        outcomes : mapping from patient to {0, 1} or pandas Series, optional
            Outcome of every patient; patients who have no events are passed over.
        keep_empty : bool, default False
            Keep patients of the table who have no entry. Otherwise the log ``multicentre.data.events`` of this process
            says how many are left out.

        Raises
        ------
        ConfigurationError
            Modes share a code system or name one that is not known, or another argument is out of range.
        DataError
            A column is missing; cells are missing or cannot be read (the message says how many); a mode has no event;
            no patient has codes of every mode together; patients have no outcome.

        Warns
        -----
        CodesReadAsNumbers
            Codes arrived as whole numbers: zeros at their beginning may be lost.

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
        """Names of the modes, patients left out."""
        return tuple(self._codes)

    @property
    def codes(self) -> dict[str, tuple[str, ...]]:
        """Codes of every mode."""
        return dict(self._codes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of patients, then of codes of every mode."""
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
        """Number of entries that are not zero."""
        return len(self._counts)

    @property
    def ids(self) -> NDArray[np.str_] | None:
        """Identifiers of the patients, shape (n,), if any were given. Private to the site."""
        return self._ids

    @property
    def outcomes(self) -> NDArray[np.int8] | None:
        """Outcomes of the patients, shape (n,), if any were given. Private to the site."""
        return self._outcomes

    @property
    def n_patients(self) -> int:
        """Number of patients."""
        return self._n_patients

    @property
    def parts(self) -> dict[str, int]:
        """Number of patients with an entry, by mode; the same in each, for an entry has a code of every mode."""
        return dict.fromkeys(self._codes, len(np.unique(self._coordinates[:, 0])))

    def __len__(self) -> int:
        return self._n_patients

    def __repr__(self) -> str:
        sizes = " x ".join(f"{len(names)} {mode} codes" for mode, names in self._codes.items())
        return f"EventTensor({self._n_patients} patients; {sizes}; {self.nnz} entries)"

    def patients_by_code(self, mode: str) -> NDArray[np.int64]:
        """Return how many patients have an entry with each code of a mode, shape (codes,).

        Raises
        ------
        DataError
            There is no such mode.
        """
        axis = self._axis(mode)
        size = self.shape[axis]
        pairs = np.unique(self._coordinates[:, 0].astype(np.int64) * size + self._coordinates[:, axis])
        return np.bincount(pairs % size, minlength=size)

    def take(self, rows: ArrayLike) -> Self:
        """Return the patients at `rows`; all codes stay.

        Parameters
        ----------
        rows : array of int, or of bool with shape (n,)
            Which patients, each once; integers also say in which order.

        Raises
        ------
        DataError
            No patient is chosen, one is chosen twice, or a row does not exist.
        """
        chosen = checked_rows(rows, self._n_patients)
        place = np.full(self._n_patients, -1, dtype=np.int32)
        place[chosen] = np.arange(len(chosen), dtype=np.int32)
        kept = place[self._coordinates[:, 0]] >= 0
        coordinates = self._coordinates[kept]
        coordinates[:, 0] = place[coordinates[:, 0]]
        taken = type(self)(
            coordinates,
            self._counts[kept],
            self._codes,
            n_patients=len(chosen),
            ids=None if self._ids is None else self._ids[chosen].tolist(),
            outcomes=None if self._outcomes is None else self._outcomes[chosen],
        )
        return self._carried_to(taken, chosen)

    def align(self, codes: Mapping[str, Sequence[str]]) -> Self:
        """Return the same patients over other lists of codes; entries with a code that is not listed are left out.

        Parameters
        ----------
        codes : mapping from str to sequence of str
            Codes of every mode, in the wanted order; they may name codes that these patients lack.

        Raises
        ------
        DataError
            The modes differ.
        """
        if tuple(codes) != self.modes:
            raise DataError(
                f"the modes are {', '.join(codes)}, here they are {', '.join(self.modes)}",
                where="modes",
                hint="Give every site the same modes in the same order.",
            )
        coordinates = self._coordinates.copy()
        for axis, (mode, names) in enumerate(codes.items(), start=1):
            place = {name: position for position, name in enumerate(names)}
            moved = np.array([place.get(name, -1) for name in self._codes[mode]], dtype=np.int32)
            coordinates[:, axis] = moved[coordinates[:, axis]] if len(moved) else -1
        kept = (coordinates >= 0).all(axis=1)
        aligned = type(self)(
            coordinates[kept],
            self._counts[kept],
            codes,
            n_patients=self._n_patients,
            ids=None if self._ids is None else self._ids.tolist(),
            outcomes=self._outcomes,
        )
        return self._carried_to(aligned)

    def keep_columns(self, names: Iterable[str]) -> Self:
        """Return the data with only the codes of these names; the name of a mode stands for all its codes.

        Raises
        ------
        DataError
            A mode would have no code.
        """
        wanted = set(names)
        kept = {
            mode: codes if mode in wanted else tuple(code for code in codes if code in wanted)
            for mode, codes in self._codes.items()
        }
        for mode, codes in kept.items():
            if not codes:
                raise DataError("no code would remain", where=f"mode {mode!r}", hint="Name at least one of its codes.")
        return self.align(kept)

    def digest(self) -> str:
        """Return the SHA-256 of codes, identifiers, outcomes and entries, by which a resumed run knows its data."""
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
            raise DataError("there is no such mode", where=f"mode {mode!r}", hint=f"It has {', '.join(self._codes)}.")
        return 1 + self.modes.index(mode)
