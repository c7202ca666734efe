"""Compiled descents of many patients through many trees."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]


@njit(cache=True)
def find_leaves(
    X: Floats, roots: Integers, column: Integers, threshold: Floats, left: Integers, right: Integers, leaf: Integers
) -> Integers:
    """Return each patient's leaf in every tree, shape (n, T).

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> thresholds = np.array([0.5, 0.0, 0.0])
    >>> find_leaves(np.array([[0.0], [1.0]]), i4(0), i4(0, -1, -1), thresholds, i4(1, -1, -1), i4(2, -1, -1),
    ...             i4(-1, 0, 1)).tolist()
    [[0], [1]]
    """
    found = np.empty((X.shape[0], roots.shape[0]), dtype=np.int32)
    for patient in range(X.shape[0]):
        for tree in range(roots.shape[0]):
            node = roots[tree]
            while column[node] >= 0:
                node = left[node] if X[patient, column[node]] <= threshold[node] else right[node]
            found[patient, tree] = leaf[node]
    return found


@njit(cache=True)
def average_rows(rows: Integers, shares: Floats, values: Floats) -> Floats:
    """Return each patient's weighted mean of rows of `values`, shape (n, K), from row numbers of shape (n, T).

    Examples
    --------
    >>> average_rows(np.array([[0, 1]], dtype=np.int32), np.array([0.25, 0.75]), np.array([[1.0], [0.0]])).tolist()
    [[0.25]]
    """
    mean = np.zeros((rows.shape[0], values.shape[1]))
    for patient in range(rows.shape[0]):
        for tree in range(rows.shape[1]):
            row, share = rows[patient, tree], shares[tree]
            for time in range(values.shape[1]):
                mean[patient, time] += share * values[row, time]
    return mean
