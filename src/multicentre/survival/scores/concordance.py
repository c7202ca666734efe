"""Concordance: share of pairs in which the patient of higher risk has the earlier event."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import DataError
from multicentre.survival.scores.brier import Censoring

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.int64]


def concordance_index(time: Floats, event: Flags, risk: Floats, *, tied_tol: float = 1e-8) -> float:
    """Return Harrell's concordance index: the share of comparable pairs with risks in the right order.

    Two patients are comparable if one has an event and the other is followed for longer, or is censored at the same
    time (Harrell, Lee and Mark, Statistics in Medicine 1996). Tied risks count 1/2.

    Parameters
    ----------
    time : array of shape (n,)
    event : array of bool of shape (n,)
    risk : array of shape (n,)
        Higher for an earlier event.
    tied_tol : float, default 1e-8
        Largest difference of tied risks.

    Returns
    -------
    float
        Concordance from 0 to 1; 0.5 by chance.

    Raises
    ------
    DataError
        No two patients are comparable.

    Examples
    --------
    >>> concordance_index(np.array([1.0, 2.0, 3.0]), np.array([True, True, False]), np.array([0.9, 0.1, 0.4]))
    0.6666666666666666
    """
    return _weighted_share(pairs_of_events(time, event, risk, tied_tol), np.ones(len(time)))


def uno_concordance(
    time: Floats,
    event: Flags,
    risk: Floats,
    censoring: Censoring,
    *,
    horizon: float | None = None,
    tied_tol: float = 1e-8,
) -> float:
    """Return Uno's concordance, which corrects for censoring.

    An event at t < `horizon` has weight 1 / G(t)^2 (Uno, Cai, Pencina, D'Agostino and Wei, Statistics in Medicine
    2011).

    Parameters
    ----------
    time, event, risk : arrays of shape (n,)
        As in :func:`concordance_index`.
    censoring : Censoring
        Censoring distribution of the training patients, whose last time ends the follow-up.
    horizon : float, optional
        Time before which events count.
    tied_tol : float, default 1e-8

    Returns
    -------
    float
        Concordance from 0 to 1; 0.5 by chance.

    Raises
    ------
    DataError
        No two patients are comparable.

    Examples
    --------
    >>> time, event = np.array([1.0, 2.0, 3.0]), np.array([True, True, False])
    >>> uno_concordance(time, event, np.array([0.9, 0.1, 0.4]), Censoring.estimate(time, event))
    0.6666666666666666
    """
    time, event = censoring.cut(time, event)
    counts = event if horizon is None else event & (time < horizon)
    weights = np.where(counts, censoring.weights(time) ** 2, 0.0)
    return _weighted_share(pairs_of_events(time, event, risk, tied_tol), weights)


def concordance_with_error(time: Floats, event: Flags, risk: Floats, *, tied_tol: float = 1e-8) -> tuple[float, float]:
    """Return Harrell's concordance index and its standard error; arguments as in :func:`concordance_index`.

    The error is the infinitesimal jackknife of a ratio of U-statistics: the square root of the sum over patients of
    (won - C comparable)^2, divided by the number of pairs. Here "comparable" is the number of comparable pairs of a
    patient, and "won" the number of those in the right order.

    Raises
    ------
    DataError
        No two patients are comparable.

    Examples
    --------
    >>> time, event = np.array([1.0, 2.0, 3.0]), np.array([True, True, False])
    >>> share, error = concordance_with_error(time, event, np.array([0.9, 0.1, 0.4]))
    >>> round(share, 3), round(error, 3)
    (0.667, 0.272)
    """
    sums = sum_pairs(time, event, risk, tied_tol)
    _check_comparable(sums[0])
    return share_of_pairs(*sums)


def sum_pairs(
    time: Floats, event: Flags, risk: Floats, tied_tol: float = 1e-8
) -> tuple[float, float, float, float, float]:
    """Return the sums over patients behind :func:`share_of_pairs`.

    Examples
    --------
    >>> sum_pairs(np.array([1.0, 2.0]), np.array([True, False]), np.array([0.9, 0.1]))
    (1.0, 1.0, 2.0, 2.0, 2.0)
    """
    from multicentre.survival.kernels.pairs import count_pairs, count_partners

    time, happened = np.array(time, dtype=np.float64), np.array(event, dtype=np.bool_)
    order, place, low, high = _places(time, risk, tied_tol)
    earlier = count_pairs(time, happened, order, place, low, high)
    later = count_partners(time, happened, order, place, low, high)
    both = np.add(earlier, later, dtype=np.float64)
    won, comparable = both[:, 0] + 0.5 * both[:, 1], both[:, 2]
    pairs = float(comparable.sum() / 2), float(won.sum() / 2)
    return *pairs, float(won @ won), float(won @ comparable), float(comparable @ comparable)


def share_of_pairs(
    comparable: float, won: float, won_squared: float, crossed: float, comparable_squared: float
) -> tuple[float, float]:
    """Return the share of comparable pairs in the right order, and its standard error; both NaN without pairs.

    Parameters
    ----------
    comparable, won : float
        Numbers of pairs, and of pairs in the right order; tied ones count 1/2.
    won_squared, crossed, comparable_squared : float
        Sums over patients of squares and products of their numbers of pairs.

    Examples
    --------
    >>> share_of_pairs(1.0, 1.0, 2.0, 2.0, 2.0)
    (1.0, 0.0)
    """
    if comparable < 0.5:
        return float("nan"), float("nan")
    share = won / comparable
    squares = won_squared - 2 * share * crossed + share**2 * comparable_squared
    return float(share), float(np.sqrt(max(squares, 0.0)) / comparable)


def pairs_of_events(time: Floats, event: Flags, risk: Floats, tied_tol: float = 1e-8) -> NDArray[np.int64]:
    """Count each event's comparable patients: of lower risk, of tied risk, and all, shape (n, 3).

    Examples
    --------
    >>> pairs_of_events(np.array([1.0, 2.0]), np.array([True, True]), np.array([0.5, 0.5])).tolist()
    [[0, 1, 1], [0, 0, 0]]
    """
    from multicentre.survival.kernels.pairs import count_pairs

    time, happened = np.array(time, dtype=np.float64), np.array(event, dtype=np.bool_)
    order, place, low, high = _places(time, risk, tied_tol)
    return np.asarray(count_pairs(time, happened, order, place, low, high), dtype=np.int64)


def _places(time: Floats, risk: Floats, tied_tol: float) -> tuple[Places, Places, Places, Places]:
    order = np.argsort(-time, kind="stable")
    upwards = np.argsort(risk, kind="stable")
    place = np.empty(len(risk), dtype=np.int64)
    place[upwards] = np.arange(len(risk))
    low = np.searchsorted(risk[upwards], risk - tied_tol, side="left")
    high = np.searchsorted(risk[upwards], risk + tied_tol, side="right")
    return order.astype(np.int64), place, low.astype(np.int64), high.astype(np.int64)


def _weighted_share(pairs: NDArray[np.int64], weights: Floats) -> float:
    comparable = float(weights @ pairs[:, 2])
    _check_comparable(comparable)
    return float(weights @ (pairs[:, 0] + 0.5 * pairs[:, 1])) / comparable


def _check_comparable(pairs: float) -> None:
    if pairs <= 0:
        raise DataError(
            "at least two patients must be comparable; got no such pair",
            where="time and event",
            hint="Use patients with events and different times.",
        )
