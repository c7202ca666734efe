"""Elastic averaging at the coordinator, and when it is stable (equation 19)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def move_to_mean(centre: Floats, mean: Floats, weight: float) -> Floats:
    """Move the global factor toward the mean of the sites' factors by a share of the way.

    Parameters
    ----------
    centre : array of shape (codes, r)
        ``B hat``.
    mean : array of shape (codes, r)
        Mean over sites of ``B^[t]``.
    weight : float
        ``alpha``, which equation 19 writes as eta gamma T.

    Examples
    --------
    >>> move_to_mean(np.zeros((1, 1)), np.ones((1, 1)), 0.9).tolist()
    [[0.9]]
    """
    return np.asarray(centre + weight * (mean - centre))


def contraction(step: float, pull: float, n_passes: int) -> float:
    """Return by which factor a site's passes shorten its distance to the global factor, data apart.

    The elastic term alone takes ``b <- b - step pull (b - b hat) / n_j`` at each of a row's n_j visits of a pass, which
    is ``exp(-step pull)`` for many visits; the bound ``1 / (1 + step pull)`` of the implicit form is used.

    Examples
    --------
    >>> contraction(0.01, 5.0, 1)
    0.9523...
    """
    return float((1 + step * pull) ** -n_passes)


def largest_weight(contracted: float) -> float:
    """Return the weight from which elastic averaging diverges: 1 + 1 / kappa.

    The distance of the sites to the global factor obeys the eigenvalue ``kappa (1 - alpha)``, which must stay above
    -1; it follows from the rounds' equations without the data's part.

    Examples
    --------
    >>> largest_weight(0.5)
    3.0
    """
    return 1.0 + 1.0 / contracted


def weighted_mean(total: Floats, weights: Floats, otherwise: Floats) -> Floats:
    """Return the mean of factors weighted column by column; a column without weight keeps its value.

    Parameters
    ----------
    total : array of shape (codes, r)
        Sum over sites of weight times factor.
    weights : array of shape (r,)
        Sum over sites of the weights.
    otherwise : array of shape (codes, r)

    Examples
    --------
    >>> weighted_mean(np.array([[6.0, 0.0]]), np.array([3.0, 0.0]), np.array([[1.0, 7.0]])).tolist()
    [[2.0, 7.0]]
    """
    has = weights > 0
    return np.where(has, total / np.where(has, weights, 1.0), otherwise)
