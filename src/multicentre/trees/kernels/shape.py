"""Compiled checks of the shape of trees."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.compilation import njit

Integers = NDArray[np.int32]


@njit(cache=True, nogil=True)
def place_children(roots: Integers, column: Integers) -> tuple[Integers, int]:
    """Return the left child of each node, -1 at a leaf, and the depth of the deepest leaf; -1 unless nodes are trees.

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
def find_wrong_split(column: Integers, cut: Integers, lowest: int, n_cuts: NDArray[np.int64]) -> int:
    """Return 1 if a column does not exist, else 2 if a cut is below `lowest` or above those of its column, else 0.

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> splits = [(0, 2), (1, 2), (0, 3), (-1, 3)]
    >>> [find_wrong_split(i4(column), i4(cut), 0, np.array([3])) for column, cut in splits]
    [0, 1, 2, 0]
    """
    result = 0
    for node in range(column.shape[0]):
        if column[node] < -1 or column[node] >= n_cuts.shape[0]:
            return 1
        if column[node] >= 0 and not lowest <= cut[node] < n_cuts[column[node]]:
            result = 2
    return result
