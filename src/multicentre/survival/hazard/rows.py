"""A site's patients in their intervals: margins under the trees so far, and sums over them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.patients import Patients
from multicentre.survival.hazard import messages as sent
from multicentre.survival.hazard.limits import node_depths
from multicentre.survival.times.joining import find_places

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
Sums = NDArray[np.int64]
ALL_LEFT, ALL_RIGHT = 2**15, -1


class Rows:
    """Margins of every patient in every interval, and the slopes of the log-loss that follow from them.

    Parameters
    ----------
    patients : Patients
    data : SurvivalData
    last : array of shape (n,)
        Last interval in which each patient counts, -1 for none.
    memory : Memory
        Where patients start, and whom a tree sees.
    least : int
        Bins of a column are joined until so many patients are in each. Where a tree's split would part off fewer, all
        go to the side of the more: no margin is that of a few.

    Attributes
    ----------
    seen : array of shape (n,)
        Last interval of the patients that the present tree sees; -1 for all others.
    losses : array of shape (2, 2)
        Log-loss, in 2**-20, and number of the patients that the present tree sees, and of those that no tree sees.
    """

    def __init__(self, patients: Patients, data: SurvivalData, last: Integers, memory: sent.Memory, least: int) -> None:
        self._binned = join_columns(patients.binned, patients.agreed.n_bins, least)
        self._least = least
        self._happened = patients.happened
        self._last = last
        self._memory = memory
        self._keys = _keys(data) if memory.subsample < 1 or memory.validation > 0 else None
        self._margins = np.repeat(memory.base[None, :], len(last), axis=0)
        self._n_trees = 0
        self._derive()

    def catch_up(self, trees: sent.Ensemble) -> None:
        """Add the trees that are new, one after the other; after a return to fewer trees, all of them."""
        from multicentre.survival.kernels.hazard_rows import add_trees

        n_trees = len(trees.roots)
        if n_trees == self._n_trees:
            return
        if n_trees < self._n_trees:
            self._margins[:], self._n_trees = self._memory.base, 0
        if self._least > 1:
            self._add_joined(trees)
        else:
            cuts = trees.cut.astype(np.float64)
            nodes = (trees.column, cuts, trees.left, trees.right, trees.value)
            add_trees(self._margins, self._binned, self._last, trees.roots[self._n_trees :], *nodes)
        self._n_trees = n_trees
        self._derive()

    def sum_by_bin(self, tree: sent.Tree, wanted: Integers, first: Sums) -> tuple[Sums, Sums, Sums]:
        """Return sums of slopes and curvatures, and numbers of patients, at the wanted leaves, each (s, q)."""
        from multicentre.survival.kernels.hazard_histogram import sum_by_bin

        row = np.full(len(tree.column), -1, dtype=np.int32)
        row[wanted] = np.arange(len(wanted))
        cuts = tree.cut.astype(np.float64)
        nodes = (tree.column, cuts, tree.left, tree.right)
        return sum_by_bin(self._binned, self.seen, self._slopes, self._curvatures, *nodes, row, first)

    def join(self, slopes: Sums, curvatures: Sums, patients: Sums, first: Sums, least: int) -> None:
        """Join neighbouring bins in place until each rests on enough patients."""
        from multicentre.survival.kernels.hazard_histogram import join_bins

        join_bins(slopes, curvatures, patients, first, least)

    def count_leaves(self, tree: sent.Tree, last: Integers | None = None) -> Sums:
        """Return how many patients are in each leaf at some time, shape (m,); 0 at inner nodes.

        Those that the present tree sees, or those with a `last` interval, shape (n,), that is not -1.
        """
        from multicentre.survival.kernels.hazard_rows import count_leaves

        cuts = tree.cut.astype(np.float64)
        n_times = self._margins.shape[1]
        last = self.seen if last is None else last
        return count_leaves(self._binned, last, tree.column, cuts, tree.left, tree.right, n_times)

    def _add_joined(self, trees: sent.Ensemble) -> None:
        """Add each new tree with its sides joined, for those who may be seen and for those held out, each by itself."""
        from multicentre.survival.kernels.hazard_rows import add_trees

        held_out, root = self._held_out, np.zeros(1, dtype=np.int32)
        for number in range(self._n_trees, len(trees.roots)):
            tree = trees.first(number + 1).last_tree
            for group in (held_out, ~held_out):
                last = np.where(group, self._last, -1).astype(np.int32)
                cuts = join_sides(self, tree, last, self._least).cut.astype(np.float64)
                nodes = (tree.column, cuts, tree.left, tree.right, tree.value)
                add_trees(self._margins, self._binned, last, root, *nodes)

    @property
    def _held_out(self) -> NDArray[np.bool_]:
        return self._draw(0) < self._memory.validation

    def _derive(self) -> None:
        from multicentre.survival.kernels.hazard_rows import derive_log_loss

        self._slopes, self._curvatures, losses = derive_log_loss(self._margins, self._last, self._happened)
        held_out = self._held_out
        drawn = self._draw(self._n_trees + 1) < self._memory.subsample
        self.seen = np.where(drawn & ~held_out, self._last, -1).astype(np.int32)
        counted = self._last >= 0
        groups = (self.seen >= 0, counted & held_out)
        self.losses = np.array([[losses[group].sum(), group.sum()] for group in groups], dtype=np.int64)

    def _draw(self, number: int) -> Floats:
        from multicentre.survival.kernels.patient_draws import draw_uniform

        if self._keys is None:
            return np.zeros(len(self._last))
        return draw_uniform(self._keys, self._memory.seed, number)


def find_small(rows: Rows, tree: sent.Tree, least: int) -> NDArray[np.bool_]:
    """Return which leaves are left out, shape (m,): some split on the way to them parts off a few patients.

    Both sides of such a split are left out, and all below: the sums of one side, taken from those of both, would be the
    sums of the few.
    """
    depth = node_depths(tree)
    small = np.zeros(len(tree.column), dtype=np.bool_)
    for level in range(1, int(depth.max(initial=0)) + 1):
        column = np.where(depth >= level, -1, tree.column).astype(np.int32)
        counts = rows.count_leaves(sent.Tree(column, tree.cut, tree.left, tree.right, tree.value))
        few = (counts > 0) & (counts < least)
        for node in np.flatnonzero((tree.column >= 0) & (depth == level - 1)).tolist():
            sides = [tree.left[node], tree.right[node]]
            small[sides] = small[node] or few[sides].any()
    return small


def join_sides(rows: Rows, tree: sent.Tree, last: Integers, least: int) -> sent.Tree:
    """Return the tree in which a split that parts off fewer than `least` patients sends all to the side of the more.

    Parameters
    ----------
    rows : Rows
    tree : Tree
    last : array of shape (n,)
        Last interval of the patients who count, -1 for all others.
    least : int
    """
    cut, depth = tree.cut.copy(), node_depths(tree)
    for level in range(int(depth.max(initial=0))):
        column = np.where(depth > level, -1, tree.column).astype(np.int32)
        counts = rows.count_leaves(sent.Tree(column, cut, tree.left, tree.right, tree.value), last)
        for node in np.flatnonzero((tree.column >= 0) & (depth == level)).tolist():
            left, right = int(counts[tree.left[node]]), int(counts[tree.right[node]])
            if 0 < left < least or 0 < right < least:
                cut[node] = ALL_LEFT if left >= right else ALL_RIGHT
    return replace(tree, cut=cut)


def join_columns(binned: NDArray[np.uint8], n_bins: Sums, least: int) -> NDArray[np.uint8]:
    """Return bins of every column, shape (n, d), of which each holds `least` patients, or none.

    Examples
    --------
    >>> join_columns(np.array([[0], [1], [2], [3]], dtype=np.uint8), np.array([4]), 2).ravel().tolist()
    [1, 1, 3, 3]
    """
    if least <= 1:
        return binned
    joined = np.empty_like(binned)
    for column, n_cells in enumerate(n_bins.tolist()):
        counts = np.bincount(binned[:, column], minlength=n_cells)
        joined[:, column] = np.maximum(find_places(counts[None], least), 0)[binned[:, column]]
    return joined


def _keys(data: SurvivalData) -> NDArray[np.uint64]:
    from multicentre.survival.kernels.patient_draws import patient_keys

    return patient_keys(data.X, data.time, data.event, data.ids)
