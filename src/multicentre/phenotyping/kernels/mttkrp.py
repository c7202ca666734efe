"""Matricised tensor times Khatri-Rao product (MTTKRP) of a sparse tensor, from which least-squares updates follow.

Three modes are traversed in the order of patients and fibres are reused, as in compressed sparse fibres (Smith et al.,
*SPLATT*, IPDPS 2015): a patient's row stays in the cache, and there is no second copy of the entries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.compilation import njit
from multicentre.errors import ConfigurationError, DataError

Floats = NDArray[np.float64]

Integers = NDArray[np.int32]

Pointers = NDArray[np.int64]


class Fibres(NamedTuple):
    """Entries of a tensor of three modes, grouped by patient and code of the first feature mode.

    Attributes
    ----------
    patients : array of int64, shape (I + 1,)
        Fibres of patient i are ``patients[i]:patients[i + 1]``.
    codes : array of int32, shape (n_fibres,)
        Code of the first feature mode.
    entries : array of int64, shape (n_fibres + 1,)
        Entries of fibre f are ``entries[f]:entries[f + 1]``.
    leaves : array of int32, shape (nnz,)
        Code of the second feature mode, entry by entry.
    """

    patients: Pointers
    codes: Integers
    entries: Pointers
    leaves: Integers


@dataclass(frozen=True, eq=False)
class SparseTensor:
    """Counts of N modes, patients first; entries that are not listed are exact zeros.

    Parameters
    ----------
    coordinates : array of int, shape (nnz, N)
        Patient and codes of every entry, counted from 0, sorted by patient. Kernels are faster if entries are sorted by
        all modes. Entries that are listed twice count as two.
    counts : array of float, shape (nnz,)
        Value of every entry.
    shape : tuple of int, length N >= 2
        Number of patients, then of codes of every mode; a patient or a code may have no entry.

    Raises
    ------
    DataError
        Entries are not sorted by patient, lie outside the tensor, or differ in number from the counts.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0, 1], [0, 1, 0], [2, 1, 1]], [2.0, 1.0, 4.0], (3, 2, 2))
    >>> tensor.nnz, tensor.n_modes, tensor.norm_squared
    (3, 3, 21.0)
    >>> tensor.order(0)[1].tolist()
    [0, 2, 2, 3]
    """

    coordinates: Integers
    counts: Floats
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        shape = tuple(int(side) for side in self.shape)
        places = np.ascontiguousarray(self.coordinates, dtype=np.int32).reshape(-1, len(shape))
        counts = np.ascontiguousarray(self.counts, dtype=np.float64)
        _check_entries(places, counts, shape)
        for name, value in (("coordinates", places), ("counts", counts), ("shape", shape)):
            object.__setattr__(self, name, value)

    @property
    def nnz(self) -> int:
        """Number of entries that are listed."""
        return len(self.counts)

    @property
    def n_modes(self) -> int:
        """Number of modes, patients among them."""
        return len(self.shape)

    @cached_property
    def norm_squared(self) -> float:
        """Sum of the squared counts."""
        return float(self.counts @ self.counts)

    def order(self, mode: int) -> tuple[Pointers, Pointers]:
        """Return the entries slice by slice; computed once for each mode.

        Parameters
        ----------
        mode : int
            Mode whose slices are wanted.

        Returns
        -------
        permutation : array of int64, shape (nnz,)
            Positions of the entries, sorted by their index in the mode; the order is stable.
        pointers : array of int64, shape (I_mode + 1,)
            Slice i is ``permutation[pointers[i]:pointers[i + 1]]``.
        """
        if mode not in self._orders:
            index = self.coordinates[:, mode]
            self._orders[mode] = np.argsort(index, kind="stable"), _pointers(index, self.shape[mode])
        return self._orders[mode]

    @cached_property
    def _orders(self) -> dict[int, tuple[Pointers, Pointers]]:
        return {}

    @cached_property
    def places(self) -> Integers:
        """Patient, then rows of the stacked feature matrices, of every entry; shape (nnz, N), see `stack_features`."""
        offsets = np.cumsum([0, 0, *self.shape[1:-1]])
        return np.asarray(self.coordinates + offsets, dtype=np.int32)

    @cached_property
    def fibres(self) -> Fibres:
        """Runs of entries that share patient and first code; for three modes."""
        patient, code, leaf = np.ascontiguousarray(self.coordinates.T)
        starts = np.flatnonzero(np.diff(patient, prepend=-1) | np.diff(code, prepend=-1))
        entries = np.append(starts, self.nnz)
        return Fibres(_pointers(patient[starts], self.shape[0]), code[starts], entries, leaf)


def _pointers(index: Integers, size: int) -> Pointers:
    return np.concatenate([[0], np.cumsum(np.bincount(index, minlength=size))])


def _check_entries(places: Integers, counts: Floats, shape: tuple[int, ...]) -> None:
    if counts.shape != (len(places),):
        raise DataError(
            f"counts must be as many as the {len(places)} entries; got shape {counts.shape}",
            where="tensor",
            hint="Pass one count per entry.",
        )
    if ((places < 0) | (places >= np.array(shape))).any():
        raise DataError(
            f"coordinates must be from 0 to below {shape}; got others", where="coordinates", hint="Count from 0."
        )
    if (np.diff(places[:, 0]) < 0).any():
        raise DataError(
            "entries must be sorted by patient; got another order",
            where="coordinates",
            hint="Sort them by their first column.",
        )


def checked_factors(
    tensor: SparseTensor, factors: Sequence[ArrayLike | None], skip: int | None = None
) -> tuple[Floats, ...]:
    """Return factors as contiguous matrices; that at `skip` is not read and is returned as zeros.

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N modes.
    factors : sequence of array, each of shape (I_n, R)
        One matrix per mode.
    skip : int, optional
        Mode whose matrix is not needed.

    Raises
    ------
    ConfigurationError
        A matrix is missing, does not fit its mode, or differs in rank.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 1]], [1.0], (2, 3))
    >>> [factor.shape for factor in checked_factors(tensor, [None, [[1.0], [2.0], [3.0]]], skip=0)]
    [(2, 1), (3, 1)]
    """
    matrices = [None if n == skip else np.ascontiguousarray(one, dtype=np.float64) for n, one in enumerate(factors)]
    rank = next((one.shape[-1] for one in matrices if one is not None and one.ndim), 0)
    expected = [None if n == skip else (size, rank) for n, size in enumerate(tensor.shape)]
    if [None if one is None else one.shape for one in matrices] != expected:
        raise ConfigurationError(
            f"factors must fit a tensor of {' x '.join(str(size) for size in tensor.shape)}; "
            f"got {[None if one is None else one.shape for one in matrices]}",
            where="factors",
            hint="Pass one matrix per mode, with a row for each of its codes and a column for each phenotype.",
        )
    return tuple(
        np.zeros((size, rank)) if one is None else one for one, size in zip(matrices, tensor.shape, strict=True)
    )


def stack_features(factors: Sequence[Floats]) -> Floats:
    """Return the matrices of all modes but the patients' below each other, shape (I_1 + ... + I_(N-1), R).

    Examples
    --------
    >>> stack_features([np.zeros((5, 1)), np.ones((1, 1)), np.full((1, 1), 2.0)]).tolist()
    [[1.0], [2.0]]
    """
    return np.concatenate(factors[1:])


def mttkrp(
    tensor: SparseTensor, factors: Sequence[ArrayLike | None], mode: int, values: ArrayLike | None = None
) -> Floats:
    """Matricised tensor times Khatri-Rao product, M_n = X_(n) (khatri-rao of F^(m), m != n).

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N modes.
    factors : sequence of array, each of shape (I_n, R)
        One matrix per mode; that of `mode` is not read and may be None.
    mode : int
        Mode of the rows of the result.
    values : array of float, shape (nnz,), optional
        Values in place of the counts.

    Returns
    -------
    array of float, shape (I_mode, R)
        Row i is the sum, over entries e of slice i, of the count times the elementwise product of the other modes'
        rows. It depends only on those entries, bit for bit.

    Raises
    ------
    ConfigurationError
        The factors do not fit the tensor.

    Examples
    --------
    >>> tensor = SparseTensor([[0, 0, 1], [1, 1, 0]], [2.0, 1.0], (2, 2, 2))
    >>> mttkrp(tensor, [None, [[1.0], [2.0]], [[3.0], [5.0]]], mode=0).tolist()
    [[10.0], [6.0]]
    """
    matrices = checked_factors(tensor, factors, mode)
    counts = tensor.counts if values is None else np.ascontiguousarray(values, dtype=np.float64)
    rows = np.zeros((tensor.shape[mode], matrices[mode].shape[1]))
    if tensor.n_modes != 3:
        _add_entries(
            tensor.places, counts, matrices[0], stack_features(matrices), mode, tensor.coordinates[:, mode], rows
        )
    elif mode == 0:
        _add_to_patients(tensor.fibres, counts, matrices[1], matrices[2], rows)
    elif mode == 1:
        _add_to_first(tensor.fibres, counts, matrices[0], matrices[2], rows)
    else:
        _add_to_second(tensor.fibres, counts, matrices[0], matrices[1], rows)
    return rows


@njit(cache=True, nogil=True)
def _add_to_patients(fibres: Fibres, counts: Floats, first: Floats, second: Floats, rows: Floats) -> None:
    rank = rows.shape[1]
    inner = np.empty(rank)
    for i in range(rows.shape[0]):
        for f in range(fibres.patients[i], fibres.patients[i + 1]):
            inner[:] = 0.0
            for e in range(fibres.entries[f], fibres.entries[f + 1]):
                count, k = counts[e], fibres.leaves[e]
                for r in range(rank):
                    inner[r] += count * second[k, r]
            j = fibres.codes[f]
            for r in range(rank):
                rows[i, r] += inner[r] * first[j, r]


@njit(cache=True, nogil=True)
def _add_to_first(fibres: Fibres, counts: Floats, patients: Floats, second: Floats, rows: Floats) -> None:
    rank = rows.shape[1]
    inner = np.empty(rank)
    for i in range(patients.shape[0]):
        for f in range(fibres.patients[i], fibres.patients[i + 1]):
            inner[:] = 0.0
            for e in range(fibres.entries[f], fibres.entries[f + 1]):
                count, k = counts[e], fibres.leaves[e]
                for r in range(rank):
                    inner[r] += count * second[k, r]
            j = fibres.codes[f]
            for r in range(rank):
                rows[j, r] += inner[r] * patients[i, r]


@njit(cache=True, nogil=True)
def _add_to_second(fibres: Fibres, counts: Floats, patients: Floats, first: Floats, rows: Floats) -> None:
    rank = rows.shape[1]
    outer = np.empty(rank)
    for i in range(patients.shape[0]):
        for f in range(fibres.patients[i], fibres.patients[i + 1]):
            j = fibres.codes[f]
            for r in range(rank):
                outer[r] = patients[i, r] * first[j, r]
            for e in range(fibres.entries[f], fibres.entries[f + 1]):
                count, k = counts[e], fibres.leaves[e]
                for r in range(rank):
                    rows[k, r] += count * outer[r]


@njit(cache=True, nogil=True)
def _add_entries(
    places: Integers, counts: Floats, patients: Floats, features: Floats, mode: int, target: Integers, rows: Floats
) -> None:
    rank = rows.shape[1]
    product = np.empty(rank)
    for e in range(len(counts)):
        product[:] = counts[e]
        for m in range(places.shape[1]):
            if m != mode:
                row = patients[places[e, 0]] if m == 0 else features[places[e, m]]
                for r in range(rank):
                    product[r] *= row[r]
        i = target[e]
        for r in range(rank):
            rows[i, r] += product[r]
