"""What the coordinator does to divide by a keyed hash: it compares keys, counts, and packs buckets into folds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, DataError, DisclosureRefused, RefusedByPolicy
from multicentre.federation.messages import Message, array, flag, texts
from multicentre.federation.session import Session
from multicentre.linkage.persons import check_identifiers, check_keys
from multicentre.validation.folds import site as sent
from multicentre.validation.folds.keyed import HashedFolds
from multicentre.validation.folds.plan import BUCKETS_A_FOLD, bucket_number, pack_buckets
from multicentre.validation.folds.splitter import check_classes

Integers = NDArray[np.int64]
FEW_TO_BALANCE = 4


@dataclass(frozen=True)
class Agreed(Message):
    """Whether small counts of a site may go into the sums."""

    exact: bool = flag("whether all counts may be told")


@dataclass(frozen=True)
class Crowded(Message):
    """Where many records share one identifier."""

    sites: tuple[str, ...] = texts("sites")


@dataclass(frozen=True)
class Packed(Message):
    """The fold of each bucket."""

    fold_of_bucket: Integers = array("fold of each bucket", ("B",), dtype="i8")
    balanced: bool = flag("whether buckets were packed by their counts")


def agree(session: Session, told: sent.Hashing) -> Agreed:
    """Check that all sites hold one key and know the same classes; return whether they may count exactly."""
    answers = session.ask(HashedFolds.tell_key, told)
    check_keys({site: answer.fingerprint for site, answer in answers.items()})
    check_identifiers(told.person_key, {site: answer.identifier for site, answer in answers.items()})
    check_classes({site: answer.n_classes for site, answer in answers.items()})
    spares_few = any(answer.spares_few for answer in answers.values())
    return Agreed(session.protection == "masked" or not spares_few)


def pack(session: Session, told: sent.Hashing, n_records: int, exact: bool) -> Packed:
    """Count records by bucket, pack the buckets into folds, and have the sites divide their records by them.

    Where sites may not count finely, a bucket is a fold, and folds are as equal as chance makes them.
    """
    n_buckets = bucket_number(n_records, told.n_splits) if exact else _finest(session, told)
    balanced = n_buckets >= FEW_TO_BALANCE * told.n_splits
    if balanced:
        fold_of_bucket = pack_buckets(bucket_table(session, told, n_buckets), told.n_splits)
    else:
        fold_of_bucket = np.arange(told.n_splits, dtype=np.int64)
    session.ask(HashedFolds.assign, sent.Packing(**_fields(told), fold_of_bucket=fold_of_bucket))
    return Packed(fold_of_bucket, balanced)


def bucket_table(
    session: Session, told: sent.Hashing, n_buckets: int, part: type[HashedFolds] = HashedFolds
) -> Integers:
    """Return records by bucket and class; of eight buckets a fold where a small site refuses more."""
    coarsest = BUCKETS_A_FOLD * told.n_splits
    try:
        asked = sent.Bucketing(**_fields(told), n_buckets=n_buckets)
        with session.handling_refusals():
            return session.sum(part.count_buckets, asked).records
    except RefusedByPolicy:
        if n_buckets <= coarsest:
            raise
    asked = sent.Bucketing(**_fields(told), n_buckets=coarsest)
    return session.sum(part.count_buckets, asked).records


def _finest(session: Session, told: sent.Hashing) -> int:
    return min(answer.n_buckets for answer in session.ask(HashedFolds.tell_fineness, told).values())


def _fields(told: sent.Hashing) -> dict[str, Any]:
    return {name: getattr(told, name) for name in sent.Hashing.declarations()}


def find_crowded(session: Session, told: sent.Hashing) -> Crowded:
    """Return the sites where many records share one identifier; "a site" where policies do not let that be told."""
    try:
        with session.handling_refusals():
            answers = session.ask(HashedFolds.tell_crowding, told)
    except (RefusedByPolicy, DisclosureRefused):
        return Crowded(("a site",))
    return Crowded(tuple(site for site, answer in answers.items() if answer.crowded))


def check_missing(n_missing: int, n_records: int, max_missing: float, where: str) -> None:
    """Raise DataError if more records than `max_missing`, as a share, have no identifier that can be read."""
    if not 0 <= max_missing <= 1:
        raise ConfigurationError("a share from 0 to 1 is needed", where="max_missing", hint="Take 0.01, say.")
    if n_missing > max_missing * n_records:
        raise DataError(
            f"{n_missing} of {n_records} records have no identifier that can be read",
            where=where,
            hint="Complete them at the sites; declare how each site writes dates (kind, date_order), and transcribe "
            "what is not in Latin letters. Or allow more with max_missing: these records will be in no fold.",
        )
