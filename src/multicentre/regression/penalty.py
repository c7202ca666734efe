"""Elastic net: the minimum of a quadratic function with penalties on the size of the coefficients.

A Newton step of a penalised likelihood minimises ``b'Hb / 2 - r'b + ridge |b|^2 / 2 + lasso sum |b|``, with the
information H and ``r = gradient + H b0`` at the current coefficients b0. The first coefficient is not penalised.

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


def minimise_penalised(
    information: Floats, linear: Floats, ridge: Floats, lasso: Floats, start: Floats, *, has_intercept: bool
) -> Floats:
    """Return the coefficients that minimise m penalised quadratic functions, shape (m, p).

    Parameters
    ----------
    information : array of shape (m, p, p)
    linear : array of shape (m, p)
        Linear terms r.
    ridge, lasso : arrays of shape (m,)
        Penalties; 0 for none.
    start : array of shape (m, p)
        Coefficients from which the search starts.
    has_intercept : bool
        If False, the first coefficient stays 0.

    References
    ----------
    J. Friedman, T. Hastie, R. Tibshirani (2010), Regularization paths for generalized linear models via coordinate
    descent, Journal of Statistical Software 33(1).

    Examples
    --------
    >>> result = minimise_penalised(
    ...     np.diag([1.0, 2.0, 2.0])[None], np.array([[1.0, 4.0, 0.5]]), np.zeros(1), np.ones(1), np.zeros((1, 3)),
    ...     has_intercept=True,
    ... )
    >>> result.tolist()
    [[1.0, 1.5, 0.0]]
    """
    result = np.zeros_like(linear)
    matrix, vector = information[:, 1:, 1:], linear[:, 1:]
    corner = information[:, 0, 0]
    border = information[:, 1:, 0] / np.where(corner > 0, corner, 1.0)[:, None]
    if has_intercept:
        matrix = matrix - border[:, :, None] * information[:, None, 0, 1:]
        vector = vector - border * linear[:, :1]
    result[:, 1:] = _minimise(matrix, vector, ridge, lasso, start[:, 1:])
    if has_intercept:
        result[:, 0] = linear[:, 0] / corner - np.einsum("mj,mj->m", border, result[:, 1:])
    return result


def _minimise(matrix: Floats, vector: Floats, ridge: Floats, lasso: Floats, start: Floats) -> Floats:
    values = start.copy()
    is_open = np.ones(len(values), dtype=np.bool_)
    for _ in range(ATTEMPTS):
        for job in np.flatnonzero(is_open).tolist():
            exact = _solve_active(matrix[job], vector[job], float(ridge[job]), float(lasso[job]), values[job])
            if exact is not None:
                values[job], is_open[job] = exact, False
        if not is_open.any():
            break
        values[is_open] = _sweep(matrix[is_open], vector[is_open], ridge[is_open], lasso[is_open], values[is_open])
    return values


def _solve_active(matrix: Floats, vector: Floats, ridge: float, lasso: float, values: Floats) -> Floats | None:
    """Return the minimum if `values` have the right signs and zeros, else None."""
    active = values != 0.0 if lasso else np.ones(len(values), dtype=np.bool_)
    exact, signs = np.zeros_like(values), np.sign(values)
    if active.any():
        inner = matrix[np.ix_(active, active)] + ridge * np.eye(int(active.sum()))
        exact[active] = np.linalg.lstsq(inner, vector[active] - lasso * signs[active], rcond=None)[0]
    if not lasso:
        return exact
    slope = vector - matrix @ exact - ridge * exact
    size = lasso + SLACK * float(np.abs(vector).max(initial=0.0))
    inside = np.abs(slope[~active]) <= size * (1.0 + SLACK)
    return exact if inside.all() and (np.sign(exact[active]) == signs[active]).all() else None


def _sweep(matrix: Floats, vector: Floats, ridge: Floats, lasso: Floats, start: Floats) -> Floats:
    """Return coefficients after some sweeps of coordinate descent, for all functions at once."""
    values, slope = start.copy(), vector - np.einsum("mij,mj->mi", matrix, start)
    diagonal = np.diagonal(matrix, axis1=1, axis2=2)
    varies = diagonal > FLAT * diagonal.max(axis=1, initial=0.0)[:, None]
    curvature = np.where(varies, diagonal + ridge[:, None], 1.0)
    for _ in range(SWEEPS):
        for j in range(values.shape[1]):
            target = slope[:, j] + diagonal[:, j] * values[:, j]
            new = np.sign(target) * np.maximum(np.abs(target) - lasso, 0.0) / curvature[:, j]
            change = np.where(varies[:, j], new, 0.0) - values[:, j]
            if change.any():
                slope -= matrix[:, :, j] * change[:, None]
                values[:, j] += change
    return values
