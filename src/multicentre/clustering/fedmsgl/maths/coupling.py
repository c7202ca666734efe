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


def derive_cost(C: Reals, a: float | Floats, pull: float, G: Reals) -> Floats:
    """Return the derivative of the coupled penalty in Z at the best split, for `measure_gap`.

    Examples
    --------
    >>> derive_cost(np.array([[0.0, 0.5]]), 10.0, 10.0, np.array([[0.0, 1.0]]))
    array([[0., 0.]])
    """
    derivative: Floats = (a + pull) * C.astype(np.float64) - pull * G
    return derivative


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


# Samples per block of the gradient, which bounds its memory.
BLOCK = 512


def measure_gap(factor: GramFactor, codes: Reals, marginal: float | Floats) -> Floats:
    """Return, sample by sample, a bound on how far its objective lies above the least possible.

    With the gradient g = K (z_j - e_j) + marginal cost it is <g, z_j> - min_{i != j} g_i, at least the suboptimality.

    Parameters
    ----------
    factor : GramFactor
        Of n samples.
    codes : array of shape (n, n)
    marginal : array of shape (n, n) or float
        Derivative of the penalty at the codes; a number w stands for w times the codes.

    Returns
    -------
    array of shape (n,)

    Examples
    --------
    >>> from multicentre.clustering.fedmsgl.maths.expression import express
    >>> from multicentre.clustering.fedmsgl.maths.preparation import factor_gram
    >>> factor = factor_gram(np.array([[1.0], [0.9], [-1.0]]))
    >>> codes = express(factor, 0.5, tol=1e-10, single=False).codes
    >>> bool(measure_gap(factor, codes, 0.5).max() < 1e-8)
    True
    """
    n = len(codes)
    gap = np.empty(n)
    for first in range(0, n, BLOCK):
        rows = slice(first, min(first + BLOCK, n))
        z = codes[rows].astype(np.float64)
        gradient = ((z @ factor.vectors - factor.vectors[rows]) * factor.values) @ factor.vectors.T
        gradient += marginal * z if isinstance(marginal, float) else marginal[rows]
        gap[rows] = np.einsum("ij,ij->i", gradient, z)
        gradient[np.arange(len(z)), np.arange(n)[rows]] = np.inf
        gap[rows] -= gradient.min(axis=1)
    return gap


def measure_objective(factor: GramFactor, codes: Reals, weights: float | Floats) -> Floats:
    """Return, sample by sample, 1/2 ||x_j - X z_j||^2 + 1/2 sum_i w_ij z_ij^2.

    Parameters
    ----------
    factor : GramFactor
    codes : array of shape (n, n)
    weights : float or array of shape (n, n)

    Examples
    --------
    >>> from multicentre.clustering.fedmsgl.maths.preparation import factor_gram
    >>> measure_objective(factor_gram(np.array([[1.0], [-1.0]])), np.array([[0.0, 1.0], [1.0, 0.0]]), 2.0)
    array([3., 3.])
    """
    z = codes.astype(np.float64)
    residual = z @ factor.vectors - factor.vectors
    objective: Floats = 0.5 * (residual**2 @ factor.values) + 0.5 * np.sum(weights * z**2, axis=1)
    return objective
