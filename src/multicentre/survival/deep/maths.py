"""The baseline hazard of a network from sums over sites, and the cells that a site's sums are made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.survival.kernels.effective import effective_number

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
ROUNDING = 1e-6


def baseline_hazard(events: Floats, at_risk: Floats) -> Floats:
    """Return Breslow's cumulative baseline hazard on the grid, shape (K,): the running sum of D_k / R_k.

    Parameters
    ----------
    events : array of shape (K,)
        Events by bin, D_k.
    at_risk : array of shape (K,)
        Sum of hazard ratios over patients of this bin or a later one, R_k.

    Examples
    --------
    >>> baseline_hazard(np.array([1.0, 1.0, 0.0]), np.array([4.0, 2.0, 0.0])).tolist()
    [0.25, 0.75, 0.75]
    """
    return np.cumsum(np.divide(events, at_risk, out=np.zeros_like(events), where=at_risk > 0))


def sum_at_risk(bins: Integers, ratios: Floats, n_times: int) -> Floats:
    """Return R_k, the sum of hazard ratios over patients whose bin is k or later, shape (K,).

    Examples
    --------
    >>> sum_at_risk(np.array([0, 1, 2]), np.array([1.0, 2.0, 4.0]), 2).tolist()
    [7.0, 6.0]
    """
    leaving = np.bincount(bins, weights=ratios, minlength=n_times + 1)
    return np.asarray(np.cumsum(leaving[::-1])[::-1][:n_times], dtype=np.float64)


def effective_by_bin(bins: Integers, ratios: Floats) -> Floats:
    """Return how many patients of each bin its sum of hazard ratios rests on in effect, rounded down.

    They are (sum r)^2 / sum r^2 (Kish, 1965): as many as there are where hazard ratios are equal, 1 where one outweighs
    all; 0 without any.

    Examples
    --------
    >>> effective_by_bin(np.array([0, 0, 2, 2]), np.array([1.0, 1.0, 9.0, 0.0])).tolist()
    [2.0, 0.0, 1.0]
    """
    total, squares = (np.bincount(bins, weights=ratios**power) for power in (1, 2))
    return np.floor(np.divide(total**2, squares, out=np.zeros_like(total), where=squares > 0) + ROUNDING)


def fewest_in_effect(log_risk: Floats) -> float:
    """Return how many patients a partial likelihood rests on in effect, rounded down; 0 without any.

    It rests on a few where some hazard ratios, or the inverses of some, outweigh the others'.

    Examples
    --------
    >>> fewest_in_effect(np.zeros(9)), fewest_in_effect(np.array([0.0, 0.1, 50.0]))
    (9.0, 1.0)
    """
    if not len(log_risk):
        return 0.0
    weights = [np.exp(each - each.max()) for each in (log_risk, -log_risk)]
    return float(np.floor(min(effective_number(each) for each in weights) + ROUNDING))
