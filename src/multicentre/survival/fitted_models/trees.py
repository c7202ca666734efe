"""Survival trees and forests: splits of columns, and survival curves of leaves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import array
from multicentre.errors import MessageError
from multicentre.survival.fitted_models.base import MAX_TIME, SurvivalModel
from multicentre.survival.times import restricted_mean

Integers = NDArray[np.int32]


def are_nodes(roots: Integers, column: Integers, left: Integers, right: Integers) -> bool:
    """Return True if nodes form at least one tree, so that every path from a root ends at a leaf of the same tree.

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


Floats = NDArray[np.float64]

# Largest magnitude of a threshold.
LARGEST = 1e150


@dataclass(frozen=True)
class Trees(SurvivalModel):
    """One or more trees, whose curves are averaged.

    Nodes are listed tree by tree, and a node precedes its children. At an inner node a patient goes left if the
    column's value is at most the threshold. A leaf has ``column`` -1, no children (-1) and a curve.

    Parameters
    ----------
    times : array of shape (K,)
    roots : array of shape (T,)
        First node of every tree, increasing from 0.
    shares : array of shape (T,)
        Non-negative weight of every tree in the mean; the sum is 1.
    column, left, right, leaf : array of shape (m,)
        Column of the split, children, and row in `curves` (-1 at inner nodes).
    threshold : array of shape (m,)
    curves : array of shape (L, K)
        Survival of each leaf.
    """

    times: Floats = array("times of the grid", ("K",), bound=MAX_TIME)
    roots: Integers = array("first node of every tree", ("T",), dtype="i4", bound=2**31)
    shares: Floats = array("weight of every tree", ("T",), bound=1)
    column: Integers = array("column of a node's split", ("m",), dtype="i4", bound=2**31)
    threshold: Floats = array("threshold of a node's split, on an edge that all sites share", ("m",), bound=LARGEST)
    left: Integers = array("child for values up to the threshold", ("m",), dtype="i4", bound=2**31)
    right: Integers = array("child for values above", ("m",), dtype="i4", bound=2**31)
    leaf: Integers = array("row of a leaf's curve", ("m",), dtype="i4", bound=2**31)
    curves: Floats = array("survival of a leaf's patients on the grid", ("L", "K"), bound=1)

    @classmethod
    def joined(cls, forests: Sequence[Trees], shares: Floats) -> Self:
        """Combine the trees of several forests on one grid into one forest; empty without trees.

        Parameters
        ----------
        forests : sequence of Trees
            Forests to combine; those without trees are left out.
        shares : array of shape (number of forests,)
            Weight of every forest, distributed over its trees by their shares; scaled to sum to 1.
        """
        weighted = [(forest, share) for forest, share in zip(forests, shares, strict=True) if not forest.is_empty]
        if not weighted:
            return cls.empty()
        non_empty = [forest for forest, _ in weighted]
        total = sum(share for _, share in weighted)
        nodes = np.cumsum([0, *(len(forest.column) for forest in non_empty)])
        curves = np.cumsum([0, *(len(forest.curves) for forest in non_empty)])
        return cls(
            non_empty[0].times,
            _stacked([forest.roots + at for forest, at in zip(non_empty, nodes, strict=False)]),
            np.concatenate([forest.shares * (share / total) for forest, share in weighted]),
            np.concatenate([forest.column for forest in non_empty]),
            np.concatenate([forest.threshold for forest in non_empty]),
            _stacked([_moved(forest.left, at) for forest, at in zip(non_empty, nodes, strict=False)]),
            _stacked([_moved(forest.right, at) for forest, at in zip(non_empty, nodes, strict=False)]),
            _stacked([_moved(forest.leaf, at) for forest, at in zip(non_empty, curves, strict=False)]),
            np.concatenate([forest.curves for forest in non_empty]),
            patients=min(_fewest(forest) for forest in non_empty),
        )

    @property
    def nodes(self) -> tuple[Integers, Integers, Floats, Integers, Integers, Integers]:
        """Roots, columns, thresholds, children and leaves, in the order of the compiled functions."""
        return self.roots, self.column, self.threshold, self.left, self.right, self.leaf

    @property
    def has_split(self) -> NDArray[np.bool_]:
        """Flags of the trees with a split, shape (T,); the predictions of the others are the same for all patients."""
        return np.asarray(self.column[self.roots] >= 0)

    @cached_property
    def leaf_means(self) -> Floats:
        """Mean time survived up to the horizon in every leaf, shape (L,)."""
        return restricted_mean(self.curves, self.times)

    def leaves(self, X: Floats) -> Integers:
        """Return each patient's leaf in every tree, rows of `curves`, shape (n, T)."""
        from multicentre.survival.kernels.descent import find_leaves

        return find_leaves(np.ascontiguousarray(X), *self.nodes)

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K)."""
        from multicentre.survival.kernels.descent import average_curves

        return np.minimum(average_curves(np.ascontiguousarray(X), *self.nodes, self.shares, self.curves), 1.0)

    def restricted_mean(self, X: Floats) -> Floats:
        """Return each patient's mean time survived up to the horizon, shape (n,); one look-up per tree."""
        from multicentre.survival.kernels.descent import average_numbers

        return average_numbers(np.ascontiguousarray(X), *self.nodes, self.shares, self.leaf_means)

    def of_trees(self, numbers: NDArray[np.integer[Any]], shares: Floats) -> Self:
        """Return the forest of the selected trees.

        Parameters
        ----------
        numbers : array of shape (t,)
            Numbers of the trees, at least one, in strictly increasing order.
        shares : array of shape (t,)
            Weights of the trees, scaled to sum to 1.
        """
        ends = np.append(self.roots[1:], len(self.column))
        starts, sizes = self.roots[numbers], (ends - self.roots)[numbers]
        nodes = np.concatenate([np.arange(at, at + size) for at, size in zip(starts, sizes, strict=True)])
        roots = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        shift = np.repeat(starts - roots, sizes)
        is_leaf = self.leaf[nodes] >= 0
        curves = self.leaf[nodes][is_leaf]
        leaf = np.full(len(nodes), -1, dtype=np.int32)
        leaf[is_leaf] = np.arange(len(curves))
        return type(self)(
            self.times,
            roots.astype(np.int32),
            shares / shares.sum(),
            self.column[nodes],
            self.threshold[nodes],
            np.where(is_leaf, -1, self.left[nodes] - shift).astype(np.int32),
            np.where(is_leaf, -1, self.right[nodes] - shift).astype(np.int32),
            leaf,
            self.curves[curves],
            patients=self.patients,
        )

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless nodes form trees of these columns, and curves decrease within 0 and 1."""
        if not _are_trees(self, n_columns):
            raise MessageError(f"nodes must form trees of {n_columns} columns; got others", where="Trees")
        falls = (np.diff(self.curves, axis=1) <= 0).all()
        if not falls or (self.curves < 0).any() or (self.curves > 1).any():
            raise MessageError("curves must be between 0 and 1 and not increase; got others", where="Trees.curves")


def _moved(places: Integers, by: int) -> Integers:
    return np.where(places >= 0, places + by, -1)


def _stacked(parts: Sequence[Integers]) -> Integers:
    return np.concatenate(parts).astype(np.int32)


def _fewest(forest: Trees) -> int:
    """Return the number of patients behind a forest; 0 if it differs by field or the forest was received."""
    return forest.patients if isinstance(forest.patients, int) else 0


def _are_trees(trees: Trees, n_columns: int) -> bool:
    shares_fit = (trees.shares >= 0).all() and abs(float(trees.shares.sum()) - 1) < 1e-9
    inner = trees.column >= 0
    leaf = trees.leaf[~inner]
    return bool(
        shares_fit
        and are_nodes(trees.roots, trees.column, trees.left, trees.right)
        and (trees.column < n_columns).all()
        and (trees.leaf[inner] == -1).all()
        and (leaf >= 0).all()
        and (leaf < len(trees.curves)).all()
    )
