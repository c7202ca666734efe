"""Fits of FedMvPPCA never lower their objective, and end: on sites that lack views and differ by large offsets."""

import warnings
from functools import partial

import numpy as np
import pytest

import multicentre as mc
from multicentre.data import MultiViewData
from multicentre.multiview.ppca.model_selection import select_n_components
from support.ppca_federations import LIKELIHOOD, covariance, federate, fit, mean, small_sites

SIZES = {"clinic": 8, "image": 12, "fluid": 6}


def unlike_sites(n_sites=20, n=40, q=3, seed=0):
    """Draw sites with offsets as large as the spread of patients; every other one lacks a view."""
    rng = np.random.default_rng(seed)
    loadings = {view: rng.standard_normal((d, q)) for view, d in SIZES.items()}
    sites = {}
    for c in range(n_sites):
        latent, views = rng.standard_normal((n, q)), {}
        for view, d in SIZES.items():
            offset = np.sqrt(q + 0.36) * rng.standard_normal(d)
            views[view] = latent @ loadings[view].T + offset + 0.6 * rng.standard_normal((n, d))
        if c % 2:
            del views[("image", "fluid")[c // 2 % 2]]
        sites[f"site-{c:02d}"] = MultiViewData(views)
    return sites, loadings


def objectives(model, phase):
    return np.array([entry["objective"] for entry in model.history_ if entry["phase"] == phase])


def assert_climbs(model, most_rounds):
    assert model.converged_
    for phase in {entry["phase"] for entry in model.history_}:
        values = objectives(model, phase)
        assert len(values) <= most_rounds
        assert np.diff(values).min() >= -1e-9


@pytest.mark.slow
def test_twenty_unlike_sites_of_which_half_lack_a_view_converge():
    sites, loadings = unlike_sites()
    model = fit(sites, 3, method="hierarchical", max_iter=200)
    assert_climbs(model, 60)
    true = np.vstack(list(loadings.values()))
    found = np.vstack([model.loadings_[view] for view in SIZES])
    scale = np.linalg.norm(true @ true.T)
    assert np.linalg.norm(found @ found.T - true @ true.T) < 0.2 * scale
    offsets = [spread["mean"] for spread in model.between_centres_.values()]
    assert np.sqrt(3.36) * 0.8 < np.mean(offsets) * model._spread.mean() < np.sqrt(3.36) * 1.25


@pytest.mark.slow
def test_two_hundred_rounds_do_no_harm():
    """With a tolerance of 0 the rounds end when no step raises the objective, or at the maximum number."""
    sites, _ = unlike_sites()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        long = fit(sites, 3, method="hierarchical", max_iter=200, tol=0.0, n_local_iter=3)
    short = fit(sites, 3, method="hierarchical", n_local_iter=3)
    assert np.diff(objectives(long, 1.0)).min() >= -1e-9
    assert np.abs(np.vstack(list(long.loadings_.values()))).max() < 10
    assert np.linalg.norm(covariance(long) - covariance(short)) < 0.02 * np.linalg.norm(covariance(short))


@pytest.mark.slow
@pytest.mark.parametrize("method", ["invariant", "hierarchical"])
def test_the_order_of_sites_has_no_effect_whatever_their_names(method):
    sites, _ = unlike_sites(n_sites=6)
    turned = {f"z{9 - i}": site for i, site in enumerate(sites.values())}
    local = {"n_local_iter": 4} if method == "hierarchical" else {}
    one, other = (fit(each, 3, method=method, **local, options={"secure_sum": False}) for each in (sites, turned))
    joints = []
    for model in (one, other):
        loadings = np.vstack([model.loadings_[view] for view in SIZES])
        noise = np.concatenate([model.noise_variance_[view] for view in SIZES])
        centre = np.concatenate([model.mean_[view] for view in SIZES])
        joints.append(np.vstack([loadings @ loadings.T + np.diag(noise), centre]))
    np.testing.assert_allclose(*joints, atol=1e-9)


def wisconsin():
    labelled = mc.datasets.load_wisconsin()
    sites = mc.datasets.split_scenario(labelled, "G/K", n_sites=6, random_state=0)
    return {name: site.data for name, site in sites.items()}


def test_the_example_of_the_documentation_takes_tens_of_rounds():
    model = fit(wisconsin(), 4, scale="feature")
    assert_climbs(model, 25)
    better = fit(wisconsin(), 4, scale="feature", tol=1e-6, max_iter=60)
    assert objectives(better, 0.0)[-1] - objectives(model, 0.0)[-1] < 1e-3


@pytest.mark.slow
def test_the_hierarchical_example_of_the_documentation_climbs_and_ends():
    assert_climbs(fit(wisconsin(), 4, scale="feature", method="hierarchical"), 60)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 5])
def test_sites_with_little_noise_and_the_same_loadings_take_at_most_sixty_rounds(seed):
    """The latents decide the loadings almost exactly: only the step of their units moves them fast."""
    simulated = mc.datasets.simulate_sd(random_state=seed)
    parts = mc.datasets.split_scenario(simulated, "G/K", n_sites=6, random_state=0)
    sites = {name: part.data for name, part in parts.items()}
    assert_climbs(fit(sites, 5, method="hierarchical"), 60)


@pytest.mark.slow
@pytest.mark.parametrize(
    "sites",
    [wisconsin, *(partial(lambda seed: unlike_sites(seed=seed)[0], seed) for seed in (0, 1, 4))],
    ids=["wisconsin", "unlike-0", "unlike-1", "unlike-4"],
)
def test_without_priors_sites_that_lack_views_take_at_most_a_hundred_rounds(sites):
    options = {"scale": "feature"} | LIKELIHOOD
    model = fit(sites(), 3, **options)
    assert_climbs(model, 100)
    values = objectives(model, 0.0)
    likelihoods = np.array([entry["log_likelihood"] for entry in model.history_])
    np.testing.assert_allclose(likelihoods, values)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [1.0, 100.0, 1e9])
def test_the_penalised_objective_is_at_its_maximum(weight):
    """Further rounds raise it by nothing, whatever the weight of the prior that decides the unit of the latents."""
    sites = small_sites(lacking={1: "image"})
    model = fit(sites, case_mix_weight=weight, site_intercepts=False, tol=1e-9, options={"secure_sum": False})
    assert model.converged_
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        again = fit(
            sites,
            case_mix_weight=weight,
            site_intercepts=False,
            tol=0.0,
            max_iter=100,
            options={"secure_sum": False},
        )
    assert again.history_[-1]["objective"] - model.history_[-1]["objective"] < 1e-6
    np.testing.assert_allclose(mean(again), mean(model), atol=1e-3)


@pytest.mark.slow
def test_the_waic_at_the_largest_candidate_is_warned_of():
    with pytest.warns(UserWarning, match="lowest at the largest"):
        chosen = select_n_components(federate(small_sites(n=60)), [1, 2])
    assert chosen.n_components == 2


@pytest.mark.slow
def test_larger_candidates_are_tried_on_request():
    estimator = mc.multiview.FedMvPPCA(max_components=4)
    chosen = select_n_components(federate(small_sites(n=60)), [1], estimator=estimator)
    assert list(chosen.waic) == [1, 2, 3]
    assert chosen.n_components == 2
