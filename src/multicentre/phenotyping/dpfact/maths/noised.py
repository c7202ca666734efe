"""What follows from noised sums: thresholds, nonnegative least squares and weights.

Everything here is a function of sums that were noised before, so it costs no privacy.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from multicentre.phenotyping.kernels.factors import normalise_columns
from multicentre.phenotyping.kernels.hals import solve_rows
from multicentre.phenotyping.kernels.inner import hadamard_gram

Floats = NDArray[np.float64]
RIDGE = 0.02
CUT_CELLS = 3.0
CUT_FACTOR = 2.0
N_SWEEPS = 50


def keep_above(values: Floats, threshold: float) -> Floats:
    """Return the values, those up to the threshold set to zero.

    Examples
    --------
    >>> keep_above(np.array([-5.0, 1.0, 4.0]), 3.0).tolist()
    [0.0, 0.0, 4.0]
    """
    return np.where(values > threshold, values, 0.0)


def positive_part(matrix: Floats) -> Floats:
    """Return the nearest positive semidefinite matrix.

    Examples
    --------
    >>> positive_part(np.diag([2.0, -1.0])).tolist()
    [[2.0, 0.0], [0.0, 0.0]]
    """
    values, vectors = np.linalg.eigh(matrix)
    return np.asarray((vectors * np.maximum(values, 0.0)) @ vectors.T)


def update_from_noised(
    products: Floats, gram: Floats, factors: Sequence[Floats], axis: int, threshold: float
) -> Floats:
    """Minimise ``1/2 tr(F G F') - <F, M> + threshold sum F`` over F >= 0; unit columns.

    Parameters
    ----------
    products : array of shape (codes, r)
        ``M``, noised.
    gram : array of shape (r, r)
        Memberships' second moments, noised; ``G`` is their positive part times the other factors' Gram matrices, with
        a ridge.
    factors : sequence of arrays of shape (codes, r)
    axis : int
        Feature mode, 1 or more.
    threshold : float

    Returns
    -------
    array of shape (codes, r)
        Columns of unit length, or zero.

    Examples
    --------
    >>> factors = [np.eye(2), np.eye(2)]
    >>> update_from_noised(np.array([[9.0, 0.5], [0.0, 4.0]]), np.eye(2), factors, 1, 1.0).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    curvature = positive_part(gram) * hadamard_gram(factors, skip=axis - 1)
    rank = len(curvature)
    curvature = curvature + RIDGE * np.trace(curvature) / rank * np.eye(rank)
    return normalise_columns(solve_rows(products - threshold, curvature, factors[axis - 1], N_SWEEPS))[0]


def revive(factor: Floats, generator: np.random.Generator) -> Floats:
    """Return the factor with random columns of unit length where there were zeros.

    Examples
    --------
    >>> revive(np.array([[1.0, 0.0]]), np.random.default_rng(0)).tolist()
    [[1.0, 1.0]]
    """
    dead = ~factor.any(axis=0)
    drawn = normalise_columns(generator.random(factor.shape))[0]
    return np.where(dead, drawn, factor)


def weigh(
    blocks: Callable[[int, int, Floats], Floats], factors: Sequence[Floats], pairs: Sequence[tuple[int, int]]
) -> Floats:
    """Return the nonnegative weights with which components fit the pairwise marginals best, shape (r,).

    Examples
    --------
    >>> weigh(lambda m, n, factor: 3.0 * factor, [np.eye(2), np.eye(2)], [(0, 1)]).round(6).tolist()
    [3.0, 3.0]
    """
    rank = factors[0].shape[1]
    products, gram = np.zeros((1, rank)), np.zeros((rank, rank))
    for m, n in pairs:
        products += np.einsum("cr,cr->r", factors[m], blocks(m, n, factors[n]))
        gram += (factors[m].T @ factors[m]) * (factors[n].T @ factors[n])
    return np.asarray(solve_rows(products, gram, np.ones((1, rank)), N_SWEEPS)[0])
