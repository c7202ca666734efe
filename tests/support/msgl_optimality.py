"""How far codes of FedMSGL are from the best ones: objective by sample, and a bound on its excess."""

import numpy as np


def measure_objective(factor, codes, weights):
    """Return, sample by sample, 1/2 ||x_j - X z_j||^2 + 1/2 sum_i w_ij z_ij^2."""
    z = codes.astype(np.float64)
    residual = z @ factor.vectors - factor.vectors
    return 0.5 * (residual**2 @ factor.values) + 0.5 * np.sum(weights * z**2, axis=1)


def derive_cost(C, a, pull, G):
    """Return the derivative of the coupled penalty in Z at the best split."""
    return (a + pull) * C.astype(np.float64) - pull * G


def measure_gap(factor, codes, marginal):
    """Return, sample by sample, a bound on how far its objective lies above the least possible.

    With the gradient g = K (z_j - e_j) + marginal cost it is <g, z_j> - min_{i != j} g_i. A number as marginal cost
    stands for that number times the codes.
    """
    z = codes.astype(np.float64)
    gradient = ((z @ factor.vectors - factor.vectors) * factor.values) @ factor.vectors.T
    gradient += marginal * z if isinstance(marginal, float) else marginal
    gap = np.einsum("ij,ij->i", gradient, z)
    np.fill_diagonal(gradient, np.inf)
    return gap - gradient.min(axis=1)
