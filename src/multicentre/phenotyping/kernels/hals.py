"""Nonnegative least squares by cyclic coordinate descent (hierarchical alternating least squares, HALS).

Both solve min 1/2 ||X - F K'||_F^2 over F >= 0 from the products X K and the Gram matrix K'K (Cichocki and Phan,
*IEICE Trans. Fundamentals*, 2009); the second adds a group lasso on the columns of F.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from multicentre.phenotyping.kernels.sparse import Floats


def solve_rows(products: ArrayLike, gram: ArrayLike, start: ArrayLike, n_sweeps: int) -> Floats:
    """Nonnegative rows by sweeps over their columns, f_r <- max(0, f_r + (p_r - f.g_r) / g_rr).

    Parameters
    ----------
    products : array of float, shape (I, R)
        Data times Khatri-Rao product, one row a patient or code.
    gram : array of float, shape (R, R)
        Symmetric Gram matrix of the Khatri-Rao product. A column with nothing on the diagonal becomes 0.
    start : array of float, shape (I, R)
        Where to begin, a warm start; not changed.
    n_sweeps : int
        Sweeps over the columns; 3 to 10 inside alternating updates.

    Returns
    -------
    array of float, shape (I, R)
        Not below 0. A row is the same, bit for bit, whatever the other rows are: the bounds
        on what one patient adds to a private fit rest on it.

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
        Data times Khatri-Rao product, one row a patient.
    gram : array of float, shape (R, R)
        Symmetric Gram matrix of the Khatri-Rao product. A column with nothing on the diagonal becomes 0.
    start : array of float, shape (I, R)
        Where to begin, a warm start; not changed.
    penalty : float
        Weight of a column's norm, 0 or more; from about ||p_r|| on, the column becomes 0.
    n_sweeps : int
        Sweeps over the columns.

    Returns
    -------
    array of float, shape (I, R)
        Not below 0. Unlike those of `solve_rows`, a row depends on the others, through the columns' norms.

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


@njit(cache=True)
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
