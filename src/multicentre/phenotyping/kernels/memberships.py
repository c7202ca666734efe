"""Memberships of patients in phenotypes given the feature factors: what stays beside the patients."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from multicentre.phenotyping.kernels.factors import SMALLEST, solve_free
from multicentre.phenotyping.kernels.hals import solve_columns, solve_rows
from multicentre.phenotyping.kernels.inner import hadamard_gram
from multicentre.phenotyping.kernels.mttkrp import mttkrp
from multicentre.phenotyping.kernels.sparse import Floats, SparseTensor


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
        Where coordinate descent begins; rows of zeros begin just above zero.
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
    """Return how many patients have at least `share` of their own total in each phenotype, shape (r,).

    Examples
    --------
    >>> count_members(np.array([[9.0, 1.0], [5.0, 5.0], [0.0, 0.0]]), 0.2).tolist()
    [2.0, 1.0]
    """
    totals = memberships.sum(axis=1, keepdims=True)
    return np.asarray(((memberships >= share * totals) & (memberships > SMALLEST)).sum(axis=0), dtype=np.float64)


def effective_members(memberships: Floats) -> NDArray[np.int64]:
    """Return how many patients have each phenotype in effect, shape (r,); 0 where nobody has it.

    Kish's effective number ``(sum |a|)^2 / sum a^2``: one patient with nearly all of a phenotype is one, however many
    others have a trace of it.

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
