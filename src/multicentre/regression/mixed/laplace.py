"""Laplace's approximation of the likelihood of one site, in a generalised linear model with random effects.

Effects of the site are ``b = L u`` with standard normal u, and the linear predictor is ``X beta + Z L u``. With the
mode u of the joint likelihood, ``H = I + L' Z' W Z L`` and the weights W of the outcomes::

    log-likelihood = log p(y | u) - u'u / 2 - log|H| / 2

Links are canonical, so that W is also the observed information.

References
----------
D. Bates et al. (2015), Fitting linear mixed-effects models using lme4, Journal of Statistical Software 67(1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.regression.maths import LINKS, Family, patient_terms, unit_deviances
from multicentre.regression.mixed.maths import lower, triangle

Floats = NDArray[np.float64]
# Newton steps to a mode, halvings included; the joint likelihood is concave, and ten suffice as a rule.
MAX_STEPS = 100
# Largest entry of the gradient at a mode, per patient.
FLAT = 1e-12
# Relative step of central differences of the gradient: near the cube root of the rounding error of a float64.
DIFFERENCE = 1e-5


@dataclass(frozen=True)
class SiteData:
    """Rows of one site.

    Parameters
    ----------
    family : {"binomial", "poisson"}
    rows : array of shape (n, p)
    effects : array of shape (n, q)
        Columns whose effects differ between sites.
    outcome, offset : arrays of shape (n,)
    """

    family: Family
    rows: Floats
    effects: Floats
    outcome: Floats
    offset: Floats


@dataclass(frozen=True)
class Mode:
    """Mode of the effects at some parameters.

    Parameters
    ----------
    effects : array of shape (q,)
        Standardised effects u.
    predictor : array of shape (n,)
    curvature : array of shape (q, q)
        H.
    joint : float
        Logarithm of the joint likelihood at the mode.
    """

    effects: Floats
    predictor: Floats
    curvature: Floats
    joint: float


def find_mode(site: SiteData, coefficients: Floats, factor: Floats, start: Floats) -> Mode:
    """Maximise the joint likelihood of outcomes and standardised effects over the effects.

    Examples
    --------
    >>> site = SiteData("poisson", np.ones((2, 1)), np.ones((2, 1)), np.array([1.0, 3.0]), np.zeros(2))
    >>> find_mode(site, np.zeros(1), np.zeros((1, 1)), np.ones(1)).effects.tolist()
    [0.0]
    """
    columns, fixed = site.effects @ factor, site.rows @ coefficients + site.offset
    link, size = LINKS[site.family][0], len(factor)

    def joint(effects: Floats) -> tuple[Floats, float]:
        predictor = fixed + columns @ effects
        deviance = float(unit_deviances(site.family, link, site.outcome, predictor).sum())
        return predictor, -0.5 * deviance - 0.5 * float(effects @ effects)

    effects, (predictor, value) = start, joint(start)
    curvature = np.eye(size)
    for _ in range(MAX_STEPS):
        terms = patient_terms(site.family, link, site.outcome, predictor)
        gradient = columns.T @ terms.score - effects
        curvature = np.eye(size) + columns.T @ (columns * terms.weight[:, None])
        if float(np.abs(gradient).max(initial=0.0)) <= FLAT * len(predictor):
            break
        step, share = np.linalg.solve(curvature, gradient), 1.0
        while True:
            proposal = effects + share * step
            proposed = joint(proposal)
            # Rises below rounding error are not compared.
            if proposed[1] >= value - 1e-13 * abs(value) or share < 1e-6:
                break
            share /= 2.0
        effects, (predictor, value) = proposal, proposed
    return Mode(effects, predictor, curvature, value)


def log_likelihood(mode: Mode) -> float:
    """Return Laplace's approximation of the log-likelihood."""
    return mode.joint - 0.5 * float(np.linalg.slogdet(mode.curvature)[1])


def gradient(site: SiteData, mode: Mode, factor: Floats) -> Floats:
    """Return the derivatives of the log-likelihood by the coefficients, then by the entries of L, shape (p + r,).

    The mode moves with the parameters, and with it the weights in H.
    """
    columns, effects, rows = site.effects @ factor, mode.effects, site.rows
    terms = patient_terms(site.family, LINKS[site.family][0], site.outcome, mode.predictor)
    # Third derivative of the log-likelihood by the linear predictor, with the sign reversed.
    third = terms.weight * (1.0 - 2.0 * terms.mean) if site.family == "binomial" else terms.weight
    inverse = np.linalg.inv(mode.curvature)
    pull = third * np.einsum("ij,jk,ik->i", columns, inverse, columns)
    moved = inverse @ (columns.T @ pull)
    weighted = columns.T @ (site.effects * terms.weight[:, None])
    by_coefficients = rows.T @ (terms.score - 0.5 * pull + 0.5 * terms.weight * (columns @ moved))
    score, pulled = site.effects.T @ terms.score, site.effects.T @ pull
    by_factor = np.outer(score - 0.5 * pulled + 0.5 * weighted.T @ moved, effects)
    by_factor -= 0.5 * np.outer(score, moved) + weighted.T @ inverse
    return np.concatenate([by_coefficients, by_factor[triangle(len(factor))]])


def expand(site: SiteData, parameters: Floats) -> tuple[float, Floats, Floats]:
    """Return the log-likelihood, its gradient, and minus its second derivatives by differences of the gradient.

    Parameters
    ----------
    site : SiteData
    parameters : array of shape (p + r,)
        Coefficients, then the entries of L.
    """
    p = site.rows.shape[1]
    mode = find_mode(site, parameters[:p], lower(parameters[p:]), np.zeros(site.effects.shape[1]))

    def slope(at: Floats) -> Floats:
        factor = lower(at[p:])
        return gradient(site, find_mode(site, at[:p], factor, mode.effects), factor)

    second = np.zeros((len(parameters), len(parameters)))
    for place, value in enumerate(parameters.tolist()):
        move = np.zeros(len(parameters))
        move[place] = DIFFERENCE * (1.0 + abs(value))
        second[place] = (slope(parameters + move) - slope(parameters - move)) / (2.0 * move[place])
    information = -0.5 * (second + second.T)
    return log_likelihood(mode), gradient(site, mode, lower(parameters[p:])), information
