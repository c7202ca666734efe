"""Messages of the generalised linear models: requests of the coordinator and releases of the sites."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, flag, number, text, texts
from multicentre.core.steps import Release
from multicentre.core.withdrawal import TENTATIVE, WITHDRAWN

Floats = NDArray[np.float64]
# Bounds of a site's sums, for masking. 2**24: patients of a site, or the sum of their weights.
PATIENTS = 2.0**24
# As in survival methods: sums of columns and of squares in the units of the table.
TOTAL = 2.0**36
# PATIENTS times 2**8: the product of two standardised columns is up to 256 on average.
PRODUCTS = 2.0**32


@dataclass(frozen=True)
class Described(Release):
    """Names of columns and classes; independent of patients' values."""

    columns: tuple[str, ...] = texts("names of the columns", public=True)
    classes: tuple[str, ...] = texts("names of the two classes; none for a number", public=True)
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", public=True, default=())
    outcome: tuple[str, ...] = texts("name of the outcome; none if the data do not state it", public=True, default=())


@dataclass(frozen=True)
class Model(Message):
    """Family and link, and the columns that are not covariates."""

    family: str = text("gaussian, binomial, poisson, gamma, negative_binomial, multinomial or ordinal")
    link: str = text("identity, logit, probit, cloglog or log")
    offset: str = text("column that is added to the linear predictor; empty for none")
    weights: str = text("column of weights; empty for none")
    cluster: str = text("column of clusters; empty for none")
    frequency: bool = flag("weights are numbers of patients, not inverse probabilities")
    site_intercepts: bool = flag("each site has an intercept", default=False)


@dataclass(frozen=True)
class ColumnTotals(Release):
    """Numbers of patients, and sums for the means of the covariates."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    weight: float = number("sum of the weights; the patients without weights", bound=PATIENTS)
    present: Floats = array("weight of the patients with a value of each covariate", ("d",), bound=PATIENTS)
    total: Floats = array("sum of the covariates", ("d",), bound=TOTAL)


@dataclass(frozen=True)
class Totals(ColumnTotals):
    """Numbers of patients, and sums for the means of columns and outcome."""

    outcome: float = number("sum of the outcomes; of two classes, the patients of the second", bound=TOTAL)
    constant: float = number("part of the log-likelihood that is the same under any model", bound=TOTAL)
    entropy: float = number("sum of the counts times their logarithms; 0 for other outcomes", bound=TOTAL)


@dataclass(frozen=True)
class Centre(Model):
    """Means over all sites."""

    centre: Floats = array("mean of every covariate", ("d",))
    mean: float = number("mean of the outcome; 0 for three or more classes")


@dataclass(frozen=True)
class ColumnMoments(Release):
    """Sums of products of the covariates, after subtracting the means."""

    products: Floats = array("products of two covariates", ("d", "d"), bound=TOTAL)


@dataclass(frozen=True)
class Moments(ColumnMoments):
    """Sums of products of the covariates and the outcome, after subtracting the means."""

    cross: Floats = array("products of a covariate and the outcome", ("d",), bound=TOTAL)
    outcome_squares: float = number("squares of the outcome", bound=TOTAL)


@dataclass(frozen=True)
class At(Centre):
    """Coefficients at which the sites compute, and the scale of the columns."""

    spread: Floats = array("standard deviation of every covariate", ("d",))
    scale: float = number("divisor of a gaussian outcome, else 1")
    coefficients: Floats = array("intercept, then one coefficient per standard deviation", ("p",))
    overdispersion: float = number("overdispersion of negative binomial counts, else 0", default=0.0)
    tentative: bool = flag(TENTATIVE, default=False)


@dataclass(frozen=True)
class AtCounts(At):
    """Coefficients and overdispersion at which the sites compute."""

    unit: float = number("derivatives by the overdispersion are those by its multiples of this")


@dataclass(frozen=True)
class Effects(At):
    """Columns and levels of a formula whose effects are requested."""

    columns: tuple[str, ...] = texts("numeric columns of the data", default=())
    levels: tuple[str, ...] = texts("levels of categories, as name=level", default=())
    references: tuple[str, ...] = texts("level that each level is compared with, as name=level", default=())


@dataclass(frozen=True)
class EffectSums(Release):
    """Sums of effects on the predicted means."""

    weight: float = number("sum of the weights", bound=PATIENTS)
    effects: Floats = array("sum of the effects of each column and level", ("v",), bound=PRODUCTS)
    derivatives: Floats = array("their derivatives by the coefficients", ("v", "p"), bound=PRODUCTS)


@dataclass(frozen=True)
class Sums(Release):
    """Deviance of the patients of a site, and the derivatives of their log-likelihood."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    deviance: float = number("deviance", bound=PRODUCTS)
    pearson: float = number("Pearson statistic; 0 for classes", bound=PRODUCTS)
    gradient: Floats = array("first derivatives", ("p",), bound=PRODUCTS)
    information: Floats = array("expected information", ("p", "p"), bound=PRODUCTS)
    n_withdrawn: float = number(WITHDRAWN, unit="sites", bound=PATIENTS, default=0.0)


@dataclass(frozen=True)
class Products(Release):
    """Products of the first derivatives of patients or clusters, for robust standard errors."""

    n_clusters: float = number("clusters; the patients if there are none", bound=PATIENTS)
    products: Floats = array("sum of products of first derivatives", ("p", "p"), bound=PRODUCTS)


@dataclass(frozen=True)
class Intercepts(Release):
    """Sums of the sites' intercepts, weighted by patients, for their mean and its standard error."""

    n_sites: float = number("sites: 1", bound=PATIENTS)
    n_finite: float = number("sites with a finite intercept", bound=PATIENTS)
    weight: float = number("weight of their patients", bound=PATIENTS)
    total: float = number("intercept times weight", bound=PRODUCTS)
    variance: float = number("squared weight divided by the information on the intercept", bound=PRODUCTS)
    covariates: Floats = array("weighted means of the covariates times weight", ("p",), bound=PRODUCTS)


@dataclass(frozen=True)
class Uncertainty(At):
    """Covariance of the coefficients, for the standard error of a site's intercept."""

    covariance: Floats = array("covariance of intercept and coefficients; 0 for the intercept", ("p", "p"))
    dispersion: float = number("dispersion of the outcome")


@dataclass(frozen=True)
class OwnIntercept(Release):
    """Intercept of one site, and its standard error; both are 0 if it is not finite."""

    intercept: float = number("intercept of the site at covariates of 0")
    error: float = number("standard error")


@dataclass(frozen=True)
class Slopes(Release):
    """Sums of the slopes of the predicted means, for average marginal effects."""

    weight: float = number("sum of the weights", bound=PATIENTS)
    slope: float = number("sum of the slopes", bound=PRODUCTS)
    curvature: Floats = array("sum of second derivatives times covariates", ("p",), bound=PRODUCTS)
    intercepts: float = number(
        "squared sum of second derivatives divided by the information on the site's intercept; 0 without intercepts",
        bound=PRODUCTS,
    )


@dataclass(frozen=True)
class CountSums(Release):
    """Log-likelihood of negative binomial counts, and its derivatives by coefficients and overdispersion."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    log_likelihood: float = number("log-likelihood", bound=PRODUCTS)
    deviance: float = number("deviance", bound=PRODUCTS)
    pearson: float = number("Pearson statistic", bound=PRODUCTS)
    gradient: Floats = array("first derivatives by the coefficients", ("p",), bound=PRODUCTS)
    information: Floats = array("expected information on the coefficients", ("p", "p"), bound=PRODUCTS)
    observed: Floats = array("observed information on the coefficients", ("p", "p"), bound=PRODUCTS)
    slope: float = number("first derivative by the overdispersion", bound=PRODUCTS)
    curvature: float = number("second derivative by the overdispersion, with the sign reversed", bound=PRODUCTS)
    mixed: Floats = array("second derivatives by both, with the sign reversed", ("p",), bound=PRODUCTS)
    n_withdrawn: float = number(WITHDRAWN, unit="sites", bound=PATIENTS, default=0.0)
