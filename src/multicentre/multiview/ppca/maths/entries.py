"""Exact EM with entries missing anywhere (at random): sums per feature, and the local update that they feed.

With z = [x; 1] and t taken about the current mean, a site's sums for every feature j, over the rows that hold it, are

    A_j = sum t_j <z>,   Ba_j = sum <z z'>,   D_j = sum t_j^2.

They add over rows, patterns and sites. The loadings and the shift of the mean are then [W, dmu]_j = A_j Ba_j^-1:
:func:`~multicentre.multiview.ppca.maths.invariant.maximise_shared` does it for all sites, and on one site's sums under
the standard latent law it is PX-EM to the local maximum of the likelihood.

References
----------
Balelli, Silva and Lorenzi (2021), section 3.3; Tipping and Bishop (1999), Probabilistic principal component analysis;
Liu, Rubin and Wu (1998), Parameter expansion to accelerate EM: the PX-EM algorithm.
"""

from __future__ import annotations

import numpy as np

from multicentre.multiview.ppca.maths.axes import absorb_law, square_root
from multicentre.multiview.ppca.maths.invariant import SharedSums
from multicentre.multiview.ppca.maths.missing import Rows, sum_outer_grouped
from multicentre.multiview.ppca.maths.model import Booleans, Floats, LatentLaw, Layout, Parameters
from multicentre.multiview.ppca.maths.predict import project_rows
from multicentre.multiview.ppca.maths.prior import LocalFit, PosteriorSpread, Prior
from multicentre.multiview.ppca.maths.problem import NOISE_FLOOR, Noise

# Floats that the work on one chunk of rows may take, about 128 MB.
CHUNK_FLOATS = 2**24


def sum_entries(
    X: Floats, parameters: Parameters, law: LatentLaw | None = None, *, chunk_rows: int | None = None
) -> SharedSums:
    """Do the E-step over the observed entries of `X`, a chunk of rows at a time.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, NaN where an entry is missing.
    parameters : Parameters
        Current parameters, of the same features; the sums are about their mean.
    law : LatentLaw, optional
        Case mix of the rows' centre; N(0, I) by default.
    chunk_rows : int, optional
        Rows taken at once; by default as many as fit in 128 MB.

    Returns
    -------
    SharedSums
        With one matrix ``second`` a feature, shape (d, q + 1, q + 1); rows that hold feature j are
        ``second[j, -1, -1]``.

    Examples
    --------
    >>> law_of_rows = Parameters(np.ones((2, 1)), np.zeros(2), np.ones(2))
    >>> sums = sum_entries(np.array([[3.0, 3.0], [2.0, np.nan]]), law_of_rows)
    >>> sums.cross.round(9).tolist(), sums.second[:, -1, -1].tolist()
    ([[8.0, 5.0], [6.0, 3.0]], [2.0, 1.0])
    """
    d, q = parameters.loadings.shape
    at_once = chunk_rows or max(1, CHUNK_FLOATS // (4 * d + 3 * (q + 1) ** 2))
    law = law or LatentLaw.standard(q)
    total = _sum_chunk(X[:at_once], parameters, law)
    for start in range(at_once, len(X), at_once):
        total = total + _sum_chunk(X[start : start + at_once], parameters, law)
    return total


def _sum_chunk(X: Floats, parameters: Parameters, law: LatentLaw) -> SharedSums:
    d, q = parameters.loadings.shape
    rows = Rows.read(X)
    projection = project_rows(rows, absorb_law(parameters, law))
    root = square_root(law.covariance)
    z = np.hstack([law.mean + projection.mean @ root, np.ones((len(X), 1))])
    n_patterns = len(rows.patterns)
    by_pattern = sum_outer_grouped(z, rows.pattern_of, n_patterns)
    sizes = np.bincount(rows.pattern_of, minlength=n_patterns)
    by_pattern[:, :q, :q] += sizes[:, None, None] * (root @ projection.covariances @ root)
    by_pattern = (by_pattern + by_pattern.transpose(0, 2, 1)) / 2
    total = by_pattern.sum(axis=0)
    second = rows.patterns.T.astype(np.float64) @ by_pattern.reshape(n_patterns, -1)
    deviations = rows.deviations(parameters.mean)
    return SharedSums(
        cross=deviations.T @ z,
        second=second.reshape(d, q + 1, q + 1),
        squares=np.square(deviations).sum(axis=0),
        latent_first=total[:q, q],
        latent_second=total[:q, :q],
        n_rows=float(len(X)),
        log_likelihood=float(projection.log_likelihood.sum()),
    )


def update_law(latent_first: Floats, latent_second: Floats, n_rows: float) -> LatentLaw:
    """Estimate a centre's case mix from sums of <x>, shape (q,), and <x x'>, shape (q, q) (M-step of its latent law).

    Examples
    --------
    >>> law = update_law(np.array([2.0]), np.array([[6.0]]), 2)
    >>> law.mean.tolist(), law.covariance.tolist()
    ([1.0], [[2.0]])
    """
    mean = latent_first / n_rows
    covariance = latent_second / n_rows - np.outer(mean, mean)
    return LatentLaw(mean, (covariance + covariance.T) / 2)


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


def settle_noise(left: Floats, sums: SharedSums, prior: Prior, layout: Layout, noise: Noise) -> Floats:
    """Turn the squares `left` of every feature, shape (d,), into noise variances: the mode under the prior."""
    of, counts, squares = layout.view_of, sums.second[:, -1, -1], sums.squares
    if noise == "isotropic":
        left, counts, squares = (np.add.reduceat(each, layout.starts)[of] for each in (left, counts, squares))
    weight = np.maximum(counts, 1.0)
    mode = (left + 2 * prior.noise_scale[of]) / np.maximum(counts + 2 * (prior.noise_shape[of] + 1), 1.0)
    return np.maximum(mode, NOISE_FLOOR * squares / weight)
