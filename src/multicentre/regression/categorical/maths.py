"""Multinomial and ordinal regression: probabilities, derivatives, starts and tests.

Functions of arrays. K classes are numbered from 0. Derivatives are sums over patients, so the sums of several sites are
those of the pooled patients.

- Multinomial (baseline-category logit): ``log(P(k) / P(0)) = a_k + x'b_k`` for k from 1 to K - 1. The parameters are
  one row ``(a_k, b_k)`` per class, in the order of the classes.
- Ordinal (cumulative link): ``P(y <= k) = F(a_k - x'b)`` for k from 0 to K - 2 with increasing thresholds ``a_k``. The
  parameters are the thresholds, then the d slopes.

References
----------
A. Agresti (2010), Analysis of ordinal categorical data, Wiley, chapters 3 and 5.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logsumexp, ndtr, ndtri
from scipy.stats import norm

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
OrdinalLink = Literal["logit", "probit"]
# Predicted probabilities are at least this, so that their logarithms and reciprocals are finite.
SMALLEST = 1e-300


@dataclass(frozen=True)
class Derivatives:
    """Log-likelihood, its derivatives, and what of them each patient determines.

    Parameters
    ----------
    log_likelihood : float
    gradient : array of shape (q,)
    information : array of shape (q, q)
        Second derivatives with the sign reversed.
    weights : array of shape (n, K - 1)
        Size of each patient's terms for each class or threshold.
    """

    log_likelihood: float
    gradient: Floats
    information: Floats
    weights: Floats


def multinomial_probabilities(predictors: Floats) -> Floats:
    """Return the probability of each class, shape (n, K), from linear predictors of shape (n, K - 1).

    Examples
    --------
    >>> multinomial_probabilities(np.zeros((1, 1))).tolist()
    [[0.5, 0.5]]
    """
    every = np.column_stack([np.zeros(len(predictors)), predictors])
    return np.asarray(np.exp(every - logsumexp(every, axis=1, keepdims=True)), dtype=np.float64)


def with_ones(rows: Floats) -> Floats:
    """Return rows with a column of ones before them, shape (n, d + 1)."""
    return np.column_stack([np.ones(len(rows)), rows])


def _multinomial_residuals(rows: Floats, classes: Ints, parameters: Floats) -> tuple[Floats, Floats]:
    """Return the probability of each class, shape (n, K), and residuals of all but the first, shape (n, K - 1)."""
    p = rows.shape[1]
    k = len(parameters) // p
    shares = multinomial_probabilities(rows @ parameters.reshape(k, p).T)
    return shares, (classes[:, None] == np.arange(1, k + 1)) - shares[:, 1:]


def derive_multinomial(rows: Floats, classes: Ints, parameters: Floats, weights: Floats | float = 1.0) -> Derivatives:
    """Return log-likelihood and derivatives of a multinomial model.

    Parameters
    ----------
    rows : array of shape (n, p)
        With a column of ones.
    classes : array of int, shape (n,)
    parameters : array of shape ((K - 1) * p,)
    weights : array of shape (n,) or float, default 1.0

    Examples
    --------
    >>> found = derive_multinomial(np.ones((2, 1)), np.array([0, 1]), np.zeros(1))
    >>> round(found.log_likelihood, 4), found.gradient.tolist(), found.information.tolist()
    (-1.3863, [0.0], [[0.5]])
    """
    shares, residuals = _multinomial_residuals(rows, classes, parameters)
    (k, p), weighted = (residuals.shape[1], rows.shape[1]), rows * np.broadcast_to(weights, len(rows))[:, None]
    chosen = np.maximum(np.take_along_axis(shares, classes[:, None], axis=1)[:, 0], SMALLEST)
    information = np.zeros((k, p, k, p))
    for first in range(k):
        for second in range(first, k):
            sizes = shares[:, first + 1] * ((first == second) - shares[:, second + 1])
            information[first, :, second] = information[second, :, first] = rows.T @ (weighted * sizes[:, None])
    return Derivatives(
        float(np.sum(weights * np.log(chosen))),
        (residuals.T @ weighted).ravel(),
        information.reshape(k * p, k * p),
        np.reshape(weights, (-1, 1)) * shares[:, 1:] * (1.0 - shares[:, 1:]),
    )


def multinomial_scores(rows: Floats, classes: Ints, parameters: Floats) -> Floats:
    """Return the first derivatives of each patient, shape (n, (K - 1) * p); parameters as in `derive_multinomial`.

    Examples
    --------
    >>> multinomial_scores(np.ones((2, 1)), np.array([0, 1]), np.zeros(1)).tolist()
    [[-0.5], [0.5]]
    """
    residuals = _multinomial_residuals(rows, classes, parameters)[1]
    return np.asarray((residuals[:, :, None] * rows[:, None, :]).reshape(len(rows), -1), dtype=np.float64)


def distribution(link: OrdinalLink, values: Floats) -> tuple[Floats, Floats, Floats]:
    """Return distribution function, density and slope of the density of the latent error; arguments may be infinite.

    Examples
    --------
    >>> [float(each[0]) for each in distribution("logit", np.array([0.0]))]
    [0.5, 0.25, 0.0]
    """
    if link == "logit":
        share = expit(values)
        density = share * expit(-values)
        return share, density, density * (1.0 - 2.0 * share)
    density = norm.pdf(values)
    finite = np.where(np.isfinite(values), values, 0.0)
    return np.asarray(ndtr(values), dtype=np.float64), density, -finite * density


def latent_quantile(link: OrdinalLink, shares: Floats) -> Floats:
    """Return the quantiles of the latent error."""
    values = np.log(shares) - np.log1p(-shares) if link == "logit" else ndtri(shares)
    return np.asarray(values, dtype=np.float64)


def ordinal_probabilities(link: OrdinalLink, thresholds: Floats, predictor: Floats) -> Floats:
    """Return the probability of each class, shape (n, K).

    Examples
    --------
    >>> ordinal_probabilities("logit", np.array([0.0]), np.zeros(1)).tolist()
    [[0.5, 0.5]]
    """
    ends = np.concatenate([[-np.inf], thresholds, [np.inf]]) - predictor[:, None]
    return _between(link, ends[:, :-1], ends[:, 1:])


def _between(link: OrdinalLink, lower: Floats, upper: Floats) -> Floats:
    """Return the probability between two ends; in the upper tail by the complement, which loses no digits."""
    flip = lower + np.where(np.isfinite(upper), upper, 0.0) > 0
    low, high = np.where(flip, -upper, lower), np.where(flip, -lower, upper)
    share = distribution(link, high)[0] - distribution(link, low)[0]
    return np.maximum(share, SMALLEST)


@dataclass(frozen=True)
class Ends:
    """Ends of the class of each patient on the latent scale, and the derivatives of their log-probability there.

    Parameters
    ----------
    predictor, share : arrays of shape (n,)
        Linear predictors, and probabilities of the classes that the patients have.
    above, below : arrays of shape (n,)
        First derivatives by the upper and the lower end.
    upper_slope, lower_slope : arrays of shape (n,)
        Slopes of the density at these ends.
    is_upper, is_lower : arrays of shape (n, K - 1)
        1 for the thresholds that are these ends.
    """

    predictor: Floats
    share: Floats
    above: Floats
    below: Floats
    upper_slope: Floats
    lower_slope: Floats
    is_upper: Floats
    is_lower: Floats

    @classmethod
    def of(cls, link: OrdinalLink, thresholds: Floats, predictor: Floats, classes: Ints) -> Ends:
        """Return the ends of the classes at some thresholds and linear predictors."""
        k = len(thresholds)
        ends = np.concatenate([[-np.inf], thresholds, [np.inf]])
        lower, upper = ends[classes] - predictor, ends[classes + 1] - predictor
        share = _between(link, lower, upper)
        (_, low, low_slope), (_, high, high_slope) = distribution(link, lower), distribution(link, upper)
        is_upper = (classes[:, None] == np.arange(k)).astype(np.float64)
        is_lower = (classes[:, None] == np.arange(1, k + 1)).astype(np.float64)
        return cls(predictor, share, high / share, -low / share, high_slope, low_slope, is_upper, is_lower)

    @property
    def first(self) -> Floats:
        """First derivatives by the thresholds and the linear predictor, shape (n, K)."""
        at_thresholds = self.is_upper * self.above[:, None] + self.is_lower * self.below[:, None]
        return np.column_stack([at_thresholds, -(self.above + self.below)])


def derive_ordinal(
    link: OrdinalLink,
    rows: Floats,
    classes: Ints,
    parameters: Floats,
    weights: Floats | float = 1.0,
    offset: Floats | float = 0.0,
) -> Derivatives:
    """Return log-likelihood and derivatives of an ordinal model; the information is the observed one.

    Parameters
    ----------
    link : {"logit", "probit"}
    rows : array of shape (n, d)
        Without a column of ones.
    classes : array of int, shape (n,)
    parameters : array of shape (K - 1 + d,)
    weights, offset : array of shape (n,) or float

    Examples
    --------
    >>> found = derive_ordinal("logit", np.zeros((2, 0)), np.array([0, 1]), np.zeros(1))
    >>> found.gradient.tolist(), found.information.tolist()
    ([0.0], [[0.5]])
    """
    thresholds, slopes = np.split(parameters, [len(parameters) - rows.shape[1]])
    ends = Ends.of(link, thresholds, rows @ slopes + offset, classes)
    is_upper, is_lower, above, below = ends.is_upper, ends.is_lower, weights * ends.above, weights * ends.below
    # Second derivatives of -log(share) by the upper end, by the lower end, and by both.
    upper_twice = above * ends.above - weights * ends.upper_slope / ends.share
    lower_twice = below * ends.below + weights * ends.lower_slope / ends.share
    both = above * ends.below
    mixed = is_upper.T @ (is_lower * both[:, None])
    at_thresholds = np.diag(is_upper.T @ upper_twice + is_lower.T @ lower_twice) + mixed + mixed.T
    on_upper, on_lower = upper_twice + both, lower_twice + both
    cross = -(is_upper * on_upper[:, None] + is_lower * on_lower[:, None]).T @ rows
    at_slopes = rows.T @ (rows * (on_upper + on_lower)[:, None])
    return Derivatives(
        float(np.sum(weights * np.log(ends.share))),
        np.concatenate([is_upper.T @ above + is_lower.T @ below, -rows.T @ (above + below)]),
        np.block([[at_thresholds, cross], [cross.T, at_slopes]]),
        np.reshape(weights, (-1, 1)) * threshold_weights(link, thresholds, ends.predictor),
    )


def threshold_weights(link: OrdinalLink, thresholds: Floats, predictor: Floats) -> Floats:
    """Return the expected information of each patient on each threshold, shape (n, K - 1)."""
    shares = ordinal_probabilities(link, thresholds, predictor)
    density = distribution(link, thresholds - predictor[:, None])[1]
    return np.asarray(density**2 * (1.0 / shares[:, :-1] + 1.0 / shares[:, 1:]), dtype=np.float64)


def derive_unequal_slopes(
    link: OrdinalLink,
    rows: Floats,
    classes: Ints,
    parameters: Floats,
    weights: Floats | float = 1.0,
    offset: Floats | float = 0.0,
) -> Derivatives:
    """Return derivatives of the model with slopes for each threshold, where all slopes are still equal.

    The information is the expected one. The parameters of threshold k are ``a_k`` and ``b_k``.

    Parameters
    ----------
    link : {"logit", "probit"}
    rows : array of shape (n, d)
    classes : array of int, shape (n,)
    parameters : array of shape (K - 1 + d,)
        Those of the ordinal model.
    weights, offset : array of shape (n,) or float
    """
    k = len(parameters) - rows.shape[1]
    thresholds, predictor = parameters[:k], rows @ parameters[k:] + offset
    shares = ordinal_probabilities(link, thresholds, predictor)
    density = distribution(link, thresholds - predictor[:, None])[1]
    chosen = np.take_along_axis(shares, classes[:, None], axis=1)
    columns = np.column_stack([np.ones(len(rows)), -rows])
    weighted = columns * np.broadcast_to(weights, len(rows))[:, None]
    sides = (classes[:, None] == np.arange(k)) * 1.0 - (classes[:, None] == np.arange(1, k + 1))
    p = columns.shape[1]
    information = np.zeros((k, p, k, p))
    for place in range(k):
        sizes = density[:, place] ** 2 * (1.0 / shares[:, place] + 1.0 / shares[:, place + 1])
        information[place, :, place] = columns.T @ (weighted * sizes[:, None])
        if place + 1 < k:
            sizes = -density[:, place] * density[:, place + 1] / shares[:, place + 1]
            block = columns.T @ (weighted * sizes[:, None])
            information[place, :, place + 1] = information[place + 1, :, place] = block
    return Derivatives(
        float(np.sum(weights * np.log(chosen[:, 0]))),
        ((sides * density / chosen).T @ weighted).ravel(),
        information.reshape(k * p, k * p),
        np.reshape(weights, (-1, 1)) * threshold_weights(link, thresholds, predictor),
    )


def score_statistic(gradient: Floats, information: Floats) -> float:
    """Return the score statistic of all slopes, from derivatives in a model without covariates."""
    return float(gradient @ np.linalg.solve(information, gradient))


def are_ordered(thresholds: Floats) -> bool:
    """Return whether thresholds increase."""
    return bool((np.diff(thresholds) > 0).all())


def link_of(name: str) -> OrdinalLink:
    """Return the link of a message whose link was checked."""
    return cast(OrdinalLink, name)
