"""What scoring of classes sends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, count
from multicentre.federation.steps import Release
from multicentre.validation.scoring.judging import LARGEST_FIXED, RECORDS

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Edges(Message):
    """Log odds between bins, for each class that is ranked."""

    edges: Floats = array("log odds between bins", ("r", "e"))


@dataclass(frozen=True)
class Right(Release):
    """Records whose class is named, and the others."""

    counts: Integers = array(
        "records whose class is named, and the others", (2,), dtype="i8", bound=RECORDS, counts=True
    )


@dataclass(frozen=True)
class Losses(Release):
    """Sums of losses; whole numbers, so that they do not depend on how records are spread over sites."""

    n_records: int = count("records", unit="records", bound=RECORDS)
    log: int = count("sum of log losses, times 2^24", unit="nats", bound=LARGEST_FIXED)
    brier: int = count("sum of Brier scores, times 2^24", bound=LARGEST_FIXED)


@dataclass(frozen=True)
class Confusion(Release):
    """Records by true and by named class."""

    counts: Integers = array("records by true and by named class", ("k", "k"), dtype="i8", bound=RECORDS, counts=True)


@dataclass(frozen=True)
class Located(Release):
    """Records by log odds of each class that is ranked."""

    counts: Integers = array("records by coarse bin of log odds", ("r", "b"), dtype="i8", bound=RECORDS)


@dataclass(frozen=True)
class Ranked(Release):
    """Records without and with each class, by bin of its log odds."""

    counts: Integers = array("records without and with the class by bin", ("r", 2, "b"), dtype="i8", bound=RECORDS)
