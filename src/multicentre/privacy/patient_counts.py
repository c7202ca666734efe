"""Patients behind a site's records.

Minimum numbers and privacy budgets are per patient. A site that can assign its records to patients counts patients. Any
other site counts records, and its cards and ledgers state this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.core.steps import SitePart
from multicentre.errors import ConfigurationError
from multicentre.privacy.identifier_normalisation import normalise_identifier

Counted = Literal["patients", "records"]
Rows = NDArray[np.int64]
# Patients are numbered from 0; -1 sorts before them, so that records without a patient keep the number -1.
_NO_PATIENT = -1
HOW_TO_NAME = (
    "Name the patient of each record (id_column or identifiers), or set one_row_per_patient = true if every record "
    "belongs to a different patient."
)

ONE_RECORD = (
    "Reduce the site's data to one record per patient (the latest, or the mean). A record without an identifier may "
    "belong to any patient."
)


@dataclass(frozen=True, eq=False)
class PatientCounts:
    """Numbers of patients behind some of a site's records.

    Parameters
    ----------
    covered : array of int, shape (n_patients,), optional
        Largest number of records of one patient, of two patients, and so on. None if no patient has two records.
    """

    covered: Rows | None = None

    def fewest(self, n_records: int) -> int:
        """Return the smallest number of patients to whom `n_records` of the records can belong.

        Examples
        --------
        >>> counts = PatientCounts(np.array([3, 5, 6]))
        >>> [counts.fewest(n) for n in (0, 3, 4, 6)]
        [0, 1, 2, 3]
        """
        if self.covered is None or n_records <= 0:
            return n_records
        return min(int(np.searchsorted(self.covered, n_records)) + 1, len(self.covered))

    def records_of(self, n_patients: int) -> int:
        """Return the number of records, of any selection, that guarantees at least `n_patients` patients.

        If there are fewer patients, it is one more than the number of records.

        Examples
        --------
        >>> counts = PatientCounts(np.array([3, 5, 6]))
        >>> [counts.records_of(n) for n in (0, 1, 2, 3, 4)]
        [0, 1, 4, 6, 7]
        """
        if self.covered is None or n_patients <= 1:
            return n_patients
        return int(self.covered[min(n_patients - 2, len(self.covered) - 1)]) + 1


class People:
    """Patients of a site's records.

    Parameters
    ----------
    names : iterable of str or None, optional
        Patient of each record. A record without a patient (None) may belong to any patient. Without `names`, the
        patients are unknown, unless `one_each` is set.
    one_each : bool, default False
        True if every record belongs to a different patient.

    Raises
    ------
    ConfigurationError
        `one_each` is set and a name repeats.

    Examples
    --------
    >>> people = People(["a", "b", "a", "a"])
    >>> people.most_records, people.among().fewest(3), people.among().fewest(4)
    (3, 1, 2)
    """

    def __init__(self, names: Iterable[str | None] | None = None, *, one_each: bool = False) -> None:
        numbers: dict[str, int] = {}
        self._patients: Rows | None = None
        if names is not None:
            patients = [_NO_PATIENT if name is None else numbers.setdefault(name, len(numbers)) for name in names]
            self._patients = np.array(patients, dtype=np.int64)
        self._names = tuple(numbers)
        self._one_each = one_each
        if one_each and self._patients is not None and np.any(np.bincount(self._patients + 1)[1:] > 1):
            raise ConfigurationError(
                "one_row_per_patient must be false if an identifier repeats; got true",
                where="one_row_per_patient",
                hint="Leave it out, or name an identifier first that no two patients share, also next to an id_column.",
            )

    @property
    def counted(self) -> Counted:
        """Unit of counts: "patients", or "records" if records cannot be assigned to patients."""
        return "records" if self._patients is None and not self._one_each else "patients"

    @property
    def names_all(self) -> bool:
        """True if every record has a patient."""
        return self._patients is not None and bool(np.all(self._patients != _NO_PATIENT))

    @cached_property
    def most_records(self) -> int:
        """Largest number of records that one patient can have; 1 if records cannot be assigned to patients."""
        return 1 if self._everyone.covered is None else int(self._everyone.covered[0])

    @cached_property
    def _everyone(self) -> PatientCounts:
        return PatientCounts() if self._patients is None or self._one_each else _count_patients(self._patients)

    def are_hidden_by(self, part: type[SitePart]) -> bool:
        """Return whether noise on the releases of a part hides each patient, and not only one of several records."""
        return self.most_records == 1 or (part.clips_persons and self.names_all)

    def among(self, rows: Rows | None = None) -> PatientCounts:
        """Return the numbers of patients behind the records at `rows`; by default behind all records."""
        if rows is None or self._patients is None or self._everyone.covered is None:
            return self._everyone
        return _count_patients(self._patients[rows])

    def patient_numbers(self, rows: Rows | None = None, *, all_named: bool = True) -> Rows | None:
        """Return the number of each record's patient, from 0; None if no patient has two records.

        Parameters
        ----------
        rows : array of int, optional
            Records; by default all.
        all_named : bool, default True
            If True, return None if any record of the site has no patient. If False, the number of such a record is -1.

        Examples
        --------
        >>> people = People(["b", None, "a", "b"])
        >>> people.patient_numbers(), people.patient_numbers(all_named=False).tolist()
        (None, [0, -1, 1, 0])
        """
        if self._patients is None or self.most_records == 1 or (all_named and not self.names_all):
            return None
        patients = self._patients if rows is None else self._patients[rows]
        numbers = np.unique(patients, return_inverse=True)[1].astype(np.int64)
        return numbers - int(np.any(patients == _NO_PATIENT))

    def tokens(self, rows: Rows | None = None) -> tuple[list[str], Rows]:
        """Return the patient of each record and its place among the patient's records; empty if any has no patient."""
        if self._patients is None or not self.names_all:
            return [], np.zeros(0, dtype=np.int64)
        chosen = np.arange(len(self._patients)) if rows is None else rows
        return [self._names[number] for number in self._patients[chosen]], self._places[chosen]

    @cached_property
    def _places(self) -> Rows:
        """Place of each record among those of its patient, from 0, in the order of the data."""
        assert self._patients is not None
        order = np.argsort(self._patients, kind="stable")
        sizes = np.bincount(self._patients)
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return places


def _count_patients(patients: Rows) -> PatientCounts:
    """Return the numbers of patients behind records; those without a patient are added to the largest patient."""
    sizes = np.bincount(patients + 1, minlength=1)
    n_without_patient, sizes = int(sizes[0]), sizes[1:]
    sizes = np.sort(sizes[sizes > 0])[::-1]
    if n_without_patient:
        sizes = sizes if len(sizes) else np.zeros(1, dtype=np.int64)
        sizes[0] += n_without_patient
    return PatientCounts() if not len(sizes) or sizes[0] == 1 else PatientCounts(np.cumsum(sizes))


def people_of(data: Any, site: str = "", *, one_row_per_patient: bool = False) -> People:
    """Return the patients of a site's records.

    The first applicable rule is used:

    1. `ids` name the patient of each record. Ids with the same first identifier count as one patient, since ids may be
       those of encounters.
    2. The first column of identifiers names the patient of at least one record.
    3. The class of the data, or the study, states that there is one row per patient (``one_row_per_patient``).

    Parameters
    ----------
    data : data
        Data of the site.
    site : str, optional
        Name of the site, for the error.
    one_row_per_patient : bool, default False
        True if the study states that every record belongs to a different patient.

    Raises
    ------
    ConfigurationError
        `one_row_per_patient` is set, and an identifier repeats.
    """
    ids, identifier = getattr(data, "ids", None), getattr(data, "identifier", None)
    column = [] if identifier is None else identifier.column(identifier.names[0])
    is_named = any(one is not None for one in column)
    if ids is None and not is_named:
        return People(one_each=one_row_per_patient or bool(getattr(type(data), "one_row_per_patient", False)))
    names = [None if one is None else normalise_identifier(one) or one for one in column]
    if ids is not None:
        names = _coarser([str(one) for one in ids], names) if is_named else [str(one) for one in ids]
    try:
        return People(names, one_each=one_row_per_patient)
    except ConfigurationError as error:
        raise error.at(site) from None


def _coarser(ids: Sequence[str], names: Sequence[str | None]) -> list[str | None]:
    """Return one id for all records that are linked by the same id or the same name.

    Examples
    --------
    >>> _coarser(["1", "2", "2", "3"], ["ann", "ann", None, "bob"])
    ['1', '1', '1', '3']
    """
    _, by_id = np.unique(ids, return_inverse=True)
    keys = [f"id {one}" if name is None else f"name {name}" for one, name in zip(ids, names, strict=True)]
    _, by_name = np.unique(keys, return_inverse=True)
    first = np.arange(len(ids))
    while True:
        before = first
        for groups in (by_id, by_name):
            smallest = np.full(len(ids), len(ids))
            np.minimum.at(smallest, groups, first)
            first = smallest[groups]
        if np.array_equal(first, before):
            return [ids[place] for place in first.tolist()]
