"""Messages of multinomial and ordinal regression: requests of the coordinator and releases of the sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import array, flag, number
from multicentre.core.steps import Release
from multicentre.core.withdrawal import TENTATIVE, WITHDRAWN
from multicentre.regression import messages
from multicentre.regression.messages import PATIENTS, PRODUCTS, TOTAL, Centre, ColumnMoments, ColumnTotals

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class Totals(ColumnTotals):
    """Numbers of patients by class, and sums for the means of the covariates."""

    counts: Ints = array("patients of each class", ("k",), dtype="i8", bound=PATIENTS, counts=True)
    class_weights: Floats = array("sum of the weights of each class", ("k",), bound=PATIENTS)


@dataclass(frozen=True)
class Moments(ColumnMoments):
    """Sums of products of the covariates, and of the covariates by class, after subtracting the means."""

    by_class: Floats = array("sum of each covariate over the patients of each class", ("k", "d"), bound=TOTAL)


@dataclass(frozen=True)
class At(Centre):
    """Parameters at which the sites compute, and the scale of the covariates."""

    spread: Floats = array("standard deviation of every covariate", ("d",))
    parameters: Floats = array("intercepts or thresholds, and slopes per standard deviation", ("q",))
    tentative: bool = flag(TENTATIVE, default=False)


@dataclass(frozen=True)
class Sums(Release):
    """Log-likelihood of the patients of a site, and its derivatives."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    log_likelihood: float = number("log-likelihood", bound=PRODUCTS)
    gradient: Floats = array("first derivatives", ("q",), bound=PRODUCTS)
    information: Floats = array("second derivatives with the sign reversed", ("q", "q"), bound=PRODUCTS)
    n_withdrawn: float = number(WITHDRAWN, unit="sites", bound=PATIENTS, default=0.0)


@dataclass(frozen=True)
class Products(messages.Products):
    """Products of the first derivatives of patients or clusters, for robust standard errors."""

    products: Floats = array("sum of products of first derivatives", ("q", "q"), bound=PRODUCTS)


@dataclass(frozen=True)
class UnequalSlopes(Release):
    """Derivatives of the model with slopes for each threshold, for the test of proportional odds."""

    gradient: Floats = array("first derivatives", ("u",), bound=PRODUCTS)
    information: Floats = array("expected information", ("u", "u"), bound=PRODUCTS)
