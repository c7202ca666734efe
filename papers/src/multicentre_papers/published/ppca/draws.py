"""Draws of a centre's parameters from the global law."""

from __future__ import annotations

import numpy as np

from multicentre.multiview.ppca.maths.model import Floats, Layout, Parameters
from multicentre.multiview.ppca.maths.prior import Prior


def draw_parameters(prior: Prior, layout: Layout, rng: np.random.Generator) -> Parameters:
    """Draw the loadings, mean and noise of one centre; a flat law gives its centre.

    Parameters
    ----------
    prior : Prior
        Global law of the parameters.
    layout : Layout
        Views and their columns.
    rng : numpy Generator
        Random stream of the draw.
    """
    per_feature = len(prior.noise) == layout.n_features
    view = layout.view_of if per_feature else np.arange(layout.n_views)
    proper = (prior.noise_shape > 0)[view]
    inverse = rng.gamma(np.where(proper, prior.noise_shape[view], 1.0))
    noise = np.where(proper, prior.noise_scale[view] / inverse, prior.noise)
    return Parameters(
        prior.loadings + _spread(prior.loadings_variance, layout)[:, None] * rng.standard_normal(prior.loadings.shape),
        prior.mean + _spread(prior.mean_variance, layout) * rng.standard_normal(prior.mean.shape),
        noise if per_feature else noise[layout.view_of],
    )


def _spread(variance: Floats, layout: Layout) -> Floats:
    return np.sqrt(np.where(np.isfinite(variance), variance, 0.0))[layout.view_of]
