"""Messages of the mixed models: requests of the coordinator and releases of the sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import array, flag, number, texts
from multicentre.core.steps import Release
from multicentre.core.withdrawal import TENTATIVE, WITHDRAWN
from multicentre.regression.messages import PATIENTS, PRODUCTS, Centre

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Effects(Centre):
    """Scale of the columns, and the effects that differ between sites."""

    spread: Floats = array("standard deviation of every covariate", ("d",))
    scale: float = number("divisor of a gaussian outcome, else 1")
    slopes: tuple[str, ...] = texts("covariates whose slope differs between sites; the intercept always does")


@dataclass(frozen=True)
class Candidates(Effects):
    """Covariances of the effects among which the rounds start."""

    covariances: Floats = array("covariances of the effects, relative to the residual variance", ("m", "q", "q"))


@dataclass(frozen=True)
class AtCovariance(Effects):
    """Covariance of the effects at which the sites compute."""

    covariance: Floats = array("covariance of the effects, relative to the residual variance", ("q", "q"))
    directions: Floats = array("matrix C; derivatives are by K, where the covariance changes by C K C'", ("q", "q"))


@dataclass(frozen=True)
class AtSolution(AtCovariance):
    """Coefficients and residual variance, for the effects of one site."""

    coefficients: Floats = array("intercept, then one coefficient per standard deviation", ("p",))
    variance: float = number("residual variance")


@dataclass(frozen=True)
class AtFactor(Effects):
    """Coefficients, and the Cholesky factor of the covariance of the effects."""

    coefficients: Floats = array("intercept, then one coefficient per standard deviation", ("p",))
    factor: Floats = array("entries of the Cholesky factor, row by row", ("r",))
    tentative: bool = flag(TENTATIVE, default=False)


@dataclass(frozen=True)
class Weighted(Release):
    """Products of covariates and outcome, weighted by the inverse of their covariance, at each candidate."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_sites: float = number("sites: 1", bound=PATIENTS)
    products: Floats = array("weighted products of covariates and outcome", ("m", "v", "v"), bound=PRODUCTS)
    log_determinants: Floats = array("logarithm of the determinant of the covariance", ("m",), bound=PATIENTS)


@dataclass(frozen=True)
class Curved(Release):
    """Weighted products of covariates and outcome, and their derivatives by the covariance of the effects."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_sites: float = number("sites: 1", bound=PATIENTS)
    products: Floats = array("weighted products of covariates and outcome", ("v", "v"), bound=PRODUCTS)
    log_determinant: float = number("logarithm of the determinant of the covariance", bound=PATIENTS)
    slopes: Floats = array("first derivatives of the products", ("r", "v", "v"), bound=PRODUCTS)
    curvatures: Floats = array("second derivatives of the products", ("r", "r", "v", "v"), bound=PRODUCTS)
    determinant_slopes: Floats = array("first derivatives of the logarithm", ("r",), bound=PATIENTS)
    determinant_curvatures: Floats = array("second derivatives of the logarithm", ("r", "r"), bound=PATIENTS)


@dataclass(frozen=True)
class Laplace(Release):
    """Likelihood of a site's outcomes by Laplace's approximation, and its derivatives."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_sites: float = number("sites: 1", bound=PATIENTS)
    value: float = number("log-likelihood without the part that is the same under any model", bound=PRODUCTS)
    gradient: Floats = array("first derivatives by coefficients and Cholesky factor", ("w",), bound=PRODUCTS)
    information: Floats = array("minus the second derivatives", ("w", "w"), bound=PRODUCTS)
    n_withdrawn: float = number(WITHDRAWN, unit="sites", bound=PATIENTS, default=0.0)


@dataclass(frozen=True)
class OwnEffects(Release):
    """Predicted effects of one site, and their covariance."""

    effects: Floats = array("intercept, then the slopes", ("q",))
    covariance: Floats = array("covariance of the prediction errors", ("q", "q"))
