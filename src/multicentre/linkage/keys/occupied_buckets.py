"""Secure OR and linear counting: the number of people at a set of sites, from the empty buckets of a hash.

Linear counting is due to Whang, Vander-Zanden and Taylor (ACM TODS 15, 1990, 208-229). If U persons are hashed into M
buckets and Z buckets are empty, U is about -M ln(Z / M).
"""

from __future__ import annotations

import math
import secrets

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import ConfigurationError

Integers = NDArray[np.int64]
Truths = NDArray[np.bool_]
# Largest prime below 2**16: marks of a bucket that two sites share cancel with probability 1/65520.
MODULUS = 65521
# 8 KiB of marks of 8 bytes; the minimum costs little and keeps collisions rare in small cohorts.
MIN_BUCKETS = 1024
# 64 MiB per array of marks; the two of an audit (128 MiB) stay below the 256 MiB limit of a message.
MAX_BUCKETS = 2**23
# 97.5 % quantile of the standard normal distribution, for two-sided 95 % intervals.
QUANTILE = 1.959963984540054


def draw_words(size: int) -> NDArray[np.uint64]:
    """Return 64-bit numbers of the operating system's cryptographic source, shape (size,)."""
    return np.frombuffer(secrets.token_bytes(8 * size), dtype=np.uint64)


def hide_residues(residues: Integers, modulus: int, bound: float) -> Integers:
    """Return each residue plus a random multiple of the modulus.

    The residue of a sum of such numbers is the sum of the residues. The size of a sum of plain residues would reveal
    how many terms it has. The multiples are uniform on ``bound / modulus`` values and hide this, up to a statistical
    distance of (sites - 1) x modulus / bound per number.

    Parameters
    ----------
    residues : array of int64, shape (m,)
        From 0 to modulus - 1.
    modulus : int
    bound : float
        Results are at least 0 and below this.

    Examples
    --------
    >>> hidden = hide_residues(np.array([0, 3, 5]), 7, 2.0**40)
    >>> (hidden % 7).tolist(), bool((hidden < 2**40).all())
    ([0, 3, 5], True)
    """
    multiples = draw_words(len(residues)) % np.uint64(int(bound) // modulus)
    return residues + modulus * multiples.astype(np.int64)


def mark_buckets(buckets: Integers, n_buckets: int, bound: float) -> Integers:
    """Return a mark for each bucket: a random non-zero residue if it is occupied, else residue 0.

    The sum over sites of non-zero residues modulo a prime p is uniform, except for the value 0. It is 0 with
    probability 1 / (p - 1) if two or more sites share the bucket. So a sum reveals if a bucket is empty, but not the
    number of people in it.

    Parameters
    ----------
    buckets : array of int64
        Bucket of each person; a bucket may occur several times.
    n_buckets : int
    bound : float
        See :func:`hide_residues`.

    Examples
    --------
    >>> marks = mark_buckets(np.array([2, 2, 0]), 4, 2.0**53)
    >>> read_marks(marks + mark_buckets(np.array([3]), 4, 2.0**53)).tolist()
    [True, False, True, True]
    """
    residues = np.zeros(n_buckets, dtype=np.int64)
    occupied = np.unique(buckets)
    residues[occupied] = 1 + (draw_words(len(occupied)) % np.uint64(MODULUS - 1)).astype(np.int64)
    return hide_residues(residues, MODULUS, bound)


def read_marks(total: Integers) -> Truths:
    """Return flags of the buckets that are occupied at some site, shape (M,)."""
    occupied: Truths = total % MODULUS != 0
    return occupied


def count_union(n_empty: int, n_buckets: int) -> tuple[float, float]:
    """Estimate the number of persons from the number of empty buckets, with the standard deviation of the estimate.

    See Whang et al. (1990), equation 3 and theorem 4.3: the variance is M (e^t - t - 1), with t = U / M.

    Raises
    ------
    ConfigurationError
        No bucket is empty.

    Examples
    --------
    >>> union, deviation = count_union(371_735, 384_000)
    >>> round(union), round(deviation, 1)
    (12465, 14.3)
    """
    if n_empty <= 0:
        raise ConfigurationError(
            f"at least one of {n_buckets} buckets must be empty; all are occupied",
            where="buckets_per_record",
            hint="Use more buckets.",
        )
    union = -n_buckets * math.log(n_empty / n_buckets)
    load = union / n_buckets
    return union, math.sqrt(max(n_buckets * (math.expm1(load) - load), 0.0))
