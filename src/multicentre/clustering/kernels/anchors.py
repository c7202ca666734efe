"""Samples made up of the few landmarks that lie nearest to them.

For one sample x and the landmarks a_1 ... a_k nearest to it, min_z |x - sum z_i a_i|^2 / 2 + mu |z|^2 / 2 over the
simplex is solved by moving weight from the landmark of largest gradient to the one of smallest, as much of it as is
best, until the two gradients agree: sequential minimal optimisation.

References
----------
J. C. Platt (1999), Fast training of support vector machines using sequential minimal optimization, Advances in Kernel
Methods, 185-208.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from multicentre.clustering.kernels.largest import insert

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@njit(cache=True, nogil=True)
def code_on_nearest(
    products: Floats, gram: Floats, own: Integers, nearest: int, mu: float, tolerance: float, most_moves: int
) -> tuple[Integers, Floats]:
    """Return the landmarks nearest to each sample, and how much of it each makes up.

    Parameters
    ----------
    products : array of shape (b, m)
        Inner products of the samples with the landmarks.
    gram : array of shape (m, m)
        Inner products of the landmarks.
    own : array of shape (b,)
        Which landmark the sample itself is, -1 if none: no sample is made up of itself.
    nearest : int
        k; of landmarks at one distance the first is taken.
    mu : float
        Above 0.
    tolerance : float
        Difference of gradients at which a sample has settled.
    most_moves : int

    Returns
    -------
    columns : int64 array of shape (b, k)
        From the nearest landmark on; -1 where there are fewer.
    values : float64 array of shape (b, k)
        At least 0, sum 1.

    Examples
    --------
    >>> points, own = np.array([[0.0], [1.0], [5.0]]), np.array([-1])
    >>> columns, values = code_on_nearest(0.25 * points.T, points @ points.T, own, 2, 0.5, 1e-9, 100)
    >>> columns.tolist(), values.round(6).tolist()
    ([[0, 1]], [[0.625, 0.375]])
    """
    n_rows, n_landmarks = products.shape
    columns = np.full((n_rows, nearest), -1, np.int64)
    values = np.zeros((n_rows, nearest))
    near, gradient = np.empty(nearest), np.empty(nearest)
    for i in range(n_rows):
        n_held = 0
        for j in range(n_landmarks):
            if j != own[i]:
                n_held = insert(columns[i], near, n_held, j, 2.0 * products[i, j] - gram[j, j])
        held, shares = columns[i, :n_held], values[i, :n_held]
        _start(products[i], gram, held, shares, gradient, mu)
        for _ in range(most_moves):
            if _move(gram, held, shares, gradient, mu) <= tolerance:
                break
    return columns, values


@njit(cache=True, nogil=True)
def _start(product: Floats, gram: Floats, held: Integers, shares: Floats, gradient: Floats, mu: float) -> None:
    """Give all landmarks equal shares, and set the gradient there."""
    shares[:] = 1.0 / len(held)
    for p in range(len(held)):
        total = mu
        for q in range(len(held)):
            total += gram[held[p], held[q]]
        gradient[p] = total / len(held) - product[held[p]]


@njit(cache=True, nogil=True)
def _move(gram: Floats, held: Integers, shares: Floats, gradient: Floats, mu: float) -> float:
    """Move weight between the two landmarks that gain most, and return by how much their gradients differed."""
    giver, taker = -1, 0
    for p in range(len(held)):
        if shares[p] > 0.0 and (giver < 0 or gradient[p] > gradient[giver]):
            giver = p
        if gradient[p] < gradient[taker]:
            taker = p
    gap = gradient[giver] - gradient[taker]
    if gap <= 0.0:
        return 0.0
    g, t = held[giver], held[taker]
    moved = min(shares[giver], gap / (gram[g, g] + gram[t, t] - 2.0 * gram[g, t] + 2.0 * mu))
    shares[giver] -= moved
    shares[taker] += moved
    for p in range(len(held)):
        gradient[p] += moved * (gram[held[p], t] - gram[held[p], g])
    gradient[giver] -= mu * moved
    gradient[taker] += mu * moved
    return gap
