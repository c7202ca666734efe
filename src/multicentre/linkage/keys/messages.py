"""What the audit of a plan asks of a site, and what a site answers with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import array, count, number, text
from multicentre.federation.steps import Release
from multicentre.linkage.persons import Labelled, Persons

Integers = NDArray[np.int64]
MOST_RECORDS = 2.0**31
MARK_BOUND = 2.0**53


@dataclass(frozen=True)
class Reviewing(Persons):
    """Whose records to look at."""

    patient_key: str = text("identifiers by which a site knows the records of one patient; empty for none")


@dataclass(frozen=True)
class Checking(Labelled):
    """Into how many buckets to hash, and which people are still of interest."""

    n_buckets: int = count("number of buckets")
    turn: int = count("how many questions of this audit came before")
    mixed: Integers = array("buckets of the question before that hold people of several folds", ("m",), dtype="i8")


@dataclass(frozen=True)
class Reviewed(Release):
    """What a site finds of a plan among its own records."""

    records: float = number("records", unit="records", bound=MOST_RECORDS)
    excluded: float = number("records in no fold", unit="records", bound=MOST_RECORDS)
    missing: float = number("records in a fold without an identifier", unit="records", bound=MOST_RECORDS)
    persons: float = number("different persons in folds", unit="persons", bound=MOST_RECORDS)
    split: float = number("patients of the site with records in several folds", unit="patients", bound=MOST_RECORDS)


@dataclass(frozen=True)
class FoldMarks(Release):
    """Whether each bucket's people are all in one fold: two random numbers whose ratio modulo 1048573 is the fold."""

    marks: Integers = array("sum of random numbers, by bucket", ("M",), dtype="i8", bound=MARK_BOUND)
    weighted: Integers = array("sum of the same numbers times folds, by bucket", ("M",), dtype="i8", bound=MARK_BOUND)
