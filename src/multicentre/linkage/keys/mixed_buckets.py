"""Test, from sums only, that all persons in a bucket are in one fold.

Let f_i be the fold of record i, K the number of folds, and p a prime. Every record i in a bucket adds a random non-zero
r_i to one sum and r_i f_i to another, modulo p. If all records are in fold f, the second sum is f times the first.
Otherwise both sums are random, and the second is a multiple f of the first with a probability of at most K / p. Neither
sum reveals the number of records.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import array, count, number, text
from multicentre.core.steps import Release
from multicentre.linkage.keys.occupied_buckets import (
    MAX_BUCKETS,
    MIN_BUCKETS,
    count_union,
    draw_words,
    hide_residues,
)
from multicentre.linkage.persons import Labelled, Persons

Integers = NDArray[np.int64]

Truths = NDArray[np.bool_]

# Largest prime below 2**20: with 5 folds, a mixed bucket passes for one of a single fold with probability 5e-6.
MODULUS = 1_048_573

# About 1 person in 8 shares a bucket at first; only mixed buckets are hashed again, so that messages stay small.
BUCKETS_PER_PERSON = 8

# With two persons per mixed bucket, about 1 person in 32 shares a bucket with another in the next turn.
BUCKETS_PER_SUSPECT = 64


def mark_folds(buckets: Integers, folds: Integers, n_buckets: int, bound: float) -> tuple[Integers, Integers]:
    """Return a site's terms of the two sums, each of shape (n_buckets,).

    Parameters
    ----------
    buckets, folds : array of int64, shape (n,)
        Bucket and fold of each record.
    n_buckets : int
    bound : float
        See :func:`multicentre.linkage.keys.occupied_buckets.hide_residues`.

    Examples
    --------
    >>> marks = mark_folds(np.array([0, 0, 2, 2]), np.array([1, 1, 1, 4]), 3, 2.0**53)
    >>> occupied, mixed = read_folds(*marks, n_splits=5)
    >>> occupied.tolist(), mixed.tolist()
    ([True, False, True], [False, False, True])
    """
    factors = 1 + (draw_words(len(buckets)) % np.uint64(MODULUS - 1)).astype(np.int64)
    sums = np.zeros((2, n_buckets), dtype=np.int64)
    np.add.at(sums[0], buckets, factors)
    np.add.at(sums[1], buckets, factors * folds % MODULUS)
    return hide_residues(sums[0] % MODULUS, MODULUS, bound), hide_residues(sums[1] % MODULUS, MODULUS, bound)


def read_folds(marks: Integers, weighted: Integers, n_splits: int) -> tuple[Truths, Truths]:
    """Return flags of occupied buckets and of buckets with people of several folds, each of shape (M,)."""
    first, second = marks % MODULUS, weighted % MODULUS
    occupied = (first != 0) | (second != 0)
    pure = np.zeros(len(first), dtype=np.bool_)
    for fold in range(n_splits):
        pure |= (first != 0) & (second == first * fold % MODULUS)
    return occupied, occupied & ~pure


def next_buckets(n_mixed: int) -> int:
    """Return the number of buckets for the people of `n_mixed` mixed buckets: 64 per bucket, from 1024 to 2**23."""
    return min(max(BUCKETS_PER_SUSPECT * n_mixed, MIN_BUCKETS), MAX_BUCKETS)


def first_buckets(n_persons: int) -> int:
    """Return the number of buckets for all people: 8 per person, from 1024 to 2**23."""
    return min(max(BUCKETS_PER_PERSON * n_persons, MIN_BUCKETS), MAX_BUCKETS)


def count_mixed(n_mixed: int, n_buckets: int) -> int:
    """Estimate the number of people from the number of different buckets, by linear counting.

    Examples
    --------
    >>> count_mixed(0, 1024), count_mixed(1600, 102_400)
    (0, 1613)
    """
    return round(count_union(n_buckets - n_mixed, n_buckets)[0])


def miss_probability(n_splits: int, n_turns: int) -> float:
    """Return the largest probability that a person in several folds is not detected in one of the turns.

    Examples
    --------
    >>> f"{miss_probability(5, 4):.1e}"
    '1.9e-05'
    """
    return -math.expm1(n_turns * math.log1p(-n_splits / MODULUS))


# Largest number of records of a site, for masking: about 2 billion, far more than a site has.
MAX_RECORDS = 2.0**31

# Largest range of exact integers in float64; random multiples then hide sums up to 1.2e-10 per further site.
MARK_BOUND = 2.0**53


@dataclass(frozen=True)
class Reviewing(Persons):
    """Records to review."""

    patient_key: str = text("column that identifies a patient at a site; empty for none")


@dataclass(frozen=True)
class Checking(Labelled):
    """Number of buckets of the hash, and the buckets of the previous question to hash again."""

    n_buckets: int = count("number of buckets")
    turn: int = count("number of earlier questions of this audit")
    mixed: Integers = array("buckets of the previous question with people of several folds", ("m",), dtype="i8")


@dataclass(frozen=True)
class Reviewed(Release):
    """Counts of a plan over a site's records."""

    records: float = number("records", unit="records", bound=MAX_RECORDS)
    excluded: float = number("records without a fold", unit="records", bound=MAX_RECORDS)
    missing: float = number("records in a fold without an identifier", unit="records", bound=MAX_RECORDS)
    persons: float = number("different persons in folds", unit="persons", bound=MAX_RECORDS)
    split: float = number("patients of the site with records in several folds", unit="patients", bound=MAX_RECORDS)


@dataclass(frozen=True)
class FoldMarks(Release):
    """Marks by bucket: two random numbers whose ratio modulo 1048573 is the fold if all people are in one fold."""

    marks: Integers = array("sum of random numbers, by bucket", ("M",), dtype="i8", bound=MARK_BOUND)
    weighted: Integers = array("sum of the same numbers times folds, by bucket", ("M",), dtype="i8", bound=MARK_BOUND)
