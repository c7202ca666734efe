"""RCAGL: one anchor graph that all views share beside one that each view has for itself.

References
----------
.. [1] S. Liu, Q. Liao, S. Wang, X. Liu, E. Zhu, "Robust and Consistent Anchor Graph Learning for Multi-View
   Clustering", IEEE Transactions on Knowledge and Data Engineering 36 (2024).
"""

from __future__ import annotations

from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray
from scipy import linalg, sparse

from multicentre.clustering.coclustering import Coclustering, cocluster
from multicentre.clustering.graphs import project_rows, unit_length_rows
from multicentre.clustering.partition import partition_rows
from multicentre_papers.baselines.pooled_clustering.base import (
    PooledClusterer,
    Views,
    check_positive,
    check_whole_number,
    nearest_orthonormal,
    standardise,
)

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]


class RCAGL(PooledClusterer):
    """Clusters as the connected components of an anchor graph that all views share.

    Each standardised view is written as ``X_v = (C + D_v) A_v' / 2``: anchors A_v of shape (d_v, m) with orthonormal
    columns, a graph C of shape (n, m) that is the same in all views and has `n_clusters` components, and a graph D_v of
    the view's own that keeps its noise out of C. Rows of C and D_v lie on the simplex. The three are updated in turn.

    Parameters
    ----------
    n_clusters : int
        At least 2.
    anchors_per_cluster : int, default 1
        Number of anchors m over `n_clusters`; m is at most n. The paper chooses among 1, 2 and 3 with the true labels.
    penalty : float, default 1.0
        Weight of ``sum_v ||D_v||^2``, above 0. The paper chooses among 1, 100, 1e3 and 1e6 with the true labels.
    tol : float, default 1e-4
        The fit ends when the objective changes by less than this share.
    max_iter : int, default 50
        Most rounds.
    max_inner : int, default 50
        Most steps of a co-clustering.
    n_init : int, default 10
        Starts of k-means, which gives the first C.
    random_state : int or numpy.random.Generator, optional
        Of k-means.

    Attributes
    ----------
    labels_ : array of int64, shape (n,)
    labelled_by_ : {"components", "k-means"}
        "k-means": no strength of the rank penalty gave C `n_clusters` components; the rows of `affinity_`, brought to
        length 1, were clustered instead.
    components_ : array of int64, shape (n,)
        Components of the last C.
    n_components_ : int
        Their number.
    graph_ : csr_array of shape (n, m)
        C.
    affinity_ : array of shape (n, m)
        What C approaches: mean affinity of the samples to the anchors, less what the views' own graphs explain.
    objective_ : array of shape (n_iter_,)
        ``sum_v ||X_v - (C + D_v) A_v' / 2||^2 + penalty ||D_v||^2`` after each round. The update of C approaches its
        minimum under the rank only roughly, so a round can raise it.
    n_iter_ : int

    Examples
    --------
    >>> import numpy as np
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

    def _check_parameters(self) -> None:
        super()._check_parameters()
        for name in ("anchors_per_cluster", "max_iter", "max_inner", "n_init"):
            check_whole_number(name, getattr(self, name), least=1)
        for name in ("penalty", "tol"):
            check_positive(name, getattr(self, name))

    def _fit(self, views: Views) -> None:
        tables = [standardise(X) for X in views.values()]
        C = self._first_graph(tables)
        own, objective = [C] * len(tables), [np.inf]
        while len(objective) <= self.max_iter:
            anchors = [update_anchors(X, C, D) for X, D in zip(tables, own, strict=True)]
            own = [update_own_graph(X, A, C, self.penalty) for X, A in zip(tables, anchors, strict=True)]
            self.affinity_ = mean_affinity(tables, anchors, own)
            start = sparse.csr_array(np.mean(own, axis=0))
            found = cocluster(keep_links(self.affinity_), self.n_clusters, start=start, max_iter=self.max_inner)
            C = found.row_graph.toarray()
            objective.append(measure_fit(tables, anchors, own, C, self.penalty))
            if abs(objective[-2] - objective[-1]) <= self.tol * objective[-1]:
                break
        self.objective_, self.n_iter_ = np.array(objective[1:]), len(objective) - 1
        self._label(found)

    def _first_graph(self, tables: list[Floats]) -> Floats:
        """Return C of shape (n, m) that links each sample to one anchor, by k-means of the leading singular vectors."""
        n = len(tables[0])
        m = min(n, self.anchors_per_cluster * self.n_clusters)
        vectors = leading_left_vectors(np.hstack(tables), m)
        groups = partition_rows(vectors, m, n_init=self.n_init, random_state=self.random_state)
        return np.eye(m)[groups]

    def _label(self, found: Coclustering) -> None:
        self.graph_ = found.row_graph
        self.components_, self.n_components_ = found.labels, found.n_components
        self.labels_, self.labelled_by_ = found.labels, "components"
        if found.n_components != self.n_clusters:
            rows = unit_length_rows(self.affinity_)
            self.labels_ = partition_rows(rows, self.n_clusters, n_init=self.n_init, random_state=self.random_state)
            self.labelled_by_ = "k-means"


def leading_left_vectors(X: Floats, m: int) -> Floats:
    """Return the m leading left singular vectors of X, those of singular value 0 as 0.

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
    kept = squares > 1e-12 * max(squares[-1], 0.0)
    return cast("Floats", np.divide(left, lengths, out=np.zeros_like(left), where=kept)[:, ::-1])


def update_anchors(X: Floats, C: Floats, D: Floats) -> Floats:
    """Return the anchors A with orthonormal columns that minimise ``||X - (C + D) A' / 2||^2``.

    Parameters
    ----------
    X : array of shape (n, d)
    C, D : array of shape (n, m)

    Returns
    -------
    array of shape (d, m)
        With fewer features than anchors its rows are orthonormal instead, and it is no minimum.

    Examples
    --------
    >>> import numpy as np
    >>> C = np.array([[1.0, 0.0], [0.0, 1.0]])
    >>> update_anchors(np.array([[0.0, 2.0], [1.0, 0.0]]), C, C).round(6).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    return nearest_orthonormal(X.T @ (C + D))


def update_own_graph(X: Floats, A: Floats, C: Floats, penalty: float) -> Floats:
    """Return the D on the simplex by rows that minimises ``||X - (C + D) A' / 2||^2 + penalty ||D||^2``.

    Parameters
    ----------
    X : array of shape (n, d)
    A : array of shape (d, m)
        With orthonormal columns.
    C : array of shape (n, m)
    penalty : float
        Above 0.

    Returns
    -------
    array of shape (n, m)

    Examples
    --------
    >>> import numpy as np
    >>> update_own_graph(np.array([[2.0, 1.0]]), np.eye(2), np.array([[1.0, 0.0]]), 0.5).round(3).tolist()
    [[0.667, 0.333]]
    """
    wanted = 2.0 * (X - 0.5 * C @ A.T) @ A / (1.0 + 4.0 * penalty)
    return cast("Floats", project_rows(wanted))


def mean_affinity(tables: list[Floats], anchors: list[Floats], own: list[Floats]) -> Floats:
    """Return the mean over the views of ``(X_v - D_v A_v' / 2) A_v``, which C is to approach.

    The objective's own minimiser has twice this mean; the authors' program takes it as it is, and so does this one.

    Parameters
    ----------
    tables : list of arrays of shape (n, d_v)
    anchors : list of arrays of shape (d_v, m)
    own : list of arrays of shape (n, m)

    Returns
    -------
    array of shape (n, m)

    Examples
    --------
    >>> import numpy as np
    >>> mean_affinity([np.array([[2.0, 0.0]])], [np.eye(2)], [np.array([[0.5, 0.5]])]).tolist()
    [[1.75, -0.25]]
    """
    left = [(X - 0.5 * D @ A.T) @ A for X, A, D in zip(tables, anchors, own, strict=True)]
    return cast("Floats", np.mean(left, axis=0))


def measure_fit(tables: list[Floats], anchors: list[Floats], own: list[Floats], C: Floats, penalty: float) -> float:
    """Return the objective, ``sum_v ||X_v - (C + D_v) A_v' / 2||^2 + penalty ||D_v||^2``.

    Examples
    --------
    >>> import numpy as np
    >>> C = np.array([[1.0, 0.0]])
    >>> measure_fit([np.array([[2.0, 0.0]])], [np.eye(2)], [C], C, penalty=3.0)
    4.0
    """
    misfits = [np.sum((X - 0.5 * (C + D) @ A.T) ** 2) for X, A, D in zip(tables, anchors, own, strict=True)]
    return float(sum(misfits) + penalty * sum(np.sum(D**2) for D in own))


def keep_links(B: Floats) -> sparse.csr_array:
    """Return the entries of B above 0, and of a row without any its largest.

    Examples
    --------
    >>> import numpy as np
    >>> keep_links(np.array([[0.5, -1.0], [-2.0, -1.0]])).toarray().tolist()
    [[0.5, 0.0], [0.0, -1.0]]
    """
    kept = B > 0
    kept[np.arange(len(B)), np.argmax(B, axis=1)] = True
    rows, columns = np.nonzero(kept)
    return sparse.csr_array((B[kept], (rows, columns)), shape=B.shape)
