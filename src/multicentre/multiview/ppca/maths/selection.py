"""Criteria for the number of latent dimensions: WAIC by exact Gibbs sampling at the sites, BIC from the fit.

WAIC compares models on the rows they were fitted on, so its draws must account for the fit: each site draws its
parameters given its own rows under flat priors. Draws around parameters fitted on the same rows would not,
and the largest q would be selected. Flat priors give a proper posterior only when a site has at least d + q + 2 rows.

References
----------
Gelman, Hwang and Vehtari (2014), Understanding predictive information criteria for Bayesian models;
Liu and Wu (1999), Parameter expansion for data augmentation; Balelli et al. (2021), section 4.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from multicentre.core.tie_breaking import first_least
from multicentre.errors import ConfigurationError, DataError
from multicentre.multiview.ppca.maths.model import Floats, Integers, Layout, NoiseModel, Parameters
from multicentre.multiview.ppca.maths.moments import Rows, multiply_grouped, sum_outer_grouped
from multicentre.multiview.ppca.maths.predict import project_rows


@dataclass(frozen=True)
class WAICParts:
    """Terms of a site in the federation's WAIC.

    Parameters
    ----------
    lppd : float
        Log pointwise predictive density, in nats.
    p_waic : float
        Effective number of parameters: variance of the rows' log-likelihoods over draws.
    n_rows : int
    """

    lppd: float
    p_waic: float
    n_rows: int

    def __add__(self, other: WAICParts) -> WAICParts:
        return WAICParts(self.lppd + other.lppd, self.p_waic + other.p_waic, self.n_rows + other.n_rows)

    @property
    def waic(self) -> float:
        """``-2 (lppd - p_waic)``; smaller is better."""
        return -2 * (self.lppd - self.p_waic)


class _RowwiseMoments:
    """Mean density and variance of log density of every row, over draws, in one pass."""

    def __init__(self, n: int) -> None:
        self.n_draws = 0
        self.log_sum = np.full(n, -np.inf)
        self.mean = np.zeros(n)
        self.scatter = np.zeros(n)

    def add(self, log_likelihood: Floats) -> None:
        self.n_draws += 1
        self.log_sum = np.logaddexp(self.log_sum, log_likelihood)
        step = log_likelihood - self.mean
        self.mean += step / self.n_draws
        self.scatter += step * (log_likelihood - self.mean)

    def parts(self) -> WAICParts:
        lppd = self.log_sum - np.log(self.n_draws)
        variance = self.scatter / (self.n_draws - 1)
        return WAICParts(float(lppd.sum()), float(variance.sum()), len(self.mean))


class GibbsSampler:
    """Exact draws of (W, mu, s) given one site's rows, under flat priors (1/s for the noise variances).

    Each sweep draws the latent positions, moves along the group of affine maps of the latent space, which leave
    the fit of the rows unchanged (without it the chain hardly moves when the noise is small), and draws W, mu
    and s from their conjugate laws.

    Parameters
    ----------
    X : array of shape (n, d)
        Rows, NaN where an entry or a view is missing.
    layout : Layout
        One noise variance a view.
    start : Parameters
        Start of the chain, preferably the site's maximum likelihood.
    rng : numpy.random.Generator
    """

    def __init__(self, X: Floats, layout: Layout, start: Parameters, rng: np.random.Generator) -> None:
        self.layout = layout
        self.rng = rng
        self.centre = start.mean
        self.rows = Rows.read(X - self.centre)
        self.parameters = Parameters(start.loadings, np.zeros_like(start.mean), start.noise)
        self.squares = np.square(self.rows.values).sum(axis=0)
        self.sizes = _entries_per_view(self.rows, layout)
        kinds, self.kind_of = _kinds_of_features(self.rows)
        self.held_by = kinds.astype(np.float64)
        self.projection = project_rows(self.rows, self.parameters)

    @property
    def row_log_likelihood(self) -> Floats:
        """Log density of every row at the current draw, shape (n,)."""
        return self.projection.log_likelihood

    @property
    def draw(self) -> Parameters:
        """The current draw of the parameters."""
        now = self.parameters
        return Parameters(now.loadings, now.mean + self.centre, now.noise)

    def sweep(self) -> None:
        """Move to the next draw."""
        z = np.hstack([self._move_latent(self._draw_latent()), np.ones((len(self.rows.values), 1))])
        cross = self.rows.values.T @ z
        by_pattern = sum_outer_grouped(z, self.rows.pattern_of, len(self.rows.patterns))
        width = z.shape[1]
        second = (self.held_by @ by_pattern.reshape(len(by_pattern), -1)).reshape(-1, width, width)
        self.parameters = self._draw_parameters(cross, second)
        self.projection = project_rows(self.rows, self.parameters)

    def _draw_latent(self) -> Floats:
        now = self.projection
        noise = self.rng.standard_normal(now.mean.shape)
        return now.mean + multiply_grouped(noise, now.roots, self.rows.pattern_of)

    def _move_latent(self, x: Floats) -> Floats:
        """Draw a shift and a linear map of the latent space from their law given the rows' positions."""
        n, q = x.shape
        x = x - x.mean(axis=0) - self.rng.standard_normal(q) / np.sqrt(n)
        scatter_root = np.linalg.cholesky(x.T @ x)
        bartlett = np.tril(self.rng.standard_normal((q, q)), -1)
        degrees = n - self.layout.n_features - np.arange(q)
        bartlett[np.diag_indices(q)] = np.sqrt(self.rng.chisquare(degrees))
        return np.asarray(np.linalg.solve(scatter_root, x.T).T @ bartlett)

    def _draw_parameters(self, cross: Floats, second: Floats) -> Parameters:
        lower = np.linalg.cholesky((second + second.transpose(0, 2, 1)) / 2)
        roots = np.linalg.inv(lower)
        half = multiply_grouped(cross, roots.transpose(0, 2, 1), self.kind_of)
        best = self.squares - np.square(half).sum(axis=1)
        residual = np.add.reduceat(best, self.layout.starts)
        degrees = self.sizes - np.asarray(self.layout.sizes) * second.shape[1]
        noise = (residual / self.rng.chisquare(degrees))[self.layout.view_of]
        shock = self.rng.standard_normal(half.shape) * np.sqrt(noise)[:, None]
        F = multiply_grouped(half + shock, roots, self.kind_of)
        return Parameters(F[:, :-1], F[:, -1], noise)


def _entries_per_view(rows: Rows, layout: Layout) -> Floats:
    sizes = np.bincount(rows.pattern_of, minlength=len(rows.patterns)).astype(np.float64)
    return np.asarray(np.add.reduceat(sizes @ rows.patterns, layout.starts))


def _kinds_of_features(rows: Rows) -> tuple[Floats, Integers]:
    """Group the features that the same rows hold: which patterns hold each kind, and the kind of each feature."""
    kinds, kind_of = np.unique(rows.patterns.T, axis=0, return_inverse=True)
    return kinds.astype(np.float64), kind_of.reshape(-1).astype(np.int64)


def require_enough_rows(X: Floats, n_components: int) -> None:
    """Refuse rows for which flat priors give no proper posterior.

    The likelihood falls as ``|W|^-n`` when W grows in its d x q space, so the mass is finite only for more than
    d + q - 1 rows; every feature also needs q + 2 rows that hold it.

    Raises
    ------
    DataError
    """
    n, d = X.shape
    held = int(np.min((~np.isnan(X)).sum(axis=0)))
    if n < d + n_components + 2 or held < n_components + 2:
        raise DataError(
            f"patients must be at least {d + n_components + 2} for the WAIC, and {n_components + 2} with each column; "
            "got fewer",
            where="model selection",
            hint="Choose q by BIC or by held-out likelihood, or leave this site's WAIC out.",
        )


def waic_parts(
    X: Floats,
    layout: Layout,
    start: Parameters,
    rng: np.random.Generator,
    *,
    noise: NoiseModel = "isotropic",
    n_draws: int = 400,
    n_burn: int = 100,
) -> WAICParts:
    """Draw a site's parameters given its rows and return the mean and the variance of the log densities of the rows.

    Parameters
    ----------
    X : array of shape (n, d)
        The site's rows over the views it has, NaN where missing.
    layout : Layout
        The views of the columns of `X`.
    start : Parameters
        Start of the chain, preferably the site's maximum likelihood.
    rng : numpy.random.Generator
        Random stream of the draws.
    noise : {"isotropic", "diagonal"}, default "isotropic"
        One noise variance per view, or one per feature.
    n_draws : int, default 400
        Draws after the burn-in, at least 2.
    n_burn : int, default 100
        Discarded draws at the beginning.

    Returns
    -------
    WAICParts
        Two numbers and a count; the federation's WAIC is that of their sum over sites.

    Raises
    ------
    DataError
        When the site has fewer than d + q + 2 rows.
    ConfigurationError
        When `n_draws` is below 2.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> start = Parameters(np.ones((3, 1)), np.zeros(3), np.ones(3))
    >>> rows = rng.standard_normal((60, 1)) + rng.standard_normal((60, 3))
    >>> parts = waic_parts(rows, Layout(("mri",), (3,)), start, rng)
    >>> 4 < parts.p_waic < 12, parts.n_rows
    (True, 60)
    """
    if n_draws < 2:
        raise ConfigurationError(
            f"n_draws must be at least 2, since a variance needs two draws; got {n_draws}",
            where="n_draws",
            hint="Use 400, the default.",
        )
    X = X[~np.isnan(X).all(axis=1)]
    require_enough_rows(X, start.n_components)
    if noise == "diagonal":
        layout = Layout(tuple(str(j) for j in range(layout.n_features)), (1,) * layout.n_features)
    sampler = GibbsSampler(X, layout, start, rng)
    moments = _RowwiseMoments(len(X))
    for sweep in range(n_burn + n_draws):
        sampler.sweep()
        if sweep >= n_burn:
            moments.add(sampler.row_log_likelihood)
    return moments.parts()


def count_parameters(layout: Layout, n_components: int, *, n_noise: int | None = None) -> int:
    """Count the free parameters of the model of a stacked row.

    ``d q - q (q - 1) / 2 + d + k``: loadings up to rotation, means, one noise variance per view.

    Parameters
    ----------
    layout : Layout
        The views.
    n_components : int
        Latent dimensions q.
    n_noise : int, optional
        Number of noise variances; the number of views by default, d for one per feature.

    Examples
    --------
    >>> count_parameters(Layout(("mri", "pet"), (4, 3)), 2)
    22
    """
    d, q = layout.n_features, n_components
    noise = layout.n_views if n_noise is None else n_noise
    return d * q - q * (q - 1) // 2 + d + noise


def select_lowest(criterion: Mapping[int, float]) -> int:
    """Return the number of latent dimensions with the lowest criterion; of ties the first.

    Examples
    --------
    >>> select_lowest({1: 9.0, 2: 7.0, 3: 8.0})
    2
    """
    return list(criterion)[int(first_least(list(criterion.values())))]


def compute_bic(log_likelihood: float, n_parameters: int, n_rows: int) -> float:
    """Return the Bayesian information criterion, ``p ln n - 2 L``; smaller is better.

    Examples
    --------
    >>> round(compute_bic(-100.0, 3, 50), 3)
    211.736
    """
    return float(n_parameters * np.log(n_rows) - 2 * log_likelihood)
