"""Automatic relevance determination: one precision a view and axis, so that axes no view needs switch off.

The sums are those of the shared-loadings algorithm, so that the whole step is the coordinator's: per feature
A_j = sum t_j <[x; 1]> and Ba_j = sum <[x; 1][x; 1]^T>. Where a view's features share one Ba, repeat it with
``second[layout.view_of]``.

References
----------
Bishop (1999), Bayesian PCA; Klami, Virtanen and Kaski (2015), Group factor analysis;
Argelaguet et al. (2018), Multi-Omics Factor Analysis.
"""

from __future__ import annotations

import numpy as np

from multicentre.multiview.ppca.maths.gauge import explained_by_model
from multicentre.multiview.ppca.maths.model import Booleans, Floats, Layout, Parameters

# An axis whose precision passes this explains nothing; higher would only lose digits.
LARGEST_PRECISION = 1e12


def update_loadings(
    cross: Floats, second: Floats, noise: Floats, precisions: Floats, layout: Layout
) -> tuple[Floats, Floats]:
    """Solve for loadings and means under the precisions; say how uncertain each view's loadings remain.

    ``[W, mu]_j = A_j C_j^-1`` with ``C_j = Ba_j + s_j diag(alpha_k(j), 0)``.

    Parameters
    ----------
    cross : array of shape (d, q + 1)
        ``A``, added over sites.
    second : array of shape (d, q + 1, q + 1)
        ``Ba``, added over sites.
    noise : array of shape (d,)
        Current noise variances.
    precisions : array of shape (k, q)
        ``alpha``; 0 leaves an axis free.
    layout : Layout
        The views.

    Returns
    -------
    loadings_and_mean : array of shape (d, q + 1)
    spread : array of shape (k, q, q)
        Posterior covariance of a loading, summed over the features of the view.
    """
    q = precisions.shape[1]
    ridge = np.zeros((len(cross), q + 1))
    ridge[:, :q] = noise[:, None] * precisions[layout.view_of]
    scale = 1 / np.sqrt(np.diagonal(second, axis1=1, axis2=2) + ridge)
    scaled = second * scale[:, :, None] * scale[:, None, :] + (ridge * scale**2)[:, :, None] * np.eye(q + 1)
    lower = np.linalg.cholesky(scaled)
    roots = np.linalg.solve(lower, np.broadcast_to(np.eye(q + 1), lower.shape)) * scale[:, None, :]
    covariance = roots.transpose(0, 2, 1) @ roots
    F = np.einsum("da,dab->db", cross, covariance)
    spread = np.add.reduceat(noise[:, None, None] * covariance[:, :q, :q], layout.starts, axis=0)
    return F, spread


def update_precisions(loadings: Floats, spread: Floats, layout: Layout) -> Floats:
    """Precision of every view and axis: ``d_k / (||w_kj||^2 + posterior variance of w_kj)``, shape (k, q).

    `loadings`, shape (d, q), and `spread`, shape (k, q, q), in the same axes: after a map T of the latent
    space, W T and T^T spread T.

    Examples
    --------
    >>> layout = Layout(("mri",), (2,))
    >>> update_precisions(np.array([[1.0, 0.0], [1.0, 0.0]]), np.zeros((1, 2, 2)), layout).tolist()
    [[1.0, 1000000000000.0]]
    """
    power = np.add.reduceat(np.square(loadings), layout.starts, axis=0)
    power += np.diagonal(spread, axis1=1, axis2=2)
    sizes = np.asarray(layout.sizes, dtype=np.float64)[:, None]
    return np.asarray(sizes / np.maximum(power, sizes / LARGEST_PRECISION))


def active_axes(parameters: Parameters, layout: Layout, *, least_share: float = 1e-3) -> Booleans:
    """Which axes explain at least `least_share` of a view's variance under the model, shape (k, q).

    An axis that no view needs is off everywhere: ``active_axes(...).any(axis=0)`` keeps the others.

    Examples
    --------
    >>> law = Parameters(np.array([[1.0, 0.0], [1.0, 1e-6]]), np.zeros(2), np.ones(2))
    >>> active_axes(law, Layout(("mri",), (2,))).tolist()
    [[True, False]]
    """
    return explained_by_model(parameters, layout) >= least_share


def keep_axes(parameters: Parameters, axes: Booleans) -> Parameters:
    """Return the law with only the chosen `axes`, a mask of shape (q,)."""
    return Parameters(parameters.loadings[:, axes], parameters.mean, parameters.noise)
