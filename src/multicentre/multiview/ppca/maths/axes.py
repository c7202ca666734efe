"""New axes for the latent space, x = origin + axes x': the law of the rows stays, its letters change."""

from __future__ import annotations

import numpy as np

from multicentre.multiview.ppca.maths.model import Floats, LatentLaw, Parameters


def absorb_axes(parameters: Parameters, origin: Floats, axes: Floats) -> Parameters:
    """Return the parameters for latents in the new axes.

    Parameters
    ----------
    parameters : Parameters
    origin : array of shape (q,)
    axes : array of shape (q, q), invertible

    Examples
    --------
    >>> old = Parameters(np.array([[2.0]]), np.array([1.0]), np.ones(1))
    >>> new = absorb_axes(old, np.array([3.0]), np.array([[0.5]]))
    >>> new.loadings.tolist(), new.mean.tolist()
    ([[1.0]], [7.0])
    """
    loadings = parameters.loadings
    return Parameters(loadings @ axes, parameters.mean + loadings @ origin, parameters.noise)


def change_axes(law: LatentLaw, origin: Floats, axes: Floats) -> LatentLaw:
    """Return a site's latent law for latents in the new axes."""
    covariance = np.linalg.solve(axes, np.linalg.solve(axes, law.covariance).T)
    mean = np.asarray(np.linalg.solve(axes, law.mean - origin), dtype=np.float64)
    return LatentLaw(mean, 0.5 * (covariance + covariance.T))


def square_root(covariance: Floats) -> Floats:
    """Return the symmetric square root of a positive semi-definite matrix, shape (q, q)."""
    values, vectors = np.linalg.eigh(0.5 * (covariance + covariance.T))
    return np.asarray((vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T)


def absorb_law(parameters: Parameters, law: LatentLaw) -> Parameters:
    """Return the same law of rows with a standard latent law: W Phi^(1/2) and mu + W m."""
    return absorb_axes(parameters, law.mean, square_root(law.covariance))
