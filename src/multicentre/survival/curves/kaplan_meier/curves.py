"""Kaplan-Meier curves by group, and the numbers read from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from multicentre.federation.errors import ConfigurationError
from multicentre.survival.curves.kaplan_meier import maths
from multicentre.survival.curves.tables.risk import RiskTable, read_curve
from multicentre.survival.times.curves import hazard, kaplan_meier

Floats = NDArray[np.float64]


class Estimate(NamedTuple):
    """A number with its standard error and interval; NaN where it was not reached, or has none."""

    value: float
    standard_error: float
    lower: float
    upper: float


@dataclass(frozen=True, eq=False)
class Curves:
    """Survival by group.

    Parameters
    ----------
    table : RiskTable
    level : float
        Confidence of the intervals.
    intervals : {"log-log", "log", "plain"}
    horizon : float
        Last time that the curves speak of.

    Examples
    --------
    >>> leaving = np.array([[0.0, 0.0, 1.0, 0.0, 1.0]])
    >>> table = RiskTable(("all",), np.array([2.0, 3.0]), np.ones((1, 1, 2)), leaving, True)
    >>> curves = Curves(table, 0.95, "log-log", 3.0)
    >>> curves.survival.tolist(), curves.median["all"].value
    ([[0.75, 0.375]], 3.0)
    """

    table: RiskTable
    level: float
    intervals: maths.Scale
    horizon: float

    @property
    def groups(self) -> tuple[str, ...]:
        """Names of the groups."""
        return self.table.groups

    @property
    def times(self) -> Floats:
        """The grid, shape (K,)."""
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
        return maths.interval(self.survival, self.variance, self.level, self.intervals)

    @cached_property
    def median(self) -> dict[str, Estimate]:
        """Median survival by group, with the interval of Brookmeyer and Crowley (Biometrics 38, 1982)."""
        return self._medians(self.survival, *self.limits)

    @cached_property
    def follow_up(self) -> dict[str, Estimate]:
        """Median follow-up by group, by the reverse Kaplan-Meier estimate."""
        survival, variance = self._reverse
        return self._medians(survival, *maths.interval(survival, variance, self.level, self.intervals))

    @property
    def reverse_survival(self) -> Floats:
        """Share of the patients who are followed up beyond the times of the grid, shape (g, K)."""
        return self._reverse[0]

    def restricted_mean(self, horizon: float | None = None) -> dict[str, Estimate]:
        """Return the mean time survived up to a horizon, by group.

        Raises
        ------
        ConfigurationError
            The horizon is beyond that of the curves.
        """
        means, errors = self._means(horizon)
        return {name: self._estimate(*found) for name, *found in zip(self.groups, means, errors, strict=True)}

    def difference(self, first: str, second: str, horizon: float | None = None) -> Estimate:
        """Return by how much the restricted mean of one group exceeds that of another."""
        places = [self._place(name) for name in (first, second)]
        means, errors = self._means(horizon)
        return self._estimate(means[places[0]] - means[places[1]], float(np.hypot(*errors[places])))

    def survival_at(self, times: Sequence[float] | Floats) -> Floats:
        """Return survival at given times, shape (g, t); NaN beyond the horizon."""
        return read_curve(self.survival, self.table, times, start=1.0, horizon=self.horizon)

    @cached_property
    def _terms(self) -> Floats:
        return maths.variance_terms(self.table.died, self.table.at_risk)

    @cached_property
    def _reverse(self) -> tuple[Floats, Floats]:
        table = self.table
        at_grid = table.leaving[:, 1::2]
        curve, variance = maths.reverse_curve(table.died, table.between, at_grid, table.entering, exact=table.exact)
        return self._of_patients(curve), self._of_patients(variance)

    def _of_patients(self, curves: Floats) -> Floats:
        """Return the curves, NaN for groups without patients or whose site refused."""
        return np.where(self.table.n_patients[:, None] > 0, curves, np.nan)

    def _means(self, horizon: float | None) -> tuple[Floats, Floats]:
        end = self.horizon if horizon is None else float(horizon)
        if not 0 < end <= self.horizon:
            raise ConfigurationError(
                f"{end:g} is not between 0 and the curves' horizon of {self.horizon:g}",
                where="horizon",
                mend="Fit with a later horizon=, or take an earlier one here.",
            )
        return maths.restricted_mean(self.survival, self._terms, self.times, end, steps=self.table.exact)

    def _medians(self, survival: Floats, lower: Floats, upper: Floats) -> dict[str, Estimate]:
        found = {}
        for name, *curves in zip(self.groups, survival, lower, upper, strict=True):
            middle, *ends = (maths.crossing(curve, self.times, 0.5, steps=self.table.exact) for curve in curves)
            found[name] = Estimate(middle, float("nan"), *ends)
        return found

    def _estimate(self, value: float, error: float) -> Estimate:
        reach = float(norm.isf((1.0 - self.level) / 2.0)) * float(error)
        return Estimate(float(value), float(error), float(value) - reach, float(value) + reach)

    def _place(self, name: str) -> int:
        if name not in self.groups:
            raise ConfigurationError(
                "there is no such group", where=repr(name), mend=f"Name one of {', '.join(self.groups)}."
            )
        return self.groups.index(name)
