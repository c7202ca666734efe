"""Differentially private least squares and descent: what a site sums, and what follows from the noised sums.

Everything that a patient adds is a function of the patient's own record and of what the coordinator made public
(specification 4.1): counts are divided by their own norm, memberships are fitted row by row from the same start, and
the order in which patients are visited comes from their records alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from multicentre.phenotyping.kernels.clipping import INSIDE
from multicentre.phenotyping.kernels.factors import normalise_columns
from multicentre.phenotyping.kernels.hals import solve_rows
from multicentre.phenotyping.kernels.inner import hadamard_gram
from multicentre.phenotyping.kernels.memberships import fit_memberships
from multicentre.phenotyping.kernels.patients import clipped_products, patient_norms
from multicentre.phenotyping.kernels.psgd import pass_patients
from multicentre.phenotyping.kernels.sparse import SparseTensor

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
RIDGE = 0.02
CUT_CELLS = 3.0
CUT_FACTOR = 2.0
SERVER_SWEEPS = 50
MOST_PATIENTS = 2.0**22
_EPSILON = 2.0**-52


# --- at a site ----------------------------------------------------------------------------------------------------


def scale_patients(tensor: SparseTensor) -> SparseTensor:
    """Return the tensor with every patient's counts divided by their Frobenius norm (specification 4.1).

    Examples
    --------
    >>> scale_patients(SparseTensor([[0, 0, 0], [0, 1, 0]], [3.0, 4.0], (2, 2, 1))).counts.tolist()
    [0.6, 0.8]
    """
    norms = patient_norms(tensor)
    usable = np.where(np.isfinite(norms) & (norms > 0), norms, np.inf)
    return SparseTensor(tensor.coordinates, tensor.counts / usable[tensor.coordinates[:, 0]], tensor.shape)


def fit_publicly(tensor: SparseTensor, factors: Sequence[Floats], n_sweeps: int) -> Floats:
    """Fit memberships to public factors, every patient from the same start, shape (n, r) (specification 4.1).

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0, 0], [1, 1, 0]], [1.0, 1.0], (2, 2, 1))
    >>> fit_publicly(tensor, [np.array([[1.0], [0.0]]), np.array([[1.0]])], 3).tolist()
    [[1.0], [0.0]]
    """
    return fit_memberships(tensor, factors, np.ones((tensor.shape[0], factors[0].shape[1])), n_sweeps=n_sweeps)


def sum_clipped_products(
    tensor: SparseTensor, factors: Sequence[Floats], axis: int, *, bounds: tuple[float, float], n_sweeps: int
) -> tuple[Floats, Floats]:
    """Sum what the update of one factor needs, no patient adding more than length 1 to either sum (4.2).

    Parameters
    ----------
    tensor : SparseTensor
    factors : sequence of arrays of shape (codes, r)
        Public factors.
    axis : int
        Feature mode, 1 or more.
    bounds : (float, float)
        ``S_M`` and ``S_H``.
    n_sweeps : int

    Returns
    -------
    products : array of shape (codes, r)
        In units of ``S_M``.
    gram : array of shape (r (r + 1) / 2,)
        Packed, in units of ``S_H``.
    """
    scaled = scale_patients(tensor)
    return clipped_products(scaled, fit_publicly(scaled, factors, n_sweeps), factors, axis, *bounds)


def order_patients(tensor: SparseTensor, *purpose: int) -> Integers:
    """Return the patients in a scrambled order that comes from their records and public numbers alone, shape (n,).

    Patients are sorted by a hash of their own entries. Whoever is added or taken away, the others keep their order, which
    the bound of a pass needs: drawn by position, all orders after the added patient would change.

    Parameters
    ----------
    tensor : SparseTensor
    purpose : int
        Public numbers (a seed, the number of a pass); another number gives another order.

    Examples
    --------
    >>> few = SparseTensor([[0, 0, 1], [1, 1, 0]], [1.0, 2.0], (2, 2, 2))
    >>> more = SparseTensor([[0, 0, 0], [1, 0, 1], [2, 1, 0]], [9.0, 1.0, 2.0], (3, 2, 2))
    >>> order_patients(few, 0).tolist() == [i - 1 for i in order_patients(more, 0) if i > 0]
    True
    """
    state = np.zeros(tensor.nnz, dtype=np.uint64)
    for number in purpose:
        state = _scramble(state ^ np.uint64(number))
    for column in tensor.coordinates[:, 1:].T:
        state = _scramble(state ^ column.astype(np.uint64))
    state = _scramble(state ^ np.ascontiguousarray(tensor.counts).view(np.uint64))
    keys = np.zeros(tensor.shape[0], dtype=np.uint64)
    np.add.at(keys, tensor.coordinates[:, 0], state)
    return np.argsort(keys, kind="stable")


def _scramble(state: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Finalise splitmix64 (Steele, Lea and Flood, OOPSLA 2014), on unsigned numbers that wrap around."""
    state = state + np.uint64(0x9E3779B97F4A7C15)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(state ^ (state >> np.uint64(31)))


def descend_clipped(
    tensor: SparseTensor,
    factors: Sequence[Floats],
    axis: int,
    *,
    n_passes: int,
    step: float,
    largest_product: float,
    n_sweeps: int,
    seed: int,
) -> Floats:
    """Descend one factor from the public one by passes over patients, each clipped (specification 4.3).

    There is no elastic term: the descent starts from the public factor in every round and makes few passes, which is
    what the term is for. Columns of the public factors that are longer than 1 are brought to length 1, on which the
    bound of a pass rests.

    Parameters
    ----------
    tensor : SparseTensor
    factors : sequence of arrays of shape (codes, r)
    axis : int
        Feature mode, 1 or more.
    n_passes : int
        ``tau``.
    step : float
        ``eta``, at most 1.
    largest_product : float
        ``S``.
    n_sweeps, seed : int

    Returns
    -------
    array of shape (codes, r)
        Not below 0, columns of length 1 at most.
    """
    scaled, inside = scale_patients(tensor), [shorten_columns(factor) for factor in factors]
    memberships = fit_publicly(scaled, inside, n_sweeps)
    moved = list(inside)
    for number in range(n_passes):
        order = order_patients(tensor, seed, number)
        moved[axis - 1] = pass_patients(scaled, order, memberships, moved, axis, step, largest_product)
    return moved[axis - 1]


def shorten_columns(factor: Floats) -> Floats:
    """Return the factor with columns of length 1 at most.

    Examples
    --------
    >>> shorten_columns(np.array([[3.0, 0.3], [4.0, 0.4]])).round(6).tolist()
    [[0.6, 0.3], [0.8, 0.4]]
    """
    largest = np.maximum(np.abs(factor).max(axis=0, initial=0.0), 1.0)
    lengths = np.maximum(np.linalg.norm(factor / largest, axis=0), 1 / largest)
    return np.asarray(factor / largest / lengths * INSIDE)


def reach_of_descent(n_passes: int, step: float, largest_product: float, shape: tuple[int, int]) -> float:
    """Return how far one patient moves what :func:`descend_clipped` returns, at most: ``tau eta (1 + S)`` (4.3).

    The steps are 1-Lipschitz maps followed by projections on a convex set, so what differs at one patient's visit does
    not grow later. Added to it is what rounding can do at every visit of up to 2**22 patients.

    Parameters
    ----------
    n_passes : int
    step : float
    largest_product : float
    shape : (int, int)
        Codes and phenotypes.

    Examples
    --------
    >>> round(reach_of_descent(2, 0.1, 0.5, (30, 4)), 6)
    0.3
    """
    n_codes, rank = shape
    rounding = 2 * _EPSILON * np.sqrt(rank) * (n_codes + rank + 8) * MOST_PATIENTS
    return float(n_passes * (step * (1 + largest_product) * (1 + 1e-9) + rounding))


# --- at the coordinator ---------------------------------------------------------------------------------------------


def keep_above(values: Floats, threshold: float) -> Floats:
    """Return the values, those up to the threshold set to zero (specification 4.2, hard threshold).

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
    """Minimise ``1/2 tr(F G F') - <F, M> + threshold sum F`` over F >= 0 (specification 4.2); unit columns.

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
    return normalise_columns(solve_rows(products - threshold, curvature, factors[axis - 1], SERVER_SWEEPS))[0]


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
    return np.asarray(solve_rows(products, gram, np.ones((1, rank)), SERVER_SWEEPS)[0])
