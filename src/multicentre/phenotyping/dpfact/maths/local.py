"""Local fitting near the global factors: the site's part of elastic averaging."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from multicentre.phenotyping.kernels.factors import SMALLEST, normalise_columns
from multicentre.phenotyping.kernels.hals import hadamard_gram, solve_rows
from multicentre.phenotyping.kernels.mttkrp import SparseTensor, mttkrp
from multicentre.phenotyping.kernels.patients import fit_memberships

Floats = NDArray[np.float64]


def fit_near(
    tensor: SparseTensor,
    centre: Sequence[Floats],
    memberships: Floats,
    *,
    n_passes: int,
    elastic_penalty: float,
    n_sweeps: int,
    sparsity: float,
    count: Callable[[Floats, Sequence[Floats], int], None] = lambda memberships, factors, axis: None,
) -> tuple[Floats, list[Floats]]:
    """Fit memberships and local factors near the global ones (equations 8 and 15).

    Each pass fits the memberships, then each factor by ``min 1/2 ||O - X||^2 + w/2 ||B - B hat||^2`` with ``w`` the
    elastic strength times the mean diagonal entry of the curvature.

    Parameters
    ----------
    tensor : SparseTensor
    centre : sequence of arrays of shape (codes, r)
        Global factors; the local ones start from them in every round.
    memberships : array of shape (n, r)
    n_passes : int
        The paper's ``tau``.
    elastic_penalty : float
        ``g``; the paper's gamma in units of the curvature.
    n_sweeps : int
    sparsity : float
    count : callable, optional
        Called with memberships, factors and mode before each factor is fitted, to count the patients behind it.

    Returns
    -------
    memberships : array of shape (n, r)
    factors : list of arrays of shape (codes, r)
        Columns of unit length; their lengths are factors of the memberships.
    """
    rank = memberships.shape[1]
    local = list(centre)
    for _ in range(n_passes):
        memberships = fit_memberships(tensor, local, memberships, n_sweeps=n_sweeps, sparsity=sparsity)
        for axis, target in enumerate(centre):
            count(memberships, local, axis + 1)
            others = [factor for place, factor in enumerate(local) if place != axis]
            gram = hadamard_gram([memberships, *others])
            weight = elastic_penalty * float(np.trace(gram)) / rank
            products = mttkrp(tensor, [memberships, *local], axis + 1) + weight * target
            solved = solve_rows(products, gram + weight * np.eye(rank), np.maximum(local[axis], SMALLEST), n_sweeps)
            local[axis], lengths = normalise_columns(solved)
            memberships = memberships * lengths
    return memberships, local


def move_to_mean(centre: Floats, mean: Floats, weight: float) -> Floats:
    """Move the global factor towards the mean of the sites' factors by a fraction of the distance.

    Parameters
    ----------
    centre : array of shape (codes, r)
        ``B hat``.
    mean : array of shape (codes, r)
        Mean over sites of ``B^[t]``.
    weight : float
        ``alpha``, which equation 19 writes as eta gamma T.

    Examples
    --------
    >>> move_to_mean(np.zeros((1, 1)), np.ones((1, 1)), 0.9).tolist()
    [[0.9]]
    """
    return np.asarray(centre + weight * (mean - centre))


def largest_weight(contracted: float) -> float:
    """Return the weight from which elastic averaging diverges: 1 + 1 / kappa.

    `contracted` (kappa) is the factor by which a site's passes shorten its distance to the global factor, without the
    data. The distance of the sites to the global factor obeys the eigenvalue ``kappa (1 - alpha)``, which must stay
    above -1; it follows from the rounds' equations without the data's part.

    Examples
    --------
    >>> largest_weight(0.5)
    3.0
    """
    return 1.0 + 1.0 / contracted


def weighted_mean(total: Floats, weights: Floats, otherwise: Floats) -> Floats:
    """Return the mean of factors weighted column by column; a column without weight keeps its value.

    Parameters
    ----------
    total : array of shape (codes, r)
        Sum over sites of weight times factor.
    weights : array of shape (r,)
        Sum over sites of the weights.
    otherwise : array of shape (codes, r)

    Examples
    --------
    >>> weighted_mean(np.array([[6.0, 0.0]]), np.array([3.0, 0.0]), np.array([[1.0, 7.0]])).tolist()
    [[2.0, 7.0]]
    """
    has = weights > 0
    return np.where(has, total / np.where(has, weights, 1.0), otherwise)


# Ridge as a share of the mean curvature. Noise can make the Gram matrix singular; a larger ridge would blur phenotypes.
RIDGE = 0.02
# In standard deviations of the noise. Of the cells without patients, about one in 740 passes a cut of 3.
CUT_CELLS = 3.0
# Soft threshold in standard deviations of the noise: 0 lets the noise into the factors, more removes rare codes.
CUT_FACTOR = 2.0
# Coordinate descent on the coordinator's small matrices is cheap, so these problems are solved nearly to convergence.
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


class ElasticWarning(UserWarning):
    """The global factors overshoot the mean of the sites."""


def warn_of_overshooting(weight: float) -> None:
    """Warn of an elastic weight above 1, with which the global factors overshoot the mean of the sites.

    Examples
    --------
    >>> warn_of_overshooting(0.9)
    """
    if weight > 1:
        warnings.warn(
            f"an elastic weight of {weight:g} overshoots the mean of the sites in every round; 1 or less does not.",
            ElasticWarning,
            stacklevel=4,
        )
