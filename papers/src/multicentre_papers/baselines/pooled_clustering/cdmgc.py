"""Consistent and diverse multi-view graph clustering (Huang, Tsang, Xu and Lv 2022)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, cast

import numpy as np
from scipy import sparse

from multicentre.clustering.partition import partition_rows
from multicentre.estimator.parameters import Integer, ParameterRanges, Real
from multicentre_papers.baselines.pooled_clustering.base import (
    PooledClusterer,
    Views,
    merge_groups,
)
from multicentre_papers.baselines.pooled_clustering.graphs import (
    Floats,
    Labels,
    connected_labels,
    laplacian_eigenvectors,
    neighbour_graph,
    project_rows,
    spectral_embedding,
)

_MIN_DISTANCE = 1e-12  # keeps the weight of a view finite if it equals the fused graph


class CDMGC(PooledClusterer):
    """Consistent and diverse multi-view graph clustering.

    Each view's graph of adaptive neighbours A_v is split into a consistent part C_v and a diverse part
    ``E_v = A_v - C_v``; the diverse parts of two views must differ. One graph S with rows on the simplex and exactly
    `n_clusters` connected components is fitted to all C_v. Its components are the clusters::

        sum_v ||S - C_v|| + sum_vu b_vu mu_v mu_u <E_v, E_u>,   0 <= C_v <= A_v,

    where b_vu is `diversity` for two views and `sparsity` for one. The weights ``mu_v = 1 / (2 ||S - C_v||)`` follow
    from iterative reweighting. The penalty ``rank sum_ij s_ij ||f_i - f_j||^2`` enforces the rank condition, with F the
    eigenvectors of the Laplacian of S. Its weight is doubled while there are too few components and halved while there
    are too many.

    The step of C_v minimises over one view at a time, exactly and within its bounds. The published code solves the
    linear system of all views at once and clips the result. With its defaults that system is indefinite, so its
    solution is a saddle point.

    Parameters
    ----------
    n_clusters : int
        Number of clusters, at least 2.
    n_neighbours : int, default 10
        Number of neighbours in each view's graph.
    diversity : float, default 1e5
        The paper's alpha: weight of the overlap between the diverse parts of two views.
    sparsity : float, default 1e-5
        The paper's beta: weight of the size of the diverse parts.
    rank : float, optional
        Initial weight of the rank condition. By default an integer from 1 to 10 drawn with `random_state`, as
        published.
    max_iter : int, default 30
        Maximum number of rounds.
    tol : float, default 1e-4
        The fit ends when S has `n_clusters` components and no entry of S changed by more than this.
    random_state : int or numpy.random.Generator, optional
        Seed of `rank` and, if needed, of k-means.

    Attributes
    ----------
    labels_ : array of int64, shape (n,)
        Components of S if their number is `n_clusters`; see `labelled_by_`.
    labelled_by_ : {"components", "joined components", "k-means"}
        "joined components": there were too many components, so those with the nearest means were joined (average
        linkage over standardised views). "k-means": there were too few, so the spectral embedding of S was clustered.
    components_ : array of int64, shape (n,)
        Components of S after the last round: the result of the published method.
    n_components_ : int
    affinity_ : csr_array of shape (n, n)
        S; its rows sum to 1.
    view_weights_ : dict of str to float
        Weights mu_v divided by their sum.
    rank_ : float
        Final weight of the rank condition.
    n_iter_ : int
        Number of rounds.
    converged_ : bool
        True if the fit ended by `tol`, with `n_clusters` components.

    References
    ----------
    .. [1] S. Huang, I. W. Tsang, Z. Xu, J. Lv, "Measuring Diversity in Graph Learning: A Unified Framework for
       Structured Multi-View Clustering", IEEE Transactions on Knowledge and Data Engineering 34, 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from multicentre_papers.baselines import CDMGC
    >>> rng = np.random.default_rng(0)
    >>> centres = np.repeat([[0.0, 0.0], [9.0, 9.0]], 20, axis=0)
    >>> views = {view: centres + rng.normal(size=(40, 2)) for view in ("a", "b")}
    >>> model = CDMGC(2, random_state=0).fit(views)
    >>> model.labels_.tolist() == [0] * 20 + [1] * 20, model.labelled_by_, model.converged_
    (True, 'components', True)
    """

    labelled_by_: Literal["components", "joined components", "k-means"]
    components_: Labels
    affinity_: sparse.csr_array
    n_components_: int
    view_weights_: dict[str, float]
    rank_: float
    n_iter_: int
    converged_: bool

    parameter_ranges: ClassVar[ParameterRanges] = {
        **PooledClusterer.parameter_ranges,
        **dict.fromkeys(("n_neighbours", "max_iter"), Integer(1)),
        **dict.fromkeys(("diversity", "sparsity", "tol"), Real(0, open="low")),
        "rank": (None, Real(0, open="low")),
    }

    def __init__(
        self,
        n_clusters: int,
        *,
        n_neighbours: int = 10,
        diversity: float = 1e5,
        sparsity: float = 1e-5,
        rank: float | None = None,
        max_iter: int = 30,
        tol: float = 1e-4,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.n_neighbours = n_neighbours
        self.diversity = diversity
        self.sparsity = sparsity
        self.rank = rank
        self.max_iter = max_iter
        self.tol = tol
        self.random_state = random_state

    def _fit(self, views: Views) -> None:
        edges = join_graphs([neighbour_graph(X, self.n_neighbours) for X in views.values()])
        mu, C = np.full(len(views), 1.0 / len(views)), edges.A
        S = mu @ C
        F = laplacian_eigenvectors(edges.graph(S), min(self.n_clusters + 1, len(edges.starts) - 1))[1][:, 1:]
        self.rank_, self.n_iter_, self.converged_ = self._first_rank(), 0, False
        while self.n_iter_ < self.max_iter and not self.converged_:
            before = S
            C = split_views(C, S, mu, edges, diversity=self.diversity, sparsity=self.sparsity)
            S = fuse_views(C, mu, F, self.rank_, edges)
            mu = weigh_views(S, C)
            self.affinity_ = edges.graph(S)
            self.components_, self.n_components_ = connected_labels(self.affinity_)
            self.n_iter_ += 1
            is_stable = bool(np.abs(S - before).max() <= self.tol)
            self.converged_ = is_stable and self.n_components_ == self.n_clusters
            if self.n_components_ <= self.n_clusters:
                F = laplacian_eigenvectors(self.affinity_, self.n_clusters)[1]
            self.rank_ *= 2.0 ** int(np.sign(self.n_clusters - self.n_components_))
        self.view_weights_ = dict(zip(views, (mu / mu.sum()).tolist(), strict=True))
        self.labels_ = self._label(views)

    def _first_rank(self) -> float:
        if self.rank is not None:
            return float(self.rank)
        return float(np.random.default_rng(self.random_state).integers(1, 11))

    def _label(self, views: Views) -> Labels:
        if self.n_components_ < self.n_clusters:
            self.labelled_by_ = "k-means"
            embedding = spectral_embedding(self.affinity_, self.n_clusters)
            return partition_rows(embedding, self.n_clusters, random_state=self.random_state)
        self.labelled_by_ = "components" if self.n_components_ == self.n_clusters else "joined components"
        return merge_groups(self.components_, views, self.n_clusters)


@dataclass(frozen=True)
class Edges:
    """Pairs of samples that are neighbours in at least one view; values of the m edges are arrays of shape (m,).

    Parameters
    ----------
    starts : array of shape (n + 1,)
        Index of each row's first edge.
    rows, columns : array of shape (m,)
        Samples of an edge; each edge occurs in both directions.
    reverse : array of shape (m,)
        Index of the edge in the opposite direction.
    A : array of shape (k, m)
        Weights in each view, the same in both directions.
    """

    starts: Labels
    rows: Labels
    columns: Labels
    reverse: Labels
    A: Floats

    def graph(self, values: Floats) -> sparse.csr_array:
        """Return the graph (n, n) with these values, shape (m,); zeros are removed."""
        n = len(self.starts) - 1
        graph = sparse.csr_array((values, self.columns, self.starts), shape=(n, n), copy=True)
        graph.eliminate_zeros()
        return graph


def join_graphs(graphs: Sequence[sparse.csr_array]) -> Edges:
    """Return the edges of all graphs (n, n) after symmetrisation.

    Examples
    --------
    >>> graph = sparse.csr_array(np.array([[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 1.0, 0.0]]))
    >>> edges = join_graphs([graph])
    >>> edges.rows.tolist(), edges.columns.tolist(), edges.A.tolist()
    ([0, 1, 1, 2], [1, 0, 2, 1], [[0.5, 0.5, 1.0, 1.0]])
    """
    symmetric = [(graph + graph.T) / 2.0 for graph in graphs]
    union = sparse.csr_array(sum(symmetric))
    union.eliminate_zeros()
    union.sort_indices()
    rows = np.repeat(np.arange(union.shape[0]), np.diff(union.indptr))
    reverse = np.lexsort((rows, union.indices))
    A = np.array([np.asarray(graph[rows, union.indices]).ravel() for graph in symmetric])
    return Edges(union.indptr.astype(np.int64), rows, union.indices.astype(np.int64), reverse, A)


def split_views(C: Floats, S: Floats, mu: Floats, edges: Edges, *, diversity: float, sparsity: float) -> Floats:
    """Return the consistent parts (k, m) after one exact step per view, with the views of an edge in turn.

    The minimiser over C_v of ``mu_v (s - c_v)^2 + 2 diversity mu_v e_v sum_u mu_u e_u + sparsity mu_v^2 e_v^2`` within
    its bounds. At each edge the view with the largest gain comes first, so the order of the views has no influence.

    Parameters
    ----------
    C : array of shape (k, m)
    S : array of shape (m,)
    mu : array of shape (k,)
    edges : Edges
    diversity, sparsity : float

    Returns
    -------
    array of shape (k, m)
    """
    target = (S + S[edges.reverse]) / 2.0
    order = np.argsort(-mu[:, None] * np.maximum(edges.A - target, 0.0) ** 2, axis=0, kind="stable")
    split, at = C.copy(), np.arange(C.shape[1])
    for views in order:
        A, weight = edges.A[views, at], mu[views]
        others = mu @ (edges.A - split) - weight * (A - split[views, at])
        minimiser = (target + diversity * others + sparsity * weight * A) / (1.0 + sparsity * weight)
        split[views, at] = np.clip(minimiser, 0.0, A)
    return split


def fuse_views(C: Floats, mu: Floats, F: Floats, rank: float, edges: Edges) -> Floats:
    """Return S (m,): rows on the simplex nearest to the consistent parts (k, m), under the penalty on the rank.

    Minimises ``sum_v mu_v ||S - C_v||^2 + rank sum_ij s_ij ||f_i - f_j||^2`` exactly.
    """
    apart = np.sum((F[edges.rows] - F[edges.columns]) ** 2, axis=1)
    target = (mu @ C - 0.5 * rank * apart) / mu.sum()
    n = len(edges.starts) - 1
    projected = project_rows(sparse.csr_array((target, edges.columns, edges.starts), shape=(n, n)))
    return cast("Floats", projected.data)


def weigh_views(S: Floats, C: Floats) -> Floats:
    """Return mu (k,) of iterative reweighting, ``1 / (2 ||S - C_v||)``.

    Examples
    --------
    >>> weigh_views(np.array([1.0, 0.0]), np.array([[0.5, 0.0], [1.0, 2.0]])).tolist()
    [1.0, 0.25]
    """
    return cast("Floats", 0.5 / np.maximum(np.linalg.norm(S - C, axis=1), _MIN_DISTANCE))


def objective(
    C: Floats, S: Floats, mu: Floats, F: Floats, rank: float, edges: Edges, diversity: float, sparsity: float
) -> float:
    """Return the objective of `split_views` and `fuse_views` for given mu, F and rank."""
    E = mu[:, None] * (edges.A - C)
    crossed = diversity * float(np.sum(E, axis=0) @ np.sum(E, axis=0)) + (sparsity - diversity) * float(np.vdot(E, E))
    apart = np.sum((F[edges.rows] - F[edges.columns]) ** 2, axis=1)
    return float(mu @ np.sum((S - C) ** 2, axis=1)) + crossed + rank * float(S @ apart)
