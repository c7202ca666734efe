"""Patients behind a site's records.

Minimum numbers and privacy budgets are per patient. A site that knows which of its records belong to one patient counts
patients. Any other site counts records, and its cards and ledgers say so.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError
from multicentre.federation.steps import SitePart
from multicentre.privacy.normalisation import normalise_identifier

Counted = Literal["patients", "records"]
Rows = NDArray[np.int64]
# Patients are numbered from 0; -1 sorts before them, so that records of unknown patients keep the number -1.
_NOBODY = -1
HOW_TO_NAME = (
    "Give each record the patient it belongs to (id_column or identifiers), or state one_row_per_patient = true where "
    "every record is of another patient."
)

ONE_RECORD = (
    "Give the site one record per patient (the latest, or the mean). A record without an identifier may belong to any "
    "patient."
)


@dataclass(frozen=True, eq=False)
class PatientCounts:
    """Numbers of patients behind some of a site's records.

    Parameters
    ----------
    covered : array of int, shape (n_patients,), optional
        Largest number of records of one patient, of two patients together and so on. None if no patient has two
        records.
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
        """Return how many of the records, whichever they are, belong to at least `n_patients` patients.

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
    """Patients to whom a site's records belong.

    Parameters
    ----------
    names : iterable of str or None, optional
        Patient of each record, None if missing: such a record may belong to any patient. Without names the patients of
        the records are not known, unless `one_each`.
    one_each : bool, default False
        Whether every record belongs to another patient.

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
        self._owner: Rows | None = None
        if names is not None:
            owner = [_NOBODY if name is None else numbers.setdefault(name, len(numbers)) for name in names]
            self._owner = np.array(owner, dtype=np.int64)
        self._names = tuple(numbers)
        self._one_each = one_each
        if one_each and self._owner is not None and np.any(np.bincount(self._owner + 1)[1:] > 1):
            raise ConfigurationError(
                "one_row_per_patient must be false where an identifier repeats; got true",
                where="one_row_per_patient",
                hint="Leave it out, or name the patients by id_column, which goes before identifiers.",
            )

    @property
    def counted(self) -> Counted:
        """True if patients can be counted, False if only records can."""
        return "records" if self._owner is None and not self._one_each else "patients"

    @property
    def names_all(self) -> bool:
        """True if the patient of every record is known."""
        return self._owner is not None and bool(np.all(self._owner != _NOBODY))

    @cached_property
    def most_records(self) -> int:
        """Largest number of records that one patient can have, as far as is known."""
        return 1 if self._everyone.covered is None else int(self._everyone.covered[0])

    @cached_property
    def _everyone(self) -> PatientCounts:
        return PatientCounts() if self._owner is None or self._one_each else _crowd_of(self._owner)

    def are_hidden_by(self, part: type[SitePart]) -> bool:
        """Return whether noise on the releases of a part hides each patient, and not only one record of several."""
        return self.most_records == 1 or (part.clips_persons and self.names_all)

    def among(self, rows: Rows | None = None) -> PatientCounts:
        """Return the numbers of patients behind the records at `rows`; behind all records by default."""
        if rows is None or self._owner is None or self._everyone.covered is None:
            return self._everyone
        return _crowd_of(self._owner[rows])

    def owners(self, rows: Rows | None = None, *, all_named: bool = True) -> Rows | None:
        """Return a number for the patient of each record, from 0; None if no patient has two records.

        Parameters
        ----------
        rows : array of int, optional
            The records; all by default.
        all_named : bool, default True
            Return None if the patient of some record of the site is not known; otherwise -1 for such a record.

        Examples
        --------
        >>> people = People(["b", None, "a", "b"])
        >>> people.owners(), people.owners(all_named=False).tolist()
        (None, [0, -1, 1, 0])
        """
        if self._owner is None or self.most_records == 1 or (all_named and not self.names_all):
            return None
        owner = self._owner if rows is None else self._owner[rows]
        numbers = np.unique(owner, return_inverse=True)[1].astype(np.int64)
        return numbers - int(np.any(owner == _NOBODY))

    def tokens(self, rows: Rows | None = None) -> tuple[list[str], Rows]:
        """Return the patient of each record and its place among the patient's records; empty if one is not known."""
        if self._owner is None or not self.names_all:
            return [], np.zeros(0, dtype=np.int64)
        chosen = np.arange(len(self._owner)) if rows is None else rows
        return [self._names[number] for number in self._owner[chosen]], self._places[chosen]

    @cached_property
    def _places(self) -> Rows:
        """Place of each record among those of its patient, from 0, in the order of the data."""
        assert self._owner is not None
        order = np.argsort(self._owner, kind="stable")
        sizes = np.bincount(self._owner)
        places = np.empty(len(order), dtype=np.int64)
        places[order] = np.arange(len(order)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return places


def _crowd_of(owner: Rows) -> PatientCounts:
    """Return the numbers of patients behind records; one without a name counts for the patient with most records."""
    sizes = np.bincount(owner + 1, minlength=1)
    n_unnamed, sizes = int(sizes[0]), sizes[1:]
    sizes = np.sort(sizes[sizes > 0])[::-1]
    if n_unnamed:
        sizes = sizes if len(sizes) else np.zeros(1, dtype=np.int64)
        sizes[0] += n_unnamed
    return PatientCounts() if not len(sizes) or sizes[0] == 1 else PatientCounts(np.cumsum(sizes))


def people_of(data: Any, site: str = "", *, one_row_per_patient: bool = False) -> People:
    """Return the patients to whom a site's records belong, according to its data.

    The first of these that applies decides: `ids` name the patient of each record; the first of its identifiers does,
    for at least one record; the class of data has one row per patient (``one_row_per_patient``); the study states it.

    Parameters
    ----------
    data : data
        Data of the site.
    site : str, optional
        Name of the site, for the error.
    one_row_per_patient : bool, default False
        Whether the study states that every record belongs to another patient.

    Raises
    ------
    ConfigurationError
        The study states it, and an identifier repeats.
    """
    ids, identifier = getattr(data, "ids", None), getattr(data, "identifier", None)
    if ids is not None:
        return People(str(one) for one in ids)
    column = [] if identifier is None else identifier.column(identifier.names[0])
    if all(one is None for one in column):
        return People(one_each=one_row_per_patient or bool(getattr(type(data), "one_row_per_patient", False)))
    spelt = (None if one is None else normalise_identifier(one) or one for one in column)
    try:
        return People(spelt, one_each=one_row_per_patient)
    except ConfigurationError as error:
        raise error.at(site) from None
