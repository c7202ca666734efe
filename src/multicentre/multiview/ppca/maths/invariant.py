"""One law of the features for all sites, one latent case mix per site: exact federated EM, all messages sums.

With loadings, mean and noise shared and x ~ N(m_c, Phi_c) at site c, rotation, scale and origin of the latent space
are the same at every site, so that nothing has to be aligned and views that only some sites have stay coherent.
The model is that of Balelli et al. (2021, equations 1 to 3) with theta_c = theta for all c and the latent law freed;
the step that standardises the average case mix is PX-EM (Liu, Rubin and Wu 1998) across sites.

Site intercepts are random effects: t = W x + mu + b_c + eps with b_c ~ N(0, T), T diagonal. Without them the loadings
explain the offsets of scanners and laboratories. A site integrates its intercepts out exactly: their posterior, joint
with the latents, is Gaussian, and its precision is diagonal plus low rank. T is estimated by empirical Bayes (MacKay
1992, Bayesian interpolation: squares over the well-determined part).
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.linalg import block_diag

from multicentre.multiview.ppca.maths.case_mix import maximise_law
from multicentre.multiview.ppca.maths.model import (
    LOG_TWO_PI,
    NOISE_FLOOR,
    Floats,
    Integers,
    LatentLaw,
    Layout,
    NoiseModel,
    Parameters,
    invert_positive,
)
from multicentre.multiview.ppca.maths.moments import PatternMoments

# Repetitions with intercepts, each of which costs O(d q^2) and finds the mean of the case mix at once. With one, the
# covariance of the case mix settles over rounds instead.
WITH_INTERCEPTS = 2
# Least variance of intercepts: a millionth of a standard deviation, which no study determines.
MIN_VARIANCE = 1e-12


@dataclass(frozen=True)
class SharedSums:
    """Sums of a site in one round, with z = [x; 1] and t taken about the mean that was broadcast and the intercepts.

    Parameters
    ----------
    cross : array of shape (d, q + 1)
        ``A``: sum of (t_j - mu_j) <z'> over the rows that show feature j; zeros for views that the site lacks.
    second : array of shape (k, q + 1, q + 1), or (d, q + 1, q + 1) where entries are missing
        ``Ba``: sum of <z z'> over the rows that show the view, or the feature.
    squares : array of shape (d,)
        ``D``: sum of (t_j - mu_j)^2.
    latent_first : array of shape (q,)
        Sum of <x> over all rows.
    latent_second : array of shape (q, q)
        Sum of <x x'> over all rows.
    n_rows : float
    log_likelihood : float
        Of the site's rows at the broadcast parameters and its own latent law after its update, in nats.
    intercept_sites : array of shape (d,)
        1 for each feature that the site has.
    intercept_total : array of shape (d,)
        Posterior means of the site's intercepts over their prior variance, so that rounding does not depend on it.
    intercept_squares : array of shape (d,)
        Squares of these numbers.
    intercept_information : array of shape (d,)
        Share of each intercept that the data determine, 1 - posterior variance / prior variance, over the latter.
    """

    cross: Floats
    second: Floats
    squares: Floats
    latent_first: Floats
    latent_second: Floats
    n_rows: float
    log_likelihood: float
    intercept_sites: Floats
    intercept_total: Floats
    intercept_squares: Floats
    intercept_information: Floats

    def __add__(self, other: SharedSums) -> SharedSums:
        return SharedSums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class _PatternStatistics:
    """Statistics of a pattern of rows on which the inner repetitions depend."""

    pattern: PatternMoments
    weighted: Floats
    product: Floats
    residual: Floats
    information: Floats
    signal: Floats
    projection: Floats
    constant: float


@dataclass(frozen=True)
class _Posterior:
    """Posterior of a pattern's latents: common covariance, mean over rows, and sum of <x x'> about that mean."""

    covariance: Floats
    mean: Floats
    scatter: Floats


@dataclass(frozen=True)
class _Intercepts:
    """Posterior of a site's intercepts.

    Parameters
    ----------
    mean, variance : arrays of shape (d,)
        Posterior means and variances.
    score, information : arrays of shape (d,)
        Mean, and share that the data determine, over the prior variance.
    latent_mean : array of shape (q,)
        Mean of the site's case mix, at its mode with the intercepts integrated out and a standard normal prior.
    spread : list of arrays of shape (d, q)
        Posterior covariance times ``P`` of each pattern.
    evidence : float
        Change of the log-likelihood through the intercepts.
    """

    mean: Floats
    variance: Floats
    score: Floats
    information: Floats
    latent_mean: Floats
    spread: list[Floats]
    evidence: float


def answer_round(
    patterns: list[PatternMoments],
    layout: Layout,
    shared: Parameters,
    law: LatentLaw,
    *,
    n_repetitions: int = 10,
    case_mix_weight: float = 0.0,
    intercept_variance: Floats | None = None,
) -> tuple[SharedSums, LatentLaw]:
    """Do a site's part of one round: update its latent law, then write the sums for the shared update.

    One product with the scatter serves all repetitions, which cost O(q^3) each, or O(d q^2) with intercepts.

    Parameters
    ----------
    patterns : list of PatternMoments
    layout : Layout
    shared : Parameters
        As broadcast.
    law : LatentLaw
        Current latent law of the site, in the gauge of `shared`.
    n_repetitions : int, default 10
        Updates of the latent law before the sums are written; 0 leaves it as it is. Without a prior and with the same
        views in all rows, the law is that of largest likelihood instead.
    case_mix_weight : float, default 0
        Weight, in patients, of the prior that shrinks the latent covariance to the identity; 0 is maximum likelihood.
    intercept_variance : array of shape (d,), optional
        Variance of the intercepts between sites; none by default.

    Returns
    -------
    sums : SharedSums
    law : LatentLaw
        Stays at the site.
    """
    statistics = [_pattern_statistics(pattern, shared) for pattern in patterns]
    n = sum(pattern.moments.n for pattern in patterns)
    if intercept_variance is None or not intercept_variance.any():
        direct = None
        if n_repetitions and not case_mix_weight and len(statistics) == 1:
            (only,) = statistics
            direct = maximise_law(only.information, only.projection, only.signal / n)
        for _ in range(n_repetitions if direct is None else 0):
            law = _fit_law(statistics, [_infer(one, law) for one in statistics], n).shrunk(n, case_mix_weight)
        law = law if direct is None else direct
        posteriors = [_infer(one, law) for one in statistics]
        return _write_sums(statistics, posteriors, layout, _log_likelihood(statistics, law)), law
    for _ in range(min(n_repetitions, WITH_INTERCEPTS)):
        intercepts = _infer_intercepts(statistics, shared, law, intercept_variance)
        mean = intercepts.latent_mean
        moved, posteriors = _infer_around(statistics, LatentLaw(mean, law.covariance), intercepts)
        law = _fit_law(moved, posteriors, n, mean).shrunk(n, case_mix_weight)
    intercepts = _infer_intercepts(statistics, shared, law, intercept_variance, free_mean=False)
    moved, posteriors = _infer_around(statistics, law, intercepts)
    log_likelihood = _log_likelihood(statistics, law) + intercepts.evidence
    return _write_sums(moved, posteriors, layout, log_likelihood, intercepts), law


def _infer_intercepts(
    statistics: list[_PatternStatistics],
    shared: Parameters,
    law: LatentLaw,
    variance: Floats,
    *,
    free_mean: bool = True,
) -> _Intercepts:
    """Integrate the latents out of the site's rows: posterior of intercepts and mode of the case mix's mean.

    The posterior precision is ``D - U K U'``, with ``D = diag(1/T + N/s)``, ``P`` of the patterns side by side in U,
    and blocks ``N_p M_p`` in K.
    """
    precision, _ = invert_positive(law.covariance)
    weighted, q = shared.loadings / shared.noise[:, None], shared.n_components
    counts, linear, slope = np.zeros(len(weighted)), np.zeros(len(weighted)), np.zeros_like(weighted)
    information, score, blocks, columns = np.zeros((q, q)), np.zeros(q), [], []
    for one in statistics:
        n, features = one.pattern.moments.n, one.pattern.features
        covariance, _ = invert_positive(precision + one.information)
        left = np.eye(q) - covariance @ one.information
        column = np.where(features[:, None], weighted, 0.0)
        counts += n * features
        linear[features] += n * one.residual / shared.noise[features]
        linear -= n * (column @ (covariance @ one.projection))
        slope += n * (column @ left)
        information += n * (one.information @ left)
        score += n * (left.T @ one.projection)
        blocks.append((precision + one.information) / n)
        columns.append(column)
    ratio = 1.0 + variance * counts / shared.noise
    prior_part, U = variance / ratio, np.hstack(columns)
    shrunk = prior_part[:, None] * U
    inverse_kernel = block_diag(*blocks)
    inner, log_inner = invert_positive(inverse_kernel - U.T @ shrunk)
    _, log_kernel = invert_positive(inverse_kernel)

    def spread(values: Floats) -> Floats:
        return np.asarray((values.T * prior_part).T + shrunk @ (inner @ (shrunk.T @ values)))

    added = np.einsum("da,ab,db->d", shrunk, inner, shrunk)
    spread_slope = spread(slope)
    at_law = linear - slope @ law.mean
    evidence = 0.5 * float(at_law @ spread(at_law) - np.log(ratio).sum() - log_inner + log_kernel)
    system = information - slope.T @ spread_slope + np.eye(q)
    mean = law.mean
    if free_mean:
        mean = np.asarray(np.linalg.solve(0.5 * (system + system.T), score - spread_slope.T @ linear), dtype=np.float64)
    remainder, relative = linear - slope @ mean, U / ratio[:, None]
    has = (counts > 0) & (variance > 0)
    return _Intercepts(
        mean=spread(remainder),
        variance=prior_part + added,
        score=np.where(has, remainder / ratio + relative @ (inner @ (shrunk.T @ remainder)), 0.0),
        information=np.where(
            has, counts / shared.noise / ratio - np.einsum("da,ab,db->d", relative, inner, relative), 0.0
        ),
        latent_mean=mean,
        spread=[spread(column) for column in columns],
        evidence=evidence,
    )


def _infer_around(
    statistics: list[_PatternStatistics], law: LatentLaw, intercepts: _Intercepts
) -> tuple[list[_PatternStatistics], list[_Posterior]]:
    """Take the rows about the intercepts; posteriors of the latents, the intercepts' own variance included."""
    moved, posteriors = [], []
    for one, spread in zip(statistics, intercepts.spread, strict=True):
        features = one.pattern.features
        shift = intercepts.mean[features]
        about = replace(one, residual=one.residual - shift, projection=one.projection - shift @ one.weighted)
        posterior = _infer(about, law)
        extra = posterior.covariance @ (one.weighted.T @ spread[features]) @ posterior.covariance
        scatter = posterior.scatter + one.pattern.moments.n * 0.5 * (extra + extra.T)
        moved.append(about)
        posteriors.append(replace(posterior, scatter=scatter))
    return moved, posteriors


def site_log_likelihood(patterns: list[PatternMoments], shared: Parameters, law: LatentLaw | None = None) -> float:
    """Log-likelihood of a site's rows, the latents integrated out, in nats; the standard latent law by default."""
    law = law or LatentLaw.standard(shared.n_components)
    return _log_likelihood([_pattern_statistics(pattern, shared) for pattern in patterns], law)


def _pattern_statistics(pattern: PatternMoments, shared: Parameters) -> _PatternStatistics:
    parameters, moments = shared.restrict(pattern.features), pattern.moments
    weighted = parameters.loadings / parameters.noise[:, None]
    product = moments.scatter_times(weighted)
    residual = moments.mean - parameters.mean
    squares = moments.scatter_diagonal + moments.n * residual**2
    constant = moments.n * float(np.sum(LOG_TWO_PI + np.log(parameters.noise))) + float(
        np.sum(squares / parameters.noise)
    )
    return _PatternStatistics(
        pattern,
        weighted,
        product,
        residual,
        parameters.loadings.T @ weighted,
        weighted.T @ product,
        residual @ weighted,
        constant,
    )


def _infer(statistics: _PatternStatistics, law: LatentLaw) -> _Posterior:
    precision, _ = invert_positive(law.covariance)
    covariance, _ = invert_positive(precision + statistics.information)
    mean = covariance @ (precision @ law.mean + statistics.projection)
    scatter = statistics.pattern.moments.n * covariance + covariance @ statistics.signal @ covariance
    return _Posterior(covariance, mean, 0.5 * (scatter + scatter.T))


def _log_likelihood(statistics: list[_PatternStatistics], law: LatentLaw) -> float:
    precision, log_volume = invert_positive(law.covariance)
    total = 0.0
    for one in statistics:
        n = one.pattern.moments.n
        covariance, log_precision = invert_positive(precision + one.information)
        # Residuals about W m cancel the quadratic term of the prior exactly.
        projection = one.projection - one.information @ law.mean
        shift = law.mean @ (one.information @ law.mean - 2.0 * one.projection)
        inner = shift - projection @ covariance @ projection
        total += one.constant + n * (log_volume + log_precision + float(inner))
        total -= float(np.trace(covariance @ one.signal))
    return -0.5 * total


def _fit_law(
    statistics: list[_PatternStatistics], posteriors: list[_Posterior], n: int, mean: Floats | None = None
) -> LatentLaw:
    counts = np.array([float(one.pattern.moments.n) for one in statistics])
    means = np.stack([posterior.mean for posterior in posteriors])
    mean = counts @ means / n if mean is None else mean
    differences = means - mean
    scatter = (differences * counts[:, None]).T @ differences + np.sum([p.scatter for p in posteriors], axis=0)
    return LatentLaw(np.asarray(mean, dtype=np.float64), np.asarray(scatter / n, dtype=np.float64))


def _write_sums(
    statistics: list[_PatternStatistics],
    posteriors: list[_Posterior],
    layout: Layout,
    log_likelihood: float,
    intercepts: _Intercepts | None = None,
) -> SharedSums:
    q = len(posteriors[0].mean)
    cross, squares = np.zeros((layout.n_features, q + 1)), np.zeros(layout.n_features)
    second, total = np.zeros((layout.n_views, q + 1, q + 1)), np.zeros((q + 1, q + 1))
    for p, (one, posterior) in enumerate(zip(statistics, posteriors, strict=True)):
        features, moments = one.pattern.features, one.pattern.moments
        z = np.append(posterior.mean, 1.0)
        moment = moments.n * np.outer(z, z)
        moment[:q, :q] += posterior.scatter
        products = moments.n * one.residual[:, None] * z
        products[:, :q] += one.product @ posterior.covariance
        squares[features] += moments.scatter_diagonal + moments.n * one.residual**2
        if intercepts is not None:
            products[:, :q] += moments.n * (intercepts.spread[p][features] @ posterior.covariance)
            squares[features] += moments.n * intercepts.variance[features]
        cross[features] += products
        second[one.pattern.views(layout)] += moment
        total += moment
    held = np.any([one.pattern.features for one in statistics], axis=0).astype(np.float64)
    score = np.zeros_like(held) if intercepts is None else intercepts.score
    information = np.zeros_like(held) if intercepts is None else intercepts.information
    n_rows = float(total[q, q])
    return SharedSums(
        cross=cross,
        second=second,
        squares=squares,
        latent_first=total[:q, q],
        latent_second=total[:q, :q],
        n_rows=n_rows,
        log_likelihood=float(log_likelihood),
        intercept_sites=held,
        intercept_total=score,
        intercept_squares=score**2,
        intercept_information=information,
    )


def update_shared(
    sums: SharedSums,
    previous: Parameters,
    layout: Layout,
    *,
    noise: NoiseModel = "isotropic",
    loadings_variance: Floats | None = None,
) -> Parameters:
    """Do the M-step of the shared parameters, in the latent units of the sums.

    Parameters
    ----------
    sums : SharedSums
        Over sites.
    previous : Parameters
        As broadcast; the sums are about its mean. A view without a site keeps these values.
    layout : Layout
    noise : {"isotropic", "diagonal"}, default "isotropic"
    loadings_variance : array of shape (k,), optional
        Variance of the Gaussian prior law, about zero, of a loading of each view; none by default. Where the sites that
        have a view hardly differ along a latent dimension, the view's loadings on it are otherwise almost unbounded.
    """
    per_feature = len(sums.second) == layout.n_features
    group_of = np.arange(layout.n_features) if per_feature else layout.view_of
    rows = sums.second[group_of, -1, -1]
    observed = rows > 0.5
    second = sums.second
    if loadings_variance is not None:
        second = second + _ridge(previous, layout, loadings_variance, per_feature=per_feature)
    solved = solve_blocks(sums.cross, second, group_of, observed)
    model = np.einsum("da,dab->db", solved, sums.second[group_of])
    residual_squares = sums.squares + np.einsum("dq,dq->d", solved, model - 2.0 * sums.cross)
    variance = _pool_shared_noise(residual_squares, sums.squares, rows, layout, noise)
    loadings = np.where(observed[:, None], solved[:, :-1], previous.loadings)
    mean = previous.mean + np.where(observed, solved[:, -1], 0.0)
    return Parameters(loadings, mean, np.where(observed, variance, previous.noise))


def _ridge(previous: Parameters, layout: Layout, variance: Floats, *, per_feature: bool) -> Floats:
    """Return ``diag(s/v, .., s/v, 0)`` for every matrix of the sums."""
    noise = previous.noise if per_feature else np.add.reduceat(previous.noise, layout.starts) / np.asarray(layout.sizes)
    strength = noise / (variance[layout.view_of] if per_feature else variance)
    axes = np.append(np.ones(previous.n_components), 0.0)
    return np.asarray(strength[:, None, None] * np.diag(axes))


def solve_blocks(cross: Floats, second: Floats, group_of: Integers, selected: np.ndarray) -> Floats:
    """Solve ``F_j Ba_g(j) = A_j`` for the `selected` features, shape (d, q + 1); zeros elsewhere."""
    solved = np.zeros_like(cross)
    if len(second) == len(cross):
        solved[selected] = np.linalg.solve(second[selected], cross[selected][:, :, None])[:, :, 0]
        return solved
    for group in np.unique(group_of[selected]):
        members = selected & (group_of == group)
        solved[members] = np.linalg.solve(second[group], cross[members].T).T
    return solved


def _pool_shared_noise(
    residual_squares: Floats, squares: Floats, rows: Floats, layout: Layout, noise: NoiseModel
) -> Floats:
    by_view = np.stack([np.add.reduceat(values, layout.starts) for values in (residual_squares, squares, rows)])
    counts = np.maximum(by_view[2], 1.0)
    floor = NOISE_FLOOR * by_view[1] / counts
    floor = np.where(floor > 0, floor, NOISE_FLOOR)[layout.view_of]
    raw = residual_squares / np.maximum(rows, 1.0) if noise == "diagonal" else (by_view[0] / counts)[layout.view_of]
    return np.maximum(raw, floor)


def average_law(sums: SharedSums) -> LatentLaw:
    """Return the case mix averaged over all rows of all sites."""
    mean = sums.latent_first / sums.n_rows
    covariance = sums.latent_second / sums.n_rows - np.outer(mean, mean)
    return LatentLaw(mean, 0.5 * (covariance + covariance.T))


def centre_intercepts(sums: SharedSums, previous: Parameters, variance: Floats) -> Parameters:
    """Move the mean of the intercepts over sites to the common mean; the intercepts are recomputed in each round."""
    centre = variance * sums.intercept_total / np.maximum(sums.intercept_sites, 1.0)
    return replace(previous, mean=previous.mean + centre)


def update_intercept_variance(sums: SharedSums, previous: Floats, layout: Layout, *, noise: NoiseModel) -> Floats:
    """Update the variance of the intercepts between sites, shape (d,), about their mean over sites.

    Parameters
    ----------
    sums : SharedSums
        Over sites.
    previous : array of shape (d,)
        As broadcast. 0 is a fixed point: no intercepts.
    layout : Layout
    noise : {"isotropic", "diagonal"}
        One variance per view, or one per column.
    """
    sites = np.maximum(sums.intercept_sites, 1.0)
    squares = np.maximum(sums.intercept_squares - sums.intercept_total**2 / sites, 0.0)
    determined = sums.intercept_information * (sites - 1.0) / sites
    if noise == "isotropic":
        squares, determined = (np.add.reduceat(each, layout.starts)[layout.view_of] for each in (squares, determined))
    updated = previous * np.where(determined > 0, squares / np.where(determined > 0, determined, 1.0), 1.0)
    return np.where(previous > 0, np.maximum(updated, MIN_VARIANCE), 0.0)
