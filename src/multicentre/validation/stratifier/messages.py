"""What the choice of a covariate asks of a site, what a site answers with, and what it remembers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, count, text, texts
from multicentre.federation.steps import Release
from multicentre.statistics.quantiles.messages import Thresholds

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
RECORDS = 2.0**31
PILOTED = 2.0**24
LARGEST_RATIO = 32.0


@dataclass(frozen=True)
class Described(Release):
    """Names of what a site has; nothing about any patient."""

    columns: tuple[str, ...] = texts("names of the columns", public=True)
    identifiers: tuple[str, ...] = texts("names of the columns of identifiers", public=True)
    outcome: tuple[str, ...] = texts("kind of the outcome, and the names of its classes", public=True)


@dataclass(frozen=True)
class Candidates(Message):
    """Which columns are looked at."""

    columns: tuple[str, ...] = texts("names of the columns")
    person_key: str = text("identifiers by which a site knows the records of one patient; empty for none")
    n_bins: int = count("parts that each column is cut into, at most")


@dataclass(frozen=True)
class Cuts(Thresholds):
    """Thresholds of the columns, and, after them, of an outcome that is a number or a time."""


@dataclass(frozen=True)
class Screened(Release):
    """Records by part of every column and class of the outcome, and how stable the columns are."""

    records: Floats = array("records, by part and class", ("d", "b", "c"), unit="records", bound=RECORDS)
    missing: Integers = array("records without a value", ("d",), dtype="i8", unit="records", bound=RECORDS)
    repeated: Integers = array("patients with several values", ("d",), dtype="i8", unit="patients", bound=RECORDS)
    stable: Integers = array("of them, those whose values agree", ("d",), dtype="i8", unit="patients", bound=RECORDS)


@dataclass(frozen=True)
class Trial(Message):
    """The pilot that every site runs on its own records."""

    columns: tuple[str, ...] = texts("columns to cut folds by")
    model: str = text("kind of the small model")
    n_splits: int = count("number of folds")
    n_rounds: int = count("rounds of boosting")
    seed: int = count("seed of the site's own random folds")


@dataclass(frozen=True)
class Piloted(Release):
    """What a site adds to the means of its pilot over all sites, by column."""

    n_sites: Floats = array("1 where the site could run it", ("d",), bound=1)
    weight: Floats = array("records", ("d",), unit="records", bound=PILOTED)
    weight_squared: Floats = array("their square", ("d",), bound=PILOTED**2)
    ratio: Floats = array("records times the ratio of the two scores", ("d",), bound=PILOTED * LARGEST_RATIO)
    ratio_squared: Floats = array("records times its square", ("d",), bound=PILOTED * LARGEST_RATIO**2)
    drawn: Floats = array("records times the score of random folds", ("d",), bound=PILOTED)


@dataclass(frozen=True)
class Asked(Message):
    """What a site was asked, so that it answers no other ask in the same session."""

    columns: tuple[str, ...] = texts("names of the columns")
    person_key: str = text("identifiers by which records of one patient are known")
    n_bins: int = count("parts that each column is cut into, at most")
    screened: str = text("hash of the thresholds that were asked about")
    piloted: str = text("hash of the pilot that was asked for")


@dataclass(frozen=True)
class Chosen(Message):
    """What the coordinator keeps of the sites' descriptions."""

    columns: tuple[str, ...] = texts("candidates")
    identifiers: tuple[str, ...] = texts("columns of identifiers that all sites have")
    outcome: tuple[str, ...] = texts("kind of the outcome, and the names of its classes")
