"""The matricised tensor times Khatri-Rao product of a sparse tensor: what every least-squares update needs of the data.

Three modes are walked in the order of patients with fibres reused, as in compressed sparse fibres (Smith et al.,
*SPLATT*, IPDPS 2015): a patient's row stays in the nearest cache, and no second copy of the entries is kept.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numba import njit
from numpy.typing import ArrayLike

from multicentre.phenotyping.kernels.sparse import (
    Fibres,
    Floats,
    Integers,
    SparseTensor,
    checked_factors,
    stack_features,
)


def mttkrp(
    tensor: SparseTensor, factors: Sequence[ArrayLike | None], mode: int, values: ArrayLike | None = None
) -> Floats:
    """Matricised tensor times Khatri-Rao product, M_n = X_(n) (khatri-rao of F^(m), m != n).

    Parameters
    ----------
    tensor : SparseTensor
        Tensor of N modes.
    factors : sequence of array, each of shape (I_n, R)
        One matrix a mode; the one of `mode` is not looked at and may be anything, None for instance.
    mode : int
        Mode whose rows come out.
    values : array of float, shape (nnz,), optional
        Values to put in the place of the counts.

    Returns
    -------
    array of float, shape (I_mode, R)
        Row i is the sum, over entries e of slice i, of the count times the elementwise product of the other modes'
        rows. It depends on those entries alone, bit for bit.

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


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
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


@njit(cache=True)
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
