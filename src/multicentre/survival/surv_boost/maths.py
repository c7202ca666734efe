"""Weights, losses and votes of FedSurvBoost as functions of arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.tie_breaking import first_least

Floats = NDArray[np.float64]

# Bins per step of the search for the largest loss; each step finds 6 binary digits.
N_BINS = 64

# Steps of the search: 8 times 6 = 48 binary digits.
N_DIGITS = 8


def mark_bin(largest: Floats, low: Floats, width: float) -> Floats:
    """Return an indicator of the bin of each value that is at least `low`, shape (q, 64).

    Parameters
    ----------
    largest : array of shape (q,)
        Largest value at a site, by hypothesis.
    low : array of shape (q,)
        Lower end of the first bin of each hypothesis.
    width : float
        Width of a bin. Values beyond the last bin are assigned to the last bin.

    Examples
    --------
    >>> np.argwhere(mark_bin(np.array([2.5, 0.5]), np.array([0.0, 1.0]), 1.0)).tolist()
    [[0, 2]]
    """
    marks = np.zeros((len(largest), N_BINS))
    for row in np.flatnonzero(largest >= low):
        marks[row, min(int((largest[row] - low[row]) / width), N_BINS - 1)] = 1.0
    return marks


def go_to_highest(low: Floats, width: float, marks: Floats) -> Floats:
    """Return the lower end of the highest bin marked by any site, shape (q,); `low` if no bin is marked.

    Examples
    --------
    >>> go_to_highest(np.zeros(1), 1.0, np.eye(64)[[5]] + np.eye(64)[[3]]).tolist()
    [5.0]
    """
    occupied = marks > 0.5
    highest = N_BINS - 1 - np.argmax(occupied[:, ::-1], axis=1)
    return np.asarray(low + np.where(occupied.any(axis=1), highest, 0) * width, dtype=np.float64)


Flags = NDArray[np.bool_]

Integers = NDArray[np.int64]

# Maximum inverse probability of censoring weight.
MAX_CENSORING_WEIGHT = 10.0


def time_losses(predicted: Floats, time: Floats, happened: Flags) -> Floats:
    """Return absolute errors of predicted times for events, and only underestimation for censored patients.

    Equation 9 of the FedSurvBoost paper.

    Parameters
    ----------
    predicted : array of shape (n, ...)
    time : array of shape (n,)
        Times, cut at the horizon.
    happened : array of shape (n,)
        True if the event happened by the horizon.

    Examples
    --------
    >>> time_losses(np.array([1.0, 1.0, 5.0]), np.full(3, 4.0), np.array([True, False, False])).tolist()
    [3.0, 3.0, 0.0]
    """
    shape = (-1,) + (1,) * (predicted.ndim - 1)
    early = time.reshape(shape) - predicted
    return np.asarray(np.where(happened.reshape(shape), np.abs(early), np.maximum(early, 0.0)), dtype=np.float64)


def brier_tables(curves: Floats, times: Floats, staying: Floats) -> tuple[Floats, Floats]:
    """Return the loss of each curve for a patient of every bin: while under observation, and after an event.

    Parameters
    ----------
    curves : array of shape (L, K)
    times : array of shape (K,)
    staying : array of shape (K,)
        Probability of not being censored (reverse Kaplan-Meier) on the grid.

    Returns
    -------
    two arrays of shape (L, K + 1)
        Squared errors by the bin of the patient's time, integrated over the grid and divided by the horizon. The
        second array has yet to be multiplied by the censoring weight of the event time.

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
    """Return each patient's integrated squared error with inverse probability of censoring weights, shape (n,).

    On the grid, events of a bin precede its censorings: an event of bin k is weighted by the probability of not being
    censored up to the previous time.

    Parameters
    ----------
    tables : two arrays of shape (L, K + 1)
        Result of :func:`brier_tables`.
    row : array of shape (n,)
        Index of the patient's curve.
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
    """Return the inverse of the probability of not being censored, at most 10.

    Examples
    --------
    >>> censoring_weights(np.array([1.0, 0.5, 0.0])).tolist()
    [1.0, 2.0, 10.0]
    """
    return np.asarray(1.0 / np.maximum(staying, 1.0 / MAX_CENSORING_WEIGHT), dtype=np.float64)


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
    cumulative = np.cumsum(votes[order], axis=1)
    place = np.argmax(cumulative >= 0.5 * cumulative[:, -1:], axis=1)
    return np.asarray(np.take_along_axis(values, np.take_along_axis(order, place[:, None], 1), 1)[:, 0])


# Avoids an infinite vote of a hypothesis without error.
SMALLEST_ERROR = 1e-10

# Vote of a first hypothesis that is no better than a guess.
FIRST_VOTE = 1e-3

NO_HYPOTHESIS = "no site could fit a hypothesis"

NO_ERROR = "a hypothesis makes no error"

TOO_MUCH_ERROR = "the best hypothesis is no better than a guess"


@dataclass(frozen=True)
class Rule:
    """Rule that maps an error to a vote and ends the boosting.

    Parameters
    ----------
    rate : float
        Learning rate, above 0 and at most 1.
    largest : float
        Smallest error that is no better than a guess.
    bonus : float
        Term added to the log odds: the logarithm of the number of classes minus 1, or 0.
    perfect : float, optional
        Vote of a hypothesis without error; by default the vote of an error of 1e-10.
    equal : bool
        Give every hypothesis one vote, and never stop early.
    """

    rate: float = 1.0
    largest: float = 0.5
    bonus: float = 0.0
    perfect: float | None = None
    equal: bool = False

    @classmethod
    def of_classes(cls, n_classes: int, rate: float) -> Rule:
        """Return SAMME's rule.

        Examples
        --------
        >>> Rule.of_classes(4, 1.0).largest
        0.75
        """
        return cls(rate, 1.0 - 1.0 / n_classes, float(np.log(n_classes - 1.0)), 1.0)


@dataclass(frozen=True)
class Verdict:
    """Decision of a round.

    Parameters
    ----------
    index : int
        Index of the best hypothesis; -1 if there is none.
    error : float
        Mean loss of this hypothesis under the weights; NaN if there is none.
    vote : float
        Vote of this hypothesis; 0 if it is not selected.
    stop : str
        Reason to stop; empty if boosting continues.
    """

    index: int
    error: float
    vote: float
    stop: str

    @property
    def is_selected(self) -> bool:
        """True if the hypothesis joins the ensemble."""
        return self.vote > 0


def decide(losses: Floats, scales: Floats, total: float, rule: Rule, *, is_first: bool) -> Verdict:
    """Select the hypothesis with the smallest summed loss; of equal ones the first.

    Parameters
    ----------
    losses : array of shape (q,)
        Weighted losses of every hypothesis, summed over sites, in the unit of the loss. Hypotheses with a non-finite
        sum are skipped.
    scales : array of shape (q,)
        Loss that counts as 1, by hypothesis.
    total : float
        Sum of the weights over sites.
    rule : Rule
    is_first : bool
        The ensemble is empty: a hypothesis no better than a guess is selected with a vote of 0.001.

    Examples
    --------
    >>> decide(np.array([0.3, 0.2, np.nan]), np.ones(3), 1.0, Rule(), is_first=True)
    Verdict(index=1, error=0.2, vote=1.3862943611198906, stop='')
    >>> decide(np.array([0.6]), np.ones(1), 1.0, Rule(), is_first=False).stop
    'the best hypothesis is no better than a guess'
    """
    usable = np.isfinite(losses)
    if not usable.any() or not total > 0:
        return Verdict(-1, float("nan"), 0.0, NO_HYPOTHESIS)
    index = int(first_least(losses, size=total * np.abs(scales)))
    scale = float(scales[index])
    error = float(losses[index]) / (scale * total) if scale > 0 else 0.0
    if rule.equal:
        return Verdict(index, error, 1.0, "")
    if error >= rule.largest:
        return Verdict(index, error, FIRST_VOTE if is_first else 0.0, TOO_MUCH_ERROR)
    if error <= 0.0:
        return Verdict(index, error, vote_of(0.0, rule) if rule.perfect is None else rule.perfect, NO_ERROR)
    return Verdict(index, error, vote_of(error, rule), "")


def vote_of(error: float, rule: Rule) -> float:
    """Return the vote of an error: learning rate times log odds of being correct, plus the bonus.

    Examples
    --------
    >>> round(vote_of(0.2, Rule(rate=0.1)), 4)
    0.1386
    """
    error = max(error, SMALLEST_ERROR)
    return rule.rate * (float(np.log((1.0 - error) / error)) + rule.bonus)


def scale_weights(log_weights: Floats, log_total: float, log_cap: float) -> Floats:
    """Return log weights that sum to 1 over all sites, bounded by the cap.

    Parameters
    ----------
    log_weights : array of shape (n,)
        Minus infinity for a patient who is not included.
    log_total : float
        Logarithm of the sum of the weights over all sites.
    log_cap : float
        Logarithm of the maximum weight; infinity for none.

    Examples
    --------
    >>> np.exp(scale_weights(np.log([1.0, 3.0]), np.log(4.0), np.log(0.5))).round(6).tolist()
    [0.25, 0.5]
    """
    return np.asarray(np.minimum(log_weights - log_total, log_cap), dtype=np.float64)


def reweigh(log_weights: Floats, losses: Floats, vote: float) -> Floats:
    """Return log weights after a round: weights are multiplied by exp(-vote (1 - loss)), losses from 0 to 1.

    This is beta^(rate (1 - L)) of AdaBoost.R2 (equation 12 of the FedSurvBoost paper, corrected), and SAMME's factor
    for misclassified samples, up to a factor common to all patients.

    Examples
    --------
    >>> reweigh(np.zeros(2), np.array([0.0, 1.0]), 0.5).tolist()
    [-0.5, 0.0]
    """
    return np.asarray(log_weights - vote * (1.0 - losses), dtype=np.float64)


def normalised(log_weights: Floats) -> Floats:
    """Return weights that sum to the number of included patients, shape (n,); zeros if there are none.

    Examples
    --------
    >>> normalised(np.array([-700.0, -700.0, -np.inf])).tolist()
    [1.0, 1.0, 0.0]
    """
    taking_part = np.isfinite(log_weights)
    if not taking_part.any():
        return np.zeros(len(log_weights))
    weights = np.exp(log_weights - log_weights[taking_part].max())
    return np.asarray(weights * (taking_part.sum() / weights.sum()), dtype=np.float64)


def share_out(log_weights: Floats, n_patients: float) -> Floats:
    """Return log weights with mean one over the number of all patients, shape (n,).

    Examples
    --------
    >>> np.exp(share_out(np.array([-800.0, -800.0, -np.inf]), 8.0)).round(9).tolist()
    [0.125, 0.125, 0.0]
    """
    taking_part = np.isfinite(log_weights)
    if not taking_part.any():
        return log_weights
    largest = float(log_weights[taking_part].max())
    log_mean = largest + float(np.log(np.exp(log_weights[taking_part] - largest).mean()))
    return np.asarray(log_weights - (log_mean + np.log(n_patients)), dtype=np.float64)


def resample(weights: Floats, rng: np.random.Generator) -> Floats:
    """Return the number of draws of each patient in a weighted bootstrap, with one draw per patient of weight above 0.

    Examples
    --------
    >>> resample(np.array([2.0, 0.0, 1.0]), np.random.default_rng(0)).tolist()
    [1.0, 0.0, 1.0]
    """
    n_draws = int((weights > 0).sum())
    if not n_draws:
        return np.zeros(len(weights))
    return rng.multinomial(n_draws, weights / weights.sum()).astype(np.float64)


def effective_number(weights: Floats) -> float:
    """Return the effective number of patients under the weights (Kish), 0 if all weights are 0.

    Examples
    --------
    >>> effective_number(np.array([1.0, 1.0, 0.0])), effective_number(np.zeros(2))
    (2.0, 0.0)
    """
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def split_in_folds(strata: Integers, n_splits: int, rng: np.random.Generator) -> Integers:
    """Return a fold from 1 for every patient, with strata distributed as evenly as possible.

    Examples
    --------
    >>> folds = split_in_folds(np.array([0, 0, 1, 1]), 2, np.random.default_rng(0))
    >>> sorted(folds[:2].tolist()), sorted(folds[2:].tolist())
    ([1, 2], [1, 2])
    """
    order = np.lexsort((rng.random(len(strata)), strata))
    folds = np.empty(len(strata), dtype=np.int64)
    folds[order] = 1 + np.arange(len(strata)) % n_splits
    return folds
