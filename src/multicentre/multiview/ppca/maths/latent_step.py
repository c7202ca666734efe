"""Step of the origin and the units of the latents around a global law, from sums over sites.

With ``x = a + A x'``, loadings become W A and means mu + W a, at every site and in the global law, and the likelihood
of the rows stays the same. Only the priors depend on a and A. Where the noise is small, the latents of a round decide
the loadings almost exactly, and the rounds alone change a and A by a share of the noise each: this step does it at once
(parameter expansion, Liu and Wu 1999).

The slopes are those of the objective along a and A. Its curvature is that of Fisher scoring for the shape of A and the
origin. The variance of the loadings follows the scale of A, which leaves the scale to the priors of the case mixes and
of the global loadings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from multicentre.multiview.ppca.maths.gauge import prior_units
from multicentre.multiview.ppca.maths.model import Floats, LatentLaw, Layout
from multicentre.multiview.ppca.maths.prior import Prior, PriorSums

# Longest step of the origin, in standard deviations of the latents, which is the spread of the patients.
LONGEST = 1.0


@dataclass(frozen=True)
class LatentSlopes:
    """Terms of the sums over sites that decide the origin and the units of the latents.

    Parameters
    ----------
    products : array of shape (k, q + 1, q + 1)
        Products of the differences of ``[w_j, mu_j]`` to the global ones, summed over the features of a view.
    latent_pull : array of shape (q, q)
        Slope of the priors of the case mixes along the logarithm of the scale of the latents.
    latent_weight : float
        Curvature of these priors, in patients.
    """

    products: Floats
    latent_pull: Floats
    latent_weight: float


def multiply_differences(loadings: Floats, mean: Floats, layout: Layout) -> Floats:
    """Sum products of the differences of ``[w_j, mu_j]`` over the features of each view, shape (k, q + 1, q + 1).

    Examples
    --------
    >>> products = multiply_differences(np.array([[1.0], [2.0]]), np.array([3.0, 0.0]), Layout(("mri",), (2,)))
    >>> products.tolist()
    [[[5.0, 3.0], [3.0, 9.0]]]
    """
    rows = np.column_stack([loadings, mean])
    return np.add.reduceat(rows[:, :, None] * rows[:, None, :], layout.starts, axis=0)


@dataclass(frozen=True)
class _ViewTerms:
    """Terms of the views with a proper global law: slopes and curvatures of the shape, the scale and the origin."""

    shape: Floats
    decided: float
    scale: Floats
    origin: Floats
    information: Floats


def step_latents(
    slopes: LatentSlopes, sums: PriorSums, prior: Prior, layout: Layout, *, centre_variance: Floats, reml: bool
) -> LatentLaw:
    """Return the next origin and units of the latents, in present units: their law that becomes the standard one.

    Parameters
    ----------
    slopes : LatentSlopes
        Over sites.
    sums : PriorSums
        Over sites.
    prior : Prior
        As broadcast.
    layout : Layout
    centre_variance : array of shape (k,)
        Variance of the prior, about zero, of the global loadings; infinite for none.
    reml : bool
        The objective integrates the centre out.
    """
    q = prior.loadings.shape[1]
    terms = _sum_views(slopes, sums, prior, layout, reml=reml)
    # At most one standard deviation per site: the origin drifts where the sites' loadings hardly differ otherwise.
    system = terms.information + max(1.0, float(sums.sites.max())) * np.eye(q)
    origin = np.linalg.solve(system, terms.origin)
    origin = origin / max(1.0, float(np.linalg.norm(origin)) / LONGEST)
    if not slopes.latent_weight:
        # Without a prior of the case mixes, nothing decides the scale.
        return LatentLaw(np.asarray(origin), np.eye(q))
    ridge = prior.loadings.T @ (prior.loadings / centre_variance[layout.view_of, None])
    pull = slopes.latent_pull + terms.scale
    shape = prior_units(pull + terms.shape, slopes.latent_weight + terms.decided, ridge)
    shape = shape / np.exp(np.linalg.slogdet(shape)[1] / q)
    average = np.array([[np.trace(pull) / q]]), slopes.latent_weight, np.array([[np.trace(shape @ ridge) / q]])
    return LatentLaw(np.asarray(origin), float(prior_units(*average)[0, 0]) * shape)


def _sum_views(slopes: LatentSlopes, sums: PriorSums, prior: Prior, layout: Layout, *, reml: bool) -> _ViewTerms:
    """Sum over views with a proper global law; `weight` is the share of a difference that the data decide."""
    q = prior.loadings.shape[1]
    identity = np.eye(q)
    shape, scale, information = np.zeros((q, q)), np.zeros((q, q)), np.zeros((q, q))
    origin, decided = np.zeros(q), 0.0
    for k in map(int, np.flatnonzero((sums.sites > 0.5) & np.isfinite(prior.mean_variance))):
        size, sites, by_mean = layout.sizes[k], sums.sites[k], prior.mean_variance[k]
        weight, products = 0.5 * (sums.weight[k] + sums.weight[k].T)[:q, :q], slopes.products[k]
        row, share = sums.weight[k, q, :q], weight / sites
        slope = size * weight - products[:q, :q] / prior.loadings_variance[k]
        shape += slope - np.trace(slope) / q * identity
        decided += size * sites * float(np.trace(share @ share)) / q
        left = 1.0
        if reml:
            scale += size * (identity - share + np.trace(share) / q * identity)
            left -= 1.0 / max(sites, 2.0)
        ratio = prior.loadings_variance[k] / by_mean
        origin += left * size * row - products[q, :q] / by_mean
        information += left * size * (ratio * sums.weight[k, q, q] * share + np.outer(row, row) / sites)
    return _ViewTerms(shape, decided, scale, origin, information)
