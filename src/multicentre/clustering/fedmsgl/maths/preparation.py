"""Preparation of a site's view for the self-expression (equations 3 and 4 of FedMSGL), and its profile by cluster.

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

ViewNorm = Literal["auto", "l2", "z", "mms", "raw"]

# Effective columns of a view below which "auto" scales columns. Below five, the length of a row is that of a few
# columns, which is so if columns have different units. Views of one kind in the data sets of the choice have at least
# 6.3, views of mixed columns at most 3.4.
MIN_EFFECTIVE = 5.0
# Share of a view's variance in the lengths of its rows above which "auto" scales columns, since rows of length 1 would
# lose it. In the data sets of the choice, views for which "l2" is better have at most 0.65, those for which "z" is
# better at least 0.88; this is the middle.
MAX_LENGTH_SHARE = 0.75
# Relative size below which a value is rounding error of float64 sums.
NOISE = 1e-12
# Rounding of profile means, in standard deviations. A coarser step hides the value of a single patient better; a finer
# one shows smaller differences between clusters.
PROFILE_STEP = 0.25
# Largest profile mean, in standard deviations: a mean that an outlier dominates does not show the outlier's value.
MAX_MEAN = 4.0


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
    bounded = _divide(X, np.maximum(X.max(axis=1, keepdims=True), -X.min(axis=1, keepdims=True)))
    return _divide(bounded, np.linalg.norm(bounded, axis=1, keepdims=True))


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


def count_effective_columns(X: Floats) -> float:
    """Return the effective number of columns that make up the lengths of the rows, between 1 and d.

    It is (sum_j q_j)^2 / sum_j q_j^2 for the mean squares q_j of the columns; 0 for a view of zeros.

    Parameters
    ----------
    X : array of shape (n, d)

    Examples
    --------
    >>> count_effective_columns(np.ones((3, 4)))
    4.0
    >>> round(count_effective_columns(np.array([[1.0, 100.0], [2.0, 90.0]])), 2)
    1.0
    """
    largest = max(X.max(initial=0.0), -X.min(initial=0.0))
    squares = np.mean((X / largest) ** 2, axis=0) if largest > 0.0 else np.zeros(X.shape[1])
    return float(_divide(squares.sum() ** 2, np.asarray((squares**2).sum())))


def measure_length_share(X: Floats) -> float:
    """Return the share of the variance of a view that the lengths of its rows have; 0 for equal rows.

    It is Var(r) |m|^2 / sum_j Var(x_j), with r the lengths of the rows, m the mean of the rows of length 1 and x_j the
    columns: near 1 if all columns rise and fall together, as neighbouring pixels do.

    Parameters
    ----------
    X : array of shape (n, d)

    Examples
    --------
    >>> round(measure_length_share(np.array([[1.0, 1.0], [2.0, 2.0], [4.0, 4.1]])), 3)
    1.0
    >>> measure_length_share(np.array([[1.0, 0.0], [0.0, 1.0]]))
    0.0
    """
    largest = max(X.max(initial=0.0), -X.min(initial=0.0))
    if largest <= 0.0:
        return 0.0
    scaled = X / largest
    lengths = np.linalg.norm(scaled, axis=1)
    direction = _divide(np.ones_like(lengths), lengths) @ scaled / np.count_nonzero(lengths)
    variance = float(scaled.var(axis=0).sum())
    if variance <= NOISE**2 * float(np.mean(lengths**2)):
        return 0.0
    return float(lengths.var() * (direction @ direction)) / variance


def choose_norm(X: Floats) -> ViewNorm:
    """Return the scaling that "auto" uses for a view.

    It is "z" with fewer than five effective columns, or if more than three quarters of the variance are in the lengths
    of the rows; else "l2".

    Examples
    --------
    >>> choose_norm(np.array([[65.0, 0.9], [40.0, 1.2]])), choose_norm(np.ones((3, 8)))
    ('z', 'l2')
    >>> choose_norm(np.array([[1.0], [2.0], [3.0]]) * np.ones(8))
    'z'
    """
    is_mixed = count_effective_columns(X) < MIN_EFFECTIVE
    return "z" if is_mixed or measure_length_share(X) > MAX_LENGTH_SHARE else "l2"


def prepare_view(X: Floats, norm: ViewNorm = "l2") -> Floats:
    """Return the view normalised, centred over samples and scaled to a mean squared sample norm of 1.

    Centring changes no solution of equation (4), because codes sum to one, and removes the one very large eigenvalue.
    The scaling gives the penalties the same meaning at every site, whatever its number of features.

    Parameters
    ----------
    X : array of shape (n, d)
        Samples by features, finite.
    norm : {"l2", "raw", "z", "mms", "auto"}, default "l2"
        Each sample to Euclidean norm 1; unchanged; each feature to mean 0 and variance 1; each sample to [0, 1]; or
        what :func:`choose_norm` returns.

    Returns
    -------
    array of shape (n, d)
        A sample of zeros, a constant sample ("mms") and a constant feature ("z") become zeros; if all samples are
        equal, the whole view becomes zeros.

    Examples
    --------
    >>> prepare_view(np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 4.0], [0.0, 0.0]]), "raw").round(3)
    array([[ 0.13 , -0.521],
           [ 0.651, -0.521],
           [-0.391,  1.562],
           [-0.391, -0.521]])
    """
    largest = max(X.max(initial=0.0), -X.min(initial=0.0))
    scale = _SCALES[choose_norm(X) if norm == "auto" else norm]
    scaled = scale(X / largest if largest > 0.0 else np.asarray(X, dtype=np.float64))
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
        is_positive = singular > max(n, d) * np.finfo(np.float64).eps * singular[0]
        return GramFactor(singular[is_positive] ** 2, np.ascontiguousarray(vectors[:, is_positive]))
    values, vectors = linalg.eigh(X @ X.T, check_finite=False, overwrite_a=True, driver="evd")
    is_positive = values > n * np.finfo(np.float64).eps * values[-1]
    return GramFactor(values[is_positive][::-1].copy(), np.ascontiguousarray(vectors[:, is_positive][:, ::-1]))


def manifold_weights(X: Floats) -> Floats:
    """Return the distances of equation (3), each row divided by the mean distance of its sample to the others.

    The paper divides by the sum, so that the squares, and their penalty, decrease as 1 / n^2.

    Parameters
    ----------
    X : array of shape (n, d)

    Returns
    -------
    array of shape (n, n)
        Row j holds m_ij, the weights of the codes of sample j: mean 1 off the diagonal. The diagonal and
        duplicates are 0; all 0 for a sample that equals every other one.

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
    """Return a flag for each of the n common samples: true if the view has it.

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
    indicators = present.astype(np.float64)
    weighted = indicators if weights is None else indicators * np.asarray(weights, dtype=np.float64)[:, None]
    if not issparse(support):
        return np.asarray(weighted.T @ indicators)
    counts = csr_array(support, copy=True)
    row = np.repeat(np.arange(counts.shape[0]), np.diff(counts.indptr))
    counts.data = np.zeros(len(row))
    for weight, indicator in zip(weighted, indicators, strict=True):
        counts.data += weight[row] * indicator[counts.indices]
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


@dataclass(frozen=True)
class Profile:
    """Rounded column means of a view by cluster.

    Parameters
    ----------
    sizes : int array of shape (c,)
        Patients of a cluster who have the view; 0 for small clusters.
    means : array of shape (c, d)
        Mean of a column in a cluster, in standard deviations from the overall mean, rounded to a quarter and at most 4
        in size; 0 for small clusters.
    """

    sizes: Integers
    means: Floats


def profile_columns(values: Floats, labels: Integers, n_clusters: int, least: int) -> Profile:
    """Return the profile of a view.

    Parameters
    ----------
    values : array of shape (n, d)
        A row of missing values belongs to a patient who lacks the view.
    labels : int array of shape (n,)
        0 to `n_clusters` - 1; -1 for no cluster.
    n_clusters : int
    least : int
        Clusters of fewer patients who have the view are left out.

    Examples
    --------
    >>> profile = profile_columns(np.array([[0.0], [0.2], [4.0], [4.2], [9.0]]), np.array([0, 0, 1, 1, 2]), 3, 2)
    >>> profile.sizes.tolist(), profile.means.ravel().tolist()
    ([2, 2, 0], [-1.0, 0.25, 0.0])
    """
    present = ~np.isnan(values).all(axis=1)
    rows, clusters = values[present], labels[present]
    sizes = np.bincount(clusters[clusters >= 0], minlength=n_clusters)
    sizes = np.where(sizes < least, 0, sizes)
    spread = rows.std(axis=0)
    standard = np.divide(rows - rows.mean(axis=0), spread, out=np.zeros_like(rows), where=spread > 0)
    means = np.zeros((n_clusters, values.shape[1]))
    for cluster in np.flatnonzero(sizes):
        means[cluster] = standard[clusters == cluster].mean(axis=0)
    return Profile(
        sizes.astype(np.int64), np.clip(PROFILE_STEP * np.rint(means / PROFILE_STEP), -MAX_MEAN, MAX_MEAN) + 0.0
    )
