"""Brier scores of survival curves: squared errors at a time, weighted for censoring."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import DataError
from multicentre.survival.times import at_times, censored_by_bin, kaplan_meier, to_bins

Floats = NDArray[np.float64]

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Censoring:
    """The reverse Kaplan-Meier curve G(t): the chance that follow-up lasts beyond t where no event ends it.

    Parameters
    ----------
    times : array of shape (K,)
        Times at which the curve may fall, increasing. Nothing is known beyond the last.
    staying : array of shape (K,)
        Its value from each of these times on; 1 before the first.

    Examples
    --------
    >>> known = Censoring.estimate(np.array([1.0, 2.0, 3.0]), np.array([True, False, True]))
    >>> known.at(np.array([0.5, 2.0, 2.5])).tolist()
    [1.0, 0.5, 0.5]
    """

    times: Floats
    staying: Floats

    @classmethod
    def estimate(cls, time: Floats, event: Flags) -> Self:
        """Return the curve of patients' times; at one time, events come before censorings."""
        times = np.unique(time)
        return cls.from_counts(*censored_by_bin(to_bins(time, times), event, len(times)), times)

    @classmethod
    def from_counts(cls, censored: Floats, at_risk: Floats, times: Floats) -> Self:
        """Return the curve of counts, as :func:`multicentre.survival.times.censored_by_bin` gives them."""
        return cls(times, kaplan_meier(censored, at_risk))

    @property
    def last(self) -> float:
        """The last time of which anything is known."""
        return float(self.times[-1])

    def at(self, times: Floats) -> Floats:
        """Return the curve at given times, shape as given."""
        return at_times(self.staying, self.times, times)

    def weights(self, times: Floats) -> Floats:
        """Return 1 / G at given times, shape as given; 0 where G is 0, and nobody could have been seen."""
        chance = self.at(times)
        return np.divide(1.0, chance, out=np.zeros_like(chance), where=chance > 0)

    def cut(self, time: Floats, event: Flags) -> tuple[Floats, Flags]:
        """Return times and events with follow-up ended at the last time of which anything is known."""
        return np.minimum(time, self.last), np.asarray(event & (time <= self.last), dtype=np.bool_)


N_TIMES = 100


def brier_times(time: Floats, training_time: Floats, training_event: Flags, horizon: float) -> Floats:
    """Return 100 equidistant times over the follow-up that test and training patients have in common.

    They run from the first time of the test patients to the earliest of: the horizon, the last time of test patients
    but one, and the last time at which a training patient is known to be under observation.

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
    array of shape (100,), or (0,) where there is no such stretch of time

    Examples
    --------
    >>> times = brier_times(np.array([1.0, 4.0, 9.0]), np.array([2.0, 8.0]), np.array([True, True]), 7.0)
    >>> len(times), float(times[0]), float(times[-1])
    (100, 1.0, 4.0)
    """
    followed = np.unique(time)
    censoring = Censoring.estimate(training_time, training_event)
    seen = censoring.times[censoring.staying > 0]
    if len(followed) < 2 or not len(seen):
        return np.zeros(0)
    end = min(float(followed[-2]), float(seen[-1]), float(horizon))
    return np.linspace(followed[0], end, N_TIMES) if end > followed[0] else np.zeros(0)


def brier_scores(
    survival: Floats, times: Floats, time: Floats, event: Flags, training_time: Floats, training_event: Flags
) -> Floats:
    """Return the Brier score at each time (Graf, Schmoor, Sauerbrei and Schumacher, Statistics in Medicine 1999).

    Test patients who are followed for longer than any training patient leave at the last time of those.

    Parameters
    ----------
    survival : array of shape (n, T)
        Chance of each test patient to be free of the event beyond each time.
    times : array of shape (T,)
    time, event : arrays of shape (n,)
        Test patients.
    training_time, training_event : arrays of shape (m,)
        Patients from whom the censoring is estimated.

    Returns
    -------
    array of shape (T,)
        0 for perfect curves; 0.25 for a chance of a half throughout, without censoring.

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
    """Return the Brier score averaged over the times, by trapezia; arguments as in :func:`brier_scores`.

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

    A patient with an event by t adds S(t)^2 / G(event time); one who is followed beyond t adds (1 - S(t))^2 / G(t);
    one who was censored before adds nothing.

    Parameters
    ----------
    survival : array of shape (n, T)
    times : array of shape (T,)
    time, event : arrays of shape (n,)
    of_cases : array of shape (n,)
        1 / G at each patient's time.
    of_controls : array of shape (T,)
        1 / G at each of the times.

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
    """Return the index of prediction accuracy: by which share a score is below that of the Kaplan-Meier curve.

    1 for perfect curves, 0 for those no better than the one curve of all patients, below 0 for worse (Kattan and Gerds,
    Diagnostic and Prognostic Research 2018).

    Examples
    --------
    >>> round(scaled_brier(0.15, 0.2), 3)
    0.25
    """
    return float("nan") if reference <= 0 else 1.0 - score / reference


def average_over_time(scores: Floats, times: Floats) -> float:
    """Return the mean of scores over the stretch of their times, by trapezia.

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
        raise DataError("a mean over time needs two times", where="times", hint="Give more times, or a later horizon.")
    return float(np.trapezoid(scores, times) / (times[-1] - times[0]))
