"""Automatic relevance determination: one precision per view and axis, so that axes no view needs switch off.

The whole step is the coordinator's and takes the sums of the shared-loadings algorithm; the sites only change the gauge
of their latent laws, as they do without it. Precisions act along axes, and the likelihood does not choose axes, so each
round also turns them to where the precisions weigh most. Turning to principal axes only would determine the number of
axes, but not the views that each belongs to.

References
----------
Bishop (1999), Bayesian PCA; Virtanen, Klami, Khan and Kaski (2012), Bayesian group factor analysis;
Klami, Virtanen and Kaski (2015), Group factor analysis;
Argelaguet et al. (2018), Multi-Omics Factor Analysis.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from multicentre.core.tie_breaking import first_least
from multicentre.multiview.ppca.maths.gauge import (
    canonical_rotation,
    explained_by_model,
    rotate_parameters,
    sort_axes,
)
from multicentre.multiview.ppca.maths.invariant import SharedSums, average_law
from multicentre.multiview.ppca.maths.model import (
    Booleans,
    Floats,
    LatentLaw,
    Layout,
    NoiseModel,
    Parameters,
    absorb_law,
    square_root,
)
from multicentre.multiview.ppca.maths.prior import Prior
from multicentre.multiview.ppca.maths.rows import estimate_noise

# An axis whose precision passes this explains nothing; higher would only lose digits.
MAX_PRECISION = 1e12
# Angles tried in a plane, as shares of the search width; no turn at all is among them.
GRID = np.linspace(-1.0, 1.0, 33)


@dataclass(frozen=True)
class RelevanceRound:
    """State of the coordinator after a round with relevance determination.

    Parameters
    ----------
    parameters : Parameters
        In the axes that let most pairs of view and axis switch off, sorted by variance explained.
    precisions : array of shape (k, q)
        For the next round; zeros before the first.
    gauge : LatentLaw
        The average case mix that was absorbed.
    turn : array of shape (q, q)
        The rotation that followed.
    """

    parameters: Parameters
    precisions: Floats
    gauge: LatentLaw
    turn: Floats


def maximise_relevant(
    sums: SharedSums, previous: Parameters, precisions: Floats, layout: Layout, *, noise: NoiseModel = "isotropic"
) -> RelevanceRound:
    """Do the coordinator's part of one round: loadings under the precisions, noise, gauge, axes, precisions.

    Parameters
    ----------
    sums : SharedSums
        Over sites, about the mean of `previous`.
    previous : Parameters
        As broadcast. Features that no site has keep their values.
    precisions : array of shape (k, q)
        Of the last round; zeros in the first.
    layout : Layout
        The views.
    noise : {"isotropic", "diagonal"}, default "isotropic"
        One noise variance per view, or one per feature.
    """
    if len(sums.second) != layout.n_features:
        sums = replace(sums, second=sums.second[layout.view_of])
    observed = sums.second[:, -1, -1] > 0
    solved, spread = update_loadings(sums.cross, sums.second, previous.noise, precisions, layout)
    model = np.einsum("da,dab->db", solved, sums.second)
    residual_squares = sums.squares + (solved * (model - 2 * sums.cross)).sum(axis=1)
    variance = estimate_noise(residual_squares, sums, Prior.flat(previous, layout), layout, noise)
    fitted = Parameters(
        np.where(observed[:, None], solved[:, :-1], previous.loadings),
        previous.mean + solved[:, -1],
        np.where(observed, variance, previous.noise),
    )
    gauge = average_law(sums)
    fitted = absorb_law(fitted, gauge)
    root = square_root(gauge.covariance)
    spread = root @ spread @ root
    turn = sparsest_rotation(fitted, spread, layout)
    fitted = rotate_parameters(fitted, turn)
    renewed = update_precisions(fitted.loadings, turn.T @ spread @ turn, layout)
    return RelevanceRound(fitted, renewed, gauge, turn)


def update_loadings(
    cross: Floats, second: Floats, noise: Floats, precisions: Floats, layout: Layout
) -> tuple[Floats, Floats]:
    """Solve for loadings and means under the precisions, with the posterior covariance of each view's loadings.

    ``[W, dmu]_j = A_j C_j^-1`` with ``C_j = Ba_j + s_j diag(alpha_k(j), 0)``.

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
    loadings_and_shift : array of shape (d, q + 1)
        ``[W, dmu]``; the new mean is the old one plus ``dmu``.
    spread : array of shape (k, q, q)
        Posterior covariance of a loading, summed over the features of the view.
    """
    q = precisions.shape[1]
    observed = second[:, -1, -1] > 0
    second = np.where(observed[:, None, None], second, np.eye(q + 1))
    ridge = np.zeros((len(cross), q + 1))
    ridge[:, :q] = noise[:, None] * precisions[layout.view_of]
    scale = 1 / np.sqrt(np.diagonal(second, axis1=1, axis2=2) + ridge)
    scaled = second * scale[:, :, None] * scale[:, None, :] + (ridge * scale**2)[:, :, None] * np.eye(q + 1)
    roots = np.linalg.inv(np.linalg.cholesky(scaled)) * scale[:, None, :]
    covariance = roots.transpose(0, 2, 1) @ roots
    F = np.einsum("da,dab->db", cross, covariance)
    spread = np.add.reduceat(noise[:, None, None] * covariance[:, :q, :q], layout.starts, axis=0)
    return F, spread


def sparsest_rotation(parameters: Parameters, spread: Floats, layout: Layout, *, n_sweeps: int = 3) -> Floats:
    """Turn the latent axes to where the precisions weigh most, shape (q, q).

    With every precision at its best the prior falls with ``sum_k d_k sum_j ln p_kj``, ``p_kj`` the expected squared
    length of axis j in view k: the rotation lowers it plane by plane, from the better of the present axes and the
    principal ones. Axes come out sorted by variance explained, the loading largest in size positive.

    Parameters
    ----------
    parameters : Parameters
        For a standard latent law on average.
    spread : array of shape (k, q, q)
        Posterior covariance of a loading, summed over the features of the view.
    layout : Layout
        The views.
    n_sweeps : int, default 3
        Times that every plane is turned.
    """
    W, sizes = parameters.loadings, np.asarray(layout.sizes, dtype=np.float64)
    power = np.stack([each.T @ each for each in layout.split(W).values()]) + spread
    starts = [np.eye(W.shape[1]), canonical_rotation(parameters)]
    turn = starts[int(first_least([_description_length(start.T @ power @ start, sizes) for start in starts]))]
    power = turn.T @ power @ turn
    for _ in range(n_sweeps):
        for i, j in combinations(range(W.shape[1]), 2):
            plane = _best_plane_rotation(power[:, [i, j]][:, :, [i, j]], sizes)
            turn[:, [i, j]] = turn[:, [i, j]] @ plane
            power[:, :, [i, j]] = power[:, :, [i, j]] @ plane
            power[:, [i, j]] = plane.T @ power[:, [i, j]]
    return sort_axes(W, turn)


def _description_length(power: Floats, sizes: Floats) -> float:
    lengths = np.diagonal(power, axis1=1, axis2=2)
    return float(sizes @ np.log(np.maximum(lengths, 1 / MAX_PRECISION)).sum(axis=1))


def _best_plane_rotation(power: Floats, sizes: Floats) -> Floats:
    """Rotation of two axes, shape (2, 2), from their squares and products in every view, shape (k, 2, 2)."""
    mean, half = (power[:, 0, 0] + power[:, 1, 1]) / 2, (power[:, 0, 0] - power[:, 1, 1]) / 2
    best, width = 0.0, np.pi / 4
    for _ in range(3):
        angles = best + width * GRID
        swing = np.outer(np.cos(2 * angles), half) + np.outer(np.sin(2 * angles), power[:, 0, 1])
        lengths = np.maximum(np.stack([mean + swing, mean - swing]), 1 / MAX_PRECISION)
        best = float(angles[np.argmin(np.log(lengths).sum(axis=0) @ sizes)])
        width /= 16
    return np.array([[np.cos(best), -np.sin(best)], [np.sin(best), np.cos(best)]])


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
    return np.asarray(sizes / np.maximum(power, sizes / MAX_PRECISION))


def active_axes(parameters: Parameters, layout: Layout, *, least_share: float = 1e-3) -> Booleans:
    """Return a mask of the axes that explain at least `least_share` of a view's variance under the model, shape (k, q).

    An axis that no view needs is off everywhere: ``active_axes(...).any(axis=0)`` keeps the others.

    Examples
    --------
    >>> law = Parameters(np.array([[1.0, 0.0], [1.0, 1e-6]]), np.zeros(2), np.ones(2))
    >>> active_axes(law, Layout(("mri",), (2,))).tolist()
    [[True, False]]
    """
    return explained_by_model(parameters, layout) >= least_share
