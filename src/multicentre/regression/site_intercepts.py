"""Intercepts of sites as fixed effects: each site maximises its likelihood over its intercept.

The derivatives of the other coefficients at that maximum are sums over patients of covariates minus their weighted mean
within the site. Their sums over sites are the derivatives of the profile likelihood, so rounds with them end at the
coefficients of a model with an indicator of each site.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.regression.maths import Family, Terms

Floats = NDArray[np.float64]
# Largest distance of a site's intercept from that of all sites on the scale of the linear predictor, as the largest
# coefficient of a standardised covariate (STEEPEST in site.py).
FARTHEST = 1e3
# Newton steps of one number converge in about six; halvings included this is ample.
MAX_STEPS = 200
# Change of an intercept below which it is final: squared by the last step it is below rounding.
FINAL = 1e-9
# Information on an intercept below which it has no error: predicted probabilities are within 1e-12 of 0 and 1.
FLAT = 1e-12
# Scores of the intercept that differ by less, relative to the sum of their sizes, differ by rounding.
ROUNDING = 1e-14


@dataclass(frozen=True)
class Centred:
    """Covariates of a site after its intercept is maximised out.

    Parameters
    ----------
    rows : array of shape (n, p)
        Covariates minus `mean`.
    mean : array of shape (p,)
        Mean of the covariates, weighted by each patient's term in the information.
    information : float
        Information on the intercept.
    """

    rows: Floats
    mean: Floats
    information: float


@dataclass(frozen=True)
class OwnIntercept:
    """Intercept of a site, and its covariates about their weighted mean."""

    intercept: float
    centred: Centred


def is_one_sided(family: Family, outcome: Floats, weights: Floats) -> bool:
    """Return whether no finite intercept maximises the likelihood: all outcomes are of one class, or 0.

    Examples
    --------
    >>> is_one_sided("binomial", np.ones(3), np.ones(3)), is_one_sided("poisson", np.array([0.0, 1.0]), np.ones(2))
    (True, False)
    """
    counted = outcome[weights > 0]
    if family == "gaussian":
        return False
    return not counted.any() or (family == "binomial" and bool((counted == counted[0]).all()))


def maximise_intercept(terms_at: Callable[[Floats], Terms], predictor: Floats, weights: Floats) -> float:
    """Return the number that, added to linear predictors, maximises the likelihood; at most 1000 away from 0.

    Parameters
    ----------
    terms_at : callable
        Returns the terms of each patient for linear predictors, shape (n,).
    predictor, weights : arrays of shape (n,)

    Examples
    --------
    >>> from multicentre.regression.maths import patient_terms
    >>> outcome = np.array([0.0, 1.0, 1.0, 1.0])
    >>> logit = maximise_intercept(lambda at: patient_terms("binomial", "logit", outcome, at), np.zeros(4), np.ones(4))
    >>> round(logit, 9) == round(float(np.log(3.0)), 9)
    True
    """
    lower, upper, intercept = -FARTHEST, FARTHEST, 0.0
    for _ in range(MAX_STEPS):
        terms = terms_at(predictor + intercept)
        scores = weights * terms.score
        score, information = float(scores.sum()), float(weights @ terms.weight)
        if abs(score) <= ROUNDING * float(np.abs(scores).sum()):
            break
        # The score falls as the intercept grows, so its sign bounds the maximum.
        lower, upper = (intercept, upper) if score > 0 else (lower, intercept)
        step = score / information if information > 0 else np.inf
        proposal = intercept + step if lower < intercept + step < upper else 0.5 * (lower + upper)
        change, intercept = abs(proposal - intercept), proposal
        if change < FINAL * (1.0 + abs(intercept)):
            break
    return intercept


def centre_rows(rows: Floats, weights: Floats) -> Centred:
    """Subtract the mean of the rows, weighted by each patient's term in the information.

    Examples
    --------
    >>> centred = centre_rows(np.array([[1.0, 0.0], [1.0, 4.0]]), np.array([3.0, 1.0]))
    >>> centred.rows.tolist(), centred.mean.tolist(), centred.information
    ([[0.0, -1.0], [0.0, 3.0]], [1.0, 1.0], 4.0)
    """
    total = float(weights.sum())
    mean = weights @ rows / total if total > 0 else np.zeros(rows.shape[1])
    return Centred(rows - mean, mean, total)
