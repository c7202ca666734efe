"""What the coordinator asks for, and the affinity of all patients that it makes of the answers."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from multicentre.clustering.fedmsgl import messages as sent
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
from multicentre.federation.errors import ConfigurationError, RefusedByPolicy
from multicentre.federation.messages import Message, Nothing, array, count, number, texts
from multicentre.federation.rounds import Rounds
from multicentre.federation.session import Session
from multicentre.federation.steps import A, R, Step

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

T = TypeVar("T")


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
    """A sparse matrix, as a checkpoint keeps it."""

    data: Floats = array("entries", ("m",))
    indices: Integers = array("their columns", ("m",), dtype="i8")
    indptr: Integers = array("where rows begin", ("r",), dtype="i8")
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


def add_relations(session: Session, terms: sent.Terms, views: Views, n: int) -> Sparse:
    """Return the mean affinity of the views from one sum over the sites; it is all that the coordinator gets."""
    asked = session.sites
    total = csr_array(unpack_pairs(session.sum(FedMSGLSite.relate, terms).relations, n))
    counts = None
    if views.n_incomplete:
        counts = np.rint(unpack_pairs(session.sum(FedMSGLSite.count_shared, Nothing()).views, n))
    if session.sites != asked:  # a site that was lost may stand in one of the sums
        return add_relations(session, terms, views, n)
    if counts is not None:
        return Sparse.of(divide_by_pairs(total, _where(total, counts)))
    return Sparse.of(total / sum(site in asked for site in views.sites))


def keep_present(session: Session, sites: Sequence[str], weights: Floats) -> tuple[Floats, float]:
    """Return the weights of views, 0 where the site was lost and with sum 1, and the sum of those that stayed."""
    stayed = np.array([site in session.sites for site in sites])
    kept = float(weights[stayed].sum())
    return np.where(stayed, weights, 0.0) / kept, kept


def ask_for_lists(session: Session, step: Step[FedMSGLSite, A, R], ask: A) -> dict[str, R]:
    """Return the sites' own answers; where a policy does not allow them, say that masked sums do without."""
    try:
        return session.ask(step, ask)
    except RefusedByPolicy as refused:
        hint = f"Mask the sums (secure_sum=True). {refused.hint}"
        raise RefusedByPolicy(refused.what, where=refused.where, hint=hint) from None


def unmasked(ask: Callable[[], T]) -> T:
    """Return what an ask returns, and say of a refusal that masked sums need less of a policy."""
    try:
        return ask()
    except RefusedByPolicy as refused:
        hint = refused.hint if "secure_sum" in refused.hint else f"Mask the sums (secure_sum=True). {refused.hint}"
        raise RefusedByPolicy(refused.what, where=refused.where, hint=hint) from None


def collect_lists(session: Session, terms: sent.Terms, n: int) -> Sparse:
    """Return the mean affinity of the views from the sites' own lists."""
    answers = ask_for_lists(session, FedMSGLSite.list_relations, terms)
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


BLOCK = 4096

MOST_ON_ALL = 20_000

NEAREST = 40


@dataclass(frozen=True)
class _Block:
    landmarks: NDArray[np.int64]
    nearest: int
    first: int
    last: int


def code_patients(session: Session, terms: sent.Terms, views: Views, n: int, n_landmarks: int, seed: int) -> Sparse:
    """Return what patients are made up of, shape (n, m): the largest shares of the mean over views.

    Up to 20,000 patients all landmarks are mixed, above that the 40 nearest of each patient.

    Raises
    ------
    ConfigurationError
        Some patients lack a view.
    """
    if views.n_incomplete:
        raise ConfigurationError(
            "some patients lack a view", where="landmarks", hint="Take landmarks=None, or leave these patients out."
        )
    drawn = draw_landmarks(n, n_landmarks, seed)
    nearest = 0 if n <= MOST_ON_ALL else min(NEAREST, n_landmarks)
    blocks = []
    for first in range(0, n, BLOCK):
        block = _Block(drawn, nearest, first, min(first + BLOCK, n))
        blocks.append(keep_largest(_coded(session, terms, views, block)))
    return Sparse.of(csr_array(vstack(blocks, format="csr")))


def _coded(session: Session, terms: sent.Terms, views: Views, block: _Block) -> Floats:
    """Return the mean code of a block over all views."""
    told = {name: getattr(terms, name) for name in sent.Terms.declarations()}
    asked = sent.Coding(**told, landmarks=block.landmarks, nearest=block.nearest, first=block.first, last=block.last)
    if session.protection == "masked":
        codes = session.sum(FedMSGLSite.code, asked).codes
        return np.asarray(codes / sum(site in session.sites for site in views.sites))
    total, n_views = np.zeros((block.last - block.first, len(block.landmarks))), 0
    for answer in ask_for_lists(session, FedMSGLSite.list_codes, asked).values():
        for view, nearest in answer.nearest.items():
            total += spread_codes(nearest, answer.shares[view], len(block.landmarks))
            n_views += 1
    return total / n_views


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
    session: Session, terms: sent.Terms, views: Views, n: int, n_rounds: int, pull: Pull, embed: Embed
) -> Rounds[Refined]:
    """Run the rounds and return their loop, with the last state."""
    nothing, apart = np.zeros((n, n)), np.zeros(len(views.views))
    start = Refined(nothing, nothing, np.zeros((n, 1)), views.sites, views.views, apart, weigh_alike(apart), 0.0)
    rounds = session.rounds(n_rounds, Refined, lambda: start)
    for number_of_round in rounds:
        before = rounds.state
        coupling = 0.0 if number_of_round == 1 else pull.coupling
        rounds.state = _turn(session, terms, before, dataclasses.replace(pull, coupling=coupling), embed)
        moved = np.linalg.norm(rounds.state.consensus - before.consensus)
        change = float(moved / (np.linalg.norm(rounds.state.consensus) or 1.0))
        rounds.record(objective=rounds.state.objective, change=change)
        if change < pull.least_change:
            rounds.stop()
    return rounds


def _turn(session: Session, terms: sent.Terms, state: Refined, pull: Pull, embed: Embed) -> Refined:
    told = {name: getattr(terms, name) for name in sent.Terms.declarations()}
    asked = sent.Refining(
        **told,
        sites=state.sites,
        views=state.views,
        distances=state.distances,
        coupling=pull.coupling,
        consensus=state.consensus.astype(np.float32),
    )
    answers = session.ask(FedMSGLSite.refine, asked)
    named = [(site, view) for site, answer in answers.items() for view in answer.distances]
    distances = np.array([answers[site].distances[view][0] for site, view in named])
    weights = weigh_views(distances) if pull.coupling else weigh_alike(distances)
    sites, views = tuple(site for site, _ in named), tuple(view for _, view in named)
    sums = session.sum(FedMSGLSite.tell_parts, sent.Told(sites, views, distances))
    weights, kept = keep_present(session, sites, weights)
    consensus, force = pull_together(sums.shared / kept, state.embedding, pull.beta if pull.coupling else 0.0)
    own = unpack_pairs(sums.own, len(consensus)) / np.count_nonzero(weights)
    affinity = symmetrise(consensus) + own
    attraction = force / 4.0 * float((spread(state.embedding, consensus) * consensus).sum())
    embedding = embed(csr_array(affinity))
    return Refined(consensus, affinity, embedding, sites, views, distances, weights, sums.loss + attraction)
