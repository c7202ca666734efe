"""Curves and summaries of a classifier from counts by bin of the predicted log odds.

Functions of arrays. Bins are in increasing order of the predicted probability, and counts have shape (2, b): records
without (row 0) and with (row 1) the class. A record is above an edge if its log odds are larger.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit
from scipy.stats import norm, rankdata

from multicentre.statistics.line import Line, maximise_line
from multicentre.validation.scoring.classes.maths import area_under_curve

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Bins of equal numbers of records before they are merged: the calibration of finer ones is mostly chance.
MAX_MERGED = 20


def counts_above(counts: Floats) -> Floats:
    """Return the records above each edge, shape (2, b + 1): from all (below the first bin) to none.

    Examples
    --------
    >>> counts_above(np.array([[2.0, 1.0], [0.0, 3.0]])).tolist()
    [[3.0, 1.0, 0.0], [3.0, 3.0, 0.0]]
    """
    from_the_top = np.cumsum(counts[:, ::-1], axis=1)[:, ::-1]
    return np.concatenate([from_the_top, np.zeros((2, 1))], axis=1)


def area_and_error(counts: Floats) -> tuple[float, float, float]:
    """Return the area under the ROC curve, its standard error, and the largest error by ties within a bin.

    References
    ----------
    E. R. DeLong, D. M. DeLong, D. L. Clarke-Pearson, Biometrics 44 (1988), 837-845.

    Examples
    --------
    >>> area_and_error(np.array([[2.0, 0.0], [0.0, 2.0]]))
    (1.0, 0.0, 0.0)
    """
    area, bound = area_under_curve(counts)
    negatives, positives = counts
    below = (np.cumsum(negatives) - negatives / 2) / negatives.sum()
    above = (positives.sum() - np.cumsum(positives) + positives / 2) / positives.sum()
    variance = 0.0
    for places, weights in ((below, positives), (above, negatives)):
        n = float(weights.sum())
        variance += float(weights @ np.square(places - area)) / max(n - 1.0, 1.0) / n
    return area, float(np.sqrt(variance)), bound


def logit_interval(share: float, standard_error: float, level: float) -> tuple[float, float]:
    """Return an interval for a share between 0 and 1, symmetric in its log odds; NaN at 0 and 1.

    Examples
    --------
    >>> [round(limit, 3) for limit in logit_interval(0.8, 0.02, 0.95)]
    [0.758, 0.836]
    """
    if not 0.0 < share < 1.0:
        return np.nan, np.nan
    centre, half = np.log(share / (1 - share)), half_width(level) * standard_error / (share * (1 - share))
    return float(expit(centre - half)), float(expit(centre + half))


def wilson_interval(events: Floats, n: Floats, level: float) -> tuple[Floats, Floats]:
    """Return intervals for shares of events, by Wilson's method; NaN without records.

    Examples
    --------
    >>> lower, upper = wilson_interval(np.array([5.0]), np.array([10.0]), 0.95)
    >>> lower.round(3).tolist(), upper.round(3).tolist()
    ([0.237], [0.763])
    """
    z = half_width(level)
    sizes = np.where(n > 0, n, np.nan)
    share = events / sizes
    centre = (share + z**2 / (2 * sizes)) / (1 + z**2 / sizes)
    half = z / (1 + z**2 / sizes) * np.sqrt(share * (1 - share) / sizes + z**2 / (4 * sizes**2))
    return np.asarray(centre - half), np.asarray(centre + half)


def half_width(level: float) -> float:
    """Return the half-width of an interval in standard errors.

    Examples
    --------
    >>> round(half_width(0.95), 2)
    1.96
    """
    return float(norm.ppf(0.5 + 0.5 * level))


def net_benefit(above: Floats, n_records: float, thresholds: Floats) -> Floats:
    """Return the net benefit of treating the records above each threshold.

    Parameters
    ----------
    above : array of shape (2, t)
        Records above each threshold.
    n_records : float
    thresholds : array of shape (t,)

    References
    ----------
    A. J. Vickers, E. B. Elkin, Medical Decision Making 26 (2006), 565-574.

    Examples
    --------
    >>> net_benefit(np.array([[10.0], [30.0]]), 100.0, np.array([0.5])).tolist()
    [0.2]
    """
    return np.asarray((above[1] - above[0] * thresholds / (1 - thresholds)) / n_records, dtype=np.float64)


def group_bins(counts: Floats, n_groups: int, fewest: float) -> Integers:
    """Return the first bin of each group, for groups of about equal size with at least `fewest` records.

    Examples
    --------
    >>> group_bins(np.full((2, 8), 5.0), 4, 10.0).tolist()
    [0, 2, 4, 6]
    """
    sizes = counts.sum(axis=0)
    least = max(float(sizes.sum()) / n_groups, fewest)
    starts, reached = [0], 0.0
    left = float(sizes.sum())
    for place, size in enumerate(sizes):
        # Half of the next bin decides, so that groups do not grow one after the other.
        if reached >= fewest and reached + size / 2 > least and left >= fewest and len(starts) < n_groups:
            starts.append(place)
            reached = 0.0
        reached += float(size)
        left -= float(size)
    return np.asarray(starts, dtype=np.int64)


def join_small(counts: Floats, fewest: float) -> tuple[Integers, Integers]:
    """Return which groups can be shown, and which are withheld so that none follows from the total.

    A group is withheld if it has fewer than `fewest` records with or without the class, and then further groups, the
    smallest first, until those withheld have that many records of both kinds together.

    Parameters
    ----------
    counts : array of shape (g, 2)
        Records without and with the class.
    fewest : float

    Examples
    --------
    >>> shown, withheld = join_small(np.array([[90.0, 30.0], [40.0, 20.0], [9.0, 2.0]]), 10.0)
    >>> shown.tolist(), withheld.tolist()
    ([0], [1, 2])
    """
    smaller = counts.min(axis=1)
    order = np.argsort(smaller, kind="stable")
    occurring = counts.sum(axis=1) > 0
    n_withheld = int((smaller < fewest).sum())
    while 0 < n_withheld < len(order):
        hidden = counts[order[:n_withheld]].sum(axis=0)
        if not occurring[order[:n_withheld]].any() or hidden.min() >= fewest:
            break
        n_withheld += 1
    withheld = np.sort(order[:n_withheld])
    return np.sort(order[n_withheld:]), withheld


def derive_line(log_odds: Floats, outcomes: Floats, intercept: float, slope: float) -> tuple[Floats, Floats, Floats]:
    """Return each record's terms of the deviance, shape (n,), gradient, shape (n, 2), and information, shape (n, 3).

    Examples
    --------
    >>> _, gradient, information = derive_line(np.array([2.0]), np.array([1.0]), 0.0, 0.0)
    >>> gradient.tolist(), information.tolist()
    ([[0.5, 1.0]], [[0.25, 0.5, 1.0]])
    """
    predictor = intercept + slope * log_odds
    chance = expit(predictor)
    error, weight = outcomes - chance, chance * (1 - chance)
    gradient = np.column_stack([error, error * log_odds])
    deviance = 2.0 * np.logaddexp(0.0, np.where(outcomes > 0, -predictor, predictor))
    return deviance, gradient, np.column_stack([weight, weight * log_odds, weight * log_odds**2])


def fit_line(log_odds: Floats, outcomes: Floats, *, intercept_only: bool) -> tuple[Floats, Floats]:
    """Return intercept and slope of outcomes by log odds, and their standard errors; NaN without convergence.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> odds = rng.normal(size=4000)
    >>> outcomes = (rng.random(4000) < expit(0.5 * odds)).astype(float)
    >>> line = fit_line(odds, outcomes, intercept_only=False)[0]
    >>> bool(abs(line - [0.0, 0.5]).max() < 0.1)
    True
    """
    return maximise_line(
        lambda line: derive_line(log_odds, outcomes, *line.tolist()),
        Line(0.0, float(intercept_only), rounding=1e-9 * len(outcomes)),
        intercept_only=intercept_only,
    )


def merge_bins(scores: Floats, has_class: Integers, fewest: int) -> Integers:
    """Return the bin of every record, shape (n,), so that each bin has `fewest` records with and without the class.

    Bins of about equal numbers of records are formed by rank, from the lowest score; then neighbours are merged. Bins
    do not depend on the unit of the scores, and records with the same score are in the same bin.

    Examples
    --------
    >>> merge_bins(np.arange(8.0), np.array([0, 1, 0, 0, 1, 0, 1, 1]), 2).tolist()
    [0, 0, 0, 0, 0, 0, 0, 0]
    >>> merge_bins(np.arange(8.0), np.array([0, 1, 0, 1, 1, 0, 1, 0]), 2).tolist()
    [0, 0, 0, 0, 1, 1, 1, 1]
    """
    n_bins = max(1, min(MAX_MERGED, len(scores) // max(fewest, 1)))
    fine = np.minimum((rankdata(scores, "min") - 1) * n_bins // max(len(scores), 1), n_bins - 1).astype(np.int64)
    cells = np.bincount(fine * 2 + has_class, minlength=2 * n_bins).reshape(-1, 2)
    merged, place, current = np.zeros(n_bins, dtype=np.int64), 0, np.zeros(2)
    for bin_, cell in enumerate(cells):
        if current.min() >= max(fewest, 1) and cells[bin_:].sum(axis=0).min() >= max(fewest, 1):
            place, current = place + 1, np.zeros(2)
        merged[bin_], current = place, current + cell
    return np.asarray(merged[fine], dtype=np.int64)
