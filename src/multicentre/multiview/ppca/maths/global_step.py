"""The coordinator's step of the global law around which the sites' parameters are drawn.

The objective is that of :mod:`~multicentre.multiview.ppca.maths.hierarchy`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from multicentre.multiview.ppca.maths.model import Booleans, Floats, LatentLaw, Layout, Parameters, absorb_law
from multicentre.multiview.ppca.maths.prior import TYPICAL_PATIENTS, Prior, PriorSums, assemble_prior

# First variance of loadings and means between sites, as a share of the view's mean squared loading and mean modelled
# variance. Only the first rounds depend on it.
FIRST_SHARE = 0.01
# Least share of the plain mean in a step of the centre: without it the step is singular in directions without data.
MIN_SHARE = 1e-8
# Factor by which a variance between sites may change in one step: beyond it, the step's expansion is not valid.
MAX_CHANGE = 10.0


def first_prior(
    shared: Parameters,
    layout: Layout,
    several: Booleans | None = None,
    intercept_variance: Floats | None = None,
) -> Prior:
    """Return the prior with which the hierarchical rounds start around the shared fit.

    Parameters
    ----------
    shared : Parameters
    layout : Layout
    several : mask of shape (k,), optional
        Views that at least two sites have; the prior of the others is flat. All views by default.
    intercept_variance : array of shape (d,), optional
        Variance of the sites' intercepts in the shared fit, from which that of the means starts if it is larger.
    """
    sizes = np.asarray(layout.sizes, dtype=np.float64)
    square = np.add.reduceat((shared.loadings**2).sum(axis=1), layout.starts) / sizes
    noise = np.add.reduceat(shared.noise, layout.starts) / sizes
    proper = np.ones(layout.n_views, dtype=bool) if several is None else several
    offsets = 0.0 if intercept_variance is None else np.add.reduceat(intercept_variance, layout.starts) / sizes
    constant = bool((shared.noise == shared.noise[layout.starts][layout.view_of]).all())
    return Prior(
        shared.loadings,
        shared.mean,
        np.where(proper, FIRST_SHARE * np.maximum(square / shared.n_components, noise), np.inf),
        np.where(proper, np.maximum(FIRST_SHARE * (square + noise), offsets), np.inf),
        np.where(proper, 1.0, -1.0),
        np.where(proper, noise, 0.0),
        shared.noise[layout.starts] if constant else shared.noise,
    )


def regauge_prior(prior: Prior, layout: Layout, gauge: LatentLaw) -> Prior:
    """Return the prior for latents in units of `gauge`, the average case mix.

    The variance of the loadings stays the same in all directions: the average of those in the new units.
    """
    centre = absorb_law(prior.centre(layout), gauge)
    scale = float(np.trace(gauge.covariance)) / len(gauge.mean)
    return replace(prior, loadings=centre.loadings, mean=centre.mean, loadings_variance=scale * prior.loadings_variance)


def step_prior(
    sums: PriorSums,
    previous: Prior,
    layout: Layout,
    *,
    centre_variance: Floats,
    reml: bool,
    plain: bool,
) -> Prior:
    """Raise the objective of :mod:`~multicentre.multiview.ppca.maths.hierarchy` over the global law.

    Parameters
    ----------
    sums : PriorSums
        Over sites.
    previous : Prior
        As broadcast.
    layout : Layout
    centre_variance : array of shape (k,)
        Variance of the prior, about zero, of the global loadings; infinite for none.
    reml : bool
        Integrate the centre out in the step of the variances.
    plain : bool
        Do a step of EM, which never lowers the objective. Otherwise the centre is the generalised least-squares
        mean, in which sites count by their precision, and the variances take a step of Fisher scoring. These reach
        variances of zero in a few rounds, which EM approaches only sublinearly.

    Returns
    -------
    Prior
    """
    q = previous.loadings.shape[1]
    sizes, step = np.asarray(layout.sizes, dtype=np.float64), np.zeros((layout.n_features, q + 1))
    variances = np.stack([previous.loadings_variance, previous.mean_variance])
    moved, centre = np.column_stack([sums.loadings, sums.mean]), np.column_stack([previous.loadings, previous.mean])
    for k in map(int, np.flatnonzero(sums.sites > 0.5)):
        columns = layout.columns(layout.names[k])
        if not np.isfinite(previous.mean_variance[k]):
            step[columns] = moved[columns] / sums.sites[k]
            continue
        D, ridge, information = _view_information(sums, previous, centre_variance, k)
        score = moved[columns] * D - centre[columns] * ridge
        damped = np.diag(sums.sites[k] * D + ridge)
        curvature = damped if plain else information + MIN_SHARE * damped
        step[columns] = np.linalg.solve(curvature, score.T).T
        squares = np.array(
            [sums.loadings_square[k] + sums.loadings_spread[k], sums.mean_square[k] + sums.mean_spread[k]]
        )
        if plain:
            change = sums.sites[k] * step[columns] ** 2 - 2.0 * step[columns] * moved[columns]
            squares += [change[:, :q].sum(), change[:, q].sum()]
        variances[:, k] = _step_variances(sums, variances[:, k], squares, sizes[k], k, information, reml, plain)
    return assemble_prior(sums, previous, layout, step, variances)


def log_prior_of_centre(sums: PriorSums, prior: Prior, layout: Layout, *, centre_variance: Floats, reml: bool) -> float:
    """Return the log prior density of the global loadings; with `reml`, and of integrating the centre out."""
    value = 0.0
    for k in map(int, np.flatnonzero((sums.sites > 0.5) & np.isfinite(prior.mean_variance))):
        columns = layout.columns(layout.names[k])
        value -= 0.5 * float(np.square(prior.loadings[columns]).sum()) / centre_variance[k]
        if reml:
            _, _, information = _view_information(sums, prior, centre_variance, k)
            value -= 0.5 * layout.sizes[k] * float(np.linalg.slogdet(information)[1])
    return value


def _view_information(sums: PriorSums, prior: Prior, centre_variance: Floats, k: int) -> tuple[Floats, Floats, Floats]:
    """Return prior precisions of a site's and of the global [w_j, mu_j], and the information on the latter."""
    q = prior.loadings.shape[1]
    D = np.append(np.full(q, 1.0 / prior.loadings_variance[k]), 1.0 / prior.mean_variance[k])
    ridge = np.append(np.full(q, 1.0 / centre_variance[k]), 0.0)
    information = sums.weight[k] * D
    return D, ridge, 0.5 * (information + information.T) + np.diag(ridge)


def _step_variances(
    sums: PriorSums,
    variances: Floats,
    squares: Floats,
    size: float,
    k: int,
    information: Floats,
    reml: bool,
    plain: bool,
) -> Floats:
    """Return the variances of loadings and means of a view after a step of EM or of Fisher scoring, shape (2,)."""
    q = len(information) - 1
    D = np.append(np.full(q, 1.0 / variances[0]), 1.0 / variances[1])
    counts = sums.sites[k] * size * np.array([q, 1.0])
    slope = squares - counts * variances
    weights = (sums.weight_loadings[k], sums.weight_mean[k])
    if reml:
        for i in range(2):
            curved = weights[i] * D / variances[i]
            slope[i] += variances[i] ** 2 * size * float(np.trace(np.linalg.solve(information, curved)))
    if plain:
        return np.asarray(np.maximum(variances + slope / counts, variances / MAX_CHANGE))
    decided = size * np.array([np.trace(weights[0][:q, :q]), weights[1][q, q]])
    if reml:
        decided *= 1.0 - 1.0 / np.maximum(sums.sites[k], 2.0)
    stepped = variances + slope / np.maximum(decided, 1e-6 * counts)
    return np.asarray(np.clip(stepped, variances / MAX_CHANGE, variances * MAX_CHANGE))


_VARIANCES = ("loadings_variance", "mean_variance", "noise_shape", "noise_scale", "noise")


def pack_prior(prior: Prior) -> Floats:
    """Write a global law as a vector without constraints: logarithms of positive numbers, and 0 for flat laws."""
    values = np.concatenate([getattr(prior, name) for name in _VARIANCES])
    proper = np.isfinite(values) & (values > 0)
    return np.concatenate([prior.loadings.ravel(), prior.mean, np.log(np.where(proper, values, 1.0))])


def unpack_prior(vector: Floats, like: Prior) -> Prior:
    """Read a global law with the flat laws of another one."""
    d, q = like.loadings.shape
    lengths = [len(getattr(like, name)) for name in _VARIANCES]
    loadings, mean, *logarithms = np.split(vector, np.cumsum([d * q, d, *lengths])[:-1])
    variances = {}
    for name, logarithm in zip(_VARIANCES, logarithms, strict=True):
        old = getattr(like, name)
        variances[name] = np.where(np.isfinite(old) & (old > 0), np.exp(logarithm), old)
    return Prior(loadings=loadings.reshape(d, q), mean=mean, **variances)


def weigh_logarithm(variance: Floats, error: Floats) -> Floats:
    """Return weights of the logarithms of variances between sites, whose estimates at a site have the variance `error`.

    The logarithm of a variance that tends to zero changes in every round, and the data do not show it.

    Examples
    --------
    >>> weigh_logarithm(np.array([1.0, 1e-9]), np.array([0.01, 0.01])).round(3).tolist()
    [0.7, 0.0]
    """
    return np.asarray(np.sqrt(0.5) * variance / (variance + error))


def weigh_prior(prior: Prior, layout: Layout) -> Floats:
    """Return weights of residuals: centres in units of their spread at a typical site, and logarithms of variances."""
    q, of, sizes = prior.loadings.shape[1], layout.view_of, np.sqrt(np.asarray(layout.sizes, dtype=np.float64))
    error = prior.centre(layout).noise / TYPICAL_PATIENTS
    error_of_view = np.add.reduceat(error, layout.starts) / np.asarray(layout.sizes)
    weights, logarithms = [], []
    for variance in (prior.loadings_variance, prior.mean_variance):
        proper = np.isfinite(variance)
        finite = np.where(proper, variance, 1.0)
        weights.append(np.where(proper[of], 1.0 / np.sqrt(finite[of] + error), 0.0))
        logarithms.append(weigh_logarithm(finite, error_of_view) * sizes)
    logarithms[0] *= np.sqrt(q)
    return np.concatenate([np.repeat(weights[0], q), weights[1], *logarithms, sizes, sizes, np.zeros(len(prior.noise))])
