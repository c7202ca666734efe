"""Multiplicative updates under the Kullback-Leibler divergence, exact zeros included: Poisson factorisation.

CP-APR of Chi and Kolda, *On tensors, sparsity, and nonnegative factorizations*, SIAM J. Matrix Anal. Appl. 2012: the
sum of the model over all cells is a product of column sums, so that no zero is visited.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from multicentre.phenotyping.kernels.hals import predict_entries
from multicentre.phenotyping.kernels.mttkrp import Floats, SparseTensor, mttkrp

# Least prediction that a count is divided by: small enough not to change a fit, large enough to avoid overflow.
SMALLEST = 1e-10


def poisson_loss(tensor: SparseTensor, factors: Sequence[ArrayLike]) -> float:
    """Sum over all cells of x - o log x, the part of the Poisson likelihood that depends on the model.

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N modes.
    factors : sequence of array, each of shape (I_n, R)
        One nonnegative matrix per mode.

    Raises
    ------
    ConfigurationError
        The factors do not fit the tensor.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0]], [2.0], (1, 2))
    >>> poisson_loss(tensor, [[[1.0]], [[1.0], [3.0]]])
    4.0
    """
    predictions = np.maximum(predict_entries(tensor, factors), SMALLEST)
    return float(column_totals(factors).sum() - tensor.counts @ np.log(predictions))


def patient_losses(tensor: SparseTensor, factors: Sequence[ArrayLike]) -> Floats:
    """Term of every patient in `poisson_loss`, shape (I,), with the same parameters.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0]], [2.0], (2, 2))
    >>> patient_losses(tensor, [[[1.0], [0.5]], [[1.0], [3.0]]]).tolist()
    [4.0, 2.0]
    """
    predictions = np.maximum(predict_entries(tensor, factors), SMALLEST)
    logs = np.bincount(tensor.coordinates[:, 0], tensor.counts * np.log(predictions), minlength=tensor.shape[0])
    return np.asarray(np.asarray(factors[0]) @ column_totals(factors, skip=0) - logs)


def column_totals(factors: Sequence[ArrayLike | None], skip: int | None = None) -> Floats:
    """Product over modes of the column sums, shape (R,): the mass of every component over all cells.

    Parameters
    ----------
    factors : sequence of array, each of shape (I_n, R)
        One matrix per mode.
    skip : int, optional
        Mode to leave out; its matrix is not read.

    Examples
    --------
    >>> column_totals([[[1.0], [2.0]], [[4.0]]]).tolist()
    [12.0]
    """
    sums = [np.asarray(factor, dtype=np.float64).sum(axis=0) for n, factor in enumerate(factors) if n != skip]
    return np.asarray(np.prod(sums, axis=0))


def ratio_products(tensor: SparseTensor, factors: Sequence[ArrayLike], mode: int) -> Floats:
    """Matricised product of the counts over their predictions, Phi_n: the term of a site in a multiplicative update.

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N modes.
    factors : sequence of array, each of shape (I_n, R)
        One nonnegative matrix per mode.
    mode : int
        Mode to be updated.

    Returns
    -------
    array of float, shape (I_mode, R)

    Raises
    ------
    ConfigurationError
        The factors do not fit the tensor.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0]], [6.0], (1, 1))
    >>> ratio_products(tensor, [[[1.0]], [[2.0]]], mode=1).tolist()
    [[3.0]]
    """
    return mttkrp(tensor, factors, mode, values=poisson_ratios(tensor, factors))


def poisson_ratios(tensor: SparseTensor, factors: Sequence[ArrayLike]) -> Floats:
    """Counts over their predictions, shape (nnz,).

    Examples
    --------
    >>> poisson_ratios(SparseTensor([[0, 0]], [6.0], (1, 1)), [[[1.0]], [[2.0]]]).tolist()
    [3.0]
    """
    return np.asarray(tensor.counts / np.maximum(predict_entries(tensor, factors), SMALLEST))


def multiply_rows(factor: ArrayLike, products: ArrayLike, totals: ArrayLike) -> Floats:
    """Multiplicative update f <- f phi / (column totals of the other modes), which never raises the Poisson loss.

    Parameters
    ----------
    factor : array of float, shape (I, R)
        Matrix to update; not changed. Zeros remain zeros.
    products : array of float, shape (I, R)
        `ratio_products` of its mode, summed over sites where it is a feature mode.
    totals : array of float, shape (R,)
        `column_totals` of the other modes, those of the patients summed over sites. A column of total 0 becomes 0.

    Returns
    -------
    array of float, shape (I, R)

    Examples
    --------
    >>> multiply_rows([[2.0]], [[3.0]], [1.0]).tolist()
    [[6.0]]
    """
    divisors = np.asarray(totals, dtype=np.float64)
    shares = np.divide(1.0, divisors, out=np.zeros_like(divisors), where=divisors > 0)
    return np.asarray(factor, dtype=np.float64) * np.asarray(products, dtype=np.float64) * shares


def fit_rates(tensor: SparseTensor, factors: Sequence[Floats], memberships: Floats, n_steps: int) -> Floats:
    """Memberships after `n_steps` multiplicative updates with the features' factors held.

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N modes.
    factors : sequence of array, each of shape (I_n, R)
        One matrix per feature mode, N - 1 in total.
    memberships : array of float, shape (I, R)
        Start of the updates, above 0.
    n_steps : int

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0]], [6.0], (1, 1))
    >>> fit_rates(tensor, [np.array([[2.0]])], np.array([[1.0]]), 1).tolist()
    [[3.0]]
    """
    totals = column_totals(factors)
    for _ in range(n_steps):
        memberships = multiply_rows(memberships, ratio_products(tensor, [memberships, *factors], 0), totals)
    return memberships
