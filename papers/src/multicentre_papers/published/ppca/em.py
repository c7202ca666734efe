"""The local fit of one centre: EM without a prior, and the penalised EM with one (Balelli et al. 2021, Algorithm 1).

Every iteration maximises over the mean with the latents integrated out, then over the loadings and the noise given
the latents (ECME, Liu and Rubin 1994), then over right multiplication of the loadings by a q x q matrix. The last
step is what makes tens of iterations enough: plain EM moves the loadings inside their column space only by a
step in proportion to the noise. Without a prior it is PX-EM (Liu, Rubin and Wu 1998).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.linalg.lapack import dpotrf, dtrtri
from scipy.special import gammaln

from multicentre.multiview.ppca.maths.expectation import LOG_TWO_PI, PartSums, expect_part, invert_positive
from multicentre.multiview.ppca.maths.groupstep import maximise_mixing
from multicentre.multiview.ppca.maths.model import Floats, Layout, Parameters
from multicentre.multiview.ppca.maths.moments import PatternMoments
from multicentre.multiview.ppca.maths.prior import LocalFit, PosteriorSpread, Prior
from multicentre.multiview.ppca.maths.problem import Noise, Problem, pose_problem


@dataclass(frozen=True)
class _SiteSums:
    """The parts' sums on the site's features; ``latent`` has one (q, q) matrix for all views, or one a view."""

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
    noise: Noise = "isotropic",
    accelerate: bool = True,
    tolerance: float = 1e-7,
) -> LocalFit:
    """Fit one centre's loadings, mean and noise by maximum likelihood, or maximum a posteriori given the prior.

    Parameters
    ----------
    patterns : list of PatternMoments
        From :func:`~multicentre.multiview.ppca.maths.moments.reduce_rows`.
    layout : Layout
    start : Parameters
        Of the whole layout.
    prior : Prior, optional
        Views whose prior is flat are fitted by maximum likelihood, and so are all when there is none.
        The mode is that of the noise variances themselves, not of their logarithms.
    n_iterations : int, default 15
    noise : {"isotropic", "diagonal"}, default "isotropic"
        One noise variance a view, or one a feature.
    accelerate : bool, default True
        Maximise over the mean with the latents integrated out, and take the step over q x q matrices. Without it the
        iterations are the paper's: every M-step takes the latents as the E-step left them.
    tolerance : float, default 1e-7
        Stop once an iteration raises the objective by less, in nats.

    Returns
    -------
    LocalFit
        Its objective never falls but for rounding.

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
    settled = problem.target.is_flat and len(problem.parts) == 1
    if settled:
        current = Parameters(current.loadings, problem.parts[0].moments.mean, current.noise)
    for _ in range(n_iterations):
        if not settled:
            current = _maximise_mean(problem, current) if accelerate else _move_mean(problem, current)
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
    done, n, mahalanobis = [], 0, 0.0
    for part in problem.parts:
        own = part.features
        sums = expect_part(part.moments, current.loadings[own], current.mean[own], current.noise[own])
        cross[own] += sums.cross
        squares[own] += sums.squares
        latent[part.views] += sums.latent
        n, mahalanobis = n + part.moments.n, mahalanobis + sums.mahalanobis
        done.append(sums)
    total = np.sum([sums.latent for sums in done], axis=0)
    log_likelihood = -0.5 * (mahalanobis + _volume(problem, current.noise))
    return _SiteSums(done, cross, latent, total, squares, log_likelihood, n)


def _volume(problem: Problem, noise: Floats) -> float:
    groups = problem.noise
    each = problem.n_view[groups.view] * groups.sizes
    return float(each @ (LOG_TWO_PI + np.log(noise[groups.starts])))


def _objective(problem: Problem, current: Parameters, sums: _SiteSums) -> float:
    """Log posterior density with the normalising constants of the proper priors (1.5 ``J``)."""
    target, value = problem.target, sums.log_likelihood
    if not target.is_flat:
        entries = problem.views.sizes * current.n_components
        away = problem.views.total(((current.loadings - target.loadings) ** 2).sum(axis=1))
        value += _log_normal(away, entries, target.loadings_precision)
        away = problem.views.total((current.mean - target.mean) ** 2)
        value += _log_normal(away, problem.views.sizes, target.mean_precision)
    proper = target.noise_shape > 0
    if proper.any():
        view = problem.noise.view
        shape, scale = target.noise_shape[view], target.noise_scale[view]
        s, own = current.noise[problem.noise.starts], proper[view]
        shape, scale, s = shape[own], scale[own], s[own]
        value += float(np.sum(shape * np.log(scale) - gammaln(shape) - (shape + 1) * np.log(s) - scale / s))
    return value


def _log_normal(square: Floats, count: Floats, precision: Floats) -> float:
    proper = precision > 0
    v = precision[proper]
    return float(0.5 * np.sum(count[proper] * (np.log(v) - LOG_TWO_PI) - v * square[proper]))


def _mean_precision_factors(problem: Problem, current: Parameters) -> tuple[Floats, Floats, Floats]:
    """Posterior precision of the mean as ``diag(a) - U C U'``: return 1/a, U and the core ``C^-1 - U' U/a``."""
    q = current.n_components
    views = problem.views
    own = views.spread(problem.target.mean_precision) + views.spread(problem.n_view) / current.noise
    wide = np.zeros((len(own), q * len(problem.parts)))
    core = np.zeros((wide.shape[1], wide.shape[1]))
    for i, part in enumerate(problem.parts):
        here, loadings = slice(i * q, (i + 1) * q), current.loadings[part.features]
        wide[part.features, here] = loadings / current.noise[part.features, None]
        core[here, here] = (np.eye(q) + loadings.T @ wide[part.features, here]) / part.moments.n
    return 1.0 / own, wide, core - wide.T @ (wide / own[:, None])


def _maximise_mean(problem: Problem, current: Parameters) -> Parameters:
    """Maximise the objective over the mean, the latents integrated out and all views together."""
    target, score = problem.target, np.zeros(len(current.mean))
    for part in problem.parts:
        own = part.features
        loadings, noise = current.loadings[own], current.noise[own]
        away = (part.moments.mean - current.mean[own]) / noise
        information = loadings.T @ (loadings / noise[:, None])
        covariance, _ = invert_positive(information + np.eye(len(information)))
        score[own] += part.moments.n * (away - loadings @ (covariance @ (away @ loadings)) / noise)
    score += problem.views.spread(target.mean_precision) * (target.mean - current.mean)
    inverse, wide, core = _mean_precision_factors(problem, current)
    step = inverse * score
    step += inverse * (wide @ (invert_positive(core)[0] @ (step @ wide)))
    return Parameters(current.loadings, current.mean + step, current.noise)


def _move_mean(problem: Problem, current: Parameters) -> Parameters:
    """Maximise over the mean with the latents as the E-step finds them: a small step when the noise is small."""
    above, below = np.zeros(len(current.mean)), np.zeros(len(current.mean))
    for part, one in zip(problem.parts, _expect(problem, current).parts, strict=True):
        own, n = part.features, part.moments.n
        above[own] += (n * part.moments.mean - current.loadings[own] @ one.latent_sum) / current.noise[own]
        below[own] += n / current.noise[own]
    precision = problem.views.spread(problem.target.mean_precision)
    mean = (above + precision * problem.target.mean) / (below + precision)
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
    """PX-EM in one triangular solve: with B = n L L', the new loadings times L are A L'^-1 / n."""
    root, _ = dpotrf(sums.latent_total * sums.n, lower=1, clean=1)
    inverse, _ = dtrtri(root, lower=1)
    loadings = sums.cross @ inverse.T
    left = problem.noise.total(sums.squares - sums.n * np.einsum("dq,dq->d", loadings, loadings))
    return Parameters(loadings, current.mean, _pool_noise(problem, left))


def _solve_loadings(problem: Problem, current: Parameters, sums: _SiteSums) -> Floats:
    """Return ``(A + rho W~)(B + rho I)^-1`` with rho = s / v, through the eigenvectors of B."""
    ridge = (current.noise * problem.views.spread(problem.target.loadings_precision))[:, None]
    right = sums.cross + ridge * problem.target.loadings
    values, vectors = np.linalg.eigh(sums.latent)
    if len(values) == 1:
        return np.asarray((right @ vectors[0] / (values[0] + ridge)) @ vectors[0].T)
    loadings = np.empty_like(right)
    for k, (start, width) in enumerate(zip(problem.views.starts, problem.views.widths, strict=True)):
        own = slice(start, start + width)
        loadings[own] = (right[own] @ vectors[k] / (values[k] + ridge[own])) @ vectors[k].T
    return loadings


def _solve_noise(problem: Problem, loadings: Floats, sums: _SiteSums) -> Floats:
    if len(sums.latent) == 1:
        model = loadings @ sums.latent[0]
    else:
        widths = problem.views.widths
        cuts = np.split(loadings, np.cumsum(widths)[:-1])
        model = np.concatenate([w @ b for w, b in zip(cuts, sums.latent, strict=True)])
    left = sums.squares + np.einsum("dq,dq->d", loadings, model - 2.0 * sums.cross)
    return _pool_noise(problem, problem.noise.total(left))


def _pool_noise(problem: Problem, left: Floats) -> Floats:
    groups, target = problem.noise, problem.target
    above = left + 2.0 * target.noise_scale[groups.view]
    below = problem.n_view[groups.view] * groups.sizes + 2.0 * (target.noise_shape[groups.view] + 1.0)
    return groups.spread(np.maximum(above / below, problem.floor))


def _posterior_spread(problem: Problem, current: Parameters, sums: _SiteSums) -> PosteriorSpread:
    """Posterior variances of the loadings given the latents' moments, and of the mean with latents integrated out."""
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
        own = half[start : start + width]
        information[k] += precision[k] ** 2 * float(((own.T @ own) ** 2).sum())
    hidden = views.sizes - views.widths
    alone = inverse[views.starts]
    variance += hidden * alone
    information += hidden * free[views.starts] ** 2
    return variance, information


def _spread_on_layout(own: PosteriorSpread, views: np.ndarray) -> PosteriorSpread:
    def place(values: Floats) -> Floats:
        out = np.zeros((len(views), *values.shape[1:]))
        out[views] = values
        return out

    each = (own.loadings, own.mean, own.loadings_information, own.mean_information, own.weight)
    return PosteriorSpread(*(place(values) for values in each))


def random_start(layout: Layout, n_components: int, variances: Floats, rng: np.random.Generator) -> Parameters:
    """Draw a start common to all sites: Gaussian loadings in units of every view's standard deviation.

    Parameters
    ----------
    layout : Layout
    n_components : int
    variances : array of shape (k,)
        Typical variance of a feature of every view.
    rng : numpy Generator
        Seeded alike at every site, or drawn once by the coordinator.
    """
    variance = np.asarray(variances, dtype=np.float64)[layout.view_of]
    draws = rng.normal(size=(layout.n_features, n_components))
    return Parameters(draws * np.sqrt(variance / n_components)[:, None], np.zeros(layout.n_features), variance)
