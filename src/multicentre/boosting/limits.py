"""What a site holds against an ask before it computes anything."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.boosting import messages as sent
from multicentre.boosting.trees import check_margins, check_objective, find_children
from multicentre.federation.errors import MessageError

MOST_CUTS = 1023
MOST_ROUNDS = 100_000
MOST_CELLS = 2**24
LARGEST_BASE = 1e30
LARGEST_WEIGHT = 1e4
EXPONENTS = range(-260, 260)


def check_start(ask: sent.Start, n_columns: int) -> None:
    """Raise MessageError unless the cuts rise within each column and all else is in range."""
    check_cuts(ask, n_columns)
    check_objective(ask.objective, len(ask.classes), len(ask.base))
    exponents = (ask.slope_exponent, ask.curvature_exponent, ask.loss_exponent)
    in_range = (np.abs(ask.base) <= LARGEST_BASE).all() and 0 < ask.positive <= LARGEST_WEIGHT
    if not in_range or not all(each in EXPONENTS for each in exponents):
        raise MessageError("a number is out of range", where="Start")
    check_margins(ask.objective, ask.base, np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.float32))


def check_cuts(cuts: sent.Cuts, n_columns: int) -> None:
    """Raise MessageError unless every column has its cuts, at most 1023, and they rise.

    Examples
    --------
    >>> check_cuts(sent.Cuts(np.array([1, 2], dtype=np.float32), np.array([2, 0], dtype=np.int32)), 2)
    """
    n_cuts = cuts.n_cuts.astype(np.int64)
    if len(n_cuts) != n_columns or (n_cuts < 0).any() or (n_cuts > MOST_CUTS).any() or n_cuts.sum() != len(cuts.cuts):
        mend = f"At most {MOST_CUTS} cuts a column."
        raise MessageError("the cuts do not fit the columns", where="Cuts.n_cuts", mend=mend)
    ends = np.cumsum(n_cuts)
    rises = np.diff(cuts.cuts) > 0
    between = ends[:-1][(ends[:-1] > 0) & (ends[:-1] < len(cuts.cuts))] - 1
    rises[between] = True
    if not rises.all():
        raise MessageError("the cuts of a column do not rise", where="Cuts.cuts")


def check_trees(ask: sent.Finished, n_bins: NDArray[np.int64], n_groups: int) -> None:
    """Raise MessageError unless the arrays make rounds of one tree a margin, on these columns and bins."""
    if not 0 <= ask.since <= MOST_ROUNDS or len(ask.roots) > MOST_ROUNDS * n_groups or len(ask.roots) % n_groups:
        raise MessageError("the trees do not make whole rounds", where="Finished.since")
    inner = ask.column >= 0
    column = ask.column[inner]
    if (ask.column < -1).any() or (column >= len(n_bins)).any():
        raise MessageError("a column is out of range", where="Finished.column")
    cut = ask.cut[inner]
    if (cut < -1).any() or (cut >= n_bins[column]).any():
        raise MessageError("a cut is out of range", where="Finished.cut")
    find_children(ask.roots, ask.column)


def check_level(ask: sent.Level, n_bins: NDArray[np.int64], n_groups: int) -> None:
    """Raise MessageError unless the last round grows, and what is wanted are its leaves, each once."""
    check_trees(ask, n_bins, n_groups)
    if len(ask.roots) < n_groups:
        raise MessageError("no tree grows", where="Level.roots")
    wanted = ask.wanted
    inside = ((wanted >= ask.roots[-n_groups]) & (wanted < len(ask.column))).all()
    if not inside or not len(wanted) or len(np.unique(wanted)) < len(wanted) or (ask.column[wanted] >= 0).any():
        raise MessageError("what is wanted are not leaves of the growing trees", where="Level.wanted")
    n_cells = len(wanted) * int((n_bins + 1).sum())
    if n_cells > MOST_CELLS:
        mend = "Lower max_depth or max_bin."
        raise MessageError(f"sums in {n_cells} cells are too many", where="Level.wanted", mend=mend)


def is_grown_from(trees: sent.Trees, before: sent.Trees) -> bool:
    """Return whether trees are earlier ones some of whose leaves were split since, and nothing else changed.

    Examples
    --------
    >>> i4, f4 = (lambda *v: np.array(v, dtype=np.int32)), (lambda *v: np.array(v, dtype=np.float32))
    >>> leaf = sent.Trees(i4(0), i4(-1), i4(0), np.zeros(1, dtype=np.uint8), f4(0))
    >>> stump = sent.Trees(i4(0), i4(2, -1, -1), i4(1, 0, 0), np.zeros(3, dtype=np.uint8), f4(0, 0, 0))
    >>> is_grown_from(stump, leaf), is_grown_from(leaf, stump)
    (True, False)
    """
    if len(trees.roots) != len(before.roots):
        return False
    pairs = ((trees.slice(k, k + 1), before.slice(k, k + 1)) for k in range(len(trees.roots)))
    return all(_holds(tree, earlier) for tree, earlier in pairs)


def _holds(tree: sent.Trees, earlier: sent.Trees) -> bool:
    inner = np.flatnonzero(earlier.column >= 0)
    if len(tree.column) < len(earlier.column):
        return False
    names = ("column", "cut", "default_left", "left")
    return all(np.array_equal(getattr(tree, name)[inner], getattr(earlier, name)[inner]) for name in names)
