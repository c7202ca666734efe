"""Rank tests from histograms by group: Kruskal and Wallis; for two groups, the test of Mann and Whitney.

Patients of one bin share their mean rank, as tied values do. The test is exact if no bin contains different values.
Otherwise the true order within bins is unknown, and the statistic lies between two limits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

Floats = NDArray[np.float64]
# Halvings of the interval of a Lagrange multiplier; 200 exhaust the digits of a double.
HALVINGS = 200
# Vertices of the box of rank sums are enumerated; 12 groups have 4,096.
MAX_GROUPS = 12


@dataclass(frozen=True)
class RankTest:
    """Result of a rank test.

    Parameters
    ----------
    statistic : float
        H of Kruskal and Wallis, corrected for ties; for two groups the square of the normal statistic of Mann and
        Whitney without continuity correction. NaN without two groups of patients or without different values.
    p_value : float
        By the chi-square distribution.
    lower, upper : float
        Limits of the p-value over all orders within bins; equal to `p_value` if the test is exact.
    is_exact : bool
        True if no bin contains different values.
    """

    statistic: float
    p_value: float
    lower: float
    upper: float
    is_exact: bool


def rank_test(counts: Floats, is_single: NDArray[np.bool_]) -> RankTest:
    """Test whether the values of the groups have the same distribution.

    Parameters
    ----------
    counts : array of shape (G, b)
        Patients by group and bin, in the order of the values.
    is_single : array of bool of shape (b,)
        True for bins whose patients all have the same value.

    References
    ----------
    W. H. Kruskal, W. A. Wallis (1952), Use of ranks in one-criterion variance analysis, Journal of the American
    Statistical Association 47, 583-621.

    Examples
    --------
    >>> round(rank_test(np.array([[3.0, 1.0, 0.0], [0.0, 1.0, 3.0]]), np.ones(3, dtype=bool)).p_value, 4)
    0.0219
    """
    used = counts[counts.sum(axis=1) > 0]
    n, in_bin = used.sum(), used.sum(axis=0)
    nan = float("nan")
    ties = tie_factor(in_bin)
    if len(used) < 2 or not ties > 0:
        return RankTest(nan, nan, nan, nan, False)
    sums, sizes = used @ mean_ranks(in_bin), used.sum(axis=1)
    statistic = between(sums, sizes, n) / ties
    freedom = len(used) - 1
    p_value = float(chi2.sf(statistic, freedom))
    is_open = ~is_single & (in_bin > 1)
    if not is_open.any():
        return RankTest(statistic, p_value, p_value, p_value, True)
    if len(used) > MAX_GROUPS:
        return RankTest(statistic, p_value, nan, nan, False)
    # Within a bin, the patients of a group are before or after all others at the most.
    room = (used * (in_bin - used) / 2.0)[:, is_open].sum(axis=1)
    finest = tie_factor(np.where(is_single, in_bin, np.minimum(in_bin, 1.0)), n)
    most = largest_between(sums, sizes, n, room) / ties
    least = smallest_between(sums, sizes, n, room) / finest
    return RankTest(statistic, p_value, float(chi2.sf(most, freedom)), float(chi2.sf(least, freedom)), False)


def mean_ranks(in_bin: Floats) -> Floats:
    """Return the mean rank of each bin, shape (b,).

    Examples
    --------
    >>> mean_ranks(np.array([2.0, 0.0, 1.0])).tolist()
    [1.5, 2.5, 3.0]
    """
    return np.asarray(np.cumsum(in_bin) - in_bin + (in_bin + 1.0) / 2.0, dtype=np.float64)


def counts_of_ranks(ranks: Floats) -> Floats:
    """Return the counts of the bins with these mean ranks, shape (b,); the inverse of :func:`mean_ranks`.

    A count is negative or no whole number if the ranks are not mean ranks.

    Examples
    --------
    >>> counts_of_ranks(np.array([1.5, 2.5, 3.0])).tolist()
    [2.0, 0.0, 1.0]
    """
    counts, n_below = np.zeros(len(ranks)), 0.0
    for place, rank in enumerate(ranks.tolist()):
        counts[place] = 2.0 * (rank - n_below) - 1.0
        n_below += counts[place]
    return counts


def rank_scores(in_bin: Floats) -> Floats:
    """Return the mean rank of each bin, standardised over the patients, shape (b,); 0 if all share a bin.

    Examples
    --------
    >>> rank_scores(np.array([1.0, 0.0, 1.0])).tolist()
    [-1.0, 0.0, 1.0]
    """
    n = float(in_bin.sum())
    centred = mean_ranks(in_bin) - (n + 1.0) / 2.0
    spread = float(np.sqrt((in_bin * centred**2).sum() / n)) if n else 0.0
    return np.asarray(centred / spread if spread > 0 else np.zeros(len(in_bin)), dtype=np.float64)


def tie_factor(in_bin: Floats, n: float | None = None) -> float:
    """Return the factor by which ties reduce the variance of ranks; 0 if all values are tied.

    Examples
    --------
    >>> tie_factor(np.array([1.0, 1.0, 1.0])), tie_factor(np.array([3.0]))
    (1.0, 0.0)
    """
    size = float(in_bin.sum()) if n is None else float(n)
    return 1.0 - float((in_bin**3 - in_bin).sum()) / (size**3 - size) if size > 1 else 0.0


def between(sums: Floats, sizes: Floats, n: float) -> float:
    """Return Kruskal and Wallis' H without the correction for ties, from rank sums of shape (G,).

    Examples
    --------
    >>> round(between(np.array([6.0, 15.0]), np.array([3.0, 3.0]), 6.0), 3)
    3.857
    """
    return float(12.0 / (n * (n + 1.0)) * (sums**2 / sizes).sum() - 3.0 * (n + 1.0))


def largest_between(sums: Floats, sizes: Floats, n: float, room: Floats) -> float:
    """Return a bound from above of H if each rank sum may change by up to `room`, shape (G,).

    H is convex, so that it is largest at a corner of the box of rank sums; the total of the sums is not enforced.
    """
    if len(sums) == 2:  # what one group gains, the other loses
        return max(between(sums + sign * np.array([room[0], -room[0]]), sizes, n) for sign in (1.0, -1.0))
    signs = np.array(np.meshgrid(*[(-1.0, 1.0)] * len(sums))).reshape(len(sums), -1).T
    deviations = sums + signs * room - sizes * (n + 1.0) / 2.0
    return float((12.0 / (n * (n + 1.0)) * (deviations**2 / sizes).sum(axis=1)).max())


def smallest_between(sums: Floats, sizes: Floats, n: float, room: Floats) -> float:
    """Return the smallest H if each rank sum may change by up to `room` and their total stays, shape (G,).

    At the minimum each rank sum is its size times a common mean rank, or at an end of its range.
    """
    low, high = 0.0, n + 1.0
    total = float(sums.sum())
    for _ in range(HALVINGS):
        middle = (low + high) / 2.0
        if float(np.clip(sizes * middle, sums - room, sums + room).sum()) < total:
            low = middle
        else:
            high = middle
    return between(np.clip(sizes * high, sums - room, sums + room), sizes, n)
