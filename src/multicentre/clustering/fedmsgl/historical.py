"""The rounds of the published variants: the formulas as printed, and what reproduces the printed table."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.fedmsgl import messages as sent
from multicentre.clustering.fedmsgl.maths.fusion import unpack_pairs
from multicentre.clustering.fedmsgl.maths.published import VARIANTS, PublishedTerms, central_round, weigh_distances
from multicentre.clustering.fedmsgl.rounds import keep_present
from multicentre.clustering.fedmsgl.site import FedMSGLSite
from multicentre.federation.messages import Message, array, texts
from multicentre.federation.rounds import Rounds
from multicentre.federation.session import Session

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Iterated(Message):
    """What the coordinator carries from round to round."""

    consensus: Floats = array("what views share, G", ("n", "n"))
    embedding: Floats = array("embedding of the patients, F", ("n", "c"))
    affinity: Floats = array("affinity of the patients, A", ("n", "n"))
    sites: tuple[str, ...] = texts("site of each view")
    views: tuple[str, ...] = texts("name of each view")
    weights: Floats = array("weight of each view", ("k",))


def iterate(session: Session, name: str, terms: PublishedTerms, n: int, n_clusters: int, seed: int) -> Rounds[Iterated]:
    """Run the rounds of a variant and return their loop, with the last state."""
    square = np.zeros((n, n))
    begin = Iterated(float(VARIANTS[name].identity) * np.eye(n), np.zeros((n, n_clusters)), square, (), (), np.zeros(0))
    rounds = session.rounds(terms.n_rounds, Iterated, lambda: begin)
    for number in rounds:
        before = rounds.state.consensus
        rounds.state = _turn(session, name, terms, rounds.state, seed, is_first=number == 1)
        rounds.record(change=float(np.linalg.norm(rounds.state.consensus - before)))
    return rounds


def _turn(
    session: Session, name: str, terms: PublishedTerms, state: Iterated, seed: int, *, is_first: bool
) -> Iterated:
    asked = sent.Iterating(
        name, terms.lambda_1, terms.lambda_2, terms.lambda_3, terms.n_local, seed, is_first, state.consensus
    )
    answers = session.ask(FedMSGLSite.iterate, asked)
    named = [(site, view) for site, answer in answers.items() for view in answer.distances]
    distances = np.array([answers[site].distances[view][0] for site, view in named])
    weights, total = weigh_distances(distances, VARIANTS[name])
    sites, views = tuple(site for site, _ in named), tuple(view for _, view in named)
    sums = session.sum(FedMSGLSite.tell_parts, sent.Told(sites, views, distances))
    weights, kept = keep_present(session, sites, weights)
    own = unpack_pairs(sums.own, len(state.consensus)) / np.count_nonzero(weights)
    consensus, embedding, affinity = central_round(
        sums.shared / kept, own, total * kept, state.consensus, state.embedding, terms, VARIANTS[name]
    )
    return Iterated(consensus, embedding, affinity, sites, views, weights)
