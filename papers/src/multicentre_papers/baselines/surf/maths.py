"""Allocation of trees to sites, and sampling of trees (FedSurF: Archetti, Ieva and Matteucci, 2023)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import DataError
from multicentre.survival.scores.brier import brier_times, integrated_brier_score
from multicentre.survival.scores.concordance import concordance_index
from multicentre.survival.times import at_times

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]


def allot_trees(
    n_estimators: int, n_patients: Floats, offered: Integers, rng: np.random.Generator, *, replacement: bool = False
) -> Integers:
    """Draw the number of trees of each site, shape (s,), from a multinomial distribution by number of patients.

    Trees that a site cannot provide are moved at random to sites with spare trees, one at a time. If all sites have
    fewer than `n_estimators` trees in total, all trees are used.

    Parameters
    ----------
    n_estimators : int
    n_patients : array of shape (s,)
    offered : array of shape (s,)
        Trees that each site has; a site without trees is not part of the draw.
    rng : numpy.random.Generator
    replacement : bool
        Sites draw their trees with replacement, so no site lacks trees.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> allot_trees(10, np.array([50.0, 50.0, 900.0]), np.array([8, 0, 6]), rng).tolist()
    [4, 0, 6]
    """
    mass = n_patients * (offered > 0)
    allotted: Integers = rng.multinomial(n_estimators, mass / mass.sum()).astype(np.int64)
    if replacement:
        return allotted
    short = np.maximum(allotted - offered, 0)
    allotted = allotted - short
    for _ in range(min(int(short.sum()), int((offered - allotted).sum()))):
        allotted[rng.choice(np.flatnonzero(offered > allotted))] += 1
    return allotted


def chances_of(gains: Floats) -> Floats:
    """Convert gains (higher is better) to probabilities of the trees: 0 for the worst tree, with a sum of 1.

    Examples
    --------
    >>> chances_of(np.array([2.0, 4.0, 8.0])).tolist(), chances_of(np.array([3.0, 3.0])).tolist()
    ([0.0, 0.25, 0.75], [0.5, 0.5])
    """
    scaled = gains - gains.min()
    if not scaled.max() > 0:
        return np.full(len(gains), 1.0 / len(gains))
    return np.asarray(scaled / scaled.sum(), dtype=np.float64)


def draw_trees(chances: Floats, n_drawn: int, rng: np.random.Generator, *, replacement: bool = False) -> Integers:
    """Draw trees, and return the number of draws of each, shape (T,).

    Without replacement, each tree is drawn in proportion to the probabilities of those that remain; trees of
    probability 0 come last, in random order.

    Examples
    --------
    >>> draw_trees(np.array([0.0, 0.5, 0.5]), 2, np.random.default_rng(0)).tolist()
    [0, 1, 1]
    """
    if replacement:
        return np.asarray(rng.multinomial(n_drawn, chances), dtype=np.int64)
    ranks = np.log(rng.exponential(size=len(chances)))
    waits = np.full(len(chances), np.inf)
    waits[chances > 0] = ranks[chances > 0] - np.log(chances[chances > 0])
    drawn = np.zeros(len(chances), dtype=np.int64)
    drawn[np.lexsort((ranks, waits))[:n_drawn]] = 1
    return drawn


def brier_gains(
    curves: Floats, grid: Floats, time: Floats, event: Flags, training_time: Floats, training_event: Flags
) -> Floats:
    """Return the inverse of the integrated Brier score of each tree, shape (T,); equal values if it is undefined.

    The score uses 100 equidistant times, from the first time of the validation patients to their last but one, or the
    last time at which training patients are observed.

    Parameters
    ----------
    curves : array of shape (n, T, K)
        Curve of each validation patient in each tree.
    grid : array of shape (K,)
    time, event : arrays of shape (n,)
        Validation patients.
    training_time, training_event : arrays of shape (m,)
        Patients from whom the censoring distribution is estimated.

    Examples
    --------
    >>> time, event = np.array([1.0, 2.0, 3.0]), np.ones(3, dtype=np.bool_)
    >>> good, poor = np.tri(3, k=-1), np.full((3, 3), 0.5)
    >>> gains = brier_gains(np.stack([good, poor], axis=1), time, time, event, time, event)
    >>> bool(gains[0] > gains[1])
    True
    """
    times = brier_times(time, training_time, training_event, float(grid[-1]))
    if len(times) < 2:
        return np.ones(curves.shape[1])
    outcomes = time, event, training_time, training_event
    scores = [
        integrated_brier_score(at_times(tree_curves, grid, times), times, *outcomes)
        for tree_curves in curves.swapaxes(0, 1)
    ]
    return 1.0 / np.maximum(scores, np.finfo(np.float64).tiny)


def concordance_gains(means: Floats, time: Floats, event: Flags) -> Floats:
    """Return the concordance of each tree's mean times with the patients' times, shape (T,); equal values if undefined.

    Parameters
    ----------
    means : array of shape (n, T)
        Mean time survived of each validation patient in each tree.
    time, event : arrays of shape (n,)

    Examples
    --------
    >>> concordance_gains(np.array([[1.0, 2.0], [2.0, 1.0]]), np.array([1.0, 2.0]), np.array([True, True])).tolist()
    [1.0, 0.0]
    """
    try:
        return np.array([concordance_index(time, event, -tree_means) for tree_means in means.T])
    except DataError:
        return np.ones(means.shape[1])
