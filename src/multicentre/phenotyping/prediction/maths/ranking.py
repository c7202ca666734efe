"""The area under the curve without anyone's score: from counts in bins, between two bounds that cannot fail."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import rankdata

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


def split_by_outcome(outcomes: NDArray[np.int8], share: float, random: np.random.Generator) -> Flags:
    """Return which patients are held out, shape (n,): about `share` of those with either outcome, in whole tenths.

    Examples
    --------
    >>> split_by_outcome(np.array([0, 0, 0, 0, 0, 1, 1, 1, 1, 1], dtype=np.int8), 0.4, np.random.default_rng(0)).sum()
    np.int64(4)
    """
    tenths = round(10 * share)
    held_out = np.zeros(len(outcomes), dtype=np.bool_)
    for outcome in (0, 1):
        rows = np.flatnonzero(outcomes == outcome)
        held_out[random.permutation(rows)[: round(tenths * len(rows) / 10)]] = True
    return held_out


def score_edges(coefficients: Floats, n_bins: int) -> Floats:
    """Return borders of `n_bins` bins of scores, shape (n_bins - 1,), which depend on the coefficients alone.

    The score of a patient is ``intercept + z @ slopes`` with standardised z. Borders are quantiles of the normal law
    that scores have where z are independent and normal; its deviation is the length of the slopes, so that longer
    slopes make wider bins and tell no more of a patient.

    Parameters
    ----------
    coefficients : array of shape (1 + r,)
        Intercept and slopes.
    n_bins : int
        At least 2.

    Examples
    --------
    >>> score_edges(np.array([-1.0, 2.0]), 4).round(2).tolist()
    [-2.35, -1.0, 0.35]
    """
    return np.asarray(coefficients[0] + np.linalg.norm(coefficients[1:]) * ndtri(np.arange(1, n_bins) / n_bins))


def count_in_groups(scores: Floats, edges: Floats, fewest: int) -> Floats:
    """Count scores by bin such that every count that is not 0 rests on `fewest` patients or more.

    A bin with as many patients as asked for stands alone. Others are grouped from below until a group has enough, and
    what is left over joins the last one. A group of several bins begins where the one before it ends, the first and the
    last are open, so that nobody's lowest or highest score shows; where it ends tells in which bin its last patient
    lies.

    Parameters
    ----------
    scores : array of shape (n,)
    edges : array of shape (b - 1,)
        Borders of bins, ascending.
    fewest : int

    Returns
    -------
    array of shape (3, b)
        Each group's count at its lowest bin, at its highest, and at the bin of its mean score. All 0 where there are
        fewer patients in all.

    Examples
    --------
    >>> count_in_groups(np.array([0.1, 1.1, 1.2, 3.3]), np.array([1.0, 2.0, 3.0]), 2).tolist()
    [[4.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 4.0], [0.0, 4.0, 0.0, 0.0]]
    """
    places = np.zeros((3, len(edges) + 1))
    ordered = np.sort(scores)
    bins = np.searchsorted(edges, ordered, side="right")
    for first, last in _groups(bins, len(edges) + 1, max(fewest, 1)):
        own = ordered[(bins >= first) & (bins <= last)]
        middle = int(np.clip(np.searchsorted(edges, own.mean(), side="right"), first, last))
        places[[0, 1, 2], [first, last, middle]] += len(own)
    return places


def area_from_counts(died: Floats, alive: Floats) -> tuple[float, float, float]:
    """Return an estimate of the area under the curve, and the least and the largest that the counts allow.

    Parameters
    ----------
    died, alive : arrays of shape (3, b)
        From :func:`count_in_groups`, summed over sites; both have patients.

    Returns
    -------
    tuple of three floats
        The estimate takes each group to stand at its mean, ties half. For the bounds, every patient lies where the area
        is least or largest: they cannot fail.

    Examples
    --------
    >>> area_from_counts(np.array([[0.0, 1.0, 1.0]] * 3), np.array([[1.0, 1.0, 0.0]] * 3))
    (0.875, 0.75, 1.0)
    """
    pairs = float(died[0].sum() * alive[0].sum())
    least = _pairs_above(died[0], alive[1]) / pairs
    largest = 1.0 - _pairs_above(alive[0], died[1]) / pairs
    estimate = (_pairs_above(died[2], alive[2]) + 0.5 * float(died[2] @ alive[2])) / pairs
    return estimate, least, largest


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


def _groups(bins: NDArray[np.intp], n_bins: int, fewest: int) -> list[tuple[int, int]]:
    """Return lowest and highest bin of every group of sorted `bins`; no group where there are fewer in all."""
    groups: list[tuple[int, int]] = []
    done = start = 0
    while len(bins) - done >= fewest:
        end = int(bins[done + fewest - 1])
        stands_alone = int(bins[done]) == end
        groups.append((end if stands_alone else start, end))
        done, start = int(np.searchsorted(bins, end, side="right")), end + 1
    if groups and (done < len(bins) or not stands_alone):
        groups[-1] = (groups[-1][0], n_bins - 1)
    return groups


def _pairs_above(upper: Floats, lower: Floats) -> float:
    """Count pairs of one of `upper` in a higher bin than one of `lower`."""
    return float(upper @ (np.cumsum(lower) - lower))
