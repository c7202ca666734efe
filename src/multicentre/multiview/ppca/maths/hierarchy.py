"""Parameters of each site around a global law: a variational fit at the site, and the step of the global law.

Site c has ``F_c = [W_c, mu_c]`` with rows drawn from N(F~, V) for V = diag(v_W, .., v_W, v_mu) by view, and noise
variances from an inverse gamma law. The posterior of latents, F_c and noise is approximated by a product. The objective
is the variational lower bound of the log density of all rows, plus the log prior densities of the case mixes and of the
global loadings. With ``reml``, the global F~ is integrated out too, by its Gaussian posterior given the rest, so that
the variances between sites are not too small where sites are few.

Each step at a site is a coordinate ascent on its term of the objective: F_c and the noise given moments of the latents,
then an affine change of its latent axes, then the latents and the case mix.

References
----------
Balelli et al. (2021), equations 1 to 6; Bishop (1999), Variational principal components;
Patterson and Thompson (1971), Recovery of inter-block information when block sizes are unequal.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace

import numpy as np
from scipy.special import gammaln, psi

from multicentre.multiview.ppca.maths.model import (
    LOG_TWO_PI,
    NOISE_FLOOR,
    Booleans,
    Floats,
    LatentLaw,
    Layout,
    NoiseModel,
    Parameters,
    invert_positive,
)
from multicentre.multiview.ppca.maths.moments import PatternMoments, Rows, multiply_grouped, sum_outer_grouped
from multicentre.multiview.ppca.maths.prior import LocalFit, PosteriorSpread, Prior

# Halvings of a change of axes that lowers the objective, before the axes stay.
MAX_HALVINGS = 10


@dataclass(frozen=True)
class LatentSums:
    """Sums over a site's rows of moments of z = [x; 1], with t taken about a reference; the state of a local fit.

    Parameters
    ----------
    cross : array of shape (d, q + 1)
        Sum of (t_j - reference_j) <z'>.
    second : array of shape (k, q + 1, q + 1), or (d, q + 1, q + 1) where entries are missing
        Sum of <z z'> over the rows that hold the view, or the feature.
    squares : array of shape (d,)
        Sum of (t_j - reference_j)^2.
    reference : array of shape (d,)
    noise : array of shape (d,)
        One over the expected inverse noise variance.
    """

    cross: Floats
    second: Floats
    squares: Floats
    reference: Floats
    noise: Floats

    def in_axes(self, origin: Floats, axes: Floats) -> LatentSums:
        """Return the sums for latents in other axes, ``x = origin + axes x'``."""
        q = len(origin)
        change = np.eye(q + 1)
        change[:q, :q] = np.linalg.inv(axes)
        change[:q, q] = -change[:q, :q] @ origin
        return replace(self, cross=self.cross @ change.T, second=change @ self.second @ change.T)


@dataclass(frozen=True)
class Loadings:
    """Gaussian posterior of a site's [W, mu], and the law of its noise.

    Parameters
    ----------
    parameters : Parameters
        Posterior means; the noise is one over the expected inverse variance.
    covariance : array of shape (d, q + 1, q + 1)
        Posterior covariance of each feature's row; zeros for a view with a flat prior, whose row is a point estimate.
    log_noise : array of shape (d,)
        Expected logarithm of the noise variance.
    """

    parameters: Parameters
    covariance: Floats
    log_noise: Floats

    @property
    def rows(self) -> Floats:
        """Return ``[W, mu]``, shape (d, q + 1)."""
        return np.column_stack([self.parameters.loadings, self.parameters.mean])


@dataclass(frozen=True)
class Expectation:
    """Result of an E-step: sums about the mean of the parameters, moments of the latents, and the bound.

    `log_normaliser` is the log of the integral over the latents of the exponential of the expected log density.
    """

    cross: Floats
    second: Floats
    squares: Floats
    latent_first: Floats
    latent_second: Floats
    n_rows: float
    log_normaliser: float

    def __add__(self, other: Expectation) -> Expectation:
        return Expectation(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def law(self) -> LatentLaw:
        """Mean and covariance of the latents over the rows."""
        mean = self.latent_first / self.n_rows
        return LatentLaw(mean, self.latent_second / self.n_rows - np.outer(mean, mean))


Expect = Callable[[Loadings, LatentLaw], Expectation]


def expect_patterns(patterns: list[PatternMoments], layout: Layout, loadings: Loadings, law: LatentLaw) -> Expectation:
    """Do the E-step from moments, per pattern of views, with the uncertainty of the loadings."""
    q = len(law.mean)
    prior, log_volume = invert_positive(law.covariance)
    d, k, e = layout.n_features, layout.n_views, q + 1
    extra = _weighted_covariance(loadings)
    total = Expectation(np.zeros((d, e)), np.zeros((k, e, e)), np.zeros(d), np.zeros(q), np.zeros((q, q)), 0.0, 0.0)
    for pattern in patterns:
        parameters, moments, f = loadings.parameters.restrict(pattern.features), pattern.moments, pattern.features
        n, uncertain = moments.n, extra[f].sum(axis=0)
        weighted = parameters.loadings / parameters.noise[:, None]
        product, residual = moments.scatter_times(weighted), moments.mean - parameters.mean
        covariance, log_precision = invert_positive(prior + parameters.loadings.T @ weighted + uncertain[:q, :q])
        at_mean = residual @ weighted - uncertain[:q, q]
        linear = prior @ law.mean + at_mean
        mean, signal = covariance @ linear, weighted.T @ product
        z = np.append(mean, 1.0)
        moment = n * np.outer(z, z)
        moment[:q, :q] += n * covariance + covariance @ signal @ covariance
        cross, second, squares = np.zeros((d, e)), np.zeros((k, e, e)), np.zeros(d)
        cross[f] = n * residual[:, None] * z
        cross[f, :q] += product @ covariance
        squares[f] = moments.scatter_diagonal + n * residual**2
        second[pattern.views(layout)] = moment
        value = n * float((LOG_TWO_PI + loadings.log_noise[f]).sum() + uncertain[q, q] + log_volume + log_precision)
        value += float((squares[f] / parameters.noise).sum()) - float(np.trace(covariance @ signal))
        value += n * float(law.mean @ prior @ law.mean - linear @ mean)
        total += Expectation(cross, second, squares, moment[:q, q], moment[:q, :q], float(n), -0.5 * value)
    return total


def expect_entries(X: Floats, loadings: Loadings, law: LatentLaw) -> Expectation:
    """Do the E-step over observed entries, with the uncertainty of the loadings."""
    q, parameters = len(law.mean), loadings.parameters
    rows = Rows.read(X)
    prior, log_volume = invert_positive(law.covariance)
    holds = rows.patterns.astype(np.float64)
    outer = parameters.loadings[:, :, None] * parameters.loadings[:, None, :] / parameters.noise[:, None, None]
    extra = _weighted_covariance(loadings)
    uncertain = np.einsum("pd,dab->pab", holds, extra)
    precision = prior + np.einsum("pd,dab->pab", holds, outer) + uncertain[:, :q, :q]
    covariances, of = np.linalg.inv(precision), rows.pattern_of
    deviations = rows.deviations(parameters.mean)
    linear = deviations @ (parameters.loadings / parameters.noise[:, None]) - uncertain[of, :q, q] + prior @ law.mean
    means = multiply_grouped(linear, covariances, of)
    z = np.hstack([means, np.ones((len(X), 1))])
    by_pattern = sum_outer_grouped(z, of, len(holds))
    counts = np.bincount(of, minlength=len(holds)).astype(np.float64)
    by_pattern[:, :q, :q] += counts[:, None, None] * covariances
    moment, squares = by_pattern.sum(axis=0), np.square(deviations).sum(axis=0)
    constant = holds @ (LOG_TWO_PI + loadings.log_noise) + uncertain[:, q, q] + np.linalg.slogdet(precision)[1]
    value = counts @ constant + len(X) * (log_volume + float(law.mean @ prior @ law.mean))
    value += float((squares / parameters.noise).sum()) - float((linear * means).sum())
    return Expectation(
        deviations.T @ z,
        np.einsum("pd,pab->dab", holds, by_pattern),
        squares,
        moment[:q, q],
        moment[:q, :q],
        float(len(X)),
        -0.5 * float(value),
    )


def _weighted_covariance(loadings: Loadings) -> Floats:
    return np.asarray(loadings.covariance / loadings.parameters.noise[:, None, None])


@dataclass(frozen=True)
class Site:
    """Rows, priors and settings that stay fixed during a local fit.

    Parameters
    ----------
    expect : callable
        The site's E-step.
    features : mask of shape (d,)
        Features that the site's rows hold.
    layout : Layout
    prior : Prior
        As broadcast.
    noise : {"isotropic", "diagonal"}
    case_mix_weight : float
        Weight of the prior of the site's latent covariance, in patients.
    point_variance : array of shape (k,)
        Prior variance, about zero, of the loadings of views with a flat global law; infinite for none.
    """

    expect: Expect
    features: Booleans
    layout: Layout
    prior: Prior
    noise: NoiseModel
    case_mix_weight: float
    point_variance: Floats

    @property
    def is_proper(self) -> Booleans:
        """Mask of the features whose view has a global law that is not flat, shape (d,)."""
        return np.isfinite(self.prior.mean_variance)[self.layout.view_of]

    def precisions(self, q: int) -> Floats:
        """Prior precisions of [w_j, mu_j], shape (d, q + 1)."""
        prior, of = self.prior, self.layout.view_of
        proper = np.isfinite(prior.mean_variance)
        loadings = np.where(proper, 1.0 / prior.loadings_variance, 1.0 / self.point_variance)
        return np.column_stack([np.repeat(loadings[of, None], q, axis=1), (1.0 / prior.mean_variance)[of]])

    def centre(self) -> Floats:
        """Prior means of [w_j, mu_j], shape (d, q + 1); the loadings of flat views are drawn to zero."""
        loadings = np.where(self.is_proper[:, None], self.prior.loadings, 0.0)
        return np.column_stack([loadings, self.prior.mean])

    def start(self, parameters: Parameters, law: LatentLaw) -> LatentSums:
        """Do an E-step at given parameters, without uncertainty."""
        d, e = len(parameters.mean), parameters.n_components + 1
        point = Loadings(parameters, np.zeros((d, e, e)), np.log(parameters.noise))
        return _state_after(self.expect(point, law), parameters)


def fit_around(
    site: Site, state: LatentSums, law: LatentLaw, *, n_iterations: int = 15
) -> tuple[LocalFit, LatentSums, LatentLaw, Expectation]:
    """Fit one site's parameters, noise and case mix given the global law.

    Parameters
    ----------
    site : Site
    state : LatentSums
        From the last round, or from :meth:`Site.start`.
    law : LatentLaw
        Case mix of the site.
    n_iterations : int, default 15

    Returns
    -------
    fit : LocalFit
        Its objective is the site's term of the bound, after each iteration and at the end.
    state : LatentSums
    law : LatentLaw
    expectation : Expectation
        The last E-step; the coordinator reads the moments of the latents.
    """
    values = []
    for _ in range(n_iterations):
        loadings = update_loadings(site, state)
        loadings, law = _align(site, loadings, law)
        expectation = site.expect(loadings, law)
        values.append(_bound(site, loadings, expectation, law))
        law = expectation.law.shrunk(expectation.n_rows, site.case_mix_weight)
        state = _state_after(expectation, loadings.parameters)
    before = update_loadings(site, state)
    expectation = site.expect(before, law)
    state = _state_after(expectation, before.parameters)
    loadings = update_loadings(site, state)
    # Given the moments of the latents, the bound changes by the terms of the loadings and the noise only.
    gain = _fit_of_rows(site, loadings, state) - _fit_of_rows(site, before, state)
    values.append(_bound(site, loadings, replace(expectation, log_normaliser=expectation.log_normaliser + gain), law))
    views = np.logical_or.reduceat(site.features, site.layout.starts)
    fit = LocalFit(loadings.parameters, views, np.array(values), _spread(site, loadings, views), loadings.log_noise)
    return fit, state, law, expectation


def _state_after(expectation: Expectation, at: Parameters) -> LatentSums:
    return LatentSums(expectation.cross, expectation.second, expectation.squares, at.mean, at.noise)


def update_loadings(site: Site, state: LatentSums) -> Loadings:
    """Update the posterior of [W, mu], then that of the noise, given moments of the latents."""
    layout, features = site.layout, site.features
    q = state.cross.shape[1] - 1
    second = _second_of(state, layout)
    ridge = site.precisions(q)
    # Features that the site lacks keep the centre of the prior.
    precision = np.where(features[:, None, None], second / state.noise[:, None, None], np.eye(q + 1))
    precision = precision + np.where(features[:, None], ridge, 0.0)[:, :, None] * np.eye(q + 1)
    target = site.centre() - np.column_stack([np.zeros((len(features), q)), state.reference])
    covariance = _invert_alike(precision, state.noise, layout, len(state.second))
    right = state.cross / state.noise[:, None] + ridge * np.nan_to_num(target)
    rows = np.einsum("da,dab->db", right, covariance)
    parameters = Parameters(
        np.where(features[:, None], rows[:, :q], site.prior.loadings),
        np.where(features, state.reference + rows[:, q], site.prior.mean),
        state.noise,
    )
    counted = features & site.is_proper
    posterior = Loadings(parameters, np.where(counted[:, None, None], covariance, 0.0), np.log(state.noise))
    return _update_noise(site, posterior, state)


def _second_of(state: LatentSums, layout: Layout) -> Floats:
    return state.second if len(state.second) == layout.n_features else state.second[layout.view_of]


def _invert_alike(precision: Floats, noise: Floats, layout: Layout, n_matrices: int) -> Floats:
    """Invert one matrix per view where those of its features are equal."""
    starts, of = layout.starts, layout.view_of
    if n_matrices == layout.n_views and bool((noise == noise[starts][of]).all()):
        return np.asarray(np.linalg.inv(precision[starts])[of])
    return np.asarray(np.linalg.inv(precision))


def _residual_squares(loadings: Loadings, state: LatentSums, layout: Layout) -> Floats:
    """Return expected sums of squared residuals, shape (d,)."""
    second = _second_of(state, layout)
    rows = np.column_stack([loadings.parameters.loadings, loadings.parameters.mean - state.reference])
    model = np.einsum("da,dab->db", rows, second)
    squares = state.squares + (rows * (model - 2.0 * state.cross)).sum(axis=1)
    return np.asarray(squares + np.einsum("dab,dab->d", loadings.covariance, second))


def _noise_shape(site: Site, state: LatentSums) -> tuple[Floats, Floats]:
    """Return entries behind each noise variance, and the shape of its posterior, shape (d,) each."""
    of, entries = site.layout.view_of, _second_of(state, site.layout)[:, -1, -1]
    if site.noise == "isotropic":
        entries = np.add.reduceat(entries, site.layout.starts)[of]
    return entries, site.prior.noise_shape[of] + 0.5 * entries


def _update_noise(site: Site, loadings: Loadings, state: LatentSums) -> Loadings:
    of, starts = site.layout.view_of, site.layout.starts
    squares, floor = _residual_squares(loadings, state, site.layout), state.squares
    entries, shape = _noise_shape(site, state)
    if site.noise == "isotropic":
        squares, floor = (np.add.reduceat(each, starts)[of] for each in (squares, floor))
    held, proper = entries > 0, site.is_proper
    scale = site.prior.noise_scale[of] + 0.5 * squares
    safe = np.where(held, entries, 1.0)
    variance = np.where(proper, scale / np.where(shape > 0, shape, 1.0), squares / safe)
    variance = np.maximum(variance, np.maximum(NOISE_FLOOR * floor / safe, np.finfo(np.float64).tiny))
    logarithm = np.log(variance) + np.where(proper & held, np.log(np.maximum(shape, 1e-300)) - psi(shape), 0.0)
    variance = np.where(held, variance, state.noise)
    parameters = replace(loadings.parameters, noise=variance)
    return replace(loadings, parameters=parameters, log_noise=np.where(held, logarithm, np.log(variance)))


def _fit_of_rows(site: Site, loadings: Loadings, state: LatentSums) -> float:
    """Return the expected log density of the rows given the latents."""
    entries = _second_of(state, site.layout)[:, -1, -1]
    squares = _residual_squares(loadings, state, site.layout) / loadings.parameters.noise
    return -0.5 * float((entries * (LOG_TWO_PI + loadings.log_noise) + squares)[site.features].sum())


def _bound(site: Site, loadings: Loadings, expectation: Expectation, law: LatentLaw) -> float:
    """Return the site's term of the objective."""
    value = expectation.log_normaliser + law.log_prior(site.case_mix_weight, on_mean=False)
    parameters, q = loadings.parameters, loadings.parameters.n_components
    held, proper = site.features, site.features & site.is_proper
    ridge = site.precisions(q)
    deviations = np.where(ridge > 0, loadings.rows - site.centre(), 0.0)
    value -= 0.5 * float((ridge * deviations**2)[held].sum())
    spread = loadings.covariance[proper]
    value -= 0.5 * float(np.einsum("da,daa->", ridge[proper], spread))
    value += 0.5 * float((np.linalg.slogdet(spread)[1] + np.log(ridge[proper]).sum(axis=1) + q + 1.0).sum())
    chosen = proper.copy()
    if site.noise == "isotropic":
        chosen = (
            np.isin(np.arange(len(held)), site.layout.starts)
            & np.logical_or.reduceat(proper, site.layout.starts)[site.layout.view_of]
        )
    state = _state_after(expectation, parameters)
    of = site.layout.view_of[chosen]
    prior_shape, prior_scale = site.prior.noise_shape[of], site.prior.noise_scale[of]
    shape, inverse, logarithm = (
        _noise_shape(site, state)[1][chosen],
        1.0 / parameters.noise[chosen],
        loadings.log_noise[chosen],
    )
    scale = shape / inverse
    expected = prior_shape * np.log(prior_scale) - gammaln(prior_shape)
    expected -= (prior_shape + 1.0) * logarithm + prior_scale * inverse
    entropy = shape + np.log(scale) + gammaln(shape) - (1.0 + shape) * psi(shape)
    return value + float((expected + entropy).sum())


def _align(site: Site, loadings: Loadings, law: LatentLaw) -> tuple[Loadings, LatentLaw]:
    """Move the origin and the axes of the latents to where the priors prefer them; the likelihood stays."""
    parameters, q = loadings.parameters, loadings.parameters.n_components
    proper = site.features & site.is_proper
    if not proper.any():
        return loadings, law
    of = site.layout.view_of[proper]
    W, spread = parameters.loadings[proper], loadings.covariance[proper]
    by_mean = 1.0 / site.prior.mean_variance[of]
    away = parameters.mean[proper] - site.prior.mean[proper]
    left = W.T @ (W * by_mean[:, None]) + np.einsum("d,dab->ab", by_mean, spread[:, :q, :q])
    origin = -np.linalg.solve(left, W.T @ (by_mean * away) + by_mean @ spread[:, :q, q])
    axes = _prior_axes(site, loadings, law)
    change = np.eye(q + 1)
    change[:q, :q], change[:q, q] = axes, origin
    on = site.features[:, None]
    moved = Parameters(
        np.where(on, parameters.loadings @ axes, parameters.loadings),
        np.where(site.features, parameters.mean + parameters.loadings @ origin, parameters.mean),
        parameters.noise,
    )
    inverse = np.linalg.inv(axes)
    covariance = inverse @ law.covariance @ inverse.T
    law = LatentLaw(inverse @ (law.mean - origin), 0.5 * (covariance + covariance.T))
    return replace(loadings, parameters=moved, covariance=change.T @ loadings.covariance @ change), law


def _prior_axes(site: Site, loadings: Loadings, law: LatentLaw) -> Floats:
    """Do a Newton step for the axes T at which ``c ln|T| - tr(T' M T)/2 + tr(T' N)`` is largest, shape (q, q)."""
    parameters, q, weight = loadings.parameters, loadings.parameters.n_components, site.case_mix_weight
    held, proper = site.features, site.features & site.is_proper
    W, ridge, identity = parameters.loadings[held], site.precisions(q)[held, 0], np.eye(q)
    M = W.T @ (W * ridge[:, None]) + np.einsum("d,dab->ab", ridge, loadings.covariance[held][:, :q, :q])
    M += weight * np.linalg.inv(law.covariance)
    N = parameters.loadings[proper].T @ (site.prior.loadings[proper] * site.precisions(q)[proper, :1])
    c = float(proper.sum()) + weight

    def value(T: Floats) -> float:
        sign, log_volume = np.linalg.slogdet(T)
        return c * float(log_volume) - float(np.sum(T * (0.5 * M @ T - N))) if sign > 0 else -np.inf

    slope = c * identity - M + N
    swap = np.einsum("ad,bc->abcd", identity, identity).reshape(q * q, q * q)
    step = np.linalg.solve(np.kron(M, identity) + c * swap, slope.ravel()).reshape(q, q)
    start = value(identity)
    for _ in range(MAX_HALVINGS):
        if value(identity + step) >= start:
            return identity + step
        step = 0.5 * step
    return identity


def _spread(site: Site, loadings: Loadings, views: Booleans) -> PosteriorSpread:
    """Return the posterior variances, summed by view, and the share of a difference that remains after shrinkage."""
    q, layout = loadings.parameters.n_components, site.layout
    covariance, ridge = loadings.covariance, site.precisions(q)
    weight = np.eye(q + 1) - ridge[:, :, None] * covariance
    free = weight[:, :q, :q]
    terms = np.stack(
        [
            np.trace(covariance[:, :q, :q], axis1=1, axis2=2),
            covariance[:, q, q],
            (free * free.transpose(0, 2, 1)).sum(axis=(1, 2)),
            weight[:, q, q] ** 2,
        ]
    )
    by_view = np.add.reduceat(terms, layout.starts, axis=1) * views
    average = np.add.reduceat(weight, layout.starts, axis=0) / np.asarray(layout.sizes)[:, None, None]
    loadings_sum, mean_sum, loadings_information, mean_information = by_view
    return PosteriorSpread(
        loadings_sum, mean_sum, loadings_information, mean_information, average * views[:, None, None]
    )
