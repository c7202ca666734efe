"""What a plan of folds asks of a site, what a site answers with, and what it remembers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, count, flag, number, text, texts
from multicentre.federation.steps import Release
from multicentre.linkage.persons import Persons

Integers = NDArray[np.int64]
MOST_RECORDS = 2.0**31
MOST_SPLITS = 100


@dataclass(frozen=True)
class Folds(Message):
    """The fold of every record, which stays where it was made."""

    fold: Integers = array("fold of each record, -1 for none", ("n",), dtype="i8")
    n_splits: int = count("number of folds")
    digest: str = text("what the site was told to divide by, as a hash")
    movable: int = count("patients in the smallest part that another plan could put elsewhere")
    source: str = text("what the parts come from, the same for all plans that can differ by a part; empty for none")
    keyed: bool = flag("whether a key that the coordinator lacks decides who is in a part")
    left_out: int = count("records that are in no fold for too few patients were in theirs")
    counted: bool = flag("whether the folds were found large enough")


@dataclass(frozen=True)
class Drawing(Message):
    """How to draw folds at random."""

    n_splits: int = count("number of folds")
    seed: int = count("seed of the site's own draw")
    patient_key: str = text("identifiers by which a site knows the records of one patient; empty for none")


@dataclass(frozen=True)
class Roster(Message):
    """All sites, each a fold of its own."""

    sites: tuple[str, ...] = texts("names of the sites, in the order of the folds")


@dataclass(frozen=True)
class Marking(Persons):
    """Into how many buckets people are hashed, to find those at several sites."""

    n_buckets: int = count("number of buckets")


@dataclass(frozen=True)
class Unshared(Persons):
    """All sites, each a fold of its own, and which people are left out of all."""

    roster: tuple[str, ...] = texts("names of the sites, in the order of the folds")
    shared: NDArray[np.bool_] = array("whether people of several sites are in a bucket", ("B",), dtype="b1")


@dataclass(frozen=True)
class RecordCount(Release):
    """How many records a site has."""

    records: float = number("records", unit="records", bound=MOST_RECORDS)


@dataclass(frozen=True)
class Occupied(Release):
    """How many sites have somebody in a bucket of the keyed hash."""

    sites: Integers = array("sites with somebody, by bucket", ("B",), dtype="i8", unit="sites", bound=1.0)


@dataclass(frozen=True)
class Hashing(Persons):
    """By what people are hashed, the same at all sites."""

    n_splits: int = count("number of folds")
    repeat: int = count("number of the repeat, part of what is hashed")
    patient_key: str = text("identifiers by which a site knows the records of one patient; empty for none")
    stratify: bool = flag("whether classes of the outcome are told apart")


@dataclass(frozen=True)
class Bucketing(Hashing):
    """Into how many buckets people are hashed."""

    n_buckets: int = count("number of buckets")


@dataclass(frozen=True)
class Packing(Hashing):
    """Which fold each bucket belongs to."""

    fold_of_bucket: Integers = array("fold of each bucket", ("B",), dtype="i8")


@dataclass(frozen=True)
class KeyTold(Release):
    """What a site holds apart from its patients."""

    concerns_patients: ClassVar[bool] = False
    fingerprint: str = text("eight digits that are the same for the same key; empty without one")
    spares_few: bool = flag("whether the site's policy asks for a minimum of patients")
    n_classes: int = count("classes of the outcome")
    identifier: str = text("name of the column that the default name of identifiers stands for")


@dataclass(frozen=True)
class Survey(Release):
    """How many records can be divided."""

    records: float = number("records", unit="records", bound=MOST_RECORDS)
    missing: float = number("records without an identifier", unit="records", bound=MOST_RECORDS)
    crowded: float = number("sites where many records share one identifier", bound=1.0)


@dataclass(frozen=True)
class Crowding(Release):
    """Whether many records of a site share one identifier."""

    crowded: bool = flag("whether one identifier is that of many more records than others are")


@dataclass(frozen=True)
class Fineness(Release):
    """How finely a site's records may be counted unmasked."""

    n_buckets: int = count("most buckets none of whose counts is of few patients; 0 for none")


@dataclass(frozen=True)
class BucketTable(Release):
    """Records by bucket of the keyed hash and class of the outcome."""

    records: Integers = array(
        "records, by bucket and class", ("B", "C"), dtype="i8", unit="records", bound=MOST_RECORDS
    )


@dataclass(frozen=True)
class FoldCounts(Release):
    """Records by fold and class of the outcome, and those in no fold."""

    records: Integers = array(
        "records, by fold and class", ("K", "C"), dtype="i8", unit="records", bound=MOST_RECORDS, counts=True
    )
    excluded: float = number("records in no fold", unit="records", bound=MOST_RECORDS)
    sites: Integers = array("sites with enough patients in and outside a fold", ("K",), dtype="i8", bound=1.0)
    left_out: float = number("those of them that were in folds of few patients", unit="records", bound=MOST_RECORDS)


@dataclass(frozen=True)
class DigestTold(Release):
    """What a site divided by, as a hash."""

    concerns_patients: ClassVar[bool] = False
    digest: str = text("hash of what the site divided by")
    n_classes: int = count("classes of the outcome")


@dataclass(frozen=True)
class Presence(Release):
    """For which folds a site has as many patients as its policy asks for."""

    inside: NDArray[np.bool_] = array("whether there are enough in the fold", ("K",), dtype="b1")
    outside: NDArray[np.bool_] = array("whether there are enough in the other folds", ("K",), dtype="b1")
