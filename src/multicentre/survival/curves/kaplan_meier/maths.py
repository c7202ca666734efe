"""Variances, intervals, medians and areas of survival curves, from numbers of events and of patients at risk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from multicentre.errors import ConfigurationError
from multicentre.survival.curves.tables.risk import RiskTable, read_curve
from multicentre.survival.times import hazard, kaplan_meier

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]

IntervalScale = Literal["log-log", "log", "plain"]

# Survival, and distance of log S from 0, below which there is no interval on the scale log(-log S).
SMALLEST = float(np.finfo(np.float64).eps)


def variance_terms(events: Floats, at_risk: Floats) -> Floats:
    """Return the terms d / (n (n - d)) of Greenwood's variance of log S, of the same shape; 0 where all have the event.

    Greenwood, Reports on Public Health and Medical Subjects 33 (1926).

    Examples
    --------
    >>> variance_terms(np.array([1.0, 2.0]), np.array([4.0, 2.0])).round(4).tolist()
    [0.0833, 0.0]
    """
    product = at_risk * (at_risk - events)
    return np.divide(events, product, out=np.zeros_like(events), where=product > 0)


def interval(
    survival: Floats, variance: Floats, confidence_level: float, scale: IntervalScale
) -> tuple[Floats, Floats]:
    """Return pointwise limits of survival curves, of the same shapes; within [0, 1], NaN where survival is NaN.

    Kalbfleisch and Prentice, The Statistical Analysis of Failure Time Data (2002), section 1.4.

    Parameters
    ----------
    survival : array of shape (..., K)
    variance : array of shape (..., K)
        Variance of log S.
    confidence_level : float
        Confidence, between 0 and 1.
    scale : {"log-log", "log", "plain"}
        Scale on which the interval is symmetric: log(-log S), log S or S.

    Examples
    --------
    >>> lower, upper = interval(np.array([0.5]), np.array([0.04]), 0.95, "log-log")
    >>> lower.round(3).tolist(), upper.round(3).tolist()
    ([0.295], [0.675])
    """
    reach = norm.isf((1.0 - confidence_level) / 2.0) * np.sqrt(variance)
    if scale == "plain":
        limits = survival - reach * survival, survival + reach * survival
    elif scale == "log":
        limits = survival * np.exp(-reach), survival * np.exp(reach)
    else:
        inside = survival > SMALLEST
        logs = np.log(survival, where=inside, out=np.zeros_like(survival))
        turn = np.divide(reach, logs, where=logs < -SMALLEST, out=np.zeros_like(survival))
        limits = inside * np.exp(logs * np.exp(-turn)), inside * np.exp(logs * np.exp(turn))
    lower, upper = (np.where(np.isnan(survival), np.nan, np.clip(limit, 0.0, 1.0)) for limit in limits)
    return lower, upper


def crossing(curve: Floats, grid: Floats, share: float, *, steps: bool) -> float:
    """Return the first time at which a decreasing curve is at or below `share`; NaN if it stays above.

    Examples
    --------
    >>> curve, grid = np.array([0.8, 0.4]), np.array([1.0, 3.0])
    >>> crossing(curve, grid, 0.5, steps=True), crossing(curve, grid, 0.5, steps=False)
    (3.0, 2.5)
    """
    below = np.flatnonzero(curve <= share)
    if not len(below):
        return float("nan")
    here = int(below[0])
    before = (0.0, 1.0) if here == 0 else (float(grid[here - 1]), float(curve[here - 1]))
    if steps or before[1] <= share:
        return float(grid[here])
    return float(before[0] + (before[1] - share) / (before[1] - curve[here]) * (grid[here] - before[0]))


def area_weights(grid: Floats, horizon: float, *, steps: bool) -> tuple[float, Floats]:
    """Return c_0 and c, shape (K,), such that c_0 + c S is the area under a survival curve up to a horizon.

    Parameters
    ----------
    grid : array of shape (K,)
    horizon : float
    steps : bool
        The curve is constant between two times, and after the last; otherwise it is linear between them.

    Examples
    --------
    >>> area_weights(np.array([1.0, 3.0]), 3.0, steps=True)
    (1.0, array([2., 0.]))
    >>> area_weights(np.array([1.0, 3.0]), 3.0, steps=False)
    (0.5, array([1.5, 1. ]))
    """
    starts = np.concatenate([[0.0], grid])
    widths = np.diff(starts, append=max(horizon, starts[-1]))
    covered = np.clip(horizon - starts, 0.0, widths)
    right = np.zeros_like(covered)
    if not steps:
        np.divide(covered**2, 2.0 * widths, out=right, where=widths > 0)
        right[-1] = 0.0
    weights = covered - right
    weights[1:] += right[:-1]
    return float(weights[0]), weights[1:]


def restricted_mean(
    survival: Floats, terms: Floats, grid: Floats, horizon: float, *, steps: bool
) -> tuple[Floats, Floats]:
    """Return the mean time survived up to a horizon and its standard error, each of shape (...,).

    The variance is the sum of A_k^2 d_k / (n_k (n_k - d_k)), where A_k is the area from the k-th time on: Klein and
    Moeschberger, Survival Analysis (2003), section 4.5.

    Parameters
    ----------
    survival : array of shape (..., K)
    terms : array of shape (..., K)
        Result of :func:`variance_terms`.
    grid : array of shape (K,)
    horizon : float
    steps : bool
        As for :func:`area_weights`.

    Examples
    --------
    >>> events, at_risk = np.array([1.0, 1.0]), np.array([4.0, 2.0])
    >>> terms = variance_terms(events, at_risk)
    >>> mean, error = restricted_mean(np.array([0.75, 0.375]), terms, np.array([1.0, 3.0]), 3.0, steps=True)
    >>> float(mean), float(error.round(4))
    (2.5, 0.433)
    """
    start, weights = area_weights(grid, horizon, steps=steps)
    parts = survival * weights
    later = np.cumsum(parts[..., ::-1], axis=-1)[..., ::-1]
    return np.asarray(start + parts.sum(axis=-1)), np.sqrt((later**2 * terms).sum(axis=-1))


def reverse_curve(
    died: Floats, between: Floats, at_grid: Floats, entering: Floats, *, exact: bool
) -> tuple[Floats, Floats]:
    """Return the reverse Kaplan-Meier estimate and the variance of its logarithm, each of shape (..., K).

    Follow-up takes the role of survival: Schemper and Smith, Controlled Clinical Trials 17 (1996). Events of a time
    come before censorings of the same time.

    Parameters
    ----------
    died, between, at_grid, entering : array of shape (..., K)
        Events of each place; censorings between the time before and this time, and at this time; patients followed
        beyond the time before.
    exact : bool
        Events happen at the times of the grid; otherwise half of them count as before the censorings between times.

    Examples
    --------
    >>> curve, _ = reverse_curve(np.array([1.0]), np.array([1.0]), np.array([1.0]), np.array([4.0]), exact=True)
    >>> curve.tolist()
    [0.375]
    """
    at_risk = entering - (0.0 if exact else 0.5) * died
    remaining = entering - between - died
    shares = [_share(between, at_risk), _share(at_grid, remaining)]
    curve: Floats = np.cumprod((1.0 - shares[0]) * (1.0 - shares[1]), axis=-1, dtype=np.float64)
    terms = variance_terms(between, at_risk) + variance_terms(at_grid, remaining)
    return curve, np.cumsum(terms, axis=-1)


def _share(part: Floats, whole: Floats) -> Floats:
    return np.minimum(np.divide(part, whole, out=np.zeros_like(part), where=whole > 0), 1.0)


class Estimate(NamedTuple):
    """Estimate with its standard error and interval; NaN if it was not reached or is not available."""

    value: float
    standard_error: float
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class Curves:
    """Survival curves by group.

    Parameters
    ----------
    table : RiskTable
    confidence_level : float
        Confidence of the intervals.
    intervals : {"log-log", "log", "plain"}
    horizon : float
        Last time of the curves.

    Examples
    --------
    >>> leaving = np.array([[0.0, 0.0, 1.0, 0.0, 1.0]])
    >>> table = RiskTable(("all",), np.array([2.0, 3.0]), np.ones((1, 1, 2)), leaving, True)
    >>> curves = Curves(table, 0.95, "log-log", 3.0)
    >>> curves.survival.tolist(), curves.median["all"].value
    ([[0.75, 0.375]], 3.0)
    """

    table: RiskTable
    confidence_level: float
    intervals: IntervalScale
    horizon: float

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups."""
        return self.table.groups

    @property
    def times(self) -> Floats:
        """Times of the grid, shape (K,)."""
        return self.table.grid

    @cached_property
    def survival(self) -> Floats:
        """Survival at the times of the grid, shape (g, K); NaN for a group without patients."""
        rows = zip(self.table.died, self.table.at_risk, strict=True)
        return self._of_patients(np.array([kaplan_meier(*row) for row in rows]))

    @cached_property
    def cumulative_hazard(self) -> Floats:
        """Nelson-Aalen estimate at the times of the grid, shape (g, K)."""
        return self._of_patients(np.cumsum(hazard(self.table.died, self.table.at_risk), axis=1))

    @cached_property
    def variance(self) -> Floats:
        """Greenwood's variance of log S, shape (g, K)."""
        return self._of_patients(np.cumsum(self._terms, axis=1))

    @cached_property
    def limits(self) -> tuple[Floats, Floats]:
        """Lower and upper limits of survival, each of shape (g, K)."""
        return interval(self.survival, self.variance, self.confidence_level, self.intervals)

    @cached_property
    def median(self) -> dict[str, Estimate]:
        """Median survival by group, with the interval of Brookmeyer and Crowley (Biometrics 38, 1982)."""
        return self._medians(self.survival, *self.limits)

    @cached_property
    def follow_up(self) -> dict[str, Estimate]:
        """Median follow-up by group, by the reverse Kaplan-Meier estimate."""
        survival, variance = self._reverse
        return self._medians(survival, *interval(survival, variance, self.confidence_level, self.intervals))

    @property
    def reverse_survival(self) -> Floats:
        """Share of the patients followed up beyond the times of the grid, shape (g, K)."""
        return self._reverse[0]

    def restricted_mean(self, horizon: float | None = None) -> dict[str, Estimate]:
        """Return the mean time survived up to a horizon, by group.

        Raises
        ------
        ConfigurationError
            The horizon is beyond that of the curves.
        """
        means, errors = self._means(horizon)
        return {
            name: self._estimate(*mean_and_error)
            for name, *mean_and_error in zip(self.groups, means, errors, strict=True)
        }

    def difference(self, first: str, second: str, horizon: float | None = None) -> Estimate:
        """Return the difference in restricted means, `first` minus `second`, with its interval."""
        places = [self._place(name) for name in (first, second)]
        means, errors = self._means(horizon)
        return self._estimate(means[places[0]] - means[places[1]], float(np.hypot(*errors[places])))

    def to_frame(self) -> pd.DataFrame:
        """Return times, numbers and curves as a frame with a row per group and time."""
        import pandas as pd

        lower, upper = self.limits
        counts = {"at_risk": self.table.at_risk, "events": self.table.died, "censored": self.table.censored}
        columns = {**counts, "survival": self.survival, "lower": lower, "upper": upper}
        blocks = [
            pd.DataFrame({"group": name, "time": self.times, **{key: rows[place] for key, rows in columns.items()}})
            for place, name in enumerate(self.groups)
        ]
        return pd.concat(blocks, ignore_index=True)

    def survival_at(self, times: Sequence[float] | Floats) -> Floats:
        """Return survival at t given times, shape (g, t); NaN beyond the horizon."""
        return read_curve(self.survival, self.table, times, start=1.0, horizon=self.horizon)

    @cached_property
    def _terms(self) -> Floats:
        return variance_terms(self.table.died, self.table.at_risk)

    @cached_property
    def _reverse(self) -> tuple[Floats, Floats]:
        table = self.table
        at_grid = table.leaving[:, 1::2]
        curve, variance = reverse_curve(table.died, table.between, at_grid, table.entering, exact=table.exact)
        return self._of_patients(curve), self._of_patients(variance)

    def _of_patients(self, curves: Floats) -> Floats:
        """Return the curves; NaN for groups without patients, and for a site that refused."""
        return np.where(self.table.n_patients[:, None] > 0, curves, np.nan)

    def _means(self, horizon: float | None) -> tuple[Floats, Floats]:
        end = self.horizon if horizon is None else float(horizon)
        if not 0 < end <= self.horizon:
            raise ConfigurationError(
                f"horizon must be above 0 and at most that of the curves, {self.horizon:g}; got {end:g}",
                where="horizon",
                hint="Fit with a later horizon=, or use an earlier one here.",
            )
        return restricted_mean(self.survival, self._terms, self.times, end, steps=self.table.exact)

    def _medians(self, survival: Floats, lower: Floats, upper: Floats) -> dict[str, Estimate]:
        estimates = {}
        for name, *curves in zip(self.groups, survival, lower, upper, strict=True):
            middle, *ends = (crossing(curve, self.times, 0.5, steps=self.table.exact) for curve in curves)
            estimates[name] = Estimate(middle, float("nan"), *ends)
        return estimates

    def _estimate(self, value: float, error: float) -> Estimate:
        reach = float(norm.isf((1.0 - self.confidence_level) / 2.0)) * float(error)
        return Estimate(float(value), float(error), float(value) - reach, float(value) + reach)

    def _place(self, name: str) -> int:
        if name not in self.groups:
            raise ConfigurationError(
                f"the group must be one of {', '.join(map(repr, self.groups))}; got {name!r}",
                where=repr(name),
                hint=f"Name one of {', '.join(self.groups)}.",
            )
        return self.groups.index(name)
