"""Signs that covariates separate the outcomes, so that the likelihood rises without bound as coefficients grow.

Where covariates separate outcomes, predicted means go to the end of their range, and with them the information on the
coefficients goes to 0. Dependence between covariates lowers the information at the start and at the end alike.
"""

from __future__ import annotations

from typing import cast

import numpy as np
from numpy.typing import NDArray

from multicentre.regression import messages
from multicentre.regression.maths import LINKS, Family, Link, predictor_of, slopes, variance

Floats = NDArray[np.float64]
# A coefficient that moves without a gain counts as diverging if its information fell by more than the first. One that
# converged counts as such if the information is below a tenth of that of one patient (the second, times patients): one
# patient or event against the others leaves about that of one.
FALLEN, FALLEN_PER_PATIENT = 100.0, 10.0
# Smallest eigenvalue of correlations that is not rounding.
RESOLVED = 1e-15


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


def fallen_information(null: Floats, reached: Floats) -> Floats:
    """Return by which factor the information on each coefficient fell, given the others, shape (p,).

    Parameters
    ----------
    null, reached : arrays of shape (p, p)
        Information without covariates, and at some coefficients.

    Examples
    --------
    >>> fallen_information(np.diag([25.0, 50.0]), np.diag([5.0, 0.0])).round(9).tolist()
    [5.0, inf]
    """
    start, end = _partial(null), _partial(reached)
    return np.divide(start, end, out=np.full_like(start, np.inf), where=end > 0)


def _partial(information: Floats) -> Floats:
    """Return the information on each coefficient given the others; 0 if there is none."""
    sizes = np.diagonal(information)
    scale = np.sqrt(np.where(sizes > 0, sizes, 1.0))
    values, vectors = np.linalg.eigh(information / np.outer(scale, scale))
    inverse = np.square(vectors) @ (1.0 / np.maximum(values, RESOLVED))
    return np.asarray(np.where(sizes > 0, sizes / inverse, 0.0), dtype=np.float64)


def has_bounded_information(family: Family) -> bool:
    """Return whether the information does not depend on the coefficients, so that nothing can be separated.

    Examples
    --------
    >>> has_bounded_information("gamma"), has_bounded_information("binomial")
    (True, False)
    """
    return LINKS[family][0] == "identity" or family == "gamma"


def has_fallen(
    centre: messages.Centre,
    totals: messages.Totals,
    products: Floats,
    information: Floats,
    least: float,
    *,
    about_means: bool,
) -> NDArray[np.bool_]:
    """Flag the coefficients on which the information fell by more than a factor, shape (p,).

    The intercept, the first coefficient, is flagged with any other.

    Parameters
    ----------
    centre : Centre
        Model of the fit.
    totals : Totals
    products : array of shape (d, d)
        Products of standardised covariates.
    information : array of shape (p, p)
    least : float
    about_means : bool
        False for a model without intercept.
    """
    family, link, d = cast(Family, centre.family), cast(Link, centre.link), len(products)
    if has_bounded_information(family) or not d:
        return np.zeros(d + 1, dtype=np.bool_)
    weight = null_weight(family, link, totals.outcome / totals.weight)
    null = np.zeros((d + 1, d + 1))
    null[0, 0], null[1:, 1:] = weight * totals.weight, weight * products
    first = 0 if about_means and not centre.site_intercepts else 1
    fallen = fallen_information(null[first:, first:], information[first:, first:])[1 - first :] > least
    return np.append(fallen.any(), fallen)
