"""Checks of requests at a site before it computes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.survival.hazard_boost import messages as sent
from multicentre.survival.hazard_boost.maths import LARGEST_STEP

# Maximum depth of a tree, and the number of nodes of a full tree of this depth.
MOST_DEPTH = 12
MOST_NODES = 2 ** (MOST_DEPTH + 1) - 1
# Largest numbers of trees of a model and of cells of a sum.
MOST_TREES = 100_000
MOST_CELLS = 2**26
# Largest magnitude of the initial log odds; beyond it a hazard is numerically 0 or 1.
LARGEST_BASE = 50.0


def check_beginning(ask: sent.Beginning, n_times: int) -> None:
    """Raise MessageError unless there is a finite initial value per interval, and shares are between 0 and 1."""
    if len(ask.base) != n_times or not (np.abs(ask.base) <= LARGEST_BASE).all():
        raise MessageError(
            f"base must hold {n_times} log odds of magnitude up to {LARGEST_BASE:g}; got others", where="Beginning.base"
        )
    if not (0 < ask.subsample <= 1 and 0 <= ask.validation_fraction < 1 and ask.seed >= 0):
        raise MessageError(
            f"subsample and validation_fraction must be between 0 and 1, and seed non-negative; got {ask.subsample}, "
            f"{ask.validation_fraction} and {ask.seed}",
            where="Beginning",
        )


def check_level(ask: sent.Level, max_bins: NDArray[np.int64], n_leaves: int) -> None:
    """Raise MessageError unless the growing tree has these columns, and the leaves to sum are different leaves.

    Parameters
    ----------
    ask : Level
    max_bins : array of shape (d + 1,)
        Number of bins of every column, and of intervals.
    n_leaves : int
        Number of leaves that are summed.
    """
    if not 0 <= ask.number < MOST_TREES:
        raise MessageError(
            f"number must be from 0 to {MOST_TREES - 1}; got {ask.number}",
            where="Level.number",
            hint="Fit fewer trees.",
        )
    check_tree(ask.growing, max_bins)
    wanted = ask.wanted.tolist()
    good = bool(wanted) and len(wanted) == len(set(wanted)) and set(wanted) <= set(range(len(ask.column)))
    if not good or (ask.column[wanted] >= 0).any():
        raise MessageError("wanted must be different leaves of the tree; got other nodes", where="Level.wanted")
    n_cells = n_leaves * int(max_bins.sum())
    if n_cells > MOST_CELLS:
        hint = "Lower max_depth or max_bins."
        raise MessageError(f"sums must have at most {MOST_CELLS} cells; got {n_cells}", where="Level.wanted", hint=hint)


def check_tree(tree: sent.Tree, max_bins: NDArray[np.int64]) -> None:
    """Raise MessageError unless the arrays form a tree with bins on either side of each cut, of depth at most 12.

    Examples
    --------
    >>> leaf = np.array([-1], dtype=np.int32)
    >>> check_tree(sent.Tree(leaf, leaf, leaf, leaf, np.zeros(1)), np.array([2, 4]))
    """
    from multicentre.survival.kernels.hazard import is_tree

    if len(tree.column) > MOST_NODES or not is_tree(tree.column, tree.cut, tree.left, tree.right, max_bins):
        raise MessageError("the nodes must form a tree of these columns and bins; got others", where="Tree")
    if int(node_depths(tree).max()) > MOST_DEPTH:
        raise MessageError(
            f"the tree must have a depth of at most {MOST_DEPTH}; got a deeper one",
            where="Tree",
            hint="Lower max_depth.",
        )
    if not (np.abs(tree.value) <= LARGEST_STEP).all():
        raise MessageError(
            f"values of leaves must be at most {LARGEST_STEP:g} in magnitude; got larger ones", where="Tree.value"
        )


def node_depths(tree: sent.Tree) -> NDArray[np.int64]:
    """Return the depth of each node, shape (m,).

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> node_depths(sent.Tree(i4(0, -1, -1), i4(0, 0, 0), i4(1, -1, -1), i4(2, -1, -1), np.zeros(3))).tolist()
    [0, 1, 1]
    """
    depth = np.zeros(len(tree.column), dtype=np.int64)
    for node in np.flatnonzero(tree.column >= 0).tolist():
        depth[[tree.left[node], tree.right[node]]] = depth[node] + 1
    return depth
