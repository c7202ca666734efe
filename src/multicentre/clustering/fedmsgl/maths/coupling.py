"""Codes with coupling to the consensus of all sites: the local terms of equation (10) of FedMSGL.

The term pull / 2 ||C - G||^2, which the paper's local step leaves out, is added to the objective of equation (4). C and
U are optimised jointly: in alternating steps their column sums would never change. For a given Z = C + U the best split
is elementwise,

    U = max(0, Z - pull G / (a + pull)) (a + pull) / (a + pull + l3),   C = Z - U,

and its cost is convex in Z, so that the solver of the uncoupled problem finds Z.

References
----------
D. Li, Z. Yang and S. Xie (2025), FedMSGL: a self-expressive hypergraph based federated multi-view learning, AAAI.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.fedmsgl.maths.expression import Effort, Penalty, alternate
from multicentre.clustering.fedmsgl.maths.preparation import GramFactor

Floats = NDArray[np.float64]

Reals = NDArray[Any]


def split_coupled(Z: Reals, a: float | Floats, lambda_3: float, pull: float, G: Reals) -> tuple[Reals, Reals]:
    """Return the consistent part C and the view-specific part U of least cost with C + U = Z.

    Parameters
    ----------
    Z : array of shape (n, n)
    a : float or array of shape (n, n)
    lambda_3 : float
    pull : float
        At least 0.
    G : array of shape (n, n)
        At least 0.

    Examples
    --------
    >>> Z, G = np.array([[0.0, 1.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [0.5, 0.0]])
    >>> split_coupled(Z, 10.0, 10.0, 10.0, G)[0].round(3)
    array([[0.   , 0.667],
           [0.5  , 0.   ]])
    """
    curvature = a + pull
    U = Z - G * (pull / curvature)
    np.maximum(U, 0.0, out=U)
    U *= curvature / (curvature + lambda_3)
    return Z - U, U


def express_coupled(
    factor: GramFactor,
    a: float | Floats,
    lambda_3: float,
    pull: float,
    G: Reals,
    start: tuple[Reals, Reals] | None = None,
    *,
    tol: float = 5e-3,
    max_iterations: int = 500,
    single: bool = True,
    block: int = 512,
) -> tuple[Reals, Reals]:
    """Return the parts C and U that minimise the local terms of equation (10), each row a sample's codes.

    Parameters
    ----------
    factor : GramFactor
        Of n >= 2 samples.
    a : float or array of shape (n, n)
        a_ij = lambda_1 + lambda_2 m_ij^2 > 0, row j for the codes of sample j.
    lambda_3 : float
        Above 0.
    pull : float
        gamma theta_k, at least 0.
    G : array of shape (n, n)
        Relations of all sites, finite and at least 0, in the layout of the codes.
    start : pair of arrays of shape (n, n), optional
        C and U of the round before.
    tol, max_iterations, single, block
        See `Effort`.

    Examples
    --------
    >>> from multicentre.clustering.fedmsgl.maths.preparation import factor_gram
    >>> factor, G = factor_gram(np.array([[1.0], [0.9], [-1.0]])), np.array([[0, 1, 0], [1, 0, 0], [1, 0, 0]])
    >>> C, U = express_coupled(factor, 1.0, 1.0, 100.0, G, tol=1e-9, single=False)
    >>> (C + U).round(3)
    array([[0.   , 1.   , 0.   ],
           [0.989, 0.   , 0.011],
           [0.988, 0.012, 0. ]])
    """
    dtype: Any = np.float32 if single else np.float64
    curvature = np.array(a, dtype=dtype, ndmin=2) + dtype(pull)
    penalty = Penalty(curvature, pull * np.asarray(G, dtype), 1.0 / lambda_3)
    effort = Effort(tol, max_iterations, single, block)
    Z = alternate(factor, penalty, effort, None if start is None else start[0] + start[1]).codes
    return split_coupled(Z, a, lambda_3, pull, np.asarray(G, dtype))


def measure_coupled_objective(
    factor: GramFactor, C: Reals, U: Reals, a: float | Floats, lambda_3: float, pull: float, G: Reals
) -> Floats:
    """Return, sample by sample, the local terms of equation (10), each halved.

    That is 1/2 ||x_j - X (c_j + u_j)||^2 + 1/2 <a_j, c_j^2> + 1/2 l3 ||u_j||^2 + pull / 2 ||c_j - g_j||^2.

    Examples
    --------
    >>> from multicentre.clustering.fedmsgl.maths.preparation import factor_gram
    >>> half = np.array([[0.0, 0.5], [0.5, 0.0]])
    >>> measure_coupled_objective(factor_gram(np.array([[1.0], [-1.0]])), half, half, 2.0, 2.0, 4.0, half)
    array([2.5, 2.5])
    """
    c, u = C.astype(np.float64), U.astype(np.float64)
    residual = (c + u) @ factor.vectors - factor.vectors
    penalty = a * c**2 + lambda_3 * u**2 + pull * (c - G) ** 2
    objective: Floats = 0.5 * (residual**2 @ factor.values) + 0.5 * penalty.sum(axis=1)
    return objective
