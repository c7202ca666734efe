"""Fusion of the sites' relations: weights of the views, consensus and affinity.

Letters as in FedMSGL (AAAI 2025): K views, n common samples, c clusters; C and U are a view's consistent and specific
relations between samples, G the consensus of the C, theta the weights of the views, A the affinity, F the spectral
embedding with rows of length 1. Matrices over samples are arrays or csr_arrays of shape (n, n); the entries of a view
are at the places of its samples in the common order.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, issparse

from multicentre.errors import DataError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Matrix: TypeAlias = Any


@dataclass(frozen=True)
class Neighbours:
    """The largest relations of each sample of a view, as lists.

    Parameters
    ----------
    places : int array of shape (m,)
        Place of each of the view's samples in the common order, each place once.
    columns : int array of shape (m, k)
        Places of the related samples; -1 where a list has ended.
    values : array of shape (m, k)
        Strength of the relations.
    """

    places: Integers
    columns: Integers
    values: Floats


def place_lists(lists: Neighbours, n: int) -> csr_array:
    """Return the lists of a view as a matrix over the n common samples; rows of absent samples are empty.

    Raises
    ------
    DataError
        Places outside the common order or twice in it, a sample related to itself or twice to another, values that
        are negative or not finite, or arrays of different shapes.

    Examples
    --------
    >>> lists = Neighbours(np.array([2, 0]), np.array([[0], [2]]), np.array([[0.25], [0.5]]))
    >>> place_lists(lists, 3).toarray().tolist()
    [[0.0, 0.0, 0.5], [0.0, 0.0, 0.0], [0.25, 0.0, 0.0]]
    """
    places, columns, values = lists.places, lists.columns, lists.values
    if columns.ndim != 2 or columns.shape != values.shape or places.shape != columns.shape[:1]:
        raise DataError(
            "columns and values of relations must have equal shapes with one row per place; "
            f"got {columns.shape} and {values.shape} for {len(places)} places",
            where="lists",
        )
    is_listed = columns >= 0
    row = np.broadcast_to(places[:, None], columns.shape)[is_listed]
    column, value = columns[is_listed], values[is_listed]
    _check_lists(places, row, column, value, n)
    matrix = csr_array((value.astype(np.float64), (row, column)), shape=(n, n))
    if matrix.nnz < len(column):
        raise DataError("each pair must be listed once; got a pair twice", where="lists, columns")
    return matrix


def _check_lists(places: Integers, row: Integers, column: Integers, value: Floats, n: int) -> None:
    is_in_view = np.zeros(n, dtype=np.bool_)
    if len(places) and (places.min() < 0 or places.max() >= n or len(np.unique(places)) < len(places)):
        raise DataError(
            f"places must be distinct and from 0 to {n - 1}; got repeated or larger ones", where="lists, places"
        )
    is_in_view[places] = True
    if len(column) and (column.max() >= n or not is_in_view[column].all() or (row == column).any()):
        raise DataError(
            "samples must be related to other samples of the view; got relations to themselves or outside the view",
            where="lists, columns",
        )
    if not np.isfinite(value).all() or (value < 0).any():
        raise DataError("relations must be finite and non-negative; got other values", where="lists, values")


def symmetrise(matrix: Matrix) -> Matrix:
    """Return (M + M') / 2.

    Examples
    --------
    >>> symmetrise(np.array([[0.0, 1.0], [0.0, 0.0]])).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    mean = (matrix + matrix.T) / 2.0
    return csr_array(mean) if issparse(matrix) else np.asarray(mean)


def majorise(distances: ArrayLike, scale: float) -> Floats:
    """Return exp(-d_k / s), the weights of d_k^2 in the majorisation of sum_k s^2 h(d_k / s).

    h(x) = 1 - (1 + x) exp(-x) has h'(x) = x exp(-x) and is concave in x^2: s^2 h(d / s) lies below its tangent in d^2,
    whose slope is exp(-d / s) / 2. All weights are 1 at a scale of 0, where all distances are 0.

    Parameters
    ----------
    distances : array of shape (K,)
        Frobenius norms of C^k - G.
    scale : float
        s.

    Examples
    --------
    >>> majorise([0.0, 2.0], 2.0).round(4).tolist()
    [1.0, 0.3679]
    """
    lengths = np.asarray(distances, dtype=np.float64)
    if lengths.ndim != 1 or not np.isfinite(lengths).all() or (lengths < 0).any():
        raise DataError(f"distances must be finite and non-negative, one per view; got {lengths}", where="distances")
    return np.asarray(np.exp(-lengths / scale) if scale > 0 else np.ones_like(lengths))


def weigh_views(distances: ArrayLike) -> Floats:
    """Return theta, the weights of the views (equation 6, FedMSGL, with distances in units of their mean).

    theta_k is proportional to exp(-d_k / mean d) and the weights add up to 1. As printed, exp(-d_k) underflows
    as the number of samples grows; the scale also keeps the weights the same whatever the unit of the relations.

    Parameters
    ----------
    distances : array of shape (K,)
        Frobenius norms of C^k - G.

    Examples
    --------
    >>> weigh_views([1.0, 1.0, 4.0]).round(4).tolist()
    [0.4498, 0.4498, 0.1004]
    """
    lengths = np.asarray(distances, dtype=np.float64)
    weights = majorise(lengths, float(lengths.mean()) if lengths.size else 0.0)
    return np.asarray(weights / weights.sum())


def weigh_alike(distances: ArrayLike) -> Floats:
    """Return equal weights that add up to 1, shape (K,), whatever the distances.

    Examples
    --------
    >>> weigh_alike([1.0, 4.0]).tolist()
    [0.5, 0.5]
    """
    n_views = len(np.asarray(distances))
    return np.full(n_views, 1.0 / n_views)


def two_digits(distance: float) -> float:
    """Return a distance to two significant digits.

    Examples
    --------
    >>> two_digits(3.14159), two_digits(0.0)
    (3.1, 0.0)
    """
    return float(f"{distance:.1e}")


def spread(embedding: ArrayLike, support: Matrix) -> Matrix:
    """Return Zf, the squared distances between rows of F: all of them, or where a csr_array has entries.

    Parameters
    ----------
    embedding : array of shape (n, c)
        Rows of length 1; the distances are then between 0 and 4.
    support : array or csr_array of shape (n, n)

    Examples
    --------
    >>> spread([[1.0, 0.0], [0.0, 1.0]], np.zeros((2, 2))).tolist()
    [[0.0, 2.0], [2.0, 0.0]]
    """
    rows = np.asarray(embedding, dtype=np.float64)
    lengths = (rows**2).sum(axis=1)
    if not issparse(support):
        distances = np.maximum(lengths[:, None] + lengths - 2.0 * rows @ rows.T, 0.0)
        np.fill_diagonal(distances, 0.0)
        return np.asarray(distances)
    placed = csr_array(support, copy=True)
    row = np.repeat(np.arange(len(rows)), np.diff(placed.indptr))
    products = np.einsum("ij,ij->i", rows[row], rows[placed.indices])
    placed.data = np.maximum(lengths[row] + lengths[placed.indices] - 2.0 * products, 0.0)
    return placed


def pull_together(mean: Matrix, embedding: ArrayLike, beta: float) -> tuple[Matrix, float]:
    """Return G = max(mean C - (beta / 4) t Zf, 0) with a zero diagonal, and beta t.

    t is the mean positive entry of the mean, which gives beta the same meaning at any number of samples. G minimises
    sum_k theta_k |C^k - G|^2 / 2 + (beta t / 4) <Zf, G> over G >= 0 where theta adds up to 1 and `mean` is the sum of
    theta_k C^k (equation 9, FedMSGL).

    Parameters
    ----------
    mean : array or csr_array of shape (n, n)
        Not negative.
    embedding : array of shape (n, c)
        F, rows of length 1.
    beta : float
        0 leaves the mean unchanged.

    Examples
    --------
    >>> mean = np.array([[0.0, 0.4, 0.2], [0.4, 0.0, 0.0], [0.2, 0.0, 0.0]])
    >>> consensus, force = pull_together(mean, [[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], 2.0)
    >>> consensus.tolist(), round(force, 3)
    ([[0.0, 0.4, 0.0], [0.4, 0.0, 0.0], [0.0, 0.0, 0.0]], 0.6)
    """
    entries = mean.data if issparse(mean) else mean
    positive = entries[entries > 0]
    force = beta * float(positive.mean()) if positive.size else 0.0
    return apply_force(mean, embedding, force), force


def apply_force(mean: Matrix, embedding: ArrayLike, force: float) -> Matrix:
    """Return max(M - (force / 4) Zf, 0) with a zero diagonal; entries of a csr_array that fall to 0 are dropped.

    Examples
    --------
    >>> apply_force(np.ones((2, 2)), [[1.0], [-1.0]], 0.5).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    distances = spread(embedding, mean)
    if not issparse(mean):
        consensus = np.maximum(mean - force / 4.0 * distances, 0.0)
        np.fill_diagonal(consensus, 0.0)
        return np.asarray(consensus)
    pulled = csr_array(mean, copy=True)
    row = np.repeat(np.arange(pulled.shape[0]), np.diff(pulled.indptr))
    pulled.data = np.where(row == pulled.indices, 0.0, np.maximum(mean.data - force / 4.0 * distances.data, 0.0))
    pulled.eliminate_zeros()
    return pulled


def objective(
    local: ArrayLike,
    distances: ArrayLike,
    consensus: Matrix,
    embedding: ArrayLike,
    *,
    scale: float,
    strength: float,
    force: float,
) -> float:
    """Return J = sum_k local_k + strength s^2 sum_k h(d_k / s) + (force / 4) <Zf, G>, with h(x) = 1 - (1 + x) exp(-x).

    With F, s, strength and force constant, J does not increase in either of two steps. A site minimises its local
    problem plus (strength w_k / 2) |C^k - G|^2, where w = `majorise(d, s)`. The coordinator sets G = `apply_force` of
    the mean of the C^k in proportion to w, at force / (strength sum w). The rounds of the method, with weights theta
    that add up to 1 and a coupling gamma, are these steps at strength = gamma / sum w and force = gamma beta t.

    Parameters
    ----------
    local : array of shape (K,)
        Values of the sites' local problems, without coupling.
    distances : array of shape (K,)
        Frobenius norms of C^k - G.
    consensus : array or csr_array of shape (n, n)
        G.
    embedding : array of shape (n, c)
        F, rows of length 1.
    scale, strength, force : float

    Examples
    --------
    >>> objective([1.0, 2.0], [0.0, 0.0], np.eye(2), np.eye(2), scale=1.0, strength=1.0, force=1.0)
    3.0
    """
    ratio = np.asarray(distances, dtype=np.float64) / (scale if scale > 0 else 1.0)
    apart = strength * scale**2 * float((1.0 - (1.0 + ratio) * np.exp(-ratio)).sum())
    attraction = float((spread(embedding, consensus) * consensus).sum())
    return float(np.sum(local)) + apart + force / 4.0 * attraction


def pack_pairs(symmetric: Floats) -> Floats:
    """Return the entries above the diagonal, row after row, of shape (n (n - 1) / 2,).

    Examples
    --------
    >>> pack_pairs(np.array([[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]])).tolist()
    [1.0, 2.0, 3.0]
    """
    n = len(symmetric)
    return np.concatenate([symmetric[i, i + 1 :] for i in range(n)]) if n > 1 else np.zeros(0)


def unpack_pairs(packed: Floats, n: int) -> Floats:
    """Return the symmetric matrix with a zero diagonal from the output of `pack_pairs`.

    Raises
    ------
    DataError
        Not as many entries as n samples have pairs.

    Examples
    --------
    >>> unpack_pairs(np.array([1.0, 2.0, 3.0]), 3).tolist()
    [[0.0, 1.0, 2.0], [1.0, 0.0, 3.0], [2.0, 3.0, 0.0]]
    """
    if packed.shape != (n * (n - 1) // 2,):
        raise DataError(f"{n} samples must have {n * (n - 1) // 2} pairs; got {packed.size}", where="pairs")
    matrix = np.zeros((n, n))
    start = 0
    for i in range(n):
        matrix[i, i + 1 :] = packed[start : start + n - 1 - i]
        start += n - 1 - i
    return np.asarray(matrix + matrix.T)
