"""Rounds in which sites are pulled towards what their views share (section 1.3 and 1.4 of the corrected method)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from multicentre.clustering.fedmsgl import messages as sent
from multicentre.clustering.fedmsgl.maths.fusion import (
    pull_together,
    spread,
    symmetrise,
    unpack_pairs,
    weigh_alike,
    weigh_views,
)
from multicentre.clustering.fedmsgl.rounds import Views, keep_present
from multicentre.clustering.fedmsgl.site import FedMSGLSite
from multicentre.federation.coordinator import Federation
from multicentre.federation.messages import Message, array, number, texts
from multicentre.federation.rounds import Rounds

Floats = NDArray[np.float64]
Embed = Callable[[csr_array], Floats]


@dataclass(frozen=True)
class Refined(Message):
    """What the coordinator carries from round to round."""

    consensus: Floats = array("what views share, G", ("n", "n"))
    affinity: Floats = array("affinity of the patients, A", ("n", "n"))
    embedding: Floats = array("embedding of the patients, F", ("n", "c"))
    sites: tuple[str, ...] = texts("site of each view")
    views: tuple[str, ...] = texts("name of each view")
    distances: Floats = array("distance of each view from what all share", ("k",))
    weights: Floats = array("weight of each view, theta", ("k",))
    objective: float = number("objective of the last round")


@dataclass(frozen=True)
class Pull:
    """How strongly sites are pulled together.

    Parameters
    ----------
    coupling : float
        gamma, of sites towards the consensus.
    beta : float
        Of the consensus towards the embedding.
    least_change : float
        Relative change of the consensus at which rounds end.
    """

    coupling: float
    beta: float
    least_change: float = 1e-3


def refine(
    federation: Federation, terms: sent.Terms, views: Views, n: int, n_rounds: int, pull: Pull, embed: Embed
) -> Rounds[Refined]:
    """Run the rounds and return their loop, with the last state."""
    nothing, apart = np.zeros((n, n)), np.zeros(len(views.views))
    start = Refined(nothing, nothing, np.zeros((n, 1)), views.sites, views.views, apart, weigh_alike(apart), 0.0)
    rounds = federation.rounds(n_rounds, Refined, lambda: start)
    for number_of_round in rounds:
        before = rounds.state
        coupling = 0.0 if number_of_round == 1 else pull.coupling
        rounds.state = _turn(federation, terms, before, dataclasses.replace(pull, coupling=coupling), embed)
        moved = np.linalg.norm(rounds.state.consensus - before.consensus)
        change = float(moved / (np.linalg.norm(rounds.state.consensus) or 1.0))
        rounds.record(objective=rounds.state.objective, change=change)
        if change < pull.least_change:
            rounds.stop()
    return rounds


def _turn(federation: Federation, terms: sent.Terms, state: Refined, pull: Pull, embed: Embed) -> Refined:
    told = {name: getattr(terms, name) for name in sent.Terms.declarations()}
    asked = sent.Refining(
        **told,
        sites=state.sites,
        views=state.views,
        distances=state.distances,
        coupling=pull.coupling,
        consensus=state.consensus.astype(np.float32),
    )
    answers = federation.ask(FedMSGLSite.refine, asked)
    named = [(site, view) for site, answer in answers.items() for view in answer.distances]
    distances = np.array([answers[site].distances[view][0] for site, view in named])
    weights = weigh_views(distances) if pull.coupling else weigh_alike(distances)
    sites, views = tuple(site for site, _ in named), tuple(view for _, view in named)
    sums = federation.sum(FedMSGLSite.tell_parts, sent.Told(sites, views, distances))
    weights, kept = keep_present(federation, sites, weights)
    consensus, force = pull_together(sums.shared / kept, state.embedding, pull.beta if pull.coupling else 0.0)
    own = unpack_pairs(sums.own, len(consensus)) / np.count_nonzero(weights)
    affinity = symmetrise(consensus) + own
    attraction = force / 4.0 * float((spread(state.embedding, consensus) * consensus).sum())
    embedding = embed(csr_array(affinity))
    return Refined(consensus, affinity, embedding, sites, views, distances, weights, sums.loss + attraction)
