"""Calibration: comparison of predicted and observed risks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from multicentre.survival.scores.brier import Censoring
from multicentre.survival.times import by_end, count_by_bin, kaplan_meier, to_bins

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Calibration:
    """Predicted and observed risks of groups of patients at one time.

    Parameters
    ----------
    n_patients : array of shape (g,)
        Number of patients of each group.
    predicted : array of shape (g,)
        Mean predicted probability of an event by that time.
    observed, lower, upper : arrays of shape (g,)
        Kaplan-Meier estimate of that probability, and its 95 % interval; NaN in a group without patients.
    """

    n_patients: Floats
    predicted: Floats
    observed: Floats
    lower: Floats
    upper: Floats

    def to_frame(self) -> pd.DataFrame:
        """Return a row per group: patients, predicted and observed risk, and limits of the latter."""
        import pandas as pd

        return pd.DataFrame(
            {
                "patients": np.rint(self.n_patients).astype(np.int64),
                "predicted": self.predicted,
                "observed": self.observed,
                "lower": self.lower,
                "upper": self.upper,
            }
        )

    @property
    def error(self) -> float:
        """Mean absolute difference of predicted and observed risk, weighted by the patients of the groups."""
        has_patients = self.n_patients > 0
        gaps = np.abs(self.predicted - self.observed)[has_patients]
        return float(np.average(gaps, weights=self.n_patients[has_patients]))


def calibrate_groups(
    predicted: Floats, time: Floats, event: Flags, horizon: float, edges: Floats, *, level: float = 0.95
) -> Calibration:
    """Compare predicted with observed risks at a time, in groups of similar predictions.

    Parameters
    ----------
    predicted : array of shape (n,)
        Each patient's probability of an event by `horizon`, 1 - S.
    time, event : arrays of shape (n,)
    horizon : float
    edges : array of shape (g - 1,)
        Predictions that separate the groups, increasing; a group contains its upper edge.
    level : float, default 0.95
        Confidence level of the intervals.

    Examples
    --------
    >>> time, event = np.array([1.0, 9.0, 9.0, 9.0]), np.array([True, False, False, False])
    >>> groups = calibrate_groups(np.array([0.6, 0.6, 0.1, 0.1]), time, event, 5.0, np.array([0.5]))
    >>> groups.predicted.tolist(), groups.observed.tolist()
    ([0.1, 0.6], [0.0, 0.5])
    """
    groups = np.searchsorted(edges, predicted, side="left")
    grid = np.unique(np.append(time[by_end(time, horizon)], horizon))
    tables = np.zeros((2, len(edges) + 1, len(grid)))
    for group in range(len(edges) + 1):
        inside = groups == group
        tables[:, group] = count_by_bin(to_bins(time[inside], grid), event[inside], len(grid))
    n_patients = np.bincount(groups, minlength=len(edges) + 1).astype(np.float64)
    totals = np.bincount(groups, weights=predicted, minlength=len(edges) + 1).astype(np.float64)
    return calibration_from_counts(n_patients, totals, tables[0], tables[1], level=level)


def calibration_from_counts(
    n_patients: Floats, predicted: Floats, events: Floats, at_risk: Floats, *, level: float = 0.95
) -> Calibration:
    """Compare predicted with observed risks of groups, from counts.

    Parameters
    ----------
    n_patients, predicted : arrays of shape (g,)
        Number of patients, and sum of their predicted probabilities.
    events, at_risk : arrays of shape (g, K)
        Events and patients at risk on a grid that ends at the horizon.
    level : float, default 0.95
        Confidence level of the intervals: Greenwood's variance, on the scale of log(-log S).

    Examples
    --------
    >>> counts = np.array([[1.0]]), np.array([[4.0]])
    >>> groups = calibration_from_counts(np.array([4.0]), np.array([1.0]), *counts)
    >>> groups.observed.tolist(), groups.lower.round(3).tolist(), groups.upper.round(3).tolist()
    ([0.25], [0.039], [0.872])
    """
    surviving = np.array([kaplan_meier(*rows)[-1] for rows in zip(events, at_risk, strict=True)])
    left = at_risk * (at_risk - events)
    greenwood = np.divide(events, left, out=np.zeros_like(events), where=left > 0).sum(axis=1)
    half = norm.ppf(0.5 + level / 2) * np.sqrt(greenwood)
    inside = (surviving > 0) & (surviving < 1)
    logs = np.log(np.where(inside, surviving, 0.5))
    reach = half / np.abs(logs)
    bounds = [np.where(inside, 1 - np.exp(logs * np.exp(side * reach)), 1 - surviving) for side in (-1, 1)]
    has_patients = n_patients > 0
    means = np.divide(predicted, n_patients, out=np.full_like(predicted, np.nan), where=has_patients)
    estimates = [np.where(has_patients, values, np.nan) for values in (1 - surviving, *bounds)]
    return Calibration(n_patients, means, *estimates)


@dataclass(frozen=True, eq=False)
class DCalibration:
    """Distribution of S(event time), which is uniform under a true model.

    Parameters
    ----------
    counts : array of shape (b,)
        Patients by bin of S(event time), from 0 to 1; censored ones are distributed over the possible bins.
    statistic : float
        Pearson's chi-squared against equal counts.
    p_value : float
        Small if the curves are not calibrated.
    """

    counts: Floats
    statistic: float
    p_value: float


def d_calibration(low: Floats, high: Floats, n_bins: int = 10) -> DCalibration:
    """Test the calibration of survival curves over all times (Haider, Hoehn, Davis and Greiner, JMLR 2020).

    Parameters
    ----------
    low, high : arrays of shape (n,)
        Bounds of S at each patient's event time. For an event, both are S, or the values after and before the step at
        the event; for a follow-up that ended at c, they are 0 and S(c).
    n_bins : int, default 10

    Examples
    --------
    >>> calibration = d_calibration(np.array([0.2, 0.0]), np.array([0.2, 0.5]), 2)
    >>> calibration.counts.tolist(), calibration.statistic
    ([2.0, 0.0], 2.0)
    """
    return compare_with_even(spread_over_bins(low, high, n_bins))


def spread_over_bins(low: Floats, high: Floats, n_bins: int) -> Floats:
    """Distribute each patient uniformly over an interval within 0 to 1, and sum by bin, shape (b,).

    Examples
    --------
    >>> spread_over_bins(np.array([0.0, 0.25]), np.array([0.75, 0.25]), 2).round(3).tolist()
    [1.667, 0.333]
    """
    widths = high - low
    points = widths <= 1e-12
    places = np.minimum((low[points] * n_bins).astype(np.int64), n_bins - 1)
    counts = np.bincount(places, minlength=n_bins).astype(np.float64)
    edges = np.linspace(0.0, 1.0, n_bins + 1)
    reached = np.clip((edges - low[~points, None]) / widths[~points, None], 0.0, 1.0)
    return np.asarray(counts + np.diff(reached, axis=1).sum(axis=0), dtype=np.float64)


def compare_with_even(counts: Floats) -> DCalibration:
    """Return Pearson's chi-squared test of equal counts.

    Examples
    --------
    >>> compare_with_even(np.array([5.0, 5.0])).p_value
    1.0
    """
    expected = counts.sum() / len(counts)
    statistic = float((np.square(counts - expected) / expected).sum()) if expected > 0 else 0.0
    return DCalibration(counts, statistic, float(chi2.sf(statistic, len(counts) - 1)))


def net_benefit(
    predicted: Floats, time: Floats, event: Flags, horizon: float, thresholds: Floats, censoring: Censoring
) -> Floats:
    """Return the net benefit of treating patients with a predicted risk above each threshold, shape (p,).

    Patients with an event by the horizon have weight 1 / G(event time), those followed beyond it 1 / G(horizon);
    source: Vickers and Elkin, Medical Decision Making 2006, with inverse probability weights for censoring.

    Parameters
    ----------
    predicted : array of shape (n,)
        Each patient's probability of an event by `horizon`.
    time, event : arrays of shape (n,)
    horizon : float
    thresholds : array of shape (p,)
        Risks above which patients are treated, above 0 and below 1, increasing.
    censoring : Censoring

    Returns
    -------
    array of shape (p,)
        Net benefit in true positives per patient; treating nobody has 0.

    Examples
    --------
    >>> time, event = np.array([1.0, 9.0]), np.array([True, False])
    >>> censoring = Censoring.estimate(time, event)
    >>> net_benefit(np.array([0.8, 0.3]), time, event, 5.0, np.array([0.2, 0.5]), censoring).tolist()
    [0.375, 0.5]
    """
    time, event = censoring.cut(time, event)
    cases = np.where(event & by_end(time, horizon), censoring.weights(time), 0.0)
    controls = np.where(~by_end(time, horizon), censoring.weights(np.array([horizon])), 0.0)
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
