"""Site part of the count of people over sites: occupied buckets of a keyed hash, released only in masked sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, array, count, number, texts
from multicentre.core.steps import Release, step
from multicentre.errors import ConfigurationError, DataError
from multicentre.linkage.duplicates.rate import normalise_controls
from multicentre.linkage.keys.union import LEAST_BUCKETS, MOST_BUCKETS, mark_buckets
from multicentre.linkage.persons import KeyedPart, Labelled, Persons, check_rules, outcome_strata
from multicentre.privacy.identifier_normalisation import normalise

Integers = NDArray[np.int64]

# Largest number of records of a site, for masking: about 2 billion, far more than a site has.
MOST_RECORDS = 2.0**31

# Largest range of exact integers in float64; random multiples of 65521 then hide marks up to 7e-12 per further site.
MARK_BOUND = 2.0**53


@dataclass(frozen=True)
class Counting(Persons):
    """Persons to count, without test patients."""

    controls: tuple[str, ...] = texts("identifiers of test patients")


@dataclass(frozen=True)
class Marking(Labelled):
    """Number of buckets of the hash, and class of the outcome of the people to hash."""

    controls: tuple[str, ...] = texts("identifiers of test patients")
    n_buckets: int = count("number of buckets")
    stratum: int = count("class of the outcome; -1 for all")


@dataclass(frozen=True)
class Sizes(Release):
    """Numbers of records and persons of a site."""

    records: float = number("records", unit="records", bound=MOST_RECORDS)
    missing: float = number("records without an identifier", unit="records", bound=MOST_RECORDS)
    persons: float = number("different persons", unit="persons", bound=MOST_RECORDS)
    sites: int = count("1 if a record has an identifier, else 0", bound=1)
    by_class: Integers = array(
        "different persons among the records of each class of the outcome",
        ("C",),
        dtype="i8",
        unit="persons",
        bound=MOST_RECORDS,
        counts=True,
    )


@dataclass(frozen=True)
class PresentControls(Release):
    """Test patients of a site."""

    present: Integers = array("1 for each test patient that is present", ("c",), dtype="i8", bound=1.0)


@dataclass(frozen=True)
class Marks(Release):
    """Occupied buckets: a random multiple of 65521 if a bucket is empty, another random number if not."""

    marks: Integers = array("mark of each bucket", ("M",), dtype="i8", bound=MARK_BOUND)


Texts = list[str | None]

# One question for all records and one per class, of up to 100 classes; each answer reveals one more total.
MOST_QUESTIONS = 101


class DuplicatesPart(KeyedPart):
    """Site part of duplicate rates."""

    method: ClassVar[str] = "duplicate-rate"
    lengths: ClassVar[Lengths] = {
        "c": "test patients of the analyst",
        "C": "classes of the outcome",
        "M": "buckets that persons are hashed into",
    }
    _n_questions: int = 0

    @step(releases=PresentControls, when="once", summed=True)
    def find_controls(self, request: Counting) -> PresentControls:
        """Return the test patients that are present; strings that could be a person's identifier are not looked up."""
        self.check_masked()
        identifiers = set(self._normalised(request))
        controls = normalise_controls(request.controls, request.kind)
        present = np.array([int(one in identifiers) for one in controls], dtype=np.int64)
        return PresentControls(present, patients=len(self.data))

    @step(releases=Sizes, when="once", summed=True)
    def count_persons(self, request: Counting) -> Sizes:
        """Count records, different persons, and records without an identifier."""
        self.check_masked()
        is_counted, texts = self._persons(request, request.controls)
        strata, n_strata = outcome_strata(self.data)
        by_class = [_n_different(texts, is_counted & (strata == stratum)) for stratum in range(n_strata)]
        n_missing = sum(text is None for text in texts)
        n_records = int(is_counted.sum()) + n_missing
        return Sizes(
            float(n_records),
            float(n_missing),
            float(_n_different(texts, is_counted)),
            int(is_counted.any()),
            np.array(by_class, dtype=np.int64),
            patients=len(self.data),
        )

    @step(releases=Marks, when="every round", summed=True)
    def mark(self, request: Marking) -> Marks:
        """Mark the occupied buckets of a keyed hash, under a label that is used once."""
        self.check_masked()
        if not LEAST_BUCKETS <= request.n_buckets <= MOST_BUCKETS:
            raise ConfigurationError(
                f"n_buckets must be from {LEAST_BUCKETS} to {MOST_BUCKETS}; got {request.n_buckets}", where="n_buckets"
            )
        self._n_questions += 1
        if self._n_questions > MOST_QUESTIONS:
            raise ConfigurationError(
                f"a session must have at most {MOST_QUESTIONS} questions; got {self._n_questions}",
                where=self.site,
                hint="Start a new session.",
            )
        label = self.use_label(request.nonces)
        is_counted, _ = self._persons(request, request.controls)
        raw = self.identifiers(request.person_key)
        values = [raw[row] for row in np.flatnonzero(is_counted & self._of_class(request.stratum))]
        buckets = self.tokens(values, request, f"duplicates/v1/{label}").buckets(request.n_buckets)
        return Marks(mark_buckets(buckets, request.n_buckets, MARK_BOUND), patients=len(self.data))

    def _persons(self, persons: Persons, controls: Sequence[str]) -> tuple[NDArray[np.bool_], Texts]:
        """Return flags of the records with an identifier, except test patients, and all normalised identifiers."""
        texts, test_patients = self._normalised(persons), set(normalise_controls(controls, persons.kind))
        return np.array([text is not None and text not in test_patients for text in texts], dtype=np.bool_), texts

    def _normalised(self, persons: Persons) -> Texts:
        check_rules(persons)
        kind: Any = persons.kind
        try:
            return normalise(self.identifiers(persons.person_key), kind, date_order=persons.order_at(self.site))
        except DataError as refused:
            raise refused.at(persons.person_key) from None

    def _of_class(self, stratum: int) -> NDArray[np.bool_]:
        strata, n_strata = outcome_strata(self.data)
        if not -1 <= stratum < n_strata:
            raise ConfigurationError(
                f"stratum must be a class from 0 to {n_strata - 1}, or -1 for all; got {stratum}", where="stratum"
            )
        return np.ones(len(strata), dtype=np.bool_) if stratum == -1 else strata == stratum


def _n_different(texts: Texts, is_counted: NDArray[np.bool_]) -> int:
    return len({texts[row] for row in np.flatnonzero(is_counted)})
