"""Brier scores of survival curves: squared errors at a time, weighted for censoring."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import DataError
from multicentre.survival.scores.censoring import Censoring

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
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
        raise DataError("a mean over time needs two times", where="times", mend="Give more times, or a later horizon.")
    return float(np.trapezoid(scores, times) / (times[-1] - times[0]))
