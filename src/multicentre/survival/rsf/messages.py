"""What FedRSF asks of a site, what a site answers with, and what the coordinator carries from level to level."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
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
    n_estimators: int = count("number of trees")
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


MOST_WORDS = 2**24

MOST_TREES = 10_000

MOST_NODES = 2**22

WORD = 52


def check_sampling(ask: Sampling, n_times: int) -> None:
    """Raise MessageError unless the numbers of trees and of groups of times, and the seed, are in range."""
    if not (0 < ask.n_estimators <= MOST_TREES and 0 < ask.n_groups <= n_times and ask.seed >= 0):
        raise MessageError("the number of trees or of groups, or the seed, is out of range", where="Sampling")
    check_words(ask.n_estimators * (2 * ask.n_groups + 3))


def check_standing(ask: Standing, max_bins: NDArray[np.int64]) -> None:
    """Raise MessageError unless nodes make trees of these columns, and what is wanted are leaves, each once."""
    if not len(ask.tree) or (ask.tree < 0).any() or (ask.tree >= MOST_TREES).any() or ask.seed < 0:
        raise MessageError("there is no such tree or seed", where="Standing.tree")
    _check_trees(ask, max_bins)
    wanted = ask.wanted
    inside = len(wanted) > 0 and (wanted >= 0).all() and (wanted < len(ask.column)).all()
    if not inside or len(np.unique(wanted)) != len(wanted) or (ask.column[wanted] >= 0).any():
        raise MessageError("what is wanted are not leaves of the trees", where="Standing.wanted")


def check_level(ask: Level, max_bins: NDArray[np.int64], n_times: int) -> None:
    """Raise MessageError unless the trees are in order, and columns, groups of times and bits in range."""
    check_standing(ask, max_bins)
    tried = ask.tried
    if not tried.shape[1] or (tried < 0).any() or (tried >= len(max_bins)).any():
        raise MessageError("there is no such column", where="Level.tried")
    if (ask.bits < 1).any() or (ask.bits > WORD).any() or not 0 < ask.n_groups <= n_times:
        raise MessageError("a count does not fit a word, or there are no such groups", where="Level.bits")


def check_words(n_words: int) -> None:
    """Raise MessageError for an ask whose answer would be more than 128 MiB."""
    if n_words > MOST_WORDS:
        raise MessageError("the answer would be too long", where="Level", hint="Ask for fewer nodes at a time.")


def _check_trees(ask: Standing, max_bins: NDArray[np.int64]) -> None:
    from multicentre.survival.kernels.hazard import is_tree

    ends = np.append(ask.root[1:], len(ask.column))
    if not 0 < len(ask.column) <= MOST_NODES or not len(ask.root):
        raise MessageError("there are no nodes, or too many", where="Standing.column")
    if ask.root[0] != 0 or (ends <= ask.root).any():
        raise MessageError("the trees do not follow each other", where="Standing.root")
    for start, stop in zip(ask.root.tolist(), ends.tolist(), strict=True):
        own = slice(start, stop)
        if not is_tree(ask.column[own], ask.cut[own], ask.left[own], ask.right[own], max_bins):
            raise MessageError("the nodes do not make a tree of these columns and bins", where="Standing")
