"""Spectral clustering of each view or of the mean of the views' graphs."""

from __future__ import annotations

from typing import ClassVar, Literal

import numpy as np

from multicentre.clustering.partition import partition_rows
from multicentre.core.tie_breaking import first_largest
from multicentre.estimator.parameters import Flag, Integer, OneOf, ParameterRanges
from multicentre_papers.baselines.pooled_clustering.base import PooledClusterer, Views
from multicentre_papers.baselines.pooled_clustering.graphs import (
    Floats,
    Graph,
    Labels,
    neighbour_graph,
    normalised_eigenvectors,
    self_tuning_graph,
    unit_length_rows,
)

# As in CDMGC and as in Zelnik-Manor and Perona (2004).
DEFAULT_NEIGHBOURS = {"neighbours": 10, "self_tuning": 7}


class SC(PooledClusterer):
    """Normalised spectral clustering per view.

    Each view's graph is embedded by the leading eigenvectors of ``D^-1/2 W D^-1/2``. The rows are scaled to length 1
    and clustered by k-means (Ng, Jordan and Weiss 2001). Comparison tables report the mean score over
    ``labels_by_view_``. ``labels_`` are the labels of the view with the largest eigengap, which needs no true labels.
    The eigengap is the difference between the `n_clusters`-th eigenvalue and the next; it is large if the graph has
    `n_clusters` well separated groups.

    Parameters
    ----------
    n_clusters : int
        Number of clusters, at least 2.
    graph : {"neighbours", "self_tuning"}, default "neighbours"
        "neighbours": sparse graph of adaptive neighbours (Nie, Wang and Huang 2014), as in CDMGC. "self_tuning":
        complete graph whose scale is each sample's distance to a neighbour (Zelnik-Manor and Perona 2004).
    n_neighbours : int, optional
        Number of neighbours (default 10), or rank of the neighbour that sets the scale (default 7).
    fuse : bool, default False
        Cluster the mean of the views' graphs, a stronger baseline. It is treated as a view named ``"mean"``.
    n_init : int, default 10
        Number of k-means starts.
    random_state : int or numpy.random.Generator, optional
        Seed of k-means.

    Attributes
    ----------
    labels_ : array of int64, shape (n,)
    labels_by_view_ : dict of str to array of int64, shape (n,)
        Clusters of each single view.
    eigengap_by_view_ : dict of str to float
        Eigengap of each view, in [0, 2].
    view_ : str
        View whose clusters are ``labels_``; the first one wins a tie.
    embedding_ : array of shape (n, n_clusters)
        Embedding of that view, with rows of length 1.

    References
    ----------
    .. [1] A. Y. Ng, M. I. Jordan, Y. Weiss, "On Spectral Clustering: Analysis and an Algorithm", NIPS 2001.

    Examples
    --------
    >>> import numpy as np
    >>> from multicentre_papers.baselines import SC
    >>> centres = np.repeat([[0.0], [9.0]], 10, axis=0)
    >>> noise = np.random.default_rng(0).normal(size=(20, 2))
    >>> SC(2, random_state=0).fit({"a": centres + noise, "b": noise}).labels_.tolist() == [0] * 10 + [1] * 10
    True
    """

    labels_by_view_: dict[str, Labels]
    eigengap_by_view_: dict[str, float]
    view_: str
    embedding_: Floats

    parameter_ranges: ClassVar[ParameterRanges] = {
        **PooledClusterer.parameter_ranges,
        "graph": OneOf(*DEFAULT_NEIGHBOURS),
        "n_neighbours": (None, Integer(1)),
        "fuse": Flag(),
        "n_init": Integer(1),
    }

    def __init__(
        self,
        n_clusters: int,
        *,
        graph: Literal["neighbours", "self_tuning"] = "neighbours",
        n_neighbours: int | None = None,
        fuse: bool = False,
        n_init: int = 10,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.graph = graph
        self.n_neighbours = n_neighbours
        self.fuse = fuse
        self.n_init = n_init
        self.random_state = random_state

    def _fit(self, views: Views) -> None:
        graphs = {view: self._connect(X) for view, X in views.items()}
        if self.fuse:
            graphs = {"mean": sum(graphs.values()) / len(graphs)}
        self.labels_by_view_, self.eigengap_by_view_ = {}, {}
        embeddings = {}
        for view, W in graphs.items():
            embeddings[view], self.eigengap_by_view_[view] = _embed(W, self.n_clusters)
            self.labels_by_view_[view] = partition_rows(
                embeddings[view], self.n_clusters, n_init=self.n_init, random_state=self.random_state
            )
        widest = int(first_largest(list(self.eigengap_by_view_.values()), size=1.0))
        self.view_ = list(self.eigengap_by_view_)[widest]
        self.labels_, self.embedding_ = self.labels_by_view_[self.view_], embeddings[self.view_]

    def _connect(self, X: Floats) -> Graph:
        k = DEFAULT_NEIGHBOURS[self.graph] if self.n_neighbours is None else self.n_neighbours
        return self_tuning_graph(X, k) if self.graph == "self_tuning" else neighbour_graph(X, k)


def _embed(W: Graph, c: int) -> tuple[Floats, float]:
    """Return the embedding in c dimensions with rows of length 1, and the gap after the c-th eigenvalue."""
    values, F = normalised_eigenvectors(W, min(c + 1, W.shape[0]))
    gap = float(values[c - 1] - values[c]) if len(values) > c else 0.0
    return unit_length_rows(np.ascontiguousarray(F[:, :c])), gap
