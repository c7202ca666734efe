"""Messages of FedHazardBoost: requests, releases, and the states of coordinator and sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, count, number
from multicentre.core.steps import Release
from multicentre.survival.agreement.messages import PATIENTS, Prepared
from multicentre.trees import table
from multicentre.trees.table import NodeTable

Floats = NDArray[np.float64]
Sums = NDArray[np.int64]
# Largest magnitude of a site's sums, for masking: 2^24 patients (PATIENTS) in units of 2^-30.
MAX_SUM = 2.0**54


@dataclass(frozen=True)
class IntervalCounts(Release):
    """Patients by interval of the grid."""

    events: Floats = array("patients with an event, by its interval", ("K",), unit="patients", bound=PATIENTS)
    leaving: Floats = array(
        "patients by the last interval in which they count", ("K",), unit="patients", bound=PATIENTS
    )


@dataclass(frozen=True)
class InitialState(Message):
    """Initial log odds, and parameters of the draws of patients, for one pass over the trees."""

    base: Floats = array("log odds of the hazard in every interval", ("K",))
    seed: int = count("seed of the draws of patients")
    subsample: float = number("share of the patients used for each tree")
    n_folds: int = count("folds into which patients are drawn; 0 without early stopping")
    held_out: int = count("fold held out from all trees of the pass, from 1; 0 for none")


@dataclass(frozen=True)
class Trees(NodeTable):
    """Trees on bins; the column after those of the patients is the number of the interval."""

    value: Floats = array("increment of the log odds at a leaf", ("m",))


@dataclass(frozen=True)
class Level(table.Level, Trees):
    """Trees that the site lacks, followed by the growing tree, and the leaves of the growing tree to sum."""


@dataclass(frozen=True)
class Histograms(Release):
    """Sums over patients and intervals by node and bin, as integers, which do not depend on the order of summation."""

    slopes: Sums = array(
        "sums of first derivatives of the log-loss, in units of 2**-30", ("s", "q"), dtype="i8", bound=MAX_SUM
    )
    curvatures: Sums = array(
        "sums of second derivatives of the log-loss, in units of 2**-30", ("s", "q"), dtype="i8", bound=MAX_SUM
    )
    losses: Sums = array(
        "log-loss, in units of 2**-20, and number of patients, for those used in the tree and for those held out",
        (2, 2),
        dtype="i8",
        bound=MAX_SUM,
    )


@dataclass(frozen=True)
class Ensemble(Trees):
    """State of the coordinator: the trees so far, and the gain of their splits."""

    gain: Floats = array("gain of a node's split", ("m",))


@dataclass(frozen=True)
class Memory(Prepared, InitialState, Trees):
    """State of a site: agreement, start of the pass, and its trees, from which the margins follow."""

    base: Floats = array("log odds of the hazard in every interval; empty before the first tree", ("b",))
