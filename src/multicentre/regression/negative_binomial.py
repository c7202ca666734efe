"""Negative binomial regression (NB2, log link): likelihood and derivatives by coefficients and overdispersion.

The variance of an outcome with mean mu is ``mu + alpha mu^2``. The overdispersion alpha is 1 / theta of other programs.
At alpha = 0 the law is that of Poisson, and all functions have their limits there. Functions of arrays.

The logarithm of the ratio of gamma functions is a sum over whole numbers, ``sum over j < y of log(1 + alpha j)``, which
loses no digits where alpha is small.

References
----------
J. F. Lawless (1987), Negative binomial and mixed Poisson regression, Canadian Journal of Statistics 15, 209-225.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, xlogy

Floats = NDArray[np.float64]
# Largest exponent of a mean, as in maths.py.
MAX_PREDICTOR = 300.0
# Largest count: the sums over whole numbers below it take 100 MB.
MAX_COUNT = 2**22
# Below this product of overdispersion and mean, functions are computed by series of 8 terms: 0.02**8 is 3e-14, and the
# closed forms lose at most 5 digits above it.
SMALL, N_TERMS = 0.02, 8


@dataclass(frozen=True)
class CountDerivatives:
    """Log-likelihood of counts and its derivatives; the overdispersion in units of `unit`.

    Parameters
    ----------
    log_likelihood, deviance, pearson : float
    gradient : array of shape (p,)
    information, observed : array of shape (p, p)
        Expected and observed second derivatives by the coefficients, with the sign reversed.
    slope, curvature : float
        First derivative by the overdispersion, and the second with the sign reversed.
    mixed : array of shape (p,)
        Observed second derivatives by a coefficient and the overdispersion, with the sign reversed.
    """

    log_likelihood: float
    deviance: float
    pearson: float
    gradient: Floats
    information: Floats
    observed: Floats
    slope: float
    curvature: float
    mixed: Floats


def _log_ratio(values: Floats) -> Floats:
    """Return log(1 + z) / z, 1 at 0."""
    safe = np.where(values > 0, values, 1.0)
    return np.where(values > 0, np.log1p(safe) / safe, 1.0)


def _excess(values: Floats) -> tuple[Floats, Floats]:
    """Return ``(log(1 + z) - z / (1 + z)) / z^2`` and its derivative."""
    orders = np.arange(N_TERMS, dtype=np.float64)
    terms = (-1.0) ** orders * (orders + 1) / (orders + 2)
    z = np.minimum(values, SMALL)[:, None]
    series = (terms * z**orders).sum(axis=1)
    slope = (terms[1:] * orders[1:] * z ** orders[:-1]).sum(axis=1)
    large = np.maximum(values, SMALL)
    closed = (np.log1p(large) - large / (1.0 + large)) / large**2
    closed_slope = 1.0 / (large * (1.0 + large) ** 2) - 2.0 * closed / large
    is_small = values < SMALL
    return np.where(is_small, series, closed), np.where(is_small, slope, closed_slope)


def _sums_below(outcome: Floats, alpha: float) -> tuple[Floats, Floats, Floats]:
    """Return sums over j < y of log(1 + alpha j), j / (1 + alpha j) and (j / (1 + alpha j))^2, shape (n,) each."""
    numbers = np.arange(int(outcome.max(initial=0.0)), dtype=np.float64)
    share, place = numbers / (1.0 + alpha * numbers), outcome.astype(np.int64)
    terms = (np.log1p(alpha * numbers), share, share**2)
    first, second, third = (np.concatenate([[0.0], np.cumsum(each)])[place] for each in terms)
    return first, second, third


def log_likelihoods(outcome: Floats, predictor: Floats, alpha: float) -> Floats:
    """Return the log-likelihood of each count, shape (n,).

    Examples
    --------
    >>> from scipy.stats import nbinom
    >>> found = log_likelihoods(np.array([3.0]), np.log([2.0]), 0.5)
    >>> bool(np.isclose(found[0], nbinom.logpmf(3, 2.0, 0.5)))
    True
    """
    mean = np.exp(np.minimum(predictor, MAX_PREDICTOR))
    logs = _sums_below(outcome, alpha)[0]
    z = alpha * mean
    terms = logs + outcome * predictor - outcome * np.log1p(z) - mean * _log_ratio(z) - gammaln(outcome + 1.0)
    return np.asarray(terms, dtype=np.float64)


def count_deviances(outcome: Floats, predictor: Floats, alpha: float) -> Floats:
    """Return each patient's deviance, shape (n,); at `alpha` 0 that of Poisson.

    Examples
    --------
    >>> count_deviances(np.array([2.0, 2.0]), np.log([2.0, 1.0]), 0.0).round(4).tolist()
    [0.0, 0.7726]
    """
    mean = np.exp(np.minimum(predictor, MAX_PREDICTOR))
    logs = outcome * (np.log1p(alpha * outcome) - np.log1p(alpha * mean))
    rest = outcome * _log_ratio(alpha * outcome) - mean * _log_ratio(alpha * mean)
    return np.asarray(2.0 * (xlogy(outcome, outcome / mean) - logs - rest), dtype=np.float64)


def derive_counts(
    rows: Floats, outcome: Floats, predictor: Floats, weights: Floats, alpha: float, unit: float
) -> CountDerivatives:
    """Return log-likelihood and derivatives as sums over patients.

    Parameters
    ----------
    rows : array of shape (n, p)
    outcome, predictor, weights : arrays of shape (n,)
        Outcomes are whole numbers.
    alpha : float
        Overdispersion, at least 0.
    unit : float
        Derivatives by the overdispersion are those by ``alpha / unit``.

    Examples
    --------
    >>> found = derive_counts(np.ones((2, 1)), np.array([0.0, 4.0]), np.log([2.0, 2.0]), np.ones(2), 0.0, 1.0)
    >>> found.gradient.tolist(), found.slope
    ([0.0], 2.0)
    """
    mean = np.exp(np.minimum(predictor, MAX_PREDICTOR))
    z = alpha * mean
    _, below, below_squared = _sums_below(outcome, alpha)
    excess, excess_slope = _excess(z)
    residual, share = outcome - mean, 1.0 / (1.0 + z)
    slope = below + mean**2 * excess - outcome * mean * share
    bend = -below_squared + mean**3 * excess_slope + outcome * (mean * share) ** 2
    expected, observed = mean * share, mean * (1.0 + alpha * outcome) * share**2
    return CountDerivatives(
        float(weights @ log_likelihoods(outcome, predictor, alpha)),
        float(weights @ count_deviances(outcome, predictor, alpha)),
        float(weights @ (residual**2 * share / mean)),
        rows.T @ (weights * residual * share),
        rows.T @ (rows * (weights * expected)[:, None]),
        rows.T @ (rows * (weights * observed)[:, None]),
        unit * float(weights @ slope),
        -(unit**2) * float(weights @ bend),
        unit * (rows.T @ (weights * residual * mean * share**2)),
    )
