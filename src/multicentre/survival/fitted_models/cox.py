"""Proportional hazards model: a baseline on the grid, and a linear log hazard ratio."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import array
from multicentre.errors import ConfigurationError, MessageError
from multicentre.survival.fitted_models.base import MAX_TIME, MAX_VALUE, SurvivalModel
from multicentre.survival.times import restricted_mean

Floats = NDArray[np.float64]
# Largest magnitude of a log hazard ratio, so that exp does not overflow.
MAX_RATIO = 500.0
# Largest magnitude of coefficients and of the cumulative hazard.
LARGEST = 1e9
# Distance of the nodes, in log hazard ratios, between which restricted means are interpolated.
NODE_WIDTH = 0.1
# Distance from 0 and 1 below which a survival curve counts as constant.
FLAT = 1e-9


@dataclass(frozen=True)
class CoxModel(SurvivalModel):
    """S(t | x) = exp(-H0(t) exp((x - centre) @ coefficients)).

    Parameters
    ----------
    times : array of shape (K,)
    coefficients : array of shape (d,)
        Log hazard ratios per unit of each column.
    centre : array of shape (d,)
        Values at which the hazard equals the baseline hazard.
    baseline : array of shape (K,)
        Cumulative baseline hazard H0.
    """

    times: Floats = array("times of the grid", ("K",), bound=MAX_TIME)
    coefficients: Floats = array("log hazard ratio of every column", ("d",), bound=LARGEST)
    centre: Floats = array("values of the columns at the baseline", ("d",), bound=MAX_VALUE)
    baseline: Floats = array("cumulative hazard of the baseline on the grid", ("K",), bound=LARGEST)

    def log_hazard_ratio(self, X: Floats) -> Floats:
        """Return the linear predictor, shape (n,), at most 500 in magnitude."""
        return np.clip((X - self.centre) @ self.coefficients, -MAX_RATIO, MAX_RATIO)

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K)."""
        return np.exp(-np.exp(self.log_hazard_ratio(X))[:, None] * self.baseline)

    def restricted_mean(self, X: Floats) -> Floats:
        """Return each patient's mean time survived up to the horizon, shape (n,), to a millionth of the horizon.

        The mean depends on the linear predictor only, so it is computed from a table by cubic interpolation.
        """
        ratios = self.log_hazard_ratio(X)
        rises = self.baseline[self.baseline > 0]
        if not len(rises):
            return np.full(len(X), self.times[-1])
        # Below `low` the curve is constantly 1, above `high` it is 0 from its first step on, both to 1e-9.
        low, high = np.log(FLAT) - np.log(rises[-1]), np.log(-np.log(FLAT)) - np.log(rises[0])
        positions = np.clip(ratios, low, high) / NODE_WIDTH
        if not len(X):
            return positions
        # Nodes have fixed positions, so that a patient's value does not depend on the other patients.
        first = int(np.floor(positions.min()))
        nodes = NODE_WIDTH * np.arange(first, int(np.floor(positions.max())) + 2, dtype=np.float64)
        return interpolate(positions, first, self._mean_at(nodes), self._slope_at(nodes))

    def recalibrated(self, intercept: float, slope: float, time: float) -> CoxModel:
        """Return the model whose cumulative hazard is multiplied by ``exp(intercept + (slope - 1) log H(time | x))``.

        Raises
        ------
        ConfigurationError
            The baseline is 0 at the time, or intercept or slope are not finite.

        Examples
        --------
        >>> model = CoxModel(np.array([1.0, 2.0]), np.ones(1), np.zeros(1), np.array([0.1, 0.2]))
        >>> changed = model.recalibrated(np.log(2.0), 1.0, 2.0)
        >>> changed.coefficients.tolist(), changed.baseline.round(6).tolist()
        ([1.0], [0.2, 0.4])
        """
        place = int(np.searchsorted(self.times, time, side="right")) - 1
        hazard = float(self.baseline[place]) if place >= 0 else 0.0
        if not (hazard > 0 and np.isfinite([intercept, slope]).all()):
            raise ConfigurationError(
                "the recalibration must have converged, and the baseline hazard must be above 0 at its time",
                where="recalibrated",
                hint="Evaluate more patients with an event, or choose a later time.",
            )
        baseline = self.baseline * np.exp(intercept + (slope - 1.0) * np.log(hazard))
        return replace(self, coefficients=slope * self.coefficients, baseline=baseline)

    def _mean_at(self, ratios: Floats) -> Floats:
        return restricted_mean(np.exp(-np.exp(ratios)[:, None] * self.baseline), self.times)

    def _slope_at(self, ratios: Floats) -> Floats:
        hazard = np.exp(ratios)[:, None] * self.baseline[:-1]
        return np.asarray(-(hazard * np.exp(-hazard)) @ np.diff(self.times), dtype=np.float64)

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless there is a coefficient per column and the baseline does not decrease."""
        if len(self.coefficients) != n_columns:
            raise MessageError(
                f"the model must have {n_columns} coefficients; got {len(self.coefficients)}", where="CoxModel"
            )
        if self.baseline[0] < 0 or (np.diff(self.baseline) < 0).any():
            raise MessageError("baseline must be non-negative and not decrease; got another", where="CoxModel.baseline")


def interpolate(points: Floats, first: int, values: Floats, slopes: Floats) -> Floats:
    """Evaluate the cubic Hermite spline through values and slopes at nodes 0.1 apart.

    Parameters
    ----------
    points : array of shape (n,)
        Points between the first and the last node, in units of the distance of nodes.
    first : int
        Number of the first node; node k lies at k widths.
    values, slopes : arrays of shape (m,)

    Examples
    --------
    >>> cubes = np.array([0.0, 0.001])
    >>> interpolate(np.array([0.5]), 0, cubes, np.array([0.0, 0.03])).round(9).tolist()
    [0.000125]
    """
    below = np.floor(points)
    left, share = below.astype(np.int64) - first, points - below
    rise = values[left + 1] - values[left]
    bends = NODE_WIDTH * slopes[left] - rise, rise - NODE_WIDTH * slopes[left + 1]
    bend = (1.0 - share) * bends[0] + share * bends[1]
    return np.asarray(values[left] + share * rise + share * (1.0 - share) * bend, dtype=np.float64)
