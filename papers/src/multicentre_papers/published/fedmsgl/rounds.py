"""The rounds of FedMSGL as published and as printed.

One round consists of:

1. The coordinator sends the consensus to every site.
2. Each site iterates on its views and returns the distance of each view from the consensus.
3. The distances give the weights of the views. The coordinator sends all distances to every site.
4. Each site returns both parts of the relations, the shared one weighted. Only the sum over sites is needed.
5. The coordinator iterates on the sums, which gives the next consensus and the embedding of the patients.

The number of rounds is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.fedmsgl import messages
from multicentre.clustering.fedmsgl.maths.fusion import unpack_pairs
from multicentre.clustering.fedmsgl.rounds import keep_present
from multicentre.core.messages import Message, array, texts
from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre_papers.published.fedmsgl.maths.variants import PublishedTerms, central_round, weigh_distances
from multicentre_papers.published.fedmsgl.site import IteratingPart, IterationRequest

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class IterationState(Message):
    """State of the coordinator between rounds."""

    consensus: Floats = array("consensus of the views, G", ("n", "n"))
    embedding: Floats = array("embedding of the patients, F", ("n", "c"))
    affinity: Floats = array("affinity of the patients, A", ("n", "n"))
    sites: tuple[str, ...] = texts("site of each view")
    views: tuple[str, ...] = texts("name of each view")
    weights: Floats = array("weight of each view", ("k",))


def iterate(
    session: Session, part: type[IteratingPart], terms: PublishedTerms, n: int, n_clusters: int, seed: int
) -> Rounds[IterationState]:
    """Run the rounds and return their loop, with the last state."""
    square = np.zeros((n, n))
    begin = IterationState(
        float(part.variant.identity) * np.eye(n), np.zeros((n, n_clusters)), square, (), (), np.zeros(0)
    )
    rounds = session.rounds(terms.n_rounds, IterationState, lambda: begin)
    for number in rounds:
        previous = rounds.state.consensus
        rounds.state = _turn(session, part, terms, rounds.state, seed, is_first=number == 1)
        rounds.record(change=float(np.linalg.norm(rounds.state.consensus - previous)))
    return rounds


def _turn(
    session: Session,
    part: type[IteratingPart],
    terms: PublishedTerms,
    state: IterationState,
    seed: int,
    *,
    is_first: bool,
) -> IterationState:
    request = IterationRequest(
        terms.lambda_1, terms.lambda_2, terms.lambda_3, terms.n_local, seed, is_first, state.consensus
    )
    answers = session.ask(part.iterate, request)
    named = [(site, view) for site, answer in answers.items() for view in answer.distances]
    distances = np.array([answers[site].distances[view][0] for site, view in named])
    weights, total = weigh_distances(distances, part.variant)
    sites, views = tuple(site for site, _ in named), tuple(view for _, view in named)
    sums = session.sum(part.sum_parts, messages.ViewDistances(sites, views, distances))
    weights, present_weight = keep_present(session, sites, weights)
    specific = unpack_pairs(sums.specific, len(state.consensus)) / np.count_nonzero(weights)
    consensus, embedding, affinity = central_round(
        sums.shared / present_weight,
        specific,
        total * present_weight,
        state.consensus,
        state.embedding,
        terms,
        part.variant,
    )
    return IterationState(consensus, embedding, affinity, sites, views, weights)
