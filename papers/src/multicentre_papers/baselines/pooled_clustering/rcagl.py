"""RCAGL: a common anchor graph of all views and a separate one per view.

References
----------
.. [1] S. Liu, Q. Liao, S. Wang, X. Liu, E. Zhu, "Robust and Consistent Anchor Graph Learning for Multi-View
   Clustering", IEEE Transactions on Knowledge and Data Engineering 36 (2024).
"""

from __future__ import annotations

from typing import ClassVar, Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from multicentre.clustering.partition import partition_rows
from multicentre.estimator.parameters import Integer, ParameterRanges, Real
from multicentre_papers.baselines.pooled_clustering.base import (
    PooledClusterer,
    Views,
    nearest_orthonormal,
    standardise,
)
from multicentre_papers.baselines.pooled_clustering.coclustering import Coclustering, cocluster
from multicentre_papers.baselines.pooled_clustering.graphs import project_rows, unit_length_rows

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


class RCAGL(PooledClusterer):
    """Clustering by the connected components of a common anchor graph of all views.

    Each standardised view is written as ``X_v = (C + D_v) A_v' / 2``. The anchors A_v (d_v, m) have orthonormal
    columns. The graph C of shape (n, m) is common to all views and has `n_clusters` components. The graph D_v of the
    single view keeps its noise out of C. Rows of C and D_v lie on the simplex. A_v, D_v and C are updated in turn.

    Parameters
    ----------
    n_clusters : int
        Number of clusters, at least 2.
    anchors_per_cluster : int, default 1
        Number of anchors m per cluster; m is at most n. The paper selects from 1, 2 and 3 using the true labels.
    penalty : float, default 1.0
        Weight of ``sum_v ||D_v||^2``, above 0. The paper selects from 1, 100, 1e3 and 1e6 using the true labels.
    tol : float, default 1e-4
        The fit ends when the relative change of the objective is at most this.
    max_iter : int, default 50
        Maximum number of rounds.
    max_inner : int, default 50
        Maximum number of steps of a co-clustering.
    n_init : int, default 10
        Number of starts of k-means, which gives the initial C.
    random_state : int or numpy.random.Generator, optional
        Seed of k-means.

    Attributes
    ----------
    labels_ : array of int64, shape (n,)
    labelled_by_ : {"components", "k-means"}
        "k-means": no strength of the rank penalty gave C `n_clusters` components, so the rows of `affinity_`, scaled to
        length 1, were clustered.
    components_ : array of int64, shape (n,)
        Components of the last C.
    n_components_ : int
        Number of components of the last C.
    graph_ : csr_array of shape (n, m)
        C.
    affinity_ : array of shape (n, m)
        Target of C: mean affinity of the samples to the anchors, minus the part explained by the graphs D_v.
    objective_ : array of shape (n_iter,)
        ``sum_v ||X_v - (C + D_v) A_v' / 2||^2 + penalty ||D_v||^2`` after each round. The update of C minimises it only
        approximately under the rank condition, so a round can raise it.
    n_iter_ : int

    Examples
    --------
    >>> import numpy as np
    >>> from multicentre_papers.baselines import RCAGL
    >>> draw = np.random.default_rng(0)
    >>> group = np.repeat([0, 1, 2], 20)
    >>> views = {v: 6 * draw.normal(size=(3, 4))[group] + draw.normal(size=(60, 4)) for v in ("blood", "image")}
    >>> model = RCAGL(3, random_state=0).fit(views)
    >>> np.bincount(model.labels_).tolist(), model.labelled_by_
    ([20, 20, 20], 'components')
    """

    labelled_by_: Literal["components", "k-means"]
    components_: Labels
    n_components_: int
    graph_: sparse.csr_array
    affinity_: Floats
    objective_: Floats
    n_iter_: int

    parameter_ranges: ClassVar[ParameterRanges] = {
        **PooledClusterer.parameter_ranges,
        **dict.fromkeys(("anchors_per_cluster", "max_iter", "max_inner", "n_init"), Integer(1)),
        **dict.fromkeys(("penalty", "tol"), Real(0, open="low")),
    }

    def __init__(
        self,
        n_clusters: int,
        *,
        anchors_per_cluster: int = 1,
        penalty: float = 1.0,
        tol: float = 1e-4,
        max_iter: int = 50,
        max_inner: int = 50,
        n_init: int = 10,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.anchors_per_cluster = anchors_per_cluster
        self.penalty = penalty
        self.tol = tol
        self.max_iter = max_iter
        self.max_inner = max_inner
        self.n_init = n_init
        self.random_state = random_state

    def _fit(self, views: Views) -> None:
        tables = [standardise(X) for X in views.values()]
        C = self._first_graph(tables)
        view_graphs, objective = [C] * len(tables), [np.inf]
        while len(objective) <= self.max_iter:
            anchors = [update_anchors(X, C, D) for X, D in zip(tables, view_graphs, strict=True)]
            view_graphs = [update_view_graph(X, A, C, self.penalty) for X, A in zip(tables, anchors, strict=True)]
            self.affinity_ = mean_affinity(tables, anchors, view_graphs)
            start = sparse.csr_array(np.mean(view_graphs, axis=0))
            coclustering = cocluster(keep_links(self.affinity_), self.n_clusters, start=start, max_iter=self.max_inner)
            C = coclustering.row_graph.toarray()
            objective.append(measure_fit(tables, anchors, view_graphs, C, self.penalty))
            if abs(objective[-2] - objective[-1]) <= self.tol * objective[-1]:
                break
        self.objective_, self.n_iter_ = np.array(objective[1:]), len(objective) - 1
        self._label(coclustering)

    def _first_graph(self, tables: list[Floats]) -> Floats:
        """Return the initial C of shape (n, m): one anchor per sample, by k-means of the leading singular vectors."""
        n = len(tables[0])
        m = min(n, self.anchors_per_cluster * self.n_clusters)
        vectors = leading_left_vectors(np.hstack(tables), m)
        groups = partition_rows(vectors, m, n_init=self.n_init, random_state=self.random_state)
        return np.eye(m)[groups]

    def _label(self, coclustering: Coclustering) -> None:
        self.graph_ = coclustering.row_graph
        self.components_, self.n_components_ = coclustering.labels, coclustering.n_components
        self.labels_, self.labelled_by_ = coclustering.labels, "components"
        if coclustering.n_components != self.n_clusters:
            rows = unit_length_rows(self.affinity_)
            self.labels_ = partition_rows(rows, self.n_clusters, n_init=self.n_init, random_state=self.random_state)
            self.labelled_by_ = "k-means"


def leading_left_vectors(X: Floats, m: int) -> Floats:
    """Return the m leading left singular vectors of X; those of singular value 0 are 0.

    Examples
    --------
    >>> import numpy as np
    >>> np.abs(leading_left_vectors(np.array([[2.0, 0.0], [0.0, 1.0], [0.0, 0.0]]), 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0], [0.0, 0.0]]
    """
    n, d = X.shape
    m = min(m, n, d)
    small = X @ X.T if n <= d else X.T @ X
    squares, vectors = linalg.eigh(small, subset_by_index=[len(small) - m, len(small) - 1])
    left = vectors if n <= d else X @ vectors
    lengths = np.linalg.norm(left, axis=0)
    nonzero = squares > 1e-12 * max(squares[-1], 0.0)
    return cast("Floats", np.divide(left, lengths, out=np.zeros_like(left), where=nonzero)[:, ::-1])


def update_anchors(X: Floats, C: Floats, D: Floats) -> Floats:
    """Return the anchors A with orthonormal columns that minimise ``||X - (C + D) A' / 2||^2``.

    Parameters
    ----------
    X : array of shape (n, d)
    C, D : array of shape (n, m)

    Returns
    -------
    array of shape (d, m)
        With fewer features than anchors the rows are orthonormal, and the result is not a minimiser.

    Examples
    --------
    >>> import numpy as np
    >>> C = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> update_anchors(np.array([[0.0, 2.0], [1.0, 0.0]]), C, C).round(6).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    return nearest_orthonormal(X.T @ (C + D))


def update_view_graph(X: Floats, A: Floats, C: Floats, penalty: float) -> Floats:
    """Return the D on the simplex by rows that minimises ``||X - (C + D) A' / 2||^2 + penalty ||D||^2``.

    Parameters
    ----------
    X : array of shape (n, d)
    A : array of shape (d, m)
        Anchors with orthonormal columns.
    C : array of shape (n, m)
    penalty : float
        Above 0.

    Returns
    -------
    array of shape (n, m)

    Examples
    --------
    >>> import numpy as np
    >>> update_view_graph(np.array([[2.0, 1.0]]), np.eye(2), np.array([[1.0, 0.0]]), 0.5).round(3).tolist()
    [[0.667, 0.333]]
    """
    minimiser = 2.0 * (X - 0.5 * C @ A.T) @ A / (1.0 + 4.0 * penalty)
    return cast("Floats", project_rows(minimiser))


def mean_affinity(tables: list[Floats], anchors: list[Floats], view_graphs: list[Floats]) -> Floats:
    """Return the target of C: the mean over the views of ``(X_v - D_v A_v' / 2) A_v``.

    The exact minimiser of the objective has twice this mean. The authors' program uses the mean, as does this function.

    Parameters
    ----------
    tables : list of arrays of shape (n, d_v)
    anchors : list of arrays of shape (d_v, m)
    view_graphs : list of arrays of shape (n, m)

    Returns
    -------
    array of shape (n, m)

    Examples
    --------
    >>> import numpy as np
    >>> mean_affinity([np.array([[2.0, 0.0]])], [np.eye(2)], [np.array([[0.5, 0.5]])]).tolist()
    [[1.75, -0.25]]
    """
    left = [(X - 0.5 * D @ A.T) @ A for X, A, D in zip(tables, anchors, view_graphs, strict=True)]
    return cast("Floats", np.mean(left, axis=0))


def measure_fit(
    tables: list[Floats], anchors: list[Floats], view_graphs: list[Floats], C: Floats, penalty: float
) -> float:
    """Return the objective, ``sum_v ||X_v - (C + D_v) A_v' / 2||^2 + penalty ||D_v||^2``.

    Examples
    --------
    >>> import numpy as np
    >>> C = np.array([[1.0, 0.0]])
    >>> measure_fit([np.array([[2.0, 0.0]])], [np.eye(2)], [C], C, penalty=3.0)
    4.0
    """
    misfits = [np.sum((X - 0.5 * (C + D) @ A.T) ** 2) for X, A, D in zip(tables, anchors, view_graphs, strict=True)]
    return float(sum(misfits) + penalty * sum(np.sum(D**2) for D in view_graphs))


def keep_links(B: Floats) -> sparse.csr_array:
    """Return the positive entries of B; a row without any keeps its largest entry.

    Examples
    --------
    >>> import numpy as np
    >>> keep_links(np.array([[0.5, -1.0], [-2.0, -1.0]])).toarray().tolist()
    [[0.5, 0.0], [0.0, -1.0]]
    """
    links = B > 0
    links[np.arange(len(B)), np.argmax(B, axis=1)] = True
    rows, columns = np.nonzero(links)
    return sparse.csr_array((B[links], (rows, columns)), shape=B.shape)
