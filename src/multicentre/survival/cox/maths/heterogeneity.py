"""Estimates of several sites, and how far they differ."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Combined:
    """Sites' estimates of several coefficients put together; each array has shape (d,).

    Parameters
    ----------
    fixed, fixed_error : array
        Mean weighted by inverse variance, and its standard error.
    random, random_error : array
        The same where sites differ beyond chance.
    q, q_p_value : array
        Cochran's Q, and its p-value by chi-square with one less than the number of sites.
    i_squared : array
        Share of the variation that is beyond chance, from 0 to 1.
    tau_squared : array
        Variance between sites.
    n_sites : array
        Sites with an estimate.
    """

    fixed: Floats
    fixed_error: Floats
    random: Floats
    random_error: Floats
    q: Floats
    q_p_value: Floats
    i_squared: Floats
    tau_squared: Floats
    n_sites: Floats


def combine(estimates: Floats, errors: Floats) -> Combined:
    """Return the sites' estimates put together, by DerSimonian and Laird's method.

    Parameters
    ----------
    estimates, errors : arrays of shape (s, d)
        Not a number where a site gives none.

    References
    ----------
    R. DerSimonian, N. Laird (1986), Meta-analysis in clinical trials, Controlled Clinical Trials 7, 177-188.
    J. P. T. Higgins, S. G. Thompson (2002), Quantifying heterogeneity in a meta-analysis, Statistics in Medicine 21,
    1539-1558.

    Examples
    --------
    >>> found = combine(np.array([[0.0], [4.0]]), np.ones((2, 1)))
    >>> found.fixed.tolist(), found.q.tolist(), found.i_squared.tolist(), found.tau_squared.tolist()
    ([2.0], [8.0], [0.875], [7.0])
    """
    known = np.isfinite(estimates) & (errors > 0)
    own = np.where(known, estimates, 0.0)
    variances = np.where(known, errors, 1.0) ** 2
    n_sites = known.sum(axis=0).astype(np.float64)
    weights = known / variances
    fixed, fixed_error = _weighted_mean(own, weights)
    q = np.where(n_sites > 0, (weights * (own - fixed) ** 2).sum(axis=0), np.nan)
    freedom = n_sites - 1.0
    total = weights.sum(axis=0)
    spare = np.where(freedom > 0, total - _ratio((weights**2).sum(axis=0), total), np.nan)
    tau_squared = np.where(freedom > 0, np.maximum(_ratio(q - freedom, spare), 0.0), 0.0)
    random, random_error = _weighted_mean(own, known / (variances + tau_squared))
    p_value = np.where(freedom > 0, chi2.sf(q, np.maximum(freedom, 1.0)), np.nan)
    i_squared = np.where((q > 0) & (freedom > 0), np.maximum(_ratio(q - freedom, q), 0.0), 0.0)
    return Combined(fixed, fixed_error, random, random_error, q, p_value, i_squared, tau_squared, n_sites)


def _weighted_mean(values: Floats, weights: Floats) -> tuple[Floats, Floats]:
    total = weights.sum(axis=0)
    return _ratio((weights * values).sum(axis=0), total), np.sqrt(_ratio(np.ones_like(total), total))


def _ratio(above: Floats, below: Floats) -> Floats:
    return np.asarray(np.divide(above, below, out=np.full(np.shape(above), np.nan), where=below > 0), dtype=np.float64)
