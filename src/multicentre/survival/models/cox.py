"""Proportional hazards: a baseline on the grid, and a linear log hazard ratio."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import array
from multicentre.survival.models.base import LATEST, SurvivalModel

Floats = NDArray[np.float64]
LARGEST_RATIO = 500.0
LARGEST = 1e9


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

    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless coefficients fit the columns and the baseline rises from 0 or above."""
        if len(self.coefficients) != n_columns:
            raise MessageError(f"{n_columns} coefficients are needed", where="CoxModel")
        if self.baseline[0] < 0 or (np.diff(self.baseline) < 0).any():
            raise MessageError("the baseline falls", where="CoxModel.baseline")
