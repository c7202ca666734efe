"""Global law of the sites' parameters, from sums over sites (Balelli et al. 2021, equations 4 to 6).

The sums travel in units that fixed-point numbers can carry. As the variances between sites shrink, the parameters of a
site approach the global ones, and so does every sum of their differences. Divided by the share of a difference that
remains at a typical site, the sums stay of order one.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
from scipy.special import polygamma, psi

from multicentre.multiview.ppca.maths.model import Booleans, Floats, Layout, Parameters

# Largest shape of the inverse gamma law, at which noise variances differ between sites by one in a hundred (one over
# the root of the shape). A larger one would outweigh the patients, since the prior counts as twice as many entries.
MAX_SHAPE = 1e4


def fit_inverse_gamma(mean_inverse: Floats, mean_log: Floats) -> tuple[Floats, Floats]:
    """Maximise the likelihood of an inverse gamma law from the means of 1/s and of ln s.

    Newton's method on the inverse of the shape; ln a - digamma(a) = ln mean(1/s) + mean(ln s) decides the shape
    and shape / mean(1/s) the scale. The shape is ``MAX_SHAPE`` when all s are equal or nearly so.

    Parameters
    ----------
    mean_inverse, mean_log : arrays of the same shape

    Returns
    -------
    shape, scale : arrays

    Examples
    --------
    >>> import numpy as np
    >>> shape, scale = fit_inverse_gamma(np.array([0.5]), np.array([np.log(2.0)]))
    >>> shape.tolist(), scale.tolist()
    ([10000.0], [20000.0])
    """
    inverse = np.where(mean_inverse > 0, mean_inverse, 1.0)
    gap = np.log(inverse) + mean_log
    spread = gap > 0.5 / MAX_SHAPE
    target = np.where(spread, gap, 1.0)
    shape = (3.0 - target + np.sqrt((target - 3.0) ** 2 + 24.0 * target)) / (12.0 * target)
    for _ in range(8):
        error = np.log(shape) - psi(shape) - target
        slope = 1.0 / shape - polygamma(1, shape)
        inverse_shape = 1.0 / shape + error / (shape**2 * slope)
        shape = 1.0 / np.maximum(inverse_shape, 0.1 / shape)
    shape = np.where(spread, np.minimum(shape, MAX_SHAPE), MAX_SHAPE)
    return shape, shape / inverse


# Smallest variance between sites, as a share of the mean squared loading or of the noise.
VARIANCE_FLOOR = 1e-6


@dataclass(frozen=True)
class Prior:
    """The law from which every site's parameters are drawn.

    Parameters
    ----------
    loadings : array of shape (d, q)
        Mean of every site's ``W``.
    mean : array of shape (d,)
        Mean of every site's ``mu``.
    loadings_variance, mean_variance : arrays of shape (k,)
        Variance of every entry of ``W`` and of ``mu`` between sites; infinite where the prior is flat.
    noise_shape, noise_scale : arrays of shape (k,)
        Inverse gamma law of the noise variances, density proportional to s^(-shape-1) exp(-scale/s);
        shape -1 and scale 0 where the prior is flat.
    noise : array of shape (k,) or (d,)
        Mean noise variance over sites, per view, or per feature when the noise is diagonal.
    """

    loadings: Floats
    mean: Floats
    loadings_variance: Floats
    mean_variance: Floats
    noise_shape: Floats
    noise_scale: Floats
    noise: Floats

    @classmethod
    def flat(cls, centre: Parameters, layout: Layout, *, diagonal: bool = False) -> Self:
        """Return the prior without influence; `centre` is only what it reports as its centre."""
        far, k = np.full(layout.n_views, np.inf), layout.n_views
        noise = centre.noise if diagonal else centre.noise[layout.starts]
        return cls(centre.loadings, centre.mean, far, far.copy(), np.full(k, -1.0), np.zeros(k), noise.copy())

    def centre(self, layout: Layout) -> Parameters:
        """Return the global law of a row: mean loadings, mean and noise variances."""
        per_feature = len(self.noise) == layout.n_features
        noise = self.noise if per_feature else self.noise[layout.view_of]
        return Parameters(self.loadings, self.mean, noise)

    def restrict(self, views: Booleans, layout: Layout) -> Self:
        """Return the prior of some views, a mask of shape (k,)."""
        features = views[layout.view_of]
        per_feature = len(self.noise) == layout.n_features
        return type(self)(
            self.loadings[features],
            self.mean[features],
            self.loadings_variance[views],
            self.mean_variance[views],
            self.noise_shape[views],
            self.noise_scale[views],
            self.noise[features if per_feature else views],
        )


@dataclass(frozen=True)
class PosteriorSpread:
    """Posterior uncertainty of a site's parameters, given the prior.

    Parameters
    ----------
    loadings, mean : arrays of shape (k,)
        Sum over the view's entries of their posterior variances.
    loadings_information, mean_information : arrays of shape (k,)
        Squared Frobenius norm of I - T/v, T the posterior covariance and v the prior variance: how many entries
        are determined by the data. Equal to the number of entries where the prior is flat.
    weight : array of shape (k, q + 1, q + 1)
        ``K = I - D T``, D the prior's precisions of ``[w_j, mu_j]``, averaged over the view's features: the share
        of a difference between the site's estimate and the prior's centre that remains after shrinkage.
    """

    loadings: Floats
    mean: Floats
    loadings_information: Floats
    mean_information: Floats
    weight: Floats


@dataclass(frozen=True)
class LocalFit:
    """Result of a local fit, which stays at the site.

    Parameters
    ----------
    parameters : Parameters
        Of the whole layout; features of views that the site lacks keep their starting values.
    views : mask of shape (k,)
        Views that the site has.
    objective : array
        Log posterior density, or its lower bound, after every iteration and at the end.
    spread : PosteriorSpread
    log_noise : array of shape (d,), optional
        Expected logarithms of the noise variances; by default those of their estimates.
    """

    parameters: Parameters
    views: Booleans
    objective: Floats
    spread: PosteriorSpread
    log_noise: Floats | None = None


@dataclass(frozen=True)
class PriorSums:
    """Terms of the sums over sites that give the next global law.

    Differences are to the previous prior; noise variances are in units of the view's mean variance in the
    previous prior, so that the numbers stay within a narrow range. A site sends zeros for the views that it lacks.

    Parameters
    ----------
    sites : array of shape (k,)
        1 per site that has the view.
    loadings : array of shape (d, q)
        Differences of the loadings.
    mean : array of shape (d,)
        Differences of the means.
    loadings_square, mean_square : arrays of shape (k,)
        Squared norms of those differences.
    loadings_spread, mean_spread : arrays of shape (k,)
        Sums of posterior variances, or zero.
    loadings_information, mean_information : arrays of shape (k,)
        See :class:`PosteriorSpread`.
    weight : array of shape (k, q + 1, q + 1)
        See :class:`PosteriorSpread`; the identity where posterior variances are left out.
    weight_loadings, weight_mean : arrays of shape (k, q + 1, q + 1)
        ``K E K`` for the weight K and E the projection on the loadings, or on the mean: curvature in the variances.
    noise : array of shape (k,) or (d,)
        Noise variances.
    noise_inverse, noise_log : arrays of shape (k,)
        Means over the view's features of their inverses and logarithms.
    """

    sites: Floats
    loadings: Floats
    mean: Floats
    loadings_square: Floats
    mean_square: Floats
    loadings_spread: Floats
    mean_spread: Floats
    loadings_information: Floats
    mean_information: Floats
    weight: Floats
    weight_loadings: Floats
    weight_mean: Floats
    noise: Floats
    noise_inverse: Floats
    noise_log: Floats

    def __add__(self, other: PriorSums) -> PriorSums:
        return PriorSums(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


def site_contribution(
    local: LocalFit, previous: Prior, layout: Layout, *, posterior_variance: bool = True
) -> PriorSums:
    """Write a local fit as the terms of the sums that the coordinator needs.

    Parameters
    ----------
    local : LocalFit
    previous : Prior
        The prior that the site was sent.
    layout : Layout
    posterior_variance : bool, default True
        Add the site's posterior variances to the squared norms (empirical Bayes). Without it the alternation is the
        paper's, whose variances shrink to zero in a few rounds.

    Returns
    -------
    PriorSums
    """
    is_held = local.views.astype(np.float64)
    on_features = is_held[layout.view_of]
    shift = (local.parameters.loadings - previous.loadings) * on_features[:, None]
    offset = (local.parameters.mean - previous.mean) * on_features
    ratio = local.parameters.noise / _noise_of_view(previous.noise, layout)[layout.view_of]
    sizes = np.asarray(layout.sizes, dtype=np.float64)
    entries = sizes * shift.shape[1]
    spread, counted = local.spread, is_held if posterior_variance else 0.0 * is_held
    per_feature = len(previous.noise) == layout.n_features
    q = shift.shape[1]
    weight = np.where((counted > 0)[:, None, None], spread.weight, np.eye(q + 1)) * is_held[:, None, None]
    log_noise = np.log(local.parameters.noise) if local.log_noise is None else local.log_noise
    log_ratio = log_noise - np.log(_noise_of_view(previous.noise, layout))[layout.view_of]
    return PriorSums(
        sites=is_held,
        loadings=shift,
        mean=offset,
        loadings_square=_by_view((shift**2).sum(axis=1), layout),
        mean_square=_by_view(offset**2, layout),
        loadings_spread=counted * spread.loadings,
        mean_spread=counted * spread.mean,
        loadings_information=np.where(counted > 0, spread.loadings_information, entries) * is_held,
        mean_information=np.where(counted > 0, spread.mean_information, sizes) * is_held,
        weight=weight,
        weight_loadings=weight[:, :, :q] @ weight[:, :q],
        weight_mean=weight[:, :, q:] @ weight[:, q:],
        noise=ratio * on_features if per_feature else (ratio * on_features)[layout.starts],
        noise_inverse=_by_view(on_features / ratio, layout) / sizes,
        noise_log=_by_view(on_features * log_ratio, layout) / sizes,
    )


def assemble_prior(sums: PriorSums, previous: Prior, layout: Layout, step: Floats, variances: Floats) -> Prior:
    """Return the next global law from the step of its centre and the variances between sites, shape (2, k)."""
    sites, safe = sums.sites, np.maximum(sums.sites, 1.0)
    present, several = sites > 0.5, sites > 1.5
    step = np.where(present[layout.view_of, None], step, 0.0)
    loadings, mean = previous.loadings + step[:, :-1], previous.mean + step[:, -1]
    reference = _noise_of_view(previous.noise, layout)
    of = layout.view_of if len(previous.noise) == layout.n_features else np.arange(layout.n_views)
    noise = np.where(present[of], reference[of] * sums.noise / safe[of], previous.noise)
    sizes = np.asarray(layout.sizes, dtype=np.float64)
    loadings_floor = VARIANCE_FLOOR * _by_view((loadings**2).mean(axis=1), layout) / sizes
    mean_floor = VARIANCE_FLOOR * _noise_of_view(noise, layout)
    shape, scale = fit_inverse_gamma(sums.noise_inverse / safe, sums.noise_log / safe)

    def by_sites(new: Floats, old: Floats, flat: float) -> Floats:
        return np.where(several, new, np.where(present, flat, old))

    floor = np.maximum(loadings_floor, np.finfo(np.float64).tiny)
    return Prior(
        loadings=loadings,
        mean=mean,
        loadings_variance=by_sites(np.maximum(variances[0], floor), previous.loadings_variance, np.inf),
        mean_variance=by_sites(np.maximum(variances[1], mean_floor), previous.mean_variance, np.inf),
        noise_shape=by_sites(shape, previous.noise_shape, -1.0),
        noise_scale=by_sites(scale * reference, previous.noise_scale, 0.0),
        noise=noise,
    )


def _by_view(values: Floats, layout: Layout) -> Floats:
    return np.asarray(np.add.reduceat(values, layout.starts), dtype=np.float64)


def _noise_of_view(noise: Floats, layout: Layout) -> Floats:
    if len(noise) != layout.n_features:
        return noise
    return _by_view(noise, layout) / np.asarray(layout.sizes, dtype=np.float64)


# Patients of a typical site; an order of magnitude suffices, since it only sets units.
TYPICAL_PATIENTS = 100.0


@dataclass(frozen=True)
class PriorUnits:
    """Units by view, arrays of shape (k,): the share that a site keeps of a difference, and the prior variance."""

    loadings_share: Floats
    mean_share: Floats
    loadings_variance: Floats
    mean_variance: Floats

    @classmethod
    def of(cls, prior: Prior, layout: Layout) -> PriorUnits:
        """Return the units that the prior which was broadcast implies; 1 where it is flat."""
        noise = np.add.reduceat(prior.centre(layout).noise, layout.starts) / np.asarray(layout.sizes)
        shares, variances = [], []
        for variance in (prior.loadings_variance, prior.mean_variance):
            proper = np.isfinite(variance)
            finite = np.where(proper, variance, 1.0)
            shares.append(np.where(proper, finite / (finite + noise / TYPICAL_PATIENTS), 1.0))
            variances.append(finite)
        return cls(*shares, *variances)

    def write(self, sums: PriorSums, layout: Layout) -> PriorSums:
        """Return a site's sums in these units."""
        return self._rescaled(sums, layout, 1.0 / self.loadings_share, 1.0 / self.mean_share, write=True)

    def read(self, sums: PriorSums, layout: Layout) -> PriorSums:
        """Return sums over sites in the units of the parameters."""
        return self._rescaled(sums, layout, self.loadings_share, self.mean_share, write=False)

    def read_products(self, products: Floats) -> Floats:
        """Return sums of products of differences, shape (k, q + 1, q + 1), in the units of the parameters."""
        q = products.shape[-1] - 1
        shares = np.column_stack([np.repeat(self.loadings_share[:, None], q, axis=1), self.mean_share])
        return np.asarray(products * shares[:, :, None] * shares[:, None, :])

    def _rescaled(self, sums: PriorSums, layout: Layout, loadings: Floats, mean: Floats, *, write: bool) -> PriorSums:
        q = sums.loadings.shape[1]
        of = layout.view_of
        sizes = np.asarray(layout.sizes, dtype=np.float64)
        columns = np.column_stack([np.repeat(loadings[:, None], q, axis=1), mean])
        turn = _write_spread if write else _read_spread
        return replace(
            sums,
            loadings=sums.loadings * loadings[of, None],
            mean=sums.mean * mean[of],
            loadings_square=sums.loadings_square * loadings**2,
            mean_square=sums.mean_square * mean**2,
            loadings_spread=turn(sums.loadings_spread, sums.sites * sizes * q, self.loadings_variance, loadings),
            mean_spread=turn(sums.mean_spread, sums.sites * sizes, self.mean_variance, mean),
            loadings_information=sums.loadings_information * loadings**2,
            mean_information=sums.mean_information * mean**2,
            weight=sums.weight * columns[:, None, :],
            weight_loadings=sums.weight_loadings * (columns * loadings[:, None])[:, None, :],
            weight_mean=sums.weight_mean * (columns * mean[:, None])[:, None, :],
        )


def _write_spread(spread: Floats, count: Floats, variance: Floats, factor: Floats) -> Floats:
    """Posterior variances as what they fall short of the prior's, which is all that matters when both are small."""
    return (count - spread / variance) * factor


def _read_spread(short: Floats, count: Floats, variance: Floats, factor: Floats) -> Floats:
    return variance * (count - short * factor)
