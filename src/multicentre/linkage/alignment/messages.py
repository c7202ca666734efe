"""Requests and answers of the alignment of records."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, arrays, count, flag, texts
from multicentre.core.steps import Release
from multicentre.linkage.persons import Persons

# 128 bits of pseudonym distinguish any number of patients; a seal is a whole SHA-256 hash.
PSEUDONYM_BYTES, SEAL_BYTES = 16, 32
Bytes = NDArray[np.uint8]
Rows = NDArray[np.int64]


@dataclass(frozen=True)
class Counted(Release):
    """Counts of a site's records that cannot be aligned."""

    without_values: ClassVar[bool] = True
    n_missing: int = count(
        "records without an identifier; values from 1 to the policy's minimum are reported as that minimum"
    )
    n_repeated: int = count(
        "records of a patient who has an earlier record; small values are reported as the policy's minimum"
    )


@dataclass(frozen=True)
class Pseudonyms(Release):
    """Pseudonyms of a site's patients in ascending order, which hides the order of the site's rows."""

    individual: ClassVar[bool] = True
    without_values: ClassVar[bool] = True
    pseudonyms: Bytes = array(
        "keyed hash of each patient's identifier, made for this study only",
        ("n", PSEUDONYM_BYTES),
        dtype="u1",
        permission="relations=summed",
    )


@dataclass(frozen=True)
class Agreeing(Persons):
    """Common order of patients for a site to seal."""

    pseudonyms: Bytes = array("pseudonyms of the patients, ascending", ("n", PSEUDONYM_BYTES), dtype="u1")


@dataclass(frozen=True)
class Sealed(Release):
    """Seal on an order. Sealing requires the study's key and all patients of the order."""

    individual: ClassVar[bool] = True
    without_values: ClassVar[bool] = True
    seal: Bytes = array(
        "keyed hash of the site's name and the order", (SEAL_BYTES,), dtype="u1", permission="relations=summed"
    )


@dataclass(frozen=True)
class SealedIncomplete(Release):
    """Seal on an order of which the site may lack patients. Sums then disclose pairs that only one site has."""

    individual: ClassVar[bool] = True
    without_values: ClassVar[bool] = True
    seal: Bytes = array(
        "keyed hash of the site's name and the order", (SEAL_BYTES,), dtype="u1", permission="relations=listed"
    )


@dataclass(frozen=True)
class Seals(Message):
    """Seals of all sites."""

    seals: dict[str, Bytes] = arrays("seal by site", (SEAL_BYTES,), dtype="u1")


@dataclass(frozen=True)
class Ordered(Message):
    """State of a site after an alignment."""

    rows: Rows = array("row of each aligned record, in the common order", ("m",), dtype="i8")
    places: Rows = array("its place in the common order", ("m",), dtype="i8")
    n_common: int = count("records in the common order")
    order: Bytes = array("hash of the order, by which seals are compared", (SEAL_BYTES,), dtype="u1")
    incomplete: bool = flag("whether a site may lack some of the patients")
    sites: tuple[str, ...] = texts("sites that sealed the order; empty until all seals were compared")
