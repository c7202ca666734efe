"""Graphs of samples and their spectra, shared by the methods for pooled views.

Samples are rows. Both graphs are invariant to translation, rotation and scaling of a view. Distances are squared
Euclidean.

References
----------
.. [1] F. Nie, X. Wang, H. Huang, "Clustering and Projected Clustering with Adaptive Neighbors", KDD 2014.
.. [2] L. Zelnik-Manor, P. Perona, "Self-Tuning Spectral Clustering", NIPS 2004.
.. [3] A. Y. Ng, M. I. Jordan, Y. Weiss, "On Spectral Clustering: Analysis and an Algorithm", NIPS 2001.
"""

from __future__ import annotations

from typing import TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse
from scipy.sparse import csgraph
from scipy.sparse import linalg as sparse_linalg

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Graph: TypeAlias = "Floats | sparse.csr_array"
Rows = TypeVar("Rows", NDArray[np.float64], sparse.csr_array)

# Samples up to which the eigensolver is dense: its time grows with the cube of n and its memory (50 MB here) with the
# square, but it needs no convergence.
N_DENSE = 2500
# Rows of a block of distances, which bounds memory.
_N_BLOCK = 512
# Relative size of rounding errors of squared distances.
_ROUNDING = 1e-14


def project_rows(V: Rows) -> Rows:
    """Project each row on the simplex: the nearest row of numbers of at least 0 with sum 1.

    Parameters
    ----------
    V : array or csr_array of shape (m, n)
        Finite. Of a sparse one, only stored entries may be above 0 in the result; a row without entries stays empty.

    Returns
    -------
    array or csr_array of shape (m, n)

    Examples
    --------
    >>> import numpy as np
    >>> project_rows(np.array([[3.0, 2.5, 0.0], [0.0, 0.0, 0.0]])).round(3).tolist()
    [[0.75, 0.25, 0.0], [0.333, 0.333, 0.333]]
    """
    from multicentre.clustering.kernels.simplex import project_segments

    if isinstance(V, np.ndarray):
        m, n = V.shape
        values = np.ascontiguousarray(V, dtype=np.float64).ravel()
        return cast("Rows", project_segments(values, np.arange(m + 1, dtype=np.int64) * n).reshape(m, n))
    projected = project_segments(V.data.astype(np.float64), V.indptr.astype(np.int64))
    return cast("Rows", sparse.csr_array((projected, V.indices, V.indptr), shape=V.shape))


def neighbour_graph(X: Floats, k: int = 10) -> sparse.csr_array:
    """Return the graph of adaptive neighbours of [1]_: weights that fall linearly with the squared distance.

    Row i minimises ``sum_j d_ij w_ij + g_i w_ij^2`` on the simplex, with g_i such that k weights are above 0:
    ``w_ij = (d_(k+1) - d_ij) / (k d_(k+1) - sum_(l<=k) d_(l))``. Where all k + 1 are equally distant, as among
    duplicates, the first k rows get equal weights.

    Parameters
    ----------
    X : array of shape (n, d)
        One view, n at least 2.
    k : int, default 10
        Neighbours of a sample; at most n - 2 are used (1 of two samples).

    Returns
    -------
    csr_array of shape (n, n)
        Rows of k stored entries with sum 1 and no diagonal; not symmetric.

    Examples
    --------
    >>> import numpy as np
    >>> neighbour_graph(np.array([[0.0], [1.0], [2.0], [10.0]]), k=2).toarray().round(2)[0].tolist()
    [0.0, 0.51, 0.49, 0.0]
    """
    n = len(X)
    k = max(1, min(k, n - 2))
    centred = _centred_and_scaled(X)
    weights, neighbours = np.empty((n, k)), np.empty((n, k), dtype=np.int64)
    for start in range(0, n, _N_BLOCK):
        here = slice(start, min(start + _N_BLOCK, n))
        distances = _squared_distances(centred, here)
        distances[np.arange(len(distances)), np.arange(here.start, here.stop)] = np.inf
        nearest = _nearest(distances, k + 1)
        neighbours[here] = nearest[:, :k]
        weights[here] = _adaptive_weights(np.take_along_axis(distances, nearest, axis=1), k)
    starts = np.arange(n + 1) * k
    graph = sparse.csr_array((weights.ravel(), neighbours.ravel(), starts), shape=(n, n))
    graph.sort_indices()
    return graph


def self_tuning_graph(X: Floats, k: int = 7) -> Floats:
    """Return the complete graph of [2]_: ``w_ij = exp(-d_ij / (s_i s_j))``, s_i the distance to the k-th neighbour.

    Parameters
    ----------
    X : array of shape (n, d)
        One view, n at least 2.
    k : int, default 7
        Neighbour that sets the scale; the farthest one if there are fewer. If it is a duplicate of the sample,
        the nearest sample that differs sets the scale.

    Returns
    -------
    array of shape (n, n)
        Symmetric, in [0, 1], diagonal 0.

    Examples
    --------
    >>> import numpy as np
    >>> self_tuning_graph(np.array([[0.0], [1.0], [3.0]]), k=1).round(3)[0].tolist()
    [0.0, 0.368, 0.011]
    """
    n = len(X)
    squared = _squared_distances(_centred_and_scaled(X), slice(0, n))
    squared = np.minimum(squared, squared.T)
    np.fill_diagonal(squared, np.inf)
    scale = np.sqrt(np.sort(squared, axis=1)[:, min(k, n - 1) - 1])
    apart = np.sqrt(np.min(np.where(squared > 0, squared, np.inf), axis=1))
    scale = np.where(scale > 0, scale, np.where(np.isfinite(apart), apart, 1.0))
    weights = np.exp(-squared / np.outer(scale, scale))
    return cast("Floats", weights)


def spectral_embedding(W: Graph, c: int, *, unit_rows: bool = True) -> Floats:
    """Return the c leading eigenvectors of the normalised graph ``D^-1/2 W D^-1/2`` of [3]_.

    Parameters
    ----------
    W : array or csr_array of shape (n, n)
        Weights of at least 0; an asymmetric graph is replaced by ``(W + W^T) / 2``.
    c : int
        Number of eigenvectors, at most n.
    unit_rows : bool, default True
        Divide each row by its length. The row of a sample without neighbours is 0 and stays so.

    Returns
    -------
    array of shape (n, c)

    Examples
    --------
    >>> import numpy as np
    >>> blocks = np.kron(np.eye(2), np.ones((2, 2)))
    >>> F = spectral_embedding(blocks, 2)
    >>> (F @ F.T).round(6).tolist()[0]
    [1.0, 1.0, 0.0, 0.0]
    """
    F = normalised_eigenvectors(W, c)[1]
    return unit_length_rows(F) if unit_rows else F


def normalised_eigenvectors(W: Graph, c: int) -> tuple[Floats, Floats]:
    """Return the c largest eigenvalues, descending, and eigenvectors of ``D^-1/2 W D^-1/2``.

    Parameters
    ----------
    W : array or csr_array of shape (n, n)
        Weights of at least 0; an asymmetric graph is replaced by ``(W + W^T) / 2``.
    c : int
        Number of eigenvectors, at most n.

    Returns
    -------
    eigenvalues : array of shape (c,)
        In [-1, 1]; as many are 1 as the graph has components with edges.
    eigenvectors : array of shape (n, c)
        The row of a sample without neighbours is 0.

    Examples
    --------
    >>> import numpy as np
    >>> normalised_eigenvectors(np.kron(np.eye(2), np.ones((2, 2))), 2)[0].round(6).tolist()
    [1.0, 1.0]
    """
    symmetric = _symmetrised(W)
    degree = np.asarray(symmetric.sum(axis=1)).ravel()
    root = np.zeros_like(degree)
    np.power(degree, -0.5, out=root, where=degree > 0)
    values, F = _leading_eigenvectors(symmetric * root[:, None] * root[None, :], c)
    F[degree == 0] = 0.0
    return values, F


def unit_length_rows(F: Floats) -> Floats:
    """Return the rows of F, each divided by its length; rows of 0 stay.

    Examples
    --------
    >>> import numpy as np
    >>> unit_length_rows(np.array([[3.0, 4.0], [0.0, 0.0]])).tolist()
    [[0.6, 0.8], [0.0, 0.0]]
    """
    lengths = np.linalg.norm(F, axis=1, keepdims=True)
    return cast("Floats", np.divide(F, lengths, out=np.zeros_like(F), where=lengths > _ROUNDING))


def laplacian_eigenvectors(W: Graph, c: int) -> tuple[Floats, Floats]:
    """Return the c smallest eigenvalues, ascending, and eigenvectors of the Laplacian ``D - (W + W^T) / 2``.

    Parameters
    ----------
    W : array or csr_array of shape (n, n)
        Weights of at least 0.
    c : int
        Number of eigenvectors, at most n.

    Returns
    -------
    eigenvalues : array of shape (c,)
    eigenvectors : array of shape (n, c)

    Examples
    --------
    >>> import numpy as np
    >>> laplacian_eigenvectors(np.kron(np.eye(2), np.ones((2, 2))), 3)[0].round(6).tolist()
    [0.0, 0.0, 2.0]
    """
    symmetric = _symmetrised(W)
    degree = np.asarray(symmetric.sum(axis=1)).ravel()
    ceiling = 2.0 * float(degree.max(initial=0.0))
    complement = np.diag(ceiling - degree) if isinstance(W, np.ndarray) else sparse.diags_array(ceiling - degree)
    _, F = _leading_eigenvectors(symmetric + complement, c)
    values = degree @ F**2 - np.einsum("ij,ij->j", F, np.asarray(symmetric @ F))
    return np.maximum(values, 0.0), F


def connected_labels(W: Graph) -> tuple[Labels, int]:
    """Return the connected component of each sample and the number of components; directions do not count.

    Parameters
    ----------
    W : array or csr_array of shape (n, n)
        Two samples are connected where either weight is not 0.

    Returns
    -------
    labels : array of int64, shape (n,)
        Components are numbered from 0 in the order of their first samples.
    n_components : int

    Examples
    --------
    >>> import numpy as np
    >>> labels, n_components = connected_labels(np.array([[0, 0, 0.2], [0, 0, 0], [0, 0, 0]]))
    >>> labels.tolist(), n_components
    ([0, 1, 0], 2)
    """
    edges = sparse.csr_array(W, copy=True)
    edges.eliminate_zeros()
    n_components, labels = csgraph.connected_components(edges, directed=False)
    return labels.astype(np.int64), int(n_components)


def _centred_and_scaled(X: Floats) -> Floats:
    extent = np.abs(X).max(initial=0.0)
    if extent == 0:
        return np.zeros_like(X)
    centred = X / extent
    centred = centred - centred.mean(axis=0)
    largest = np.abs(centred).max()
    return cast("Floats", centred / largest if largest > 0 else centred)


def _squared_distances(X: Floats, rows: slice) -> Floats:
    """Return squared distances of some rows to all; rounding errors between duplicates become 0."""
    squares = np.einsum("ij,ij->i", X, X)
    both = squares[rows, None] + squares[None, :]
    distances = both - 2.0 * (X[rows] @ X.T)
    distances[distances <= _ROUNDING * both] = 0.0
    return cast("Floats", distances)


def _nearest(distances: Floats, count: int) -> Labels:
    """Return the places of the `count` smallest distances of each row, ascending; of a row of ties, the first ones."""
    if count >= distances.shape[1]:
        return np.argsort(distances, axis=1, kind="stable")
    candidates = np.sort(np.argpartition(distances, count - 1, axis=1)[:, :count], axis=1)
    values = np.take_along_axis(distances, candidates, axis=1)
    nearest = np.take_along_axis(candidates, np.argsort(values, axis=1, kind="stable"), axis=1)
    tied = values.min(axis=1) == values.max(axis=1)
    nearest[tied] = np.argsort(distances[tied], axis=1, kind="stable")[:, :count]
    return nearest


def _adaptive_weights(distances: Floats, k: int) -> Floats:
    """Return weights (b, k) of ascending distances (b, k + 1); the last one is infinite where no sample is left."""
    if not np.all(np.isfinite(distances)):
        return np.full((len(distances), k), 1.0 / k)
    gaps = distances[:, k:] - distances[:, :k]
    total = gaps.sum(axis=1, keepdims=True)
    return cast("Floats", np.divide(gaps, total, out=np.full_like(gaps, 1.0 / k), where=total > 0))


def _symmetrised(W: Graph) -> Graph:
    return (W + W.T) / 2.0


def _leading_eigenvectors(M: Graph, c: int) -> tuple[Floats, Floats]:
    """Return the c largest eigenvalues and their eigenvectors; LAPACK up to N_DENSE rows, then Lanczos."""
    n = M.shape[0]
    if n <= N_DENSE or c >= n // 4:
        dense = M if isinstance(M, np.ndarray) else M.toarray()
        values, F = linalg.eigh(dense, subset_by_index=[n - c, n - 1])
    else:
        start = np.random.default_rng(0).standard_normal(n)
        values, F = sparse_linalg.eigsh(M, k=c, which="LA", v0=start, ncv=min(n, 2 * c + 40))
    descending = np.argsort(values)[::-1]
    return values[descending], np.ascontiguousarray(F[:, descending])
