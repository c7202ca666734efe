"""Decision curves: whether it is of use to treat those whose predicted risk is above a threshold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.survival.scores.censoring import Censoring

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def net_benefit(
    predicted: Floats, time: Floats, event: Flags, horizon: float, thresholds: Floats, censoring: Censoring
) -> Floats:
    """Return the net benefit of treating patients with a predicted risk above each threshold, shape (p,).

    Patients with an event by the horizon weigh 1 / G(event time), those followed beyond it 1 / G(horizon); source:
    Vickers and Elkin, Medical Decision Making 2006, with inverse probability weights for censoring.

    Parameters
    ----------
    predicted : array of shape (n,)
        Each patient's chance of an event by `horizon`.
    time, event : arrays of shape (n,)
    horizon : float
    thresholds : array of shape (p,)
        Risks above which one would treat, above 0 and below 1, increasing.
    censoring : Censoring

    Returns
    -------
    array of shape (p,)
        In true positives a patient; treating nobody has 0.

    Examples
    --------
    >>> time, event = np.array([1.0, 9.0]), np.array([True, False])
    >>> known = Censoring.estimate(time, event)
    >>> net_benefit(np.array([0.8, 0.3]), time, event, 5.0, np.array([0.2, 0.5]), known).tolist()
    [0.375, 0.5]
    """
    time, event = censoring.cut(time, event)
    cases = np.where(event & (time <= horizon), censoring.weights(time), 0.0)
    controls = np.where(time > horizon, censoring.weights(np.array([horizon])), 0.0)
    bins = np.searchsorted(thresholds, predicted, side="left")
    n_bins = len(thresholds) + 1
    counted = [np.bincount(bins, weights=mass, minlength=n_bins).astype(np.float64) for mass in (cases, controls)]
    return benefit_from_counts(counted[0], counted[1], thresholds, len(time))


def benefit_from_counts(cases: Floats, controls: Floats, thresholds: Floats, n_patients: float) -> Floats:
    """Return the net benefit at each threshold, shape (p,), from weighted numbers between thresholds, shape (p + 1,).

    Examples
    --------
    >>> counts = np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0])
    >>> benefit_from_counts(*counts, np.array([0.2, 0.5]), 2).tolist()
    [0.375, 0.5]
    """
    above = [np.cumsum(counts[::-1])[::-1][1:] for counts in (cases, controls)]
    odds = thresholds / (1.0 - thresholds)
    return np.asarray((above[0] - odds * above[1]) / n_patients, dtype=np.float64)


def benefit_of_treating_all(cases: Floats, controls: Floats, thresholds: Floats, n_patients: float) -> Floats:
    """Return the net benefit of treating everyone, shape (p,); arguments as in :func:`benefit_from_counts`.

    Examples
    --------
    >>> counts = np.array([0.0, 0.0, 1.0]), np.array([0.0, 1.0, 0.0])
    >>> benefit_of_treating_all(*counts, np.array([0.2, 0.5]), 2).tolist()
    [0.375, 0.0]
    """
    odds = thresholds / (1.0 - thresholds)
    return np.asarray((cases.sum() - odds * controls.sum()) / n_patients, dtype=np.float64)
