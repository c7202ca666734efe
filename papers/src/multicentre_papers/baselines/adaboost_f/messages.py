"""Messages of class boosting: requests of the coordinator, releases of the sites and the sites' state."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, count, flag, number, text, texts
from multicentre.core.steps import Release
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
    """Contribution of a site to the number of patients and to the columns' means."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    present: Floats = array("patients with a value", ("d",), unit="patients", bound=PATIENTS)
    total: Floats = array("sum of the values", ("d",), bound=TOTAL)


@dataclass(frozen=True)
class Prepared(Message):
    """Agreed columns, classes and scales."""

    columns: tuple[str, ...] = texts("names of the columns, in order")
    classes: tuple[str, ...] = texts("names of the classes, in order")
    n_patients: float = number("patients of all sites")
    centre: Floats = array("mean of every column; fills missing entries", ("d",))
    spread: Floats = array("standard deviation of every column, 1 for a constant one", ("d",))
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", default=())


@dataclass(frozen=True)
class Memory(Prepared):
    """State that a site keeps between rounds; it never leaves the site."""

    log_weights: Floats = array("log weight of every patient", ("n",))
    roots: NDArray[np.int32] = array("first node of every tree received", ("T",), dtype="i4")
    column: NDArray[np.int32] = array("column of a node's split", ("m",), dtype="i4")
    threshold: Floats = array("threshold of a node's split", ("m",))
    left: NDArray[np.int32] = array("child for values up to the threshold", ("m",), dtype="i4")
    right: NDArray[np.int32] = array("child for values above", ("m",), dtype="i4")
    label: NDArray[np.int32] = array("class at a leaf", ("m",), dtype="i4")
    committee: bool = flag("the trees form one hypothesis by majority vote")
    stopped: bool = flag("the local boosting of the site has ended")


@dataclass(frozen=True)
class FitTree(Message):
    """Request for a tree."""

    log_total: float = number("logarithm of the sum of the weights over all sites")
    seed: int = count("seed of the sites' random streams")
    round: int = count("number of the round")
    max_depth: int = count("maximum depth of the tree")
    min_samples_leaf: int = count("smallest number of patients per leaf")
    alone: bool = flag("the site then reweighs its patients by this tree")
    rate: float = number("learning rate of the local boosting")


@dataclass(frozen=True)
class Weighted(Message):
    """Scale of the sites' weights."""

    log_total: float = number("logarithm of the sum of the weights over all sites")


@dataclass(frozen=True)
class Hypotheses(ClassTrees):
    """Trees of all sites to be evaluated; empty if the previous trees apply."""

    committee: bool = flag("the trees form one hypothesis by majority vote")
    log_total: float = number("logarithm of the sum of the weights over all sites")


@dataclass(frozen=True)
class Errors(Release):
    """Contribution of a site to the errors of the hypotheses."""

    errors: Floats = array("weights of the misclassified patients by hypothesis", ("q",), bound=2.0)
    total: float = number("sum of the weights", bound=2.0)


@dataclass(frozen=True)
class Chosen(Weighted):
    """Selected hypothesis of the round."""

    index: int = count("index among the hypotheses")
    vote: float = number("vote of the hypothesis")


@dataclass(frozen=True)
class Total(Release):
    """Contribution of a site to the total weight."""

    total: float = number("sum of the new weights", bound=2.0)


@dataclass(frozen=True)
class Ensemble(ClassTrees):
    """State of the coordinator: the trees of all hypotheses so far."""

    sizes: NDArray[np.int64] = array("trees of each hypothesis", ("r",), dtype="i8")
    votes: Floats = array("vote of each hypothesis", ("r",))
    errors: Floats = array("error of each hypothesis", ("r",))
    names: tuple[str, ...] = texts("origin of each hypothesis")
    dropped: tuple[str, ...] = texts("sites and rounds without a valid tree")
    log_total: float = number("logarithm of the total weight")
    stopped: str = text("reason for an early end of the rounds")
