"""Intercept and slope of outcomes by a prediction (calibration line), by Newton's method with halved steps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Largest change of intercept and slope in the last step.
TOL = 1e-7
# A larger intercept or slope has no finite maximum, or the prediction is constant.
MAX_LINE = 1000.0
# Steps of a fit, halvings included; Newton's method needs about 5.
MAX_LINES = 25


@dataclass(frozen=True)
class LineSums:
    """Derivatives of the log-likelihood of outcomes by intercept and slope of a prediction.

    Parameters
    ----------
    gradient : array of shape (2,)
    information : array of shape (3,)
        Entries (0, 0), (0, 1) and (1, 1) of the information.
    """

    gradient: Floats
    information: Floats


def step_line(sums: LineSums, *, intercept_only: bool) -> tuple[Floats, Floats]:
    """Return a Newton step for intercept and slope, and their standard errors; NaN if the sums do not determine them.

    Examples
    --------
    >>> sums = LineSums(np.array([1.0, 0.0]), np.array([4.0, 0.0, 1.0]))
    >>> [values.tolist() for values in step_line(sums, intercept_only=True)]
    [[0.25, 0.0], [0.5, 0.0]]
    """
    first, mixed, second = sums.information
    if intercept_only:
        if not first > 0:
            return np.array([np.nan, 0.0]), np.array([np.nan, 0.0])
        return np.array([sums.gradient[0] / first, 0.0]), np.array([first**-0.5, 0.0])
    matrix = np.array([[first, mixed], [mixed, second]])
    if not np.linalg.det(matrix) > 1e-9 * first * second:
        return np.full(2, np.nan), np.full(2, np.nan)
    inverse = np.linalg.inv(matrix)
    return np.asarray(inverse @ sums.gradient), np.sqrt(np.diagonal(inverse))


class Line:
    """State of a fit of intercept and slope.

    Parameters
    ----------
    intercept, slope : float
        Start.
    rounding : float
        Rise of the deviance that may be rounding, because its terms are multiples of 2^-24.

    Attributes
    ----------
    tried : array of shape (2,)
        Intercept and slope of the next request.
    errors : array of shape (2,)
        Standard errors; NaN unless the fit converged.
    has_ended : bool
    """

    def __init__(self, intercept: float, slope: float, *, rounding: float) -> None:
        self.tried = np.array([intercept, slope])
        self.errors = np.full(2, np.nan)
        self._rounding = rounding
        self.has_ended = False
        self._best, self._step, self._deviance, self._converged = self.tried, np.zeros(2), np.inf, False

    @property
    def result(self) -> Floats:
        """Intercept and slope; NaN unless the fit converged."""
        return self.tried if self._converged else np.full(2, np.nan)

    def take(self, deviance: float, sums: LineSums, *, intercept_only: bool) -> None:
        """Take the next step from the tried values, or half of the last one if the deviance rose."""
        if self.has_ended:
            return
        if not deviance <= self._deviance + self._rounding:
            self._step = self._step / 2.0
            self.tried = self._best + self._step
            return
        self._best, self._deviance = self.tried, deviance
        self._step, errors = step_line(sums, intercept_only=intercept_only)
        reached = self._best + self._step
        if not (np.abs(reached) <= MAX_LINE).all():
            self.has_ended = True
            return
        self.tried = reached
        if np.abs(self._step).max() <= TOL:
            self.has_ended, self._converged, self.errors = True, True, errors


def maximise_line(
    derive: Callable[[Floats], tuple[Floats, Floats, Floats]], line: Line, *, intercept_only: bool
) -> tuple[Floats, Floats]:
    """Return intercept and slope at the maximum, and their standard errors; NaN without convergence.

    `derive` returns the terms of the records at a line: of the deviance, shape (n,), of the gradient, shape (n, 2), and
    of the information, shape (n, 3).
    """
    for _ in range(MAX_LINES):
        deviance, gradient, information = derive(line.tried)
        sums = LineSums(gradient.sum(axis=0), information.sum(axis=0))
        line.take(float(deviance.sum()), sums, intercept_only=intercept_only)
        if line.has_ended:
            break
    return line.result, line.errors
