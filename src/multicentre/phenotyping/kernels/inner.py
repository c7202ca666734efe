"""Inner products of a sparse tensor and a factorisation, and the squared errors that follow from them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from multicentre.phenotyping.kernels.mttkrp import mttkrp
from multicentre.phenotyping.kernels.sparse import Floats, Integers, SparseTensor, checked_factors, stack_features


def hadamard_gram(factors: Sequence[ArrayLike | None], skip: int | None = None) -> Floats:
    """Elementwise product of the Gram matrices F^(m)'F^(m), m != skip: the one of their Khatri-Rao product.

    Parameters
    ----------
    factors : sequence of array, each of shape (I_n, R)
        One matrix a mode.
    skip : int, optional
        Mode to leave out; its matrix is not looked at.

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
        Tensor of N modes; its counts are not looked at.
    factors : sequence of array, each of shape (I_n, R)
        One matrix a mode.

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
        One matrix a mode.

    Returns
    -------
    float
        Not below 0; of a fit that is exact, what rounding leaves of ||O||^2, about 1e-15 of it.

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
    """Squared distance over the listed entries alone, the loss that the DPFact paper's descent minimises.

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N modes.
    factors : sequence of array, each of shape (I_n, R)
        One matrix a mode.

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


@njit(cache=True)
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
