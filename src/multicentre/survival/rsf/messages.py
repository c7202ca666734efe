"""What FedRSF asks of a site, what a site answers with, and what the coordinator carries from level to level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, count
from multicentre.federation.steps import Release

Integers = NDArray[np.int32]
Counts = NDArray[np.int64]
LARGEST_COUNT = 2.0**32
LARGEST_WORD = 2.0**52


@dataclass(frozen=True)
class Sampling(Message):
    """The trees whose samples are to be counted."""

    seed: int = count("seed of the patients' own draws")
    n_trees: int = count("number of trees")
    n_groups: int = count("groups of times of the grid")


@dataclass(frozen=True)
class Samples(Release):
    """Drawn patients of every tree."""

    counts: Counts = array(
        "drawn patients with an event, and leaving, by group of times; patients, and patients with an event",
        ("T", "f"),
        dtype="i8",
        unit="patients",
        bound=LARGEST_COUNT,
    )


@dataclass(frozen=True)
class Standing(Message):
    """Some trees as they stand, and leaves of them."""

    seed: int = count("seed of the patients' own draws")
    tree: Integers = array("numbers of the trees", ("t",), dtype="i4")
    root: Integers = array("first node of every tree", ("t",), dtype="i4")
    column: Integers = array("column of a node's split, -1 at a leaf", ("m",), dtype="i4")
    cut: Integers = array("last bin of the left side", ("m",), dtype="i4")
    left: Integers = array("child for bins up to the cut, counted from the root", ("m",), dtype="i4")
    right: Integers = array("child for bins above, counted from the root", ("m",), dtype="i4")
    wanted: Integers = array("leaves that are asked about", ("s",), dtype="i4")


@dataclass(frozen=True)
class Level(Standing):
    """The leaves at which splits are looked for, and in what detail."""

    n_groups: int = count("groups of times of the grid")
    tried: Integers = array("columns that are tried at a leaf", ("s", "c"), dtype="i4")
    bits: Integers = array("bits of a count there", ("s",), dtype="i4")


@dataclass(frozen=True)
class Histograms(Release):
    """Drawn patients by node, column, bin and group of times."""

    words: Counts = array(
        "counts of drawn patients, several to a word", ("w",), dtype="i8", unit="patients", bound=LARGEST_WORD
    )


@dataclass(frozen=True)
class Leaves(Release):
    """Drawn patients by leaf and time."""

    counts: Counts = array(
        "drawn patients with an event by time of the grid, and leaving",
        ("s", "f"),
        dtype="i8",
        unit="patients",
        bound=LARGEST_COUNT,
    )


@dataclass(frozen=True)
class Forest(Message):
    """All nodes of all trees in the order in which they came; a child's place is its place among all."""

    tree: Integers = array("number of a node's tree", ("m",), dtype="i4")
    column: Integers = array("column of a node's split, -1 at a leaf", ("m",), dtype="i4")
    cut: Integers = array("last bin of the left side", ("m",), dtype="i4")
    left: Integers = array("child for bins up to the cut", ("m",), dtype="i4")
    right: Integers = array("child for bins above", ("m",), dtype="i4")
    counts: Counts = array("counts of a node's drawn patients", ("m", "f"), dtype="i8")
    frontier: Integers = array("leaves at which splits are still looked for", ("o",), dtype="i4")
    gain: NDArray[np.float64] = array("sum of the log-rank statistics by column", ("d",))
