"""Quadratic problems over non-negative rows with a common curvature."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MAX_EXCHANGES = 20  # exchanges per column, at most
# Full exchanges without improvement before entries are exchanged one by one, as in Kim and Park (2011).
_PATIENCE = 3
_ROUNDING = 1e-12  # tolerance of the optimality conditions, relative to the largest slope


def minimise_quadratic(curvature: Floats, slope: Floats, start: Floats) -> Floats:
    """Return the rows v >= 0 that minimise ``v' curvature v / 2 - slope' v``, by block principal pivoting.

    Parameters
    ----------
    curvature : array of shape (c, c)
        Positive definite, the same for all rows.
    slope, start : arrays of shape (n, c)
        The positive entries of `start` are first tried as free entries.

    References
    ----------
    J. Kim, H. Park (2011), Fast nonnegative matrix factorization: an active-set-like method and comparisons, SIAM
    Journal on Scientific Computing 33.

    Examples
    --------
    >>> minimise_quadratic(np.array([[2.0, 1.0], [1.0, 2.0]]), np.array([[2.0, -1.0]]), np.zeros((1, 2))).tolist()
    [[1.0, 0.0]]
    """
    rows, free = np.zeros_like(slope), start > 0.0
    n, c = slope.shape
    fewest, patience, open_rows = np.full(n, c + 1), np.full(n, _PATIENCE), np.arange(n)
    slack = _ROUNDING * np.abs(slope).max(initial=0.0)
    for _ in range(MAX_EXCHANGES * (c + 1)):
        rows[open_rows] = _solve_free(curvature, slope[open_rows], free[open_rows])
        descent = slope[open_rows] - rows[open_rows] @ curvature
        wrong = np.where(free[open_rows], rows[open_rows] < 0.0, descent > slack)
        is_open = wrong.any(axis=1)
        open_rows, wrong = open_rows[is_open], wrong[is_open]
        if not len(open_rows):
            break
        n_wrong = wrong.sum(axis=1)
        better = n_wrong < fewest[open_rows]
        fewest[open_rows] = np.minimum(n_wrong, fewest[open_rows])
        patience[open_rows] = np.where(better, _PATIENCE, patience[open_rows] - 1)
        one_by_one = patience[open_rows] < 0
        last = c - 1 - np.argmax(wrong[one_by_one, ::-1], axis=1)
        wrong[one_by_one] = np.arange(c) == last[:, None]
        free[open_rows] ^= wrong
    return np.maximum(rows, 0.0)


def _solve_free(curvature: Floats, slope: Floats, free: NDArray[np.bool_]) -> Floats:
    """Return the minimisers over the free entries, all others 0; rows with equal free entries are solved together."""
    rows = np.zeros_like(slope)
    patterns, group = np.unique(np.packbits(free, axis=1), axis=0, return_inverse=True)
    order = np.argsort(group.reshape(-1), kind="stable")
    ends = np.cumsum(np.bincount(group.reshape(-1), minlength=len(patterns)))[:-1]
    for members in np.split(order, ends):
        columns = np.flatnonzero(free[members[0]])
        if len(columns):
            solved = np.linalg.solve(curvature[np.ix_(columns, columns)], slope[np.ix_(members, columns)].T)
            rows[np.ix_(members, columns)] = solved.T
    return rows
