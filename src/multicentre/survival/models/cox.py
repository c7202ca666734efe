"""Proportional hazards: a baseline on the grid, and a linear log hazard ratio."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import array
from multicentre.survival.models.base import LATEST, SurvivalModel
from multicentre.survival.times import restricted_mean

Floats = NDArray[np.float64]
LARGEST_RATIO = 500.0
LARGEST = 1e9
NODE_WIDTH = 0.1
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
        Values at which the hazard is the baseline's.
    baseline : array of shape (K,)
        Cumulative baseline hazard H0.
    """

    times: Floats = array("times of the grid", ("K",), bound=LATEST)
    coefficients: Floats = array("log hazard ratio of every column", ("d",), bound=LARGEST)
    centre: Floats = array("values of the columns at the baseline", ("d",), bound=LATEST)
    baseline: Floats = array("cumulative hazard of the baseline on the grid", ("K",), bound=LARGEST)

    def log_hazard_ratio(self, X: Floats) -> Floats:
        """Return the linear predictor, shape (n,), at most 500 in magnitude."""
        return np.clip((X - self.centre) @ self.coefficients, -LARGEST_RATIO, LARGEST_RATIO)

    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K)."""
        return np.exp(-np.exp(self.log_hazard_ratio(X))[:, None] * self.baseline)

    def restricted_mean(self, X: Floats) -> Floats:
        """Return each patient's mean time survived up to the horizon, shape (n,), to a millionth of the horizon.

        It depends on the linear predictor alone: that of many patients is read from a table, by cubic interpolation.
        """
        ratios = self.log_hazard_ratio(X)
        rises = self.baseline[self.baseline > 0]
        if not len(rises):
            return np.full(len(X), self.times[-1])
        # Below the first the curve is 1 throughout, above the last it is 0 from its first step on, both to 1e-9.
        low, high = np.log(FLAT) - np.log(rises[-1]), np.log(-np.log(FLAT)) - np.log(rises[0])
        asked = np.clip(ratios, low, high) / NODE_WIDTH
        if not len(X):
            return asked
        # Nodes are the same for all patients ever asked about, so that a value does not depend on who else is there.
        first = int(np.floor(asked.min()))
        nodes = NODE_WIDTH * np.arange(first, int(np.floor(asked.max())) + 2, dtype=np.float64)
        return interpolate(asked, first, self._mean_at(nodes), self._slope_at(nodes))

    def _mean_at(self, ratios: Floats) -> Floats:
        return restricted_mean(np.exp(-np.exp(ratios)[:, None] * self.baseline), self.times)

    def _slope_at(self, ratios: Floats) -> Floats:
        hazard = np.exp(ratios)[:, None] * self.baseline[:-1]
        return np.asarray(-(hazard * np.exp(-hazard)) @ np.diff(self.times), dtype=np.float64)

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless coefficients fit the columns and the baseline rises from 0 or above."""
        if len(self.coefficients) != n_columns:
            raise MessageError(f"{n_columns} coefficients are needed", where="CoxModel")
        if self.baseline[0] < 0 or (np.diff(self.baseline) < 0).any():
            raise MessageError("the baseline falls", where="CoxModel.baseline")


def interpolate(points: Floats, first: int, values: Floats, slopes: Floats) -> Floats:
    """Return the cubic through values and slopes at nodes 0.1 apart, at points between the first and the last.

    Parameters
    ----------
    points : array of shape (n,)
        In widths between nodes.
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
