"""Fast self-guided multi-view subspace clustering (Chen, Wu, Xu and Kittler 2023)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

import numpy as np
from scipy import linalg

from multicentre.clustering.partition import partition_rows
from multicentre.estimator.parameters import Integer, ParameterRanges, Real
from multicentre_papers.baselines.pooled_clustering.base import (
    PooledClusterer,
    Views,
    nearest_orthonormal,
    standardise,
)
from multicentre_papers.baselines.pooled_clustering.graphs import Floats, Labels, project_rows, unit_length_rows


class FSMSC(PooledClusterer):
    """Fast self-guided multi-view subspace clustering.

    All views share weights Z of each sample on m = `n_clusters` anchors. The concatenated views have weights Z' on
    separate anchors; these weights guide Z through Q. Samples are rows, and the columns of each view are standardised.
    With orthonormal W_v, A and D and rows of Z on the simplex, the method minimises::

        sum_v ||X_v - Z A^T W_v^T||^2 + tau ||X - Z' D^T||^2 + guide ||Z - Z' Q^T||^2 + shrink ||Q||^2
            + ridge guide (||Z||^2 + ||Z'||^2)

    Each block is updated by an exact step in turn, so the objective never rises. The step of Z is a projection onto the
    simplex; the published code solves a quadratic programme per sample. The paper does not print the last line, but the
    published steps of Z and Z' (coefficients ``V + 2 guide`` and ``tau + guide``) are exact only with it.
    ``ridge=1`` is the published code, ``ridge=0`` the printed objective.

    Parameters
    ----------
    n_clusters : int
        Number of clusters and of anchors, at least 2.
    guide : float, default 500
        Weight of the guidance, the paper's lambda1.
    shrink : float, default 10
        Weight of the size of Q, the paper's lambda2.
    tau : float, default 1e-3
        Weight of the concatenated views.
    ridge : float, default 1
        Weight of the sizes of Z and Z', in units of `guide`; non-negative.
    n_iterations : int, default 20
        Number of rounds over the blocks; the default is the published number.
    n_init : int, default 10
        Number of k-means starts.
    random_state : int or numpy.random.Generator, optional
        Seed of k-means and of the samples used as initial anchors. The published code uses the first rows, so its
        result depends on the order of the samples.

    Attributes
    ----------
    labels_ : array of int64, shape (n,)
    embedding_ : array of shape (n, n_clusters)
        Left singular vectors of ``weights_``, with rows of length 1.
    weights_ : array of shape (n, n_clusters)
        Z: non-negative weights of each sample on the anchors, with sum 1.
    objective_ : array of shape (n_iterations,)
        The objective after each round.

    References
    ----------
    .. [1] Z. Chen, X.-J. Wu, T. Xu, J. Kittler, "Fast Self-Guided Multi-View Subspace Clustering", IEEE Transactions
       on Image Processing 32, 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from multicentre_papers.baselines import FSMSC
    >>> rng = np.random.default_rng(0)
    >>> centres = np.repeat([[0.0, 0.0, 0.0], [9.0, 9.0, 0.0]], 10, axis=0)
    >>> views = {view: centres + rng.normal(size=(20, 3)) for view in ("a", "b")}
    >>> FSMSC(2, random_state=0).fit_predict(views).tolist() == [0] * 10 + [1] * 10
    True
    """

    embedding_: Floats
    weights_: Floats
    objective_: Floats

    parameter_ranges: ClassVar[ParameterRanges] = {
        **PooledClusterer.parameter_ranges,
        **dict.fromkeys(("guide", "shrink", "tau"), Real(0, open="low")),
        "ridge": Real(0),
        **dict.fromkeys(("n_iterations", "n_init"), Integer(1)),
    }

    def __init__(
        self,
        n_clusters: int,
        *,
        guide: float = 500.0,
        shrink: float = 10.0,
        tau: float = 1e-3,
        ridge: float = 1.0,
        n_iterations: int = 20,
        n_init: int = 10,
        random_state: int | np.random.Generator | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.guide = guide
        self.shrink = shrink
        self.tau = tau
        self.ridge = ridge
        self.n_iterations = n_iterations
        self.n_init = n_init
        self.random_state = random_state

    def _fit(self, views: Views) -> None:
        standardised = [standardise(X) for X in views.values()]
        problem = Problem(
            tuple(rotated_coordinates(X, self.n_clusters) for X in standardised),
            rotated_coordinates(np.hstack(standardised), self.n_clusters),
            guide=self.guide,
            shrink=self.shrink,
            tau=self.tau,
            ridge=self.ridge,
        )
        anchors = np.random.default_rng(self.random_state).permutation(len(problem.joint))[: self.n_clusters]
        state = start_from(anchors, problem)
        values = []
        for _ in range(self.n_iterations):
            state = improve(state, problem)
            values.append(objective(state, problem))
        self.objective_ = np.array(values)
        self.weights_ = state.Z
        self.embedding_ = unit_length_rows(linalg.svd(state.Z, full_matrices=False)[0])
        self.labels_ = partition_rows(
            self.embedding_, self.n_clusters, n_init=self.n_init, random_state=self.random_state
        )


@dataclass(frozen=True)
class Problem:
    """Standardised views of shape (n, d_v), concatenated views of shape (n, d), and weights of the terms."""

    views: tuple[Floats, ...]
    joint: Floats
    guide: float
    shrink: float
    tau: float
    ridge: float


@dataclass(frozen=True)
class State:
    """Current value of every block, for m anchors.

    Parameters
    ----------
    Z, J : array of shape (n, m)
        Weights on the shared anchors and on those of the concatenated views.
    A : array of shape (m, m)
        Anchors of all views.
    W : tuple of arrays of shape (d_v, m)
        Each view's map of the anchors.
    D : array of shape (d, m)
        Anchors of the concatenated views.
    Q : array of shape (m, m)
        Map of Z' to Z.
    """

    Z: Floats
    J: Floats
    A: Floats
    W: tuple[Floats, ...]
    D: Floats
    Q: Floats


def rotated_coordinates(X: Floats, m: int) -> Floats:
    """Return rows with the same inner products as those of X (n, d), in at most n and at least m coordinates.

    Every step is invariant to a rotation of a view and cheaper in fewer coordinates. A view with fewer than m columns
    is padded with columns of 0, so that its map of m anchors can be orthonormal.

    Examples
    --------
    >>> import numpy as np
    >>> X = np.arange(6.0).reshape(2, 3)
    >>> Y = rotated_coordinates(X, 2)
    >>> Y.shape, bool(np.allclose(Y @ Y.T, X @ X.T)), rotated_coordinates(X, 4).shape
    ((2, 2), True, (2, 4))
    """
    n, d = X.shape
    rotated = X if d <= n else linalg.qr(X.T, mode="r")[0][:n].T
    return np.ascontiguousarray(np.pad(rotated, ((0, 0), (0, max(0, m - rotated.shape[1])))))


def start_from(anchors: Labels, problem: Problem) -> State:
    """Return the initial state: each anchor is the sample with the index in `anchors` (m,); other weights are 0."""
    m = len(anchors)
    Z = np.zeros((len(problem.joint), m))
    Z[anchors, np.arange(m)] = 1.0
    maps = tuple(np.eye(X.shape[1], m) for X in problem.views)
    return State(Z, Z.copy(), np.eye(m), maps, np.eye(problem.joint.shape[1], m), np.zeros((m, m)))


def improve(state: State, problem: Problem) -> State:
    """Return the state after one exact step per block: W, A, D, Q, Z' and Z."""
    W = tuple(nearest_orthonormal(X.T @ state.Z @ state.A.T) for X in problem.views)
    A = nearest_orthonormal(np.sum([V.T @ (X.T @ state.Z) for X, V in zip(problem.views, W, strict=True)], axis=0))
    D = nearest_orthonormal(problem.joint.T @ state.J)
    state = replace(state, W=W, A=A, D=D, Q=fit_guide(state, problem))
    state = replace(state, J=fit_joint_weights(state, problem))
    return replace(state, Z=fit_weights(state, problem))


def fit_guide(state: State, problem: Problem) -> Floats:
    """Return Q, the ridge regression of Z on Z'."""
    J, guide = state.J, problem.guide
    hessian = guide * J.T @ J + problem.shrink * np.eye(J.shape[1])
    return cast("Floats", linalg.solve(hessian, guide * J.T @ state.Z, assume_a="pos").T)


def fit_joint_weights(state: State, problem: Problem) -> Floats:
    """Return Z', the unconstrained minimiser given D, Q and Z."""
    Q, guide = state.Q, problem.guide
    hessian = guide * Q.T @ Q + (problem.tau + problem.ridge * guide) * np.eye(Q.shape[1])
    target = problem.tau * problem.joint @ state.D + guide * state.Z @ Q
    return cast("Floats", linalg.solve(hessian, target.T, assume_a="pos").T)


def fit_weights(state: State, problem: Problem) -> Floats:
    """Return Z, each row's minimiser on the simplex; a projection, because the Hessian is a multiple of 1."""
    pulls = [X @ V for X, V in zip(problem.views, state.W, strict=True)]
    target = np.sum(pulls, axis=0) @ state.A + problem.guide * state.J @ state.Q.T
    return cast("Floats", project_rows(target / (len(problem.views) + (1.0 + problem.ridge) * problem.guide)))


def objective(state: State, problem: Problem) -> float:
    """Return the objective of `FSMSC`."""
    shared = state.Z @ state.A.T
    value = sum(_square(X - shared @ V.T) for X, V in zip(problem.views, state.W, strict=True))
    value += problem.tau * _square(problem.joint - state.J @ state.D.T)
    value += problem.guide * _square(state.Z - state.J @ state.Q.T) + problem.shrink * _square(state.Q)
    return value + problem.ridge * problem.guide * (_square(state.Z) + _square(state.J))


def _square(M: Floats) -> float:
    return float(np.vdot(M, M))
