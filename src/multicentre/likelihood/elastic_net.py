"""Elastic net: the minimum of a quadratic function with penalties on the size of the coefficients.

A Newton step of a penalised likelihood minimises ``b'Hb / 2 - r'b + ridge |b|^2 / 2 + lasso sum |b|``, with the
information H and ``r = gradient + H b0`` at the current coefficients b0. Intercepts and thresholds have no penalty.

Coordinate descent finds which coefficients are not 0. Their values then solve a linear system, so that the result is
exact to rounding.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Sweeps of coordinate descent between two attempts at the exact solution, and attempts; highly correlated covariates
# need the most. What remains open then keeps the value of coordinate descent.
SWEEPS, ATTEMPTS = 10, 400
# Relative size of a gradient beyond the penalty that is rounding error.
SLACK = 1e-10
# Share of the largest curvature below which a column counts as constant and its coefficient as 0.
FLAT = 1e-12


def penalised_step(gradient: Floats, information: Floats, point: Floats, ridge: Floats, lasso: Floats) -> Floats:
    """Return the step to the minimum of the quadratic approximation with the penalties, shape (w,).

    Parameters
    ----------
    gradient, point, ridge, lasso : arrays of shape (w,)
        First derivatives at the parameters, the parameters, and the penalty of each of them.
    information : array of shape (w, w)

    Examples
    --------
    >>> penalised_step(np.array([4.0, 0.5]), 2.0 * np.eye(2), np.zeros(2), np.zeros(2), np.ones(2)).tolist()
    [1.5, 0.0]
    """
    if not lasso.any():
        step = np.linalg.lstsq(information + np.diag(ridge), gradient - ridge * point, rcond=None)[0]
        return np.asarray(step, dtype=np.float64)
    linear = gradient + information @ point
    best = minimise_penalised(information[None], linear[None], ridge[None], lasso[None], point[None])
    return np.asarray(best[0] - point, dtype=np.float64)


def minimise_penalised(information: Floats, linear: Floats, ridge: Floats, lasso: Floats, start: Floats) -> Floats:
    """Return the parameters that minimise m penalised quadratic functions, shape (m, p).

    Parameters
    ----------
    information : array of shape (m, p, p)
    linear : array of shape (m, p)
        Linear terms r.
    ridge, lasso : arrays of shape (m, p)
        Penalties; both 0 for parameters without one. In all m functions, these must be the same parameters.
    start : array of shape (m, p)
        Parameters from which the search starts.

    References
    ----------
    J. Friedman, T. Hastie, R. Tibshirani (2010), Regularization paths for generalized linear models via coordinate
    descent, Journal of Statistical Software 33(1).

    Examples
    --------
    >>> result = minimise_penalised(
    ...     np.diag([1.0, 2.0, 2.0])[None], np.array([[1.0, 4.0, 0.5]]), np.zeros((1, 3)), np.array([[0.0, 1.0, 1.0]]),
    ...     np.zeros((1, 3)),
    ... )
    >>> result.tolist()
    [[1.0, 1.5, 0.0]]
    """
    result, bound = np.zeros_like(linear), ((ridge != 0.0) | (lasso != 0.0)).any(axis=0)
    matrix, vector = information[:, bound][:, :, bound], linear[:, bound]
    if bound.all():
        return _minimise(matrix, vector, ridge, lasso, start)
    # The parameters without a penalty follow from the others, and are eliminated.
    cross = information[:, bound][:, :, ~bound]
    inverse = np.linalg.pinv(information[:, ~bound][:, :, ~bound], hermitian=True)
    share = cross @ inverse
    matrix = matrix - share @ cross.transpose(0, 2, 1)
    vector = vector - np.einsum("mij,mj->mi", share, linear[:, ~bound])
    result[:, bound] = _minimise(matrix, vector, ridge[:, bound], lasso[:, bound], start[:, bound])
    rest = linear[:, ~bound] - np.einsum("mij,mi->mj", cross, result[:, bound])
    result[:, ~bound] = np.einsum("mij,mj->mi", inverse, rest)
    return result


def _minimise(matrix: Floats, vector: Floats, ridge: Floats, lasso: Floats, start: Floats) -> Floats:
    values = start.copy()
    is_open = np.ones(len(values), dtype=np.bool_)
    for _ in range(ATTEMPTS):
        for job in np.flatnonzero(is_open).tolist():
            exact = _solve_active(matrix[job], vector[job], ridge[job], lasso[job], values[job])
            if exact is not None:
                values[job], is_open[job] = exact, False
        if not is_open.any():
            break
        values[is_open] = _sweep(matrix[is_open], vector[is_open], ridge[is_open], lasso[is_open], values[is_open])
    return values


def _solve_active(matrix: Floats, vector: Floats, ridge: Floats, lasso: Floats, values: Floats) -> Floats | None:
    """Return the minimum if `values` have the right signs and zeros, else None."""
    active = (values != 0.0) | (lasso == 0.0)
    exact, signs = np.zeros_like(values), np.sign(values)
    if active.any():
        inner = matrix[np.ix_(active, active)] + np.diag(ridge[active])
        exact[active] = np.linalg.lstsq(inner, vector[active] - (lasso * signs)[active], rcond=None)[0]
    slope = vector - matrix @ exact - ridge * exact
    size = lasso + SLACK * float(np.abs(vector).max(initial=0.0))
    inside = np.abs(slope[~active]) <= size[~active] * (1.0 + SLACK)
    keeps_sign = (np.sign(exact) == signs) | (lasso == 0.0)
    return exact if inside.all() and keeps_sign[active].all() else None


def _sweep(matrix: Floats, vector: Floats, ridge: Floats, lasso: Floats, start: Floats) -> Floats:
    """Return coefficients after some sweeps of coordinate descent, for all functions at once."""
    values, slope = start.copy(), vector - np.einsum("mij,mj->mi", matrix, start)
    diagonal = np.diagonal(matrix, axis1=1, axis2=2)
    varies = diagonal > FLAT * diagonal.max(axis=1, initial=0.0)[:, None]
    curvature = np.where(varies, diagonal + ridge, 1.0)
    for _ in range(SWEEPS):
        for j in range(values.shape[1]):
            target = slope[:, j] + diagonal[:, j] * values[:, j]
            new = np.sign(target) * np.maximum(np.abs(target) - lasso[:, j], 0.0) / curvature[:, j]
            change = np.where(varies[:, j], new, 0.0) - values[:, j]
            if change.any():
                slope -= matrix[:, :, j] * change[:, None]
                values[:, j] += change
    return values
