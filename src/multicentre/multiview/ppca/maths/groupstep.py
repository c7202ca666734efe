"""Step of the penalised fit over right multiplication of the loadings, W -> W T.

It needs q x q matrices only. Alignment of the latent axes with those of the prior is a special case.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

import numpy as np
from scipy.optimize import minimize

from multicentre.core.tie_breaking import first_least
from multicentre.multiview.ppca.maths.expectation import invert_positive
from multicentre.multiview.ppca.maths.invariant import SharedSums, solve_blocks
from multicentre.multiview.ppca.maths.model import Booleans, Floats, Integers, LatentLaw, Layout, Parameters, absorb_law
from multicentre.multiview.ppca.maths.prior import LocalFit, PosteriorSpread, Prior
from multicentre.multiview.ppca.maths.problem import NOISE_FLOOR, NoiseModel

# Expected gain in nats below which the search is skipped. A larger value saves time and ends further from the optimum.
LEAST_GAIN = 1e-7


def maximise_mixing(
    parts: list[tuple[int, Floats, Floats]],
    loadings: Floats,
    target: Floats,
    precision: Floats,
    *,
    n_steps: int = 20,
) -> Floats | None:
    """Return the mixing ``T`` that raises the objective at ``W T``, or None if the expected gain is negligible.

    Parameters
    ----------
    parts : list of (n, H, G)
        Per pattern: number of rows, ``W' Psi^-1 W`` and ``P' S_mu P``, both of shape (q, q).
    loadings, target : arrays of shape (d, q)
        Loadings of the site and of the prior.
    precision : array of shape (d,)
        Prior precision of the loadings of each feature.
    n_steps : int, default 20
        Maximum number of quasi-Newton iterations.
    """
    q = loadings.shape[1]
    weighted = loadings * precision[:, None]
    prior_curvature, prior_cross = loadings.T @ weighted, weighted.T @ target
    identity = np.eye(q)

    def value(flat: Floats) -> tuple[float, Floats]:
        mixing = flat.reshape(q, q)
        curved = prior_curvature @ mixing
        loss = float(mixing.ravel() @ (0.5 * curved - prior_cross).ravel())
        slope = curved - prior_cross
        for n, information, signal in parts:
            through = information @ mixing
            inverse, log_determinant = invert_positive(identity + mixing.T @ through)
            mixed = signal @ mixing
            gain = inverse @ (mixing.T @ mixed)
            loss += 0.5 * (n * log_determinant - float(gain.trace()))
            slope += (n * through - mixed + through @ gain) @ inverse
        return loss, slope.ravel()

    loss_at_identity, slope = value(identity.ravel())
    if (
        _expected_gain(slope.reshape(q, q), sum(part[0] for part in parts), float(prior_curvature.trace()) / q)
        < LEAST_GAIN
    ):
        return None
    starts = identity, _guess(parts, prior_cross)
    start = starts[int(first_least([value(mixing.ravel())[0] for mixing in starts]))]
    result = minimize(value, start.ravel(), jac=True, method="L-BFGS-B", options={"maxiter": n_steps, "ftol": 1e-12})
    return result.x.reshape(q, q) if result.fun < loss_at_identity else None


def _expected_gain(slope: Floats, n: int, prior_curvature: float) -> float:
    """Approximate the gain of a Newton step: the likelihood has curvature 0 along rotations and n along stretches."""
    turn, stretch = slope - slope.T, slope + slope.T
    return 0.125 * (float((turn**2).sum()) / prior_curvature + float((stretch**2).sum()) / (n + prior_curvature))


def _guess(parts: list[tuple[int, Floats, Floats]], prior_cross: Floats) -> Floats:
    """Return the step of parameter-expanded EM, rotated towards the prior."""
    latent = np.zeros_like(prior_cross)
    for n, information, signal in parts:
        covariance, _ = invert_positive(np.eye(len(prior_cross)) + information)
        latent += n * covariance + covariance @ signal @ covariance
    values, vectors = np.linalg.eigh(latent / sum(part[0] for part in parts))
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    left, _, right = np.linalg.svd(root.T @ prior_cross)
    return np.asarray(root @ left @ right)


class Answer(Protocol):
    """E-step of a site: returns sums, and the latent law after `n_repetitions` updates."""

    def __call__(self, shared: Parameters, law: LatentLaw, *, n_repetitions: int) -> tuple[SharedSums, LatentLaw]:
        """Return the sums and the law."""


def first_prior(shared: Parameters, layout: Layout, *, share: float = 0.01) -> Prior:
    """Return the prior with which the hierarchical rounds start around the shared fit.

    Parameters
    ----------
    shared : Parameters
    layout : Layout
    share : float, default 0.01
        Between-site variance of loadings and means, as a share of the view's mean squared loading and mean
        modelled variance.
    """
    sizes = np.asarray(layout.sizes, dtype=np.float64)
    square = np.add.reduceat((shared.loadings**2).sum(axis=1), layout.starts) / sizes
    noise = np.add.reduceat(shared.noise, layout.starts) / sizes
    shape = np.ones(layout.n_views)
    return Prior(
        shared.loadings,
        shared.mean,
        share * np.maximum(square / shared.n_components, noise),
        share * (square + noise),
        shape,
        shape * noise,
        shared.noise[layout.starts] if _is_isotropic(shared, layout) else shared.noise,
    )


def fit_around(
    answer: Answer,
    features: Booleans,
    layout: Layout,
    start: Parameters,
    law: LatentLaw,
    prior: Prior,
    *,
    n_iterations: int = 5,
    noise: NoiseModel = "isotropic",
) -> tuple[LocalFit, LatentLaw, SharedSums]:
    """Fit one site's parameters and latent law given the prior.

    Each iteration is an EM step for ``[W, mu]`` jointly, ``F = (A + F~ diag(rho)) (Ba + diag(rho))^-1`` with
    rho = s (1/v_W, .., 1/v_mu), for the noise and for the latent law. The latent axes and origin, and the latent law
    with them, are then moved to the optimum of the prior, which does not change the likelihood.

    Parameters
    ----------
    answer : callable
        The site's E-step.
    features : mask of shape (d,)
        Features that the site's rows hold.
    layout : Layout
    start : Parameters
        Current parameters of the site, of the whole layout; the prior's centre for a site that joins.
    law : LatentLaw
        Current latent law of the site; the standard one for a site that joins.
    prior : Prior
        As broadcast.
    n_iterations : int, default 5
    noise : {"isotropic", "diagonal"}, default "isotropic"

    Returns
    -------
    fit : LocalFit
        Its objective is the log posterior density up to the prior's normalising constants.
    law : LatentLaw
    sums : SharedSums
        The site's sums at its new parameters; the coordinator reads its latents and log-likelihood.
    """
    views = np.logical_or.reduceat(features, layout.starts)
    current, objective = start, []
    for _ in range(n_iterations):
        sums, law = answer(current, law, n_repetitions=1)
        objective.append(sums.log_likelihood + _log_prior(current, prior, layout, views, noise))
        current = _maximise_around(sums, current, prior, layout, views[layout.view_of], noise)
        current, law = _align_with_prior(current, law, prior, layout, features)
    sums, _ = answer(current, law, n_repetitions=0)
    objective.append(sums.log_likelihood + _log_prior(current, prior, layout, views, noise))
    spread = _spread_around(sums, current, prior, layout, views)
    return LocalFit(current, views, np.array(objective), spread), law, sums


def regauge_prior(prior: Prior, layout: Layout, gauge: LatentLaw) -> Prior:
    """Return the prior for latents in units of `gauge`, the average case mix."""
    centre = absorb_law(prior.centre(layout), gauge)
    return replace(prior, loadings=centre.loadings, mean=centre.mean)


def _ridges(prior: Prior, q: int) -> Floats:
    """Prior precisions of ``[w_j, mu_j]``, shape (k, q + 1)."""
    columns = np.repeat(1.0 / prior.loadings_variance[:, None], q + 1, axis=1)
    columns[:, q] = 1.0 / prior.mean_variance
    return columns


def _posterior_precision(sums: SharedSums, current: Parameters, prior: Prior, layout: Layout) -> Floats:
    """``Ba + diag(rho)`` per view when the noise is constant within views, else per feature."""
    ridges = _ridges(prior, current.n_components)
    diagonal = np.eye(ridges.shape[1])
    if _is_isotropic(current, layout) and len(sums.second) == layout.n_views:
        return sums.second + (current.noise[layout.starts, None] * ridges)[:, :, None] * diagonal
    of = layout.view_of
    return sums.second[_matrix_of(sums, layout)] + (current.noise[:, None] * ridges[of])[:, :, None] * diagonal


def _matrix_of(sums: SharedSums, layout: Layout) -> Integers:
    """Return the index of the matrix of ``sums.second`` of each feature, shape (d,)."""
    return layout.view_of if len(sums.second) == layout.n_views else np.arange(layout.n_features)


def _is_isotropic(current: Parameters, layout: Layout) -> bool:
    return bool((current.noise == current.noise[layout.starts][layout.view_of]).all())


def _maximise_around(
    sums: SharedSums, current: Parameters, prior: Prior, layout: Layout, features: Booleans, noise: NoiseModel
) -> Parameters:
    view_of = layout.view_of
    precision = _posterior_precision(sums, current, prior, layout)
    rho = current.noise[:, None] * _ridges(prior, current.n_components)[view_of]
    target = np.column_stack([prior.loadings, prior.mean - current.mean])
    group_of = view_of if len(precision) == layout.n_views else np.arange(layout.n_features)
    solved = solve_blocks(sums.cross + rho * target, precision, group_of, features)
    second = sums.second[_matrix_of(sums, layout)]
    model = np.einsum("da,dab->db", solved, second)
    residual_squares = sums.squares + np.einsum("dq,dq->d", solved, model - 2.0 * sums.cross)
    numerator, denominator = residual_squares + 0.0, second[:, -1, -1]
    squares = sums.squares / np.maximum(denominator, 1.0)
    sizes = np.asarray(layout.sizes)
    floor = NOISE_FLOOR * np.maximum(np.add.reduceat(squares, layout.starts) / sizes, 1e-300)
    if noise == "isotropic":
        numerator, denominator = (
            np.add.reduceat(values, layout.starts)[view_of] for values in (numerator, denominator)
        )
    variance = (numerator + 2.0 * prior.noise_scale[view_of]) / np.maximum(
        denominator + 2.0 * (prior.noise_shape[view_of] + 1.0), 1e-300
    )
    return Parameters(
        np.where(features[:, None], solved[:, :-1], current.loadings),
        current.mean + np.where(features, solved[:, -1], 0.0),
        np.where(features, np.maximum(variance, floor[view_of]), current.noise),
    )


def _align_with_prior(
    current: Parameters, law: LatentLaw, prior: Prior, layout: Layout, features: Booleans
) -> tuple[Parameters, LatentLaw]:
    """Move the latent axes and origin to the prior's optimum at the same likelihood (two least-squares problems)."""
    ridges = _ridges(prior, current.n_components)[layout.view_of][features]
    loadings = current.loadings[features]
    weighted = loadings * ridges[:, :1]
    if not weighted.any():
        return current, law
    mixing = np.linalg.lstsq(loadings.T @ weighted, weighted.T @ prior.loadings[features], rcond=None)[0]
    if np.linalg.cond(mixing) > 1e3:
        return current, law
    precise_loadings = loadings * ridges[:, -1:]
    difference = prior.mean[features] - current.mean[features]
    shift = np.linalg.lstsq(loadings.T @ precise_loadings, precise_loadings.T @ difference, rcond=None)[0]
    covariance = np.linalg.solve(mixing, np.linalg.solve(mixing, law.covariance).T)
    moved = LatentLaw(np.linalg.solve(mixing, law.mean - shift), 0.5 * (covariance + covariance.T))
    on_features = features[:, None]
    return (
        Parameters(
            np.where(on_features, current.loadings @ mixing, current.loadings),
            np.where(features, current.mean + current.loadings @ shift, current.mean),
            current.noise,
        ),
        moved,
    )


def _spread_around(
    sums: SharedSums, current: Parameters, prior: Prior, layout: Layout, views: Booleans
) -> PosteriorSpread:
    """Posterior variances of ``[w_j, mu_j]`` given the latents' moments: s_j (Ba + diag(rho))^-1, summed by view."""
    q, of = current.n_components, layout.view_of
    precision = _posterior_precision(sums, current, prior, layout)
    isotropic = len(precision) == layout.n_views
    precision[~views if isotropic else ~views[of]] = np.eye(q + 1)
    noise = current.noise[layout.starts] if isotropic else current.noise
    covariance = noise[:, None, None] * np.linalg.inv(precision)
    ridges = _ridges(prior, q) if isotropic else _ridges(prior, q)[of]
    free = np.eye(q) - covariance[:, :q, :q] * ridges[:, :1, None]
    terms = np.stack(
        [
            np.trace(covariance[:, :q, :q], axis1=1, axis2=2),
            covariance[:, q, q],
            (free**2).sum(axis=(1, 2)),
            (1.0 - covariance[:, q, q] * ridges[:, q]) ** 2,
        ]
    )
    weight = np.eye(q + 1) - ridges[:, :, None] * covariance
    if not isotropic:
        weight = np.add.reduceat(weight, layout.starts, axis=0) / np.asarray(layout.sizes)[:, None, None]
    by_view = terms * np.asarray(layout.sizes) if isotropic else np.add.reduceat(terms, layout.starts, axis=1)
    loadings, mean, loadings_information, mean_information = by_view * views
    return PosteriorSpread(loadings, mean, loadings_information, mean_information, weight * views[:, None, None])


def _log_prior(current: Parameters, prior: Prior, layout: Layout, views: Booleans, noise: NoiseModel) -> float:
    ridges = _ridges(prior, current.n_components)
    loadings_square = np.add.reduceat(((current.loadings - prior.loadings) ** 2).sum(axis=1), layout.starts)
    mean_square = np.add.reduceat((current.mean - prior.mean) ** 2, layout.starts)
    each = (prior.noise_shape[layout.view_of] + 1.0) * np.log(current.noise)
    each += prior.noise_scale[layout.view_of] / current.noise
    variances = each[layout.starts] if noise == "isotropic" else np.add.reduceat(each, layout.starts)
    terms = 0.5 * (loadings_square * ridges[:, 0] + mean_square * ridges[:, -1]) + variances
    return -float(terms[views].sum())
