"""What a site holds against an ask before it computes anything."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.survival.hazard import messages as sent
from multicentre.survival.hazard.maths import LARGEST_STEP

MOST_NODES = 2**16
LARGEST_BASE = 50.0


def check_beginning(ask: sent.Beginning, n_times: int) -> None:
    """Raise MessageError unless there is a finite start for each interval, and the shares are shares."""
    if len(ask.base) != n_times or np.abs(ask.base).max(initial=0.0) > LARGEST_BASE:
        raise MessageError("the start does not fit the grid", where="Beginning.base")
    if not (0 < ask.subsample <= 1 and 0 <= ask.validation < 1 and ask.seed >= 0):
        raise MessageError("a share is not between 0 and 1", where="Beginning")


def check_level(ask: sent.Level, n_bins: NDArray[np.int64]) -> None:
    """Raise MessageError unless the growing tree is one of these columns, and what is wanted are leaves, each once.

    Parameters
    ----------
    ask : Level
    n_bins : array of shape (d + 1,)
        Number of bins of every column, and of intervals.
    """
    check_tree(ask.growing, n_bins)
    wanted = ask.wanted.tolist()
    good = bool(wanted) and len(wanted) == len(set(wanted)) and set(wanted) <= set(range(len(ask.column)))
    if not good or (ask.column[wanted] >= 0).any():
        raise MessageError("what is wanted are not leaves of the tree", where="Level.wanted")


def check_tree(tree: sent.Tree, n_bins: NDArray[np.int64]) -> None:
    """Raise MessageError unless the arrays make one tree whose cuts leave bins on either side.

    Examples
    --------
    >>> leaf = np.array([-1], dtype=np.int32)
    >>> check_tree(sent.Tree(leaf, leaf, leaf, leaf, np.zeros(1)), np.array([2, 4]))
    """
    from multicentre.survival.kernels.hazard_rows import is_tree

    if len(tree.column) > MOST_NODES or not is_tree(tree.column, tree.cut, tree.left, tree.right, n_bins):
        raise MessageError("the nodes do not make a tree of these columns and bins", where="Tree")
    if np.abs(tree.value).max() > LARGEST_STEP:
        raise MessageError("a leaf's value is out of range", where="Tree.value")
