"""Whether arrays of nodes make trees: what every model of trees checks before it follows a path."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.int32]


def are_nodes(roots: Integers, column: Integers, left: Integers, right: Integers) -> bool:
    """Tell whether nodes make at least one tree, so that every path from a root ends at a leaf of the same tree.

    Parameters
    ----------
    roots : array of shape (T,)
        First node of every tree, increasing from 0.
    column, left, right : array of shape (m,)
        Column of the split and children; -1 at a leaf. A child comes after its parent, and has only one.

    Examples
    --------
    >>> i4 = lambda *values: np.array(values, dtype=np.int32)
    >>> are_nodes(i4(0), i4(0, -1, -1), i4(1, -1, -1), i4(2, -1, -1))
    True
    >>> are_nodes(i4(0), i4(0, -1, -1), i4(0, -1, -1), i4(2, -1, -1))
    False
    """
    n_nodes, starts = len(column), roots.astype(np.int64)
    if not len(starts) or starts[0] != 0 or (np.diff(starts) <= 0).any() or starts[-1] >= n_nodes:
        return False
    leaves = column < 0
    parents = np.flatnonzero(~leaves)
    ends = np.append(starts[1:], n_nodes)[np.searchsorted(starts, parents, side="right") - 1]
    for children in (left, right):
        if (children[leaves] != -1).any() or not ((children[parents] > parents) & (children[parents] < ends)).all():
            return False
    n_parents = np.bincount(np.concatenate([left[parents], right[parents], starts]), minlength=n_nodes)
    return bool((column[leaves] == -1).all() and (n_parents == 1).all())
