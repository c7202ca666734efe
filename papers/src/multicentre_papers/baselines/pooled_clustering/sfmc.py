"""SFMC: scalable, parameter-free fusion of the bipartite graphs of several views.

References
----------
.. [1] X. Li, H. Zhang, R. Wang, F. Nie, "Multiview Clustering: A Scalable and Parameter-Free Bipartite Graph Fusion
   Method", IEEE Transactions on Pattern Analysis and Machine Intelligence 44 (2022).
"""

from __future__ import annotations

from typing import ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial.distance import cdist

from multicentre.clustering.partition import partition_rows
from multicentre.estimator.parameters import Integer, ParameterRanges, Real
from multicentre_papers.baselines.pooled_clustering.base import (
    PooledClusterer,
    Views,
)
from multicentre_papers.baselines.pooled_clustering.coclustering import Coclustering, cocluster
from multicentre_papers.baselines.pooled_clustering.graphs import project_rows, unit_length_rows

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
LabelledBy = Literal["components", "wider graph", "k-means"]

_SAME_WEIGHTS = 1e-8  # smaller changes of the weights end the updates
_GAP = 1e-13  # relative gain at which the weights count as optimal
# Safety limit: rounding can keep the gap above _GAP. A step costs only k**2 operations for k views.
_MAX_WEIGHT_STEPS = 10_000


class SFMC(PooledClusterer):
    """Clustering by the components of the bipartite graph nearest to a weighted mean of the views' graphs.

    All views use the same samples as anchors. Each view links a sample to its nearest anchors. The method alternates
    between the weights of the views and the graph with `n_clusters` components nearest to the weighted mean of the
    views' graphs.

    Parameters
    ----------
    n_clusters : int
        Number of clusters, at least 2.
    anchor_rate : float, default 0.5
        Share of the samples used as anchors, in (0, 1]; at least `n_clusters` samples are used.
    n_neighbours : int, default 10
        Number of anchors linked to a sample per view; limited to the number of anchors minus 1.
    max_outer : int, default 10
        Maximum number of updates of the weights; the fit ends earlier if they converge.
    max_inner : int, default 50
        Maximum number of steps of a co-clustering.
    n_init : int, default 10
        Number of k-means starts, if k-means is needed.
    random_state : int or numpy.random.Generator, optional
        Seed of k-means; all other steps are deterministic.

    Attributes
    ----------
    labels_ : array of int64, shape (n,)
    labelled_by_ : {"components", "wider graph", "k-means"}
        "components": the method as published. "wider graph": the graph had more than `n_clusters` components, so the
        number of neighbours was doubled until it had at most that number. "k-means": no strength of the penalty gave
        `n_clusters` components, so the rows of the embedding, scaled to length 1, were clustered.
    components_ : array of int64, shape (n,)
        Components of the first graph: the result of the published method.
    n_components_ : int
        Number of components of the first graph.
    view_weights_ : array of shape (k,)
        Weights in the order of `views_`, with sum 1.
    n_neighbors_ : int
        Number of neighbours in the last graph.
    anchors_ : array of int64, shape (m,)
        Indices of the anchor samples, ascending.
    graph_ : csr_array of shape (n, m)
    embedding_ : array of shape (n, n_clusters)

    Examples
    --------
    >>> import numpy as np
    >>> from multicentre_papers.baselines import SFMC
    >>> draw = np.random.default_rng(0)
    >>> group = np.repeat([0, 1, 2], 20)
    >>> views = {v: 6 * draw.normal(size=(3, 4))[group] + draw.normal(size=(60, 4)) for v in ("blood", "image")}
    >>> model = SFMC(3, random_state=0).fit(views)
    >>> np.bincount(model.labels_).tolist(), len(model.anchors_)
    ([20, 20, 20], 30)
    """

    labelled_by_: LabelledBy
    components_: Labels
    n_components_: int
    view_weights_: Floats
    n_neighbors_: int
    anchors_: Labels
    graph_: sparse.csr_array
    embedding_: Floats

    parameter_ranges: ClassVar[ParameterRanges] = {
        **PooledClusterer.parameter_ranges,
        "anchor_rate": Real(0, 1, open="low"),
        **dict.fromkeys(("n_neighbours", "max_outer", "max_inner", "n_init"), Integer(1)),
    }

    def __init__(
        self,
        n_clusters: int,
        *,
        anchor_rate: float = 0.5,
        n_neighbours: int = 10,
        max_outer: int = 10,
        max_inner: int = 50,
        n_init: int = 10,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.anchor_rate = anchor_rate
        self.n_neighbours = n_neighbours
        self.max_outer = max_outer
        self.max_inner = max_inner
        self.n_init = n_init
        self.random_state = random_state

    def _fit(self, views: Views) -> None:
        scaled = [scale_view(X) for X in views.values()]
        n = len(scaled[0])
        m = min(n, max(int(self.anchor_rate * n), self.n_clusters))
        self.anchors_ = choose_anchors(np.hstack(scaled), m)
        self.n_neighbors_ = min(self.n_neighbours, m - 1)
        fusion = self._fuse(scaled)
        self.components_, self.n_components_ = fusion.labels, fusion.n_components
        self.labelled_by_ = "components"
        while fusion.n_components > self.n_clusters and self.n_neighbors_ < m - 1:
            self.n_neighbors_ = min(2 * self.n_neighbors_, m - 1)
            self.labelled_by_ = "wider graph"
            fusion = self._fuse(scaled)
        self._label(fusion)

    def _fuse(self, scaled: list[Floats]) -> Coclustering:
        """Alternate between the graph with n_clusters components and the weights of the views."""
        graphs = [anchor_graph(X, X[self.anchors_], self.n_neighbors_) for X in scaled]
        inner_products = np.array([[np.sum(A * B) for B in graphs] for A in graphs])
        weights = np.full(len(graphs), 1.0 / len(graphs))
        for _ in range(self.max_outer + 1):
            self.view_weights_ = weights
            fusion = cocluster(_weighted_mean(graphs, weights), self.n_clusters, max_iter=self.max_inner)
            weights = weigh_views(inner_products, np.array([np.sum(B * fusion.graph) for B in graphs]))
            if np.abs(weights - self.view_weights_).max() < _SAME_WEIGHTS:
                break
        return fusion

    def _label(self, fusion: Coclustering) -> None:
        self.graph_, self.embedding_, self.labels_ = fusion.graph, fusion.embedding, fusion.labels
        if fusion.n_components != self.n_clusters:
            rows = unit_length_rows(fusion.embedding)
            self.labels_ = partition_rows(rows, self.n_clusters, n_init=self.n_init, random_state=self.random_state)
            self.labelled_by_ = "k-means"


def scale_view(X: Floats) -> Floats:
    """Return X divided by its largest magnitude; a zero view stays unchanged.

    Examples
    --------
    >>> import numpy as np
    >>> scale_view(np.array([[1.0, -4.0]])).tolist()
    [[0.25, -1.0]]
    """
    largest = np.abs(X).max()
    return cast("Floats", X / largest) if largest > 0 else X


def choose_anchors(X: Floats, m: int) -> Labels:
    """Return m representative samples by the deterministic directly alternate sampling of [1]_.

    The score of a sample is the sum of its features, each minus its minimum, divided by the largest such sum. The
    sample with the highest score is selected, every score s becomes s (1 - s), and the scores are scaled to a maximum
    of 1 again. Samples with the score of a selected sample get score 0. Once all scores are 0, the remaining samples
    are added in order.

    Parameters
    ----------
    X : array of shape (n, d)
        All views combined.
    m : int
        At most n.

    Returns
    -------
    array of int64, shape (m,)
        Indices of the samples, ascending.

    Examples
    --------
    >>> import numpy as np
    >>> choose_anchors(np.array([[0.0], [4.0], [5.0], [10.0]]), 2).tolist()
    [2, 3]
    """
    score = np.sum(X - X.min(axis=0), axis=1)
    anchors: list[int] = []
    while len(anchors) < m and score.max() > 0:
        score = score / score.max()
        anchors.append(int(np.argmax(score)))
        score = score * (1.0 - score)
    others = np.setdiff1d(np.arange(len(X)), anchors)
    return np.sort(np.append(np.array(anchors, dtype=np.int64), others[: m - len(anchors)]))


def anchor_graph(X: Floats, anchors: Floats, k: int) -> sparse.csr_array:
    """Return the graph of adaptive neighbours between samples and anchors.

    The weights of the k nearest anchors fall linearly with the squared distance,
    ``b_ij = (d_(k+1) - d_ij) / (k d_(k+1) - sum_(l<=k) d_(l))``; they are equal if all k + 1 distances are equal.

    Parameters
    ----------
    X : array of shape (n, d)
    anchors : array of shape (m, d)
    k : int
        At most m - 1.

    Returns
    -------
    csr_array of shape (n, m)
        Rows of at most k positive entries with sum 1.

    Examples
    --------
    >>> import numpy as np
    >>> anchor_graph(np.array([[0.0]]), np.array([[0.0], [1.0], [2.0]]), 2).toarray().round(3).tolist()
    [[0.571, 0.429, 0.0]]
    """
    distances = cdist(X, anchors, "sqeuclidean")
    nearest = np.argsort(distances, axis=1, kind="stable")[:, : k + 1]
    ascending = np.take_along_axis(distances, nearest, axis=1)
    gaps = ascending[:, k:] - ascending[:, :k]
    total = gaps.sum(axis=1, keepdims=True)
    weights = np.divide(gaps, total, out=np.full_like(gaps, 1.0 / k), where=total > 0)
    starts = np.arange(len(X) + 1) * k
    graph = sparse.csr_array((weights.ravel(), nearest[:, :k].ravel(), starts), shape=distances.shape)
    graph.eliminate_zeros()
    graph.sort_indices()
    return graph


def weigh_views(Q: Floats, b: Floats) -> Floats:
    """Return the weights on the simplex that minimise ``a'Qa - 2 b'a``.

    The solver is an accelerated projected gradient with restarts. It stops when no exchange of weight between two views
    can gain more than 1e-13 of the scale of Q and b.

    Parameters
    ----------
    Q : array of shape (k, k)
        Inner products of the views' graphs, positive semi-definite.
    b : array of shape (k,)
        Inner products of the views' graphs with the fused graph.

    Examples
    --------
    >>> import numpy as np
    >>> weigh_views(np.eye(2), np.array([0.8, 0.4])).round(6).tolist()
    [0.7, 0.3]
    """
    step = 1.0 / max(float(np.linalg.norm(Q, 2)), np.finfo(float).tiny)
    scale = np.abs(Q).max() + np.abs(b).max()
    a = np.full(len(b), 1.0 / len(b))
    ahead, momentum = a, 1.0
    for _ in range(_MAX_WEIGHT_STEPS):
        slope = Q @ a - b
        if slope @ a - slope.min() <= _GAP * scale:
            break
        latest = project_rows((ahead - step * (Q @ ahead - b))[None, :])[0]
        if (ahead - latest) @ (latest - a) > 0:
            momentum, latest = 1.0, project_rows((a - step * slope)[None, :])[0]
        faster = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        ahead = latest + (momentum - 1.0) / faster * (latest - a)
        a, momentum = latest, faster
    return a


def _weighted_mean(graphs: list[sparse.csr_array], weights: Floats) -> sparse.csr_array:
    mean = sparse.csr_array(sum(weight * graph for weight, graph in zip(weights, graphs, strict=True)))
    mean.eliminate_zeros()
    mean.sort_indices()
    return mean
