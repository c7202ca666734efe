"""Effects of sites on the hazard: the likelihood of one site with its effect integrated or maximised out.

Given coefficients and a baseline hazard, a site with d events and cumulative hazard H has the log-likelihood
``events + d w - exp(w) H``, where w is the logarithm of its effect and `events` does not depend on w. What is left
after the effect is a function of H only:

- "gamma": ``exp(w)`` has a gamma distribution with mean 1 and variance theta, which integrates in closed form;
- "gaussian": w has a normal distribution with variance theta, and its penalised likelihood is maximised;
- "fixed": the likelihood is maximised over w, which is 0 at a reference site.

Sums over sites of its value and derivatives are those of the likelihood of all patients.

References
----------
T. M. Therneau, P. M. Grambsch, V. S. Pankratz (2003), Penalized survival models and frailty, Journal of Computational
and Graphical Statistics 12, 156-175.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Distribution = Literal["fixed", "gamma", "gaussian"]
DISTRIBUTIONS: tuple[str, ...] = get_args(Distribution)
# Variances below are reported as 0: hazards of sites then differ by less than one percent, and the likelihood by less
# than the rounding error of masked sums.
SMALLEST_VARIANCE = 1e-5
# Smallest factor between two successive gaussian variances, unless the step leads to the smallest variance.
SMALLEST_FACTOR = 0.2
# Newton steps to the mode of a gaussian effect; the function is concave and ten suffice as a rule.
MAX_STEPS = 100


@dataclass(frozen=True)
class SiteEffect:
    """Likelihood of a site as a function of its cumulative hazard H and of phi, the logarithm of the variance theta.

    Parameters
    ----------
    value : float
        Log-likelihood without the events' part.
    weight : float
        Minus its derivative by H: the estimated ``exp(w)``.
    bend : float
        Its second derivative by H.
    by_variance : tuple of float
        First and second derivative by phi, and the derivative by phi and H; 0 unless the distribution is "gamma".
    effect : float
        Estimated w; minus infinity for a fixed effect of a site without events.
    precision : float
        Minus the second derivative of the penalised likelihood by w; infinite for a reference site.
    """

    value: float
    weight: float
    bend: float
    by_variance: tuple[float, float, float]
    effect: float
    precision: float


def site_effect(distribution: Distribution, variance: float, n_events: float, hazard: float) -> SiteEffect:
    """Return the likelihood of a site with its effect integrated or maximised out.

    Examples
    --------
    >>> effect = site_effect("gamma", 0.5, 4.0, 2.0)
    >>> effect.weight, round(effect.bend, 3)
    (1.5, 0.375)
    >>> site_effect("fixed", 0.0, 4.0, 2.0).weight
    2.0
    """
    if distribution == "gamma":
        return _gamma(1.0 / variance, n_events, hazard)
    if distribution == "gaussian":
        return _gaussian(1.0 / variance, n_events, hazard)
    if not n_events:
        return SiteEffect(0.0, 0.0, 0.0, (0.0, 0.0, 0.0), -np.inf, 0.0)
    effect = float(np.log(n_events / hazard))
    return SiteEffect(
        n_events * (effect - 1.0), n_events / hazard, n_events / hazard**2, (0.0, 0.0, 0.0), effect, n_events
    )


def reference_effect(hazard: float) -> SiteEffect:
    """Return the likelihood of a site whose effect is 0.

    Examples
    --------
    >>> reference_effect(2.0).value, reference_effect(2.0).weight
    (-2.0, 1.0)
    """
    return SiteEffect(-hazard, 1.0, 0.0, (0.0, 0.0, 0.0), 0.0, np.inf)


def pairs_of(slopes: Floats) -> Floats:
    """Return the products of each pair of numbers once, shape (n (n + 1) / 2,).

    Examples
    --------
    >>> pairs_of(np.array([2.0, 3.0])).tolist()
    [4.0, 6.0, 9.0]
    """
    return np.concatenate([np.zeros(0), *(slopes[place] * slopes[: place + 1] for place in range(len(slopes)))])


def matrix_of(pairs: Floats) -> Floats:
    """Return the symmetric matrix whose entries are numbers of pairs.

    Examples
    --------
    >>> matrix_of(np.array([4.0, 6.0, 9.0])).tolist()
    [[4.0, 6.0], [6.0, 9.0]]
    """
    size = int(np.sqrt(2 * len(pairs)))
    matrix = np.zeros((size, size))
    matrix[np.tril_indices(size)] = pairs
    return matrix + np.tril(matrix, -1).T


def _gamma(nu: float, n_events: float, hazard: float) -> SiteEffect:
    total, inflated, excess = nu + n_events, nu + hazard, n_events - hazard
    weight = total / inflated
    # Sums over 0, ..., d - 1 replace differences of gamma functions, which cancel at a small variance (a large nu).
    steps = np.arange(n_events)
    terms = 1.0 / (nu + steps)
    log_ratio = np.log1p(hazard / nu)
    ratios = (steps - hazard) / inflated
    near = np.log1p(np.maximum(ratios, -0.5))  # a ratio near -1, of a large hazard, would leave only rounding
    value = float(np.where(ratios > -0.5, near, np.log((nu + steps) / inflated)).sum() - nu * log_ratio)
    first = float(terms.sum() - log_ratio - excess / inflated)
    second = float(hazard / (nu * inflated) + excess / inflated**2 - (terms**2).sum())
    mixed = excess / inflated**2
    by_variance = -nu * first, nu**2 * second + nu * first, -nu * mixed
    return SiteEffect(value, weight, total / inflated**2, by_variance, float(np.log(weight)), total)


def _gaussian(nu: float, n_events: float, hazard: float) -> SiteEffect:
    effect = 0.0
    for _ in range(MAX_STEPS):
        expected = float(np.exp(effect)) * hazard
        # At most 1, so that the exponential stays finite on the way.
        step = float(np.clip((n_events - expected - nu * effect) / (expected + nu), -1.0, 1.0))
        effect += step
        if abs(step) < 1e-14 * (1.0 + abs(effect)):
            break
    weight = float(np.exp(effect))
    precision = weight * hazard + nu
    value = n_events * effect - weight * hazard - 0.5 * nu * effect**2
    return SiteEffect(value, weight, weight**2 / precision, (0.0, 0.0, 0.0), effect, precision)


@dataclass(frozen=True)
class VarianceSearch:
    """Search for the variance of gaussian effects by secant steps.

    Parameters
    ----------
    variance : float
    last_variance, last_excess : float
        The variance before, and its distance from the solution of the equation; 0 at first.
    rising : float
        Largest variance so far at which the likelihood rises; 0 if none.
    """

    variance: float = 0.1
    last_variance: float = 0.0
    last_excess: float = 0.0
    rising: float = 0.0

    def following(self, excess: float) -> VarianceSearch:
        """Return the search at the next variance, given the excess at this one; itself if the variance is 0."""
        if self.variance <= SMALLEST_VARIANCE and excess <= 0.0:
            return self
        rising = max(self.variance, self.rising) if excess > 0.0 else self.rising
        following = replace(self, rising=rising)._next(excess)
        return VarianceSearch(following, self.variance, excess, rising)

    def _next(self, excess: float) -> float:
        """Return the next variance: by a secant step, or at first by a step that takes `excess` as the distance."""
        variance, last = self.variance, self.last_variance
        slope = (excess - self.last_excess) / (variance - last) if last else -1.0
        following = variance - excess / (slope if slope < 0.0 else -1.0)
        if excess < 0.0 and self.rising and following <= self.rising:
            return 0.5 * (variance + self.rising)
        if following <= SMALLEST_VARIANCE:
            return SMALLEST_VARIANCE
        if excess * self.last_excess < 0.0:  # the solution lies between the two
            return following
        return min(max(following, SMALLEST_FACTOR * variance), variance / SMALLEST_FACTOR)


def variance_excess(variance: float, squared_effect: float, uncertainty: float) -> float:
    """Return how far the equation of the variance is from its solution.

    Its sign is that of the derivative of the restricted likelihood. If the effects were observed with normal errors of
    one variance, it would be the solution minus `variance`.

    Parameters
    ----------
    variance : float
    squared_effect : float
        Mean square of the effects.
    uncertainty : float
        Mean variance of the effects around their estimates, below `variance`.

    Examples
    --------
    >>> round(variance_excess(1.0, 0.75, 0.5), 6)  # effects plus errors have variance 3, errors have variance 1
    1.0
    """
    weight = max(1.0 - uncertainty / variance, 1e-9)  # rounding of masked sums must not make it 0
    return (squared_effect + uncertainty - variance) / weight**2
