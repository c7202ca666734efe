"""Stochastic gradient descent, entry by entry, over only the listed entries of a tensor.

The algorithm of the DPFact paper (Ma et al., CIKM 2019, Algorithm 1) with its errata corrected.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from multicentre.compilation import njit
from multicentre.errors import NotConverged
from multicentre.phenotyping.kernels.mttkrp import (
    Floats,
    Integers,
    Pointers,
    SparseTensor,
    checked_factors,
    stack_features,
)

# Size from which an entry of a factor counts as diverged: far above any count, and far below overflow.
LARGEST = 1e8

REORDERED = {"reassoc", "nsz", "contract"}
"""Sums over columns may be taken in any order, which vectorises them; tested to 1e-12."""


class MaskedLossWarning(UserWarning):
    """The loss includes only entries above zero."""


def draw_scaled(
    shape: Sequence[int], rank: int, mean: float, generator: np.random.Generator
) -> tuple[list[Floats], float]:
    """Draw one factor per mode from U(0, c), with c such that the mean prediction is `mean`; return them and c.

    The mean of a product of N entries is ``(c / 2)^N``, of which a prediction sums one per component.

    Parameters
    ----------
    shape : sequence of int
        Patients, then codes of every mode. A coordinator, which has no patients, passes 0 and draws the other factors.
    rank : int
    mean : float
        Above 0.
    generator : numpy.random.Generator

    Returns
    -------
    factors : list of arrays of shape (I_n, r)
    largest : float
        ``c``.

    Examples
    --------
    >>> (patients, codes), largest = draw_scaled((2, 3), 4, 1.0, np.random.default_rng(0))
    >>> patients.shape, codes.shape, largest
    ((2, 4), (3, 4), 1.0)
    """
    largest = float((mean / (rank * 0.5 ** len(shape))) ** (1 / len(shape)))
    return [largest * generator.random((size, rank)) for size in shape], largest


def pass_entries(
    tensor: SparseTensor,
    order: ArrayLike,
    memberships: ArrayLike,
    factors: Sequence[ArrayLike],
    step: float,
    elastic_penalty: float,
    targets: Sequence[ArrayLike],
    *,
    nonnegative: bool = True,
) -> tuple[Floats, list[Floats]]:
    """One Gauss-Seidel pass over the listed entries; equations 13, 16 and 17 of the paper.

    At entry e with count o and rows f^(n) of its patient and codes, mode by mode, the residual x - o taken again each
    time: f^(n) <- P(f^(n) - step ((x - o) q^(n) + (elastic_penalty / n_i) (f^(n) - target))), where q^(n) is the
    product of the other rows and n_i the number of entries in the slice; patients are not pulled.

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N modes.
    order : array of int, shape (nnz,)
        Entries in the order of their visits; a pass is several times faster if the entries of a patient are adjacent.
    memberships : array of float, shape (I, R)
        Patients' rows; not changed.
    factors : sequence of array, each of shape (I_n, R)
        One matrix per feature mode; not changed.
    step : float
        Step size eta.
    elastic_penalty : float
        Elastic constant gamma, divided among the visits of a row.
    targets : sequence of array, each of shape (I_n, R)
        Targets of the elastic term for the rows of the feature modes.
    nonnegative : bool, default True
        Whether P is max(0, .); otherwise it is the identity.

    Returns
    -------
    memberships : array of float, shape (I, R)
    factors : list of array, each of shape (I_n, R)

    Raises
    ------
    ConfigurationError
        Factors or targets do not fit the tensor.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0]], [2.0], (1, 1))
    >>> memberships, (factor,) = pass_entries(tensor, [0], [[1.0]], [[[1.0]]], 0.5, 0.0, [[[1.0]]])
    >>> memberships.tolist(), factor.tolist()
    ([[1.5]], [[1.375]])
    """
    rows = np.concatenate(checked_factors(tensor, [memberships, *factors]))
    goals = stack_features(checked_factors(tensor, [None, *targets], skip=0))
    visits = np.concatenate([np.diff(tensor.order(mode)[1]) for mode in range(1, tensor.n_modes)])
    starts = np.cumsum([0, *tensor.shape[:-1]])
    places = (tensor.coordinates + starts).astype(np.int32)
    visited = np.ascontiguousarray(order, dtype=np.int64)
    pull = step * elastic_penalty / np.maximum(visits, 1)
    visit = _visit_triples if tensor.n_modes == 3 else _visit_entries
    visit(places, tensor.counts, visited, rows, goals, step, pull, nonnegative)
    patients, *features = np.split(rows, starts[1:])
    return patients, features


def require_finite_descent(factors: Sequence[Floats], where: str) -> None:
    """Raise NotConverged unless every entry is finite and below 1e8 in magnitude.

    Parameters
    ----------
    factors : sequence of array
        Memberships and factors after a pass.
    where : str
        Name of the method in the error.

    Raises
    ------
    NotConverged
        The descent diverged: the step is too large for these counts.

    Examples
    --------
    >>> require_finite_descent([np.array([[1.0]]), np.array([[np.nan]])], "CPSGD")
    Traceback (most recent call last):
    multicentre.errors.NotConverged: CPSGD: factors must remain finite; got a descent that diverged. Lower...
    """
    if not all(np.abs(part).max(initial=0.0) < LARGEST for part in factors):
        raise NotConverged(
            "factors must remain finite; got a descent that diverged", where=where, hint="Lower learning_rate."
        )


@njit(cache=True, nogil=True, fastmath=REORDERED)
def _visit_triples(
    places: Integers,
    counts: Floats,
    order: Pointers,
    rows: Floats,
    targets: Floats,
    step: float,
    pull: Floats,
    nonnegative: bool,
) -> None:
    """Visit entries of three modes; terms of the next prediction are summed during the update."""
    rank, n_patients = rows.shape[1], len(rows) - len(targets)
    products = np.empty((3, rank))
    least = 0.0 if nonnegative else -np.inf
    for e in order:
        a, b, c = places[e, 0], places[e, 1], places[e, 2]
        s, t = b - n_patients, c - n_patients
        predicted = 0.0
        for r in range(rank):
            products[0, r] = rows[b, r] * rows[c, r]
            predicted += rows[a, r] * products[0, r]
        slope = step * (predicted - counts[e])
        predicted = 0.0
        for r in range(rank):
            rows[a, r] = max(least, rows[a, r] - slope * products[0, r])
            products[1, r] = rows[a, r] * rows[c, r]
            predicted += rows[b, r] * products[1, r]
        slope = step * (predicted - counts[e])
        predicted = 0.0
        for r in range(rank):
            away = pull[s] * (rows[b, r] - targets[s, r])
            rows[b, r] = max(least, rows[b, r] - slope * products[1, r] - away)
            products[2, r] = rows[b, r] * rows[a, r]
            predicted += rows[c, r] * products[2, r]
        slope = step * (predicted - counts[e])
        for r in range(rank):
            away = pull[t] * (rows[c, r] - targets[t, r])
            rows[c, r] = max(least, rows[c, r] - slope * products[2, r] - away)


@njit(cache=True, nogil=True, fastmath=REORDERED)
def _visit_entries(
    places: Integers,
    counts: Floats,
    order: Pointers,
    rows: Floats,
    targets: Floats,
    step: float,
    pull: Floats,
    nonnegative: bool,
) -> None:
    n_modes, rank = places.shape[1], rows.shape[1]
    n_patients = len(rows) - len(targets)
    product = np.empty(rank)
    least = 0.0 if nonnegative else -np.inf
    for e in order:
        for n in range(n_modes):
            i, last = places[e, n], _multiply_others(places, e, n, rows, product)
            predicted = 0.0
            for r in range(rank):
                predicted += rows[i, r] * product[r] * rows[last, r]
            slope = step * (predicted - counts[e])
            if n > 0:
                for r in range(rank):
                    rows[i, r] += pull[i - n_patients] * (targets[i - n_patients, r] - rows[i, r])
            for r in range(rank):
                rows[i, r] = max(least, rows[i, r] - slope * product[r] * rows[last, r])


@njit(cache=True, nogil=True)
def _multiply_others(places: Integers, e: int, n: int, rows: Floats, product: Floats) -> int:
    """Multiply the rows of an entry's other modes but the last of them, whose place is returned."""
    rank, last = len(product), places.shape[1] - 1
    if n == last:
        last -= 1
    first = 1 if n == 0 else 0
    start = places[e, first]
    for r in range(rank):
        product[r] = rows[start, r] if first < last else 1.0
    for m in range(first + 1, last):
        if m != n:
            i = places[e, m]
            for r in range(rank):
                product[r] *= rows[i, r]
    return places[e, last]
