"""What single patients add to the sums that are released under differential privacy, each bounded in norm.

Every kernel is total: whatever the record and the memberships hold (counts near the largest float, zeros, infinities),
a patient adds a finite vector of norm at most 1, and never fails. Entries are cut towards zero to a grid of 2**-30, so
sums of up to 2**22 patients are exact in any order and a patient's part of them is a function of that patient's
record and of what is public alone (specification 4.1), bit for bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numba import njit
from numpy.typing import ArrayLike
from scipy.sparse import csr_array

from multicentre.phenotyping.kernels.clipping import INSIDE, frobenius_norm, gather_products
from multicentre.phenotyping.kernels.sparse import (
    Floats,
    Integers,
    Pointers,
    SparseTensor,
    checked_factors,
    stack_features,
)

GRID = 2.0**30
"""Steps of the grid in one unit."""


def patient_norms(tensor: SparseTensor) -> Floats:
    """Frobenius norm ||X_i||_F of every patient's slice, shape (I,); 0 for a patient without an entry.

    Examples
    --------
    >>> patient_norms(SparseTensor([[0, 0], [0, 1]], [3.0, 4.0], (2, 2))).tolist()
    [5.0, 0.0]
    """
    return _norms(tensor.order(0)[1], tensor.counts)


def clipped_products(
    tensor: SparseTensor,
    memberships: ArrayLike,
    factors: Sequence[ArrayLike | None],
    mode: int,
    largest_product: float,
    largest_gram: float,
) -> tuple[Floats, Floats]:
    """Sums over patients of clipped products and Gram matrices, in units of their bounds; specification 4.2.

    With M_i the patient's part of the matricised product, H_i = a_i a_i' and
    s_i = min(1, largest_product / ||M_i||_F, largest_gram / ||a_i||^2), a patient adds s_i M_i / largest_product to
    the first sum and s_i H_i / largest_gram to the second; one whose M_i or ||a_i||^2 is not finite adds nothing.

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N modes.
    memberships : array of float, shape (I, R)
        Patients' rows a_i.
    factors : sequence of array, each of shape (I_n, R)
        One matrix a feature mode, N - 1 of them; the one of `mode` is not looked at.
    mode : int
        Feature mode whose statistics are wanted, 1 or more.
    largest_product : float
        Bound S_M of ||M_i||_F, above 0.
    largest_gram : float
        Bound S_H of ||a_i||^2, above 0.

    Returns
    -------
    products : array of float, shape (I_mode, R)
        One patient adds a matrix of Frobenius norm at most 1.
    gram : array of float, shape (R (R + 1) / 2,)
        Upper triangle, row by row, sqrt(2) times what stands off the diagonal: one patient adds a vector of norm at
        most 1. `unpack_gram` makes the matrix.

    Raises
    ------
    ConfigurationError
        The factors do not fit the tensor.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0, 0]], [2.0], (1, 1, 1))
    >>> products, gram = clipped_products(tensor, [[0.5]], [None, [[1.0]]], 1, 2.0, 0.5)
    >>> products.tolist(), gram.tolist()
    ([[0.5]], [0.5])
    """
    matrices = checked_factors(tensor, [memberships, *factors], mode)
    return _sum_clipped(
        tensor.order(0)[1],
        tensor.places,
        tensor.counts,
        matrices[0],
        stack_features(matrices),
        mode,
        np.ascontiguousarray(tensor.coordinates[:, mode]),
        tensor.shape[mode],
        (largest_product, largest_gram),
    )


def unpack_gram(packed: ArrayLike) -> Floats:
    """Symmetric matrix from the upper triangle that `clipped_products` returns.

    Parameters
    ----------
    packed : array of float, shape (R (R + 1) / 2,)
        Upper triangle, row by row, sqrt(2) times what stands off the diagonal.

    Returns
    -------
    array of float, shape (R, R)

    Examples
    --------
    >>> unpack_gram([1.0, 2.0 * 2**0.5, 3.0]).round(12).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    triangle = np.asarray(packed, dtype=np.float64)
    rank = int((2 * len(triangle)) ** 0.5)
    matrix = np.zeros((rank, rank))
    matrix[np.triu_indices(rank)] = triangle / np.sqrt(2)
    matrix += matrix.T
    matrix[np.diag_indices(rank)] /= np.sqrt(2)
    return matrix


def cooccurrence(
    tensor: SparseTensor, pairs: Sequence[tuple[int, int]] | None = None
) -> dict[tuple[int, int], csr_array]:
    """Sum over patients of normalised co-occurrences of codes, W = sum_i X_i / ||X_i||_F; specification 1.3 and 4.2.

    Of more than two feature modes, a patient's marginals over the pairs of modes are divided by the norm of all of
    them together.

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N >= 3 modes.
    pairs : sequence of (int, int), optional
        Pairs (m, n) of feature modes; by default all with m < n.

    Returns
    -------
    dict from (int, int) to scipy.sparse.csr_array, shape (I_m, I_n)
        One patient moves all of them together by at most 1 in the l2 norm. ``.toarray()`` makes them dense.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0, 1], [0, 1, 1], [1, 0, 0]], [3.0, 4.0, 7.0], (2, 2, 2))
    >>> cooccurrence(tensor)[1, 2].toarray().round(6).tolist()
    [[1.0, 0.6], [0.0, 0.8]]
    """
    chosen = list(combinations(range(1, tensor.n_modes), 2)) if pairs is None else list(pairs)
    largest = np.zeros(tensor.shape[0])
    np.maximum.at(largest, tensor.coordinates[:, 0], np.abs(_finite(tensor.counts)))
    counts = _finite(tensor.counts) / np.where(largest > 0, largest, 1.0)[tensor.coordinates[:, 0]]
    marginals = {pair: _patient_marginals(tensor, pair, counts) for pair in chosen}
    squares = sum(
        np.bincount(cells[:, 0], weights=values**2, minlength=tensor.shape[0]) for cells, values in marginals.values()
    )
    norms = np.sqrt(np.where(squares > 0, squares, 1.0)) / INSIDE
    return {
        (m, n): csr_array(
            (np.trunc(values / norms[cells[:, 0]] * GRID) / GRID, (cells[:, 1], cells[:, 2])),
            shape=(tensor.shape[m], tensor.shape[n]),
        )
        for (m, n), (cells, values) in marginals.items()
    }


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, 0.0)


def _patient_marginals(tensor: SparseTensor, pair: tuple[int, int], counts: Floats) -> tuple[Pointers, Floats]:
    places = tensor.coordinates[:, (0, *pair)].astype(np.int64)
    keys = np.ravel_multi_index(tuple(places.T), tuple(tensor.shape[m] for m in (0, *pair)))
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    sums: Floats = np.bincount(group, weights=counts, minlength=len(first)).astype(np.float64)
    return places[first], sums


@njit(cache=True)
def _norms(pointers: Pointers, counts: Floats) -> Floats:
    norms = np.empty(len(pointers) - 1)
    for i in range(len(norms)):
        norms[i] = frobenius_norm(counts[pointers[i] : pointers[i + 1]])
    return norms


@njit(cache=True)
def _sum_clipped(
    pointers: Pointers,
    places: Integers,
    counts: Floats,
    memberships: Floats,
    features: Floats,
    mode: int,
    codes: Integers,
    n_codes: int,
    bounds: tuple[float, float],
) -> tuple[Floats, Floats]:
    rank = memberships.shape[1]
    products, gram = np.zeros((n_codes, rank)), np.zeros(rank * (rank + 1) // 2)
    position = np.full(n_codes, -1, dtype=np.int32)
    rows = np.empty((n_codes, rank))
    for i in range(len(pointers) - 1):
        begin, end = pointers[i], pointers[i + 1]
        own, membership = codes[begin:end], memberships[i]
        n_rows = gather_products(places[begin:end], counts[begin:end], membership, features, mode, own, position, rows)
        excess = _excess(frobenius_norm(rows[:n_rows]) / bounds[0], frobenius_norm(membership), bounds[1])
        scale = 1.0 / (bounds[0] * excess)
        for code in own:
            if position[code] >= 0 and np.isfinite(excess):
                for r in range(rank):
                    products[code, r] += _on_grid(rows[position[code], r] * scale)
            position[code] = -1
        if np.isfinite(excess):
            _add_gram(membership, 1.0 / (bounds[1] * excess), gram)
    return products, gram


@njit(cache=True)
def _excess(product: float, membership: float, largest_gram: float) -> float:
    """By how much the larger of both norms exceeds its bound, 1 where neither does; not finite where one is not."""
    return max(1.0, product / INSIDE, membership * membership / largest_gram / INSIDE)


@njit(cache=True)
def _add_gram(membership: Floats, scale: float, gram: Floats) -> None:
    rank, place = len(membership), 0
    for r in range(rank):
        if membership[r] != 0.0:
            gram[place] += _on_grid(membership[r] * membership[r] * scale)
            for s in range(r + 1, rank):
                gram[place + s - r] += _on_grid(np.sqrt(2.0) * (membership[r] * membership[s] * scale))
        place += rank - r


@njit(cache=True)
def _on_grid(value: float) -> float:
    return np.trunc(value * GRID) * (1.0 / GRID)
