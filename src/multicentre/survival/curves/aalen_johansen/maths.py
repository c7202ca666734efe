"""Cumulative incidence of competing causes and its variance, from events by cause and numbers at risk."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Variance = Literal["delta", "aalen"]
SMALLEST = float(np.finfo(np.float64).eps)


def cumulative_incidence(events: Floats, at_risk: Floats) -> tuple[Floats, Floats]:
    """Return the incidence of each cause, shape (c, K), and survival before each time, shape (K,).

    Aalen and Johansen, Scandinavian Journal of Statistics 5 (1978).

    Parameters
    ----------
    events : array of shape (c, K)
    at_risk : array of shape (K,)

    Examples
    --------
    >>> incidence, before = cumulative_incidence(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([4.0, 2.0]))
    >>> incidence.tolist(), before.tolist()
    ([[0.25, 0.25], [0.0, 0.375]], [1.0, 0.75])
    """
    shares = np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 0)
    before = np.concatenate([[1.0], np.cumprod(1.0 - shares.sum(axis=0))[:-1]])
    return np.cumsum(before * shares, axis=1), before


def incidence_variance(events: Floats, at_risk: Floats, kind: Variance = "delta") -> Floats:
    """Return the variance of the incidence of each cause, shape (c, K).

    With F_t the incidence up to t and S_k the survival before the k-th time, the sum over times up to t of
    ``(F_t - F_k)^2 d / (n (n - d)) + S_k^2 d_j (n - d_j) / n^3 - 2 (F_t - F_k) S_k d_j / n^2`` ("delta": Dinse and
    Larson, Biometrika 73 (1986), equation 6), or the same with n - 1 for one n ("aalen": Pintilie, Competing Risks
    (2006), equation 4.5).

    Parameters
    ----------
    events : array of shape (c, K)
    at_risk : array of shape (K,)
    kind : {"delta", "aalen"}

    Examples
    --------
    >>> events, at_risk = np.array([[1.0, 1.0]]), np.array([4.0, 2.0])
    >>> incidence_variance(events, at_risk).round(4).tolist()
    [[0.0469, 0.082]]
    """
    incidence, before = cumulative_incidence(events, at_risk)
    died = events.sum(axis=0)
    if kind == "delta":
        square = _over(died, at_risk * (at_risk - died))
        own = before**2 * events * _over(at_risk - events, at_risk**3)
        cross = before * _over(events, at_risk**2)
    else:
        square = _over(died, (at_risk - 1.0) * (at_risk - died))
        own = before**2 * events * _over(at_risk - events, at_risk**2 * (at_risk - 1.0))
        cross = before * events * _over(at_risk - events, at_risk * (at_risk - died) * (at_risk - 1.0))
    squares = (
        incidence**2 * np.cumsum(square)
        - 2.0 * incidence * np.cumsum(incidence * square, axis=1)
        + np.cumsum(incidence**2 * square, axis=1)
    )
    crossed = incidence * np.cumsum(cross, axis=1) - np.cumsum(incidence * cross, axis=1)
    return np.maximum(squares + np.cumsum(own, axis=1) - 2.0 * crossed, 0.0)


def incidence_interval(incidence: Floats, variance: Floats, quantile: float) -> tuple[Floats, Floats]:
    """Return limits of incidences, symmetric in log(-log F), shapes as given; 0 where the incidence is.

    Parameters
    ----------
    incidence, variance : array of shape (..., K)
    quantile : float
        Of the normal distribution, 1.96 for 95 %.

    Examples
    --------
    >>> lower, upper = incidence_interval(np.array([0.5]), np.array([0.01]), 1.96)
    >>> lower.round(3).tolist(), upper.round(3).tolist()
    ([0.295], [0.675])
    """
    inside = (incidence > SMALLEST) & (incidence < 1.0 - SMALLEST)
    logs = np.log(incidence, where=inside, out=np.full_like(incidence, -1.0))
    turn = np.where(inside, quantile * np.sqrt(variance) / np.where(inside, incidence * logs, 1.0), 0.0)
    lower, upper = np.exp(logs * np.exp(-turn)), np.exp(logs * np.exp(turn))
    return np.where(inside, lower, incidence), np.where(inside, upper, incidence)


def _over(part: Floats, whole: Floats) -> Floats:
    shape = np.broadcast_shapes(part.shape, whole.shape)
    return np.divide(part, whole, out=np.zeros(shape), where=np.broadcast_to(whole > 0, shape))
