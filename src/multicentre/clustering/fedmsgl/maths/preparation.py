"""One site's view before it is expressed by itself: equations (3) and (4) of FedMSGL, made free of units.

References
----------
D. Li, Z. Yang and S. Xie (2025), FedMSGL: a self-expressive hypergraph based federated multi-view learning, AAAI.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.sparse import csr_array, issparse

Floats = NDArray[np.float64]

Norm = Literal["l2", "raw", "z", "mms"]

NOISE = 1e-12


@dataclass(frozen=True)
class GramFactor:
    """The Gram matrix of n samples as K = V diag(e) V'.

    Parameters
    ----------
    values : array of shape (r,)
        e > 0, in descending order; empty where all samples are equal.
    vectors : array of shape (n, r)
        V, with orthonormal columns.
    """

    values: Floats
    vectors: Floats


def _divide(numerator: Floats, denominator: Floats) -> Floats:
    """Return the quotient, 0 where the denominator is 0."""
    return np.divide(
        numerator,
        denominator,
        out=np.zeros(np.broadcast_shapes(numerator.shape, denominator.shape)),
        where=denominator != 0.0,
    )


def _scale_samples(X: Floats) -> Floats:
    held = _divide(X, np.maximum(X.max(axis=1, keepdims=True), -X.min(axis=1, keepdims=True)))
    return _divide(held, np.linalg.norm(held, axis=1, keepdims=True))


def _scale_features(X: Floats) -> Floats:
    centred = X - X.mean(axis=0)
    spread = np.sqrt(np.mean(centred**2, axis=0))
    spread[spread <= NOISE * np.abs(X).max(axis=0)] = 0.0
    return _divide(centred, spread)


def _scale_ranges(X: Floats) -> Floats:
    low = X.min(axis=1, keepdims=True)
    spread = X.max(axis=1, keepdims=True) - low
    spread[spread <= NOISE * np.abs(X).max(axis=1, keepdims=True)] = 0.0
    return _divide(X - low, spread)


_SCALES: dict[str, Callable[[Floats], Floats]] = {
    "l2": _scale_samples,
    "raw": np.copy,
    "z": _scale_features,
    "mms": _scale_ranges,
}


def prepare_view(X: Floats, norm: Norm = "l2") -> Floats:
    """Return the view normalised, centred over samples and scaled to a mean squared sample norm of 1.

    Centring changes no solution of equation (4), because codes sum to one, and takes away the one huge eigenvalue.
    The scaling gives the penalties the same meaning at every site, whatever its number of features.

    Parameters
    ----------
    X : array of shape (n, d)
        Samples by features, finite.
    norm : {"l2", "raw", "z", "mms"}, default "l2"
        Each sample to Euclidean norm 1; as it is; each feature to mean 0 and variance 1; each sample to [0, 1].

    Returns
    -------
    array of shape (n, d)
        A sample of zeros, a constant sample ("mms") and a constant feature ("z") count as zeros; where all samples
        agree the whole view is zeros.

    Examples
    --------
    >>> prepare_view(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 4.0], [0.0, 0.0]]), "raw").round(3)
    array([[ 0.13 , -0.521],
           [ 0.651, -0.521],
           [-0.391,  1.562],
           [-0.391, -0.521]])
    """
    largest = max(X.max(initial=0.0), -X.min(initial=0.0))
    scaled = _SCALES[norm](X / largest if largest > 0.0 else np.asarray(X, dtype=np.float64))
    uncentred = float(np.vdot(scaled, scaled)) / len(X)
    centred: Floats = np.subtract(scaled, scaled.mean(axis=0), out=scaled)
    squared = float(np.vdot(centred, centred)) / len(X)
    if squared <= NOISE**2 * uncentred:
        return np.zeros_like(centred)
    centred /= np.sqrt(squared)
    return centred


def factor_gram(X: Floats) -> GramFactor:
    """Return the eigenvalues above rounding, and their vectors, of the Gram matrix X X' of the samples.

    With fewer features than samples the Gram matrix is not formed.

    Parameters
    ----------
    X : array of shape (n, d)

    Examples
    --------
    >>> factor = factor_gram(np.array([[3.0, 0.0], [0.0, 0.0], [0.0, 1.0]]))
    >>> factor.values.round(6), factor.vectors.shape
    (array([9., 1.]), (3, 2))
    """
    n, d = X.shape
    if not np.any(X):
        return GramFactor(np.empty(0), np.empty((n, 0)))
    if d < n:
        vectors, singular, _ = linalg.svd(X, full_matrices=False, check_finite=False)
        kept = singular > max(n, d) * np.finfo(np.float64).eps * singular[0]
        return GramFactor(singular[kept] ** 2, np.ascontiguousarray(vectors[:, kept]))
    values, vectors = linalg.eigh(X @ X.T, check_finite=False, overwrite_a=True, driver="evd")
    kept = values > n * np.finfo(np.float64).eps * values[-1]
    return GramFactor(values[kept][::-1].copy(), np.ascontiguousarray(vectors[:, kept][:, ::-1]))


def manifold_weights(X: Floats) -> Floats:
    """Return the distances of equation (3), each row divided by the mean distance of its sample to the others.

    The paper divides by the sum, which makes the squares vanish as 1 / n^2 and its penalty with them.

    Parameters
    ----------
    X : array of shape (n, d)

    Returns
    -------
    array of shape (n, n)
        Row j holds m_ij, the weights of the codes of sample j: mean 1 beside the diagonal, which is 0, as are
        duplicates; all 0 for a sample that equals every other one.

    Examples
    --------
    >>> manifold_weights(np.array([[0.0], [1.0], [3.0]])).round(3)
    array([[0.   , 0.5  , 1.5  ],
           [0.667, 0.   , 1.333],
           [1.2  , 0.8  , 0.   ]])
    """
    squares = np.einsum("ij,ij->i", X, X)
    distances = X @ X.T
    distances *= -2.0
    distances += squares[:, None]
    distances += squares
    distances[distances <= NOISE * (squares[:, None] + squares)] = 0.0
    np.sqrt(distances, out=distances)
    np.fill_diagonal(distances, 0.0)
    return _divide(distances, distances.sum(axis=1, keepdims=True) / max(len(X) - 1, 1))


Integers = NDArray[np.int64]

Flags = NDArray[np.bool_]

Matrix: TypeAlias = Any


def mark_present(places: Integers, n: int) -> Flags:
    """Return which of the n common samples a view has.

    Examples
    --------
    >>> mark_present(np.array([2, 0]), 4).tolist()
    [True, False, True, False]
    """
    present = np.zeros(n, dtype=np.bool_)
    present[places] = True
    return present


def count_pairs(present: Flags, support: Matrix, weights: ArrayLike | None = None) -> Matrix:
    """Return how many views have both samples of each pair, or the sum of their weights.

    Parameters
    ----------
    present : bool array of shape (K, n)
    support : array or csr_array of shape (n, n)
        All pairs, or those where a csr_array has entries.
    weights : array of shape (K,), optional
        1 by default.

    Examples
    --------
    >>> count_pairs(np.array([[True, True, False], [True, True, True]]), np.zeros((3, 3))).tolist()
    [[2.0, 2.0, 1.0], [2.0, 2.0, 1.0], [1.0, 1.0, 1.0]]
    """
    known = present.astype(np.float64)
    weighted = known if weights is None else known * np.asarray(weights, dtype=np.float64)[:, None]
    if not issparse(support):
        return np.asarray(weighted.T @ known)
    counts = csr_array(support, copy=True)
    row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    counts.data = np.zeros(len(row))
    for one, held in zip(weighted, known, strict=True):
        counts.data += one[row] * held[counts.indices]
    return counts


def divide_by_pairs(total: Matrix, counts: Matrix) -> Matrix:
    """Return the mean over the views that have both samples of a pair; 0 for a pair that no view has.

    Parameters
    ----------
    total : array or csr_array of shape (n, n)
        Sum over the views.
    counts : array or csr_array of shape (n, n)
        From `count_pairs`; with the same entries as `total` where that is sparse.

    Examples
    --------
    >>> divide_by_pairs(np.array([[0.0, 3.0], [3.0, 0.0]]), np.array([[0.0, 2.0], [2.0, 0.0]])).tolist()
    [[0.0, 1.5], [1.5, 0.0]]
    """
    if not issparse(total):
        return np.divide(total, counts, out=np.zeros_like(total), where=counts > 0)
    mean = csr_array(total, copy=True)
    mean.data = np.divide(total.data, counts.data, out=np.zeros_like(total.data), where=counts.data > 0)
    return mean
