"""Calibration lines of survival predictions: observed over expected events, and calibration slope, by a given time.

The number of events of a patient by a time is compared with the cumulative hazard that the model predicts up to the
time, or up to the end of follow-up if that is earlier. In a Poisson regression of the events with the logarithm of this
hazard as offset, the intercept is the logarithm of observed over expected events (calibration in the large). With the
log cumulative hazard at the time, ``log(-log S)``, as further covariate, its coefficient plus 1 is the calibration
slope (Crowson, Atkinson and Therneau 2016, Statistical Methods in Medical Research 25, 1692-1706).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from multicentre.statistics.line import Line, maximise_line

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# Log cumulative hazards are kept within this: S from 1 - 1e-11 to below 1e-10000.
MAX_SCORE = 25.0
# Largest expected number of events of a patient; more is certain already.
MAX_EXPECTED = 64.0


@dataclass(frozen=True)
class CalibrationLine:
    """Calibration in the large and calibration slope by a time.

    Parameters
    ----------
    observed_over_expected, log_error : float
        Observed over expected events, and the standard error of its logarithm.
    slope, slope_error : float
        1 if risks spread as predicted; below 1 if predictions are too extreme.
    intercept : float
        Intercept of the line with this slope; for the recalibration.
    """

    observed_over_expected: float
    log_error: float
    slope: float
    slope_error: float
    intercept: float

    @classmethod
    def of(cls, lines: Floats, errors: Floats) -> CalibrationLine:
        """Return the result of two fits, shape (2, 2): at a slope of 1, and with a slope."""
        values = np.exp(lines[0, 0]), errors[0, 0], lines[1, 1], errors[1, 1], lines[1, 0]
        return cls(*map(float, values))

    def rows(self, level: float = 0.95) -> dict[str, tuple[float, float, float, float]]:
        """Return value, standard error and limits of the interval by score."""
        ratio, z = self.observed_over_expected, float(norm.ppf(0.5 + level / 2))
        reach, half = float(np.exp(z * self.log_error)), z * self.slope_error
        return {
            "observed over expected events": (ratio, ratio * self.log_error, ratio / reach, ratio * reach),
            "calibration slope": (self.slope, self.slope_error, self.slope - half, self.slope + half),
        }


def derive_hazard_line(
    expected: Floats, scores: Floats, events: Flags, intercept: float, slope: float
) -> tuple[Floats, Floats, Floats]:
    """Return each patient's terms of the deviance, shape (n,), gradient, shape (n, 2), and information, shape (n, 3).

    Parameters
    ----------
    expected : array of shape (n,)
        Predicted cumulative hazard up to the time or the end of follow-up.
    scores : array of shape (n,)
        Logarithm of the predicted cumulative hazard at the time.
    events : array of shape (n,)
        Event by the time.
    intercept, slope : float

    Examples
    --------
    >>> _, gradient, information = derive_hazard_line(np.array([0.5]), np.array([2.0]), np.array([True]), 0.0, 1.0)
    >>> gradient.tolist(), information.tolist()
    ([[0.5, 1.0]], [[0.5, 1.0, 2.0]])
    """
    predictor = intercept + (slope - 1.0) * scores
    with np.errstate(over="ignore"):
        mean = np.minimum(expected * np.exp(predictor), MAX_EXPECTED)
    gradient = (events - mean)[:, None] * np.column_stack([np.ones_like(scores), scores])
    return 2.0 * (mean - events * predictor), gradient, mean[:, None] * np.column_stack([scores**0, scores, scores**2])


def fit_hazard_lines(expected: Floats, scores: Floats, events: Flags) -> tuple[Floats, Floats]:
    """Return the lines at a slope of 1 and with a slope, shape (2, 2), and their standard errors; for local patients.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> score = rng.normal(size=5000) - 2.0
    >>> time = rng.exponential(np.exp(-0.8 * score))  # followed up to time 1
    >>> lines, errors = fit_hazard_lines(np.exp(score) * np.minimum(time, 1.0), score, time < 1.0)
    >>> bool(abs(lines[1, 1] - 0.8) < 3 * errors[1, 1])
    True
    """
    fits = [
        maximise_line(
            lambda line: derive_hazard_line(expected, scores, events, *line.tolist()),
            Line(0.0, 1.0, rounding=1e-9 * len(scores)),
            intercept_only=intercept_only,
        )
        for intercept_only in (True, False)
    ]
    return np.array([line for line, _ in fits]), np.array([errors for _, errors in fits])
