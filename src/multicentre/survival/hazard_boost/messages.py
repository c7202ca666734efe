"""Messages of FedHazardBoost: requests, releases, and the states of coordinator and sites."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, count, number
from multicentre.core.steps import Release
from multicentre.survival.agreement.messages import PATIENTS, Agreed

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
Sums = NDArray[np.int64]
# Largest magnitude of a site's sums, for masking: 2^24 patients (PATIENTS) in units of 2^-30.
LARGEST_SUM = 2.0**54


@dataclass(frozen=True)
class IntervalCounts(Release):
    """Patients by interval of the grid."""

    events: Floats = array("patients with an event, by its interval", ("K",), unit="patients", bound=PATIENTS)
    leaving: Floats = array(
        "patients by the last interval in which they count", ("K",), unit="patients", bound=PATIENTS
    )


@dataclass(frozen=True)
class Beginning(Message):
    """Initial log odds, and parameters of the draws of patients, for one pass over the trees."""

    base: Floats = array("log odds of the hazard in every interval", ("K",))
    seed: int = count("seed of the draws of patients")
    subsample: float = number("share of the patients used for each tree")
    n_folds: int = count("folds into which patients are drawn; 0 without early stopping")
    held_out: int = count("fold held out from all trees of the pass, from 1; 0 for none")


@dataclass(frozen=True)
class Tree(Message):
    """Tree with cuts as numbers of bins; the column after those of the patients is the number of the interval."""

    column: Integers = array("column of a node's split, -1 at a leaf", ("m",), dtype="i4")
    cut: Integers = array("last bin of the left side", ("m",), dtype="i4")
    left: Integers = array("child for bins up to the cut", ("m",), dtype="i4")
    right: Integers = array("child for bins above", ("m",), dtype="i4")
    value: Floats = array("increment of the log odds at a leaf", ("m",))


@dataclass(frozen=True)
class Level(Message):
    """Last finished tree, growing tree, and the leaves of the growing tree to sum."""

    number: int = count("trees finished so far")
    column: Integers = array("as in the growing tree", ("m",), dtype="i4")
    cut: Integers = array("as in the growing tree", ("m",), dtype="i4")
    left: Integers = array("as in the growing tree", ("m",), dtype="i4")
    right: Integers = array("as in the growing tree", ("m",), dtype="i4")
    wanted: Integers = array("leaves to sum", ("s",), dtype="i4")
    last_column: Integers = array("as in the last tree", ("p",), dtype="i4")
    last_cut: Integers = array("as in the last tree", ("p",), dtype="i4")
    last_left: Integers = array("as in the last tree", ("p",), dtype="i4")
    last_right: Integers = array("as in the last tree", ("p",), dtype="i4")
    last_value: Floats = array("as in the last tree", ("p",))

    @classmethod
    def of(cls, number: int, growing: Tree, last: Tree, wanted: Integers) -> Level:
        """Return the request for the sums of some leaves."""
        return cls(
            number,
            growing.column,
            growing.cut,
            growing.left,
            growing.right,
            wanted,
            *(getattr(last, name) for name in Tree.declarations()),
        )

    @property
    def growing(self) -> Tree:
        """Growing tree."""
        return Tree(self.column, self.cut, self.left, self.right, np.zeros(len(self.column)))

    @property
    def last(self) -> Tree:
        """Last finished tree; without nodes before the first tree."""
        return Tree(self.last_column, self.last_cut, self.last_left, self.last_right, self.last_value)


@dataclass(frozen=True)
class Histograms(Release):
    """Sums over patients and intervals by node and bin, as integers, which do not depend on the order of summation."""

    slopes: Sums = array(
        "sums of first derivatives of the log-loss, in units of 2**-30", ("s", "q"), dtype="i8", bound=LARGEST_SUM
    )
    curvatures: Sums = array(
        "sums of second derivatives of the log-loss, in units of 2**-30", ("s", "q"), dtype="i8", bound=LARGEST_SUM
    )
    losses: Sums = array(
        "log-loss, in units of 2**-20, and number of patients, for those used in the tree and for those held out",
        (2, 2),
        dtype="i8",
        bound=LARGEST_SUM,
    )


@dataclass(frozen=True)
class Ensemble(Message):
    """Trees in order; children are places in the list of all nodes."""

    roots: Integers = array("first node of every tree", ("T",), dtype="i4")
    column: Integers = array("column of a node's split, -1 at a leaf", ("m",), dtype="i4")
    cut: Integers = array("last bin of the left side", ("m",), dtype="i4")
    left: Integers = array("child for bins up to the cut", ("m",), dtype="i4")
    right: Integers = array("child for bins above", ("m",), dtype="i4")
    value: Floats = array("increment of the log odds at a leaf", ("m",))
    gain: Floats = array("gain of the splits by each column", ("c",))

    @classmethod
    def empty(cls, n_columns: int = 0) -> Ensemble:
        """Return an ensemble without trees."""
        none = np.zeros(0, dtype=np.int32)
        return cls(none, none, none, none, none, np.zeros(0), np.zeros(n_columns))

    def with_tree(self, tree: Tree, gain: Floats) -> Ensemble:
        """Return the ensemble with one more tree."""
        start = len(self.column)
        left, right = (np.where(child >= 0, child + start, -1).astype(np.int32) for child in (tree.left, tree.right))
        more = {"column": tree.column, "cut": tree.cut, "left": left, "right": right, "value": tree.value}
        joined = {name: np.concatenate([getattr(self, name), values]) for name, values in more.items()}
        return replace(self, roots=np.append(self.roots, start).astype(np.int32), **joined, gain=self.gain + gain)

    def first(self, n_estimators: int) -> Ensemble:
        """Return the first trees; `gain` is unchanged."""
        if n_estimators >= len(self.roots):
            return self
        stop = self.roots[n_estimators]
        nodes = {name: getattr(self, name)[:stop] for name in ("column", "cut", "left", "right", "value")}
        return replace(self, roots=self.roots[:n_estimators], **nodes)

    @property
    def last_tree(self) -> Tree:
        """Last tree, with children counted from its root; without nodes if there is none."""
        start = int(self.roots[-1]) if len(self.roots) else 0
        left, right = (
            np.where(child[start:] >= 0, child[start:] - start, -1).astype(np.int32)
            for child in (self.left, self.right)
        )
        return Tree(self.column[start:], self.cut[start:], left, right, self.value[start:])


@dataclass(frozen=True)
class Memory(Agreed):
    """State of a site: agreement, initial log odds, and the trees of the pass, from which the margins follow."""

    base: Floats = array("log odds of the hazard in every interval; empty before the first tree", ("b",))
    seed: int = count("seed of the draws of patients")
    subsample: float = number("share of the patients used for each tree")
    n_folds: int = count("folds into which patients are drawn; 0 without early stopping")
    held_out: int = count("fold held out from all trees of the pass, from 1; 0 for none")
    roots: Integers = array("first node of every tree", ("T",), dtype="i4")
    node_column: Integers = array("column of a node's split, -1 at a leaf", ("m",), dtype="i4")
    cut: Integers = array("last bin of the left side", ("m",), dtype="i4")
    left: Integers = array("child for bins up to the cut", ("m",), dtype="i4")
    right: Integers = array("child for bins above", ("m",), dtype="i4")
    value: Floats = array("increment of the log odds at a leaf", ("m",))

    @property
    def beginning(self) -> Beginning:
        """Start of the pass."""
        return Beginning(self.base, self.seed, self.subsample, self.n_folds, self.held_out)

    @property
    def trees(self) -> Ensemble:
        """Trees so far."""
        return Ensemble(self.roots, self.node_column, self.cut, self.left, self.right, self.value, np.zeros(0))

    def with_tree(self, tree: Tree) -> Memory:
        """Return the state with one more tree."""
        more = self.trees.with_tree(tree, np.zeros(0))
        return replace(
            self,
            roots=more.roots,
            node_column=more.column,
            cut=more.cut,
            left=more.left,
            right=more.right,
            value=more.value,
        )
