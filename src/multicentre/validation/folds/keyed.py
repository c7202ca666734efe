"""Site part of folds by a keyed hash of the person of each record.

Sites share a key that the coordinator does not have. The coordinator receives counts of records by class and bucket of
the hash, and assigns buckets to folds. It cannot identify the persons.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.calls import suggest_masks
from multicentre.core.messages import Message
from multicentre.core.steps import Acknowledgement, step
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, RefusedByPolicy
from multicentre.linkage.persons import Persons, check_rules, outcome_strata
from multicentre.linkage.pseudonyms import PseudonymKey, Pseudonyms, pseudonymise
from multicentre.privacy.identifier_normalisation import normalise
from multicentre.validation.folds.group_sizes import fewest_patients
from multicentre.validation.folds.plan import BUCKETS_PER_FOLD, MAX_BUCKETS
from multicentre.validation.folds.site import (
    Bucketing,
    BucketTable,
    Fineness,
    FoldPart,
    Hashing,
    KeyFacts,
    Packing,
    RecordsPerIdentifier,
    Survey,
    count_table,
)
from multicentre.validation.folds.splitter import checked_splits

Integers = NDArray[np.int64]
Texts = Sequence[str | None]
# Number of records above which an identifier may be a placeholder; below it, a patient with many records is likelier.
MANY_RECORDS = 20
# Multiple of the mean number of records per person: patients rarely exceed it, placeholders of missing values do.
MANY_TIMES = 10
# Patients per bucket if all sites have the same size: the default minimum of a policy.
PATIENTS_BEHIND = 10
MISSING_HINT = (
    "Leave these records out at the site beforehand, or set id_column to name the patient of each record: records "
    "without a name may all belong to one patient."
)
NO_KEY = "the site must have the study's key of pseudonyms; it has none"
KEY_HINT = "One site generates the study's key and gives it to the others."


class HashedFolds(FoldPart):
    """Site part of folds by a keyed hash."""

    method: ClassVar[str] = "hashed-folds"
    revision: ClassVar[int] = 2
    _cached: tuple[tuple[object, ...], Pseudonyms] | None = None
    _previous_table: tuple[object, ...] | None = None

    @step(releases=KeyFacts, when="once")
    def describe_key(self, request: Hashing) -> KeyFacts:
        """Return a fingerprint of the study's key, and other properties that must be equal at all sites."""
        fingerprint = "" if self.key is None else self.key.fingerprint(request.study)
        return KeyFacts(fingerprint, self.least_behind > 1, outcome_strata(self.data)[1], self.default_identifier)

    @step(releases=Survey, when="once", summed=True)
    def count_missing(self, request: Hashing) -> Survey:
        """Count records, and those without an identifier."""
        pseudonyms = self._pseudonyms(request)
        if not self.masked and 0 < self.n_patients(~pseudonyms.present) < self.least_behind:
            raise DisclosureRefused(
                f"the patients without an identifier must be none or at least {self.least_behind}, because leaving out "
                "few would disclose them; got fewer",
                where=f"{self.site}, {request.person_key}",
                hint=suggest_masks(MISSING_HINT, protection="unmasked", n_sites=self.n_peers),
            )
        n_records = float(len(pseudonyms))
        return Survey(
            n_records, float(pseudonyms.n_missing), float(self._is_crowded(request)), patients=len(pseudonyms)
        )

    @step(releases=RecordsPerIdentifier, when="on request", refusable=True)
    def find_crowding(self, request: Hashing) -> RecordsPerIdentifier:
        """Flag an identifier with many records, for example a placeholder for missing identifiers."""
        return RecordsPerIdentifier(self._is_crowded(request), patients=len(self.data))

    @step(releases=Fineness, when="once")
    def find_fineness(self, request: Hashing) -> Fineness:
        """Return the largest number of buckets in which the site may count its records unmasked."""
        n_splits, fine = checked_splits(request.n_splits), 0
        n_buckets = n_splits
        while n_buckets <= MAX_BUCKETS and self._fewest_in_cells(request, n_buckets) >= self.least_behind:
            fine, n_buckets = n_buckets, 2 * n_buckets
        return Fineness(fine, patients=len(self.data))

    @step(releases=BucketTable, when="once", summed=True, refusable=True)
    def count_buckets(self, request: Bucketing) -> BucketTable:
        """Count records by bucket of the keyed hash and class of the outcome: one table per session."""
        table = self._table(request, self._checked_buckets(request, request.n_buckets))
        definition = (_fields(request), request.n_buckets)
        if self._previous_table not in (None, definition) and request.n_buckets != BUCKETS_PER_FOLD * request.n_splits:
            raise ConfigurationError(
                "the table must be the same throughout a session; got a request for a different one",
                where=self.method,
                hint="Make a new plan.",
            )
        self._previous_table = definition
        if self.masked:
            return BucketTable(table, patients=len(self.data))
        if self.least_behind > 1 and not is_halving(request.n_buckets, request.n_splits):
            raise ConfigurationError(
                f"n_buckets must be a power of 2 times the {request.n_splits} folds if sums are unmasked; got "
                f"{request.n_buckets}",
                where="n_buckets",
            )
        return BucketTable(table, patients=self._fewest(table))

    @step(releases=Acknowledgement, when="once")
    def assign(self, request: Packing) -> Acknowledgement:
        """Put each record into the fold of its bucket."""
        n_splits, packed = checked_splits(request.n_splits), request.fold_of_bucket
        n_buckets = self._checked_buckets(request, len(packed))
        if packed.min() < 0 or packed.max() >= n_splits:
            raise ConfigurationError(
                f"fold_of_bucket must be folds from 0 to {n_splits - 1}; got {packed.min()} to {packed.max()}",
                where="fold_of_bucket",
            )
        bucket = self._pseudonyms(request).buckets(n_buckets)
        smallest = fewest_patients(bucket, n_buckets, self.persons) if is_halving(n_buckets, n_splits) else 1
        self.settle(np.where(bucket < 0, -1, packed[bucket]), n_splits, request, movable=smallest, keyed=True)
        return Acknowledgement()

    def source_of(self, request: Message) -> str:
        """Return the purpose of the hash. Plans with the same purpose can differ by a bucket."""
        return purpose_of(request, self.within) if isinstance(request, Hashing) else ""

    def _pseudonyms(self, hashing: Hashing) -> Pseudonyms:
        fields = _fields(hashing)
        if self._cached is None or self._cached[0] != fields:
            self._cached = fields, self._new_pseudonyms(hashing)
        return self._cached[1]

    def _new_pseudonyms(self, hashing: Hashing) -> Pseudonyms:
        patients = self.patients_by(hashing.patient_key) if hashing.patient_key else None
        return hash_site(self, hashing, purpose_of(hashing, self.within), patients)

    def _checked_buckets(self, hashing: Hashing, n_buckets: int) -> int:
        """Return the number of buckets after checking that it is not too large for the size of the sites.

        The site's number of patients is rounded up to a power of two, because a refusal discloses something about it.
        """
        n_splits = checked_splits(hashing.n_splits)
        size = 1 << self.n_patients(np.ones(len(self.data), dtype=np.bool_)).bit_length()
        most = max(BUCKETS_PER_FOLD * n_splits, size * self.n_peers // PATIENTS_BEHIND)
        if self.least_behind > 1 and checked_buckets(n_buckets, n_splits) > most:
            raise RefusedByPolicy(
                f"n_buckets must be at most {most} for sites of this size; got {n_buckets}",
                where=self.site,
                hint=f"Use {BUCKETS_PER_FOLD} buckets per fold.",
            )
        return checked_buckets(n_buckets, n_splits)

    def _is_crowded(self, hashing: Hashing) -> bool:
        pseudonyms = self._pseudonyms(hashing)
        if hashing.patient_key:
            first = np.unique(self.patients_by(hashing.patient_key), return_index=True)[1]
            pseudonyms = Pseudonyms(pseudonyms.tokens[first], pseudonyms.present[first])
        return is_crowded(pseudonyms)

    def _strata(self, hashing: Hashing) -> tuple[Integers, int]:
        return outcome_strata(self.data) if hashing.stratify else (np.zeros(len(self.data), dtype=np.int64), 1)

    def _table(self, hashing: Hashing, n_buckets: int) -> Integers:
        strata, n_strata = self._strata(hashing)
        return count_table(self._pseudonyms(hashing).buckets(n_buckets), strata, n_buckets, n_strata)

    def _fewest_in_cells(self, hashing: Hashing, n_buckets: int) -> int:
        """Return the smallest number of patients in a non-empty cell of bucket and class."""
        (strata, n_strata), bucket = self._strata(hashing), self._pseudonyms(hashing).buckets(n_buckets)
        cell = np.where(bucket < 0, -1, bucket * n_strata + strata)
        return fewest_patients(cell, n_buckets * n_strata, self.persons)

    @staticmethod
    def _fewest(table: Integers) -> int:
        return int(table[table > 0].min(initial=table.sum()))


def hash_site(part: FoldPart, request: Persons, purpose: str, patients: Integers | None = None) -> Pseudonyms:
    """Return the pseudonyms of the persons of a site's records.

    Raises
    ------
    ConfigurationError
        As for `hash_people`, or the site has no key.
    DataError
        The site lacks the column, or a value is invalid; the error does not contain the value.
    """
    if not isinstance(part.key, PseudonymKey):
        raise ConfigurationError(NO_KEY, where=part.site, hint=KEY_HINT)
    values = part.identifiers(request.person_key)
    try:
        return _hash_values(values, patients, part.key, request, purpose, request.order_at(part.site))
    except DataError as refused:
        raise DataError(refused.what, where=f"{part.site}, {request.person_key}", hint=refused.hint) from None


def hash_people(
    values: Texts,
    patients: Integers | None,
    key: PseudonymKey,
    request: Hashing,
    date_order: Any,
    within: str = "",
) -> Pseudonyms:
    """Return the pseudonym of each record's person under a study's key.

    Parameters
    ----------
    values : sequence of str or None, shape (n,)
        Identifiers as recorded.
    patients : array of int, shape (n,), optional
        Number of each record's patient at the site; all records of a patient have one identifier.
    key : PseudonymKey
    request : Hashing
    date_order : {"iso", "ymd", "dmy", "mdy"}
    within : str
        Records of an inner plan, as determined at the site.

    Raises
    ------
    ConfigurationError
        The kind or the order is unknown, or the rules of normalisation are of another version.
    DataError
        A value is invalid.
    """
    return _hash_values(values, patients, key, request, purpose_of(request, within), date_order)


def _hash_values(
    values: Texts, patients: Integers | None, key: PseudonymKey, persons: Persons, purpose: str, date_order: Any
) -> Pseudonyms:
    check_rules(persons)
    kind: Any = persons.kind
    plain = normalise(values, kind, date_order=date_order)
    shared = plain if patients is None else share_identifiers(plain, patients)
    return pseudonymise(shared, key, purpose=purpose, kind=kind)


def purpose_of(request: Hashing, within: str = "") -> str:
    """Return the purpose of tokens: ``fold/v1/<study>/rep<r>/k<K>/by<terms>``, for inner plans with ``/outer<within>``.

    `within` is determined at the site, not by the coordinator. Plans with different numbers of folds have different
    hashes. Otherwise few people would be between the edges of a fifth and a sixth of one hash, and two fits would
    disclose them. Plans that read identifiers differently, and plans of other records, have different hashes too, so
    that their tables cannot be compared.
    """
    return f"fold/v1/{request.study}/rep{request.repeat}/k{request.n_splits}/by{hash_terms(request)}{inside(within)}"


def inside(within: str) -> str:
    """Return the end of a purpose, which identifies the hashed records; empty for all records."""
    return f"/outer{within}" if within else ""


def hash_terms(request: Persons) -> str:
    """Return 16 hex digits that identify the terms by which identifiers are read.

    They are the start of the SHA-256 digest of a JSON list without spaces: column, kind, version of the rules, sites
    with a specific order of dates, these orders, the order of the other sites, and the column of patients.

    Examples
    --------
    >>> hash_terms(Persons("study", "nr", "identifier", "v1", (), (), "iso"))
    'af64ed0a1688cfd2'
    """
    terms = [request.person_key, request.kind, request.rules, request.sites, request.date_orders, request.date_order]
    line = json.dumps([*terms, getattr(request, "patient_key", "")], separators=(",", ":"))
    return hashlib.sha256(line.encode()).hexdigest()[:16]


def _fields(hashing: Hashing) -> tuple[object, ...]:
    return tuple(getattr(hashing, name) for name in Hashing.declarations())


def share_identifiers(values: Texts, patients: Integers) -> list[str | None]:
    """Return the most common identifier of each record's patient, the smallest in case of ties; None without any.

    Parameters
    ----------
    values : sequence of str or None, shape (n,)
        Normalised.
    patients : array of int, shape (n,)

    Examples
    --------
    >>> share_identifiers(["b", None, "a", None], np.array([0, 0, 0, 1]))
    ['a', 'a', 'a', None]
    """
    counts_by_patient: dict[int, Counter[str]] = {}
    for patient, value in zip(patients.tolist(), values, strict=True):
        if value is not None:
            counts_by_patient.setdefault(patient, Counter())[value] += 1
    chosen = {
        patient: min(counts, key=lambda value: (-counts[value], value)) for patient, counts in counts_by_patient.items()
    }
    return [chosen.get(patient) for patient in patients.tolist()]


def checked_buckets(n_buckets: int, n_splits: int) -> int:
    """Return the number of buckets.

    Raises
    ------
    ConfigurationError
        It is below the number of folds, or above 4096 and more than 8 per fold.
    """
    most = max(MAX_BUCKETS, BUCKETS_PER_FOLD * n_splits)
    if not n_splits <= n_buckets <= most:
        raise ConfigurationError(f"n_buckets must be from {n_splits} to {most}; got {n_buckets}", where="n_buckets")
    return n_buckets


def is_halving(n_buckets: int, n_splits: int) -> bool:
    """Return True if buckets are folds divided by repeated halving, so that finer buckets are nested in coarser ones.

    Examples
    --------
    >>> [n_buckets for n_buckets in range(5, 50) if is_halving(n_buckets, 5)]
    [5, 10, 20, 40]
    """
    cut = n_buckets // n_splits
    return n_buckets == cut * n_splits and cut & (cut - 1) == 0


def is_crowded(pseudonyms: Pseudonyms) -> bool:
    """Return True if a pseudonym has more than 20 records, and more than ten times the mean number."""
    n_present = len(pseudonyms) - pseudonyms.n_missing
    n_people = max(n_present - pseudonyms.n_duplicates, 1)
    return pseudonyms.largest_group > max(MANY_RECORDS, MANY_TIMES * n_present / n_people)
