"""Growth of trees level by level, from sums by node and cell over the sites.

For each level of the trees of a round:

1. The coordinator requests sums of leaves: of two siblings, those of the one with the smaller sum of curvatures. With
   the first level of a round it sends the trees of the last finished round too.
2. Each site returns sums by leaf and cell, a cell being a bin of a column.
3. The coordinator adds up the sums and computes those of the other siblings as differences from their parents. The
   criterion of the method selects the split of each leaf.

If a site is lost during a sum, the sum may or may not include its records. The coordinator then requests the sums of
both siblings again, so that all sums of a level are over the same records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.session import Session
from multicentre.core.tie_breaking import first_least
from multicentre.trees.splits import Splits
from multicentre.trees.table import NodeTable

Integers = NDArray[np.int32]
Sums = NDArray[np.int64]
T = TypeVar("T", bound=NodeTable)
# Trees that a criterion reads.
R = TypeVar("R", bound=NodeTable, contravariant=True)


class Criterion(Protocol[R]):
    """Rule by which the trees of one round are split; slopes and curvatures are the first two sums of a cell."""

    first: Sums

    def find_splits(self, trees: R, leaves: Integers, sums: Sums, depth: int) -> Splits:
        """Return the split of each leaf, from sums of shape (s, q, z)."""

    def describe_leaves(self, totals: Sums) -> dict[str, NDArray[Any]]:
        """Return the values of new leaves by field, from their sums, shape (s, z)."""


class Round(Generic[T]):
    """One round: requests for the sums of growing trees, after the trees that earlier rounds finished.

    Subclasses define how sums are requested.
    """

    def __init__(self, session: Session, finished: T, n_initial: int = 0, n_groups: int = 1) -> None:
        self._session, self._finished, self._n_groups = session, finished, n_groups
        self.n_finished = len(finished.roots) // n_groups
        # Rounds that all sites have: without the last one until they answer for the first time.
        self._since = 0 if len(finished.roots) == n_initial else self.n_finished - 1
        self._sites: tuple[str, ...] = ()

    def grow(self, roots: T, criterion: Criterion[T], max_depth: int) -> T:
        """Grow trees from their roots, as long as a leaf is split and up to a depth."""
        trees, leaves = roots, roots.roots
        totals, above = np.zeros((0, 2), dtype=np.int64), np.zeros((0, 0, 2), dtype=np.int64)
        for depth in range(max_depth):
            sums = self._sum(trees, leaves, totals, above)
            if not depth:
                whole = sums[:, criterion.first[0] : criterion.first[1]].sum(axis=1)
                trees = replace(trees, **criterion.describe_leaves(whole))
            splits = criterion.find_splits(trees, leaves, sums, depth)
            places = np.flatnonzero(splits.column >= 0)
            if not len(places):
                break
            totals = np.stack([splits.left[places], splits.right[places]], axis=1).reshape(2 * len(places), -1)
            made = {name: values[places] for name, values in splits.fields.items()}
            trees, leaves = trees.split(leaves[places], made, criterion.describe_leaves(totals))
            above = sums[places]
        return trees

    def _sum(self, trees: T, leaves: Integers, totals: Sums, above: Sums) -> Sums:
        """Return the sums of all leaves, shape (s, q, z); `above` are those of the parents of pairs of leaves."""
        while True:
            before, wanted = self._session.sites, np.ones(len(leaves), dtype=np.bool_)
            if len(above) and self._sites == before:
                is_right = totals[1::2, 1] < totals[::2, 1]
                wanted = np.stack([~is_right, is_right], axis=1).ravel()
            finished = self._finished.slice(self._since * self._n_groups)
            answer = self.request_sums(self._since, finished, trees, leaves[wanted])
            self._since = self.n_finished
            if self._session.sites == before:
                break
        self._sites = before
        sums = np.empty((len(leaves), *answer.shape[1:]), dtype=np.int64)
        sums[wanted] = answer
        if not wanted.all():
            sums[~wanted] = above - answer
        return sums

    def request_sums(self, since: int, finished: T, growing: T, wanted: Integers) -> Sums:
        """Return the sums of the wanted leaves over the sites, shape (s, q, z)."""
        raise NotImplementedError


def is_stale(losses: Sequence[float], patience: int) -> bool:
    """Return whether the last `patience` losses did not improve on those before.

    Examples
    --------
    >>> is_stale([3.0, 1.0, 2.0], 1), is_stale([3.0, 1.0, 2.0], 2)
    (True, False)
    """
    return len(losses) - 1 - int(first_least(losses)) >= patience
