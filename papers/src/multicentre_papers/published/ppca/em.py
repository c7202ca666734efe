"""Local fit of one centre: EM without a prior, penalised EM with one (Balelli et al. 2021, Algorithm 1).

Every iteration maximises over the mean with the latents integrated out, then over the loadings and the noise given
the latents (ECME, Liu and Rubin 1994), then over right multiplication of the loadings by a q x q matrix. With the last
step tens of iterations suffice: the steps of plain EM within the column space of the loadings are proportional to the
noise. Without a prior it is PX-EM (Liu, Rubin and Wu 1998).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri
from scipy.special import gammaln

from multicentre.multiview.ppca.maths.model import LOG_TWO_PI, Floats, Layout, NoiseModel, Parameters, invert_positive
from multicentre.multiview.ppca.maths.moments import PatternMoments
from multicentre.multiview.ppca.maths.prior import LocalFit, PosteriorSpread, Prior
from multicentre_papers.published.ppca.expectation import PartSums, expect_part
from multicentre_papers.published.ppca.mixing import maximise_mixing
from multicentre_papers.published.ppca.problem import Problem, pose_problem


@dataclass(frozen=True)
class _SiteSums:
    """Sums of the parts on the site's features; ``latent`` has one (q, q) matrix for all views, or one per view."""

    parts: list[PartSums]
    cross: Floats
    latent: Floats
    latent_total: Floats
    squares: Floats
    log_likelihood: float
    n: int


def fit_local(
    patterns: list[PatternMoments],
    layout: Layout,
    start: Parameters,
    prior: Prior | None = None,
    *,
    n_iterations: int = 15,
    noise: NoiseModel = "isotropic",
    accelerate: bool = True,
    tolerance: float = 1e-7,
) -> LocalFit:
    """Fit one centre's loadings, mean and noise by maximum likelihood, or maximum a posteriori given the prior.

    Parameters
    ----------
    patterns : list of PatternMoments
        From :func:`~multicentre.multiview.ppca.maths.moments.reduce_rows`.
    layout : Layout
        Views and their columns.
    start : Parameters
        Starting values of the whole layout.
    prior : Prior, optional
        Views with a flat prior are fitted by maximum likelihood; without a prior, all views are. The mode is that of
        the noise variances, not of their logarithms.
    n_iterations : int, default 15
        Maximum number of iterations.
    noise : {"isotropic", "diagonal"}, default "isotropic"
        One noise variance per view, or one per feature.
    accelerate : bool, default True
        Maximise over the mean with the latents integrated out, and do the step over q x q matrices. Otherwise the
        iterations are the paper's: each M-step uses the posterior moments of the last E-step.
    tolerance : float, default 1e-7
        Stop when an iteration increases the objective by less than this, in nats.

    Returns
    -------
    LocalFit
        The objective never decreases except by rounding.

    Examples
    --------
    >>> import numpy as np
    >>> from multicentre.multiview.ppca.maths.moments import reduce_rows
    >>> layout = Layout(("blood",), (3,))
    >>> rows = np.outer(np.linspace(-1, 1, 50), [1.0, 2.0, 3.0]) + np.random.default_rng(0).normal(size=(50, 3))
    >>> start = Parameters(np.ones((3, 1)), np.zeros(3), np.ones(3))
    >>> fit = fit_local(reduce_rows(rows, layout), layout, start)
    >>> bool(np.all(np.diff(fit.objective) > -1e-9))
    True
    """
    problem, frame = pose_problem(patterns, layout, start, prior, noise)
    current = problem.start
    objective: list[float] = []
    mean_is_final = problem.target.is_flat and len(problem.parts) == 1
    if mean_is_final:
        current = Parameters(current.loadings, problem.parts[0].moments.mean, current.noise)
    for _ in range(n_iterations):
        if not mean_is_final:
            current = _maximise_mean(problem, current) if accelerate else _maximise_mean_given_latents(problem, current)
        sums = _expect(problem, current)
        objective.append(_objective(problem, current, sums))
        if len(objective) > 1 and objective[-1] - objective[-2] < tolerance:
            break
        current = _maximise_loadings_and_noise(problem, current, sums, accelerate)
    sums = _expect(problem, current)
    objective.append(_objective(problem, current, sums))
    spread = _spread_on_layout(_posterior_spread(problem, current, sums), frame.views)
    parameters = frame.expand(current, start, layout)
    return LocalFit(parameters, frame.views, np.array(objective), spread)


def _expect(problem: Problem, current: Parameters) -> _SiteSums:
    """E-step over all parts."""
    if len(problem.parts) == 1:
        moments = problem.parts[0].moments
        one = expect_part(moments, current.loadings, current.mean, current.noise)
        log_likelihood = -0.5 * (one.mahalanobis + _volume(problem, current.noise))
        return _SiteSums([one], one.cross, one.latent[None], one.latent, one.squares, log_likelihood, moments.n)
    d, q = current.loadings.shape
    cross, squares = np.zeros((d, q)), np.zeros(d)
    latent = np.zeros((len(problem.n_view), q, q))
    part_sums, n, mahalanobis = [], 0, 0.0
    for part in problem.parts:
        features = part.features
        sums = expect_part(part.moments, current.loadings[features], current.mean[features], current.noise[features])
        cross[features] += sums.cross
        squares[features] += sums.squares
        latent[part.views] += sums.latent
        n, mahalanobis = n + part.moments.n, mahalanobis + sums.mahalanobis
        part_sums.append(sums)
    total = np.sum([sums.latent for sums in part_sums], axis=0)
    log_likelihood = -0.5 * (mahalanobis + _volume(problem, current.noise))
    return _SiteSums(part_sums, cross, latent, total, squares, log_likelihood, n)


def _volume(problem: Problem, noise: Floats) -> float:
    groups = problem.noise
    each = problem.n_view[groups.view] * groups.sizes
    return float(each @ (LOG_TWO_PI + np.log(noise[groups.starts])))


def _objective(problem: Problem, current: Parameters, sums: _SiteSums) -> float:
    """Return the log posterior density with the normalising constants of the proper priors."""
    target, value = problem.target, sums.log_likelihood
    if not target.is_flat:
        entries = problem.views.sizes * current.n_components
        square = problem.views.total(((current.loadings - target.loadings) ** 2).sum(axis=1))
        value += _log_normal(square, entries, target.loadings_precision)
        square = problem.views.total((current.mean - target.mean) ** 2)
        value += _log_normal(square, problem.views.sizes, target.mean_precision)
    proper = target.noise_shape > 0
    if proper.any():
        view = problem.noise.view
        shape, scale = target.noise_shape[view], target.noise_scale[view]
        s, is_proper = current.noise[problem.noise.starts], proper[view]
        shape, scale, s = shape[is_proper], scale[is_proper], s[is_proper]
        value += float(np.sum(shape * np.log(scale) - gammaln(shape) - (shape + 1) * np.log(s) - scale / s))
    return value


def _log_normal(square: Floats, count: Floats, precision: Floats) -> float:
    proper = precision > 0
    v = precision[proper]
    return float(0.5 * np.sum(count[proper] * (np.log(v) - LOG_TWO_PI) - v * square[proper]))


def _mean_precision_factors(problem: Problem, current: Parameters) -> tuple[Floats, Floats, Floats]:
    """Return 1/a, U and ``C^-1 - U' U/a``, for the posterior precision ``diag(a) - U C U'`` of the mean."""
    q = current.n_components
    views = problem.views
    diagonal = views.spread(problem.target.mean_precision) + views.spread(problem.n_view) / current.noise
    wide = np.zeros((len(diagonal), q * len(problem.parts)))
    core = np.zeros((wide.shape[1], wide.shape[1]))
    for i, part in enumerate(problem.parts):
        block, loadings = slice(i * q, (i + 1) * q), current.loadings[part.features]
        wide[part.features, block] = loadings / current.noise[part.features, None]
        core[block, block] = (np.eye(q) + loadings.T @ wide[part.features, block]) / part.moments.n
    return 1.0 / diagonal, wide, core - wide.T @ (wide / diagonal[:, None])


def _maximise_mean(problem: Problem, current: Parameters) -> Parameters:
    """Maximise the objective over the mean of all views, with the latents integrated out."""
    target, score = problem.target, np.zeros(len(current.mean))
    for part in problem.parts:
        features = part.features
        loadings, noise = current.loadings[features], current.noise[features]
        weighted_residual = (part.moments.mean - current.mean[features]) / noise
        information = loadings.T @ (loadings / noise[:, None])
        covariance, _ = invert_positive(information + np.eye(len(information)))
        score[features] += part.moments.n * (
            weighted_residual - loadings @ (covariance @ (weighted_residual @ loadings)) / noise
        )
    score += problem.views.spread(target.mean_precision) * (target.mean - current.mean)
    inverse, wide, core = _mean_precision_factors(problem, current)
    step = inverse * score
    step += inverse * (wide @ (invert_positive(core)[0] @ (step @ wide)))
    return Parameters(current.loadings, current.mean + step, current.noise)


def _maximise_mean_given_latents(problem: Problem, current: Parameters) -> Parameters:
    """Maximise over the mean given the moments of the E-step; the step is small where the noise is small."""
    numerator, denominator = np.zeros(len(current.mean)), np.zeros(len(current.mean))
    for part, one in zip(problem.parts, _expect(problem, current).parts, strict=True):
        features, n = part.features, part.moments.n
        numerator[features] += (n * part.moments.mean - current.loadings[features] @ one.latent_sum) / current.noise[
            features
        ]
        denominator[features] += n / current.noise[features]
    precision = problem.views.spread(problem.target.mean_precision)
    mean = (numerator + precision * problem.target.mean) / (denominator + precision)
    return Parameters(current.loadings, mean, current.noise)


def _maximise_loadings_and_noise(
    problem: Problem, current: Parameters, sums: _SiteSums, accelerate: bool
) -> Parameters:
    target = problem.target
    flat = not target.loadings_precision.any()
    if accelerate and flat and len(problem.parts) == 1:
        return _expanded_step(problem, current, sums)
    if accelerate and not flat:
        counts = [part.moments.n for part in problem.parts]
        mixing = maximise_mixing(
            [(n, one.information, one.signal) for n, one in zip(counts, sums.parts, strict=True)],
            current.loadings,
            target.loadings,
            problem.views.spread(target.loadings_precision),
        )
        if mixing is not None:
            current = Parameters(current.loadings @ mixing, current.mean, current.noise)
            sums = _expect(problem, current)
    loadings = _solve_loadings(problem, current, sums)
    noise = _solve_noise(problem, loadings, sums)
    if accelerate and flat:
        loadings = loadings @ np.linalg.cholesky(sums.latent_total / sums.n)
    return Parameters(loadings, current.mean, noise)


def _expanded_step(problem: Problem, current: Parameters, sums: _SiteSums) -> Parameters:
    """Do a PX-EM step with one triangular solve: with B = n L L', the new loadings times L are A L'^-1 / n."""
    root, _ = dpotrf(sums.latent_total * sums.n, lower=1, clean=1)
    inverse, _ = dtrtri(root, lower=1)
    loadings = sums.cross @ inverse.T
    residual_squares = problem.noise.total(sums.squares - sums.n * np.einsum("dq,dq->d", loadings, loadings))
    return Parameters(loadings, current.mean, _pool_noise(problem, residual_squares))


def _solve_loadings(problem: Problem, current: Parameters, sums: _SiteSums) -> Floats:
    """Return ``(A + rho W~)(B + rho I)^-1`` with rho = s / v, via the eigenvectors of B."""
    ridge = (current.noise * problem.views.spread(problem.target.loadings_precision))[:, None]
    right = sums.cross + ridge * problem.target.loadings
    values, vectors = np.linalg.eigh(sums.latent)
    if len(values) == 1:
        return np.asarray((right @ vectors[0] / (values[0] + ridge)) @ vectors[0].T)
    loadings = np.empty_like(right)
    for k, (start, width) in enumerate(zip(problem.views.starts, problem.views.widths, strict=True)):
        features = slice(start, start + width)
        loadings[features] = (right[features] @ vectors[k] / (values[k] + ridge[features])) @ vectors[k].T
    return loadings


def _solve_noise(problem: Problem, loadings: Floats, sums: _SiteSums) -> Floats:
    if len(sums.latent) == 1:
        model = loadings @ sums.latent[0]
    else:
        widths = problem.views.widths
        cuts = np.split(loadings, np.cumsum(widths)[:-1])
        model = np.concatenate([w @ b for w, b in zip(cuts, sums.latent, strict=True)])
    residual_squares = sums.squares + np.einsum("dq,dq->d", loadings, model - 2.0 * sums.cross)
    return _pool_noise(problem, problem.noise.total(residual_squares))


def _pool_noise(problem: Problem, residual_squares: Floats) -> Floats:
    groups, target = problem.noise, problem.target
    numerator = residual_squares + 2.0 * target.noise_scale[groups.view]
    denominator = problem.n_view[groups.view] * groups.sizes + 2.0 * (target.noise_shape[groups.view] + 1.0)
    return groups.spread(np.maximum(numerator / denominator, problem.floor))


def _posterior_spread(problem: Problem, current: Parameters, sums: _SiteSums) -> PosteriorSpread:
    """Return posterior variances of loadings given the latents' moments, and of the mean, latents integrated out."""
    views, target = problem.views, problem.target
    q, k = current.n_components, len(views.starts)
    values, vectors = np.linalg.eigh(sums.latent)
    values = np.broadcast_to(values, (k, q))
    groups = problem.noise
    precision = target.loadings_precision[groups.view][:, None]
    variance = 1.0 / (values[groups.view] / current.noise[groups.starts][:, None] + precision)
    free = 1.0 - variance * precision
    by_group = groups.sizes[:, None] * np.stack([variance, free**2])
    loadings, information = (np.bincount(groups.view, each).astype(np.float64) for each in by_group.sum(axis=2))
    mean, mean_information = _mean_spread(problem, current)
    share = np.zeros((k, q))
    np.add.at(share, groups.view, groups.sizes[:, None] * free / views.sizes[groups.view][:, None])
    weight = np.zeros((k, q + 1, q + 1))
    weight[:, :q, :q] = (vectors * share[:, None, :]) @ vectors.transpose(0, 2, 1)
    weight[:, q, q] = 1.0 - target.mean_precision * mean / views.sizes
    return PosteriorSpread(loadings, mean, information, mean_information, weight)


def _mean_spread(problem: Problem, current: Parameters) -> tuple[Floats, Floats]:
    views = problem.views
    precision = problem.target.mean_precision
    inverse, wide, core = _mean_precision_factors(problem, current)
    half = np.linalg.solve(np.linalg.cholesky(core), (wide * inverse[:, None]).T).T
    free = 1.0 - views.spread(precision) * inverse
    squares = np.einsum("dq,dq->d", half, half)
    variance = views.total(inverse + squares)
    information = views.total(free**2 - 2.0 * views.spread(precision) * free * squares)
    for k, (start, width) in enumerate(zip(views.starts, views.widths, strict=True)):
        block = half[start : start + width]
        information[k] += precision[k] ** 2 * float(((block.T @ block) ** 2).sum())
    n_hidden = views.sizes - views.widths
    hidden_variance = inverse[views.starts]
    variance += n_hidden * hidden_variance
    information += n_hidden * free[views.starts] ** 2
    return variance, information


def _spread_on_layout(spread: PosteriorSpread, views: np.ndarray) -> PosteriorSpread:
    def place(values: Floats) -> Floats:
        out = np.zeros((len(views), *values.shape[1:]))
        out[views] = values
        return out

    each = (spread.loadings, spread.mean, spread.loadings_information, spread.mean_information, spread.weight)
    return PosteriorSpread(*(place(values) for values in each))


def random_start(layout: Layout, n_components: int, variances: Floats, rng: np.random.Generator) -> Parameters:
    """Draw starting values common to all sites: Gaussian loadings in units of each view's standard deviation.

    Parameters
    ----------
    layout : Layout
        Views and their columns.
    n_components : int
        Number of latent dimensions.
    variances : array of shape (k,)
        Typical variance of a feature, per view.
    rng : numpy Generator
        Same seed at each site, or one draw at the coordinator.
    """
    variance = np.asarray(variances, dtype=np.float64)[layout.view_of]
    draws = rng.normal(size=(layout.n_features, n_components))
    return Parameters(draws * np.sqrt(variance / n_components)[:, None], np.zeros(layout.n_features), variance)
