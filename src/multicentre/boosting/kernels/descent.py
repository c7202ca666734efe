"""Compiled descents: which leaf a record falls into, by its bins or by its values.

A tree's nodes stand in the order in which they were split: the children of its j-th split are its nodes 1 + 2 j and
2 + 2 j. `left` holds the left child's place among all nodes, -1 at a leaf.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Integers = NDArray[np.int32]


@njit(cache=True, nogil=True)
def place_children(roots: Integers, column: Integers) -> tuple[Integers, int]:
    """Return every node's left child, -1 at a leaf, and the splits on the longest way to a leaf; -1 if no trees.

    Parameters
    ----------
    roots : array of shape (t,)
        First node of every tree.
    column : array of shape (m,)
        Column of a node's split, below 0 at a leaf.

    Examples
    --------
    >>> left, depth = place_children(np.array([0, 3], dtype=np.int32), np.array([5, -1, -1, -1], dtype=np.int32))
    >>> left.tolist(), depth
    ([1, -1, -1, -1], 1)
    """
    n_trees, n_nodes = roots.shape[0], column.shape[0]
    left, depths = np.full(n_nodes, -1, dtype=np.int32), np.zeros(n_nodes, dtype=np.int32)
    longest = 0
    if (n_trees == 0) != (n_nodes == 0) or (n_trees > 0 and roots[0] != 0):
        return left, -1
    for tree in range(n_trees):
        start, end = roots[tree], roots[tree + 1] if tree + 1 < n_trees else n_nodes
        if not 0 <= start < end <= n_nodes:
            return left, -1
        child = start + 1
        for node in range(start, end):
            if column[node] < 0:
                continue
            if child <= node or child + 1 >= end:
                return left, -1
            left[node] = child
            depths[child] = depths[child + 1] = depths[node] + 1
            longest = max(longest, depths[child])
            child += 2
        if child != end:
            return left, -1
    return left, longest


@njit(cache=True, nogil=True)
def find_leaves(
    binned: NDArray[np.uint16],
    n_bins: NDArray[np.int64],
    roots: Integers,
    column: Integers,
    cut: Integers,
    default_left: NDArray[np.uint8],
    left: Integers,
) -> Integers:
    """Return the leaf of every record in every tree, shape (t, n).

    Parameters
    ----------
    binned : array of shape (n, d)
        Bin of every value; `n_bins` of the column where it is missing.
    n_bins : array of shape (d,)
    roots : array of shape (t,)
    column, cut, default_left, left : arrays of shape (m,)
        Bins up to the cut go left, missing values where `default_left` says.

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> none, bins = np.zeros(3, dtype=np.uint8), np.array([[0], [1], [2]], dtype=np.uint16)
    >>> find_leaves(bins, np.array([2]), i4(0), i4(0, -1, -1), i4(0, 0, 0), none, i4(1, -1, -1)).tolist()
    [[1, 2, 2]]
    """
    found = np.empty((roots.shape[0], binned.shape[0]), dtype=np.int32)
    for tree in range(roots.shape[0]):
        for record in range(binned.shape[0]):
            node = roots[tree]
            while column[node] >= 0:
                value = binned[record, column[node]]
                is_missing = value == n_bins[column[node]]
                goes_left = default_left[node] != 0 if is_missing else value <= cut[node]
                node = left[node] if goes_left else left[node] + 1
            found[tree, record] = node
    return found


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
    """Add the trees' values to the margins, shape (n, k), one tree after the other.

    Values below the threshold go left, missing ones where `default_left` says.

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
                known = X[record, column[node]]
                goes_left = default_left[node] != 0 if np.isnan(known) else known < threshold[node]
                node = left[node] if goes_left else left[node] + 1
            margins[record, group[tree]] += value[node]
