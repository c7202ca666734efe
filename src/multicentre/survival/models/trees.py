"""Trees and forests: splits of columns that lead to survival curves."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import array
from multicentre.survival.models.base import LATEST, SurvivalModel

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
LARGEST = 1e150


@dataclass(frozen=True)
class Trees(SurvivalModel):
    """One tree or several, whose curves are averaged.

    All nodes stand one after the other, tree by tree; a node comes before its children. At an inner node a patient goes
    left when the column's value is at most the threshold. A leaf has ``column`` -1, no children (-1) and a curve.

    Parameters
    ----------
    times : array of shape (K,)
    roots : array of shape (T,)
        First node of every tree, increasing from 0.
    shares : array of shape (T,)
        Weight of every tree in the mean, above or equal to 0, summing to 1.
    column, left, right, leaf : array of shape (m,)
        Column of the split, children, and row in `curves` (-1 at inner nodes).
    threshold : array of shape (m,)
    curves : array of shape (L, K)
        Survival of each leaf.
    """

    times: Floats = array("times of the grid", ("K",), bound=LATEST)
    roots: Integers = array("first node of every tree", ("T",), dtype="i4", bound=2**31)
    shares: Floats = array("weight of every tree", ("T",), bound=1)
    column: Integers = array("column of a node's split", ("m",), dtype="i4", bound=2**31)
    threshold: Floats = array("threshold of a node's split, on an edge that all sites share", ("m",), bound=LARGEST)
    left: Integers = array("child for values up to the threshold", ("m",), dtype="i4", bound=2**31)
    right: Integers = array("child for values above", ("m",), dtype="i4", bound=2**31)
    leaf: Integers = array("row of a leaf's curve", ("m",), dtype="i4", bound=2**31)
    curves: Floats = array("survival of a leaf's patients on the grid", ("L", "K"), bound=1)

    def leaves(self, X: Floats) -> Integers:
        """Return each patient's leaf in every tree, rows of `curves`, shape (n, T)."""
        from multicentre.survival.kernels.descent import find_leaves

        return find_leaves(X, self.roots, self.column, self.threshold, self.left, self.right, self.leaf)

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K)."""
        from multicentre.survival.kernels.descent import average_rows

        return average_rows(self.leaves(X), self.shares, self.curves)

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless nodes make trees of these columns, and curves fall from at most 1 to at least 0."""
        if not _are_trees(self, n_columns):
            raise MessageError("nodes do not make trees", where="Trees")
        falls = (np.diff(self.curves, axis=1) <= 0).all()
        if not falls or (self.curves < 0).any() or (self.curves > 1).any():
            raise MessageError("a leaf's curve rises, or is not between 0 and 1", where="Trees.curves")


def _are_trees(trees: Trees, n_columns: int) -> bool:
    n_nodes, places = len(trees.column), np.arange(len(trees.column))
    roots = trees.roots
    shares_fit = len(roots) > 0 and (trees.shares >= 0).all() and abs(float(trees.shares.sum()) - 1) < 1e-9
    if not shares_fit or roots[0] != 0 or (np.diff(roots) <= 0).any() or roots[-1] >= n_nodes:
        return False
    inner = trees.column >= 0
    ends = np.append(roots[1:], n_nodes)[np.searchsorted(roots, places, side="right") - 1]
    children = np.concatenate([trees.left[inner], trees.right[inner]])
    before = np.concatenate([places[inner], places[inner]])
    limits = np.concatenate([ends[inner], ends[inner]])
    expected = np.setdiff1d(places, roots)
    leaves = ~inner
    return bool(
        (trees.column[inner] < n_columns).all()
        and (trees.column[leaves] == -1).all()
        and (trees.left[leaves] == -1).all()
        and (trees.right[leaves] == -1).all()
        and (children > before).all()
        and (children < limits).all()
        and np.array_equal(np.sort(children), expected)
        and (trees.leaf[inner] == -1).all()
        and (trees.leaf[leaves] >= 0).all()
        and (trees.leaf[leaves] < len(trees.curves)).all()
    )
