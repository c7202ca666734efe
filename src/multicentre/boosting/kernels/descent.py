"""Compiled descent of records through trees, and checks of the trees that a coordinator sends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.compilation import njit

Integers = NDArray[np.int32]


@njit(cache=True, nogil=True)
def place_children(roots: Integers, column: Integers) -> tuple[Integers, int]:
    """Return the left child of each node, -1 at a leaf, and the depth of the deepest leaf; -1 unless nodes are trees.

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
    n_estimators, n_nodes = roots.shape[0], column.shape[0]
    left, depths = np.full(n_nodes, -1, dtype=np.int32), np.zeros(n_nodes, dtype=np.int32)
    longest = 0
    if (n_estimators == 0) != (n_nodes == 0) or (n_estimators > 0 and roots[0] != 0):
        return left, -1
    for tree in range(n_estimators):
        start, end = roots[tree], roots[tree + 1] if tree + 1 < n_estimators else n_nodes
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
def check_splits(column: Integers, cut: Integers, n_bins: NDArray[np.int64]) -> int:
    """Return 0 if each split is at a bin of a column, 1 if a column does not exist, and 2 if a bin does not exist.

    Parameters
    ----------
    column : array of shape (m,)
        -1 at a leaf.
    cut : array of shape (m,)
        Last bin of the left side; -1 if only missing values go left.
    n_bins : array of shape (d,)

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> [check_splits(i4(column), i4(cut), np.array([3])) for column, cut in [(0, 2), (1, 2), (0, 3), (-1, 3)]]
    [0, 1, 2, 0]
    """
    n_columns = n_bins.shape[0]
    result = 0
    for node in range(column.shape[0]):
        if column[node] < -1 or column[node] >= n_columns:
            return 1
        if column[node] >= 0 and not -1 <= cut[node] < n_bins[column[node]]:
            result = 2
    return result


@njit(cache=True, nogil=True)
def are_leaves(wanted: Integers, start: int, column: Integers) -> bool:
    """Return whether there are wanted nodes, and all are different leaves from `start` on.

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> [are_leaves(wanted, 1, i4(-1, 0, -1, -1)) for wanted in (i4(2, 3), i4(2, 2), i4(1), i4(0), i4(4), i4())]
    [True, False, False, False, False, False]
    """
    is_wanted = np.zeros(column.shape[0], dtype=np.bool_)
    for node in wanted:
        if not (start <= node < column.shape[0]) or column[node] >= 0 or is_wanted[node]:
            return False
        is_wanted[node] = True
    return bool(wanted.shape[0] > 0)


@njit(cache=True, nogil=True)
def are_extended(
    roots: Integers,
    column: Integers,
    cut: Integers,
    default_left: NDArray[np.uint8],
    left: Integers,
    later_roots: Integers,
    later_column: Integers,
    later_cut: Integers,
    later_default_left: NDArray[np.uint8],
    later_left: Integers,
) -> bool:
    """Return whether later trees, as many, contain every split of the earlier ones at the same node.

    Examples
    --------
    >>> i4, none = (lambda *v: np.array(v, dtype=np.int32)), np.zeros(3, dtype=np.uint8)
    >>> leaf, stump = (i4(0), i4(-1), i4(0), none[:1], i4(-1)), (i4(0), i4(2, -1, -1), i4(1, 0, 0), none, i4(1, -1, -1))
    >>> are_extended(*leaf, *stump), are_extended(*stump, *leaf)
    (True, False)
    """
    n_trees = roots.shape[0]
    for tree in range(n_trees):
        root, later_root = roots[tree], later_roots[tree]
        n_nodes = (roots[tree + 1] if tree + 1 < n_trees else column.shape[0]) - root
        n_later = (later_roots[tree + 1] if tree + 1 < n_trees else later_column.shape[0]) - later_root
        if n_later < n_nodes:
            return False
        for place in range(n_nodes):
            node, later = root + place, later_root + place
            if column[node] >= 0 and (
                column[node] != later_column[later]
                or cut[node] != later_cut[later]
                or default_left[node] != later_default_left[later]
                or left[node] - root != later_left[later] - later_root
            ):
                return False
    return True


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
