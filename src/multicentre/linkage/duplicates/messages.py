"""What counting people over sites asks of a site, and what a site answers with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import array, count, number, texts
from multicentre.federation.steps import Release
from multicentre.linkage.persons import Labelled, Persons

Integers = NDArray[np.int64]
MOST_RECORDS = 2.0**31
MARK_BOUND = 2.0**53


@dataclass(frozen=True)
class Counting(Persons):
    """Whom to count, test patients left out."""

    controls: tuple[str, ...] = texts("identifiers of test patients")


@dataclass(frozen=True)
class Marking(Labelled):
    """Into how many buckets people are hashed, and of which class of the outcome they are."""

    controls: tuple[str, ...] = texts("identifiers of test patients")
    n_buckets: int = count("number of buckets")
    stratum: int = count("class of the outcome; -1 for all")


@dataclass(frozen=True)
class Sizes(Release):
    """How many records and persons a site has."""

    records: float = number("records", unit="records", bound=MOST_RECORDS)
    missing: float = number("records without an identifier", unit="records", bound=MOST_RECORDS)
    persons: float = number("different persons", unit="persons", bound=MOST_RECORDS)
    sites: int = count("whether some record has an identifier", bound=1)
    by_class: Integers = array(
        "different persons among the records of each class of the outcome",
        ("C",),
        dtype="i8",
        unit="persons",
        bound=MOST_RECORDS,
        counts=True,
    )


@dataclass(frozen=True)
class Found(Release):
    """Which test patients a site knows."""

    found: Integers = array("1 for a test patient that is known", ("c",), dtype="i8", bound=1.0)


@dataclass(frozen=True)
class Marks(Release):
    """Which buckets hold somebody: a random number that is no multiple of 65521 where one does, else a multiple."""

    marks: Integers = array("mark of each bucket", ("M",), dtype="i8", bound=MARK_BOUND)
