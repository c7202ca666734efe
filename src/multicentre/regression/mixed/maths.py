"""Linear mixed models: what a site contributes to the likelihood, and the criterion as a function of the sums.

The outcome of a site is ``y = X b + Z u + e`` with effects of the site u of covariance ``s2 G`` and residuals of
variance ``s2``. With ``S = Z'Z`` and ``A = Z'[X y]``, the inverse of ``V = I + Z G Z'`` follows from matrices with q
rows, the number of effects per site (Woodbury)::

    [X y]' V^-1 [X y] = [X y]'[X y] - A' G B,    B = (I + S G)^-1 A,    log|V| = log|I + S G|

These are sums over sites, and so are their derivatives by G.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import chi2

from multicentre.statistics.chi_square import TestResult

Floats = NDArray[np.float64]
# Smallest sum of squared residuals of outcomes with a variance of about 1; its square is no underflow.
SMALLEST = 1e-100


@dataclass(frozen=True)
class Moments:
    """Products of the covariates X, the outcome y and the columns Z of the effects of one site.

    Parameters
    ----------
    total : array of shape (p + 1, p + 1)
        ``[X y]'[X y]``.
    cross : array of shape (q, p + 1)
        ``Z'[X y]``.
    effects : array of shape (q, q)
        ``Z'Z``.
    """

    total: Floats
    cross: Floats
    effects: Floats

    @classmethod
    def of(cls, rows: Floats, outcome: Floats, places: list[int]) -> Moments:
        """Return the products of rows, shape (n, p), and outcomes; `places` are the columns of Z among the rows."""
        both = np.column_stack([rows, outcome])
        total = both.T @ both
        return cls(total, total[places], total[np.ix_(places, places)])


@dataclass(frozen=True)
class Weighted:
    """Products weighted by the inverse of V, and the logarithm of its determinant.

    Parameters
    ----------
    products : array of shape (p + 1, p + 1)
        ``[X y]' V^-1 [X y]``.
    log_determinant : float
    """

    products: Floats
    log_determinant: float


@dataclass(frozen=True)
class Curved(Weighted):
    """Weighted products with their derivatives by the r distinct entries of a symmetric K, where G changes by C K C'.

    Parameters
    ----------
    slopes : array of shape (r, p + 1, p + 1)
    curvatures : array of shape (r, r, p + 1, p + 1)
    determinant_slopes : array of shape (r,)
    determinant_curvatures : array of shape (r, r)
    """

    slopes: Floats
    curvatures: Floats
    determinant_slopes: Floats
    determinant_curvatures: Floats


def triangle(size: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return rows and columns of the lower triangle of a square matrix, row by row.

    Examples
    --------
    >>> [places.tolist() for places in triangle(2)]
    [[0, 1, 1], [0, 0, 1]]
    """
    rows, columns = np.tril_indices(size)
    return np.asarray(rows, dtype=np.int64), np.asarray(columns, dtype=np.int64)


def size_of(n_entries: int) -> int:
    """Return the size of a square matrix whose lower triangle has a number of entries.

    Examples
    --------
    >>> size_of(3)
    2
    """
    return int(np.sqrt(2 * n_entries))


def lower(entries: Floats) -> Floats:
    """Return the lower triangular matrix with the given entries, row by row.

    Examples
    --------
    >>> lower(np.array([1.0, 2.0, 3.0])).tolist()
    [[1.0, 0.0], [2.0, 3.0]]
    """
    size = size_of(len(entries))
    matrix = np.zeros((size, size))
    matrix[triangle(size)] = entries
    return matrix


def units_of(size: int) -> Floats:
    """Return the derivatives of a symmetric matrix by the entries of its lower triangle, shape (r, size, size)."""
    rows, columns = triangle(size)
    units = np.zeros((len(rows), size, size))
    units[np.arange(len(rows)), rows, columns] = 1.0
    units[np.arange(len(rows)), columns, rows] = 1.0
    return units


def weigh(moments: Moments, covariance: Floats) -> Weighted:
    """Return the products weighted by the inverse of V, for effects of relative covariance G.

    Examples
    --------
    >>> moments = Moments.of(np.ones((2, 1)), np.array([1.0, 3.0]), [0])
    >>> weigh(moments, np.array([[0.5]])).products.tolist()
    [[1.0, 2.0], [2.0, 6.0]]
    """
    inflated = np.eye(len(covariance)) + moments.effects @ covariance
    reduced = np.linalg.solve(inflated, moments.cross)
    products = moments.total - moments.cross.T @ covariance @ reduced
    return Weighted(0.5 * (products + products.T), float(np.linalg.slogdet(inflated)[1]))


def weigh_with_derivatives(moments: Moments, covariance: Floats, directions: Floats) -> Curved:
    """Return the weighted products and their derivatives by K, where the covariance changes by C K C'.

    Parameters
    ----------
    moments : Moments
    covariance, directions : arrays of shape (q, q)
        G and C.
    """
    inflated = np.eye(len(covariance)) + moments.effects @ covariance
    reduced = np.linalg.solve(inflated, moments.cross)
    inner = np.linalg.solve(inflated, moments.effects)
    units, weighted = directions @ units_of(len(covariance)) @ directions.T, weigh(moments, covariance)
    slopes = -np.einsum("ji,ajk,kl->ail", reduced, units, reduced)
    turned = np.einsum("aij,jk,bkl->abil", units, inner, units)
    turned = turned + turned.transpose(1, 0, 2, 3)
    return Curved(
        weighted.products,
        weighted.log_determinant,
        slopes,
        np.einsum("ji,abjk,kl->abil", reduced, turned, reduced),
        np.einsum("ij,aji->a", inner, units),
        -np.einsum("ij,ajk,kl,bli->ab", inner, units, inner, units),
    )


@dataclass(frozen=True)
class Solution:
    """Coefficients at some variances, on the scale of the rounds.

    Parameters
    ----------
    criterion : float
        Minus twice the (restricted) log-likelihood, maximised over coefficients and residual variance.
    coefficients : array of shape (p,)
    variance : float
        Residual variance.
    inverse : array of shape (p, p)
        Inverse of ``X' V^-1 X``.
    """

    criterion: float
    coefficients: Floats
    variance: float
    inverse: Floats


def solve(weighted: Weighted, n_patients: float, *, restricted: bool) -> Solution:
    """Maximise the likelihood over coefficients and residual variance.

    Examples
    --------
    >>> sums = Weighted(np.array([[2.0, 4.0], [4.0, 10.0]]), 0.0)
    >>> solution = solve(sums, 2.0, restricted=True)
    >>> solution.coefficients.tolist(), round(solution.variance, 12)
    ([2.0], 2.0)
    """
    products = weighted.products
    design, cross = products[:-1, :-1], products[:-1, -1]
    inverse = np.asarray(np.linalg.inv(design), dtype=np.float64)
    coefficients = inverse @ cross
    squares = float(products[-1, -1] - cross @ coefficients)
    freedom = n_patients - (len(design) if restricted else 0)
    # Masked sums of a perfect fit may leave a sum of squares below 0 by rounding.
    variance = max(squares, SMALLEST) / freedom
    criterion = weighted.log_determinant + freedom * (1.0 + np.log(2.0 * np.pi * variance))
    if restricted:
        criterion += float(np.linalg.slogdet(design)[1])
    return Solution(float(criterion), coefficients, variance, inverse)


def sensitivity(solution: Solution, *, restricted: bool) -> float:
    """Return a bound on the change of the criterion per unit by which each entry of the products changes.

    Examples
    --------
    >>> solution = Solution(0.0, np.array([1.0]), 2.0, np.array([[0.5]]))
    >>> sensitivity(solution, restricted=True)
    2.5
    """
    residual = (1.0 + float(np.abs(solution.coefficients).sum())) ** 2 / solution.variance
    return residual + (float(np.abs(solution.inverse).sum()) if restricted else 0.0)


def derive_criterion(sums: Curved, solution: Solution, n_patients: float, *, restricted: bool) -> tuple[Floats, Floats]:
    """Return the first and second derivatives of the criterion by the entries of K, shapes (r,) and (r, r).

    The coefficients depend on K; the second derivatives of the sum of squares have a term for this.
    """
    vector, inverse = np.append(-solution.coefficients, 1.0), solution.inverse
    freedom = n_patients - (len(inverse) if restricted else 0)
    total = solution.variance * freedom
    pulls = sums.slopes @ vector
    first = pulls @ vector
    second = np.einsum("abij,i,j->ab", sums.curvatures, vector, vector)
    second = second - 2.0 * np.einsum("ai,ij,bj->ab", pulls[:, :-1], inverse, pulls[:, :-1])
    gradient = sums.determinant_slopes + freedom * first / total
    hessian = sums.determinant_curvatures + freedom * (second / total - np.outer(first, first) / total**2)
    if restricted:
        turned = inverse @ sums.slopes[:, :-1, :-1]
        gradient = gradient + np.einsum("aii->a", turned)
        hessian = hessian + np.einsum("ij,abji->ab", inverse, sums.curvatures[:, :, :-1, :-1])
        hessian = hessian - np.einsum("aij,bji->ab", turned, turned)
    return np.asarray(gradient, dtype=np.float64), np.asarray(hessian, dtype=np.float64)


def factor_jacobian(factor: Floats) -> Floats:
    """Return the derivatives of the entries of K = M M' by those of a lower triangular M, shape (r, r).

    Examples
    --------
    >>> factor_jacobian(np.array([[2.0]])).tolist()
    [[4.0]]
    """
    rows, columns = triangle(len(factor))
    turned = np.array([lower(unit) for unit in np.eye(len(rows))]) @ factor.T
    return np.asarray((turned + turned.transpose(0, 2, 1))[:, rows, columns].T, dtype=np.float64)


def by_factor(factor: Floats, gradient: Floats, hessian: Floats) -> tuple[Floats, Floats]:
    """Return derivatives by the entries of a triangular factor M for derivatives by those of K = M M'.

    Parameters
    ----------
    factor : array of shape (q, q)
        Lower triangular.
    gradient : array of shape (r,)
    hessian : array of shape (r, r)

    Examples
    --------
    >>> [each.tolist() for each in by_factor(np.array([[2.0]]), np.array([3.0]), np.array([[1.0]]))]
    [[12.0], [[22.0]]]
    """
    jacobian, (rows, columns) = factor_jacobian(factor), triangle(len(factor))
    moves = np.array([lower(unit) for unit in np.eye(len(rows))])
    pairs = np.einsum("aij,bkj->abik", moves, moves)
    bends = (pairs + pairs.transpose(1, 0, 2, 3))[:, :, rows, columns]
    return jacobian.T @ gradient, jacobian.T @ hessian @ jacobian + bends @ gradient


def directions_of(factor: Floats) -> Floats:
    """Return the lower triangular C with C C' = L L' + I, so that L = C M with entries of M of order 1.

    Derivatives along C K C' neither vanish as L grows, nor hide a boundary as L goes to 0.

    Examples
    --------
    >>> directions_of(np.zeros((1, 1))).tolist()
    [[1.0]]
    """
    return np.asarray(np.linalg.cholesky(factor @ factor.T + np.eye(len(factor))), dtype=np.float64)


def basis_of(directions: Floats) -> Floats:
    """Return the matrix from the entries of M to those of C M, shape (r, r).

    Examples
    --------
    >>> basis_of(np.array([[2.0, 0.0], [1.0, 3.0]])).tolist()
    [[2.0, 0.0, 0.0], [1.0, 3.0, 0.0], [0.0, 0.0, 3.0]]
    """
    places = triangle(len(directions))
    return np.column_stack([(directions @ lower(unit))[places] for unit in np.eye(len(places[0]))])


def variance_test(statistic: float, n_effects: int) -> TestResult:
    """Return the likelihood-ratio test of the hypothesis that sites do not differ.

    A variance of 0 is at the end of its range. For one variance, the statistic is 0 in half of all studies, and the
    p-value is half that of chi-square with 1 degree of freedom. For several effects the p-value is that of chi-square
    with as many degrees of freedom as variances and covariances, which is too large.

    References
    ----------
    D. O. Stram, J. W. Lee (1994), Variance components testing in the longitudinal mixed effects model, Biometrics 50,
    1171-1177.

    Examples
    --------
    >>> round(variance_test(2.706, 1).p_value, 3)
    0.05
    """
    freedom = n_effects * (n_effects + 1) // 2
    p_value = float(chi2.sf(max(statistic, 0.0), freedom)) * (0.5 if n_effects == 1 else 1.0)
    return TestResult(max(statistic, 0.0), freedom, p_value)
