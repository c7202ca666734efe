"""One law of the features for all sites, one latent case mix per site: exact federated EM, all messages sums.

With loadings, mean and noise shared and x ~ N(m_c, Phi_c) at site c, rotation, scale and origin of the latent space
are the same at every site, so that nothing has to be aligned and views that only some sites have stay coherent.
The model is that of Balelli et al. (2021, equations 1 to 3) with theta_c = theta for all c and the latent law freed;
the step that standardises the average case mix is PX-EM (Liu, Rubin and Wu 1998) across sites.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from multicentre.multiview.ppca.maths.expectation import LOG_TWO_PI, invert_positive
from multicentre.multiview.ppca.maths.model import Floats, Integers, LatentLaw, Layout, Parameters, absorb_law
from multicentre.multiview.ppca.maths.moments import PatternMoments
from multicentre.multiview.ppca.maths.problem import NOISE_FLOOR, NoiseModel


@dataclass(frozen=True)
class SharedSums:
    """Sums of a site in one round, with z = [x; 1] and t taken about the mean that was broadcast.

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
        Of the site's rows at the broadcast parameters and its own latent law before this round, in nats.
    """

    cross: Floats
    second: Floats
    squares: Floats
    latent_first: Floats
    latent_second: Floats
    n_rows: float
    log_likelihood: float

    def __add__(self, other: SharedSums) -> SharedSums:
        return SharedSums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class _PatternStatistics:
    """Statistics of a pattern of rows on which the inner repetitions depend."""

    pattern: PatternMoments
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


def answer_round(
    patterns: list[PatternMoments],
    layout: Layout,
    shared: Parameters,
    law: LatentLaw,
    *,
    n_repetitions: int = 5,
    case_mix_weight: float = 0.0,
) -> tuple[SharedSums, LatentLaw]:
    """Do a site's part of one round: update its latent law, then write the sums for the shared update.

    One product with the scatter serves all repetitions, which cost O(q^3) each.

    Parameters
    ----------
    patterns : list of PatternMoments
    layout : Layout
    shared : Parameters
        As broadcast.
    law : LatentLaw
        Current latent law of the site, in the gauge of `shared`.
    n_repetitions : int, default 5
        Updates of the latent law; 0 leaves it as it is.
    case_mix_weight : float, default 0
        Weight, in patients, of the prior that shrinks the latent covariance to the identity; 0 is maximum likelihood.

    Returns
    -------
    sums : SharedSums
    law : LatentLaw
        Stays at the site.
    """
    statistics = [_pattern_statistics(pattern, shared) for pattern in patterns]
    n = sum(pattern.moments.n for pattern in patterns)
    log_likelihood = _log_likelihood(statistics, law)
    posteriors = [_infer(one, law) for one in statistics]
    for repetition in range(n_repetitions):
        if repetition:
            posteriors = [_infer(one, law) for one in statistics]
        law = _fit_law(statistics, posteriors, n).shrunk(n, case_mix_weight)
    return _write_sums(statistics, posteriors, layout, log_likelihood), law


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


def _fit_law(statistics: list[_PatternStatistics], posteriors: list[_Posterior], n: int) -> LatentLaw:
    counts = np.array([float(one.pattern.moments.n) for one in statistics])
    means = np.stack([posterior.mean for posterior in posteriors])
    mean = counts @ means / n
    differences = means - mean
    scatter = (differences * counts[:, None]).T @ differences + np.sum([p.scatter for p in posteriors], axis=0)
    return LatentLaw(np.asarray(mean, dtype=np.float64), np.asarray(scatter / n, dtype=np.float64))


def _write_sums(
    statistics: list[_PatternStatistics], posteriors: list[_Posterior], layout: Layout, log_likelihood: float
) -> SharedSums:
    q = len(posteriors[0].mean)
    cross, squares = np.zeros((layout.n_features, q + 1)), np.zeros(layout.n_features)
    second, total = np.zeros((layout.n_views, q + 1, q + 1)), np.zeros((q + 1, q + 1))
    for one, posterior in zip(statistics, posteriors, strict=True):
        features, moments = one.pattern.features, one.pattern.moments
        z = np.append(posterior.mean, 1.0)
        moment = moments.n * np.outer(z, z)
        moment[:q, :q] += posterior.scatter
        products = moments.n * one.residual[:, None] * z
        products[:, :q] += one.product @ posterior.covariance
        cross[features] += products
        squares[features] += moments.scatter_diagonal + moments.n * one.residual**2
        second[one.pattern.views(layout)] += moment
        total += moment
    return SharedSums(cross, second, squares, total[:q, q], total[:q, :q], float(total[q, q]), float(log_likelihood))


def maximise_shared(
    sums: SharedSums,
    previous: Parameters,
    layout: Layout,
    *,
    noise: NoiseModel = "isotropic",
    group_of: Integers | None = None,
    loadings_variance: Floats | None = None,
) -> tuple[Parameters, LatentLaw]:
    """Do the coordinator's part of one round: shared parameters, then the gauge where the average case mix is N(0, I).

    Parameters
    ----------
    sums : SharedSums
        Over sites.
    previous : Parameters
        As broadcast; the sums are about its mean. A view without a site keeps these values.
    layout : Layout
    noise : {"isotropic", "diagonal"}, default "isotropic"
    group_of : int array of shape (d,), optional
        Index of the matrix of ``sums.second`` of each feature. By default the feature's view when there is one matrix
        per view, and the feature itself when there is one per feature.
    loadings_variance : array of shape (k,), optional
        Variance of the Gaussian prior law, about zero, of a loading of each view; none by default. Where the sites that
        have a view hardly differ along a latent dimension, the view's loadings on it are otherwise almost unbounded.

    Returns
    -------
    parameters : Parameters
    gauge : LatentLaw
        The average case mix that was absorbed; each site changes the axes of its latent law to it.
    """
    if group_of is None:
        per_feature = len(sums.second) == layout.n_features
        group_of = np.arange(layout.n_features) if per_feature else layout.view_of
    rows = sums.second[group_of, -1, -1]
    observed = rows > 0.5
    second = sums.second
    if loadings_variance is not None:
        second = second + _ridge(previous, layout, loadings_variance, per_feature=len(second) == layout.n_features)
    solved = solve_blocks(sums.cross, second, group_of, observed)
    model = np.einsum("da,dab->db", solved, sums.second[group_of])
    residual_squares = sums.squares + np.einsum("dq,dq->d", solved, model - 2.0 * sums.cross)
    variance = _pool_shared_noise(residual_squares, sums.squares, rows, layout, noise)
    loadings = np.where(observed[:, None], solved[:, :-1], previous.loadings)
    mean = previous.mean + np.where(observed, solved[:, -1], 0.0)
    gauge = average_law(sums)
    fitted = Parameters(loadings, mean, np.where(observed, variance, previous.noise))
    return absorb_law(fitted, gauge), gauge


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
