"""Hypergraphs from an affinity between samples, at several scales, and their spectral embedding.

Every sample has a hyperedge: itself and the samples of largest affinity to it. The normalised
Laplacian of a hypergraph is L = I - B B'. Only the factor B is formed, and only the eigenvectors of the embedding are
computed.

References
----------
D. Zhou, J. Huang, B. Schölkopf (2006), Learning with hypergraphs: clustering, classification, and embedding, Advances
in Neural Information Processing Systems 19. A. Y. Ng, M. I. Jordan, Y. Weiss (2001), On spectral clustering, Advances
in Neural Information Processing Systems 14. U. von Luxburg (2007), A tutorial on spectral clustering, Statistics and
Computing 17, 395-416.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.sparse import csr_array, diags_array, hstack, issparse

from multicentre.clustering.kernels.spectrum import Operator, leading_eigenvectors
from multicentre.core.tie_breaking import first_largest
from multicentre.errors import ConfigurationError, DataError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Affinity: TypeAlias = Any
IncidenceKind = Literal["binary", "soft", "sqrt"]
EXPONENTS: dict[IncidenceKind, float] = {"binary": 0.0, "soft": 1.0, "sqrt": 0.5}
# Default hyperedge sizes. Several scales make the embedding depend less on a single size.
SIZES = (5, 10, 20)
# Affinities of a sample whose mean is its local scale: as many as the largest default hyperedge holds.
LOCAL = 20
# Relative asymmetry that rounding can cause.
ASYMMETRY = 1e-8
# Relative length below which a row is rounding error.
NEGLIGIBLE = 1e-12


def incidence(affinity: Affinity, size: int, kind: IncidenceKind = "sqrt") -> csr_array:
    """Return the incidence of each sample in the hyperedge of each sample.

    Hyperedge j holds sample j, with 1, and the `size` - 1 samples i of largest affinity a_ij > 0: with 1 (`binary`),
    a_ij / max_i a_ij (`soft`) or its square root (`sqrt`). Of equal affinities the first sample is selected.

    Parameters
    ----------
    affinity : array or csr_array of shape (n, n)
        Symmetric, finite, not negative; the diagonal does not count.
    size : int
        At least 2; cut to n - 1, with a warning.
    kind : {"binary", "soft", "sqrt"}, default "sqrt"

    Returns
    -------
    csr_array of shape (n, n)
        Samples by hyperedges.

    Examples
    --------
    >>> affinity = np.array([[0, 4, 1.0], [4, 0, 2], [1, 2, 0]])
    >>> incidence(affinity, 2, "soft").toarray()
    array([[1., 1., 0.],
           [1., 1., 1.],
           [0., 0., 1.]])
    """
    (most,) = fit_sizes((size,), len_of(affinity))
    return _membership(*rank_neighbours(affinity, most - 1), _checked(kind))


def hyperedge_factor(affinity: Affinity, sizes: Sequence[int] = SIZES, kind: IncidenceKind = "sqrt") -> csr_array:
    """Return B with L = I - B B', the mean over hyperedge sizes of normalised Laplacians (equation 8, FedMSGL).

    For one size B = Dv^-1/2 H De^-1/2: H the incidence, Dv and De the row and column sums, all hyperedges of weight 1.
    For several, the factors are concatenated and divided by the root of their number.

    Parameters
    ----------
    affinity : array or csr_array of shape (n, n)
        As in `incidence`.
    sizes : sequence of int, default (5, 10, 20)
        Samples in a hyperedge; those that n samples cannot fill are cut to n - 1, with a warning.
    kind : {"binary", "soft", "sqrt"}, default "sqrt"

    Returns
    -------
    csr_array of shape (n, n times number of sizes)
        Singular values between 0 and 1.

    Examples
    --------
    >>> factor = hyperedge_factor(1 - np.eye(4), (2, 3), "binary")
    >>> factor.shape, np.linalg.norm(factor.toarray(), 2).round(6).item() <= 1
    ((4, 8), True)
    """
    fitted = fit_sizes(sizes, len_of(affinity))
    columns, values = rank_neighbours(affinity, max(fitted) - 1)
    factors = [normalise_incidence(_membership(columns[:, : size - 1], values, _checked(kind))) for size in fitted]
    return csr_array(hstack(factors, format="csr") / np.sqrt(len(fitted)))


def scale_locally(affinity: Affinity, power: float = 0.5) -> csr_array:
    """Return a_ij / (s_i s_j)^(power / 2), with s_i the mean of the 20 largest affinities of sample i.

    A small or loose group has small affinities. Local scales make them comparable to those of large, dense groups.

    Parameters
    ----------
    affinity : array or csr_array of shape (n, n)
        As in `incidence`.
    power : float, default 0.5
        0 returns the affinity unchanged; 1 divides by the geometric mean of both scales.

    Returns
    -------
    csr_array of shape (n, n)
        Symmetric. The row of a sample without affinities stays empty.

    Examples
    --------
    >>> affinity = np.array([[0, 4, 0, 0], [4, 0, 0, 0], [0, 0, 0, 1], [0, 0, 1.0, 0]])
    >>> scale_locally(affinity, 1.0).toarray()[[0, 2], [1, 3]].round(6).tolist()
    [3.0, 3.0]
    """
    values = rank_neighbours(affinity, min(LOCAL, len_of(affinity) - 1))[1]
    scales = values.mean(axis=1)
    factors = np.divide(1.0, scales, out=np.ones_like(scales), where=scales > 0.0) ** (power / 2.0)
    scaled = csr_array(affinity, copy=True)
    row = np.repeat(np.arange(len(factors)), np.diff(scaled.indptr))
    # One product per pair: it does not depend on the order of the two samples, so symmetry is exact.
    scaled.data = scaled.data * (factors[row] * factors[scaled.indices])
    return scaled


def normalise_incidence(membership: csr_array) -> csr_array:
    """Return Dv^-1/2 H De^-1/2 for a hypergraph, or a bipartite graph, without empty rows.

    Examples
    --------
    >>> normalise_incidence(csr_array([[1.0, 0.0], [1.0, 0.0]])).toarray().round(4).tolist()
    [[0.7071, 0.0], [0.7071, 0.0]]
    """
    rows, columns = membership.sum(axis=1), membership.sum(axis=0)
    scaled = csr_array(membership, copy=True)
    row = np.repeat(np.arange(scaled.shape[0]), np.diff(scaled.indptr))
    scaled.data = scaled.data / np.sqrt(rows[row] * columns[scaled.indices])
    return scaled


def embed(factor: csr_array, n_dimensions: int) -> tuple[Floats, Floats]:
    """Return the leading left singular vectors of B and the smallest eigenvalues of L = I - B B'.

    Parameters
    ----------
    factor : csr_array of shape (n, e)
        From `hyperedge_factor`.
    n_dimensions : int
        c, between 1 and n.

    Returns
    -------
    vectors : array of shape (n, c)
        Orthonormal, by ascending eigenvalue; the entry of largest size in each is positive.
    eigenvalues : array of shape (c,)
        Ascending, between 0 and 1.

    Raises
    ------
    NotConverged
        Residuals above 1e-6 after the last restart.

    Examples
    --------
    >>> two = np.kron(np.eye(2), 1 - np.eye(3))
    >>> vectors, eigenvalues = embed(hyperedge_factor(two, (3,)), 3)
    >>> eigenvalues.round(6).tolist()
    [0.0, 0.0, 1.0]
    """
    transposed = csr_array(factor.T)
    return _smallest(lambda block: factor @ (transposed @ block), factor.shape[0], n_dimensions)


def embed_graph(affinity: Affinity, n_dimensions: int, neighbours: int | None = None) -> tuple[Floats, Floats]:
    """Return eigenvectors and eigenvalues of the normalised Laplacian of the graph, the baseline of the hypergraph.

    Parameters
    ----------
    affinity : array or csr_array of shape (n, n)
        As in `incidence`. A sample without neighbours is a separate component.
    n_dimensions : int
    neighbours : int, optional
        Number of largest edges per sample to keep; all edges by default.

    Returns
    -------
    vectors : array of shape (n, c)
    eigenvalues : array of shape (c,)
        Ascending, between 0 and 2.

    Examples
    --------
    >>> embed_graph(np.kron(np.eye(2), 1 - np.eye(3)), 3)[1].round(6).tolist()
    [0.0, 0.0, 1.5]
    """
    n = len_of(affinity)
    (most,) = fit_sizes((neighbours + 1,), n) if neighbours is not None else (n,)
    directed = _as_csr(*rank_neighbours(affinity, most - 1))
    edges = csr_array(directed.maximum(directed.T))
    degrees = edges.sum(axis=1)
    isolated = (degrees == 0).astype(np.float64)
    inverse = diags_array(1.0 / np.sqrt(degrees + isolated))
    normalised = inverse @ edges @ inverse + diags_array(isolated)
    vectors, eigenvalues = _smallest(lambda block: (block + normalised @ block) / 2.0, n, n_dimensions)
    return vectors, 2.0 * eigenvalues


def unit_rows(vectors: ArrayLike) -> Floats:
    """Return the rows scaled to length 1; rows within rounding of 0, relative to the longest, become 0.

    Examples
    --------
    >>> unit_rows([[3.0, 4.0], [0.0, 0.0]]).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    rows = np.asarray(vectors, dtype=np.float64)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    is_nonzero = lengths > NEGLIGIBLE * lengths.max(initial=0.0)
    return np.where(is_nonzero, rows / np.where(is_nonzero, lengths, 1.0), 0.0)


def count_dimensions(n_clusters: int, steps: int) -> int:
    """Return the number of eigenvectors of :func:`diffuse`: `n_clusters`, and half as many and three more with steps.

    Examples
    --------
    >>> count_dimensions(10, 4), count_dimensions(10, 0)
    (18, 10)
    """
    return n_clusters + (n_clusters // 2 + 3 if steps else 0)


def diffuse(vectors: Floats, eigenvalues: Floats, n_clusters: int, steps: int) -> Floats:
    """Return the coordinates of samples after some steps of diffusion over the hypergraph, with rows of length 1.

    Eigenvector l has the weight (1 - lambda_l)^steps. More eigenvectors than clusters can be used because those after a
    gap of the eigenvalues have small weights. Without steps the first `n_clusters` eigenvectors have equal weights.

    Parameters
    ----------
    vectors : array of shape (n, m)
        Eigenvectors of L by ascending eigenvalue.
    eigenvalues : array of shape (m,)
    n_clusters : int
    steps : int
        Not negative.

    Returns
    -------
    array of shape (n, q)
        q from :func:`count_dimensions`, at most m.

    References
    ----------
    R. R. Coifman, S. Lafon (2006), Diffusion maps, Applied and Computational Harmonic Analysis 21, 5-30.

    Examples
    --------
    >>> diffuse(np.eye(3), np.array([0.0, 0.5, 0.9]), 2, 0).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    most = min(count_dimensions(n_clusters, steps), vectors.shape[1])
    weights = np.clip(1.0 - eigenvalues[:most], 0.0, 1.0) ** steps
    return unit_rows(vectors[:, :most] * weights)


def choose_n_clusters(eigenvalues: ArrayLike, most: int) -> int:
    """Return the number of clusters, from 2 to `most`, after which the eigenvalues of L jump most.

    Parameters
    ----------
    eigenvalues : array of shape (m,)
        The smallest ones, ascending; m above 2. At most m - 1 clusters are considered.
    most : int
        At least 2.

    Examples
    --------
    >>> choose_n_clusters([0.0, 0.01, 0.03, 0.4, 0.5], 4)
    3
    """
    values = np.asarray(eigenvalues, dtype=np.float64)
    if values.ndim != 1 or len(values) < 3 or not np.isfinite(values).all() or most < 2:
        raise ConfigurationError(
            f"most must be at least 2, for at least 3 finite eigenvalues; got {most} and {len(values)} eigenvalues",
            where="most",
        )
    return int(first_largest(np.diff(values)[1:most], size=np.abs(values).max())) + 2


def fit_sizes(sizes: Sequence[int], n_samples: int) -> tuple[int, ...]:
    """Return the hyperedge sizes that `n_samples` samples can fill, without repeats: larger ones are cut to n - 1.

    Raises
    ------
    ConfigurationError
        A size below 2, or no size.
    DataError
        Fewer than 3 samples.

    Examples
    --------
    >>> fit_sizes((5, 10), 100)
    (5, 10)
    """
    if not sizes or min(sizes) < 2:
        raise ConfigurationError(f"sizes must be integers of at least 2; got {sizes!r}", where="sizes")
    if n_samples < 3:
        raise DataError(
            f"samples of a hypergraph must be at least 3; got {n_samples}", where="affinity", hint="Add samples."
        )
    if max(sizes) >= n_samples:
        warnings.warn(
            f"Hyperedges of {max(sizes)} samples do not fit {n_samples} samples: cut to {n_samples - 1}.", stacklevel=3
        )
    return tuple(dict.fromkeys(min(int(size), n_samples - 1) for size in sizes))


def rank_neighbours(affinity: Affinity, most: int) -> tuple[Integers, Floats]:
    """Return the samples of largest positive affinity to each sample, in order, and those affinities.

    Parameters
    ----------
    affinity : array or csr_array of shape (n, n)
        Symmetric, finite, not negative.
    most : int

    Returns
    -------
    columns : int64 array of shape (n, most)
        Of equal affinities the sample with the lower index comes first; -1 where a sample has fewer neighbours.
    values : array of shape (n, most)

    Raises
    ------
    DataError
        Entries that are negative or not finite, or a matrix that is not symmetric.

    Examples
    --------
    >>> rank_neighbours(np.array([[0, 4, 1.0], [4, 0, 2], [1, 2, 0]]), 1)[0].tolist()
    [[1], [0], [1]]
    """
    from multicentre.clustering.kernels.spectrum import largest_of_lists, largest_of_rows

    _check_affinity(affinity)
    if not issparse(affinity):
        return largest_of_rows(np.ascontiguousarray(affinity), most, 0)
    sorted_rows = csr_array(affinity, copy=True)
    sorted_rows.sum_duplicates()
    start, column = sorted_rows.indptr.astype(np.int64), sorted_rows.indices.astype(np.int64)
    return largest_of_lists(start, column, sorted_rows.data.astype(np.float64), most)


def len_of(affinity: Affinity) -> int:
    """Return the number of samples of a square matrix.

    Examples
    --------
    >>> len_of(np.eye(3))
    3
    """
    shape = affinity.shape
    if len(shape) != 2 or shape[0] != shape[1]:
        raise DataError(f"affinity must be a square matrix, samples by samples; got shape {shape}", where="affinity")
    return int(shape[0])


def _check_affinity(affinity: Affinity) -> None:
    len_of(affinity)
    entries = affinity.data if issparse(affinity) else np.asarray(affinity)
    largest = float(entries.max(initial=0.0))
    if not np.isfinite(largest) or not float(entries.min(initial=0.0)) >= 0.0:
        raise DataError("affinities must be finite and non-negative; got other values", where="affinity")
    difference = affinity - affinity.T
    if float(abs(difference).max()) > ASYMMETRY * largest:
        raise DataError(
            "affinity must be symmetric; got an asymmetric matrix", where="affinity", hint="Pass (A + A') / 2."
        )


def _checked(kind: IncidenceKind) -> IncidenceKind:
    if kind not in EXPONENTS:
        names = ", ".join(map(repr, EXPONENTS))
        raise ConfigurationError(f"kind must be one of {names}; got {kind!r}", where="kind", hint="Use 'sqrt'.")
    return kind


def _membership(columns: Integers, values: Floats, kind: IncidenceKind) -> csr_array:
    """Return the incidence from ranked neighbours; row j of `columns` is hyperedge j."""
    ratio = values[:, : columns.shape[1]] / np.where(values[:, :1] > 0.0, values[:, :1], 1.0)
    edges = _as_csr(columns, ratio ** EXPONENTS[kind])
    edges.setdiag(1.0)
    return csr_array(edges.T)


def _as_csr(columns: Integers, values: Floats) -> csr_array:
    n = len(columns)
    is_neighbour = columns >= 0
    start = np.concatenate([[0], np.cumsum(is_neighbour.sum(axis=1))])
    return csr_array((values[is_neighbour], columns[is_neighbour], start), shape=(n, n))


def _smallest(apply: Operator, n: int, n_dimensions: int) -> tuple[Floats, Floats]:
    """Return the eigenvectors of I - S of smallest eigenvalue, and those, for a symmetric S between 0 and I."""
    if not 1 <= n_dimensions <= n:
        raise DataError(
            f"dimensions must be from 1 to {n}; got {n_dimensions}", where="n_dimensions", hint="Use fewer dimensions."
        )
    vectors, values = leading_eigenvectors(apply, n, n_dimensions)
    return vectors, np.maximum(1.0 - values, 0.0)
