"""Differentially private least squares and descent: sums over patients with bounded terms.

A patient's contribution is a function of the patient's record and of public values: counts are divided by the norm of
the record, memberships are fitted row by row from the same start, and the order in which patients are visited depends
only on their records.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from multicentre.phenotyping.kernels.clipped import clipped_products, pass_patients
from multicentre.phenotyping.kernels.effective_counts import fewest_in_gram, fewest_in_products, product_lengths
from multicentre.phenotyping.kernels.mttkrp import SparseTensor
from multicentre.phenotyping.kernels.patients import INSIDE, fit_memberships, patient_norms

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Patients of a site for which rounding errors are bounded; the bound of counts of patients in messages.
MAX_PATIENTS = 2.0**22
# Distance from 1 to the next double.
_EPSILON = 2.0**-52


def scale_patients(tensor: SparseTensor) -> SparseTensor:
    """Return the tensor with every patient's counts divided by their Frobenius norm.

    Examples
    --------
    >>> scale_patients(SparseTensor([[0, 0, 0], [0, 1, 0]], [3.0, 4.0], (2, 2, 1))).counts.tolist()
    [0.6, 0.8]
    """
    norms = patient_norms(tensor)
    usable = np.where(np.isfinite(norms) & (norms > 0), norms, np.inf)
    return SparseTensor(tensor.coordinates, tensor.counts / usable[tensor.coordinates[:, 0]], tensor.shape)


def fit_publicly(tensor: SparseTensor, factors: Sequence[Floats], n_sweeps: int) -> Floats:
    """Fit memberships to public factors, every patient from the same start, shape (n, r).

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
    """Return the sums for the update of one factor, to each of which a patient adds at most length 1.

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


def count_clipped(
    tensor: SparseTensor, factors: Sequence[Floats], axis: int, *, bounds: tuple[float, float], n_sweeps: int
) -> int:
    """Return the fewest patients behind a cell of :func:`sum_clipped_products`, in effect; parameters as there."""
    scaled = scale_patients(tensor)
    memberships = fit_publicly(scaled, factors, n_sweeps)
    lengths = product_lengths(scaled, [memberships, *factors], axis)
    shares = np.minimum(
        1.0,
        np.minimum(
            bounds[0] / np.maximum(lengths, bounds[0]),
            bounds[1] / np.maximum(np.square(memberships).sum(axis=1), bounds[1]),
        ),
    )
    in_gram = fewest_in_gram(memberships * np.sqrt(shares)[:, None])
    return min(in_gram, fewest_in_products(scaled, [memberships * shares[:, None], *factors], axis))


def count_movers(
    tensor: SparseTensor, factors: Sequence[Floats], axis: int, largest_product: float, n_sweeps: int
) -> int:
    """Return the fewest patients, in effect, that move an entry in :func:`descend_clipped`; parameters as there.

    Every patient moves the factor by a product, clipped, and by a Gram matrix of the memberships.
    """
    scaled, inside = scale_patients(tensor), [shorten_columns(np.maximum(factor, 0.0)) for factor in factors]
    memberships = fit_publicly(scaled, inside, n_sweeps)
    lengths = product_lengths(scaled, [memberships, *inside], axis)
    shares = largest_product / np.maximum(lengths, largest_product)
    products = fewest_in_products(scaled, [memberships * shares[:, None], *inside], axis)
    return min(products, fewest_in_gram(memberships))


def order_patients(tensor: SparseTensor, *purpose: int) -> Integers:
    """Return the patients in a scrambled order that depends only on their records and public numbers, shape (n,).

    Patients are sorted by a hash of their entries. If a patient is added or removed, the others keep their order, which
    the bound of a pass requires. A random order by position would change for all patients after the added one.

    Parameters
    ----------
    tensor : SparseTensor
    purpose : int
        Public numbers (a seed, the number of a pass); different numbers give different orders.

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
    """Descend one factor from the public one by passes over patients, each clipped.

    There is no elastic term, since the descent starts from the public factor in every round and makes few passes.
    Public factors are projected to nonnegative columns of length at most 1, which the bound of a pass requires.

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
    scaled, inside = scale_patients(tensor), [shorten_columns(np.maximum(factor, 0.0)) for factor in factors]
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
    """Return the sensitivity of :func:`descend_clipped`, ``tau eta L``: the largest change by one patient.

    The steps are 1-Lipschitz maps followed by projections on a convex set, so a difference at one patient's visit does
    not grow later. At the visit the factor moves by ``eta (F P_i - s_i M_i)``, where both matrices are nonnegative, the
    first no longer than 1 and the second than S: so ``L = sqrt(1 + S^2)``. The rounding errors of all visits of up to
    2**22 patients are added.

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
    0.223607
    """
    n_codes, rank = shape
    rounding = 2 * _EPSILON * np.sqrt(rank) * (n_codes + rank + 8) * MAX_PATIENTS
    return float(n_passes * (step * np.hypot(1, largest_product) * (1 + 1e-9) + rounding))


def code_weights(n_codes: NDArray[np.int64]) -> Floats:
    """Return the weight of each code of a patient, 1 / sqrt(codes) truncated to a grid; their joint length is 1.

    Examples
    --------
    >>> code_weights(np.array([4, 1])).tolist()
    [0.5, 1.0]
    """
    return np.asarray(np.trunc(2.0**30 / np.sqrt(np.maximum(n_codes, 1))) / 2.0**30)
