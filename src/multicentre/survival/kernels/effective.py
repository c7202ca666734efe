"""On how many patients a weighted sum rests in effect."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.survival.kernels.risk_sets import RiskSets

Floats = NDArray[np.float64]
ROUNDING = 1e-6
DOMINANT = 0.5


def effective_number(weights: Floats) -> float:
    """Return the effective number of patients behind a sum with such weights, (sum w)^2 / sum w^2; inf without any.

    References
    ----------
    L. Kish (1965), Survey Sampling, Wiley, section 11.7.

    Examples
    --------
    >>> effective_number(np.array([2.0, 2.0, 2.0])), effective_number(np.array([1.0, 0.0]))
    (3.0, 1.0)
    """
    largest = float(np.abs(weights).max(initial=0.0))
    if not largest:
        return float("inf")
    shares = weights / largest
    return float(shares.sum() ** 2 / (shares @ shares))


def fewest_at_risk(patients: RiskSets, theta: Floats) -> float:
    """Return the smallest effective number of patients behind a sum over those at risk; inf without anybody.

    Examples
    --------
    >>> patients = RiskSets(np.zeros((3, 1)), np.array([2, 2, 1]), np.array([True, False, True]), 2)
    >>> fewest_at_risk(patients, np.ones(3)), round(fewest_at_risk(patients, np.array([1.0, 1e-3, 1.0])), 3)
    (2.0, 1.002)
    """
    shares = theta / max(float(theta.max(initial=0.0)), np.finfo(float).tiny)
    total, squares = patients.at_risk(shares), patients.at_risk(shares**2)
    known = total > 0
    numbers = np.divide(total**2, squares, out=np.ones_like(total), where=squares > 0)
    return float(numbers[known].min(initial=np.inf))


def is_dominated(cells: NDArray[np.int64], weights: Floats) -> bool:
    """Return whether one patient's weight is more than half of all in any cell.

    Parameters
    ----------
    cells : array of shape (n,)
        Cell of every patient, from 0.
    weights : array of shape (n,)
        0 or more.

    Examples
    --------
    >>> is_dominated(np.array([0, 0, 1, 1]), np.ones(4)), is_dominated(np.array([0, 0, 1, 1]), np.array([1, 1, 1, 2.0]))
    (False, True)
    """
    total = np.bincount(cells, weights=weights)
    largest = np.zeros_like(total)
    np.maximum.at(largest, cells, weights)
    return bool((largest > (DOMINANT + ROUNDING) * total).any())
