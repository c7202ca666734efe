"""Rows of one site and the sums over them: moments where views are whole, entries where some are missing.

For entries missing anywhere (at random) EM is exact. With z = [x; 1] and t taken about the current mean, a site's sums
for every feature j, over the rows that hold it, are

    A_j = sum t_j <z>,   Ba_j = sum <z z'>,   D_j = sum t_j^2.

They add over rows, patterns and sites. The loadings and the shift of the mean are then [W, dmu]_j = A_j Ba_j^-1:
:func:`~multicentre.multiview.ppca.maths.invariant.maximise_shared` computes them for all sites. On the sums of one site
under the standard latent law it is PX-EM, which converges to a local maximum of the likelihood.

References
----------
Balelli, Silva and Lorenzi (2021), section 3.3; Tipping and Bishop (1999), Probabilistic principal component analysis;
Liu, Rubin and Wu (1998), Parameter expansion to accelerate EM: the PX-EM algorithm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from multicentre.multiview.ppca.maths.hierarchy import (
    Expectation,
    Site,
    expect_entries,
    expect_patterns,
    fit_around,
)
from multicentre.multiview.ppca.maths.invariant import SharedSums, answer_round
from multicentre.multiview.ppca.maths.model import (
    NOISE_FLOOR,
    Booleans,
    Floats,
    LatentLaw,
    Layout,
    NoiseModel,
    Parameters,
    absorb_law,
    square_root,
)
from multicentre.multiview.ppca.maths.moments import PatternMoments, Rows, reduce_chunks, sum_outer_grouped
from multicentre.multiview.ppca.maths.predict import project_rows
from multicentre.multiview.ppca.maths.prior import LocalFit, Prior
from multicentre.multiview.ppca.maths.start import StartSums, multiply_second_moments, sum_first_moments

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
        intercept_sites=np.asarray(rows.patterns.any(axis=0), dtype=np.float64),
        intercept_total=np.zeros(d),
        intercept_squares=np.zeros(d),
        intercept_information=np.zeros(d),
    )


def sum_entries_around(
    X: Floats, parameters: Parameters, law: LatentLaw, variance: Floats
) -> tuple[SharedSums, LatentLaw]:
    """Do the E-step over observed entries with intercepts of the site, and update the mean of its case mix.

    The posterior of intercepts and latents is approximated by a product (variational EM): the exact one has a precision
    that differs per row. The log-likelihood is then a lower bound. A shift of the case mix against the intercepts,
    which leaves the fit of the rows as it is, is chosen by their priors.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows of one site, NaN where an entry is missing.
    parameters : Parameters
    law : LatentLaw
        Case mix of the site.
    variance : array of shape (d,)
        Variance of the intercepts between sites.

    Returns
    -------
    sums : SharedSums
    law : LatentLaw
        With the new mean and the old covariance.
    """
    q, noise = parameters.n_components, parameters.noise
    counts = (~np.isnan(X)).sum(axis=0).astype(np.float64)
    ratio = 1.0 + variance * counts / noise
    gain, left = 1.0 - 1.0 / ratio, variance / ratio
    residual = np.nansum(X - parameters.mean, axis=0) / np.maximum(counts, 1.0) - parameters.loadings @ law.mean
    first = gain * residual
    sums = sum_entries(X - first, parameters, law)
    latents = sums.second[:, -1, :q]
    excess = sums.cross[:, -1] - (parameters.loadings * latents).sum(axis=1) + counts * first
    mean = gain * excess / np.maximum(counts, 1.0)
    step = mean - first
    squares = sums.squares - 2 * step * sums.cross[:, -1] + counts * step**2 + counts * left
    cross = sums.cross - step[:, None] * sums.second[:, -1, :]
    held, safe = counts > 0, np.where(variance > 0, variance, 1.0)
    score = np.where(variance > 0, mean / safe, 0.0)
    bound = -0.5 * float((counts * left / noise + first**2 / safe - gain + np.log(ratio)).sum())
    latent_mean = sums.latent_first / sums.n_rows
    weighted = np.where((held & (variance > 0))[:, None], parameters.loadings / safe[:, None], 0.0)
    system = weighted.T @ parameters.loadings + np.eye(q)
    shift = np.linalg.solve(system, weighted.T @ mean - latent_mean)
    moved = replace(
        sums,
        cross=cross,
        squares=squares,
        log_likelihood=sums.log_likelihood + bound,
        intercept_total=score,
        intercept_squares=score**2,
        intercept_information=np.where(variance > 0, counts / noise / ratio, 0.0),
    )
    return moved, LatentLaw(np.asarray(latent_mean + shift, dtype=np.float64), law.covariance)


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


def estimate_noise(
    residual_squares: Floats, sums: SharedSums, prior: Prior, layout: Layout, noise: NoiseModel
) -> Floats:
    """Return the modes of the noise variances under the prior, from residual squares of shape (d,)."""
    view_of, counts, squares = layout.view_of, sums.second[:, -1, -1], sums.squares
    if noise == "isotropic":
        residual_squares, counts, squares = (
            np.add.reduceat(each, layout.starts)[view_of] for each in (residual_squares, counts, squares)
        )
    weight = np.maximum(counts, 1.0)
    mode = (residual_squares + 2 * prior.noise_scale[view_of]) / np.maximum(
        counts + 2 * (prior.noise_shape[view_of] + 1), 1.0
    )
    return np.maximum(mode, NOISE_FLOOR * squares / weight)


@dataclass(frozen=True)
class SiteRows:
    """Rows of one site, and the sums over them that its fits need.

    Parameters
    ----------
    blocks : callable
        Yields the rows in the agreed units in blocks of shape (m, d), NaN where missing.
    layout : Layout
    entries : bool
        Treat entries as missing one by one, here or at another site; otherwise views are whole or absent.
    noise : {"isotropic", "diagonal"}
    case_mix_weight : float
        Weight, in patients, of the prior that shrinks the site's latent covariance to the identity.
    """

    blocks: Callable[[], Iterable[Floats]]
    layout: Layout
    entries: bool
    noise: NoiseModel
    case_mix_weight: float

    @cached_property
    def values(self) -> Floats:
        """All rows, shape (n, d), for missing entries and for sampling."""
        return np.concatenate(list(self.blocks()))

    @cached_property
    def observed_features(self) -> Booleans:
        """Mask of the features that at least one row holds, shape (d,)."""
        if self.entries:
            return np.asarray(~np.isnan(self.values).all(axis=0))
        return np.asarray(np.logical_or.reduce([pattern.features for pattern in self.patterns]))

    @property
    def n_rows(self) -> int:
        """Number of rows that the sums count."""
        return len(self.values) if self.entries else sum(pattern.moments.n for pattern in self.patterns)

    @cached_property
    def patterns(self) -> list[PatternMoments]:
        """Moments per pattern of views; missing entries are replaced by column means."""
        return reduce_chunks([self._fill_with_means()] if self.entries else self.blocks(), self.layout)

    def first_moments(self) -> StartSums:
        """Counts, sums and squares for the start."""
        return sum_first_moments(self.patterns, self.layout)

    def multiply_moments(self, directions: Floats, pairs: Floats) -> Floats:
        """Second moments times directions, for the start, shape (d, p)."""
        return multiply_second_moments(self.patterns, self.layout, directions, pairs)

    def answer(
        self,
        shared: Parameters,
        law: LatentLaw,
        *,
        n_repetitions: int = 10,
        intercept_variance: Floats | None = None,
    ) -> tuple[SharedSums, LatentLaw]:
        """Update the site's latent law, once where entries are missing; sums at the new law."""
        if not self.entries:
            return answer_round(
                self.patterns,
                self.layout,
                shared,
                law,
                n_repetitions=n_repetitions,
                case_mix_weight=self.case_mix_weight,
                intercept_variance=intercept_variance,
            )
        sums, moved = self._sum_entries(shared, law, intercept_variance)
        if not n_repetitions:
            return sums, law
        law = moved.shrunk(sums.n_rows, self.case_mix_weight)
        return self._sum_entries(shared, law, intercept_variance)[0], law

    def _sum_entries(
        self, shared: Parameters, law: LatentLaw, intercept_variance: Floats | None
    ) -> tuple[SharedSums, LatentLaw]:
        """Return sums over observed entries, and the case mix that follows from them without its prior."""
        if intercept_variance is None or not intercept_variance.any():
            sums = sum_entries(self.values, shared, law)
            return sums, update_law(sums.latent_first, sums.latent_second, sums.n_rows)
        sums, around = sum_entries_around(self.values, shared, law, intercept_variance)
        moved = update_law(sums.latent_first, sums.latent_second, sums.n_rows)
        return sums, LatentLaw(around.mean, moved.covariance)

    def around(self, prior: Prior, point_variance: Floats | None = None) -> Site:
        """Return the fit of the site's own parameters around a global law."""
        layout = self.layout
        if self.entries:
            expect = partial(expect_entries, self.values)
        else:
            expect = partial(expect_patterns, self.patterns, layout)
        if point_variance is None:
            point_variance = np.full(layout.n_views, np.inf)
        return Site(expect, self.observed_features, layout, prior, self.noise, self.case_mix_weight, point_variance)

    def fit_around(
        self, start: Parameters, law: LatentLaw, prior: Prior, n_iterations: int
    ) -> tuple[LocalFit, LatentLaw, Expectation]:
        """Fit the site's own parameters and case mix around a global law."""
        site = self.around(prior)
        local, _, law, latents = fit_around(site, site.start(start, law), law, n_iterations=n_iterations)
        return local, law, latents

    def _fill_with_means(self) -> Floats:
        filled = self.values.copy()
        means = np.zeros(self.layout.n_features)
        means[self.observed_features] = np.nanmean(filled[:, self.observed_features], axis=0)
        for view in self.layout.names:
            values = filled[:, self.layout.columns(view)]
            holds = ~np.isnan(values).all(axis=1)
            filled[holds, self.layout.columns(view)] = np.where(
                np.isnan(values[holds]), means[self.layout.columns(view)], values[holds]
            )
        return filled
