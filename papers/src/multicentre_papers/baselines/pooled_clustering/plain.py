"""Scikit-learn's k-means or spectral clustering of the concatenated columns of all views."""

from __future__ import annotations

import warnings
from typing import ClassVar, Literal

import numpy as np
from sklearn.cluster import KMeans, SpectralClustering
from sklearn.preprocessing import normalize

from multicentre.estimator.parameters import Integer, OneOf, ParameterRanges
from multicentre_papers.baselines.pooled_clustering.base import PooledClusterer, Views, standardise
from multicentre_papers.baselines.pooled_clustering.graphs import Labels


class Plain(PooledClusterer):
    """K-means or spectral clustering of concatenated views: two lines of scikit-learn, with no multi-view step.

    Parameters
    ----------
    n_clusters : int
        Number of clusters, at least 2.
    algorithm : {"spectral", "kmeans"}, default "spectral"
        ``SpectralClustering`` with a graph of nearest neighbours, or ``KMeans``.
    scaling : {"rows", "columns"}, default "rows"
        "rows": each view's rows are scaled to length 1 before the views are concatenated. "columns": each column is
        scaled to mean 0 and standard deviation 1.
    n_neighbours : int, default 10
        Neighbours of a sample in the graph; cut to the number of samples.
    n_init : int, default 10
        Number of k-means starts.
    random_state : int, optional
        Seed of k-means and of the eigenvalue solver.

    Attributes
    ----------
    labels_ : array of int64, shape (n,)

    References
    ----------
    F. Pedregosa et al. (2011), Scikit-learn: machine learning in Python, Journal of Machine Learning Research 12.

    Examples
    --------
    >>> import numpy as np
    >>> from multicentre_papers.baselines import Plain
    >>> centres = np.repeat([[0.0], [9.0]], 10, axis=0)
    >>> noise = np.random.default_rng(0).normal(size=(20, 2))
    >>> labels = Plain(2, algorithm="kmeans", scaling="columns", random_state=0).fit({"a": centres + noise}).labels_
    >>> np.bincount(labels).tolist()
    [10, 10]
    """

    parameter_ranges: ClassVar[ParameterRanges] = {
        **PooledClusterer.parameter_ranges,
        "algorithm": OneOf("spectral", "kmeans"),
        "scaling": OneOf("rows", "columns"),
        "n_neighbours": Integer(1),
        "n_init": Integer(1),
    }

    def __init__(
        self,
        n_clusters: int,
        *,
        algorithm: Literal["spectral", "kmeans"] = "spectral",
        scaling: Literal["rows", "columns"] = "rows",
        n_neighbours: int = 10,
        n_init: int = 10,
        random_state: int | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.algorithm = algorithm
        self.scaling = scaling
        self.n_neighbours = n_neighbours
        self.n_init = n_init
        self.random_state = random_state

    def _fit(self, views: Views) -> None:
        scale = normalize if self.scaling == "rows" else standardise
        rows = np.hstack([scale(X) for X in views.values()])
        self.labels_ = self._cluster(rows)

    def _cluster(self, rows: np.ndarray) -> Labels:
        if self.algorithm == "kmeans":
            model = KMeans(self.n_clusters, n_init=self.n_init, random_state=self.random_state)
            return np.asarray(model.fit_predict(rows), dtype=np.int64)
        spectral = SpectralClustering(
            self.n_clusters,
            affinity="nearest_neighbors",
            n_neighbors=min(self.n_neighbours, len(rows)),
            n_init=self.n_init,
            random_state=self.random_state,
        )
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Graph is not fully connected", UserWarning)
            return np.asarray(spectral.fit_predict(rows), dtype=np.int64)
