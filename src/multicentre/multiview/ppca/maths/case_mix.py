"""Maximum likelihood of a site's case mix, given the parameters that all sites share.

EM approaches variances of zero only sublinearly: where the latents explain offsets between sites, the patients of a
site hardly differ along them. For rows with the same views the maximum has a closed form (Tipping and Bishop 1999, with
the roles of loadings and latents exchanged).
"""

from __future__ import annotations

import numpy as np

from multicentre.multiview.ppca.maths.model import Floats, LatentLaw

# Least variance of the latents, in units of their error at one patient. Below it the likelihood of the patients of a
# site does not change, and at 0 the covariance could not be inverted.
MIN_VARIANCE = 1e-4
# Least information of the rows on a direction of the latents, relative to that on others: without it the maximum is
# not unique.
MIN_INFORMATION = 1e-6


def maximise_law(information: Floats, projection: Floats, signal: Floats) -> LatentLaw | None:
    """Return the mean and covariance of the latents at which the likelihood of the rows is largest.

    Parameters
    ----------
    information : array of shape (q, q)
        ``W' W / s``: precision of the latents of one row.
    projection : array of shape (q,)
        ``W' (t - mu) / s``, averaged over rows.
    signal : array of shape (q, q)
        Covariance of ``W' t / s`` over rows.

    Returns
    -------
    LatentLaw or None
        None if the rows do not determine some direction.

    Examples
    --------
    >>> law = maximise_law(np.array([[2.0]]), np.array([6.0]), np.array([[10.0]]))
    >>> law.mean.round(9).tolist(), law.covariance.round(9).tolist()
    ([3.0], [[2.0]])
    """
    values, vectors = np.linalg.eigh(0.5 * (information + information.T))
    if values[0] <= MIN_INFORMATION * values[-1]:
        return None
    root = (vectors / np.sqrt(values)) @ vectors.T
    spread, axes = np.linalg.eigh(root @ (0.5 * (signal + signal.T)) @ root)
    half = root @ axes
    covariance = (half * np.maximum(spread - 1.0, MIN_VARIANCE)) @ half.T
    return LatentLaw(root @ root @ projection, 0.5 * (covariance + covariance.T))
