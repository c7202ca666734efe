"""Statistics of a Table 1 from counts, sums and squares by group."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2, f

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Share of the sum of squares below which a variance is rounding.
NO_VARIANCE = 1e-9
# Largest part of a difference of shares that rounding leaves unexplained by their covariance.
UNEXPLAINED = 1e-8
# Smallest expected count for which the chi-square distribution is a fair approximation (Cochran 1954).
MIN_EXPECTED = 5.0
# Quartiles of fewer patients are nearly the values of single patients.
MIN_OF_QUARTILES = 10


def means(present: Floats, totals: Floats) -> Floats:
    """Return means; NaN without patients.

    Examples
    --------
    >>> means(np.array([2.0, 0.0]), np.array([3.0, 0.0])).tolist()
    [1.5, nan]
    """
    filled = np.full(np.shape(totals), np.nan)
    return np.asarray(np.divide(totals, present, out=filled, where=present > 0), dtype=np.float64)


def standard_deviations(present: Floats, squares: Floats) -> Floats:
    """Return standard deviations with n - 1 degrees of freedom; NaN for fewer than two patients.

    Examples
    --------
    >>> standard_deviations(np.array([3.0, 1.0]), np.array([8.0, 0.0])).tolist()
    [2.0, nan]
    """
    freedom = present - 1.0
    variances = np.divide(squares, freedom, out=np.full(np.shape(squares), np.nan), where=freedom > 0)
    return np.asarray(np.sqrt(np.maximum(variances, 0.0)), dtype=np.float64)


def difference_of_means(mean: Floats, deviation: Floats) -> float:
    """Return the largest standardised mean difference between two groups; NaN where it is not defined.

    Parameters
    ----------
    mean, deviation : arrays of shape (G,)

    References
    ----------
    P. C. Austin (2009), Balance diagnostics for comparing the distribution of baseline covariates between treatment
    groups in propensity-score matched samples, Statistics in Medicine 28, 3083-3107.

    Examples
    --------
    >>> difference_of_means(np.array([1.0, 3.0]), np.array([2.0, 2.0]))
    1.0
    """
    pairs = list(combinations(range(len(mean)), 2))
    sizes = [_ratio(abs(mean[a] - mean[b]), np.sqrt((deviation[a] ** 2 + deviation[b] ** 2) / 2.0)) for a, b in pairs]
    return float(np.nanmax(sizes)) if np.isfinite(sizes).any() else float("nan")


def difference_of_shares(counts: Floats) -> float:
    """Return the largest standardised difference of the shares of levels between two groups.

    It is infinite if two groups have no level in common, and NaN without two groups of patients.

    Parameters
    ----------
    counts : array of shape (l, G)

    References
    ----------
    D. Yang, J. E. Dalton (2012), A unified approach to measuring the effect size between two groups using SAS, SAS
    Global Forum, paper 335-2012.

    Examples
    --------
    >>> round(difference_of_shares(np.array([[50.0, 25.0], [50.0, 75.0]])), 3)
    0.535
    >>> difference_of_shares(np.array([[50.0, 0.0], [0.0, 25.0], [0.0, 25.0]]))
    inf
    """
    totals = counts.sum(axis=0)
    shares = np.divide(counts, totals, out=np.full(counts.shape, np.nan), where=totals > 0)
    sizes = [_distance(shares[1:, a], shares[1:, b]) for a, b in combinations(range(counts.shape[1]), 2)]
    return float(np.nanmax(sizes)) if not np.isnan(sizes).all() else float("nan")


def _distance(one: Floats, other: Floats) -> float:
    if not (np.isfinite(one).all() and np.isfinite(other).all()):
        return float("nan")
    covariance = sum((np.diag(p) - np.outer(p, p) for p in (one, other)), np.zeros((len(one), len(one)))) / 2.0
    gap = one - other
    solved = np.linalg.pinv(covariance, hermitian=True) @ gap
    if np.abs(covariance @ solved - gap).max(initial=0.0) > UNEXPLAINED:  # the groups have no level in common
        return float("inf")
    return float(np.sqrt(max(float(gap @ solved), 0.0)))


def welch_test(present: Floats, mean: Floats, deviation: Floats) -> float:
    """Return the p-value of Welch's test that the means of the groups are equal; of two groups, his t test.

    Parameters
    ----------
    present, mean, deviation : arrays of shape (G,)

    References
    ----------
    B. L. Welch (1951), On the comparison of several mean values: an alternative approach, Biometrika 38, 330-336.

    Examples
    --------
    >>> round(welch_test(np.array([10.0, 12.0]), np.array([1.0, 2.0]), np.array([1.0, 1.5])), 3)
    0.078
    """
    used = (present > 1) & (deviation > 0)
    n_groups = int(used.sum())
    if n_groups < 2 or n_groups < int((present > 0).sum()):
        return float("nan")
    n, m, variance = present[used], mean[used], deviation[used] ** 2
    weights = n / variance
    centre = float(weights @ m / weights.sum())
    spread = float(np.sum((1.0 - weights / weights.sum()) ** 2 / (n - 1.0)))
    between = float(weights @ (m - centre) ** 2) / (n_groups - 1.0)
    statistic = between / (1.0 + 2.0 * (n_groups - 2.0) / (n_groups**2 - 1.0) * spread)
    return float(f.sf(statistic, n_groups - 1, (n_groups**2 - 1.0) / (3.0 * spread)))


def chi_square_test(counts: Floats) -> tuple[float, bool]:
    """Return the p-value of Pearson's test of independence, and whether an expected count is below 5.

    Parameters
    ----------
    counts : array of shape (l, G)

    Examples
    --------
    >>> p_value, is_small = chi_square_test(np.array([[10.0, 20.0], [30.0, 20.0]]))
    >>> round(p_value, 3), is_small
    (0.021, False)
    """
    used = counts[counts.sum(axis=1) > 0][:, counts.sum(axis=0) > 0]
    freedom = (used.shape[0] - 1) * (used.shape[1] - 1)
    if freedom < 1:
        return float("nan"), False
    expected = np.outer(used.sum(axis=1), used.sum(axis=0)) / used.sum()
    statistic = float(((used - expected) ** 2 / expected).sum())
    return float(chi2.sf(statistic, freedom)), bool((expected < MIN_EXPECTED).any())


def correlations(pairs: Integers, total: Floats, squares: Floats, products: Floats, least: int) -> Floats:
    """Return Pearson's correlations from sums over the patients with both variables of a pair, shape (d, d).

    Parameters
    ----------
    pairs : array of shape (d, d)
        Patients with both variables.
    total, squares : arrays of shape (d, d)
        Sums of the first variable and of its squares over these patients.
    products : array of shape (d, d)
    least : int
        Fewest patients of a correlation; NaN below, and for variables that are constant among the patients.

    Examples
    --------
    >>> values = np.array([[1.0, 2.0], [2.0, 4.5], [3.0, 5.0]])
    >>> total = np.repeat(values.sum(axis=0)[:, None], 2, axis=1)
    >>> squares = np.repeat((values**2).sum(axis=0)[:, None], 2, axis=1)
    >>> correlations(np.full((2, 2), 3), total, squares, values.T @ values, 3).round(3).tolist()
    [[1.0, 0.933], [0.933, 1.0]]
    """
    n = np.maximum(pairs, 1).astype(np.float64)
    covariance = products - total * total.T / n
    variance = squares - total**2 / n
    scale = np.sqrt(np.maximum(variance, 0.0) * np.maximum(variance.T, 0.0))
    # Masked sums are rounded: a variance below this share of the squares is 0.
    is_defined = (pairs >= least) & (variance > NO_VARIANCE * np.maximum(squares, 1.0)) & (scale > 0)
    is_defined &= is_defined.T
    values = np.divide(covariance, scale, out=np.full(scale.shape, np.nan), where=is_defined)
    return np.asarray(np.clip((values + values.T) / 2.0, -1.0, 1.0), dtype=np.float64)


def _ratio(above: float, below: float) -> float:
    return float(above / below) if below > 0 else float("nan")
