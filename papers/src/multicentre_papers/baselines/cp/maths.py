"""Array functions of alternating least squares and of the entry order (Kolda and Bader, SIAM Review, 2009)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from multicentre.phenotyping.kernels.factors import SMALLEST, normalise_columns, solve_free, squared_error_of_update
from multicentre.phenotyping.kernels.hals import solve_rows
from multicentre.phenotyping.kernels.mttkrp import Floats, SparseTensor, mttkrp


def sweep_modes(
    tensor: SparseTensor, factors: Sequence[Floats], *, nonnegative: bool, n_sweeps: int
) -> tuple[list[Floats], float]:
    """Update every mode once by least squares with the other modes fixed; patients come first.

    Parameters
    ----------
    tensor : SparseTensor
    factors : sequence of arrays of shape (I_n, r)
        One per mode. The patients' factors are ignored unless `nonnegative`.
    nonnegative : bool
        Use coordinate descent within F >= 0 instead of the normal equations.
    n_sweeps : int
        Coordinate descent sweeps per mode.

    Returns
    -------
    factors : list of arrays of shape (I_n, r)
        Columns have unit length, except in the last mode, which carries the scale.
    squared_error : float
        ``||O - X||^2`` over all cells. An exact fit leaves a rounding error of about 1e-15 of ``||O||^2``.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0, 1], [1, 0, 1]], [2.0, 1.0], (2, 1, 2))
    >>> start = [np.ones((size, 1)) for size in tensor.shape]
    >>> factors, error = sweep_modes(tensor, start, nonnegative=False, n_sweeps=1)
    >>> factors[2].round(3).tolist(), round(error, 12)
    ([[0.0], [2.236]], 0.0)
    """
    matrices = list(factors)
    grams = [matrix.T @ matrix for matrix in matrices]
    products = others = np.zeros((0, 0))
    for mode in range(tensor.n_modes):
        products = mttkrp(tensor, matrices, mode)
        others = reduce(np.multiply, [gram for n, gram in enumerate(grams) if n != mode])
        if nonnegative:
            solved = solve_rows(products, others, np.maximum(matrices[mode], SMALLEST), n_sweeps)
        else:
            solved = solve_free(products, others)
        is_last = mode == tensor.n_modes - 1
        matrices[mode] = solved if is_last else normalise_columns(solved)[0]
        grams[mode] = matrices[mode].T @ matrices[mode]
    return matrices, max(squared_error_of_update(tensor.norm_squared, products, matrices[-1], others), 0.0)


def order_by_patient(patients: NDArray[np.int32], n_patients: int, generator: np.random.Generator) -> NDArray[np.int64]:
    """Return an order of the entries: patients at random, the entries of each patient adjacent and in listed order.

    Parameters
    ----------
    patients : array of shape (nnz,)
        Patient of every entry.
    n_patients : int
    generator : numpy.random.Generator

    Examples
    --------
    >>> order_by_patient(np.array([0, 0, 1, 1]), 2, np.random.default_rng(3)).tolist()
    [2, 3, 0, 1]
    """
    positions = generator.permutation(n_patients)
    return np.argsort(positions[patients], kind="stable")
