"""Spectral clustering of each view, or of the mean of their graphs: the baseline."""

from __future__ import annotations

from typing import Literal

import numpy as np

from multicentre.clustering.graphs import (
    Floats,
    Graph,
    Labels,
    neighbour_graph,
    normalised_eigenvectors,
    self_tuning_graph,
    unit_length_rows,
)
from multicentre.clustering.partition import partition_rows
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.tie_breaking import first_largest
from multicentre_papers.baselines.pooled_clustering.base import PooledClusterer, Views, check_whole_number

USUAL_NEIGHBOURS = {"neighbours": 10, "self_tuning": 7}


class SC(PooledClusterer):
    """Normalised spectral clustering, a view at a time.

    Each view's graph is embedded by the leading eigenvectors of ``D^-1/2 W D^-1/2``, rows are brought to length 1 and
    grouped by k-means (Ng, Jordan and Weiss 2001). Tables of comparison report the mean of the scores of
    ``labels_by_view_``. ``labels_`` are those of one view, chosen without labels: the one with the largest eigengap,
    the fall from the `n_clusters`-th eigenvalue to the next, which is large where that many groups hang together
    and hardly touch.

    Parameters
    ----------
    n_clusters : int
        Number of clusters, at least 2.
    graph : {"neighbours", "self_tuning"}, default "neighbours"
        The sparse graph of adaptive neighbours (Nie, Wang and Huang 2014), which CDMGC takes too, or the complete one
        whose scale is each sample's distance to a neighbour (Zelnik-Manor and Perona 2004).
    n_neighbours : int, optional
        Number of neighbours (10 by default), or neighbour that sets the scale (7 by default).
    fuse : bool, default False
        Cluster the mean of the views' graphs instead, a stronger baseline. It counts as a view named ``"mean"``.
    n_init : int, default 10
        Starts of k-means.
    random_state : int or numpy.random.Generator, optional
        Seed of k-means.

    Attributes
    ----------
    labels_ : array of int64, shape (n,)
    labels_by_view_ : dict of str to array of int64, shape (n,)
        Clusters by each view alone.
    eigengap_by_view_ : dict of str to float
        In [0, 2].
    view_ : str
        The view whose clusters are ``labels_``; of equal ones, the first.
    embedding_ : array of shape (n, n_clusters)
        Its embedding, rows of length 1.

    References
    ----------
    .. [1] A. Y. Ng, M. I. Jordan, Y. Weiss, "On Spectral Clustering: Analysis and an Algorithm", NIPS 2001.

    Examples
    --------
    >>> import numpy as np
    >>> centres = np.repeat([[0.0], [9.0]], 10, axis=0)
    >>> noise = np.random.default_rng(0).normal(size=(20, 2))
    >>> SC(2, random_state=0).fit({"a": centres + noise, "b": noise}).labels_.tolist() == [0] * 10 + [1] * 10
    True
    """

    labels_by_view_: dict[str, Labels]
    eigengap_by_view_: dict[str, float]
    view_: str
    embedding_: Floats

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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        if self.graph not in USUAL_NEIGHBOURS:
            raise ConfigurationError(
                f"{self.graph!r} is not known", where="graph", hint=f"Use one of {', '.join(USUAL_NEIGHBOURS)}."
            )
        if self.n_neighbours is not None:
            check_whole_number("n_neighbours", self.n_neighbours, least=1)
        check_whole_number("n_init", self.n_init, least=1)

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
        k = USUAL_NEIGHBOURS[self.graph] if self.n_neighbours is None else self.n_neighbours
        return self_tuning_graph(X, k) if self.graph == "self_tuning" else neighbour_graph(X, k)


def _embed(W: Graph, c: int) -> tuple[Floats, float]:
    """Return the embedding in c dimensions, rows of length 1, and the gap between the c-th eigenvalue and the next."""
    values, F = normalised_eigenvectors(W, min(c + 1, W.shape[0]))
    gap = float(values[c - 1] - values[c]) if len(values) > c else 0.0
    return unit_length_rows(np.ascontiguousarray(F[:, :c])), gap
