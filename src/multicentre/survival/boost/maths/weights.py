"""Weights of a site's patients, kept as logarithms and scaled by the sum over all sites."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


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
