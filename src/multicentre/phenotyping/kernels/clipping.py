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
    places: Integers,
    counts: Floats,
    membership: Floats,
    features: Floats,
    mode: int,
    codes: Integers,
    position: Integers,
    products: Floats,
) -> int:
    """Write the rows of a patient's product M_i that are not zero, and return how many they are.

    Parameters
    ----------
    places : array of int32, shape (n, N)
        Places of the patient's entries in the stacked feature matrices.
    counts : array of float, shape (n,)
        The entries' counts.
    membership : array of float, shape (R,)
        The patient's row a_i.
    features : array of float, shape (I_1 + ... + I_(N-1), R)
        Stacked feature matrices.
    mode : int
        Mode of the rows, 1 or more.
    codes : array of int32, shape (n,)
        The entries' codes of this mode.
    position : array of int32, shape (I_mode,)
        Row of `products` that stands for a code, -1 for none; comes as -1 throughout and is left with the positions
        of this patient's codes.
    products : array of float, shape (I_mode, R)
        Receives the rows.

    Examples
    --------
    >>> places, codes = np.array([[0, 1, 2]], dtype=np.int32), np.array([1], dtype=np.int32)
    >>> features, position, products = np.array([[1.0], [1.0], [3.0]]), np.full(2, -1, dtype=np.int32), np.empty((2, 1))
    >>> gather_products(places, np.array([2.0]), np.array([0.5]), features, 1, codes, position, products)
    1
    >>> position.tolist(), products[:1].tolist()
    ([-1, 0], [[3.0]])
    """
    rank = products.shape[1]
    n_rows = 0
    part = np.empty(rank)
    for e in range(len(counts)):
        for r in range(rank):
            part[r] = counts[e] * membership[r]
        for m in range(1, places.shape[1]):
            if m != mode:
                row = features[places[e, m]]
                for r in range(rank):
                    part[r] *= row[r]
        if position[codes[e]] < 0:
            position[codes[e]] = n_rows
            products[n_rows] = 0.0
            n_rows += 1
        own = products[position[codes[e]]]
        for r in range(rank):
            own[r] += part[r]
    return n_rows
