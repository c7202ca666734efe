"""What boosting of classes sends: asks of the coordinator, releases of the sites, and what they remember."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.messages import Message, array, count, flag, number, text, texts
from multicentre.federation.steps import Release
from multicentre.survival.agreement.messages import PATIENTS, TOTAL
from multicentre_papers.baselines.adaboost_f.trees import ClassTrees

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Described(Release):
    """Names of a site's columns and classes."""

    columns: tuple[str, ...] = texts("names of the columns", public=True)
    classes: tuple[str, ...] = texts("names of the classes")
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", public=True, default=())


@dataclass(frozen=True)
class Sizes(Release):
    """What a site adds to the number of patients and to the columns' means."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    present: Floats = array("patients whose value is known", ("d",), unit="patients", bound=PATIENTS)
    total: Floats = array("sum of the known values", ("d",), bound=TOTAL)


@dataclass(frozen=True)
class Known(Message):
    """What was agreed."""

    columns: tuple[str, ...] = texts("names of the columns, in order")
    classes: tuple[str, ...] = texts("names of the classes, in order")
    n_patients: float = number("patients of all sites")
    centre: Floats = array("mean of every column; it fills gaps", ("d",))
    spread: Floats = array("standard deviation of every column, 1 for a constant one", ("d",))
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", default=())


@dataclass(frozen=True)
class Memory(Known):
    """What a site remembers between rounds; it never leaves."""

    log_weights: Floats = array("log weight of every patient", ("n",))
    roots: NDArray[np.int32] = array("first node of every tree received", ("T",), dtype="i4")
    column: NDArray[np.int32] = array("column of a node's split", ("m",), dtype="i4")
    threshold: Floats = array("threshold of a node's split", ("m",))
    left: NDArray[np.int32] = array("child for values up to the threshold", ("m",), dtype="i4")
    right: NDArray[np.int32] = array("child for values above", ("m",), dtype="i4")
    label: NDArray[np.int32] = array("class at a leaf", ("m",), dtype="i4")
    committee: bool = flag("the trees are one hypothesis, by the most votes")
    stopped: bool = flag("the site's own boosting has ended")


@dataclass(frozen=True)
class FitTree(Message):
    """A tree is wanted."""

    log_total: float = number("logarithm of the sum of the weights over all sites")
    seed: int = count("seed of the sites' random streams")
    round: int = count("number of the round")
    max_depth: int = count("splits on the way to a leaf")
    min_samples_leaf: int = count("fewest patients of a leaf")
    alone: bool = flag("the site then reweighs its patients by its own tree")
    rate: float = number("learning rate of the site's own boosting")


@dataclass(frozen=True)
class Weighted(Message):
    """By what the sites' weights are scaled."""

    log_total: float = number("logarithm of the sum of the weights over all sites")


@dataclass(frozen=True)
class Hypotheses(ClassTrees):
    """Trees of all sites, to be judged; none where those sent before serve."""

    committee: bool = flag("the trees are one hypothesis, by the most votes")
    log_total: float = number("logarithm of the sum of the weights over all sites")


@dataclass(frozen=True)
class Errors(Release):
    """What a site adds to the errors of the hypotheses."""

    errors: Floats = array("weights of the wrongly classified, by hypothesis", ("q",), bound=2.0)
    total: float = number("sum of the weights", bound=2.0)


@dataclass(frozen=True)
class Chosen(Weighted):
    """The hypothesis of the round."""

    index: int = count("its place among the hypotheses")
    vote: float = number("its vote")


@dataclass(frozen=True)
class Total(Release):
    """What a site adds to the total weight."""

    total: float = number("sum of the new weights", bound=2.0)


@dataclass(frozen=True)
class Ensemble(ClassTrees):
    """Where the coordinator stands: the trees of all hypotheses so far."""

    sizes: NDArray[np.int64] = array("trees of each hypothesis", ("r",), dtype="i8")
    votes: Floats = array("vote of each", ("r",))
    errors: Floats = array("error of each", ("r",))
    names: tuple[str, ...] = texts("where each comes from")
    dropped: tuple[str, ...] = texts("sites and rounds without a valid tree")
    log_total: float = number("logarithm of the total weight")
    stopped: str = text("why the rounds ended early")
