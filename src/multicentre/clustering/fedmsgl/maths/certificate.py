"""How far codes can be from the optimum: the gap of Frank and Wolfe.

References
----------
M. Jaggi (2013), Revisiting Frank-Wolfe: projection-free sparse convex optimization, ICML.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.fedmsgl.maths.preparation import GramFactor

Floats = NDArray[np.float64]
Reals = NDArray[Any]
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
    missed = z @ factor.vectors - factor.vectors
    objective: Floats = 0.5 * (missed**2 @ factor.values) + 0.5 * np.sum(weights * z**2, axis=1)
    return objective
