"""What forests of local trees ask and answer; the trees themselves travel as :class:`Trees`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, count, flag, number, text, texts
from multicentre.federation.steps import Release

Floats = NDArray[np.float64]
PATIENTS = 2.0**24


@dataclass(frozen=True)
class Forest(Message):
    """How a site grows its forest."""

    n_trees: int = count("trees that a site grows")
    max_depth: int = count("splits on the way to a leaf, at most")
    min_leaf: int = count("fewest patients of a leaf", unit="patients")
    min_events: int = count("fewest events of a leaf", unit="patients")
    n_columns: int = count("columns that are tried at a node")
    sampling: str = text("how trees are chosen: uniform, ibs or concordance")
    replacement: bool = flag("a tree may be chosen more than once")
    seed: int = count("seed of the sites' random streams")


@dataclass(frozen=True)
class Order(Forest):
    """A forest, and how many trees of it are wanted."""

    wanted: int = count("trees that the site gives")


@dataclass(frozen=True)
class Offer(Release):
    """What a site could give."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_trees: int = count("trees that the site can grow; 0 with too few patients or events")


@dataclass(frozen=True)
class Orders(Message):
    """What the coordinator ordered of each site."""

    sites: tuple[str, ...] = texts("names of the sites")
    n_patients: Floats = array("patients of each", ("s",), unit="patients")
    wanted: NDArray[np.int64] = array("trees wanted of each", ("s",), dtype="i8")


@dataclass(frozen=True)
class Gathered(Message):
    """The trees that the sites gave; the coordinator keeps it with a checkpoint."""

    sites: tuple[str, ...] = texts("names of the sites that gave some")
    packed: NDArray[np.uint8] = array("their forests as bytes", ("b",), dtype="u1")
    lengths: NDArray[np.int64] = array("bytes of each", ("s",), dtype="i8")
