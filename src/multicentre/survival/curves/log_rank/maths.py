"""The log-rank family of tests: what was observed less what was expected, its covariance, and the statistic."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

Floats = NDArray[np.float64]
Weights = Literal["logrank", "wilcoxon", "tarone-ware", "fleming-harrington"]
WEIGHTS: tuple[str, ...] = get_args(Weights)
ROUNDING = 1e-9


def weigh_times(
    events: Floats, at_risk: Floats, kind: str, *, rho: float = 1.0, gamma: float = 0.0, scale: float = 1.0
) -> Floats:
    """Return the weight of every time, shape (K,).

    1 ("logrank"), n / scale ("wilcoxon": Gehan and Breslow), its root ("tarone-ware"), or S^rho (1 - S)^gamma with the
    pooled Kaplan-Meier estimate S before the time ("fleming-harrington"). The scale changes no test.

    Parameters
    ----------
    events, at_risk : array of shape (g, K)
    kind : {"logrank", "wilcoxon", "tarone-ware", "fleming-harrington"}
    rho, gamma : float
        At least 0.
    scale : float
        A number of patients, so that weights are at most 1.

    Examples
    --------
    >>> events, at_risk = np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[2.0, 1.0], [2.0, 2.0]])
    >>> weigh_times(events, at_risk, "wilcoxon", scale=4.0).tolist()
    [1.0, 0.75]
    >>> weigh_times(events, at_risk, "fleming-harrington").tolist()
    [1.0, 0.75]
    """
    died, n = events.sum(axis=0), at_risk.sum(axis=0)
    if kind == "logrank":
        return np.ones_like(n)
    if kind == "wilcoxon":
        return np.asarray(n / scale, dtype=np.float64)
    if kind == "tarone-ware":
        return np.asarray(np.sqrt(n / scale), dtype=np.float64)
    steps = 1.0 - np.divide(died, n, out=np.zeros_like(n), where=n > 0)
    before = np.concatenate([[1.0], np.cumprod(steps)])[:-1]
    return np.asarray(before**rho * (1.0 - before) ** gamma, dtype=np.float64)


def compare_groups(events: Floats, at_risk: Floats, weights: Floats) -> tuple[Floats, Floats]:
    """Return observed less expected events, shape (g,), and their covariance, shape (g, g), weighted.

    Given the margins of each time's table, events are hypergeometric: Mantel, Cancer Chemotherapy Reports 50 (1966).

    Parameters
    ----------
    events, at_risk : array of shape (g, K)
    weights : array of shape (K,)

    Examples
    --------
    >>> score, covariance = compare_groups(np.array([[1.0], [0.0]]), np.array([[2.0], [2.0]]), np.ones(1))
    >>> score.tolist(), covariance.tolist()
    ([0.5, -0.5], [[0.25, -0.25], [-0.25, 0.25]])
    """
    died, n = events.sum(axis=0), at_risk.sum(axis=0)
    shares = np.divide(at_risk, n, out=np.zeros_like(at_risk), where=n > 0)
    score = ((events - shares * died) * weights).sum(axis=1)
    spread = np.divide(died * (n - died), n - 1.0, out=np.zeros_like(n), where=n > 1.0) * weights**2
    return score, np.diag((shares * spread).sum(axis=1)) - (shares * spread) @ shares.T


def expected_events(events: Floats, at_risk: Floats) -> Floats:
    """Return how many events each group would have if all survived alike, shape (g,).

    Examples
    --------
    >>> expected_events(np.array([[1.0], [0.0]]), np.array([[2.0], [2.0]])).tolist()
    [0.5, 0.5]
    """
    n = at_risk.sum(axis=0)
    shares = np.divide(at_risk, n, out=np.zeros_like(at_risk), where=n > 0)
    return np.asarray(shares @ events.sum(axis=0), dtype=np.float64)


def chi_square(score: Floats, covariance: Floats) -> tuple[float, int, float]:
    """Return the statistic, its degrees of freedom and the p-value; groups that were never at risk are left out.

    Parameters
    ----------
    score : array of shape (g,)
    covariance : array of shape (g, g)

    Examples
    --------
    >>> statistic, freedom, p_value = chi_square(np.array([3.0, -3.0]), np.array([[2.0, -2.0], [-2.0, 2.0]]))
    >>> statistic, freedom, round(p_value, 4)
    (4.5, 1, 0.0339)
    """
    spread = np.diag(covariance)
    present = np.flatnonzero(spread > ROUNDING * max(1.0, float(spread.max(initial=0.0))))
    if len(present) < 2:
        return float("nan"), 0, float("nan")
    chosen = present[:-1]
    statistic = float(score[chosen] @ np.linalg.solve(covariance[np.ix_(chosen, chosen)], score[chosen]))
    freedom = len(chosen)
    return statistic, freedom, float(chi2.sf(statistic, freedom))
