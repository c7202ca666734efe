"""Requests of a split by a keyed hash.

The protocol consists of:

1. Each site returns a fingerprint of its key and its number of classes. The coordinator checks that they are equal.
2. Each site returns the numbers of its records with and without an identifier.
3. Each site returns counts of its records by bucket of the hash and class of the outcome.
4. The coordinator packs the buckets into folds from the sums of these counts, and sends the fold of each bucket. Each
   site stores the folds of its records.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, flag, texts
from multicentre.core.session import Session
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, RefusedByPolicy
from multicentre.linkage.persons import check_identifiers, check_keys
from multicentre.validation.folds.keyed import HashedFolds
from multicentre.validation.folds.plan import BUCKETS_PER_FOLD, bucket_number, pack_buckets
from multicentre.validation.folds.site import Bucketing, Hashing, Packing
from multicentre.validation.folds.splitter import check_classes

Integers = NDArray[np.int64]
# Smallest number of buckets per fold for which packing by counts is useful.
FEW_TO_BALANCE = 4


@dataclass(frozen=True)
class Prepared(Message):
    """Permission to include small counts of a site in the sums."""

    exact: bool = flag("small counts may be included")


@dataclass(frozen=True)
class RepeatedIdentifiers(Message):
    """Sites where many records share one identifier."""

    sites: tuple[str, ...] = texts("sites")


@dataclass(frozen=True)
class Packed(Message):
    """Fold of each bucket."""

    fold_of_bucket: Integers = array("fold of each bucket", ("B",), dtype="i8")
    balanced: bool = flag("buckets were packed by their counts")


def agree(session: Session, hashing: Hashing) -> Prepared:
    """Check that all sites have the same key and classes; return the permission to count exactly."""
    answers = session.ask(HashedFolds.describe_key, hashing)
    check_keys({site: answer.fingerprint for site, answer in answers.items()})
    check_identifiers(hashing.person_key, {site: answer.identifier for site, answer in answers.items()})
    check_classes({site: answer.n_classes for site, answer in answers.items()})
    spares_few = any(answer.spares_few for answer in answers.values())
    return Prepared(session.protection == "masked" or not spares_few)


def pack(session: Session, hashing: Hashing, n_records: int, exact: bool) -> Packed:
    """Count records by bucket, pack the buckets into folds, and send the folds of the buckets to the sites.

    If sites may not count finely, a bucket is a fold, and the sizes of folds are random.
    """
    n_buckets = bucket_number(n_records, hashing.n_splits) if exact else _finest(session, hashing)
    balanced = n_buckets >= FEW_TO_BALANCE * hashing.n_splits
    if balanced:
        fold_of_bucket = pack_buckets(bucket_table(session, hashing, n_buckets), hashing.n_splits)
    else:
        fold_of_bucket = np.arange(hashing.n_splits, dtype=np.int64)
    session.ask(HashedFolds.assign, Packing(**_fields(hashing), fold_of_bucket=fold_of_bucket))
    return Packed(fold_of_bucket, balanced)


def bucket_table(session: Session, hashing: Hashing, n_buckets: int, part: type[HashedFolds] = HashedFolds) -> Integers:
    """Return records by bucket and class, with eight buckets per fold if a small site refuses more."""
    coarsest = BUCKETS_PER_FOLD * hashing.n_splits
    try:
        request = Bucketing(**_fields(hashing), n_buckets=n_buckets)
        with session.handling_refusals():
            return session.sum(part.count_buckets, request).records
    except RefusedByPolicy:
        if n_buckets <= coarsest:
            raise
    request = Bucketing(**_fields(hashing), n_buckets=coarsest)
    return session.sum(part.count_buckets, request).records


def _finest(session: Session, hashing: Hashing) -> int:
    return min(answer.n_buckets for answer in session.ask(HashedFolds.find_fineness, hashing).values())


def _fields(hashing: Hashing) -> dict[str, Any]:
    return {name: getattr(hashing, name) for name in Hashing.declarations()}


def find_crowded(session: Session, hashing: Hashing) -> RepeatedIdentifiers:
    """Return the sites where many records share one identifier; "a site" if a policy refuses the answer."""
    try:
        with session.handling_refusals():
            answers = session.ask(HashedFolds.find_crowding, hashing)
    except (RefusedByPolicy, DisclosureRefused):
        return RepeatedIdentifiers(("a site",))
    return RepeatedIdentifiers(tuple(site for site, answer in answers.items() if answer.crowded))


def check_missing(n_missing: int, n_records: int, max_missing: float, where: str) -> None:
    """Raise DataError if a larger share of records than `max_missing` has no readable identifier."""
    if not 0 <= max_missing <= 1:
        raise ConfigurationError(
            f"max_missing must be from 0 to 1; got {max_missing}", where="max_missing", hint="Example: 0.01."
        )
    if n_missing > max_missing * n_records:
        raise DataError(
            f"at most {max_missing:.3g} of the records may lack a readable identifier; got {n_missing} of {n_records}",
            where=where,
            hint="Complete the identifiers at the sites, declare the format of dates per site (kind, date_order), and "
            "transcribe identifiers into Latin letters; or increase max_missing. These records will have no fold.",
        )
