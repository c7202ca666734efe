"""What FedHazardBoost asks of a site, what a site answers with, and what either remembers."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, count, number
from multicentre.federation.steps import Release
from multicentre.survival.agreement.messages import PATIENTS, Agreed

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
Sums = NDArray[np.int64]
LARGEST_SUM = 2.0**54


@dataclass(frozen=True)
class IntervalCounts(Release):
    """Patients by interval of the grid."""

    events: Floats = array("patients with an event, by its interval", ("K",), unit="patients", bound=PATIENTS)
    leaving: Floats = array("patients by the last interval they count in", ("K",), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class Beginning(Message):
    """Where all patients start, and whom a tree sees."""

    base: Floats = array("log odds of the hazard in every interval", ("K",))
    seed: int = count("seed of the patients' own draws")
    subsample: float = number("share of the patients that a tree sees")
    validation_fraction: float = number("share of the patients that no tree sees")


@dataclass(frozen=True)
class Tree(Message):
    """One tree; cuts are numbers of bins, and the column after the patients' own is the number of the interval."""

    column: Integers = array("column of a node's split, -1 at a leaf", ("m",), dtype="i4")
    cut: Integers = array("last bin of the left side", ("m",), dtype="i4")
    left: Integers = array("child for bins up to the cut", ("m",), dtype="i4")
    right: Integers = array("child for bins above", ("m",), dtype="i4")
    value: Floats = array("what a leaf adds to the log odds", ("m",))


@dataclass(frozen=True)
class Level(Message):
    """The tree that was finished last, the one that grows, and the leaves of it whose sums are wanted."""

    number: int = count("trees finished so far")
    column: Integers = array("as in the growing tree", ("m",), dtype="i4")
    cut: Integers = array("as in the growing tree", ("m",), dtype="i4")
    left: Integers = array("as in the growing tree", ("m",), dtype="i4")
    right: Integers = array("as in the growing tree", ("m",), dtype="i4")
    wanted: Integers = array("leaves whose sums are wanted", ("s",), dtype="i4")
    last_column: Integers = array("as in the last tree", ("p",), dtype="i4")
    last_cut: Integers = array("as in the last tree", ("p",), dtype="i4")
    last_left: Integers = array("as in the last tree", ("p",), dtype="i4")
    last_right: Integers = array("as in the last tree", ("p",), dtype="i4")
    last_value: Floats = array("as in the last tree", ("p",))

    @classmethod
    def of(cls, number: int, growing: Tree, last: Tree, wanted: Integers) -> Level:
        """Return the ask for the sums of some leaves."""
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
        """The tree that grows."""
        return Tree(self.column, self.cut, self.left, self.right, np.zeros(len(self.column)))

    @property
    def last(self) -> Tree:
        """The tree that was finished last; without nodes at first."""
        return Tree(self.last_column, self.last_cut, self.last_left, self.last_right, self.last_value)


@dataclass(frozen=True)
class Histograms(Release):
    """Sums over patients and intervals, by node and bin; whole numbers, so that their order does not matter."""

    slopes: Sums = array("sums of the log-loss's slopes, in 2**-30", ("s", "q"), dtype="i8", bound=LARGEST_SUM)
    curvatures: Sums = array("sums of its curvatures, in 2**-30", ("s", "q"), dtype="i8", bound=LARGEST_SUM)
    losses: Sums = array(
        "log-loss, in 2**-20, and number of the patients that the tree sees, and of those held out",
        (2, 2),
        dtype="i8",
        bound=LARGEST_SUM,
    )


@dataclass(frozen=True)
class Ensemble(Message):
    """Trees one after the other; a child's place counts from the first node of all."""

    roots: Integers = array("first node of every tree", ("T",), dtype="i4")
    column: Integers = array("column of a node's split, -1 at a leaf", ("m",), dtype="i4")
    cut: Integers = array("last bin of the left side", ("m",), dtype="i4")
    left: Integers = array("child for bins up to the cut", ("m",), dtype="i4")
    right: Integers = array("child for bins above", ("m",), dtype="i4")
    value: Floats = array("what a leaf adds to the log odds", ("m",))
    gain: Floats = array("what the splits by each column gained", ("c",))

    @classmethod
    def empty(cls, n_columns: int = 0) -> Ensemble:
        """Return no trees."""
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
        """Return the first trees; what the others gained is not taken off."""
        if n_estimators >= len(self.roots):
            return self
        stop = self.roots[n_estimators]
        nodes = {name: getattr(self, name)[:stop] for name in ("column", "cut", "left", "right", "value")}
        return replace(self, roots=self.roots[:n_estimators], **nodes)

    @property
    def last_tree(self) -> Tree:
        """The last tree, children counted from its root; without nodes if there is none."""
        start = int(self.roots[-1]) if len(self.roots) else 0
        left, right = (
            np.where(child[start:] >= 0, child[start:] - start, -1).astype(np.int32)
            for child in (self.left, self.right)
        )
        return Tree(self.column[start:], self.cut[start:], left, right, self.value[start:])


@dataclass(frozen=True)
class Memory(Agreed):
    """What a site remembers: the agreement, where patients start, and the trees so far. Margins follow from them."""

    base: Floats = array("log odds of the hazard in every interval; none before the beginning", ("b",))
    seed: int = count("seed of the patients' own draws")
    subsample: float = number("share of the patients that a tree sees")
    validation_fraction: float = number("share of the patients that no tree sees")
    roots: Integers = array("first node of every tree", ("T",), dtype="i4")
    node_column: Integers = array("column of a node's split, -1 at a leaf", ("m",), dtype="i4")
    cut: Integers = array("last bin of the left side", ("m",), dtype="i4")
    left: Integers = array("child for bins up to the cut", ("m",), dtype="i4")
    right: Integers = array("child for bins above", ("m",), dtype="i4")
    value: Floats = array("what a leaf adds to the log odds", ("m",))

    @property
    def trees(self) -> Ensemble:
        """The trees so far."""
        return Ensemble(self.roots, self.node_column, self.cut, self.left, self.right, self.value, np.zeros(0))

    def with_tree(self, tree: Tree) -> Memory:
        """Return what is remembered once one more tree is known."""
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
