"""Federations of small multi-view sites, for tests of Fed-mv-PPCA from end to end."""

import functools
import math

import numpy as np

import multicentre as mc
from multicentre.data import MultiViewData
from multicentre.data.concatenate import concatenate
from multicentre.datasets import simulate_sd, split_scenario
from multicentre_papers.published import FedMvPPCAAsPublished

SIZES = {"blood": 6, "image": 5, "genes": 4}


def small_sites(n_sites=3, n=40, q=2, *, seed=3, lacking=None, hidden=0.0, sizes=SIZES):
    """Draw sites from one law of two latent dimensions; `lacking` names the view that each of them lacks."""
    rng = np.random.default_rng(seed)
    loadings = {view: rng.standard_normal((d, q)) for view, d in sizes.items()}
    sites = {}
    for c in range(n_sites):
        latent = rng.standard_normal((n, q))
        views = {view: latent @ W.T + 1.0 + 0.4 * rng.standard_normal((n, len(W))) for view, W in loadings.items()}
        if hidden:
            views = {view: np.where(rng.random(rows.shape) < hidden, np.nan, rows) for view, rows in views.items()}
        sites[f"site-{c}"] = MultiViewData(
            {view: rows for view, rows in views.items() if (lacking or {}).get(c) != view},
            ids=[f"{c}-{row}" for row in range(n)],
        )
    return sites


def federate(sites, **options):
    """Return an in-process federation."""
    return mc.Federation.in_process(sites, **options)


LIKELIHOOD = {"case_mix_weight": 0.0, "loadings_sd": math.inf, "site_intercepts": False}


def make(n_components=2, *, method="invariant", **parameters):
    """Return an unfitted model by a method of the library, or "as published"."""
    if method == "as published":
        return FedMvPPCAAsPublished(n_components, **parameters)
    return mc.multiview.FedMvPPCA(n_components, method=method, **parameters)


def fit(sites, n_components=2, *, options=None, **parameters):
    """Fit over an in-process federation of `sites`."""
    return make(n_components, **parameters).fit(federate(sites, **(options or {})))


@functools.cache
def split_sd(scenario, n_sites, *, seed=1, n_patients=400, shift="paper"):
    """Return SD's training patients by site, and its held-out patients, a quarter."""
    labelled = simulate_sd(seed, shift, n_patients=n_patients)
    held_out = np.arange(n_patients) % 4 == 0
    sites = split_scenario(labelled.take(~held_out), scenario, n_sites, random_state=0)
    return {name: site.data for name, site in sites.items()}, labelled.take(held_out), labelled.take(~held_out)


def pooled(sites):
    """Return all patients as one site."""
    return {"pooled": concatenate(sites)}


def covariance(model):
    """Covariance of the rows of a patient whose site is not known under a fitted law, in the columns' units."""
    loadings = np.vstack(list(model.loadings_.values()))
    noise, between = (np.concatenate(list(v.values())) for v in (model.noise_variance_, model.intercept_variance_))
    return loadings @ loadings.T + np.diag(noise + between)


def mean(model):
    """Mean of the rows under a fitted law."""
    return np.concatenate(list(model.mean_.values()))


def law(model):
    """Return what a fit says of the rows, as one array: invariant to the axes of the latent space."""
    return np.vstack([covariance(model), mean(model)])
