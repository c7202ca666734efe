"""Shares of seeds: Shamir's scheme (CACM 1979) in the prime field of 65,521 elements, for many seeds at once.

A seed of 16 bytes consists of eight symbols of 16 bits, each below the prime. Each symbol is the constant term of a
separate random polynomial, whose values at 1, 2, ... are the shares. The shares of fewer sites than the threshold are
independent of the seed. The scheme does not depend on the size of the field, which only has to exceed the number of
sites.

All polynomials are evaluated by one matrix product in float64. It is exact: its entries are integers, and the sum of
`threshold` products below 2**32 is below 2**53 for any number of sites.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
SEED_BYTES = 16  # 128 bits of security
PRIME = 65521  # largest prime below 2**16, so that a share has the length of the seed
_SYMBOL = np.dtype("<u2")
_SYMBOLS = SEED_BYTES // _SYMBOL.itemsize


def new_seeds(n_seeds: int) -> list[bytes]:
    """Return random seeds of 16 bytes, from the cryptographic source of the operating system.

    Each of the 65,521**8 seeds, about 2**128, has the same probability.

    Examples
    --------
    >>> [len(seed) for seed in new_seeds(2)]
    [16, 16]
    """
    drawn = _random_symbols(n_seeds * _SYMBOLS).astype(_SYMBOL).tobytes()
    return [drawn[start : start + SEED_BYTES] for start in range(0, len(drawn), SEED_BYTES)]


def split_seeds(seeds: Sequence[bytes], threshold: int, n_sites: int) -> Bytes:
    """Return shares of seeds, shape (n_sites, n_seeds, 16); fewer than `threshold` shares disclose nothing.

    Parameters
    ----------
    seeds : sequence of bytes
        From :func:`new_seeds`.
    threshold : int
    n_sites : int
        At most 65,520.

    Raises
    ------
    ValueError
        A symbol of a seed is not below the prime, or there are too many sites.

    Examples
    --------
    >>> shares = split_seeds([b"sixteen bytes ok"], 2, 3)
    >>> combine_shares({2: shares[2, 0], 0: shares[0, 0]}, 2)
    b'sixteen bytes ok'
    """
    constant = np.frombuffer(b"".join(seeds), dtype=_SYMBOL)
    if n_sites >= PRIME or np.any(constant >= PRIME):
        raise ValueError(f"symbols of seeds and the number of sites must be below {PRIME}")
    random = _random_symbols((threshold - 1) * len(constant)).reshape(threshold - 1, len(constant))
    values = _powers(threshold, n_sites) @ np.concatenate([constant[None, :], random]).astype(np.float64)
    shares = (values.astype(np.int64) % PRIME).astype(_SYMBOL)
    return shares.view(np.uint8).reshape(n_sites, len(seeds), SEED_BYTES)


def combine_shares(shares: Mapping[int, Bytes], threshold: int) -> bytes:
    """Return the seed from at least `threshold` shares, by position of the site (from 0).

    Examples
    --------
    >>> shares = split_seeds([bytes(16)], 2, 3)
    >>> combine_shares({0: shares[0, 0], 1: shares[1, 0], 2: shares[2, 0]}, 2) == bytes(16)
    True
    """
    chosen = dict(islice(shares.items(), threshold))
    symbols = np.stack([np.ascontiguousarray(share).view(_SYMBOL) for share in chosen.values()]).astype(np.int64)
    weights = np.array(_weights(tuple(chosen)), dtype=np.int64)
    return ((weights @ symbols) % PRIME).astype(_SYMBOL).tobytes()


def _random_symbols(n_symbols: int) -> NDArray[np.int64]:
    """Return uniform integers below the prime; the 15 values of 16 bits above it are drawn again."""
    drawn = np.zeros(0, dtype=_SYMBOL)
    while len(drawn) < n_symbols:
        more = np.frombuffer(os.urandom(_SYMBOL.itemsize * (n_symbols - len(drawn))), dtype=_SYMBOL)
        drawn = np.concatenate([drawn, more[more < PRIME]])
    return drawn.astype(np.int64)


@functools.lru_cache(maxsize=8)
def _powers(threshold: int, n_sites: int) -> NDArray[np.float64]:
    """Return the powers 0 to `threshold` - 1, modulo the prime, of the places 1 to `n_sites`."""
    places = np.arange(1, n_sites + 1)
    powers = np.ones((n_sites, threshold), dtype=np.int64)
    for exponent in range(1, threshold):
        powers[:, exponent] = powers[:, exponent - 1] * places % PRIME
    return powers.astype(np.float64)


@functools.lru_cache(maxsize=8)
def _weights(positions: tuple[int, ...]) -> tuple[int, ...]:
    """Return the weights of shares in the constant term (Lagrange interpolation at 0)."""
    places = [position + 1 for position in positions]
    weights = []
    for j, place in enumerate(places):
        above, below = 1, 1
        for other in places[:j] + places[j + 1 :]:
            above, below = above * other % PRIME, below * (other - place) % PRIME
        weights.append(above * pow(below, -1, PRIME) % PRIME)
    return tuple(weights)
