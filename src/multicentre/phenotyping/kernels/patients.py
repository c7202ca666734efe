"""Terms of single patients in sums over patients, bounded in norm: lengths and co-occurrences.

For any record, a patient adds a finite vector of norm at most 1. Entries are cut towards zero to a grid of 2**-30, so
sums of up to 2**22 patients are exact in any order, and a patient's term depends only on that patient's record, bit for
bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from multicentre.phenotyping.kernels.factors import SMALLEST, solve_free
from multicentre.phenotyping.kernels.hals import hadamard_gram, solve_columns, solve_rows
from multicentre.phenotyping.kernels.mttkrp import Floats, Pointers, SparseTensor, mttkrp

# Steps of the grid per unit: a double of 53 bits then holds sums of up to 2**22 terms exactly.
GRID = 2.0**30

# Share of a bound that is used, so that rounding never exceeds the bound. 2**-28 is far above the rounding errors of
# norms and far below the noise.
INSIDE = 1.0 - 2.0**-28


def patient_norms(tensor: SparseTensor) -> Floats:
    """Frobenius norm ||X_i||_F of every patient's slice, shape (I,); 0 for a patient without an entry.

    Examples
    --------
    >>> patient_norms(SparseTensor([[0, 0], [0, 1]], [3.0, 4.0], (2, 2))).tolist()
    [5.0, 0.0]
    """
    patients = tensor.coordinates[:, 0]
    largest = np.zeros(tensor.shape[0])
    np.maximum.at(largest, patients, np.abs(tensor.counts))
    units = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
    with np.errstate(over="ignore"):
        squares = np.bincount(patients, (tensor.counts / units[patients]) ** 2, minlength=len(largest))
        return np.asarray(units * np.sqrt(squares))


def cooccurrence(tensor: SparseTensor) -> dict[tuple[int, int], csr_array]:
    """Sum over patients of normalised co-occurrences of codes, W = sum_i X_i / ||X_i||_F.

    With more than two feature modes, a patient's marginals over the pairs of modes are divided by their joint norm.

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N >= 3 modes.

    Returns
    -------
    dict from (int, int) to scipy.sparse.csr_array, shape (I_m, I_n)
        By pair of feature modes, m < n. One patient changes all of them combined by at most 1 in the l2 norm.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0, 1], [0, 1, 1], [1, 0, 0]], [3.0, 4.0, 7.0], (2, 2, 2))
    >>> cooccurrence(tensor)[1, 2].toarray().round(6).tolist()
    [[1.0, 0.6], [0.0, 0.8]]
    """
    largest = np.zeros(tensor.shape[0])
    np.maximum.at(largest, tensor.coordinates[:, 0], np.abs(_finite(tensor.counts)))
    counts = _finite(tensor.counts) / np.where(largest > 0, largest, 1.0)[tensor.coordinates[:, 0]]
    marginals = {pair: _patient_marginals(tensor, pair, counts) for pair in combinations(range(1, tensor.n_modes), 2)}
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


def count_pairs(tensor: SparseTensor) -> dict[tuple[int, int], csr_array]:
    """Number of patients with each pair of codes, for all pairs of feature modes.

    Returns
    -------
    dict from (int, int) to scipy.sparse.csr_array, shape (I_m, I_n)

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0, 1], [0, 1, 1], [1, 0, 1]], [3.0, 4.0, 7.0], (2, 2, 2))
    >>> count_pairs(tensor)[1, 2].toarray().tolist()
    [[0.0, 2.0], [0.0, 1.0]]
    """
    counts = {}
    for m, n in combinations(range(1, tensor.n_modes), 2):
        cells, _ = _patient_marginals(tensor, (m, n), tensor.counts)
        shape = (tensor.shape[m], tensor.shape[n])
        counts[m, n] = csr_array((np.ones(len(cells)), (cells[:, 1], cells[:, 2])), shape=shape)
    return counts


def _finite(values: Floats) -> Floats:
    return np.where(np.isfinite(values), values, 0.0)


def _patient_marginals(tensor: SparseTensor, pair: tuple[int, int], counts: Floats) -> tuple[Pointers, Floats]:
    places = tensor.coordinates[:, (0, *pair)].astype(np.int64)
    keys = np.ravel_multi_index(tuple(places.T), tuple(tensor.shape[m] for m in (0, *pair)))
    _, first, group = np.unique(keys, return_index=True, return_inverse=True)
    sums: Floats = np.bincount(group, weights=counts, minlength=len(first)).astype(np.float64)
    return places[first], sums


def fit_memberships(
    tensor: SparseTensor,
    factors: Sequence[Floats],
    start: Floats,
    *,
    n_sweeps: int = 5,
    sparsity: float = 0.0,
    nonnegative: bool = True,
) -> Floats:
    """Minimise the squared error over all cells of the patients' rows, with a group lasso on the columns.

    Parameters
    ----------
    tensor : SparseTensor
        Patients by codes.
    factors : sequence of arrays of shape (codes, r)
        Feature factors, in the order of the modes.
    start : array of shape (n, r)
        Start of coordinate descent; rows of zeros start just above zero.
    n_sweeps : int, default 5
    sparsity : float, default 0
        ``mu_0``; the penalty is ``mu_0 sqrt(n)`` times the sum of the columns' lengths (l21 norm of the transpose,
        equation 9), since lengths grow with the root of the number of patients.
    nonnegative : bool, default True

    Returns
    -------
    array of shape (n, r)
    """
    everything = [start, *factors]
    products = mttkrp(tensor, everything, 0)
    gram = hadamard_gram(factors)
    if not nonnegative:
        return solve_free(products, gram)
    begin = np.maximum(start, SMALLEST)
    if sparsity > 0:
        return solve_columns(products, gram, begin, sparsity * float(np.sqrt(len(start))), n_sweeps)
    return solve_rows(products, gram, begin, n_sweeps)


def count_members(memberships: Floats, share: float) -> Floats:
    """Return the number of patients with at least `share` of their total in each phenotype, shape (r,).

    Examples
    --------
    >>> count_members(np.array([[9.0, 1.0], [5.0, 5.0], [0.0, 0.0]]), 0.2).tolist()
    [2.0, 1.0]
    """
    totals = memberships.sum(axis=1, keepdims=True)
    return np.asarray(((memberships >= share * totals) & (memberships > SMALLEST)).sum(axis=0), dtype=np.float64)


def effective_members(memberships: Floats) -> NDArray[np.int64]:
    """Return the effective number of patients of each phenotype, shape (r,); 0 if no patient has it.

    Kish's effective number ``(sum |a|)^2 / sum a^2``: a phenotype that one patient has almost alone counts one patient.

    Examples
    --------
    >>> effective_members(np.array([[1.0, 5.0], [2.0, 1e-6], [2.0, 0.0]])).tolist()
    [2, 1]
    """
    sizes = np.abs(memberships)
    largest = np.where(sizes.max(axis=0, initial=0.0) > SMALLEST, sizes.max(axis=0, initial=0.0), np.inf)
    shares = sizes / largest
    effective = shares.sum(axis=0) ** 2 / np.maximum((shares**2).sum(axis=0), np.finfo(np.float64).tiny)
    return np.floor(effective * (1 + 1e-12)).astype(np.int64)
