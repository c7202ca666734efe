"""Messages of the path of penalties: requests of the coordinator and releases of the sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, count, number
from multicentre.core.steps import Release
from multicentre.regression.messages import PATIENTS, PRODUCTS, Centre

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class AtFolds(Centre):
    """Scale of the columns, and the number of folds."""

    spread: Floats = array("standard deviation of every covariate", ("d",))
    scale: float = number("divisor of a gaussian outcome, else 1")
    n_folds: int = count("folds that each site divides its patients into")
    seed: int = count("seed of the division, which also depends on the site's data")


@dataclass(frozen=True)
class AtPath(AtFolds):
    """Coefficients of several penalties and folds."""

    coefficients: Floats = array("intercept and coefficients per standard deviation", ("m", "p"))
    held_out: NDArray[np.int64] = array("fold that is left out; -1 for none", ("m",), dtype="i8")


@dataclass(frozen=True)
class FoldMoments(Release):
    """Sums of products by fold."""

    n_patients: NDArray[np.int64] = array("patients of each fold", ("k",), dtype="i8", bound=PATIENTS, counts=True)
    products: Floats = array("products of intercept, covariates and outcome by fold", ("k", "q", "q"), bound=PRODUCTS)


@dataclass(frozen=True)
class PathSums(Release):
    """Derivatives without the patients of a fold, and the deviance of these patients."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    weight: Floats = array("sum of the weights without the fold", ("m",), bound=PATIENTS)
    held_weight: Floats = array("sum of the weights of the fold", ("m",), bound=PATIENTS)
    deviance: Floats = array("deviance without the fold", ("m",), bound=PRODUCTS)
    held_deviance: Floats = array("deviance of the fold", ("m",), bound=PRODUCTS)
    gradient: Floats = array("first derivatives without the fold", ("m", "p"), bound=PRODUCTS)
    information: Floats = array("expected information without the fold", ("m", "p", "p"), bound=PRODUCTS)


@dataclass(frozen=True)
class PathState(Message):
    """State of the coordinator between rounds, for each pair of a penalty and a fold."""

    coefficients: Floats = array("best coefficients so far", ("m", "p"))
    step: Floats = array("step from the best coefficients", ("m", "p"))
    step_size: Floats = array("fraction of the step that is taken", ("m",))
    objective: Floats = array("penalised half deviance at the best coefficients", ("m",), finite=False)
    gradient: Floats = array("first derivatives at the best coefficients", ("m", "p"))
    information: Floats = array("information at the best coefficients", ("m", "p", "p"))
    held_deviance: Floats = array("deviance of the fold that is left out", ("m",))
    held_weight: Floats = array("weight of the fold that is left out", ("m",))
    settled: NDArray[np.bool_] = array("whether the step is below the tolerance", ("m",), dtype="b1")
    n_patients: float = number("patients behind the sums", unit="patients")
