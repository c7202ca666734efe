"""Integrated Brier score of a mixture of models, and the weights that minimise it.

The score is a quadratic function of the weights. Its coefficients are sums over patients, so they can be summed over
sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

Flags = NDArray[np.bool_]

# Largest inverse probability of censoring: probabilities below 0.1 count as 0.1.
MAX_WEIGHT = 10.0

# Relative ridge that makes the minimum unique if two models are equal.
RIDGE = 1e-10


def chance_of_staying(events: Floats, censored: Floats, n_patients: float) -> Floats:
    """Return the reverse Kaplan-Meier curve on the grid, shape (K,); events of a bin come before its censorings.

    Parameters
    ----------
    events, censored : array of shape (K,)
        Patients by bin of the end of their follow-up.
    n_patients : float
        Number of all patients, including those followed beyond the grid.

    Examples
    --------
    >>> chance_of_staying(np.array([1.0, 0.0]), np.array([1.0, 1.0]), 4.0).tolist()
    [0.6666666666666667, 0.33333333333333337]
    """
    at_risk = n_patients - np.concatenate([[0.0], np.cumsum(events + censored)[:-1]]) - events
    share = np.divide(censored, at_risk, out=np.zeros_like(censored), where=at_risk > 0)
    return np.asarray(np.cumprod(1.0 - np.clip(share, 0.0, 1.0)), dtype=np.float64)


def error_weights(bins: Integers, happened: Flags, staying: Floats, grid: Floats) -> Floats:
    """Return the weight of every patient's squared error at every time, shape (n, K) (Graf et al., 1999).

    The weight is the bin's share of the horizon divided by the probability of not being censored. For patients followed
    beyond the time, it is the probability up to this time; for patients with an event, the probability up to just
    before the event. Censored patients have weight 0. A probability below 0.1 counts as 0.1. Without that cap the
    weights at each time sum to the number of patients.

    Parameters
    ----------
    bins : array of shape (n,)
    happened : array of shape (n,)
    staying : array of shape (K,)
        Result of :func:`chance_of_staying`.
    grid : array of shape (K,)

    Examples
    --------
    >>> bins, happened = np.array([0, 0, 1, 2]), np.array([True, False, False, False])
    >>> staying = chance_of_staying(np.array([1.0, 0.0]), np.array([1.0, 1.0]), 4.0)
    >>> error_weights(bins, happened, staying, np.array([0.5, 1.0])).sum(axis=0).round(12).tolist()
    [2.0, 2.0]
    """
    inverse = np.minimum(1.0 / np.maximum(staying, 1e-300), MAX_WEIGHT)
    before = np.concatenate([[1.0], inverse])[bins]
    beyond = bins[:, None] > np.arange(len(grid))
    weights = np.where(beyond, inverse, np.where(happened, before, 0.0)[:, None])
    return np.asarray(weights * np.diff(grid, prepend=0.0) / grid[-1], dtype=np.float64)


def sum_products(curves: Floats, outcomes: Floats, weights: Floats) -> tuple[Floats, Floats, float]:
    """Return Q (m, m), c (m,) and k with ``sum of weights * (shares @ curves - outcomes)**2 = w'Qw - 2c'w + k``.

    Parameters
    ----------
    curves : array of shape (m, n, K)
        Survival curves of n patients under m models.
    outcomes, weights : array of shape (n, K)
        1 while the patient is free of the event, and weight of the error.

    Examples
    --------
    >>> sum_products(np.array([[[0.5]], [[1.0]]]), np.ones((1, 1)), np.full((1, 1), 2.0))
    (array([[0.5, 1. ], [1. , 2. ]]), array([1., 2.]), 2.0)
    """
    flat = curves.reshape(len(curves), -1)
    scaled = flat * weights.ravel()
    return scaled @ flat.T, scaled @ outcomes.ravel(), float((weights * outcomes**2).sum())


@dataclass(frozen=True)
class BrierForm:
    """Integrated Brier score of a mixture as a quadratic function of its weights w: ``w'Qw - 2c'w + k``.

    Parameters
    ----------
    products : array of shape (m, m)
        Q, weighted mean products of two models' curves.
    targets : array of shape (m,)
        c, weighted mean products of a model's curves and the outcomes.
    constant : float
        k, weighted mean square of the outcomes.
    n_patients : float
        Number of patients behind the means.

    Examples
    --------
    >>> form = BrierForm(np.eye(2), np.array([1.0, 0.5]), 1.0, 10.0)
    >>> form.score(np.array([0.5, 0.5])), form.best_weights().round(6).tolist()
    (0.0, [0.75, 0.25])
    >>> form.best_weights(shrinkage=1.0).round(3).tolist()
    [0.667, 0.333]
    """

    products: Floats
    targets: Floats
    constant: float
    n_patients: float

    @classmethod
    def mean(cls, forms: Sequence[BrierForm]) -> BrierForm:
        """Return the form of several groups of patients together, such as the folds of a cross-validation."""
        total = sum(form.n_patients for form in forms)
        shares = [form.n_patients / total for form in forms]
        products, targets, constant = (
            sum(share * getattr(form, name) for share, form in zip(shares, forms, strict=True))
            for name in ("products", "targets", "constant")
        )
        return cls(np.asarray(products), np.asarray(targets), float(constant), total)

    def score(self, shares: Floats) -> float:
        """Return the integrated Brier score of a mixture."""
        return float(shares @ self.products @ shares - 2.0 * self.targets @ shares + self.constant)

    def best_weights(self, shrinkage: float = 0.0) -> Floats:
        """Return the non-negative weights with sum 1 and the lowest score plus penalty.

        The penalty is ``shrinkage * d * |w - 1/m|^2``, where d is the mean squared distance of the m models' curves
        from their mean. With a larger `shrinkage` the weights are more even.
        """
        n_models = len(self.targets)
        distance = float(np.mean(np.diag(self.products) - self.products.mean(axis=1)))
        penalty = shrinkage * max(distance, 0.0)
        return minimise_on_simplex(self.products + penalty * np.eye(n_models), self.targets + penalty / n_models)


def minimise_on_simplex(products: Floats, targets: Floats) -> Floats:
    """Return the non-negative shares with sum 1 that minimise ``w'Qw - 2c'w``, by an active-set method.

    If several are optimal (two models are equal), the most even shares are returned.

    Parameters
    ----------
    products : array of shape (m, m)
        Q, positive semi-definite.
    targets : array of shape (m,)
        c.

    Examples
    --------
    >>> minimise_on_simplex(np.eye(3), np.array([1.0, 0.5, -4.0])).round(9).tolist()
    [0.75, 0.25, 0.0]
    >>> minimise_on_simplex(np.ones((2, 2)), np.ones(2)).round(6).tolist()
    [0.5, 0.5]
    """
    n = len(targets)
    curvature = products + RIDGE * max(float(np.trace(products)) / n, 1e-300) * np.eye(n)
    shares = np.eye(n)[int(np.argmin(np.diag(curvature) - 2.0 * targets))]
    active = shares > 0
    for _ in range(20 * n + 20):
        target, level = _stationary(curvature, targets, active)
        shares, active = _towards(shares, target, active)
        if (target < 0).any():
            continue
        slopes = curvature @ shares - targets
        slopes[active] = level
        steepest = int(np.argmin(slopes))
        if slopes[steepest] >= level - 1e-13 * (1.0 + abs(level)):
            break
        active[steepest] = True
    return np.asarray(shares / shares.sum(), dtype=np.float64)


def _stationary(curvature: Floats, targets: Floats, active: Flags) -> tuple[Floats, float]:
    """Return the minimum with sum 1 and zeros at inactive places, and the common slope of the active ones."""
    places = np.flatnonzero(active)
    bordered = np.ones((len(places) + 1, len(places) + 1))
    bordered[:-1, :-1], bordered[-1, -1] = curvature[np.ix_(places, places)], 0.0
    solved = np.linalg.solve(bordered, np.append(targets[places], 1.0))
    target = np.zeros(len(targets))
    target[places] = solved[:-1]
    return target, -float(solved[-1])


def _towards(shares: Floats, target: Floats, active: Flags) -> tuple[Floats, Flags]:
    """Move to the target as far as shares remain non-negative; shares that reach 0 become inactive."""
    falling = target < 0
    if not falling.any():
        return target, active
    fractions = shares[falling] / (shares[falling] - target[falling])
    moved = shares + float(fractions.min()) * (target - shares)
    at_zero = falling & (moved <= 1e-15)
    if not at_zero.any():
        at_zero[np.flatnonzero(falling)[int(np.argmin(fractions))]] = True
    return np.where(at_zero, 0.0, np.maximum(moved, 0.0)), active & ~at_zero
