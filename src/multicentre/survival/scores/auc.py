"""Time-dependent area under the curve: discrimination between patients with an event by t and those without."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.survival.scores.brier import Censoring
from multicentre.survival.times import at_times, by_end, count_by_bin, kaplan_meier, to_bins

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def dynamic_auc(
    time: Floats, event: Flags, risk: Floats, times: Floats, censoring: Censoring, *, tied_tol: float = 1e-8
) -> Floats:
    """Return the cumulative/dynamic area under the curve at each time, weighted for censoring.

    Cases have their event by t and weight 1 / G(event time); controls are followed beyond t (Uno, Cai, Tian and Wei,
    JASA 2007; Hung and Chiang, Canadian Journal of Statistics 2010). Tied risks count 1/2.

    Parameters
    ----------
    time, event : arrays of shape (n,)
    risk : array of shape (n,) or (n, T)
        Higher for an earlier event; one per patient, or one per patient and time.
    times : array of shape (T,)
    censoring : Censoring
        Censoring distribution of the training patients, whose last time ends the follow-up.
    tied_tol : float, default 1e-8

    Returns
    -------
    array of shape (T,)
        Areas from 0 to 1, 0.5 by chance; NaN without cases or without controls.

    Examples
    --------
    >>> time, event = np.array([1.0, 2.0, 3.0]), np.array([True, True, False])
    >>> censoring, risk = Censoring.estimate(time, event), np.array([0.9, 0.1, 0.4])
    >>> dynamic_auc(time, event, risk, np.array([1.5, 2.5]), censoring).tolist()
    [1.0, 0.5]
    """
    time, event = censoring.cut(time, event)
    weights = np.where(event, censoring.weights(time), 0.0)
    risks = np.broadcast_to(risk[:, None] if risk.ndim == 1 else risk, (len(time), len(times)))
    return np.array([_area(risks[:, k], weights, ~by_end(time, t), tied_tol) for k, t in enumerate(times.tolist())])


def mean_auc(areas: Floats, times: Floats, time: Floats, event: Flags) -> float:
    """Return the mean of the areas over the event times, weighted by the Kaplan-Meier curve; NaN without events.

    Source: Lambert and Chevret, Statistical Methods in Medical Research 2014.

    Examples
    --------
    >>> time, event = np.array([1.0, 2.0, 3.0]), np.array([True, True, False])
    >>> round(mean_auc(np.array([1.0, 0.5]), np.array([1.5, 2.5]), time, event), 3)
    0.75
    """
    grid = np.unique(time)
    curve = kaplan_meier(*count_by_bin(to_bins(time, grid), event, len(grid)))
    return weigh_areas(areas, at_times(curve, grid, times))


def weigh_areas(areas: Floats, survival: Floats) -> float:
    """Return the mean of areas, weighted by the decrease of the survival curve up to each time; shape (T,) each.

    Examples
    --------
    >>> round(weigh_areas(np.array([1.0, 0.5]), np.array([0.6, 0.2])), 3)
    0.75
    """
    falls = -np.diff(survival, prepend=1.0)
    is_weighted = np.isfinite(areas) & (falls > 0)
    if not is_weighted.any():
        return float("nan")
    return float(np.average(areas[is_weighted], weights=falls[is_weighted]))


def area_from_counts(cases: Floats, controls: Floats) -> Floats:
    """Return areas under the curve of cases and controls counted by bin of risk, from low to high, shape (...,).

    Cases and controls of one bin count as tied.

    Parameters
    ----------
    cases, controls : arrays of shape (..., R)
        Weighted numbers.

    Examples
    --------
    >>> float(area_from_counts(np.array([0.0, 1.0]), np.array([1.0, 1.0])))
    0.75
    """
    lower = np.cumsum(controls, axis=-1) - 0.5 * controls
    pairs = cases.sum(axis=-1) * controls.sum(axis=-1)
    won = (cases * lower).sum(axis=-1)
    areas = np.divide(won, pairs, out=np.full_like(won, np.nan, dtype=np.float64), where=pairs > 0)
    return np.asarray(areas, dtype=np.float64)


def _area(risk: Floats, weights: Floats, later: Flags, tied_tol: float) -> float:
    cases = ~later & (weights > 0)
    controls = np.sort(risk[later])
    if not cases.any() or not len(controls):
        return float("nan")
    lower = np.searchsorted(controls, risk[cases] - tied_tol, side="left")
    upto = np.searchsorted(controls, risk[cases] + tied_tol, side="right")
    return float(weights[cases] @ (lower + upto) / (2.0 * weights[cases].sum() * len(controls)))
