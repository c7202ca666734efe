"""A site's records in their bins: margins under the trees so far, and the gradients that follow from them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.boosting import messages as sent
from multicentre.boosting.trees import OBJECTIVES

Bins = NDArray[np.uint16]
Integers = NDArray[np.int32]
Sums = NDArray[np.int64]
Floats = NDArray[np.float64]


class Records:
    """Bins, margins and gradients of every record.

    Parameters
    ----------
    X : array of shape (n, d)
        Values in single precision, NaN for missing.
    y : array of shape (n,)
        Outcomes in single precision, or places of classes.
    start : Start
        What was agreed.
    least : int
        Neighbouring bins are joined until each holds so many records, once and for all trees: no two splits of a column
        part fewer from each other. Where a split parts off fewer, or records on so few of which its sums rest, all go
        to the side of the more. 1 for the trees as they are.
    """

    def __init__(self, X: NDArray[np.float32], y: NDArray[np.float32], start: sent.Start, least: int) -> None:
        self._start, self._y, self._least = start, y, least
        self._objective = OBJECTIVES.index(start.objective)
        self._n_bins, self._first = start.n_bins, start.first
        self._binned = digitise(X, start)
        if least > 1:
            self._binned = join_bins(self._binned, self._n_bins, least)
        self._margins = np.repeat(start.base[None, :], len(y), axis=0)
        self._n_rounds = 0
        self._derivatives: Sums | None = None
        self._losses: Sums | None = None

    def catch_up(self, trees: sent.Trees) -> None:
        """Add the rounds that are new; after a return to fewer rounds, all of them."""
        n_groups = len(self._start.base)
        n_rounds = len(trees.roots) // n_groups
        if n_rounds == self._n_rounds:
            return
        if n_rounds < self._n_rounds:
            self._margins[:], self._n_rounds = self._start.base, 0
        for number in range(self._n_rounds, n_rounds):
            new = trees.slice(number * n_groups, (number + 1) * n_groups)
            leaves = self.find_leaves(new)
            for group in range(n_groups):
                self._margins[:, group] += new.value[leaves[group]]
        self._n_rounds, self._derivatives, self._losses = n_rounds, None, None

    def find_leaves(self, trees: sent.Trees, weights: Floats | None = None) -> Integers:
        """Return the leaf of every record in each tree, shape (t, n); weights, shape (t, n, 5), tell what are few."""
        from multicentre.boosting.kernels.descent import find_leaves

        if self._least > 1:
            if weights is None:
                weights = np.broadcast_to([1.0, 0, 0, 0, 0], (len(trees.roots), len(self._y), 5))
            pairs = [(trees.slice(k, k + 1), own) for k, own in enumerate(weights)]
            return np.stack([self._find_joined(*pair) for pair in pairs]) + trees.roots[:, None]
        nodes = (trees.roots, trees.column, trees.cut, trees.default_left, trees.left)
        return find_leaves(self._binned, self._n_bins, *nodes)

    def sum_by_bin(self, growing: sent.Trees, wanted: Integers) -> Sums:
        """Return slopes, curvatures and numbers of records by wanted leaf and cell, shape (s, q, 3)."""
        from multicentre.boosting.kernels.gradients import derive
        from multicentre.boosting.kernels.histograms import sum_by_bin
        from multicentre.boosting.kernels.joining import sum_weights

        start = self._start
        if self._derivatives is None:
            units = 2.0**-start.slope_exponent, 2.0**-start.curvature_exponent
            self._derivatives = derive(self._objective, self._margins, self._y, start.positive, *units)
        row = np.full(len(growing.column), -1, dtype=np.int32)
        row[wanted] = np.arange(len(wanted))
        weights = weigh(self._derivatives) if self._least > 1 else None
        leaves = self.find_leaves(growing, weights)
        sums = sum_by_bin(self._binned, leaves, row, self._derivatives, self._first, len(wanted))
        if weights is not None:
            weighed = sum_weights(self._binned, leaves, row, weights, self._first, len(wanted))
            join_sums(sums, weighed, self._first, self._least)
        return sums

    @property
    def losses(self) -> Sums:
        """Sum of the losses, and number of records, shape (2,)."""
        from multicentre.boosting.kernels.gradients import find_losses

        if self._losses is None:
            losses = find_losses(self._objective, self._margins, self._y, 2.0**-self._start.loss_exponent)
            total = cap_largest(losses, self._least).sum()
            self._losses = np.array([total, len(self._y)], dtype=np.int64)
        return self._losses

    def _find_joined(self, tree: sent.Trees, weights: Floats) -> Integers:
        """Return the leaf of every record in one tree, where a split parts off no few records, shape (n,)."""
        from multicentre.boosting.kernels.joining import effective_numbers

        left, rows = tree.left, np.arange(len(self._y))
        node = np.zeros(len(self._y), dtype=np.int32)
        while (tree.column[node] >= 0).any():
            inner = tree.column[node] >= 0
            column = tree.column[node[inner]]
            bins = self._binned[rows[inner], column].astype(np.int64)
            known = np.where(bins <= tree.cut[node[inner]], 1, 0)
            goes_left = np.where(bins == self._n_bins[column], tree.default_left[node[inner]], known)
            child = left[node[inner]] + 1 - goes_left.astype(np.int32)
            sums = [np.bincount(child, weight, minlength=len(left) + 1) for weight in weights[inner].T]
            present, behind = sums[0] > 0, effective_numbers(np.stack(sums, axis=1))
            sibling = np.where(child % 2 == 1, child + 1, child - 1)
            few = (behind[child] < self._least) & present[sibling]
            lesser = (behind[child] < behind[sibling]) | ((behind[child] == behind[sibling]) & (child % 2 == 0))
            node[inner] = np.where(few & lesser, sibling, child)
        return node


def digitise(X: NDArray[np.float32], cuts: sent.Cuts) -> Bins:
    """Return the bin of every value, shape (n, d): the number of cuts at or below it; one more than all if missing.

    Examples
    --------
    >>> cuts = sent.Cuts(np.array([1, 2], dtype=np.float32), np.array([2], dtype=np.int32))
    >>> digitise(np.array([[0.5], [1], [3], [np.nan]], dtype=np.float32), cuts).ravel().tolist()
    [0, 1, 2, 3]
    """
    binned = np.empty(X.shape, dtype=np.uint16)
    ends = np.append(0, np.cumsum(cuts.n_cuts)).tolist()
    for column in range(X.shape[1]):
        own, values = cuts.cuts[ends[column] : ends[column + 1]], X[:, column]
        bins = np.searchsorted(own, values, side="right")
        binned[:, column] = np.where(np.isnan(values), len(own) + 1, bins)
    return binned


def join_bins(binned: Bins, n_bins: Sums, least: int) -> Bins:
    """Return bins in which each of a column's is that of `least` records or none; missing values count as one.

    Examples
    --------
    >>> join_bins(np.array([[0], [0], [0], [1], [2], [2]], dtype=np.uint16), np.array([3]), 2).ravel().tolist()
    [0, 0, 0, 0, 2, 2]
    """
    from multicentre.boosting.kernels.joining import N_WEIGHTS, join_cells

    joined = np.empty_like(binned)
    for column, n_cells in enumerate((n_bins + 1).tolist()):
        weights = np.zeros((1, n_cells, N_WEIGHTS))
        weights[0, :, 0] = np.bincount(binned[:, column], minlength=n_cells)
        moved = np.eye(n_cells, dtype=np.int64)[None]
        join_cells(moved, weights, np.array([0, n_cells]), least)
        joined[:, column] = moved[0].argmax(axis=0)[binned[:, column]]
    return joined


def weigh(derivatives: Sums) -> Floats:
    """Return what tells how many records sums rest on, shape (k, n, 5).

    One, the slope's magnitude and square, the curvature and its square.

    Examples
    --------
    >>> weigh(np.array([[[-3, 2]]])).tolist()
    [[[1.0, 3.0, 9.0, 2.0, 4.0]]]
    """
    slope, curvature = np.abs(derivatives[..., 0]).astype(np.float64), derivatives[..., 1].astype(np.float64)
    return np.stack([np.ones_like(slope), slope, slope**2, curvature, curvature**2], axis=-1)


def join_sums(sums: Sums, weights: Floats, first: Sums, least: int) -> None:
    """Join cells in place until the sums of each rest on `least` records or none; a node that rests on fewer is empty.

    Examples
    --------
    >>> sums, weights = np.array([[[9, 4, 4], [0, 0, 4], [0, 0, 0]]]), np.zeros((1, 3, 5))
    >>> weights[0, :2] = [[4, 9, 81, 4, 16], [4, 0, 0, 0, 0]]
    >>> join_sums(sums, weights, np.array([0, 3]), 2)
    >>> sums.tolist()
    [[[0, 0, 0], [0, 0, 0], [0, 0, 0]]]
    """
    from multicentre.boosting.kernels.joining import effective_numbers, join_cells

    few = effective_numbers(weights[:, : first[1]].sum(axis=1)) < least
    sums[few], weights[few] = 0, 0.0
    join_cells(sums, weights, first, least)


def cap_largest(losses: Sums, least: int) -> Sums:
    """Return losses whose sum rests on `least` records: the largest are taken as the one in that place, if it does not.

    Examples
    --------
    >>> cap_largest(np.array([1, 90, 2, 3]), 2).tolist(), cap_largest(np.array([5, 4, 5, 4]), 2).tolist()
    ([1, 3, 2, 3], [5, 4, 5, 4])
    """
    sizes = np.abs(losses.astype(np.float64))
    if not 1 < least <= len(losses) or sizes.sum() ** 2 >= least * (sizes**2).sum():
        return losses
    most = np.partition(np.abs(losses), -least)[-least]
    return np.clip(losses, -most, most)
