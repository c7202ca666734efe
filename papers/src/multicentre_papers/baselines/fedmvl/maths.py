"""Optimisation problem of FedMVL (Huang et al. 2022) and its updates by block.

Every view m is factorised as X ~ V_m U' with V_m >= 0. The V_m agree on one V, whose columns G keeps orthogonal:

    min  sum_m a_m ||X_m - V_m U_m'||^2 + mu/2 ||G'V - I||^2     so that  V_m = V,  G = V,  V_m >= 0

Its augmented Lagrangian adds, with multipliers ``rho Y_m`` and Psi,

    rho/2 sum_m ||V_m - V + Y_m||^2  +  <Psi, V - G> + varrho/2 ||V - G||^2

(up to a constant). Each ``solve`` function returns the exact minimiser in one block.
X is (n, d), U (d, c); V, V_m, Y_m, G and Psi are (n, c).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre_papers.baselines.fedmvl.nonnegative import minimise_quadratic

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

MIN_ERROR = 1e-6  # keeps the logarithm of an exactly explained view finite
MAX_EXPONENT = 20.0  # keeps the terms of the weights within the range of a masked sum
_ROUNDING = 1e-12  # standard deviations up to this count as 0
_FLOOR = 0.2  # keeps the entries of the initial factor above 0


@dataclass(frozen=True)
class Penalties:
    """Weights of the penalties in the units of the problem: the parameters times n / c."""

    rho: float
    varrho: float
    mu: float

    @classmethod
    def of(cls, rho: float, varrho: float, mu: float, shape: tuple[int, ...]) -> Penalties:
        """Return the penalties of a problem with a V of this shape.

        Examples
        --------
        >>> Penalties.of(0.5, 0.5, 0.1, (60, 3))
        Penalties(rho=10.0, varrho=10.0, mu=2.0)
        """
        n, c = shape
        return cls(rho * n / c, varrho * n / c, mu * n / c)


def scale_view(X: Floats, scale: str) -> Floats:
    """Return a view in the units of the factorisation: the mean squared length of its rows is 1.

    Parameters
    ----------
    X : array of shape (n, d)
    scale : {"sample", "feature", "none"}
        Initial standardisation of rows (as published) or columns to mean 0 and variance 1; constant ones become 0.

    Returns
    -------
    array of shape (n, d)
        All zero if the view is constant.

    Examples
    --------
    >>> scale_view(np.array([[1.0, 3.0], [5.0, 5.0], [9.0, 7.0]]), "sample").round(4).tolist()
    [[-0.866, 0.866], [0.0, 0.0], [0.866, -0.866]]
    """
    if scale == "sample":
        X = _standardise(X, axis=1)
    elif scale == "feature":
        X = _standardise(X, axis=0)
    largest = float(np.abs(X).max(initial=0.0))
    if largest == 0.0:
        return np.zeros_like(X)
    X = X / largest
    return np.asarray(X / np.sqrt((X**2).sum() / len(X)), dtype=np.float64)


def rotate_columns(X: Floats) -> Floats:
    """Return a view with at most n columns and the same inner products of rows, which determine the factors.

    Examples
    --------
    >>> X = np.arange(6.0).reshape(2, 3)
    >>> short = rotate_columns(X)
    >>> short.shape, bool(np.allclose(short @ short.T, X @ X.T))
    ((2, 2), True)
    """
    if X.shape[1] <= X.shape[0]:
        return X
    return np.ascontiguousarray(np.asarray(np.linalg.qr(X.T, mode="r")).T)


def solve_basis(X: Floats, V: Floats) -> Floats:
    """Return the minimiser U of ||X - V U'||^2, shape (d, c); the one of least norm if there are several.

    Examples
    --------
    >>> solve_basis(np.array([[2.0], [4.0], [9.0]]), np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])).tolist()
    [[3.0, 9.0]]
    """
    return np.asarray((X.T @ V) @ np.linalg.pinv(V.T @ V, hermitian=True))


def solve_rows(X: Floats, U: Floats, near: Floats, weight: float, rho: float, start: Floats) -> Floats:
    """Return the minimiser V >= 0 of ``weight ||X - V U'||^2 + rho/2 ||V - near||^2``, shape (n, c).

    Parameters
    ----------
    X : array of shape (n, d)
    U : array of shape (d, c)
    near : array of shape (n, c)
        ``V - Y_m``: the received common factor minus the scaled multiplier.
    weight, rho : float
        Weight a_m of the view (non-negative) and penalty (positive).
    start : array of shape (n, c)
        The solver first tries the positive entries of `start` as free entries.

    Examples
    --------
    >>> solve_rows(np.array([[4.0]]), np.array([[2.0, -1.0]]), np.zeros((1, 2)), 0.5, 1.0, np.ones((1, 2)))
    array([[1.6, 0. ]])
    """
    curvature = 2.0 * weight * (U.T @ U) + rho * np.eye(U.shape[1])
    return minimise_quadratic(curvature, 2.0 * weight * (X @ U) + rho * near, start)


def solve_common(total: Floats, guide: Floats, psi: Floats, n_views: float, penalties: Penalties) -> Floats:
    """Return the minimiser V of the augmented Lagrangian, shape (n, c).

    Parameters
    ----------
    total : array of shape (n, c)
        Sum over views of V_m + Y_m.
    guide, psi : arrays of shape (n, c)
        G, and the multiplier of G = V.
    n_views : float
        Number of views in the sum.
    penalties : Penalties

    Notes
    -----
    The system ``mu G G' + (varrho + rho n_views) I`` is solved by Woodbury's identity in c x c instead of n x n.
    """
    right = (penalties.mu + penalties.varrho) * guide - psi + penalties.rho * total
    return _solve_shifted(guide, penalties.mu, penalties.varrho + penalties.rho * n_views, right)


def solve_guide(common: Floats, psi: Floats, penalties: Penalties) -> Floats:
    """Return the minimiser G of the augmented Lagrangian, shape (n, c)."""
    right = (penalties.mu + penalties.varrho) * common + psi
    return _solve_shifted(common, penalties.mu, penalties.varrho, right)


def log_error(error: float) -> float:
    """Return the logarithm of a view's unexplained share, at least the logarithm of 1e-6.

    Examples
    --------
    >>> round(log_error(0.0), 4)
    -13.8155
    """
    return math.log(max(error, MIN_ERROR))


def weight_term(log_of_error: float, reference: float, lam: float) -> float:
    """Return a view's term of the weights: alpha_m is the term over the sum of the terms.

    The weights ``alpha_m ~ (r Q_m)^(1/(1-r))`` minimise ``sum alpha_m^r Q_m`` over the simplex, r = 10^lam. The factor
    of `reference` is the same for all views and cancels; it keeps the terms within the range of a masked sum.

    Examples
    --------
    >>> round(weight_term(math.log(0.2), math.log(0.4), 0.3), 3)
    2.007
    """
    exponent = (reference - log_of_error) / (10.0**lam - 1.0)
    return math.exp(min(max(exponent, -MAX_EXPONENT), MAX_EXPONENT))


def data_weight(share: float, n_views: float, lam: float) -> float:
    """Return a_m = (n_views alpha_m)^r, which is 1 if all views have equal weight.

    The published alpha_m^r lacks the factor n_views^r, which is the same for all views and rescales the penalties.

    Examples
    --------
    >>> data_weight(0.25, 4, 1.5)
    1.0
    """
    return float((n_views * share) ** (10.0**lam))


def draw_rows(n: int, fraction: float, seed: int, number: int, view: str) -> Integers:
    """Return the rows that a view updates in a round, ascending; their share is drawn between `fraction` and 1.

    The draw depends on the view's name but not on its site.

    Examples
    --------
    >>> draw_rows(5, 1.0, 0, 1, "blood").tolist()
    [0, 1, 2, 3, 4]
    """
    if fraction >= 1.0:
        return np.arange(n)
    name = view.encode()
    generator = np.random.default_rng(np.random.SeedSequence([seed, number, len(name), *name]))
    share = fraction + (1.0 - fraction) * generator.random()
    return np.sort(generator.permutation(n)[: max(1, round(n * share))])


def indicate(labels: Integers, n_clusters: int) -> Floats:
    """Return an initial V, shape (n, c): an indicator of the clusters plus 0.2, with columns of length 1.

    Examples
    --------
    >>> indicate(np.array([0, 0, 1]), 2).round(2).tolist()
    [[0.7, 0.16], [0.7, 0.16], [0.12, 0.97]]
    """
    start = np.eye(n_clusters)[labels] + _FLOOR
    return np.asarray(start / np.linalg.norm(start, axis=0))


def find_leading(directions: Floats, products: Floats, n_clusters: int) -> Floats:
    """Return the leading eigenvectors of K, scaled by the roots of their eigenvalues (Rayleigh-Ritz), shape (n, c).

    Parameters
    ----------
    directions : array of shape (n, p)
        Orthonormal columns.
    products : array of shape (n, p)
        K times the directions, K symmetric and positive semidefinite.
    n_clusters : int
        At most p.

    Examples
    --------
    >>> np.abs(find_leading(np.eye(2), np.diag([1.0, 4.0]), 1)).round(12).tolist()
    [[0.0], [2.0]]
    """
    inner = directions.T @ products
    values, vectors = np.linalg.eigh((inner + inner.T) / 2.0)
    leading = slice(None, -n_clusters - 1, -1)
    return np.asarray(directions @ vectors[:, leading] * np.sqrt(np.maximum(values[leading], 0.0)))


def _standardise(X: Floats, axis: int) -> Floats:
    largest = np.abs(X).max(axis=axis, keepdims=True, initial=0.0)
    unit = X / np.where(largest > 0.0, largest, 1.0)
    centred = unit - unit.mean(axis=axis, keepdims=True)
    n = X.shape[axis]
    spread = np.sqrt((centred**2).sum(axis=axis, keepdims=True) / max(n - 1, 1))
    varies = spread > _ROUNDING
    return np.asarray(np.where(varies, centred / np.where(varies, spread, 1.0), 0.0))


def _solve_shifted(factor: Floats, weight: float, shift: float, right: Floats) -> Floats:
    """Return the solution of ``(weight F F' + shift I) Z = right`` by Woodbury's identity."""
    small = shift * np.eye(factor.shape[1]) + weight * (factor.T @ factor)
    return np.asarray((right - factor @ np.linalg.solve(small, weight * (factor.T @ right))) / shift)
