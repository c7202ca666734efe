"""Classification trees as checked arrays, tree growing and majority votes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.tree import DecisionTreeClassifier

from multicentre.core.messages import array
from multicentre.core.steps import Release
from multicentre.errors import MessageError
from multicentre.survival.fitted_models.trees import Trees

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Places = NDArray[np.int32]


@dataclass(frozen=True)
class ClassTrees(Release):
    """One or more trees whose leaves are classes.

    The nodes of all trees are concatenated; a node precedes its children. At an inner node a patient goes left if the
    column's value is at most the threshold. A leaf has column -1, children -1 and a class; an inner node has class -1.

    Parameters
    ----------
    roots : array of shape (T,)
    column, left, right, label : array of shape (m,)
    threshold : array of shape (m,)
    """

    roots: Places = array("first node of every tree", ("T",), dtype="i4")
    column: Places = array("column of a node's split", ("m",), dtype="i4")
    threshold: Floats = array("threshold of a node's split, on a public edge", ("m",))
    left: Places = array("child for values up to the threshold", ("m",), dtype="i4")
    right: Places = array("child for values above", ("m",), dtype="i4")
    label: Places = array("class at a leaf", ("m",), dtype="i4")

    @classmethod
    def none(cls) -> ClassTrees:
        """Return an empty set of trees: the answer of a site without a valid tree."""
        empty = np.zeros(0, dtype=np.int32)
        return ClassTrees(empty, empty, np.zeros(0), empty, empty, empty, patients=0)

    @classmethod
    def joined(cls, parts: Sequence[ClassTrees]) -> ClassTrees:
        """Return the concatenated trees of all parts."""
        starts = np.cumsum([0, *(len(part.column) for part in parts)])[:-1].tolist()
        moved = [part.moved_down(start) for part, start in zip(parts, starts, strict=True)]
        if not moved:
            return cls.none()
        arrays: dict[str, Any] = {
            name: np.concatenate([getattr(part, name) for part in moved]) for name in ClassTrees.declarations()
        }
        return ClassTrees(**arrays)

    def moved_down(self, by: int) -> ClassTrees:
        """Return the same trees with node indices increased by `by`."""
        left, right = (np.where(child < 0, child, child + by).astype(np.int32) for child in (self.left, self.right))
        roots = (self.roots + by).astype(np.int32)
        return ClassTrees(roots, self.column, self.threshold, left, right, self.label)

    def take(self, start: int, end: int) -> ClassTrees:
        """Return the trees from `start` up to `end`."""
        bounds = np.append(self.roots, len(self.column))
        nodes = slice(bounds[start], bounds[end])
        part = ClassTrees(
            self.roots[start:end],
            self.column[nodes],
            self.threshold[nodes],
            self.left[nodes],
            self.right[nodes],
            self.label[nodes],
        )
        return part.moved_down(-int(bounds[start]))

    @property
    def n_estimators(self) -> int:
        """Number of trees."""
        return len(self.roots)

    def labels(self, rows: Floats) -> Places:
        """Return the class predicted by every tree for every patient, shape (n, T)."""
        from multicentre.survival.kernels.descent import find_leaves

        return find_leaves(rows, self.roots, self.column, self.threshold, self.left, self.right, self.label)

    def valid(self, n_columns: int, n_classes: int) -> Self:
        """Return the trees if they are valid for the given numbers of columns and classes.

        Raises
        ------
        MessageError
            The arrays are not valid trees. No array is used before this check.
        """
        self.checked()
        leaves = self.column < 0
        rows = np.where(leaves, np.cumsum(leaves) - 1, -1).astype(np.int32)
        shares = np.full(self.n_estimators, 1.0 / max(self.n_estimators, 1))
        nodes = (self.column, self.threshold, self.left, self.right, rows)
        Trees(np.ones(1), self.roots, shares, *nodes, np.ones((int(leaves.sum()), 1))).valid(n_columns)
        classes = self.label[leaves]
        if (classes < 0).any() or (classes >= n_classes).any() or (self.label[~leaves] != -1).any():
            raise MessageError(
                f"labels must be from 0 to {n_classes - 1} at leaves and -1 at inner nodes; got other labels",
                where="ClassTrees.label",
            )
        return self


def grow_tree(
    codes: Floats, y: Integers, weights: Floats, edges: Floats, *, max_depth: int, min_samples_leaf: int, seed: int
) -> ClassTrees:
    """Grow a classification tree (Gini) on binned columns, with thresholds on the bins' public edges.

    Parameters
    ----------
    codes : array of shape (n, d)
        Bin of every value: the number of edges below the value.
    y : array of shape (n,)
    weights : array of shape (n,)
        Non-negative.
    edges : array of shape (d, b)
    max_depth, min_samples_leaf : int
        Maximum depth of the tree and smallest number of patients per leaf.
    seed : int
        Seed of the order in which columns are tried.

    Examples
    --------
    >>> codes, edges = np.array([[0.0], [0.0], [2.0], [2.0]]), np.array([[0.5, 1.5]])
    >>> tree = grow_tree(codes, np.array([1, 1, 0, 0]), np.ones(4), edges, max_depth=1, min_samples_leaf=1, seed=0)
    >>> tree.threshold[0], tree.labels(np.array([[0.1], [9.0]])).tolist(), tree.patients
    (np.float64(1.5), [[1], [0]], 2)
    """
    classifier = DecisionTreeClassifier(max_depth=max_depth, min_samples_leaf=min_samples_leaf, random_state=seed)
    tree = classifier.fit(codes, y, sample_weight=weights).tree_
    inner = tree.children_left >= 0
    column = np.where(inner, tree.feature, -1).astype(np.int32)
    threshold = np.zeros(len(column))
    threshold[inner] = edges[column[inner], np.floor(tree.threshold[inner]).astype(np.int64)]
    best = classifier.classes_[np.argmax(tree.value[:, 0, :], axis=1)]
    label = np.where(inner, -1, best).astype(np.int32)
    left, right = (np.where(inner, child, -1).astype(np.int32) for child in (tree.children_left, tree.children_right))
    fewest = int(tree.n_node_samples[~inner].min())
    return ClassTrees(np.zeros(1, dtype=np.int32), column, threshold, left, right, label, patients=fewest)


def most_votes(labels: Places, votes: Floats, n_classes: int) -> Floats:
    """Return the votes for each class, shape (n, k).

    Parameters
    ----------
    labels : array of shape (n, T)
    votes : array of shape (T,)
    n_classes : int

    Examples
    --------
    >>> most_votes(np.array([[0, 1, 1]]), np.array([3.0, 1.0, 1.0]), 2).tolist()
    [[3.0, 2.0]]
    """
    totals = np.zeros((len(labels), n_classes))
    rows = np.arange(len(labels))
    for column, vote in zip(labels.T, votes.tolist(), strict=True):
        totals[rows, column] += vote
    return totals


def plurality(labels: Places, n_classes: int) -> Integers:
    """Return the class with the most votes, shape (n,); the lowest class wins a tie.

    Examples
    --------
    >>> plurality(np.array([[1, 0], [1, 1]]), 2).tolist()
    [0, 1]
    """
    return np.asarray(np.argmax(most_votes(labels, np.ones(labels.shape[1]), n_classes), axis=1), dtype=np.int64)
