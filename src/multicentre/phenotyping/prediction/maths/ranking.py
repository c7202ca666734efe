"""The area under the curve without anyone's score: from counts in bins, between two bounds that cannot fail."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def split_by_outcome(outcomes: NDArray[np.int8], share: float, random: np.random.Generator) -> Flags:
    """Return which patients are held out, shape (n,): about `share` of those with either outcome.

    Examples
    --------
    >>> split_by_outcome(np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1], dtype=np.int8), 0.4, np.random.default_rng(0)).sum()
    np.int64(4)
    """
    held_out = np.zeros(len(outcomes), dtype=np.bool_)
    for outcome in (0, 1):
        rows = np.flatnonzero(outcomes == outcome)
        held_out[random.permutation(rows)[: round(share * len(rows))]] = True
    return held_out


def score_edges(intercept: float, coefficients: Floats, correlations: Floats, n_bins: int) -> Floats:
    """Return borders of `n_bins` bins of scores, shape (n_bins - 1,): quantiles of a normal law of scores.

    They follow from sums alone: the score of a patient is ``intercept + z @ coefficients`` with standardised z.

    Parameters
    ----------
    intercept : float
        Mean score.
    coefficients : array of shape (r,)
    correlations : array of shape (r, r)
        Of the memberships.
    n_bins : int
        At least 2.

    Examples
    --------
    >>> score_edges(-1.0, np.array([2.0]), np.eye(1), 4).round(2).tolist()
    [-2.35, -1.0, 0.35]
    """
    spread = np.sqrt(max(float(coefficients @ correlations @ coefficients), 0.0))
    return np.asarray(intercept + spread * ndtri(np.arange(1, n_bins) / n_bins))


def count_in_groups(scores: Floats, edges: Floats, fewest: int) -> tuple[Floats, Floats]:
    """Count scores by bin such that every count that is not 0 rests on `fewest` patients or more.

    From below, neighbouring bins are grouped until each group has as many patients as asked for. The group's count
    stands once at its lowest bin and once at its highest, so that every patient lies between the two places.

    Parameters
    ----------
    scores : array of shape (n,)
    edges : array of shape (b - 1,)
        Borders of bins, ascending.
    fewest : int

    Returns
    -------
    low, high : arrays of shape (b,)
        All 0 where there are fewer patients in all.

    Examples
    --------
    >>> low, high = count_in_groups(np.array([0.1, 1.1, 1.2, 3.3]), np.array([1.0, 2.0, 3.0]), 2)
    >>> low.tolist(), high.tolist()
    ([4.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 4.0])
    """
    bins = np.searchsorted(edges, scores, side="right")
    low, high = np.zeros(len(edges) + 1), np.zeros(len(edges) + 1)
    for first, last, n_patients in _grouped(np.bincount(bins, minlength=len(edges) + 1), max(fewest, 1)):
        low[first] += n_patients
        high[last] += n_patients
    return low, high


def bound_area(died: tuple[Floats, Floats], alive: tuple[Floats, Floats]) -> tuple[float, float]:
    """Return the least and the largest area under the curve that counts at lowest and highest places allow.

    Parameters
    ----------
    died, alive : pair of arrays of shape (b,)
        Counts at the lowest and at the highest places, from :func:`count_in_groups`, summed over sites. Both have
        patients.

    Examples
    --------
    >>> counts = np.array([1.0, 1.0, 0.0]), np.array([1.0, 1.0, 0.0])
    >>> bound_area((counts[0][::-1], counts[1][::-1]), counts)
    (0.75, 1.0)
    """
    pairs = float(died[0].sum() * alive[0].sum())
    surely_right = _pairs_above(died[0], alive[1])
    surely_wrong = _pairs_above(alive[0], died[1])
    return surely_right / pairs, 1.0 - surely_wrong / pairs


def area_under_curve(scores: Floats, outcomes: Flags) -> float:
    """Return the share of pairs of outcomes that scores rank rightly, ties counted half; not a number without pairs.

    Examples
    --------
    >>> area_under_curve(np.array([0.1, 0.4, 0.4, 0.8]), np.array([False, False, True, True]))
    0.875
    """
    n_died = int(outcomes.sum())
    n_pairs = n_died * (len(outcomes) - n_died)
    if not n_pairs:
        return float("nan")
    return float((rankdata(scores)[outcomes].sum() - n_died * (n_died + 1) / 2) / n_pairs)


def _grouped(counts: NDArray[np.int64], fewest: int) -> list[tuple[int, int, int]]:
    """Return lowest bin, highest bin and patients of every group; what is left over joins the group below it."""
    groups: list[tuple[int, int, int]] = []
    first, waiting = -1, 0
    for place in np.flatnonzero(counts).tolist():
        first = place if not waiting else first
        waiting += int(counts[place])
        if waiting >= fewest:
            groups.append((first, place, waiting))
            waiting = 0
    if waiting and groups:
        before = groups.pop()
        groups.append((before[0], int(np.flatnonzero(counts)[-1]), before[2] + waiting))
    return groups


def _pairs_above(upper: Floats, lower: Floats) -> float:
    """Count pairs of one of `upper` in a higher bin than one of `lower`."""
    return float(upper @ (np.cumsum(lower) - lower))
