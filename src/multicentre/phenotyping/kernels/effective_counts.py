"""Number of patients behind each cell of a sum over patients, where the coordinator chooses the weights.

A sum over patients is weighted by their memberships and by factors that the coordinator sends. Weights of 0, or of
nearly 0, leave a cell to few patients although many have the code. A cell therefore counts Kish's effective number of
patients, ``(sum |c_i|)^2 / sum c_i^2`` for their contributions c_i. A cell with nearly all of its value from one
patient counts one patient; n equal contributions count n.

References
----------
L. Kish (1965), Survey sampling, section 11.7.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.compilation import njit
from multicentre.phenotyping.kernels.hals import hadamard_gram, predict_entries
from multicentre.phenotyping.kernels.mttkrp import (
    Floats,
    Integers,
    Pointers,
    SparseTensor,
    checked_factors,
    mttkrp,
    stack_features,
)

# Relative rounding error of sums over patients; 10 equal patients must not count as 9.
_ROUNDING = 1e-9
# Squares of products of two larger shares are normal numbers in double precision.
_MIN_SHARE = 1e-75


def effective_numbers(contributions: ArrayLike) -> NDArray[np.int64]:
    """Return the effective number of patients of each column, shape (r,); 0 for a column of zeros.

    Parameters
    ----------
    contributions : array of float, shape (n,) or (n, r)
        What each patient adds, of either sign and any scale.

    Examples
    --------
    >>> effective_numbers([[1.0, 5.0, 0.0], [2.0, 1e-6, 0.0], [2.0, 0.0, 0.0]]).tolist()
    [2, 1, 0]
    """
    sizes = np.abs(np.asarray(contributions, dtype=np.float64))
    largest = sizes.max(axis=0, initial=0.0)
    shares = sizes / np.where(largest > 0, largest, 1.0)  # so that no square overflows or underflows
    return _effective(shares.sum(axis=0), np.square(shares).sum(axis=0))


def fewest_patients(numbers: ArrayLike, otherwise: int) -> int:
    """Return the smallest number above zero, `otherwise` where there is none.

    Examples
    --------
    >>> fewest_patients([0, 4, 3], 9), fewest_patients([0], 9)
    (3, 9)
    """
    counts = np.asarray(numbers, dtype=np.int64)
    return int(counts[counts > 0].min(initial=otherwise))


def fewest_in_gram(memberships: Floats) -> int:
    """Return the fewest patients behind a cell of the Gram matrix, the sum over patients of products of two columns.

    Examples
    --------
    >>> fewest_in_gram(np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0], [0.0, 1.0]]))
    1
    """
    sizes = np.abs(memberships)
    largest = sizes.max(axis=0, initial=0.0)
    shares = sizes / np.where(largest > 0, largest, 1.0)
    if shares.min(initial=1.0, where=shares > 0) >= _MIN_SHARE:
        squares = np.square(shares)
        return fewest_patients(_effective(shares.T @ shares, squares.T @ squares), len(memberships))
    # Products of small shares may underflow to 0 and drop out: the largest product of each pair is brought to 1.
    numbers = [effective_numbers(shares * column[:, None]) for column in shares.T]
    return fewest_patients(np.concatenate(numbers), len(memberships))


def fewest_in_products(
    tensor: SparseTensor, factors: Sequence[ArrayLike | None], mode: int, values: ArrayLike | None = None
) -> int:
    """Return the fewest patients behind a cell of ``mttkrp(tensor, factors, mode, values)``.

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N modes.
    factors : sequence of array, each of shape (I_n, R)
        One matrix per mode, memberships first; the one of `mode` is not read.
    mode : int
        Mode whose rows the sum has, 1 or more.
    values : array of float, shape (nnz,), optional
        Values in place of the counts.

    Returns
    -------
    int
        The number of patients of the tensor where every cell is 0.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0, 0], [1, 0, 0], [2, 0, 1]], [1.0, 1.0, 1.0], (3, 1, 2))
    >>> fewest_in_products(tensor, [np.ones((3, 1)), None, [[1.0], [1e-9]]], 1)
    2
    >>> fewest_in_products(tensor, [np.ones((3, 1)), None, [[0.0], [1.0]]], 1)
    1
    """
    matrices = checked_factors(tensor, factors, mode)
    counts = tensor.counts if values is None else np.ascontiguousarray(values, dtype=np.float64)
    codes = np.ascontiguousarray(tensor.coordinates[:, mode])
    sums, squares = (np.zeros((tensor.shape[mode], matrices[0].shape[1])) for _ in range(2))
    order = tensor.order(mode)[0]  # by code, and by patient within a code, since entries come by patient
    _add_shares(order, tensor.places, counts, matrices[0], stack_features(matrices), mode, codes, sums, squares)
    return fewest_patients(_effective(sums, squares), tensor.shape[0])


def product_lengths(tensor: SparseTensor, factors: Sequence[ArrayLike | None], mode: int) -> Floats:
    """Return the length ||M_i|| of every patient's part of ``mttkrp(tensor, factors, mode)``, shape (n,).

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0, 0], [0, 1, 0]], [3.0, 4.0], (1, 2, 1))
    >>> product_lengths(tensor, [np.ones((1, 1)), None, [[1.0]]], 1).tolist()
    [5.0]
    """
    squares = np.zeros(tensor.shape[0])
    for patients, _, added in _contributions(tensor, factors, mode):
        squares += np.bincount(patients, np.square(added), minlength=len(squares))
    return np.sqrt(squares)


def fewest_in_errors(tensor: SparseTensor, factors: Sequence[Floats]) -> int:
    """Return the fewest patients behind the squared errors of a fit, over all cells and over the entries above zero.

    Parameters
    ----------
    tensor : SparseTensor
    factors : sequence of arrays of shape (I_n, R)
        One matrix per mode, memberships first.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0], [1, 0], [2, 0]], [1.0, 1.0, 9.0], (3, 1))
    >>> fewest_in_errors(tensor, [np.ones((3, 1)), np.ones((1, 1))])
    1
    """
    patients, memberships = tensor.coordinates[:, 0], factors[0]
    inner = (mttkrp(tensor, factors, 0) * memberships).sum(axis=1)
    predicted = ((memberships @ hadamard_gram(factors, skip=0)) * memberships).sum(axis=1)
    observed = patient_sums(tensor, np.square(tensor.counts))
    everywhere = observed - 2 * inner + predicted
    # Differences within rounding errors are 0: with an exact fit, a patient has no error.
    everywhere[np.abs(everywhere) <= _ROUNDING * (observed + predicted)] = 0.0
    residuals = tensor.counts - predict_entries(tensor, factors)
    at_entries = np.bincount(patients, np.square(residuals), minlength=tensor.shape[0])
    return fewest_patients(effective_numbers(np.column_stack([everywhere, at_entries])), tensor.shape[0])


def patient_sums(tensor: SparseTensor, values: Floats) -> Floats:
    """Return the sum of the values of every patient's entries, shape (n,).

    Examples
    --------
    >>> patient_sums(SparseTensor([[0, 0], [0, 1]], [3.0, 4.0], (2, 2)), np.array([3.0, 4.0])).tolist()
    [7.0, 0.0]
    """
    return np.bincount(tensor.coordinates[:, 0], values, minlength=tensor.shape[0]).astype(np.float64)


def fewest_in_place(tensor: SparseTensor) -> int:
    """Return the fewest patients that share a combination of codes, one per mode; factors may single out any of them.

    Examples
    --------
    >>> fewest_in_place(SparseTensor([[0, 0, 0], [1, 0, 0], [2, 0, 1]], [1.0, 1.0, 1.0], (3, 1, 2)))
    1
    """
    places = np.unique(tensor.coordinates, axis=0)[:, 1:]  # an entry that is listed twice is of one patient
    return fewest_patients(np.unique(places, axis=0, return_counts=True)[1], tensor.shape[0])


def _contributions(
    tensor: SparseTensor, factors: Sequence[ArrayLike | None], mode: int
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], Floats]]:
    """Yield, column by column, patients, codes of `mode`, and what each pair of them adds to its cell."""
    matrices = checked_factors(tensor, factors, mode)
    places = tensor.coordinates
    order = tensor.order(mode)[0]  # by code, and by patient within a code, since entries come by patient
    keys = (places[:, mode].astype(np.int64) * tensor.shape[0] + places[:, 0])[order]
    starts = np.flatnonzero(np.diff(keys, prepend=-1))
    codes, patients = np.divmod(keys[starts], max(tensor.shape[0], 1))
    for column in range(matrices[0].shape[1] if len(starts) else 0):
        added = tensor.counts.copy()
        for m, matrix in enumerate(matrices):
            if m != mode:
                added *= matrix[places[:, m], column]
        yield patients, codes, np.add.reduceat(added[order], starts)


@njit(cache=True, nogil=True)
def _add_patient(added: Floats, largest: Floats, sums: Floats, squares: Floats) -> None:
    """Add one patient to the cells of a code; units grow with the largest, so that no square under- or overflows."""
    for r in range(len(added)):
        size = abs(added[r])
        if size > largest[r]:
            shrunk = largest[r] / size
            sums[r] = sums[r] * shrunk + 1.0
            squares[r] = squares[r] * shrunk * shrunk + 1.0
            largest[r] = size
        elif size > 0.0:
            share = size / largest[r]
            sums[r] += share
            squares[r] += share * share
        added[r] = 0.0


@njit(cache=True, nogil=True)
def _add_shares(
    order: Pointers,
    places: Integers,
    counts: Floats,
    memberships: Floats,
    features: Floats,
    mode: int,
    codes: Integers,
    sums: Floats,
    squares: Floats,
) -> None:
    """Add up what each patient adds to a cell, and its square, in units of the most that one patient adds to it."""
    rank = memberships.shape[1]
    product, added, largest = np.empty(rank), np.zeros(rank), np.zeros(rank)
    for place in range(len(order)):
        e = order[place]
        product[:] = counts[e]
        for m in range(places.shape[1]):
            if m != mode:
                row = memberships[places[e, 0]] if m == 0 else features[places[e, m]]
                for r in range(rank):
                    product[r] *= row[r]
        for r in range(rank):
            added[r] += product[r]
        following = order[place + 1] if place + 1 < len(order) else -1
        same_code = following >= 0 and codes[following] == codes[e]
        if not same_code or places[following, 0] != places[e, 0]:  # the last entry of the patient and the code
            _add_patient(added, largest, sums[codes[e]], squares[codes[e]])
            if not same_code:
                largest[:] = 0.0


def _effective(sums: ArrayLike, squares: ArrayLike) -> NDArray[np.int64]:
    totals, lengths = np.asarray(sums, dtype=np.float64), np.asarray(squares, dtype=np.float64)
    numbers = np.square(totals) / np.where(lengths > 0, lengths, 1.0)
    return np.floor(numbers * (1 + _ROUNDING)).astype(np.int64)
