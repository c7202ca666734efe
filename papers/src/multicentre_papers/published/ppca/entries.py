"""The local fit of one centre from rows with missing entries, under the standard latent law."""

from __future__ import annotations

import numpy as np

from multicentre.multiview.ppca.maths.axes import absorb_law
from multicentre.multiview.ppca.maths.entries import settle_noise, sum_entries, update_law
from multicentre.multiview.ppca.maths.invariant import SharedSums
from multicentre.multiview.ppca.maths.model import Booleans, Floats, Layout, Parameters
from multicentre.multiview.ppca.maths.prior import LocalFit, PosteriorSpread, Prior
from multicentre.multiview.ppca.maths.problem import Noise


def maximise_entries(
    sums: SharedSums, current: Parameters, prior: Prior, layout: Layout, *, noise: Noise = "isotropic"
) -> Parameters:
    """Do the M-step of one centre under the prior (equations 4 to 6); the posterior density never falls.

    ``[W, dmu]_j = (A_j + T_j diag(rho_j)) (Ba_j + diag(rho_j))^-1`` with ``T_j = [W~, mu~ - mu]_j`` and
    ``rho_j = s_j / (loadings_variance, .., mean_variance)`` of the feature's view, at the current noise. Then the
    mode of the noise, in s itself: ``(residual squares + 2 scale) / (entries + 2 (shape + 1))``.

    Parameters
    ----------
    sums : SharedSums
        Of the centre, one matrix a feature.
    current : Parameters
        Those of the E-step. Features that no row holds keep their values.
    prior : Prior
        Of the centre's parameters around the shared ones.
    layout : Layout
        The views.
    noise : {"isotropic", "diagonal"}, default "isotropic"
        One noise variance a view, or one a feature.

    Returns
    -------
    fitted : Parameters
    """
    here = sums.second[:, -1, -1] > 0
    rho = current.noise[:, None] * _prior_precisions(prior, layout)
    target = np.column_stack([prior.loadings, prior.mean - current.mean])
    precision = sums.second + rho[:, :, None] * np.eye(rho.shape[1])
    solved = np.zeros_like(rho)
    solved[here] = solve_features((sums.cross + rho * target)[here], precision[here])
    model = np.einsum("da,dab->db", solved, sums.second)
    left = sums.squares + (solved * (model - 2 * sums.cross)).sum(axis=1)
    return Parameters(
        np.where(here[:, None], solved[:, :-1], current.loadings),
        current.mean + solved[:, -1],
        np.where(here, settle_noise(left, sums, prior, layout, noise), current.noise),
    )


def fit_local_entries(
    X: Floats,
    layout: Layout,
    start: Parameters,
    prior: Prior | None = None,
    *,
    n_iterations: int = 15,
    noise: Noise = "isotropic",
) -> LocalFit:
    """Fit one centre's own parameters from rows with missing entries, under the standard latent law.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows of the whole layout, NaN where missing.
    layout : Layout
        The views.
    start : Parameters
        Of the whole layout.
    prior : Prior, optional
        Maximum a posteriori where given; otherwise maximum likelihood by PX-EM.
    n_iterations : int, default 15
        Updates.
    noise : {"isotropic", "diagonal"}, default "isotropic"
        One noise variance a view, or one a feature.

    Returns
    -------
    LocalFit
        Its objective, the log posterior density up to the prior's normalising constants, never falls but for rounding.

    Examples
    --------
    >>> rows = np.outer(np.linspace(-1, 1, 50), [1.0, 2.0, 3.0]) + np.random.default_rng(0).normal(size=(50, 3))
    >>> rows[::7, 1] = np.nan
    >>> start = Parameters(np.ones((3, 1)), np.zeros(3), np.ones(3))
    >>> fit = fit_local_entries(rows, Layout(("blood",), (3,)), start)
    >>> bool((np.diff(fit.objective) > -1e-9).all())
    True
    """
    flat = prior is None
    prior = prior or Prior.flat(start, layout)
    current, objective = start, []
    sums = sum_entries(X, current)
    here = sums.second[:, -1, -1] > 0
    for _ in range(n_iterations):
        objective.append(sums.log_likelihood + _log_prior(current, prior, layout, noise, here))
        current = maximise_entries(sums, current, prior, layout, noise=noise)
        if flat:
            own = absorb_law(current, update_law(sums.latent_first, sums.latent_second, sums.n_rows))
            current = Parameters(
                np.where(here[:, None], own.loadings, start.loadings),
                np.where(here, own.mean, start.mean),
                current.noise,
            )
        sums = sum_entries(X, current)
    objective.append(sums.log_likelihood + _log_prior(current, prior, layout, noise, here))
    views = np.logical_or.reduceat(here, layout.starts)
    return LocalFit(current, views, np.array(objective), _measure_spread(sums, current, prior, layout, here))


def _prior_precisions(prior: Prior, layout: Layout) -> Floats:
    """Prior precisions of ``[w_j, mu_j]``, shape (d, q + 1)."""
    precisions = np.repeat(1 / prior.loadings_variance[:, None], prior.loadings.shape[1] + 1, axis=1)
    precisions[:, -1] = 1 / prior.mean_variance
    return np.asarray(precisions[layout.view_of])


def _log_prior(current: Parameters, prior: Prior, layout: Layout, noise: Noise, here: Booleans) -> float:
    away = np.column_stack([current.loadings - prior.loadings, current.mean - prior.mean])
    normal = (np.square(away) * _prior_precisions(prior, layout)).sum(axis=1)[here].sum()
    of = layout.view_of
    gamma = (prior.noise_shape[of] + 1) * np.log(current.noise) + prior.noise_scale[of] / current.noise
    first = np.unique(of[here], return_index=True)[1] if noise == "isotropic" else slice(None)
    return -float(normal / 2 + gamma[here][first].sum())


def _measure_spread(
    sums: SharedSums, current: Parameters, prior: Prior, layout: Layout, here: Booleans
) -> PosteriorSpread:
    """Sum by view the variances ``s_j (Ba_j + diag(rho_j))^-1`` of ``[w_j, mu_j]`` and what the rows alone decide."""
    q = current.n_components
    ridges = _prior_precisions(prior, layout)
    precision = sums.second + (current.noise[:, None] * ridges)[:, :, None] * np.eye(q + 1)
    roots = np.linalg.inv(np.linalg.cholesky(np.where(here[:, None, None], precision, np.eye(q + 1))))
    covariance = current.noise[:, None, None] * (roots.transpose(0, 2, 1) @ roots)
    variances = np.diagonal(covariance, axis1=1, axis2=2)
    free = np.eye(q) - covariance[:, :q, :q] * ridges[:, :1, None]
    by_feature = np.stack(
        [
            variances[:, :q].sum(axis=1),
            variances[:, q],
            np.square(free).sum(axis=(1, 2)),
            np.square(1 - variances[:, q] * ridges[:, q]),
        ]
    )
    kept = (np.eye(q + 1) - ridges[:, :, None] * covariance) * here[:, None, None]
    shown = np.maximum(np.add.reduceat(here.astype(np.float64), layout.starts), 1.0)
    weight = np.add.reduceat(kept, layout.starts, axis=0) / shown[:, None, None]
    loadings, mean, information, mean_information = np.add.reduceat(by_feature * here, layout.starts, axis=1)
    return PosteriorSpread(loadings, mean, information, mean_information, weight)


def solve_features(right: Floats, precision: Floats) -> Floats:
    """Solve ``F_j C_j = right_j`` for every feature by Cholesky, shapes (d, a) and (d, a, a)."""
    roots = np.linalg.inv(np.linalg.cholesky(precision))
    half = np.einsum("dab,db->da", roots, right)
    return np.asarray(np.einsum("dab,da->db", roots, half))
