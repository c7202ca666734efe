"""Bounded terms of single patients under differential privacy: clipped statistics and passes.

For any record and any memberships (counts near the largest float, zeros, infinities), a patient changes the result by a
bounded amount, and no kernel fails. Sums are cut towards zero to a grid, so that they are exact in any order, and a
patient's term depends only on that patient's record and on public values, bit for bit.

All compiled code on which a bound depends is in this module: the compiler caches a function by its file, and would not
detect a change in another file.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from multicentre.compilation import njit
from multicentre.phenotyping.kernels.hals import hadamard_gram
from multicentre.phenotyping.kernels.mttkrp import (
    Floats,
    Integers,
    Pointers,
    SparseTensor,
    checked_factors,
    stack_features,
)
from multicentre.phenotyping.kernels.patients import GRID, INSIDE

REORDERED = {"reassoc", "nsz", "contract"}
"""Sums over columns may be taken in any order, which vectorises them; tested to 1e-12."""


def clipped_products(
    tensor: SparseTensor,
    memberships: ArrayLike,
    factors: Sequence[ArrayLike | None],
    mode: int,
    largest_product: float,
    largest_gram: float,
) -> tuple[Floats, Floats]:
    """Sums over patients of clipped products and Gram matrices, in units of their bounds.

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
        One matrix per feature mode, N - 1 in total; that of `mode` is not read.
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
        Upper triangle, row by row, with entries off the diagonal times sqrt(2): one patient adds a vector of norm at
        most 1. `unpack_gram` returns the matrix.

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
        Upper triangle, row by row, with entries off the diagonal times sqrt(2).

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


def pass_patients(
    tensor: SparseTensor,
    order: ArrayLike,
    memberships: ArrayLike,
    factors: Sequence[ArrayLike],
    mode: int,
    step: float,
    largest_product: float,
) -> Floats:
    """One pass over patients for one feature mode of the full objective, each patient bounded.

    A patient moves F <- Proj(F - step (F P_i - s_i M_i)) with P_i = (a_i a_i') * (Hadamard product of the other
    feature modes' Gram matrices), M_i the patient's part of the matricised product,
    s_i = min(1, largest_product / ||M_i||_F), and Proj onto F >= 0 with columns of norm at most 1. Removing one
    patient moves the result by at most step (1 + largest_product), if step <= 2 and the other factors' columns have
    norm at most 1. Memberships are scaled to ||a_i||_1 <= 1; a patient whose M_i or a_i is not finite moves nothing.

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N modes.
    order : array of int, shape (at most I,)
        Patients in the order of their visits.
    memberships : array of float, shape (I, R)
        Patients' rows a_i.
    factors : sequence of array, each of shape (I_n, R)
        One matrix per feature mode; not changed.
    mode : int
        Feature mode that descends, 1 or more.
    step : float
        Step size eta.
    largest_product : float
        Bound S of ||M_i||_F, above 0.

    Returns
    -------
    array of float, shape (I_mode, R)
        Not below 0, columns of norm at most 1.

    Raises
    ------
    ConfigurationError
        The factors do not fit the tensor.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0, 0]], [2.0], (1, 1, 1))
    >>> pass_patients(tensor, [0], [[1.0]], [[[0.5]], [[1.0]]], 1, 0.1, largest_product=1.0).round(9).tolist()
    [[0.55]]
    """
    matrices = checked_factors(tensor, [_within_unit_sum(memberships), *factors])
    others = hadamard_gram([matrix for m, matrix in enumerate(matrices) if m not in (0, mode)])
    columns = np.ascontiguousarray(matrices[mode].T)
    codes = np.ascontiguousarray(tensor.coordinates[:, mode])
    visited = np.ascontiguousarray(order, dtype=np.int64)
    record = (tensor.order(0)[1], tensor.places, tensor.counts, codes)
    _visit_patients(
        record, visited, matrices[0], stack_features(matrices), mode, others, columns, step, largest_product
    )
    return np.ascontiguousarray(columns.T)


@njit(cache=True, nogil=True)
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


@njit(cache=True, nogil=True)
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
        patient_products = products[position[codes[e]]]
        for r in range(rank):
            patient_products[r] += part[r]
    return n_rows


def _within_unit_sum(memberships: ArrayLike) -> Floats:
    raw = np.asarray(memberships, dtype=np.float64)
    fit = np.isfinite(raw).all(axis=1, keepdims=True)
    largest = np.abs(raw, where=fit, out=np.zeros_like(raw)).max(axis=1, initial=1.0, keepdims=True)
    scaled = np.where(fit, raw, 0.0) / largest
    sums = np.maximum(np.abs(scaled).sum(axis=1, keepdims=True) / INSIDE, 1 / largest)
    return np.asarray(scaled / sums)


@njit(cache=True, nogil=True)
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
        patient_codes, membership = codes[begin:end], memberships[i]
        n_rows = gather_products(
            places[begin:end], counts[begin:end], membership, features, mode, patient_codes, position, rows
        )
        excess = _excess(frobenius_norm(rows[:n_rows]) / bounds[0], frobenius_norm(membership), bounds[1])
        scale = 1.0 / (bounds[0] * excess)
        for code in patient_codes:
            if position[code] >= 0 and np.isfinite(excess):
                for r in range(rank):
                    products[code, r] += _on_grid(rows[position[code], r] * scale)
            position[code] = -1
        if np.isfinite(excess):
            _add_gram(membership, 1.0 / (bounds[1] * excess), gram)
    return products, gram


@njit(cache=True, nogil=True)
def _excess(product: float, membership: float, largest_gram: float) -> float:
    """Return the larger ratio of a norm to its bound, at least 1; not finite if a norm is not finite."""
    return max(1.0, product / INSIDE, membership * membership / largest_gram / INSIDE)


@njit(cache=True, nogil=True)
def _add_gram(membership: Floats, scale: float, gram: Floats) -> None:
    rank, place = len(membership), 0
    for r in range(rank):
        if membership[r] != 0.0:
            gram[place] += _on_grid(membership[r] * membership[r] * scale)
            for s in range(r + 1, rank):
                gram[place + s - r] += _on_grid(np.sqrt(2.0) * (membership[r] * membership[s] * scale))
        place += rank - r


@njit(cache=True, nogil=True)
def _on_grid(value: float) -> float:
    return np.trunc(value * GRID) * (1.0 / GRID)


@njit(cache=True, nogil=True, fastmath=REORDERED)
def _visit_patients(
    record: tuple[Pointers, Integers, Floats, Integers],
    order: Pointers,
    memberships: Floats,
    features: Floats,
    mode: int,
    others: Floats,
    columns: Floats,
    step: float,
    largest_product: float,
) -> None:
    pointers, places, counts, codes = record
    rank, n_codes = columns.shape
    position, products = np.full(n_codes, -1, dtype=np.int32), np.empty((n_codes, rank))
    moved = np.empty((rank, n_codes))
    for column in columns:
        _project(column)
    for i in order:
        begin, end = pointers[i], pointers[i + 1]
        n_rows = gather_products(
            places[begin:end], counts[begin:end], memberships[i], features, mode, codes[begin:end], position, products
        )
        norm = frobenius_norm(products[:n_rows])
        patient_codes = np.unique(codes[begin:end])
        if np.isfinite(norm):
            share = step / max(1.0, norm / (largest_product * INSIDE))
            support = np.flatnonzero(memberships[i])
            _step_columns(columns, support, memberships[i], others, step, moved)
            for r in support:
                for code in patient_codes:
                    columns[r, code] += share * products[position[code], r]
                _project(columns[r])
        position[patient_codes] = -1


@njit(cache=True, nogil=True, fastmath=REORDERED)
def _step_columns(
    columns: Floats, support: Pointers, membership: Floats, others: Floats, step: float, moved: Floats
) -> None:
    """Subtract step * F P_i from the columns in the support of a patient's membership."""
    for r in support:
        moved[r] = 0.0
        for s in support:
            weight = step * membership[r] * membership[s] * others[r, s]
            for j in range(columns.shape[1]):
                moved[r, j] += weight * columns[s, j]
    for r in support:
        for j in range(columns.shape[1]):
            columns[r, j] -= moved[r, j]


@njit(cache=True, nogil=True, fastmath=REORDERED)
def _project(column: Floats) -> None:
    """Project a column on the nonnegative part of the unit ball."""
    square = 0.0
    for j in range(len(column)):
        column[j] = max(0.0, column[j])
        square += column[j] * column[j]
    if square > 1.0:
        scale = 1.0 / np.sqrt(square)
        for j in range(len(column)):
            column[j] *= scale
