"""Compiled evaluation of many trees for many patients."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from multicentre.compilation import njit

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]

# Arrays of decoded models are read-only. With read-only types one compiled kernel serves all models.
_NUMBERS, _TABLE = (types.Array(types.float64, ndim, "C", readonly=True) for ndim in (1, 2))
_NODES = types.Array(types.int32, 1, "C", readonly=True)
_TREES = (_NODES, _NODES, _NUMBERS, _NODES, _NODES, _NODES)


@njit(cache=True, nogil=True)
def find_leaf(
    row: Floats, root: int, column: Integers, threshold: Floats, left: Integers, right: Integers, leaf: Integers
) -> int:
    """Return the leaf of a patient in the tree that starts at `root`.

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> find_leaf(np.array([0.7]), 0, i4(0, -1, -1), np.array([0.5, 0.0, 0.0]), i4(1, -1, -1), i4(2, -1, -1),
    ...           i4(-1, 0, 1))
    1
    """
    node = root
    while column[node] >= 0:
        node = left[node] if row[column[node]] <= threshold[node] else right[node]
    return leaf[node]


@njit(types.int32[:, ::1](_TABLE, *_TREES), cache=True, nogil=True)
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
    leaves = np.empty((X.shape[0], roots.shape[0]), dtype=np.int32)
    for patient in range(X.shape[0]):
        for tree in range(roots.shape[0]):
            leaves[patient, tree] = find_leaf(X[patient], roots[tree], column, threshold, left, right, leaf)
    return leaves


@njit(types.float64[:, ::1](_TABLE, *_TREES, _NUMBERS, _TABLE), cache=True, nogil=True)
def average_curves(
    X: Floats,
    roots: Integers,
    column: Integers,
    threshold: Floats,
    left: Integers,
    right: Integers,
    leaf: Integers,
    shares: Floats,
    curves: Floats,
) -> Floats:
    """Return each patient's weighted mean of the curves of the patient's leaves, shape (n, K).

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> tree = i4(0), i4(0, -1, -1), np.array([0.5, 0.0, 0.0]), i4(1, -1, -1), i4(2, -1, -1), i4(-1, 0, 1)
    >>> average_curves(np.array([[0.0], [1.0]]), *tree, np.ones(1), np.array([[0.9, 0.8], [0.5, 0.2]])).tolist()
    [[0.9, 0.8], [0.5, 0.2]]
    """
    mean = np.zeros((X.shape[0], curves.shape[1]))
    for patient in range(X.shape[0]):
        for tree in range(roots.shape[0]):
            row = find_leaf(X[patient], roots[tree], column, threshold, left, right, leaf)
            for time in range(curves.shape[1]):
                mean[patient, time] += shares[tree] * curves[row, time]
    return mean


@njit(types.float64[::1](_TABLE, *_TREES, _NUMBERS, _NUMBERS), cache=True, nogil=True)
def average_numbers(
    X: Floats,
    roots: Integers,
    column: Integers,
    threshold: Floats,
    left: Integers,
    right: Integers,
    leaf: Integers,
    shares: Floats,
    numbers: Floats,
) -> Floats:
    """Return each patient's weighted mean of a number per leaf, over the patient's leaves, shape (n,).

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> tree = i4(0), i4(0, -1, -1), np.array([0.5, 0.0, 0.0]), i4(1, -1, -1), i4(2, -1, -1), i4(-1, 0, 1)
    >>> average_numbers(np.array([[0.0], [1.0]]), *tree, np.ones(1), np.array([4.0, 2.0])).tolist()
    [4.0, 2.0]
    """
    mean = np.zeros(X.shape[0])
    for patient in range(X.shape[0]):
        for tree in range(roots.shape[0]):
            row = find_leaf(X[patient], roots[tree], column, threshold, left, right, leaf)
            mean[patient] += shares[tree] * numbers[row]
    return mean
