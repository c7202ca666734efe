"""Brier scores of survival curves: squared errors, weighted for censoring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import DataError
from multicentre.survival.times import at_times, by_end, censored_by_bin, kaplan_meier, to_bins

Floats = NDArray[np.float64]

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Censoring:
    """Reverse Kaplan-Meier curve G(t): the probability of not being censored up to t.

    Parameters
    ----------
    times : array of shape (K,)
        Times at which the curve may decrease, increasing. The curve is not defined after the last.
    staying : array of shape (K,)
        Value from each time on; 1 before the first.

    Examples
    --------
    >>> censoring = Censoring.estimate(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
    >>> censoring.at(np.array([0.5, 2.0, 2.5])).tolist()
    [1.0, 0.5, 0.5]
    """

    times: Floats
    staying: Floats

    @classmethod
    def estimate(cls, time: Floats, event: Flags) -> Self:
        """Estimate the curve from patients' times; events come before censorings of the same time."""
        times = np.unique(time)
        return cls.from_counts(*censored_by_bin(to_bins(time, times), event, len(times)), times)

    @classmethod
    def from_counts(cls, censored: Floats, at_risk: Floats, times: Floats) -> Self:
        """Estimate the curve from counts, as returned by :func:`multicentre.survival.times.censored_by_bin`."""
        return cls(times, kaplan_meier(censored, at_risk))

    @property
    def last(self) -> float:
        """Last time at which the curve is defined."""
        return float(self.times[-1])

    def at(self, times: Floats) -> Floats:
        """Evaluate the curve at given times; same shape."""
        return at_times(self.staying, self.times, times)

    def weights(self, times: Floats) -> Floats:
        """Return 1 / G at given times, same shape; 0 where G is 0, because nobody is under observation."""
        chance = self.at(times)
        return np.divide(1.0, chance, out=np.zeros_like(chance), where=chance > 0)

    def cut(self, time: Floats, event: Flags) -> tuple[Floats, Flags]:
        """Cut times and events at the last time at which the curve is defined."""
        return np.minimum(time, self.last), np.asarray(event & by_end(time, self.last), dtype=np.bool_)


# Number of times over which the Brier score is integrated.
N_TIMES = 100


def brier_times(time: Floats, training_time: Floats, training_event: Flags, horizon: float) -> Floats:
    """Return 100 equidistant times over the common follow-up of test and training patients.

    They start at the first time of the test patients, and end at the earliest of: the horizon, the last but one time of
    test patients, and the last time at which a training patient is under observation.

    Parameters
    ----------
    time : array of shape (n,)
        Times of the test patients.
    training_time, training_event : arrays of shape (m,)
        Patients from whom the censoring is estimated.
    horizon : float
        Last time of the model's grid.

    Returns
    -------
    array of shape (100,), or (0,) without common follow-up

    Examples
    --------
    >>> times = brier_times(np.array([1.0, 4.0, 9.0]), np.array([2.0, 8.0]), np.array([True, True]), 7.0)
    >>> len(times), float(times[0]), float(times[-1])
    (100, 1.0, 4.0)
    """
    followed = np.unique(time)
    censoring = Censoring.estimate(training_time, training_event)
    observed = censoring.times[censoring.staying > 0]
    if len(followed) < 2 or not len(observed):
        return np.zeros(0)
    end = min(float(followed[-2]), float(observed[-1]), float(horizon))
    return np.linspace(followed[0], end, N_TIMES) if end > followed[0] else np.zeros(0)


def brier_scores(
    survival: Floats, times: Floats, time: Floats, event: Flags, training_time: Floats, training_event: Flags
) -> Floats:
    """Return the Brier score at each time (Graf, Schmoor, Sauerbrei and Schumacher, Statistics in Medicine 1999).

    Test patients followed for longer than any training patient are censored at the last time of the training patients.

    Parameters
    ----------
    survival : array of shape (n, T)
        Probability of each test patient to be free of the event beyond each time.
    times : array of shape (T,)
    time, event : arrays of shape (n,)
        Test patients.
    training_time, training_event : arrays of shape (m,)
        Patients from whom the censoring is estimated.

    Returns
    -------
    array of shape (T,)
        0 for perfect curves; 0.25 for a constant probability of 0.5, without censoring.

    Examples
    --------
    >>> time, event = np.array([1.0, 3.0]), np.array([True, True])
    >>> brier_scores(np.array([[0.2], [0.9]]), np.array([2.0]), time, event, time, event).round(3).tolist()
    [0.025]
    """
    censoring = Censoring.estimate(training_time, training_event)
    time, event = censoring.cut(time, event)
    of_cases, of_controls = censoring.weights(time), censoring.weights(times)
    return np.asarray(squared_errors(survival, times, time, event, of_cases, of_controls).mean(axis=0))


def integrated_brier_score(
    survival: Floats, times: Floats, time: Floats, event: Flags, training_time: Floats, training_event: Flags
) -> float:
    """Return the Brier score averaged over the times, by the trapezoidal rule; arguments as in :func:`brier_scores`.

    Raises
    ------
    DataError
        There are fewer than two times.

    Examples
    --------
    >>> time, event = np.array([1.0, 3.0]), np.array([True, True])
    >>> curves = np.array([[0.2, 0.2], [0.9, 0.9]])
    >>> round(integrated_brier_score(curves, np.array([1.5, 2.0]), time, event, time, event), 3)
    0.025
    """
    return average_over_time(brier_scores(survival, times, time, event, training_time, training_event), times)


def squared_errors(
    survival: Floats, times: Floats, time: Floats, event: Flags, of_cases: Floats, of_controls: Floats
) -> Floats:
    """Return every patient's weighted squared error at each time, shape (n, T); its mean is the Brier score.

    The error of a patient with an event by t is S(t)^2 / G(event time), that of a patient followed beyond t is
    (1 - S(t))^2 / G(t), and that of a patient censored before t is 0.

    Parameters
    ----------
    survival : array of shape (n, T)
    times : array of shape (T,)
    time, event : arrays of shape (n,)
    of_cases : array of shape (n,)
        1 / G at each patient's time.
    of_controls : array of shape (T,)
        1 / G at each time.

    Examples
    --------
    >>> time, ones = np.array([1.0, 3.0]), np.ones(2)
    >>> squared_errors(np.array([[0.2], [0.9]]), np.array([2.0]), time, ones > 0, ones, ones[:1]).round(3).tolist()
    [[0.04], [0.01]]
    """
    later = time[:, None] > times
    cases = np.where(event, of_cases, 0.0)[:, None] * np.square(survival)
    return np.where(later, of_controls * np.square(1.0 - survival), cases)


def scaled_brier(score: float, reference: float) -> float:
    """Return the index of prediction accuracy: the relative decrease of a score from that of the Kaplan-Meier curve.

    It is 1 for perfect curves, 0 for those no better than one curve for all patients, and negative for worse ones
    (Kattan and Gerds, Diagnostic and Prognostic Research 2018).

    Examples
    --------
    >>> round(scaled_brier(0.15, 0.2), 3)
    0.25
    """
    return float("nan") if reference <= 0 else 1.0 - score / reference


def average_over_time(scores: Floats, times: Floats) -> float:
    """Return the mean of scores over the range of their times, by the trapezoidal rule.

    Raises
    ------
    DataError
        There are fewer than two times.

    Examples
    --------
    >>> average_over_time(np.array([0.0, 0.2, 0.2]), np.array([0.0, 1.0, 2.0])).__round__(3)
    0.15
    """
    if len(times) < 2:
        raise DataError(
            f"a mean over time must have at least two times; got {len(times)}",
            where="times",
            hint="Use more times, or a later horizon.",
        )
    return float(np.trapezoid(scores, times) / (times[-1] - times[0]))
