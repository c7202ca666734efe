"""How far a predicted time or curve is from what happened to a patient; each loss is bounded."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Integers = NDArray[np.int64]
LARGEST_CENSORING_WEIGHT = 10.0


def time_losses(predicted: Floats, time: Floats, happened: Flags) -> Floats:
    """Return how far times are off: either way where the event happened, too early where follow-up ended before.

    Equation 9 of the FedSurvBoost paper.

    Parameters
    ----------
    predicted : array of shape (n, ...)
    time : array of shape (n,)
        Cut at the horizon.
    happened : array of shape (n,)
        Whether the event happened by the horizon.

    Examples
    --------
    >>> time_losses(np.array([1.0, 1.0, 5.0]), np.full(3, 4.0), np.array([True, False, False])).tolist()
    [3.0, 3.0, 0.0]
    """
    shape = (-1,) + (1,) * (predicted.ndim - 1)
    early = time.reshape(shape) - predicted
    return np.asarray(np.where(happened.reshape(shape), np.abs(early), np.maximum(early, 0.0)), dtype=np.float64)


def brier_tables(curves: Floats, times: Floats, staying: Floats) -> tuple[Floats, Floats]:
    """Return what curves cost a patient of every bin: while under observation, and after an event.

    Parameters
    ----------
    curves : array of shape (L, K)
    times : array of shape (K,)
    staying : array of shape (K,)
        Chance of not being censored (reverse Kaplan-Meier) on the grid.

    Returns
    -------
    two arrays of shape (L, K + 1)
        Squared errors by the bin of the patient's time, integrated over the grid and divided by the horizon; the
        second is still to be multiplied by the censoring weight of the event's time.

    Examples
    --------
    >>> watched, after = brier_tables(np.array([[1.0, 0.5]]), np.array([1.0, 2.0]), np.ones(2))
    >>> watched.tolist(), after.tolist()
    ([[0.0, 0.0, 0.125]], [[0.625, 0.125, 0.0]])
    """
    widths = np.diff(times, prepend=0.0) / times[-1]
    nothing = np.zeros((len(curves), 1))
    watched = np.cumsum(np.square(1.0 - curves) * (widths * censoring_weights(staying)), axis=1)
    after = np.cumsum((np.square(curves) * widths)[:, ::-1], axis=1)[:, ::-1]
    return np.hstack([nothing, watched]), np.hstack([after, nothing])


def brier_losses(
    tables: tuple[Floats, Floats], row: Integers, bins: Integers, happened: Flags, staying: Floats
) -> Floats:
    """Return each patient's integrated squared error with inverse weights for censoring, shape (n,).

    On the grid, events of a bin come before its censorings: an event of bin k weighs by the chance of staying up to
    the time before.

    Parameters
    ----------
    tables : two arrays of shape (L, K + 1)
        Of :func:`brier_tables`.
    row : array of shape (n,)
        Which curve is the patient's.
    bins, happened : arrays of shape (n,)
    staying : array of shape (K,)

    Examples
    --------
    >>> tables = brier_tables(np.array([[1.0, 0.5]]), np.array([1.0, 2.0]), np.ones(2))
    >>> brier_losses(tables, np.zeros(3, int), np.array([0, 1, 2]), np.array([True, False, False]), np.ones(2)).tolist()
    [0.625, 0.0, 0.125]
    """
    watched, after = tables
    weights = censoring_weights(np.concatenate([[1.0], staying]))
    return np.asarray(watched[row, bins] + np.where(happened, after[row, bins] * weights[bins], 0.0), dtype=np.float64)


def censoring_weights(staying: Floats) -> Floats:
    """Return 1 over the chance of staying, at most 10.

    Examples
    --------
    >>> censoring_weights(np.array([1.0, 0.5, 0.0])).tolist()
    [1.0, 2.0, 10.0]
    """
    return np.asarray(1.0 / np.maximum(staying, 1.0 / LARGEST_CENSORING_WEIGHT), dtype=np.float64)


def weighted_median(values: Floats, votes: Floats) -> Floats:
    """Return each patient's weighted median of the hypotheses' values, shape (n,) (Drucker 1997).

    Parameters
    ----------
    values : array of shape (n, R)
    votes : array of shape (R,)

    Examples
    --------
    >>> weighted_median(np.array([[3.0, 1.0, 2.0]]), np.array([1.0, 1.0, 3.0])).tolist()
    [2.0]
    """
    order = np.argsort(values, axis=1, kind="stable")
    reached = np.cumsum(votes[order], axis=1)
    place = np.argmax(reached >= 0.5 * reached[:, -1:], axis=1)
    return np.asarray(np.take_along_axis(values, np.take_along_axis(order, place[:, None], 1), 1)[:, 0])
