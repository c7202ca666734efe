"""What the coordinator asks for, and the affinity of all patients that it makes of the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from multicentre.clustering.fedmsgl import messages as sent
from multicentre.clustering.fedmsgl.maths.fusion import Neighbours, place_lists, symmetrise, unpack_pairs
from multicentre.clustering.fedmsgl.maths.incomplete import count_pairs, divide_by_pairs, mark_present
from multicentre.clustering.fedmsgl.site import FedMSGLSite
from multicentre.federation.coordinator import Federation
from multicentre.federation.errors import RefusedByPolicy
from multicentre.federation.messages import Message, Nothing, array, count, texts
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


def describe_views(federation: Federation) -> Views:
    """Return the views of all sites, in the order of the sites."""
    answers = federation.ask(FedMSGLSite.describe, Nothing())
    named = [(site, view) for site, answer in answers.items() for view in answer.views]
    return Views(
        tuple(site for site, _ in named),
        tuple(view for _, view in named),
        sum(answer.n_incomplete for answer in answers.values()),
    )


def add_relations(federation: Federation, terms: sent.Terms, views: Views, n: int) -> Sparse:
    """Return the mean affinity of the views from one sum over the sites; it is all that the coordinator gets."""
    asked = federation.sites
    total = csr_array(unpack_pairs(federation.sum(FedMSGLSite.relate, terms).relations, n))
    counts = None
    if views.n_incomplete:
        counts = np.rint(unpack_pairs(federation.sum(FedMSGLSite.count_shared, Nothing()).views, n))
    if federation.sites != asked:  # a site that was lost may stand in one of the sums
        return add_relations(federation, terms, views, n)
    if counts is not None:
        return Sparse.of(divide_by_pairs(total, _where(total, counts)))
    return Sparse.of(total / sum(site in asked for site in views.sites))


def keep_present(federation: Federation, sites: Sequence[str], weights: Floats) -> tuple[Floats, float]:
    """Return the weights of views, 0 where the site was lost and with sum 1, and the sum of those that stayed."""
    stayed = np.array([site in federation.sites for site in sites])
    kept = float(weights[stayed].sum())
    return np.where(stayed, weights, 0.0) / kept, kept


def ask_for_lists(federation: Federation, step: Step[FedMSGLSite, A, R], ask: A) -> dict[str, R]:
    """Return the sites' own answers; where a policy does not allow them, say that masked sums do without."""
    try:
        return federation.ask(step, ask)
    except RefusedByPolicy as refused:
        mend = f"Mask the sums (secure_sum=True). {refused.mend}"
        raise RefusedByPolicy(refused.what, where=refused.where, mend=mend) from None


def unmasked(ask: Callable[[], T]) -> T:
    """Return what an ask returns, and say of a refusal that masked sums need less of a policy."""
    try:
        return ask()
    except RefusedByPolicy as refused:
        mend = refused.mend if "secure_sum" in refused.mend else f"Mask the sums (secure_sum=True). {refused.mend}"
        raise RefusedByPolicy(refused.what, where=refused.where, mend=mend) from None


def collect_lists(federation: Federation, terms: sent.Terms, n: int) -> Sparse:
    """Return the mean affinity of the views from the sites' own lists."""
    answers = ask_for_lists(federation, FedMSGLSite.list_relations, terms)
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
