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


def area_from_counts(died: Floats, alive: Floats) -> tuple[float, float, float]:
    """Return an estimate of the area under the curve, and the least and the largest that the counts allow.

    Parameters
    ----------
    died, alive : arrays of shape (b,)
        Patients with the outcome and without, by bin of their score; both have patients.

    Returns
    -------
    tuple of three floats
        The estimate counts a pair within one bin half, as if tied. For the bounds each of these pairs is ranked
        wrongly, or each rightly: they cannot fail, and lie as far below the estimate as above.

    Examples
    --------
    >>> area_from_counts(np.array([0.0, 1.0, 1.0]), np.array([1.0, 1.0, 0.0]))
    (0.875, 0.75, 1.0)
    """
    pairs = float(died.sum() * alive.sum())
    least = float(died @ (np.cumsum(alive) - alive)) / pairs
    within = float(died @ alive) / pairs
    return least + 0.5 * within, least, least + within


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
