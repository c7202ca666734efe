"""Compiled descent of records through trees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.compilation import njit

Integers = NDArray[np.int32]


@njit(cache=True, nogil=True)
def descend(
    places: Integers,
    binned: NDArray[np.uint16],
    n_bins: NDArray[np.int64],
    roots: Integers,
    column: Integers,
    cut: Integers,
    default_left: NDArray[np.uint8],
    left: Integers,
) -> None:
    """Move every record in every tree from the node at its place to a leaf, in place.

    Parameters
    ----------
    places : array of shape (t, n)
        Nodes, counted from the root of each tree.
    binned : array of shape (n, d)
        Bin of each value; a missing value has the number of bins of its column.
    n_bins : array of shape (d,)
    roots : array of shape (t,)
    column, cut, default_left, left : arrays of shape (m,)
        Bins up to the cut go left; `default_left` is the side of missing values.

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> none, bins = np.zeros(3, dtype=np.uint8), np.array([[0], [1], [2]], dtype=np.uint16)
    >>> places = np.zeros((1, 3), dtype=np.int32)
    >>> descend(places, bins, np.array([2]), i4(0), i4(0, -1, -1), i4(0, 0, 0), none, i4(1, -1, -1))
    >>> places.tolist()
    [[1, 2, 2]]
    """
    for tree in range(roots.shape[0]):
        root = roots[tree]
        for record in range(binned.shape[0]):
            node = root + places[tree, record]
            while column[node] >= 0:
                value = binned[record, column[node]]
                is_missing = value == n_bins[column[node]]
                goes_left = default_left[node] != 0 if is_missing else value <= cut[node]
                node = left[node] if goes_left else left[node] + 1
            places[tree, record] = node - root


@njit(cache=True, nogil=True)
def add_leaves(margins: NDArray[np.float32], places: Integers, roots: Integers, value: NDArray[np.float32]) -> None:
    """Add the value of each record's leaf in each tree to its margin of that tree, in place.

    Parameters
    ----------
    margins : array of shape (n, t)
    places : array of shape (t, n)
        Leaves, counted from the root of each tree.
    roots : array of shape (t,)
    value : array of shape (m,)

    Examples
    --------
    >>> margins, places = np.zeros((2, 1), dtype=np.float32), np.array([[1, 2]], dtype=np.int32)
    >>> add_leaves(margins, places, np.zeros(1, dtype=np.int32), np.array([0, -2, 3], dtype=np.float32))
    >>> margins.ravel().tolist()
    [-2.0, 3.0]
    """
    for tree in range(roots.shape[0]):
        for record in range(margins.shape[0]):
            margins[record, tree] += value[roots[tree] + places[tree, record]]


@njit(cache=True, nogil=True)
def add_trees(
    margins: NDArray[np.float32],
    X: NDArray[np.float32],
    roots: Integers,
    group: Integers,
    column: Integers,
    threshold: NDArray[np.float32],
    default_left: NDArray[np.uint8],
    left: Integers,
    value: NDArray[np.float32],
) -> None:
    """Add the leaf values to the margins, shape (n, k), in the order of the trees.

    Values below the threshold go left; `default_left` is the side of missing values.

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> f4 = lambda *v: np.array(v, dtype=np.float32)
    >>> margins, none = np.zeros((2, 1), dtype=np.float32), np.zeros(3, dtype=np.uint8)
    >>> X = np.array([[0.5], [1.0]], dtype=np.float32)
    >>> add_trees(margins, X, i4(0), i4(0), i4(0, -1, -1), f4(1, 0, 0), none, i4(1, -1, -1), f4(0, -2, 3))
    >>> margins.ravel().tolist()
    [-2.0, 3.0]
    """
    for record in range(X.shape[0]):
        for tree in range(roots.shape[0]):
            node = roots[tree]
            while column[node] >= 0:
                entry = X[record, column[node]]
                goes_left = default_left[node] != 0 if np.isnan(entry) else entry < threshold[node]
                node = left[node] if goes_left else left[node] + 1
            margins[record, group[tree]] += value[node]


@njit(cache=True, nogil=True)
def find_nodes(
    X: NDArray[np.float32],
    roots: Integers,
    column: Integers,
    threshold: NDArray[np.float32],
    default_left: NDArray[np.uint8],
    left: Integers,
) -> Integers:
    """Return the number of each record's leaf among the nodes of each tree, shape (n, t).

    Values below the threshold go left; `default_left` is the side of missing values.

    Examples
    --------
    >>> i4, f4 = (lambda *v: np.array(v, dtype=np.int32)), (lambda *v: np.array(v, dtype=np.float32))
    >>> find_nodes(f4(1, 9)[:, None], i4(0), i4(0, -1, -1), f4(5, 0, 0), np.zeros(3, np.uint8), i4(1, -1, -1)).tolist()
    [[1], [2]]
    """
    leaves = np.empty((X.shape[0], roots.shape[0]), dtype=np.int32)
    for tree in range(roots.shape[0]):
        for record in range(X.shape[0]):
            node = roots[tree]
            while column[node] >= 0:
                entry = X[record, column[node]]
                goes_left = default_left[node] != 0 if np.isnan(entry) else entry < threshold[node]
                node = left[node] if goes_left else left[node] + 1
            leaves[record, tree] = node - roots[tree]
    return leaves
