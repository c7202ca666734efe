"""What a plan of folds asks of a site, what a site answers with, and what it remembers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, count, flag, number, text, texts
from multicentre.federation.steps import Release

Integers = NDArray[np.int64]
MOST_RECORDS = 2.0**31
MOST_SPLITS = 100


@dataclass(frozen=True)
class Folds(Message):
    """The fold of every record, which stays where it was made."""

    fold: Integers = array("fold of each record, -1 for none", ("n",), dtype="i8")
    n_splits: int = count("number of folds")
    digest: str = text("what the site was told to divide by, as a hash")
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
class FoldCounts(Release):
    """Records by fold and class of the outcome, and those in no fold."""

    records: Integers = array("records, by fold and class", ("K", "C"), dtype="i8", unit="records", bound=MOST_RECORDS)
    excluded: float = number("records in no fold", unit="records", bound=MOST_RECORDS)


@dataclass(frozen=True)
class Presence(Release):
    """Which folds a site has records in, and what it was told to divide by."""

    present: NDArray[np.bool_] = array("whether the site has records in a fold", ("K",), dtype="b1")
    digest: str = text("hash of what the site divided by")
