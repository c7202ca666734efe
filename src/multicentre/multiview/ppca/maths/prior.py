"""The global law of the sites' parameters, from sums over sites alone (Balelli et al. 2021, equations 4 to 6)."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self

import numpy as np
from scipy.special import polygamma, psi

from multicentre.multiview.ppca.maths.model import Booleans, Floats, Layout, Parameters

LARGEST_SHAPE = 1e4


def fit_inverse_gamma(
    mean_inverse: Floats, mean_log: Floats, largest_shape: float = LARGEST_SHAPE
) -> tuple[Floats, Floats]:
    """Maximise the likelihood of an inverse gamma law from the means of 1/s and of ln s.

    Newton's method on the inverse of the shape; ln a - digamma(a) = ln mean(1/s) + mean(ln s) decides the shape
    and shape / mean(1/s) the scale.

    Parameters
    ----------
    mean_inverse, mean_log : arrays of the same shape
    largest_shape : float, default 1e4
        Shape when all s are equal or nearly so.

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
    spread = gap > 0.5 / largest_shape
    target = np.where(spread, gap, 1.0)
    shape = (3.0 - target + np.sqrt((target - 3.0) ** 2 + 24.0 * target)) / (12.0 * target)
    for _ in range(8):
        error = np.log(shape) - psi(shape) - target
        slope = 1.0 / shape - polygamma(1, shape)
        inverse_shape = 1.0 / shape + error / (shape**2 * slope)
        shape = 1.0 / np.maximum(inverse_shape, 0.1 / shape)
    shape = np.where(spread, np.minimum(shape, largest_shape), largest_shape)
    return shape, shape / inverse


VARIANCE_FLOOR = 1e-6

CENTRE_DAMPING = 0.01


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
    """How sure a site is of its own parameters, given the prior.

    Parameters
    ----------
    loadings, mean : arrays of shape (k,)
        Sum over the view's entries of their posterior variances.
    loadings_information, mean_information : arrays of shape (k,)
        Squared Frobenius norm of I - T/v, T the posterior covariance and v the prior variance: how many entries
        the data alone decide. Equal to the number of entries where the prior is flat.
    weight : array of shape (k, q + 1, q + 1)
        ``K = I - D T``, D the prior's precisions of ``[w_j, mu_j]``, averaged over the view's features: the share
        of a difference between the site's own estimate and the prior's centre that is left after shrinkage.
    """

    loadings: Floats
    mean: Floats
    loadings_information: Floats
    mean_information: Floats
    weight: Floats


@dataclass(frozen=True)
class LocalFit:
    """What a site knows after its local fit; nothing here leaves the site as it is.

    Parameters
    ----------
    parameters : Parameters
        Of the whole layout; features of views that the site lacks keep their starting values.
    views : mask of shape (k,)
        Views that the site has.
    objective : array
        Log posterior density at the start of every iteration and at the end.
    spread : PosteriorSpread
    """

    parameters: Parameters
    views: Booleans
    objective: Floats
    spread: PosteriorSpread


@dataclass(frozen=True)
class PriorSums:
    """What sites send, and what the coordinator sees only summed over sites.

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
        Add the site's own uncertainty to the squared norms (empirical Bayes). Without it the alternation is the
        paper's, whose variances shrink to zero in a few rounds.

    Returns
    -------
    PriorSums
    """
    has = local.views.astype(np.float64)
    shown = has[layout.view_of]
    shift = (local.parameters.loadings - previous.loadings) * shown[:, None]
    offset = (local.parameters.mean - previous.mean) * shown
    ratio = local.parameters.noise / _noise_of_view(previous.noise, layout)[layout.view_of]
    sizes = np.asarray(layout.sizes, dtype=np.float64)
    entries = sizes * shift.shape[1]
    spread, keep = local.spread, has if posterior_variance else 0.0 * has
    per_feature = len(previous.noise) == layout.n_features
    return PriorSums(
        sites=has,
        loadings=shift,
        mean=offset,
        loadings_square=_by_view((shift**2).sum(axis=1), layout),
        mean_square=_by_view(offset**2, layout),
        loadings_spread=keep * spread.loadings,
        mean_spread=keep * spread.mean,
        loadings_information=np.where(keep > 0, spread.loadings_information, entries) * has,
        mean_information=np.where(keep > 0, spread.mean_information, sizes) * has,
        weight=np.where((keep > 0)[:, None, None], spread.weight, np.eye(shift.shape[1] + 1)) * has[:, None, None],
        noise=ratio * shown if per_feature else (ratio * shown)[layout.starts],
        noise_inverse=_by_view(shown / ratio, layout) / sizes,
        noise_log=_by_view(shown * np.log(ratio), layout) / sizes,
    )


def maximise_prior(
    sums: PriorSums, previous: Prior, layout: Layout, *, ddof: int = 0, largest_shape: float = LARGEST_SHAPE
) -> Prior:
    """Maximise the likelihood of the global law given the sums over sites (equations 4 to 6).

    With posterior variances in the sums, centre and between-site variances take one step of Fisher scoring on the
    marginal likelihood: sites count for the centre by their precision, and variances that are truly zero are found
    in a few rounds, which EM approaches only sublinearly. As the variances vanish the step becomes that of the
    shared fit. Without them the centre is the mean over sites and the step the paper's closed form.

    Parameters
    ----------
    sums : PriorSums
        Over sites.
    previous : Prior
        The prior to which the sums' differences refer.
    layout : Layout
    ddof : {0, 1}, default 0
        1 divides the squared deviations by C - 1, C sites having the view. Worth it when C is 2 or 3.
    largest_shape : float, default 1e4
        Largest inverse gamma shape; it counts as twice as many features' worth of patients.

    Returns
    -------
    Prior
        A view that no site has this round keeps its prior; a view that one site has gets a flat one.
    """
    sites = sums.sites
    here, several = sites > 0.5, sites > 1.5
    safe = np.maximum(sites, 1.0)
    step = _centre_step(sums, here, layout)
    loadings, mean = previous.loadings + step[:, :-1], previous.mean + step[:, -1]
    reference = _noise_of_view(previous.noise, layout)
    of = layout.view_of if len(previous.noise) == layout.n_features else np.arange(layout.n_views)
    noise = np.where(here[of], reference[of] * sums.noise / safe[of], previous.noise)
    sizes = np.asarray(layout.sizes, dtype=np.float64)
    correction = safe / np.maximum(safe - ddof, 1.0)
    moved = _by_view((sums.loadings**2).sum(axis=1), layout) / safe
    offset = _by_view(sums.mean**2, layout) / safe
    loadings_variance = _step_variance(
        correction * np.maximum(sums.loadings_square - moved, 0.0) + sums.loadings_spread,
        safe * sizes * loadings.shape[1],
        sums.loadings_information,
        previous.loadings_variance,
    )
    mean_variance = _step_variance(
        correction * np.maximum(sums.mean_square - offset, 0.0) + sums.mean_spread,
        safe * sizes,
        sums.mean_information,
        previous.mean_variance,
    )
    loadings_floor = VARIANCE_FLOOR * _by_view((loadings**2).mean(axis=1), layout) / sizes
    noise_floor = VARIANCE_FLOOR * _noise_of_view(noise, layout)
    tiny = np.finfo(np.float64).tiny
    shape, scale = fit_inverse_gamma(sums.noise_inverse / safe, sums.noise_log / safe, largest_shape)

    def settle(new: Floats, old: Floats, flat: float) -> Floats:
        return np.where(several, new, np.where(here, flat, old))

    return Prior(
        loadings=loadings,
        mean=mean,
        loadings_variance=settle(
            np.maximum(loadings_variance, np.maximum(loadings_floor, tiny)), previous.loadings_variance, np.inf
        ),
        mean_variance=settle(np.maximum(mean_variance, noise_floor), previous.mean_variance, np.inf),
        noise_shape=settle(shape, previous.noise_shape, -1.0),
        noise_scale=settle(scale * reference, previous.noise_scale, 0.0),
        noise=noise,
    )


def _centre_step(sums: PriorSums, here: Booleans, layout: Layout) -> Floats:
    """Return ``sum(F_c - F~) (sum K_c)^-1`` per view, damped, shape (d, q + 1).

    Undamped it leads to the generalised least-squares mean at once. Along directions that no site's rows decide, the
    sum of K_c is nearly singular and the step would be noise: there it is drawn to the plain mean's. Fixed points stay.
    """
    moved = np.column_stack([sums.loadings, sums.mean])
    step = np.zeros_like(moved)
    for k in np.flatnonzero(here):
        own = layout.columns(layout.names[k])
        full = sums.sites[k] * np.eye(moved.shape[1])
        weight = sums.weight[k] + CENTRE_DAMPING * (full - sums.weight[k])
        step[own] = np.linalg.solve(weight.T, moved[own].T).T
    return step


def _step_variance(square: Floats, count: Floats, information: Floats, previous: Floats) -> Floats:
    """Return max(0, v + (square - count v) / information), or square/count where the previous v is infinite."""
    start = np.where(np.isinf(previous), 0.0, previous)
    weight = np.where(np.isinf(previous), count, np.maximum(information, 1e-12 * count))
    stepped = start + (square - count * start) / weight
    return np.clip(stepped, 0.0, np.maximum(2.0 * square / count, square / count + 10.0 * start))


def _by_view(values: Floats, layout: Layout) -> Floats:
    return np.asarray(np.add.reduceat(values, layout.starts), dtype=np.float64)


def _noise_of_view(noise: Floats, layout: Layout) -> Floats:
    if len(noise) != layout.n_features:
        return noise
    return _by_view(noise, layout) / np.asarray(layout.sizes, dtype=np.float64)
