"""Local fit of one centre from rows with missing entries, under the standard latent law."""

from __future__ import annotations

import numpy as np

from multicentre.multiview.ppca.maths.invariant import SharedSums
from multicentre.multiview.ppca.maths.model import Booleans, Floats, Layout, NoiseModel, Parameters, absorb_law
from multicentre.multiview.ppca.maths.prior import LocalFit, PosteriorSpread, Prior
from multicentre.multiview.ppca.maths.rows import estimate_noise, sum_entries, update_law


def maximise_entries(
    sums: SharedSums, current: Parameters, prior: Prior, layout: Layout, *, noise: NoiseModel = "isotropic"
) -> Parameters:
    """Do the M-step of one centre under the prior (equations 4 to 6); the posterior density never decreases.

    ``[W, dmu]_j = (A_j + T_j diag(rho_j)) (Ba_j + diag(rho_j))^-1`` with ``T_j = [W~, mu~ - mu]_j`` and
    ``rho_j = s_j / (loadings_variance, .., mean_variance)`` of the feature's view, at the current noise. The mode
    of the noise variance s is then ``(residual squares + 2 scale) / (entries + 2 (shape + 1))``.

    Parameters
    ----------
    sums : SharedSums
        Sums of the centre, with one matrix per feature.
    current : Parameters
        Parameters of the E-step. Features without an observed entry are unchanged.
    prior : Prior
        Prior of the centre's parameters around the shared ones.
    layout : Layout
        The views.
    noise : {"isotropic", "diagonal"}, default "isotropic"
        One noise variance per view, or one per feature.

    Returns
    -------
    fitted : Parameters
    """
    observed = sums.second[:, -1, -1] > 0
    rho = current.noise[:, None] * _prior_precisions(prior, layout)
    target = np.column_stack([prior.loadings, prior.mean - current.mean])
    precision = sums.second + rho[:, :, None] * np.eye(rho.shape[1])
    solved = np.zeros_like(rho)
    solved[observed] = solve_features((sums.cross + rho * target)[observed], precision[observed])
    model = np.einsum("da,dab->db", solved, sums.second)
    residual_squares = sums.squares + (solved * (model - 2 * sums.cross)).sum(axis=1)
    return Parameters(
        np.where(observed[:, None], solved[:, :-1], current.loadings),
        current.mean + solved[:, -1],
        np.where(observed, estimate_noise(residual_squares, sums, prior, layout, noise), current.noise),
    )


def fit_local_entries(
    X: Floats,
    layout: Layout,
    start: Parameters,
    prior: Prior | None = None,
    *,
    n_iterations: int = 15,
    noise: NoiseModel = "isotropic",
) -> LocalFit:
    """Fit the parameters of one centre from rows with missing entries, under the standard latent law.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows of the whole layout, NaN where missing.
    layout : Layout
        Views and their columns.
    start : Parameters
        Starting values of the whole layout.
    prior : Prior, optional
        Prior of the maximum a posteriori fit; without one, maximum likelihood by PX-EM.
    n_iterations : int, default 15
        Number of iterations.
    noise : {"isotropic", "diagonal"}, default "isotropic"
        One noise variance per view, or one per feature.

    Returns
    -------
    LocalFit
        The objective is the log posterior density up to the prior's normalising constants. It never decreases except by
        rounding.

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
    observed = sums.second[:, -1, -1] > 0
    for _ in range(n_iterations):
        objective.append(sums.log_likelihood + _log_prior(current, prior, layout, noise, observed))
        current = maximise_entries(sums, current, prior, layout, noise=noise)
        if flat:
            absorbed = absorb_law(current, update_law(sums.latent_first, sums.latent_second, sums.n_rows))
            current = Parameters(
                np.where(observed[:, None], absorbed.loadings, start.loadings),
                np.where(observed, absorbed.mean, start.mean),
                current.noise,
            )
        sums = sum_entries(X, current)
    objective.append(sums.log_likelihood + _log_prior(current, prior, layout, noise, observed))
    views = np.logical_or.reduceat(observed, layout.starts)
    return LocalFit(current, views, np.array(objective), _measure_spread(sums, current, prior, layout, observed))


def _prior_precisions(prior: Prior, layout: Layout) -> Floats:
    """Return the prior precisions of ``[w_j, mu_j]``, shape (d, q + 1)."""
    precisions = np.repeat(1 / prior.loadings_variance[:, None], prior.loadings.shape[1] + 1, axis=1)
    precisions[:, -1] = 1 / prior.mean_variance
    return np.asarray(precisions[layout.view_of])


def _log_prior(current: Parameters, prior: Prior, layout: Layout, noise: NoiseModel, observed: Booleans) -> float:
    differences = np.column_stack([current.loadings - prior.loadings, current.mean - prior.mean])
    normal = (np.square(differences) * _prior_precisions(prior, layout)).sum(axis=1)[observed].sum()
    view_of = layout.view_of
    gamma = (prior.noise_shape[view_of] + 1) * np.log(current.noise) + prior.noise_scale[view_of] / current.noise
    first = np.unique(view_of[observed], return_index=True)[1] if noise == "isotropic" else slice(None)
    return -float(normal / 2 + gamma[observed][first].sum())


def _measure_spread(
    sums: SharedSums, current: Parameters, prior: Prior, layout: Layout, observed: Booleans
) -> PosteriorSpread:
    """Sum the variances ``s_j (Ba_j + diag(rho_j))^-1`` of ``[w_j, mu_j]`` and the data's information per view."""
    q = current.n_components
    ridges = _prior_precisions(prior, layout)
    precision = sums.second + (current.noise[:, None] * ridges)[:, :, None] * np.eye(q + 1)
    roots = np.linalg.inv(np.linalg.cholesky(np.where(observed[:, None, None], precision, np.eye(q + 1))))
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
    data_share = (np.eye(q + 1) - ridges[:, :, None] * covariance) * observed[:, None, None]
    counts = np.maximum(np.add.reduceat(observed.astype(np.float64), layout.starts), 1.0)
    weight = np.add.reduceat(data_share, layout.starts, axis=0) / counts[:, None, None]
    loadings, mean, information, mean_information = np.add.reduceat(by_feature * observed, layout.starts, axis=1)
    return PosteriorSpread(loadings, mean, information, mean_information, weight)


def solve_features(right: Floats, precision: Floats) -> Floats:
    """Solve ``F_j C_j = right_j`` for each feature by Cholesky, shapes (d, a) and (d, a, a)."""
    roots = np.linalg.inv(np.linalg.cholesky(precision))
    half = np.einsum("dab,db->da", roots, right)
    return np.asarray(np.einsum("dab,da->db", roots, half))
