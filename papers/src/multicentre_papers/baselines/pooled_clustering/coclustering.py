"""Co-clustering by a bipartite graph of as many connected components as there are clusters.

The graph connects samples and anchors. The graph nearest to given affinities is sought among those whose normalised
Laplacian has rank n + m - c, that is, that fall into c components; the components are the clusters and no k-means is
needed. The rank is reached by a penalty on the sum of the c smallest eigenvalues, whose strength is doubled while the
components are too few and halved when they are too many.

The components are counted in the graph itself, not by eigenvalues within a tolerance of 1, and one that holds no sample
(an anchor without samples) is not counted. Where the affinities alone fall into more than c components, no strength
can join them; where the strength leaps from too few to too many, the last graph with too few is kept. Both show in
``n_components``.

References
----------
.. [1] F. Nie, X. Wang, C. Deng, H. Huang, "Learning a Structured Optimal Bipartite Graph for Co-Clustering", NIPS 2017.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from multicentre_papers.baselines.pooled_clustering.graphs import connected_labels, project_rows

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]

# Singular value below which the direction of a vector is rounding error.
_NO_DIRECTION = 1e-8


@dataclass(frozen=True, slots=True)
class Coclustering:
    """Result of `cocluster`.

    Attributes
    ----------
    graph : csr_array of shape (n, m)
        Mean of the two projections, at least 0.
    row_graph : csr_array of shape (n, m)
        Projection by rows only: every row sums to 1.
    embedding : array of shape (n, c)
        Left singular vectors of the normalised graph, largest first.
    labels : array of int64, shape (n,)
        Component of each sample, in order of their first samples.
    n_components : int
        Number of components with a sample; equal to `n_clusters` if the rank was reached.
    strength : float
        Strength of the penalty of the last step.
    n_iter : int
        Steps made.
    """

    graph: sparse.csr_array
    row_graph: sparse.csr_array
    embedding: Floats
    labels: Labels
    n_components: int
    strength: float
    n_iter: int


@dataclass(frozen=True, slots=True)
class Spectrum:
    """Leading singular vectors of a bipartite graph, and the same divided by the root of the degrees.

    Attributes
    ----------
    values : array of shape (c,)
        Singular values of ``D1^-1/2 S D2^-1/2``, descending, in [0, 1].
    samples : array of shape (n, c)
    sample_places : array of shape (n, c)
    anchor_places : array of shape (m, c)
        The penalty is the sum of ``s_ij ||sample_places_i - anchor_places_j||^2``.
    """

    values: Floats
    samples: Floats
    sample_places: Floats
    anchor_places: Floats


def cocluster(
    affinity: sparse.csr_array,
    n_clusters: int,
    *,
    start: sparse.csr_array | None = None,
    strength: float = 0.1,
    max_iter: int = 50,
) -> Coclustering:
    """Return the bipartite graph near `affinity` that falls into `n_clusters` components.

    Parameters
    ----------
    affinity : csr_array of shape (n, m)
        Every row has a stored entry; only stored entries can be links of the answer. Values are finite, of any sign.
    n_clusters : int
        Components sought, at most min(n, m).
    start : csr_array of shape (n, m), optional
        Graph that gives the first singular vectors, at least 0; `affinity`, its negative values as 0, by default.
    strength : float, default 0.1
        First strength of the penalty.
    max_iter : int, default 50
        Most steps, at least 1.

    Returns
    -------
    Coclustering
        Of the first graph with `n_clusters` components, else of the last one with fewer, else of the last one.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> blocks = np.kron(np.eye(2), np.ones((3, 2))) + 0.1
    >>> result = cocluster(sparse.csr_array(blocks), 2)
    >>> result.n_components, result.labels.tolist()
    (2, [0, 0, 0, 1, 1, 1])
    """
    spectrum = embed_bipartite(_non_negative(affinity if start is None else start), n_clusters)
    allowed = sparse.csr_array((np.ones(affinity.nnz), affinity.indices, affinity.indptr), shape=affinity.shape)
    _, n_least = sample_components(allowed)
    fewer: Coclustering | None = None
    for n_iter in range(1, max_iter + 1):
        by_rows, graph = project_both_ways(penalise_links(affinity, spectrum, strength))
        labels, n_components = sample_components(graph)
        latest = embed_bipartite(graph, n_clusters)
        result = Coclustering(graph, by_rows, latest.samples, labels, n_components, strength, n_iter)
        if n_components == n_clusters:
            return result
        if n_components < n_clusters:
            fewer, spectrum, strength = result, latest, strength * 2
        elif n_least > n_clusters:
            return result
        else:
            strength = strength / 2
    return result if fewer is None else fewer


def embed_bipartite(graph: sparse.csr_array, c: int) -> Spectrum:
    """Return the c leading singular vectors of ``D1^-1/2 S D2^-1/2``, from the m x m eigenproblem.

    Parameters
    ----------
    graph : csr_array of shape (n, m)
        At least 0. Rows and columns of 0 are allowed; their places are 0.
    c : int
        Number of vectors, at most m.

    Returns
    -------
    Spectrum
        A vector of singular value below 1e-8 is 0 on the side of the samples.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> embed_bipartite(sparse.csr_array(np.kron(np.eye(2), np.ones((3, 2)))), 3).values.round(6).tolist()
    [1.0, 1.0, 0.0]
    """
    m = graph.shape[1]
    root1, root2 = _inverse_roots(graph.sum(axis=1)), _inverse_roots(graph.sum(axis=0))
    normalised = graph * root1[:, None] * root2[None, :]
    squares, V = linalg.eigh((normalised.T @ normalised).toarray(), subset_by_index=[m - c, m - 1])
    values, V = np.sqrt(np.maximum(squares[::-1], 0.0)), V[:, ::-1]
    U = np.divide(normalised @ V, values, out=np.zeros((graph.shape[0], c)), where=values > _NO_DIRECTION)
    half = np.sqrt(0.5)
    return Spectrum(values, U, half * root1[:, None] * U, half * root2[:, None] * V)


def penalise_links(affinity: sparse.csr_array, spectrum: Spectrum, strength: float) -> sparse.csr_array:
    """Return ``a_ij - strength / 2 ||u_i - v_j||^2`` on the stored entries.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> blocks = sparse.csr_array(np.kron(np.eye(2), np.ones((3, 2))))
    >>> np.abs(penalise_links(blocks, embed_bipartite(blocks, 2), 5.0) - blocks).max().round(6).item()
    0.0
    """
    rows = np.repeat(np.arange(affinity.shape[0]), np.diff(affinity.indptr))
    apart = spectrum.sample_places[rows] - spectrum.anchor_places[affinity.indices]
    values = affinity.data - 0.5 * strength * np.einsum("ij,ij->i", apart, apart)
    return sparse.csr_array((values, affinity.indices, affinity.indptr), shape=affinity.shape)


def project_both_ways(values: sparse.csr_array) -> tuple[sparse.csr_array, sparse.csr_array]:
    """Project rows, and columns, on the simplex within the stored entries; return the first and the mean of both.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> by_rows, graph = project_both_ways(sparse.csr_array(np.array([[0.9, 0.1], [0.9, 0.5]])))
    >>> by_rows.toarray().round(2).tolist(), graph.toarray().round(2).tolist()
    ([[0.9, 0.1], [0.7, 0.3]], [[0.7, 0.2], [0.6, 0.5]])
    """
    by_rows = project_rows(values)
    by_columns = project_rows(sparse.csr_array(values.T))
    graph = sparse.csr_array((by_rows + by_columns.T) / 2)
    graph.eliminate_zeros()
    return by_rows, graph


def sample_components(graph: sparse.csr_array) -> tuple[Labels, int]:
    """Return the connected component of each row of a bipartite graph, and how many components hold a row.

    Examples
    --------
    >>> import numpy as np
    >>> from scipy import sparse
    >>> labels, n_components = sample_components(sparse.csr_array(np.array([[0, 1, 0], [2, 0, 0], [0, 1, 0]])))
    >>> labels.tolist(), n_components
    ([0, 1, 0], 2)
    """
    both, _ = connected_labels(sparse.csr_array(sparse.block_array([[None, graph], [graph.T, None]])))
    labels = both[: graph.shape[0]]
    return labels, int(labels.max()) + 1


def _non_negative(graph: sparse.csr_array) -> sparse.csr_array:
    return sparse.csr_array((np.maximum(graph.data, 0.0), graph.indices, graph.indptr), shape=graph.shape)


def _inverse_roots(degrees: Floats) -> Floats:
    roots = np.zeros_like(degrees)
    np.power(degrees, -0.5, out=roots, where=degrees > 0)
    return roots
