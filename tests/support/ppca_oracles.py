"""Optima of the pooled model without EM: the closed form for one view, the profile likelihood for several."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize

from multicentre.multiview.ppca.maths.model import Parameters


def tipping_bishop(rows, q):
    """Maximum likelihood of one view with isotropic noise (Tipping and Bishop 1999, equations 7 and 8)."""
    n = len(rows)
    mean = rows.mean(axis=0)
    values, vectors = np.linalg.eigh((rows - mean).T @ (rows - mean) / n)
    values, vectors = values[::-1], vectors[:, ::-1]
    noise = values[q:].mean()
    loadings = vectors[:, :q] * np.sqrt(values[:q] - noise)
    return Parameters(loadings, mean, np.full(rows.shape[1], noise))


def profile_optimum(rows, layout, q):
    """Maximise over one noise variance a view, the loadings profiled out by an eigendecomposition (Joreskog 1967)."""
    n, d = rows.shape
    mean = rows.mean(axis=0)
    covariance = (rows - mean).T @ (rows - mean) / n
    of = layout.view_of

    def loss(log_noise):
        noise = np.exp(log_noise)[of]
        root = np.sqrt(noise)
        values, vectors = np.linalg.eigh(covariance / np.outer(root, root))
        kept = np.maximum(values[-q:], 1.0)
        rest = values[:-q]
        value = 0.5 * n * (np.log(noise).sum() + np.log(kept).sum() + rest.sum() + (values[-q:] / kept).sum())
        # d/d log s_k: the fitted less the observed whitened variance in the directions left to noise
        leverage = (vectors[:, :-q] ** 2) * (1.0 - rest)
        slope = 0.5 * n * np.add.reduceat(leverage.sum(axis=1), layout.starts)
        return value, slope

    variances = np.add.reduceat(np.diagonal(covariance), layout.starts) / np.asarray(layout.sizes)
    best = minimize(loss, np.log(variances * 0.1), jac=True, method="BFGS", options={"gtol": 1e-7})
    best = minimize(loss, best.x, jac=True, method="BFGS", options={"gtol": 1e-9})
    noise = np.exp(best.x)[of]
    root = np.sqrt(noise)
    values, vectors = np.linalg.eigh(covariance / np.outer(root, root))
    loadings = root[:, None] * vectors[:, -q:] * np.sqrt(np.maximum(values[-q:] - 1.0, 0.0))
    return Parameters(loadings, mean, noise), -best.fun - 0.5 * n * d * np.log(2 * np.pi)
