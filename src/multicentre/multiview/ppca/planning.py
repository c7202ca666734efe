"""Settings of the rounds of Fed-mv-PPCA, from the parameters of the estimator and what the sites agreed on."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from multicentre.multiview.agreement import Agreement
from multicentre.multiview.ppca.maths.model import Floats, Layout, NoiseModel
from multicentre.multiview.ppca.rounds import Plan

# Sites with a view from which the variance of its intercepts is estimated: with three, two degrees of freedom are left
# after the common mean.
MIN_SITES = 3
# First variance of the intercepts, as a share of the view's variance. Only the first rounds depend on it; 0 would stay.
FIRST_INTERCEPTS = 0.1
# The shared fit is only the start of a hierarchical one.
FIRST_TOL = 10.0


class Parameters(Protocol):
    """Parameters of the estimator that the settings depend on."""

    max_iter: int
    n_local_iter: int
    tol: float
    method: str
    noise: NoiseModel
    ard: bool
    ddof: int
    random_state: int
    loadings_sd: float
    epsilon: float | None
    case_mix_weight: float
    site_intercepts: bool


def plan_fit(estimator: Parameters, agreement: Agreement, n_components: int, spread: Floats) -> Plan:
    """Return the settings of a fit; `spread` is what the columns are divided by, shape (d,)."""
    layout = Layout(agreement.views, tuple(agreement.sizes.values()))
    variance = (agreement.deviation / spread) ** 2
    by_view = np.asarray(np.add.reduceat(variance, layout.starts) / layout.sizes)
    return Plan(
        layout=layout,
        n_components=n_components,
        max_iter=int(estimator.max_iter),
        n_local_iter=int(estimator.n_local_iter),
        tol=estimator.tol,
        shared_tol=estimator.tol * (FIRST_TOL if estimator.method == "hierarchical" else 1.0),
        noise=estimator.noise,
        loadings_variance=_loadings_variance(estimator, by_view),
        ard=estimator.ard,
        ddof=estimator.ddof,
        seed=int(estimator.random_state),
        # Counts of sites are decoded from masked sums: halfway between one site and two.
        several=np.asarray(agreement.sites) > 1.5,
        first_intercepts=_first_intercepts(estimator, agreement, layout, by_view),
    )


def _loadings_variance(estimator: Parameters, by_view: Floats) -> Floats | None:
    """Return the prior variance of a loading of each view, shape (k,); None for no prior."""
    if not np.isfinite(estimator.loadings_sd) or (estimator.epsilon is None and not estimator.case_mix_weight):
        return None
    return np.asarray(estimator.loadings_sd**2 * by_view)


def _first_intercepts(estimator: Parameters, agreement: Agreement, layout: Layout, by_view: Floats) -> Floats:
    """Return the first variance of the sites' intercepts, shape (d,); 0 for views of too few sites."""
    # Counts of sites are decoded from masked sums: halfway between two integers.
    wanted = (agreement.sites > MIN_SITES - 0.5) & estimator.site_intercepts
    return np.asarray(FIRST_INTERCEPTS * np.where(wanted, by_view, 0.0)[layout.view_of])
