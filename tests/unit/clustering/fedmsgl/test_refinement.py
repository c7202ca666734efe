"""Rounds in which views are pulled together: the objective falls, and views that say nothing weigh least."""

import itertools

import numpy as np
import pytest

import multicentre as mc
from multicentre.clustering.fedmsgl import messages
from multicentre.clustering.fedmsgl.maths.fusion import weigh_views
from multicentre.clustering.fedmsgl.rounds import Penalties, describe_views, refine
from multicentre.clustering.fedmsgl.site import FedMSGLSite
from multicentre.errors import RefusedByPolicy
from multicentre.linkage.alignment import align
from support.msgl_sites import DENSE, VIEWS, accuracy, fit, split

EXACT = messages.Settings("l2", 10.0, 0.0, 10.0, 1e-8, 59)


def rounds(max_iter, pull, *, sites=None, terms=EXACT, embedding=None, **options):
    """Run rounds with an embedding that stays as it is."""
    options = {"policy": DENSE, "secure_sum": False, **options}
    federation = mc.Federation.in_process(split() if sites is None else sites, **options)
    handle = align(federation).federation.begin(FedMSGLSite)
    F = np.ones((60, 1)) if embedding is None else embedding
    return refine(handle, terms, describe_views(handle), 60, max_iter, pull, lambda affinity: F)


def test_the_first_round_couples_nothing():
    one = rounds(1, Penalties(10.0, 2.0))
    plain = fit(policy=DENSE, tol=1e-8, n_neighbors=59)
    assert np.abs(one.state.affinity - plain.affinity_.toarray()).max() < 1e-6
    assert one.state.weights.tolist() == pytest.approx([1 / 3] * 3)
    assert len(one.history) == 1


@pytest.mark.slow
def test_the_objective_falls_from_the_first_coupled_round_on():
    """Without the pull of the embedding every round solves both steps; weights follow the distances (a scale of 1)."""
    found = rounds(8, Penalties(10.0, 0.0, least_change=0.0))
    values = [entry["objective"] for entry in found.history][1:]
    assert len(values) == 7
    assert all(later <= earlier * (1 + 1e-6) for earlier, later in itertools.pairwise(values))
    assert values[-1] < values[0]


def test_a_stronger_pull_brings_views_closer_to_one_another():
    weak, medium, strong = (rounds(2, Penalties(pull, 0.0)).state.distances for pull in (1.0, 10.0, 100.0))
    assert np.all(strong < medium)
    assert np.all(medium < weak)


def test_rounds_end_when_the_objective_stands_still():
    found = rounds(30, Penalties(10.0, 0.0, least_change=1e-3))
    assert 3 <= len(found.history) < 30
    assert found.stopped


def test_weights_are_those_of_the_distances_and_add_up_to_one():
    found = rounds(3, Penalties(10.0, 2.0))
    assert found.state.weights.sum() == pytest.approx(1.0)
    assert found.state.weights == pytest.approx(weigh_views(found.state.distances))
    model = fit(max_iter=3)
    assert sum(model.view_weights_.values()) == pytest.approx(1.0)
    assert len(model.history_) <= 3
    assert all(set(entry) == {"round", "objective", "change"} for entry in model.history_)


@pytest.mark.parametrize("seed", range(3))
def test_a_view_of_noise_weighs_least(seed):
    noise = np.random.default_rng(seed).normal(size=(60, 10))
    model = fit(split({**VIEWS, "noise": noise}), max_iter=3, secure=True)
    assert min(model.view_weights_, key=model.view_weights_.get) == "of-noise/noise"
    assert accuracy(model) > 0.9


def test_the_pull_of_the_embedding_parts_the_groups():
    F = np.repeat(np.eye(3), 20, axis=0)
    free, held = (rounds(3, Penalties(10.0, beta), embedding=F).state.consensus for beta in (0.0, 2.0))
    apart = F @ F.T == 0
    assert held[apart].sum() < free[apart].sum()


def test_masked_rounds_are_those_in_clear():
    unmasked, masked = rounds(3, Penalties(10.0, 2.0)), rounds(3, Penalties(10.0, 2.0), secure_sum=True)
    assert np.abs(unmasked.state.affinity - masked.state.affinity).max() < 1e-6
    assert unmasked.state.weights == pytest.approx(masked.state.weights, rel=1e-5)


def test_the_strongest_pull_still_finds_the_groups():
    model = fit(max_iter=6, consensus_penalty=1e6)
    assert np.isfinite(model.affinity_.data).all()
    assert accuracy(model) > 0.9


def test_two_sites_take_one_round_alone():
    """Each could take its own part off what both share."""
    sites = {name: data for name, data in split().items() if name != "of-view_3"}
    with pytest.raises(RefusedByPolicy, match="max_iter=1"):
        fit(sites, max_iter=2, secure=True)
    assert accuracy(fit(sites, secure=True)) > 0.85
    assert accuracy(fit(sites, max_iter=2, secure=True, policy=mc.Policy(min_patients=0))) > 0.85


def test_a_pull_that_sites_refuse_is_named():
    with pytest.raises(RefusedByPolicy, match="hundredth"):
        rounds(2, Penalties(0.01, 0.0))
