"""Generalised linear models: families, links, derivatives, likelihoods and inference.

Functions of arrays. Derivatives are sums over patients, so the sums of several sites are those of the pooled patients.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, assert_never

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, gammaln, log_ndtr, ndtr, ndtri, xlogy
from scipy.stats import norm, t

from multicentre.regression.negative_binomial import count_deviances

Floats = NDArray[np.float64]
Family = Literal["gaussian", "binomial", "poisson", "gamma", "negative_binomial"]
Link = Literal["identity", "logit", "probit", "cloglog", "log"]

# Links of each family; the first is the default.
LINKS: dict[str, tuple[Link, ...]] = {
    "gaussian": ("identity", "log"),
    "binomial": ("logit", "probit", "cloglog"),
    "poisson": ("log",),
    "gamma": ("log",),
    "negative_binomial": ("log",),
}
# Families whose dispersion is estimated; its error gives t instead of normal distributions.
DISPERSED = frozenset({"gaussian", "gamma"})
# Predicted probabilities are kept this far from 0 and 1 in the derivatives of links other than the logit.
SMALLEST_SHARE = 1e-12
# Largest linear predictor of the log link: exp(300) is finite, and so are its products with sums of patients.
MAX_PREDICTOR = 300.0
# Relative size of an eigenvalue of the correlations below which columns depend on each other; with masked sums, whose
# rounding makes the smallest eigenvalues larger, the second.
DEPENDENT, DEPENDENT_MASKED = 1e-10, 1e-7
# Share of a column in the direction of such an eigenvalue above which an error names it.
INVOLVED = 0.1


@dataclass(frozen=True)
class Derivatives:
    """Deviance, Pearson statistic, and derivatives of the log-likelihood divided by the inverse dispersion.

    Parameters
    ----------
    deviance, pearson : float
    gradient : array of shape (p,)
    information : array of shape (p, p)
        Expected information.
    """

    deviance: float
    pearson: float
    gradient: Floats
    information: Floats


@dataclass(frozen=True)
class Terms:
    """Terms of each patient in the derivatives, shape (n,) each.

    Parameters
    ----------
    mean : array
        Predicted mean of the outcome.
    score : array
        Derivative of the log-likelihood by the linear predictor.
    weight : array
        Expected second derivative, with the sign reversed.
    """

    mean: Floats
    score: Floats
    weight: Floats


def predicted_mean(link: Link, predictor: Floats) -> Floats:
    """Return the mean of the outcome for linear predictors.

    Examples
    --------
    >>> predicted_mean("logit", np.array([0.0])).tolist(), predicted_mean("log", np.array([0.0])).tolist()
    ([0.5], [1.0])
    """
    if link == "identity":
        return np.asarray(predictor, dtype=np.float64)
    if link == "logit":
        return np.asarray(expit(predictor), dtype=np.float64)
    if link == "probit":
        return np.asarray(ndtr(predictor), dtype=np.float64)
    exponentials = np.exp(np.minimum(predictor, MAX_PREDICTOR))
    if link == "log":
        return exponentials
    if link == "cloglog":
        return -np.expm1(-exponentials)
    assert_never(link)


def predictor_of(link: Link, mean: Floats) -> Floats:
    """Return the linear predictors of means, the inverse of :func:`predicted_mean`.

    Examples
    --------
    >>> predictor_of("logit", np.array([0.5])).tolist(), predictor_of("log", np.array([1.0])).tolist()
    ([0.0], [0.0])
    """
    if link == "identity":
        return mean
    if link == "log":
        return np.log(mean)
    if link == "logit":
        return np.log(mean) - np.log1p(-mean)
    if link == "probit":
        return np.asarray(ndtri(mean), dtype=np.float64)
    if link == "cloglog":
        return np.log(-np.log1p(-mean))
    assert_never(link)


def slopes(link: Link, predictor: Floats, mean: Floats) -> tuple[Floats, Floats]:
    """Return the first and second derivative of the mean by the linear predictor, shape (n,) each.

    Examples
    --------
    >>> [each.tolist() for each in slopes("logit", np.zeros(1), np.array([0.5]))]
    [[0.25], [0.0]]
    """
    if link == "identity":
        return np.ones_like(predictor), np.zeros_like(predictor)
    if link == "logit":
        first = mean * (1.0 - mean)
        return first, first * (1.0 - 2.0 * mean)
    if link == "probit":
        first = norm.pdf(predictor)
        return first, -predictor * first
    exponentials = np.exp(np.minimum(predictor, MAX_PREDICTOR))
    if link == "log":
        return exponentials, exponentials
    if link == "cloglog":
        first = exponentials * np.exp(-exponentials)
        return first, first * (1.0 - exponentials)
    assert_never(link)


def variance(family: Family, mean: Floats, overdispersion: float = 0.0) -> Floats:
    """Return the variance of the outcome at dispersion 1, as a function of its mean.

    Parameters
    ----------
    family : str
    mean : array of shape (n,)
    overdispersion : float, default 0.0
        Of negative binomial counts; not used for other families.

    Examples
    --------
    >>> variance("binomial", np.array([0.5])).tolist(), variance("gamma", np.array([3.0])).tolist()
    ([0.25], [9.0])
    """
    if family == "gaussian":
        return np.ones_like(mean)
    if family == "binomial":
        return mean * (1.0 - mean)
    if family == "poisson" or family == "negative_binomial":
        return mean + overdispersion * mean**2
    if family == "gamma":
        return mean**2
    assert_never(family)


def unit_deviances(
    family: Family, link: Link, outcome: Floats, predictor: Floats, overdispersion: float = 0.0
) -> Floats:
    """Return each patient's deviance: twice the log-likelihood lost against a perfect prediction, shape (n,).

    References
    ----------
    P. McCullagh, J. A. Nelder (1989), Generalized linear models, section 2.3.

    Examples
    --------
    >>> unit_deviances("gaussian", "identity", np.array([3.0]), np.array([1.0])).tolist()
    [4.0]
    """
    if family == "binomial":
        return -2.0 * _log_share(link, outcome, predictor)
    if family == "negative_binomial":
        return count_deviances(outcome, predictor, overdispersion)
    mean = predicted_mean(link, predictor)
    if family == "gaussian":
        return np.square(outcome - mean)
    ratio = np.divide(outcome, mean)
    if family == "poisson":
        return np.asarray(2.0 * (xlogy(outcome, ratio) - (outcome - mean)), dtype=np.float64)
    if family == "gamma":
        return 2.0 * (ratio - 1.0 - np.log(ratio))
    assert_never(family)


def _log_share(link: Link, outcome: Floats, predictor: Floats) -> Floats:
    """Return the logarithm of the predicted probability of outcomes 0 and 1."""
    has_outcome = outcome == 1.0
    if link == "logit":
        return -np.logaddexp(0.0, np.where(has_outcome, -predictor, predictor))
    if link == "probit":
        return np.asarray(log_ndtr(np.where(has_outcome, predictor, -predictor)), dtype=np.float64)
    hazard = np.exp(np.minimum(predictor, MAX_PREDICTOR))
    return np.where(has_outcome, np.log(np.maximum(-np.expm1(-hazard), SMALLEST_SHARE)), -hazard)


def patient_terms(family: Family, link: Link, outcome: Floats, predictor: Floats, overdispersion: float = 0.0) -> Terms:
    """Return the terms of each patient in the derivatives.

    Examples
    --------
    >>> terms = patient_terms("binomial", "logit", np.array([1.0]), np.zeros(1))
    >>> terms.score.tolist(), terms.weight.tolist()
    ([0.5], [0.25])
    """
    mean = predicted_mean(link, predictor)
    if link == LINKS[family][0] and family not in ("gamma", "negative_binomial"):  # canonical: slope and variance agree
        return Terms(mean, outcome - mean, variance(family, mean))
    if family == "binomial":
        mean = np.clip(mean, SMALLEST_SHARE, 1.0 - SMALLEST_SHARE)
    slope, spread = slopes(link, predictor, mean)[0], variance(family, mean, overdispersion)
    return Terms(mean, slope * (outcome - mean) / spread, slope**2 / spread)


def derive(
    family: Family,
    link: Link,
    rows: Floats,
    outcome: Floats,
    predictor: Floats,
    weights: Floats,
    overdispersion: float = 0.0,
) -> Derivatives:
    """Return deviance, Pearson statistic, gradient and expected information as sums over patients.

    The Pearson statistic is 0 for two classes.

    Parameters
    ----------
    family, link : str
    rows : array of shape (n, p)
    outcome, predictor, weights : arrays of shape (n,)
    overdispersion : float, default 0.0
        Of negative binomial counts.

    Examples
    --------
    >>> sums = derive("gaussian", "identity", np.ones((2, 1)), np.array([1.0, 3.0]), np.zeros(2), np.ones(2))
    >>> sums.deviance, sums.gradient.tolist(), sums.information.tolist()
    (10.0, [4.0], [[2.0]])
    """
    terms = patient_terms(family, link, outcome, predictor, overdispersion)
    pearson = 0.0
    if family != "binomial":
        pearson = float(weights @ (np.square(outcome - terms.mean) / variance(family, terms.mean, overdispersion)))
    return Derivatives(
        float(weights @ unit_deviances(family, link, outcome, predictor, overdispersion)),
        pearson,
        rows.T @ (weights * terms.score),
        rows.T @ (rows * (weights * terms.weight)[:, None]),
    )


def saturated(family: Family, outcome: Floats) -> Floats:
    """Return the part of each patient's log-likelihood that does not depend on the model, shape (n,).

    For Poisson outcomes it is the log-likelihood of a perfect prediction; for gamma outcomes the logarithm of the
    outcome, from which `log_likelihood` computes the rest.

    Examples
    --------
    >>> saturated("poisson", np.array([1.0])).tolist(), saturated("gamma", np.array([1.0])).tolist()
    ([-1.0], [0.0])
    """
    if family == "poisson":
        return np.asarray(xlogy(outcome, outcome) - outcome - gammaln(outcome + 1.0), dtype=np.float64)
    return np.log(outcome) if family == "gamma" else np.zeros_like(outcome)


def log_likelihood(family: Family, deviance: float, constant: float, n_patients: float, dispersion: float) -> float:
    """Return the log-likelihood; for gaussian outcomes at the maximum likelihood estimate of the variance.

    Parameters
    ----------
    deviance : float
    constant : float
        Sum of :func:`saturated`.
    n_patients : float
    dispersion : float
        Used for gamma outcomes.

    Examples
    --------
    >>> round(log_likelihood("gaussian", 2.0, 0.0, 2.0, 1.0), 4)
    -2.8379
    """
    if family == "gaussian":
        mean_square = max(deviance, np.finfo(np.float64).tiny) / n_patients
        return float(-0.5 * n_patients * (np.log(2.0 * np.pi * mean_square) + 1.0))
    if family == "gamma":
        shape = 1.0 / dispersion
        terms = 0.5 * deviance + n_patients * (1.0 + np.log(dispersion))
        return float(-shape * terms - constant - n_patients * gammaln(shape))
    return constant - 0.5 * deviance


def null_weight(family: Family, link: Link, mean: float) -> float:
    """Return the information on the linear predictor per patient in a model without covariates.

    Examples
    --------
    >>> null_weight("binomial", "logit", 0.5), round(null_weight("poisson", "log", 3.0), 9)
    (0.25, 3.0)
    """
    if link == "identity":
        return 1.0
    means = np.array([mean])
    slope = slopes(link, predictor_of(link, means), means)[0]
    return float((slope**2 / variance(family, means))[0])


def has_bounded_information(family: Family) -> bool:
    """Return whether the information does not depend on the coefficients, so that nothing can be separated.

    Examples
    --------
    >>> has_bounded_information("gamma"), has_bounded_information("binomial")
    (True, False)
    """
    return LINKS[family][0] == "identity" or family == "gamma"


def dependent_columns(information: Floats, tol: float = DEPENDENT) -> NDArray[np.bool_]:
    """Flag the columns that are combinations of others, shape (p,), by the eigenvectors of their correlations.

    Examples
    --------
    >>> dependent_columns(np.array([[2.0, 2.0, 0.0], [2.0, 2.0, 0.0], [0.0, 0.0, 1.0]])).tolist()
    [True, True, False]
    """
    spread = np.sqrt(np.maximum(np.diagonal(information), 0.0))
    scale = np.where(spread > 0, spread, 1.0)
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    null = vectors[:, values <= tol * max(float(values[-1]), 1.0)]
    return np.asarray((np.abs(null) > INVOLVED).any(axis=1) | (spread == 0))


def start_coefficients(family: Family, products: Floats, cross: Floats, n_patients: float, mean: float) -> Floats:
    """Return coefficients of centred columns from second moments, where the rounds start, shape (d,).

    They are those of least squares for gaussian outcomes, of linear discriminant analysis for two classes, and one
    Fisher step from the mean otherwise.

    Parameters
    ----------
    products : array of shape (d, d)
        Sums of products of the centred columns.
    cross : array of shape (d,)
        Sums of products of the centred columns and the centred outcome.
    n_patients : float
    mean : float
        Mean of the outcome.

    References
    ----------
    B. Efron (1975), The efficiency of logistic regression compared to normal discriminant analysis, Journal of the
    American Statistical Association 70, 892-898.

    Examples
    --------
    >>> start_coefficients("gaussian", np.array([[4.0]]), np.array([2.0]), 10.0, 0.0).tolist()
    [0.5]
    """
    if family == "binomial":
        share = n_patients * mean * (1.0 - mean)
        within = products - np.outer(cross, cross) / share
        return _solved(within, cross * n_patients / share)
    return _solved(products, cross / (1.0 if family == "gaussian" else mean))


def _solved(matrix: Floats, vector: Floats) -> Floats:
    return np.asarray(np.linalg.lstsq(matrix, vector, rcond=DEPENDENT)[0], dtype=np.float64)


def to_units(centre: Floats, spread: Floats, scale: float) -> Floats:
    """Return the matrix from coefficients of standardised covariates to coefficients per unit, shape (p, p).

    Examples
    --------
    >>> to_units(np.array([60.0]), np.array([10.0]), 1.0).tolist()
    [[1.0, -6.0], [0.0, 0.1]]
    """
    matrix = np.diag(np.concatenate([[1.0], 1.0 / spread]))
    matrix[0, 1:] = -centre / spread
    return matrix * scale


def p_values(statistics: Floats, residual_freedom: float | None) -> Floats:
    """Return two-sided p-values of z statistics, or of t statistics if degrees of freedom are given.

    Examples
    --------
    >>> p_values(np.array([1.96]), None).round(2).tolist(), p_values(np.array([1.96]), 10.0).round(2).tolist()
    ([0.05], [0.08])
    """
    sizes = np.abs(statistics)
    tails = norm.sf(sizes) if residual_freedom is None else t.sf(sizes, residual_freedom)
    return np.asarray(2.0 * tails, dtype=np.float64)


def quantile(confidence_level: float, residual_freedom: float | None) -> float:
    """Return the half-width of an interval in standard errors.

    Examples
    --------
    >>> round(quantile(0.95, None), 2), round(quantile(0.95, 10.0), 2)
    (1.96, 2.23)
    """
    upper = 0.5 + 0.5 * confidence_level
    return float(norm.ppf(upper) if residual_freedom is None else t.ppf(upper, residual_freedom))
