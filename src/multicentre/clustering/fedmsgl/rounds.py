"""Rounds of FedMSGL at the coordinator.

Before the first round, each site returns the names of its views.

With ``max_iter=1`` there is one round:

1. The coordinator sends the settings of the self-expression to every site.
2. Each site expresses its patients by one another and returns the relations of all pairs, summed over its views. Only
   the masked sum over sites is needed; without masks, the sites return lists of the largest relations instead.
3. The mean over views is the affinity of the patients. If some patients lack a view, a second masked sum counts the
   views that have both patients of a pair, and the mean is over these views.

With landmarks, the coordinator draws the places of the landmarks. One round per block of patients consists of:

1. The coordinator sends the settings, the landmarks and the block to every site.
2. Each site expresses the patients of the block by the landmarks, and returns the weights as in step 2 above.
3. The largest weights of the mean over views are the affinity of these patients and the landmarks.

With ``max_iter > 1`` one round consists of:

1. The coordinator sends the consensus and the distances of all views to every site.
2. Each site computes the weights of its views from these distances, expresses its patients close to the consensus and
   returns the new distance of each view, rounded to two digits.
3. The coordinator sends the new distances to every site.
4. Each site returns the weighted shared part and the view-specific part of the relations. Only the sum over sites is
   needed.
5. The coordinator moves the mean of the shared parts towards the current embedding. This gives the next consensus, the
   affinity and the next embedding.

The rounds stop when the relative change of the consensus is below 0.001, or after ``max_iter`` rounds. In the first
round the consensus is zero and all views have the same weight.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from multicentre.clustering.fedmsgl import messages
from multicentre.clustering.fedmsgl.maths.fusion import (
    Neighbours,
    place_lists,
    pull_together,
    spread,
    symmetrise,
    unpack_pairs,
    weigh_alike,
    weigh_views,
)
from multicentre.clustering.fedmsgl.maths.landmarks import draw_landmarks, keep_largest, spread_codes
from multicentre.clustering.fedmsgl.maths.preparation import count_pairs, divide_by_pairs, mark_present
from multicentre.clustering.fedmsgl.site import FedMSGLSite, RelationPart
from multicentre.core.calls import suggest_masks
from multicentre.core.messages import Message, Nothing, array, count, number, texts
from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.core.steps import A, R, Step
from multicentre.errors import ConfigurationError, RefusedByPolicy

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Views(Message):
    """The views of all sites."""

    sites: tuple[str, ...] = texts("site of each view")
    views: tuple[str, ...] = texts("name of each view")
    n_incomplete: int = count("views that some of the patients lack")

    @property
    def names(self) -> list[str]:
        """``<site>/<view>`` of each."""
        return [f"{site}/{view}" for site, view in zip(self.sites, self.views, strict=True)]


@dataclass(frozen=True)
class Sparse(Message):
    """Sparse matrix in the form of a checkpoint."""

    data: Floats = array("entries", ("m",))
    indices: Integers = array("their columns", ("m",), dtype="i8")
    indptr: Integers = array("start of each row", ("r",), dtype="i8")
    n_columns: int = count("columns")

    @classmethod
    def of(cls, matrix: csr_array) -> Self:
        """Return the parts of a matrix."""
        matrix.sort_indices()
        indices, indptr = matrix.indices.astype(np.int64), matrix.indptr.astype(np.int64)
        return cls(matrix.data.astype(np.float64), indices, indptr, matrix.shape[1])

    @property
    def matrix(self) -> csr_array:
        """The matrix."""
        return csr_array((self.data, self.indices, self.indptr), shape=(len(self.indptr) - 1, self.n_columns))


def describe_views(session: Session, part: type[RelationPart] = FedMSGLSite) -> Views:
    """Return the views of all sites, in the order of the sites."""
    answers = session.ask(part.describe, Nothing())
    named = [(site, view) for site, answer in answers.items() for view in answer.views]
    return Views(
        tuple(site for site, _ in named),
        tuple(view for _, view in named),
        sum(answer.n_incomplete for answer in answers.values()),
    )


def add_relations(session: Session, terms: messages.Settings, views: Views, n: int) -> Sparse:
    """Return the mean affinity of the views from the sum over the sites, which is all that the coordinator receives."""
    sites = session.sites
    total = csr_array(unpack_pairs(session.sum(FedMSGLSite.relate, terms).relations, n))
    counts = None
    if views.n_incomplete:
        counts = np.rint(unpack_pairs(session.sum(FedMSGLSite.count_shared, Nothing()).views, n))
    if session.sites != sites:  # a lost site may be in only one of the sums
        return add_relations(session, terms, views, n)
    if counts is not None:
        return Sparse.of(divide_by_pairs(total, _where(total, counts)))
    return Sparse.of(total / sum(site in sites for site in views.sites))


def keep_present(session: Session, sites: Sequence[str], weights: Floats) -> tuple[Floats, float]:
    """Return the weights of views, 0 for lost sites and scaled to sum 1, and their sum before the scaling."""
    present = np.array([site in session.sites for site in sites])
    total = float(weights[present].sum())
    return np.where(present, weights, 0.0) / total, total


def request_lists(session: Session, step: Step[FedMSGLSite, A, R], request: A) -> dict[str, R]:
    """Return the lists of each site; a refusal names masked sums as the alternative."""
    try:
        return session.ask(step, request)
    except RefusedByPolicy as refused:
        hint = suggest_masks(refused.hint, protection=session.protection, n_sites=len(session.sites))
        raise RefusedByPolicy(refused.what, where=refused.where, hint=hint) from None


def collect_lists(session: Session, terms: messages.Settings, n: int) -> Sparse:
    """Return the mean affinity of the views from the lists of each site."""
    answers = request_lists(session, FedMSGLSite.list_relations, terms)
    lists = [
        Neighbours(answer.places[view], answer.neighbours[view], answer.shares[view])
        for answer in answers.values()
        for view in answer.places
    ]
    total = csr_array((n, n))
    for one in lists:
        total = csr_array(total + symmetrise(place_lists(one, n)))
    present = np.array([mark_present(one.places, n) for one in lists])
    if present.all():
        return Sparse.of(csr_array(total / len(lists)))
    return Sparse.of(divide_by_pairs(total, count_pairs(present, total)))


def _where(matrix: csr_array, values: Floats) -> csr_array:
    """Return the values at the entries of a sparse matrix."""
    row = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    return csr_array((values[row, matrix.indices], matrix.indices, matrix.indptr), shape=matrix.shape)


# Patients per request of codes: with 500 landmarks a block takes 16 MB.
BLOCK = 4096
# Patients up to which all landmarks are used; above, the solver's time matters more than accuracy.
MAX_ON_ALL = 20_000
# Landmarks per patient above that number.
NEAREST = 40


@dataclass(frozen=True)
class _Block:
    landmarks: NDArray[np.int64]
    nearest: int
    first: int
    last: int


def code_patients(
    session: Session, terms: messages.Settings, views: Views, n: int, n_landmarks: int, seed: int
) -> Sparse:
    """Return the weights of the landmarks in each patient, shape (n, m): the largest ones of the mean over views.

    Up to 20,000 patients all landmarks are used, above that the 40 nearest to each patient.

    Raises
    ------
    ConfigurationError
        Some patients lack a view.
    """
    if views.n_incomplete:
        raise ConfigurationError(
            f"landmarks must be None if some patients lack a view; got {n_landmarks}",
            where="landmarks",
            hint="Set landmarks=None, or leave these patients out.",
        )
    landmarks = draw_landmarks(n, n_landmarks, seed)
    nearest = 0 if n <= MAX_ON_ALL else min(NEAREST, n_landmarks)
    blocks = []
    for first in range(0, n, BLOCK):
        block = _Block(landmarks, nearest, first, min(first + BLOCK, n))
        blocks.append(keep_largest(_coded(session, terms, views, block)))
    return Sparse.of(csr_array(vstack(blocks, format="csr")))


def _coded(session: Session, terms: messages.Settings, views: Views, block: _Block) -> Floats:
    """Return the mean code of a block over all views."""
    settings = {name: getattr(terms, name) for name in messages.Settings.declarations()}
    request = messages.CodingRequest(**settings, **vars(block))
    if session.protection == "masked":
        codes = session.sum(FedMSGLSite.code, request).codes
        return np.asarray(codes / sum(site in session.sites for site in views.sites))
    total, n_views = np.zeros((block.last - block.first, len(block.landmarks))), 0
    for answer in request_lists(session, FedMSGLSite.list_codes, request).values():
        for view, nearest in answer.nearest.items():
            total += spread_codes(nearest, answer.shares[view], len(block.landmarks))
            n_views += 1
    return total / n_views


Embed = Callable[[csr_array], Floats]


@dataclass(frozen=True)
class RefinementState(Message):
    """State of the coordinator between rounds."""

    consensus: Floats = array("consensus of the views, G", ("n", "n"))
    affinity: Floats = array("affinity of the patients, A", ("n", "n"))
    embedding: Floats = array("embedding of the patients, F", ("n", "c"))
    sites: tuple[str, ...] = texts("site of each view")
    views: tuple[str, ...] = texts("name of each view")
    distances: Floats = array("distance of each view from the consensus", ("k",))
    weights: Floats = array("weight of each view, theta", ("k",))
    objective: float = number("objective of the last round")


@dataclass(frozen=True)
class Penalties:
    """Penalties of the distances between views, consensus and embedding.

    Parameters
    ----------
    coupling : float
        gamma: of the distance between views and consensus.
    beta : float
        Of the distance between consensus and embedding.
    least_change : float
        Relative change of the consensus at which the rounds stop.
    """

    coupling: float
    beta: float
    least_change: float = 1e-3


def refine(
    session: Session, terms: messages.Settings, views: Views, n: int, n_rounds: int, penalties: Penalties, embed: Embed
) -> Rounds[RefinementState]:
    """Run the rounds and return their loop, with the last state."""
    zeros, distances = np.zeros((n, n)), np.zeros(len(views.views))
    start = RefinementState(
        zeros, zeros, np.zeros((n, 1)), views.sites, views.views, distances, weigh_alike(distances), 0.0
    )
    rounds = session.rounds(n_rounds, RefinementState, lambda: start)
    for number_of_round in rounds:
        before = rounds.state
        coupling = 0.0 if number_of_round == 1 else penalties.coupling
        rounds.state = _turn(session, terms, before, dataclasses.replace(penalties, coupling=coupling), embed)
        moved = np.linalg.norm(rounds.state.consensus - before.consensus)
        change = float(moved / (np.linalg.norm(rounds.state.consensus) or 1.0))
        rounds.record(objective=rounds.state.objective, change=change)
        if change < penalties.least_change:
            rounds.stop()
    return rounds


def _turn(
    session: Session, terms: messages.Settings, state: RefinementState, penalties: Penalties, embed: Embed
) -> RefinementState:
    settings = {name: getattr(terms, name) for name in messages.Settings.declarations()}
    request = messages.RefinementRequest(
        **settings,
        sites=state.sites,
        views=state.views,
        distances=state.distances,
        coupling=penalties.coupling,
        consensus=state.consensus.astype(np.float32),
    )
    answers = session.ask(FedMSGLSite.refine, request)
    named = [(site, view) for site, answer in answers.items() for view in answer.distances]
    distances = np.array([answers[site].distances[view][0] for site, view in named])
    weights = weigh_views(distances) if penalties.coupling else weigh_alike(distances)
    sites, views = tuple(site for site, _ in named), tuple(view for _, view in named)
    sums = session.sum(FedMSGLSite.sum_parts, messages.ViewDistances(sites, views, distances))
    weights, total = keep_present(session, sites, weights)
    consensus, force = pull_together(
        sums.shared / total, state.embedding, penalties.beta if penalties.coupling else 0.0
    )
    specific = unpack_pairs(sums.specific, len(consensus)) / np.count_nonzero(weights)
    affinity = symmetrise(consensus) + specific
    attraction = force / 4.0 * float((spread(state.embedding, consensus) * consensus).sum())
    embedding = embed(csr_array(affinity))
    return RefinementState(consensus, affinity, embedding, sites, views, distances, weights, sums.loss + attraction)
