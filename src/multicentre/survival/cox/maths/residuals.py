"""Residuals of a Cox model, from means over the risk sets of all sites: sums for robust errors and for a test."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
