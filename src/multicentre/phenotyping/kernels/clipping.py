"""One patient's part of a matricised product, and its norm: what every bound of a patient's influence starts from."""

from __future__ import annotations

import numpy as np
from numba import njit

from multicentre.phenotyping.kernels.sparse import Floats, Integers

INSIDE = 1.0 - 2.0**-28
"""Share of a bound that is used, so that rounding never leads past it."""


@njit(cache=True)
def frobenius_norm(values: Floats) -> float:
    """Norm of all entries, without overflow on the way; not finite where an entry is not.

    Examples
    --------
    >>> frobenius_norm(np.array([[1e200], [0.0]]))
    1e+200
    """
    flat = values.ravel()
    largest = 0.0
    for value in flat:
        if not np.isfinite(value):
            return np.inf
        largest = max(largest, abs(value))
    if largest == 0.0:
        return 0.0
    total = 0.0
    for value in flat:
        total += (value / largest) ** 2
    return largest * np.sqrt(total)


@njit(cache=True)
def gather_products(
    entries: Integers, counts: Floats, factors: tuple[Floats, ...], mode: int, place: Integers, products: Floats
) -> int:
    """Write the rows of a patient's product M_i that are not zero, and return how many they are.

    Parameters
    ----------
    entries : array of int32, shape (n, N)
        Coordinates of the patient's entries.
    counts : array of float, shape (n,)
        The entries' counts.
    factors : tuple of array, each of shape (I_n, R)
        One matrix a mode, the patients' memberships first.
    mode : int
        Mode of the rows.
    place : array of int32, shape (I_mode,)
        Row of `products` that stands for a code, -1 for none; comes as -1 throughout and is left with the places of
        this patient's codes.
    products : array of float, shape (I_mode, R)
        Receives the rows.

    Examples
    --------
    >>> entries, place = np.array([[0, 1, 0]], dtype=np.int32), np.full(2, -1, dtype=np.int32)
    >>> factors = (np.array([[0.5]]), np.ones((2, 1)), np.array([[3.0]]))
    >>> products = np.empty((2, 1))
    >>> gather_products(entries, np.array([2.0]), factors, 1, place, products)
    1
    >>> place.tolist(), products[:1].tolist()
    ([-1, 0], [[3.0]])
    """
    rank = products.shape[1]
    n_rows = 0
    part = np.empty(rank)
    for e in range(len(counts)):
        part[:] = counts[e]
        for m in range(entries.shape[1]):
            if m != mode:
                row = factors[m][entries[e, m]]
                for r in range(rank):
                    part[r] *= row[r]
        code = entries[e, mode]
        if place[code] < 0:
            place[code] = n_rows
            products[n_rows] = 0.0
            n_rows += 1
        for r in range(rank):
            products[place[code], r] += part[r]
    return n_rows
