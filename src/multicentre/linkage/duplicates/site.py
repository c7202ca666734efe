"""Site part of the count of people over sites: occupied buckets of a keyed hash, released only in masked sums.

A person at a site is represented by one record. People are compared by up to four keys. For each combination of keys, a
site marks the buckets of the hash of all of them together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, array, arrays, count, number, text, texts
from multicentre.core.steps import Release, step
from multicentre.errors import ConfigurationError, DataError
from multicentre.linkage.duplicates.rate import normalise_controls
from multicentre.linkage.keys.occupied_buckets import MAX_BUCKETS, MIN_BUCKETS, mark_buckets
from multicentre.linkage.keys.person_keys import (
    MAX_KEYS,
    People,
    PersonKey,
    combinations,
    count_agreeing_pairs,
    join_keys,
)
from multicentre.linkage.persons import NONCE_BYTES, KeyedPart, Nonces, Persons, check_rules, outcome_strata
from multicentre.privacy.identifier_normalisation import normalise

Integers = NDArray[np.int64]
Texts = list[str | None]

# Largest number of records of a site, for masking: about 2 billion, far more than a site has.
MAX_RECORDS = 2.0**31

# Largest range of exact integers in float64; random multiples of 65521 then hide marks up to 7e-12 per further site.
MARK_BOUND = 2.0**53

# Far above the number of pairs with which an interval is computed; larger numbers are sent as this one.
MAX_PAIRS = 2.0**45


@dataclass(frozen=True)
class Counting(Persons):
    """Persons to count, without test patients, and the keys that identify them."""

    controls: tuple[str, ...] = texts("identifiers of test patients")
    patient_key: str = text("column that identifies a patient at a site; empty for none")
    key_columns: dict[str, tuple[str, ...]] = texts("columns of each key of a person", keyed=True)
    key_kinds: dict[str, tuple[str, ...]] = texts("kind of each of these columns", keyed=True)

    @property
    def keys(self) -> list[PersonKey]:
        """Keys of a person, in the order of their names."""
        return [PersonKey(self.key_columns[name], self.key_kinds.get(name, ())) for name in sorted(self.key_columns)]


@dataclass(frozen=True)
class Agreeing(Counting):
    """Number of persons at all sites, for the expected number of different people who agree in a key by chance."""

    persons: float = number("persons at all sites", unit="persons")


@dataclass(frozen=True)
class Marking(Counting):
    """Number of buckets of the hash, combination of keys, and class of the outcome of the people to hash."""

    nonces: Nonces = arrays("random nonce of each site for this question", (NONCE_BYTES,), dtype="u1")
    n_buckets: int = count("number of buckets")
    stratum: int = count("class of the outcome; -1 for all")
    combination: int = count("keys that are hashed together: the sum of 2^k over them, k from 0")


@dataclass(frozen=True)
class Sizes(Release):
    """Numbers of records and persons of a site."""

    records: float = number("records", unit="records", bound=MAX_RECORDS)
    missing: float = number("records without any of the keys", unit="records", bound=MAX_RECORDS)
    persons: float = number("different persons", unit="persons", bound=MAX_RECORDS)
    sites: int = count("1 if a record has a key, else 0", bound=1)
    by_class: Integers = array(
        "different persons among the records of each class of the outcome",
        ("C",),
        dtype="i8",
        unit="persons",
        bound=MAX_RECORDS,
        counts=True,
    )
    values: Integers = array(
        "different values of each combination of keys, among all persons and among those of each class",
        ("S", "G"),
        dtype="i8",
        unit="values",
        bound=MAX_RECORDS,
    )


@dataclass(frozen=True)
class Agreement(Release):
    """Agreement of the keys in two records of one patient of a site, and in records of different patients."""

    repeated: Integers = array(
        "patients whose first and last record agree, and who do not: in any key, and in each",
        ("A", 2),
        dtype="i8",
        unit="patients",
        bound=MAX_RECORDS,
        counts=True,
    )
    chance: float = number(
        "pairs of different patients that agree in a key, times the other sites' persons per further patient here",
        unit="pairs",
        bound=MAX_PAIRS,
    )
    chance_variance: float = number("variance of this number", unit="pairs^2", bound=MAX_PAIRS)


@dataclass(frozen=True)
class PresentControls(Release):
    """Test patients of a site."""

    present: Integers = array("1 for each test patient that is present", ("c",), dtype="i8", bound=1.0)


@dataclass(frozen=True)
class Marks(Release):
    """Occupied buckets: a random multiple of 65521 if a bucket is empty, another random number if not."""

    marks: Integers = array("mark of each bucket", ("M",), dtype="i8", bound=MARK_BOUND)


# One question per combination of keys, for all records and for each class; each answer reveals one more total.
MAX_QUESTIONS = 101


class DuplicatesPart(KeyedPart):
    """Site part of duplicate rates."""

    method: ClassVar[str] = "duplicate-rate"
    lengths: ClassVar[Lengths] = {
        "A": "any key of a person, and each",
        "c": "test patients of the analyst",
        "C": "classes of the outcome",
        "G": "all persons, and those of each class of the outcome",
        "M": "buckets that persons are hashed into",
        "S": "combinations of keys",
    }
    _n_questions: int = 0

    @step(releases=PresentControls, when="once", summed=True)
    def find_controls(self, request: Counting) -> PresentControls:
        """Return the test patients that are present; strings that could be a person's identifier are not looked up."""
        self.check_masked()
        controls = normalise_controls(request.controls, request.kind)
        identifiers = set(self._plain_identifiers(request))
        present = np.array([int(one in identifiers) for one in controls], dtype=np.int64)
        return PresentControls(present, patients=len(self.data))

    @step(releases=Sizes, when="once", summed=True)
    def count_persons(self, request: Counting) -> Sizes:
        """Count records, different persons, different values of keys, and records without any key."""
        self.check_masked()
        rows = self._counted_rows(request)
        strata, n_strata = outcome_strata(self.data)
        everybody = self._people(request, rows)
        groups = [everybody, *(self._people(request, rows[strata[rows] == one]) for one in range(n_strata))]
        return Sizes(
            float(len(rows)),
            float(everybody.n_missing),
            float(len(everybody.first)),
            int(everybody.n_missing < len(rows)),
            np.array([len(people.first) for people in groups[1:]], dtype=np.int64),
            np.array([people.count_values() for people in groups], dtype=np.int64).T,
            patients=len(self.data),
        )

    @step(releases=Agreement, when="once", summed=True)
    def count_agreement(self, request: Agreeing) -> Agreement:
        """Count patients whose first and last record agree in a key, and pairs of different patients that do."""
        self.check_masked()
        if not request.patient_key:
            raise ConfigurationError(
                "patient_key must be a column that identifies a patient at the site; got none", where=self.site
            )
        people = self._people(request, self._counted_rows(request))
        n_here = len(people.first)
        # Each further patient of the site stands for this many persons of other sites.
        weight = max(min(request.persons, MAX_RECORDS) - n_here, 0.0) / max(n_here - 1, 1)
        n_pairs = count_agreeing_pairs(people.first_values())
        return Agreement(
            people.count_repeated(),
            min(n_pairs * weight, MAX_PAIRS),
            min(n_pairs * weight**2, MAX_PAIRS),
            patients=len(self.data),
        )

    @step(releases=Marks, when="every round", summed=True)
    def mark(self, request: Marking) -> Marks:
        """Mark the occupied buckets of a keyed hash, under a label that is used once."""
        self.check_masked()
        self._check_question(request)
        label = self.use_label(request.nonces)
        rows = self._counted_rows(request)
        people = self._people(request, rows[self._of_class(request.stratum)[rows]])
        keys = combinations(len(people.values))[request.combination - 1]
        joined = join_keys(people.first_values(), keys)
        present: Texts = [value for value in joined if value is not None]
        tokens = self.tokens(present, replace(request, kind="combined"), f"duplicates/v2/{label}")
        marks = mark_buckets(tokens.buckets(request.n_buckets), request.n_buckets, MARK_BOUND)
        return Marks(marks, patients=len(self.data))

    def _check_question(self, request: Marking) -> None:
        """Raise ConfigurationError if the buckets or keys are out of range, or the session had too many questions."""
        if not MIN_BUCKETS <= request.n_buckets <= MAX_BUCKETS:
            raise ConfigurationError(
                f"n_buckets must be from {MIN_BUCKETS} to {MAX_BUCKETS}; got {request.n_buckets}", where="n_buckets"
            )
        if not 1 <= request.combination < 2 ** len(request.key_columns):
            raise ConfigurationError(
                f"combination must be from 1 to {2 ** len(request.key_columns) - 1}; got {request.combination}",
                where="combination",
            )
        self._n_questions += 1
        if self._n_questions > MAX_QUESTIONS:
            raise ConfigurationError(
                f"a session must have at most {MAX_QUESTIONS} questions; got {self._n_questions}",
                where=self.site,
                hint="Start a new session.",
            )

    def _people(self, request: Counting, rows: Integers) -> People:
        """Return the persons of some records."""
        check_rules(request)
        if not 1 <= len(request.key_columns) <= MAX_KEYS:
            raise ConfigurationError(
                f"there must be from 1 to {MAX_KEYS} keys; got {len(request.key_columns)}", where="key_columns"
            )
        values = [self._values(key, request) for key in request.keys]
        patients = self.identifiers(request.patient_key) if request.patient_key else None
        return People.of(
            [[column[row] for row in rows] for column in values],
            None if patients is None else [patients[row] for row in rows],
        )

    def _values(self, key: PersonKey, request: Counting) -> Texts:
        try:
            return key.values(self.identifiers, request.order_at(self.site))
        except DataError as refused:
            raise refused.at(str(key)) from None

    def _counted_rows(self, request: Counting) -> Integers:
        """Return the records that are not of test patients."""
        controls = set(normalise_controls(request.controls, request.kind))
        if not controls:
            return np.arange(len(self.data))
        return np.flatnonzero([text not in controls for text in self._plain_identifiers(request)])

    def _plain_identifiers(self, request: Counting) -> Texts:
        """Return the normalised column that contains test patients."""
        check_rules(request)
        kind: Any = request.kind
        try:
            return normalise(self.identifiers(request.person_key), kind, date_order=request.order_at(self.site))
        except DataError as refused:
            raise refused.at(request.person_key) from None

    def _of_class(self, stratum: int) -> NDArray[np.bool_]:
        strata, n_strata = outcome_strata(self.data)
        if not -1 <= stratum < n_strata:
            raise ConfigurationError(
                f"stratum must be a class from 0 to {n_strata - 1}, or -1 for all; got {stratum}", where="stratum"
            )
        return np.ones(len(strata), dtype=np.bool_) if stratum == -1 else strata == stratum
