"""Nonnegative least squares by cyclic coordinate descent (hierarchical alternating least squares, HALS).

Both solve min 1/2 ||X - F K'||_F^2 over F >= 0 from the products X K and the Gram matrix K'K (Cichocki and Phan,
*IEICE Trans. Fundamentals*, 2009); the second adds a group lasso on the columns of F.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import ArrayLike

from multicentre.compilation import njit
from multicentre.phenotyping.kernels.mttkrp import (
    Floats,
    Integers,
    SparseTensor,
    checked_factors,
    mttkrp,
    stack_features,
)


def solve_rows(products: ArrayLike, gram: ArrayLike, start: ArrayLike, n_sweeps: int) -> Floats:
    """Nonnegative rows by sweeps over their columns, f_r <- max(0, f_r + (p_r - f.g_r) / g_rr).

    Parameters
    ----------
    products : array of float, shape (I, R)
        Data times Khatri-Rao product, one row per patient or code.
    gram : array of float, shape (R, R)
        Symmetric Gram matrix of the Khatri-Rao product. A column with 0 on the diagonal becomes 0.
    start : array of float, shape (I, R)
        Initial value (warm start); not changed.
    n_sweeps : int
        Sweeps over the columns; 3 to 10 inside alternating updates.

    Returns
    -------
    array of float, shape (I, R)
        Nonnegative. A row does not depend on the other rows, bit for bit; the bounds of a private fit require this.

    Examples
    --------
    >>> solve_rows([[2.0, -1.0]], [[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0]], n_sweeps=1).tolist()
    [[2.0, 0.0]]
    """
    rows = np.array(start, dtype=np.float64, order="C")
    gram = np.ascontiguousarray(gram, dtype=np.float64)
    _sweep_rows(np.ascontiguousarray(products, dtype=np.float64), gram, rows, n_sweeps)
    return rows


def solve_columns(products: ArrayLike, gram: ArrayLike, start: ArrayLike, penalty: float, n_sweeps: int) -> Floats:
    """Nonnegative columns with a group lasso, min ... + penalty * sum_r ||f_:r||, each solved exactly.

    Column by column: z = (p_r - sum_{s != r} f_s g_sr)_+, then f_r = z (1 - penalty / ||z||)_+ / g_rr.

    Parameters
    ----------
    products : array of float, shape (I, R)
        Data times Khatri-Rao product, one row per patient.
    gram : array of float, shape (R, R)
        Symmetric Gram matrix of the Khatri-Rao product. A column with 0 on the diagonal becomes 0.
    start : array of float, shape (I, R)
        Initial value (warm start); not changed.
    penalty : float
        Weight of a column's norm, 0 or more; from about ||p_r|| on, the column becomes 0.
    n_sweeps : int
        Sweeps over the columns.

    Returns
    -------
    array of float, shape (I, R)
        Nonnegative. Unlike those of `solve_rows`, a row depends on the others, through the columns' norms.

    Examples
    --------
    >>> solve_columns([[3.0], [4.0]], [[1.0]], [[0.0], [0.0]], penalty=2.5, n_sweeps=1).tolist()
    [[1.5], [2.0]]
    """
    targets = np.array(np.asarray(products, dtype=np.float64).T, order="C")
    columns = np.array(np.asarray(start, dtype=np.float64).T, order="C")
    weights = np.asarray(gram, dtype=np.float64)
    for _ in range(n_sweeps):
        for r, column in enumerate(columns):
            pulled = targets[r] - weights[r] @ columns + weights[r, r] * column
            columns[r] = _shrink(np.maximum(pulled, 0.0), penalty) / weights[r, r] if weights[r, r] > 0 else 0.0
    return np.ascontiguousarray(columns.T)


def _shrink(vector: Floats, threshold: float) -> Floats:
    norm = float(np.linalg.norm(vector))
    return vector * (1 - threshold / norm) if norm > threshold else np.zeros_like(vector)


@njit(cache=True, nogil=True)
def _sweep_rows(products: Floats, gram: Floats, rows: Floats, n_sweeps: int) -> None:
    rank = gram.shape[0]
    slope = np.empty(rank)
    for i in range(rows.shape[0]):
        slope[:] = products[i]
        for s in range(rank):
            if rows[i, s] != 0.0:
                for r in range(rank):
                    slope[r] -= rows[i, s] * gram[s, r]
        for _ in range(n_sweeps):
            for r in range(rank):
                stepped = max(0.0, rows[i, r] + slope[r] / gram[r, r]) if gram[r, r] > 0.0 else 0.0
                change = stepped - rows[i, r]
                if change != 0.0:
                    rows[i, r] = stepped
                    for s in range(rank):
                        slope[s] -= change * gram[r, s]


def hadamard_gram(factors: Sequence[ArrayLike | None], skip: int | None = None) -> Floats:
    """Elementwise product of the Gram matrices F^(m)'F^(m), m != skip: the Gram matrix of their Khatri-Rao product.

    Parameters
    ----------
    factors : sequence of array, each of shape (I_n, R)
        One matrix per mode.
    skip : int, optional
        Mode to leave out; its matrix is not read.

    Returns
    -------
    array of float, shape (R, R)

    Examples
    --------
    >>> hadamard_gram([[[1.0, 0.0]], [[1.0, 2.0]], [[3.0, 1.0]]], skip=0).tolist()
    [[9.0, 6.0], [6.0, 4.0]]
    """
    matrices = [np.asarray(one, dtype=np.float64) for n, one in enumerate(factors) if n != skip]
    return reduce(np.multiply, [matrix.T @ matrix for matrix in matrices])


def predict_entries(tensor: SparseTensor, factors: Sequence[ArrayLike]) -> Floats:
    """Values of the factorisation at the listed entries: the sum over columns of the product of rows.

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N modes; its counts are not read.
    factors : sequence of array, each of shape (I_n, R)
        One matrix per mode.

    Returns
    -------
    array of float, shape (nnz,)

    Raises
    ------
    ConfigurationError
        The factors do not fit the tensor.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 1], [1, 0]], [1.0, 1.0], (2, 2))
    >>> predict_entries(tensor, [[[1.0], [2.0]], [[3.0], [5.0]]]).tolist()
    [5.0, 6.0]
    """
    matrices = checked_factors(tensor, factors)
    return _predict(tensor.places, matrices[0], stack_features(matrices))


def squared_error(tensor: SparseTensor, factors: Sequence[ArrayLike]) -> float:
    """Squared distance ||O - X||_F^2 over all cells, zeros included, through Gram matrices.

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N modes, no entry listed twice.
    factors : sequence of array, each of shape (I_n, R)
        One matrix per mode.

    Returns
    -------
    float
        Nonnegative; for an exact fit, the rounding error of ||O||^2, about 1e-15 times its size.

    Raises
    ------
    ConfigurationError
        The factors do not fit the tensor.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 1]], [3.0], (2, 2))
    >>> squared_error(tensor, [[[1.0], [0.0]], [[1.0], [2.0]]])
    2.0
    """
    inner = float((mttkrp(tensor, factors, 0) * np.asarray(factors[0])).sum())
    return max(tensor.norm_squared - 2 * inner + float(hadamard_gram(factors).sum()), 0.0)


def squared_error_at_entries(tensor: SparseTensor, factors: Sequence[ArrayLike]) -> float:
    """Squared distance over only the listed entries, the loss that the DPFact paper's descent minimises.

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N modes.
    factors : sequence of array, each of shape (I_n, R)
        One matrix per mode.

    Raises
    ------
    ConfigurationError
        The factors do not fit the tensor.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 1]], [3.0], (2, 2))
    >>> squared_error_at_entries(tensor, [[[1.0], [0.0]], [[1.0], [2.0]]])
    1.0
    """
    residuals = tensor.counts - predict_entries(tensor, factors)
    return float(residuals @ residuals)


@njit(cache=True, nogil=True)
def _predict(places: Integers, patients: Floats, features: Floats) -> Floats:
    rank = patients.shape[1]
    values = np.empty(len(places))
    product = np.empty(rank)
    for e in range(len(places)):
        product[:] = patients[places[e, 0]]
        for m in range(1, places.shape[1]):
            row = features[places[e, m]]
            for r in range(rank):
                product[r] *= row[r]
        values[e] = product.sum()
    return values
