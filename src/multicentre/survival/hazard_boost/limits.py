"""What a site holds against an ask before it computes anything."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.survival.hazard_boost import messages as sent
from multicentre.survival.hazard_boost.maths import LARGEST_STEP

MOST_DEPTH = 12
MOST_NODES = 2 ** (MOST_DEPTH + 1) - 1
MOST_TREES = 100_000
MOST_CELLS = 2**26
LARGEST_BASE = 50.0


def check_beginning(ask: sent.Beginning, n_times: int) -> None:
    """Raise MessageError unless there is a finite start for each interval, and the shares are shares."""
    if len(ask.base) != n_times or not (np.abs(ask.base) <= LARGEST_BASE).all():
        raise MessageError("the start does not fit the grid", where="Beginning.base")
    if not (0 < ask.subsample <= 1 and 0 <= ask.validation_fraction < 1 and ask.seed >= 0):
        raise MessageError("a share is not between 0 and 1", where="Beginning")


def check_level(ask: sent.Level, max_bins: NDArray[np.int64], n_leaves: int) -> None:
    """Raise MessageError unless the growing tree is one of these columns, and what is wanted are leaves, each once.

    Parameters
    ----------
    ask : Level
    max_bins : array of shape (d + 1,)
        Number of bins of every column, and of intervals.
    n_leaves : int
        Leaves that are summed.
    """
    if not 0 <= ask.number < MOST_TREES:
        raise MessageError(f"more than {MOST_TREES} trees", where="Level.number", hint="Ask for fewer trees.")
    check_tree(ask.growing, max_bins)
    wanted = ask.wanted.tolist()
    good = bool(wanted) and len(wanted) == len(set(wanted)) and set(wanted) <= set(range(len(ask.column)))
    if not good or (ask.column[wanted] >= 0).any():
        raise MessageError("what is wanted are not leaves of the tree", where="Level.wanted")
    n_cells = n_leaves * int(max_bins.sum())
    if n_cells > MOST_CELLS:
        hint = "Lower max_depth or max_bins."
        raise MessageError(f"sums in {n_cells} cells are too many", where="Level.wanted", hint=hint)


def check_tree(tree: sent.Tree, max_bins: NDArray[np.int64]) -> None:
    """Raise MessageError unless the arrays make one tree whose cuts leave bins on either side, at most 12 splits deep.

    Examples
    --------
    >>> leaf = np.array([-1], dtype=np.int32)
    >>> check_tree(sent.Tree(leaf, leaf, leaf, leaf, np.zeros(1)), np.array([2, 4]))
    """
    from multicentre.survival.kernels.hazard import is_tree

    if len(tree.column) > MOST_NODES or not is_tree(tree.column, tree.cut, tree.left, tree.right, max_bins):
        raise MessageError("the nodes do not make a tree of these columns and bins", where="Tree")
    if int(node_depths(tree).max()) > MOST_DEPTH:
        raise MessageError(f"more than {MOST_DEPTH} splits on the way to a leaf", where="Tree", hint="Lower max_depth.")
    if not (np.abs(tree.value) <= LARGEST_STEP).all():
        raise MessageError("a leaf's value is out of range", where="Tree.value")


def node_depths(tree: sent.Tree) -> NDArray[np.int64]:
    """Return how many splits lead to each node, shape (m,).

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
