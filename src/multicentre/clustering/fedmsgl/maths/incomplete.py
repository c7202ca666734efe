"""Means over views that do not all have every sample.

K views, n common samples. Relations of a view with samples it lacks are 0 in a sum over views; a mean divides by the
number of views that have both samples of a pair.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Matrix: TypeAlias = Any


def mark_present(places: Integers, n: int) -> Flags:
    """Return which of the n common samples a view has.

    Examples
    --------
    >>> mark_present(np.array([2, 0]), 4).tolist()
    [True, False, True, False]
    """
    present = np.zeros(n, dtype=np.bool_)
    present[places] = True
    return present


def count_pairs(present: Flags, support: Matrix, weights: ArrayLike | None = None) -> Matrix:
    """Return how many views have both samples of each pair, or the sum of their weights.

    Parameters
    ----------
    present : bool array of shape (K, n)
    support : array or csr_array of shape (n, n)
        All pairs, or those where a csr_array has entries.
    weights : array of shape (K,), optional
        1 by default.

    Examples
    --------
    >>> count_pairs(np.array([[True, True, False], [True, True, True]]), np.zeros((3, 3))).tolist()
    [[2.0, 2.0, 1.0], [2.0, 2.0, 1.0], [1.0, 1.0, 1.0]]
    """
    known = present.astype(np.float64)
    weighted = known if weights is None else known * np.asarray(weights, dtype=np.float64)[:, None]
    if not issparse(support):
        return np.asarray(weighted.T @ known)
    counts = csr_array(support, copy=True)
    row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    counts.data = np.zeros(len(row))
    for one, held in zip(weighted, known, strict=True):
        counts.data += one[row] * held[counts.indices]
    return counts


def divide_by_pairs(total: Matrix, counts: Matrix) -> Matrix:
    """Return the mean over the views that have both samples of a pair; 0 for a pair that no view has.

    Parameters
    ----------
    total : array or csr_array of shape (n, n)
        Sum over the views.
    counts : array or csr_array of shape (n, n)
        From `count_pairs`; with the same entries as `total` where that is sparse.

    Examples
    --------
    >>> divide_by_pairs(np.array([[0.0, 3.0], [3.0, 0.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])).tolist()
    [[0.0, 1.5], [1.5, 0.0]]
    """
    if not issparse(total):
        return np.divide(total, counts, out=np.zeros_like(total), where=counts > 0)
    mean = csr_array(total, copy=True)
    mean.data = np.divide(total.data, counts.data, out=np.zeros_like(total.data), where=counts.data > 0)
    return mean
