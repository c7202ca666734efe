"""Scores of survival predictions from sums over patients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from multicentre.survival.scores.concordance import share_of_pairs

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def restricted_mean_edges(horizon: float, n_bins: int) -> Floats:
    """Return the edges between equal bins of restricted means, shape (n_bins - 1,).

    Examples
    --------
    >>> restricted_mean_edges(8.0, 4).tolist()
    [2.0, 4.0, 6.0]
    """
    return np.linspace(0.0, horizon, n_bins + 1)[1:-1]


def count_cells(rows: Integers, columns: Integers, shape: tuple[int, int], weights: Floats | None = None) -> Floats:
    """Count patients by row and column, with optional weights, in the given shape; those outside are left out.

    Examples
    --------
    >>> count_cells(np.array([0, 1, 1]), np.array([1, 0, 2]), (2, 2)).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    inside = (rows < shape[0]) & (columns < shape[1])
    flat = rows[inside] * shape[1] + columns[inside]
    mass = None if weights is None else weights[inside]
    counted = np.bincount(flat, weights=mass, minlength=shape[0] * shape[1])
    return counted.reshape(shape).astype(np.float64)


def count_touched(low: Floats, high: Floats, n_bins: int) -> Floats:
    """Count the patients' intervals within 0 to 1 that overlap each of equal bins, shape (n_bins,).

    Examples
    --------
    >>> count_touched(np.array([0.0, 0.25]), np.array([0.75, 0.25]), 2).tolist()
    [2.0, 1.0]
    """
    first = np.minimum((low * n_bins).astype(np.int64), n_bins - 1)
    last = np.clip(np.ceil(high * n_bins).astype(np.int64) - 1, first, n_bins - 1)
    opened = np.bincount(first, minlength=n_bins + 1)
    closed = np.bincount(last + 1, minlength=n_bins + 1)
    return np.cumsum(opened - closed)[:n_bins].astype(np.float64)


def pairs_from_counts(events: Floats, censored: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the numbers of pairs of each patient of a cell: won and comparable, with an event and censored.

    A pair is comparable if one patient has an event and the other is followed to a later bin, or is censored in the
    same bin. It is won if the former has the lower restricted mean, and counts 1/2 if both have the same bin of it.

    Parameters
    ----------
    events : array of shape (R, C)
        Patients with an event by bin of the restricted mean, in increasing order, and bin of time.
    censored : array of shape (R, C + 1)
        Other patients by end of follow-up; the last bin is beyond all times.

    Returns
    -------
    won_with, comparable_with, won_without, comparable_without : arrays of shape (R, C + 1)
        Numbers for a patient with an event in the cell, and for one censored in the cell.

    Examples
    --------
    >>> won, comparable, *_ = pairs_from_counts(np.array([[1.0], [0.0]]), np.array([[0.0, 0.0], [0.0, 1.0]]))
    >>> float(won[0, 0]), float(comparable[0, 0])
    (1.0, 1.0)
    """
    with_event = np.pad(events, ((0, 0), (0, 1)))
    leaving = with_event + censored
    later = np.cumsum(leaving[:, ::-1], axis=1)[:, ::-1] - with_event
    upto = np.cumsum(with_event, axis=1)
    before = upto - with_event
    event_won = later.sum(axis=0) - np.cumsum(later, axis=0) + 0.5 * later
    lost_before, lost_upto = (np.cumsum(table, axis=0) - 0.5 * table for table in (before, upto))
    comparable_with, comparable_without = later.sum(axis=0) + before.sum(axis=0), upto.sum(axis=0)
    shape = later.shape
    return (
        event_won + lost_before,
        np.broadcast_to(comparable_with, shape),
        lost_upto,
        np.broadcast_to(comparable_without, shape),
    )


def concordance_from_counts(events: Floats, censored: Floats) -> tuple[float, float]:
    """Return the concordance index of patients counted by restricted mean and time, and its standard error.

    The error is that of :func:`multicentre.survival.scores.concordance.concordance_with_error`.

    Parameters
    ----------
    events : array of shape (R, C)
    censored : array of shape (R, C + 1)
        As in :func:`pairs_from_counts`.

    Returns
    -------
    tuple of float
        Both NaN without comparable pairs.

    Examples
    --------
    >>> events = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> share, error = concordance_from_counts(events, np.array([[0.0, 0.0, 0.0], [0.0, 0.0, 1.0]]))
    >>> round(share, 3), round(error, 3)
    (0.833, 0.136)
    """
    won_with, comparable_with, won_without, comparable_without = pairs_from_counts(events, censored)
    sums = np.zeros(5)
    cells = (
        (np.pad(events, ((0, 0), (0, 1))), won_with, comparable_with),
        (censored, won_without, comparable_without),
    )
    for count, won, comparable in cells:
        terms = (comparable / 2, won / 2, won**2, won * comparable, comparable**2)
        sums += [float((count * term).sum()) for term in terms]
    return share_of_pairs(*sums.tolist())


def at_risk(events: Floats, censored: Floats) -> Floats:
    """Return patients at risk at each time, shape (..., K), from events and censorings, the last beyond all times.

    Parameters
    ----------
    events : array of shape (..., K)
    censored : array of shape (..., K + 1)

    Examples
    --------
    >>> at_risk(np.array([1.0, 0.0]), np.array([0.0, 1.0, 2.0])).tolist()
    [4.0, 3.0]
    """
    leaving = censored.copy()
    leaving[..., :-1] += events
    return np.asarray(np.cumsum(leaving[..., ::-1], axis=-1)[..., ::-1][..., :-1], dtype=np.float64)


def reference_scores(survival: Floats, cases: Floats, controls: Floats, n_patients: float) -> Floats:
    """Return the Brier score of one curve for all patients, shape (T,).

    Parameters
    ----------
    survival : array of shape (T,)
        Curve of all patients.
    cases, controls : arrays of shape (T,)
        Summed weights of patients with an event by each time, and of those followed beyond it.
    n_patients : float

    Examples
    --------
    >>> reference_scores(np.array([0.5]), np.array([1.0]), np.array([1.0]), 2.0).tolist()
    [0.25]
    """
    return np.asarray((survival**2 * cases + (1 - survival) ** 2 * controls) / n_patients, dtype=np.float64)


def mean_weights(times: Floats) -> Floats:
    """Return the weight of each time in a mean over time by the trapezoidal rule, shape (T,); the sum is 1.

    Examples
    --------
    >>> mean_weights(np.array([0.0, 1.0, 4.0])).tolist()
    [0.125, 0.5, 0.375]
    """
    if len(times) == 1:
        return np.ones(1)
    steps = np.diff(times)
    return np.asarray((np.append(steps, 0.0) + np.append(0.0, steps)) / (2 * steps.sum()), dtype=np.float64)


def interval(value: float, standard_error: float, level: float = 0.95) -> tuple[float, float]:
    """Return a confidence interval of a share, by the normal distribution, within 0 and 1.

    Examples
    --------
    >>> interval(0.9, 0.1)[1]
    1.0
    """
    half = float(norm.ppf(0.5 + level / 2)) * standard_error
    return max(value - half, 0.0), min(value + half, 1.0)


def inverse_of(staying: Floats) -> Floats:
    """Return 1 / G, same shape; 0 where G is 0.

    Examples
    --------
    >>> inverse_of(np.array([0.5, 0.0])).tolist()
    [2.0, 0.0]
    """
    return np.divide(1.0, staying, out=np.zeros_like(staying), where=staying > 0)
