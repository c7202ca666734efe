"""A site's records in their bins: margins under the trees so far, and the gradients that follow from them."""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multicentre.boosting import messages as sent
from multicentre.boosting.trees import OBJECTIVES
from multicentre.data.minimum_counts import fewest_alike

Bins = NDArray[np.uint16]
Integers = NDArray[np.int32]
Sums = NDArray[np.int64]


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
    """

    def __init__(self, X: NDArray[np.float32], y: NDArray[np.float32], start: sent.Start) -> None:
        self._start, self._y = start, y
        self._objective = OBJECTIVES.index(start.objective)
        self._n_bins, self._first = start.n_bins, start.first
        self._binned = digitise(X, start)
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

    def find_leaves(self, trees: sent.Trees) -> Integers:
        """Return the leaf of every record in each tree, shape (t, n)."""
        from multicentre.boosting.kernels.descent import find_leaves

        nodes = (trees.roots, trees.column, trees.cut, trees.default_left, trees.left)
        return find_leaves(self._binned, self._n_bins, *nodes)

    def sum_by_bin(self, growing: sent.Trees, wanted: Integers) -> Sums:
        """Return slopes, curvatures and numbers of records by wanted leaf and cell, shape (s, q, 3)."""
        from multicentre.boosting.kernels.gradients import derive
        from multicentre.boosting.kernels.histograms import sum_by_bin

        start = self._start
        if self._derivatives is None:
            units = 2.0**-start.slope_exponent, 2.0**-start.curvature_exponent
            self._derivatives = derive(self._objective, self._margins, self._y, start.positive, *units)
        row = np.full(len(growing.column), -1, dtype=np.int32)
        row[wanted] = np.arange(len(wanted))
        leaves = self.find_leaves(growing)
        return sum_by_bin(self._binned, leaves, row, self._derivatives, self._first, len(wanted))

    @cached_property
    def fewest(self) -> int:
        """Number of records on which an unmasked sum over nodes and bins can come to rest.

        Records in the same bins with the same outcome are in one leaf of every tree and have the same gradient and
        loss, so that all sums of all rounds rest on such groups. Trees that are deep enough part any other records.
        """
        return fewest_alike(np.column_stack([self._binned.astype(np.float32), self._y]))

    @property
    def losses(self) -> Sums:
        """Sum of the losses, and number of records, shape (2,)."""
        from multicentre.boosting.kernels.gradients import find_losses

        if self._losses is None:
            losses = find_losses(self._objective, self._margins, self._y, 2.0**-self._start.loss_exponent)
            self._losses = np.array([losses.sum(), len(self._y)], dtype=np.int64)
        return self._losses


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
