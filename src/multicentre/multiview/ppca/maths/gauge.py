"""Canonical axes of the latent space, and the variance that each axis explains.

The law of the rows does not change when W becomes W T and x becomes T^T x for an orthogonal T. T must be fixed before
factors are plotted or compared.

References
----------
Tipping and Bishop (1999), appendix A; Kaiser (1958), The varimax criterion for analytic rotation;
Argelaguet et al. (2018), Multi-Omics Factor Analysis (variance explained by view and factor).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from multicentre.core.tie_breaking import first_largest
from multicentre.multiview.ppca.maths.model import Floats, Layout, Parameters
from multicentre.multiview.ppca.maths.moments import Rows
from multicentre.multiview.ppca.maths.predict import posterior_latent

# Relative increase of the varimax criterion below which the axes no longer turn by as much as a figure shows, and the
# most iterations, which bound the time.
MIN_GAIN, MAX_ITERATIONS = 1e-10, 500


def rotate_parameters(parameters: Parameters, rotation: Floats) -> Parameters:
    """Return the same law with loadings W T, for an orthogonal `rotation` T of shape (q, q)."""
    return Parameters(parameters.loadings @ rotation, parameters.mean, parameters.noise)


def _largest_positive(loadings: Floats) -> Floats:
    strongest = first_largest(np.abs(loadings), axis=0)
    return np.where(loadings[strongest, np.arange(loadings.shape[1])] < 0, -1.0, 1.0)


def sort_axes(loadings: Floats, rotation: Floats) -> Floats:
    """Return `rotation` with its axes sorted by variance explained and signed by their largest loading."""
    explained = np.square(loadings @ rotation).sum(axis=0)
    rotation = rotation[:, np.argsort(-explained, kind="stable")]
    return np.asarray(rotation * _largest_positive(loadings @ rotation))


def canonical_rotation(parameters: Parameters) -> Floats:
    """Return the rotation to axes in which the posterior covariance of a complete row is diagonal, shape (q, q).

    Axes are sorted by the variance that they explain, ``||w_j||^2`` over all features, in decreasing order. The loading
    of the largest magnitude is positive on each axis.

    Examples
    --------
    >>> law = Parameters(np.array([[0.0, 2.0], [-1.0, 0.0], [0.0, 1.0]]), np.zeros(3), np.ones(3))
    >>> abs(canonical_rotation(law)).round(6).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    W = parameters.loadings
    information = W.T @ (W / parameters.noise[:, None])
    _, axes = np.linalg.eigh((information + information.T) / 2)
    return sort_axes(W, axes)


def varimax_rotation(loadings: Floats) -> Floats:
    """Return the rotation in which each axis has large loadings on few features (raw varimax), shape (q, q).

    The axes are not sorted, and the posterior covariance is not diagonal in them.

    Parameters
    ----------
    loadings : array of shape (d, q)
        Loadings to rotate.
    """
    d, q = loadings.shape
    rotation = np.eye(q)
    criterion = 0.0
    for _ in range(MAX_ITERATIONS):
        rotated = loadings @ rotation
        gradient = loadings.T @ (rotated**3 - rotated * np.square(rotated).sum(axis=0) / d)
        left, values, right = np.linalg.svd(gradient)
        rotation = left @ right
        if values.sum() <= criterion * (1 + MIN_GAIN):
            break
        criterion = float(values.sum())
    return np.asarray(rotation * _largest_positive(loadings @ rotation))


def explained_by_model(parameters: Parameters, layout: Layout) -> Floats:
    """Return the share of each view's variance explained by each axis under the model, shape (k, q).

    ``||w_kj||^2 / (||W_k||^2 + sum of the view's noise variances)``. The sum over axes is the share of all axes.

    Examples
    --------
    >>> law = Parameters(np.array([[1.0], [1.0], [0.0]]), np.zeros(3), np.ones(3))
    >>> explained_by_model(law, Layout(("mri", "pet"), (2, 1))).tolist()
    [[0.5], [0.0]]
    """
    power = np.add.reduceat(np.square(parameters.loadings), layout.starts, axis=0)
    noise = np.add.reduceat(parameters.noise, layout.starts)
    return np.asarray(power / (power.sum(axis=1) + noise)[:, None])


def prior_units(pull: Floats, curvature: float, loadings_curvature: Floats) -> Floats:
    """Return the scale of the latents that the priors prefer, in present units, shape (q, q).

    The likelihood does not change when loadings become W S^(1/2) and latents S^(-1/2) x. The priors decide S: that of
    the loadings prefers small ones, and that of the case mixes prefers covariances near the identity. S solves
    ``c S + S P S = c I + G``. With the number of patients as c, the step never lowers the objective. With the sum over
    sites of ``w n / (n + w)`` it is longer, and close to the optimum.

    Parameters
    ----------
    pull : array of shape (q, q)
        ``G``: sum over sites of the slopes of the priors of their case mixes.
    curvature : float
        ``c``.
    loadings_curvature : array of shape (q, q)
        ``P``: sum over views of ``W' W`` over the prior variance of a loading.

    Examples
    --------
    >>> prior_units(np.array([[10.0]]), 100.0, np.array([[10.0]])).round(3).tolist()
    [[1.0]]
    """
    values, vectors = np.linalg.eigh(curvature * np.eye(len(pull)) + 0.5 * (pull + pull.T))
    # A scale that falls to a tenth in one step is far outside the range of the approximation.
    root = (vectors * np.sqrt(np.maximum(values, 0.1 * curvature))) @ vectors.T
    values, vectors = np.linalg.eigh(root @ loadings_curvature @ root)
    inverse = 1.0 / (0.5 * curvature + np.sqrt(0.25 * curvature**2 + np.maximum(values, 0.0)))
    scale = root @ (vectors * inverse) @ vectors.T @ root
    return np.asarray(0.5 * (scale + scale.T))


@dataclass(frozen=True)
class VarianceSums:
    """Sums of squares of one site's rows before and after axes are subtracted; they add over sites.

    Parameters
    ----------
    total : array of shape (k,)
        Sum of squared deviations from mu.
    after_axis : array of shape (k, q)
        Sum of squares after the contribution of axis j only is subtracted.
    after_all : array of shape (k,)
        Sum of squares after the contributions of all axes are subtracted.
    counts : array of shape (k,)
        Number of entries in the sums.
    """

    total: Floats
    after_axis: Floats
    after_all: Floats
    counts: Floats

    def __add__(self, other: VarianceSums) -> VarianceSums:
        return VarianceSums(
            self.total + other.total,
            self.after_axis + other.after_axis,
            self.after_all + other.after_all,
            self.counts + other.counts,
        )

    @property
    def explained(self) -> Floats:
        """R2 of each view and axis, shape (k, q); negative where an axis increases the squared error of a view."""
        return np.asarray(1 - self.after_axis / self._positive_total[:, None])

    @property
    def explained_by_all(self) -> Floats:
        """R2 of each view with all axes, shape (k,)."""
        return np.asarray(1 - self.after_all / self._positive_total)

    @property
    def _positive_total(self) -> Floats:
        return np.where(self.total > 0, self.total, np.nan)


def sum_variances(X: Floats, parameters: Parameters, layout: Layout) -> VarianceSums:
    """Return one site's sums of squares for the explained variance of each view and axis.

    ``R2_kj = 1 - ||T_k - mu - x_j w_j^T||^2 / ||T_k - mu||^2`` over observed entries; x are the posterior means.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, NaN where missing.
    parameters : Parameters
        Shared parameters, in the axes to report.
    layout : Layout
        Views and their columns.
    """
    W = parameters.loadings
    rows = Rows.read(X)
    deviations = rows.deviations(parameters.mean)
    x = posterior_latent(X, parameters).mean
    total = np.square(deviations).sum(axis=0)
    observed = np.broadcast_to(rows.observed, X.shape).astype(np.float64)
    change = np.square(W) * (observed.T @ np.square(x)) - 2 * W * (deviations.T @ x)
    remainder = (deviations - x @ W.T) * rows.observed
    return VarianceSums(
        np.add.reduceat(total, layout.starts),
        np.add.reduceat(total[:, None] + change, layout.starts, axis=0),
        np.add.reduceat(np.square(remainder).sum(axis=0), layout.starts),
        np.add.reduceat(observed.sum(axis=0), layout.starts),
    )


def feature_correlations(parameters: Parameters) -> Floats:
    """Return the correlation of each feature with each axis under the model (correlation circle), shape (d, q).

    Examples
    --------
    >>> law = Parameters(np.array([[3.0], [0.0]]), np.zeros(2), np.array([16.0, 1.0]))
    >>> feature_correlations(law).tolist()
    [[0.6], [0.0]]
    """
    W = parameters.loadings
    scale = np.sqrt(np.square(W).sum(axis=1) + parameters.noise)
    return np.asarray(W / scale[:, None])
