"""Weights, losses and votes of FedSurvBoost as functions of arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.tie_breaking import first_least

Floats = NDArray[np.float64]

N_BINS = 64

N_DIGITS = 8


def mark_bin(largest: Floats, low: Floats, width: float) -> Floats:
    """Return a 1 in the bin of each value that lies above `low`, shape (q, 64).

    Parameters
    ----------
    largest : array of shape (q,)
        A site's largest value, by hypothesis.
    low : array of shape (q,)
        Where the bins of each hypothesis begin.
    width : float
        Width of a bin. A value beyond the last bin is in the last.

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
    """Return where the highest bin begins that some site marked, shape (q,); `low` where none is marked.

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


SMALLEST_ERROR = 1e-10

FIRST_VOTE = 1e-3

NO_HYPOTHESIS = "no site could fit a hypothesis"

NO_ERROR = "a hypothesis makes no error"

TOO_MUCH_ERROR = "the best hypothesis is no better than a guess"


@dataclass(frozen=True)
class Rule:
    """How an error becomes a vote, and when boosting ends.

    Parameters
    ----------
    rate : float
        Learning rate, above 0, at most 1.
    largest : float
        An error from here on is no better than a guess.
    bonus : float
        What is added to the log odds: the logarithm of the number of classes less one, or 0.
    perfect : float, optional
        Vote of a hypothesis without error; by default that of an error of 1e-10.
    equal : bool
        Every hypothesis has one vote, and nothing ends the rounds.
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
    """What a round decided.

    Parameters
    ----------
    index : int
        Place of the best hypothesis; -1 where there is none.
    error : float
        Its mean loss under the weights, not a number where there is none.
    vote : float
        Its vote; 0 where it is not kept.
    stop : str
        Why boosting ends here; empty where it goes on.
    """

    index: int
    error: float
    vote: float
    stop: str

    @property
    def kept(self) -> bool:
        """Whether the hypothesis joins the ensemble."""
        return self.vote > 0


def decide(losses: Floats, scales: Floats, total: float, rule: Rule, *, is_first: bool) -> Verdict:
    """Return a round's hypothesis: the one of the smallest summed loss, the first of those tied.

    Parameters
    ----------
    losses : array of shape (q,)
        Weighted losses of every hypothesis, summed over sites, in the loss's own unit. A hypothesis whose sum is not
        finite is passed over.
    scales : array of shape (q,)
        Largest loss that counts as 1, by hypothesis.
    total : float
        Sum of the weights over sites.
    rule : Rule
    is_first : bool
        Nothing was kept so far: a hypothesis no better than a guess is kept with a vote of 0.001.

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
    """Return the vote of an error: the learning rate times its log odds of being right, plus the bonus.

    Examples
    --------
    >>> round(vote_of(0.2, Rule(rate=0.1)), 4)
    0.1386
    """
    error = max(error, SMALLEST_ERROR)
    return rule.rate * (float(np.log((1.0 - error) / error)) + rule.bonus)


def scale_weights(log_weights: Floats, log_total: float, log_cap: float) -> Floats:
    """Return log weights that sum to 1 over all sites, none above the cap.

    Parameters
    ----------
    log_weights : array of shape (n,)
        Minus infinity for a patient who takes no part.
    log_total : float
        Logarithm of the sum of the weights over all sites.
    log_cap : float
        Infinity for none.

    Examples
    --------
    >>> np.exp(scale_weights(np.log([1.0, 3.0]), np.log(4.0), np.log(0.5))).round(6).tolist()
    [0.25, 0.5]
    """
    return np.asarray(np.minimum(log_weights - log_total, log_cap), dtype=np.float64)


def reweigh(log_weights: Floats, losses: Floats, vote: float) -> Floats:
    """Return log weights after a round: each times exp(-vote (1 - loss)), losses from 0 to 1.

    This is beta^(rate (1 - L)) of AdaBoost.R2 (equation 12 of the FedSurvBoost paper, corrected), and SAMME's factor
    for the wrongly classified, up to a factor that all patients share.

    Examples
    --------
    >>> reweigh(np.zeros(2), np.array([0.0, 1.0]), 0.5).tolist()
    [-0.5, 0.0]
    """
    return np.asarray(log_weights - vote * (1.0 - losses), dtype=np.float64)


def normalised(log_weights: Floats) -> Floats:
    """Return weights that sum to the number of patients who take part, shape (n,); zeros where nobody does.

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
    """Return log weights whose mean is one over the number of all patients, shape (n,).

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
    """Return how often each patient is drawn in a bootstrap by weight, as many draws as patients of weight above 0.

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
    """Return how many equally weighted patients the weights amount to (Kish), 0 without any.

    Examples
    --------
    >>> effective_number(np.array([1.0, 1.0, 0.0])), effective_number(np.zeros(2))
    (2.0, 0.0)
    """
    squares = float(np.square(weights).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0 else 0.0


def split_in_folds(strata: Integers, n_folds: int, rng: np.random.Generator) -> Integers:
    """Return a fold from 1 for every patient, as many of each stratum in every fold as can be.

    Examples
    --------
    >>> folds = split_in_folds(np.array([0, 0, 1, 1]), 2, np.random.default_rng(0))
    >>> sorted(folds[:2].tolist()), sorted(folds[2:].tolist())
    ([1, 2], [1, 2])
    """
    order = np.lexsort((rng.random(len(strata)), strata))
    folds = np.empty(len(strata), dtype=np.int64)
    folds[order] = 1 + np.arange(len(strata)) % n_folds
    return folds
