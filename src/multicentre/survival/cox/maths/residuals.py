"""Residuals of a Cox model, from means over the risk sets of all sites: sums for robust errors and for a test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from multicentre.survival.kernels.cox import Terms
from multicentre.survival.kernels.risk_sets import CHUNK, RiskSets, Sums

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RiskMeans:
    """What residuals need of the risk sets of all sites.

    Parameters
    ----------
    first, first_tied : arrays of shape (K,)
        What a time adds to the hazard of those at risk, and how much less for those with the event then.
    mean : array of shape (K, d)
        Mean of the columns over those at risk, weighted by hazard; 0 where there is no event.
    spent, spent_tied : arrays of shape (K, d)
        Sums over a time's terms of the mean times what the term adds, for the one and the other.
    """

    first: Floats
    first_tied: Floats
    mean: Floats
    spent: Floats
    spent_tied: Floats


def risk_means(events: Floats, sums: Sums, terms: Terms) -> RiskMeans:
    """Return the means over risk sets, averaged over the terms of each time where events are tied.

    Parameters
    ----------
    events : array of shape (K,)
        Number of events.
    sums : Sums
    terms : Terms

    Examples
    --------
    >>> from multicentre.survival.kernels.cox import sum_terms
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([1, 1]), np.array([True, False]), 1)
    >>> terms = sum_terms(patients.tables(np.ones(2), "breslow"))
    >>> risk_means(patients.events, patients.sums(np.ones(2), "breslow"), terms).mean.tolist()
    [[2.0]]
    """
    risk, tied = sums.risk, sums.tied
    total = terms.first[:, None] * risk - terms.first_tied[:, None] * tied
    mean = np.divide(total, events[:, None], out=np.zeros_like(total), where=events[:, None] > 0.5)
    return RiskMeans(
        terms.first,
        terms.first_tied,
        mean,
        terms.second[:, None] * risk - terms.second_tied[:, None] * tied,
        terms.second_tied[:, None] * risk - terms.second_both[:, None] * tied,
    )


def score_products(patients: RiskSets, theta: Floats, means: RiskMeans) -> Floats:
    """Return the sum over patients of their score residuals' outer products, shape (d, d).

    References
    ----------
    D. Y. Lin, L. J. Wei (1989), The robust inference for the Cox proportional hazards model, Journal of the American
    Statistical Association 84, 1074-1078. With Efron's ties as in T. M. Therneau, P. M. Grambsch (2000), Modeling
    survival data, section 4.2.

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([1, 1]), np.array([True, False]), 1)
    >>> means = RiskMeans(np.array([0.5]), np.zeros(1), np.array([[2.0]]), np.array([[1.0]]), np.zeros((1, 1)))
    >>> score_products(patients, np.ones(2), means).tolist()
    [[0.5]]
    """
    total = np.zeros((patients.rows.shape[1], patients.rows.shape[1]))
    for start in range(0, len(patients.rows), CHUNK):
        found = score_residuals(patients, theta, means, slice(start, start + CHUNK))
        total += found.T @ found
    return total


def score_sizes(patients: RiskSets, theta: Floats, means: RiskMeans) -> Floats:
    """Return the length of every patient's score residuals, shape (n,): what it adds to their products, in effect.

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([1, 1]), np.array([True, False]), 1)
    >>> means = RiskMeans(np.array([0.5]), np.zeros(1), np.array([[2.0]]), np.array([[1.0]]), np.zeros((1, 1)))
    >>> score_sizes(patients, np.ones(2), means).tolist()
    [0.5, 0.5]
    """
    chunks = [slice(start, start + CHUNK) for start in range(0, len(patients.rows), CHUNK)]
    sizes = [np.linalg.norm(score_residuals(patients, theta, means, chunk), axis=1) for chunk in chunks]
    return np.concatenate([np.zeros(0), *sizes])


def score_residuals(patients: RiskSets, theta: Floats, means: RiskMeans, chosen: slice) -> Floats:
    """Return the score residuals of some patients, shape (m, d); over all patients they sum to the gradient.

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([1, 1]), np.array([True, False]), 1)
    >>> means = RiskMeans(np.array([0.5]), np.zeros(1), np.array([[2.0]]), np.array([[1.0]]), np.zeros((1, 1)))
    >>> score_residuals(patients, np.ones(2), means, slice(None)).tolist()
    [[-0.5], [-0.5]]
    """
    rows, reached, happened = patients.rows[chosen], patients.reached[chosen], patients.happened[chosen]
    spent = np.concatenate([np.zeros((1, rows.shape[1])), np.cumsum(means.spent, axis=0)])[reached]
    hazard = np.concatenate([[0.0], np.cumsum(means.first)])[reached]
    place = reached[happened] - 1
    hazard[happened] -= means.first_tied[place]
    spent[happened] -= means.spent_tied[place]
    found = -theta[chosen, None] * (rows * hazard[:, None] - spent)
    found[happened] += rows[happened] - means.mean[place]
    return np.asarray(found, dtype=np.float64)


def schoenfeld_sums(patients: RiskSets, mean: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return sums over the events of Schoenfeld's residuals, plain and times a value of each patient's time, (d,) each.

    Parameters
    ----------
    patients : RiskSets
    mean : array of shape (K, d)
        Mean over each risk set.
    values : array of shape (n,)

    References
    ----------
    D. Schoenfeld (1982), Partial residuals for the proportional hazards regression model, Biometrika 69, 239-241.

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([1, 1]), np.array([True, False]), 1)
    >>> [each.tolist() for each in schoenfeld_sums(patients, np.array([[2.0]]), np.array([0.5, 0.0]))]
    [[-1.0], [-0.5]]
    """
    happened = patients.happened
    residuals = patients.rows[happened] - mean[patients.reached[happened] - 1]
    return residuals.sum(axis=0), values[happened] @ residuals


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
