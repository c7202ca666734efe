"""Messages of FedRSF: requests, releases, and the state of the coordinator between levels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, count
from multicentre.core.steps import Release
from multicentre.errors import MessageError
from multicentre.trees.table import MAX_NODES, NodeTable, check_leaves, check_splits

Integers = NDArray[np.int32]

Counts = NDArray[np.int64]

# Largest magnitudes of counts and of words with packed counts, for masking.
MAX_COUNT = 2.0**32

# Words have 52 bits (WORD), because a double represents integers up to 2^53 exactly.
MAX_WORD = 2.0**52


@dataclass(frozen=True)
class Sampling(Message):
    """Trees whose samples are to be counted."""

    seed: int = count("seed of the draws of patients")
    n_estimators: int = count("number of trees")
    n_groups: int = count("groups of times of the grid")


@dataclass(frozen=True)
class Samples(Release):
    """Counts of the drawn patients of every tree."""

    counts: Counts = array(
        "drawn patients by group of times of an event, and of the end of follow-up; patients, and patients with an "
        "event",
        ("T", "f"),
        dtype="i8",
        unit="patients",
        bound=MAX_COUNT,
    )


@dataclass(frozen=True)
class ForestState(NodeTable):
    """Current state of some trees, and the leaves to count."""

    max_depth: ClassVar[int] = MAX_NODES
    seed: int = count("seed of the draws of patients")
    tree: Integers = array("numbers of the trees", ("t",), dtype="i4")
    wanted: Integers = array("leaves to count", ("s",), dtype="i4")


@dataclass(frozen=True)
class Level(ForestState):
    """Leaves to split, with the columns to try and the layout of the counts."""

    n_groups: int = count("groups of times of the grid")
    tried: Integers = array("columns to try at each leaf", ("s", "c"), dtype="i4")
    bits: Integers = array("bits per count at each leaf", ("s",), dtype="i4")


@dataclass(frozen=True)
class Histograms(Release):
    """Counts of drawn patients by node, column, bin and group of times."""

    words: Counts = array(
        "counts of drawn patients, several per word", ("w",), dtype="i8", unit="patients", bound=MAX_WORD
    )


@dataclass(frozen=True)
class Leaves(Release):
    """Counts of drawn patients by leaf and time."""

    counts: Counts = array(
        "drawn patients by time of an event on the grid, and by end of follow-up",
        ("s", "f"),
        dtype="i8",
        unit="patients",
        bound=MAX_COUNT,
    )


@dataclass(frozen=True)
class CountedNodes(NodeTable):
    """Trees with the counts of their nodes."""

    max_depth: ClassVar[int] = MAX_NODES
    counts: Counts = array("counts of a node's drawn patients", ("m", "f"), dtype="i8")


@dataclass(frozen=True)
class Forest(CountedNodes):
    """State of the coordinator between levels."""

    frontier: Integers = array("leaves that may still be split", ("o",), dtype="i4")
    gain: NDArray[np.float64] = array("sum of the log-rank statistics by column", ("d",))


# Largest size of an answer: 2^24 words of 8 bytes, 128 MiB.
MAX_WORDS = 2**24

# Largest numbers of trees of a forest and of nodes of a request.
MAX_TREES = 10_000

# Column, cut and children per node are four 32-bit integers: 64 MiB for 2^22 nodes.
MAX_FOREST_NODES = 2**22

# Bits of a word that hold counts, as in MAX_WORD.
WORD = 52


def check_sampling(request: Sampling, n_times: int) -> None:
    """Raise MessageError unless the numbers of trees and of groups of times, and the seed, are in range."""
    if not (0 < request.n_estimators <= MAX_TREES and 0 < request.n_groups <= n_times and request.seed >= 0):
        raise MessageError(
            f"there must be 1 to {MAX_TREES} trees, 1 to {n_times} groups of times and a non-negative seed; got "
            f"{request.n_estimators}, {request.n_groups} and {request.seed}",
            where="Sampling",
        )
    check_words(request.n_estimators * (2 * request.n_groups + 3))


def check_standing(request: ForestState, max_bins: NDArray[np.int64]) -> None:
    """Raise MessageError unless nodes form trees of these columns, and the leaves to count are different leaves."""
    if not len(request.tree) or (request.tree < 0).any() or (request.tree >= MAX_TREES).any() or request.seed < 0:
        raise MessageError(
            f"there must be trees with numbers from 0 to {MAX_TREES - 1} and a non-negative seed; got others",
            where="ForestState.tree",
        )
    if not 0 < len(request.column) <= MAX_FOREST_NODES:
        raise MessageError(
            f"the trees must have 1 to {MAX_FOREST_NODES} nodes; got {len(request.column)}", where="ForestState.column"
        )
    check_splits(request, max_bins - 1)
    check_leaves(request, request.wanted)


def check_level(request: Level, max_bins: NDArray[np.int64], n_times: int) -> None:
    """Raise MessageError unless the trees are valid, and columns, groups of times and bits are in range."""
    check_standing(request, max_bins)
    tried = request.tried
    if not tried.shape[1] or (tried < 0).any() or (tried >= len(max_bins)).any():
        raise MessageError(
            f"tried must hold columns from 0 to {len(max_bins) - 1}; got none or others", where="Level.tried"
        )
    if (request.bits < 1).any() or (request.bits > WORD).any() or not 0 < request.n_groups <= n_times:
        raise MessageError(
            f"counts must have 1 to {WORD} bits, for 1 to {n_times} groups of times; got others", where="Level.bits"
        )


def check_words(n_words: int) -> None:
    """Raise MessageError for a request whose answer would exceed 128 MiB."""
    if n_words > MAX_WORDS:
        raise MessageError(
            f"the answer must have at most {MAX_WORDS} words; got {n_words}, which is too long",
            where="Level",
            hint="Request fewer nodes at a time.",
        )
