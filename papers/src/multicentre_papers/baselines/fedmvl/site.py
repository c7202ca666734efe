"""FedMVL beside the patients: all that a coordinator can ask of a site, and all that the site answers.

A site factorises its views, X ~ V_m U'. The bases U, which hold what the columns mean, never leave and are not even
remembered. The factors V_m leave as terms of sums over sites; they follow from the products of the patients' rows with
each other, whatever the coordinator sends.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data import MultiViewData
from multicentre.data.blocks import place
from multicentre.federation.errors import ConfigurationError, DataError, MessageError, RefusedByPolicy
from multicentre.federation.messages import Length, Lengths, Message, Nothing
from multicentre.federation.steps import Acknowledgement, SitePart, step
from multicentre_papers.baselines.fedmvl import messages as sent
from multicentre_papers.baselines.fedmvl.maths import (
    data_weight,
    draw_rows,
    log_error,
    rotate_columns,
    scale_view,
    solve_basis,
    solve_rows,
    weight_term,
)

Floats = NDArray[np.float64]

SCALES = ("sample", "feature", "none")
MOST_CLUSTERS = 1_000
MOST_ROUNDS = 10_000
N_SKETCHES = 4
EXTRA_DIRECTIONS = 5
PATIENTS_A_CLUSTER = 10
LEAST_SITES = 3
LARGEST_COMMON = 2.0**10
LARGEST_PENALTY = 1e6


class FedMVLSite(SitePart):
    """The site part of FedMVL."""

    method: ClassVar[str] = "fed-mvl"
    holds: ClassVar[type] = MultiViewData
    remembers: ClassVar[type[Message]] = sent.Memory
    lengths: ClassVar[Lengths] = {
        "n": "patients of all sites",
        "p": "random directions",
        "c": Length("clusters", "n_clusters"),
        "k": "views",
    }
    data: MultiViewData
    _scaled: list[Floats] | None = None

    @step(releases=sent.Views, when="once")
    def describe(self, ask: Nothing) -> sent.Views:
        """Tell the names of the views, of a site where no aligned patient lacks an entry."""
        self._check_data()
        return sent.Views(self.data.views, patients=len(self.data))

    @step(releases=Acknowledgement, when="once")
    def begin(self, ask: sent.Terms) -> Acknowledgement:
        """Take in how views are factorised, once; nothing leaves."""
        self._check_data()
        if self.state is not None:
            raise ConfigurationError("the fit began already", where=self.site, hint="Begin a new fit.")
        check_terms(ask, len(self.data))
        self._check_crowd()
        k = len(self.data.views)
        none = np.zeros((k, len(self.data), ask.n_clusters))
        terms = {field.name: getattr(ask, field.name) for field in fields(ask)}
        memory = sent.Memory(
            **terms, round_number=0, n_sketches=0, factors=none, duals=none.copy(), weight_terms=np.ones(k)
        )
        self.state = memory
        self._check_views_vary()
        return Acknowledgement()

    @step(releases=sent.Products, when="every round", summed=True)
    def multiply(self, ask: sent.Directions) -> sent.Products:
        """Multiply the products of the patients' rows with a few directions, to start from; at most 4 times."""
        memory = self.memory
        self._check_crowd()
        self._check_directions(ask.directions)
        if memory.round_number or memory.n_sketches >= N_SKETCHES:
            raise ConfigurationError("no more products are told", where=self.site, hint="Begin a new fit.")
        self.state = replace(memory, n_sketches=memory.n_sketches + 1)
        total = np.zeros_like(ask.directions)
        for X in self.scaled_views:
            total += X @ (X.T @ ask.directions)
        return sent.Products(total / len(self.data))

    @step(releases=sent.Sums, when="every round", summed=True)
    def renew(self, ask: sent.Common) -> sent.Sums:
        """Renew the bases and the factors of the site's views; tell the factors, added over views."""
        memory = self._checked(ask)
        before = self._caught_up(ask)
        factors, errors = before.factors.copy(), []
        for m, (view, X) in enumerate(zip(self.data.views, self.scaled_views, strict=True)):
            weight = 1.0
            if ask.round_number > 1:
                weight = data_weight(memory.weight_terms[m] / ask.total_term, ask.n_views, memory.lam)
            rows = draw_rows(len(X), memory.fraction, memory.seed, ask.round_number, view)
            U = solve_basis(X, factors[m])
            near = ask.common[rows] - before.duals[m][rows]
            factors[m][rows] = solve_rows(X[rows], U, near, weight, self._rho, factors[m][rows])
            errors.append(float(((X - factors[m] @ U.T) ** 2).sum()) / len(X))
        logs = [log_error(error) for error in errors]
        terms = np.array([weight_term(log, ask.reference, memory.lam) for log in logs])
        self.state = replace(before, factors=factors, weight_terms=terms)
        return sent.Sums(
            _added(factors + before.duals),
            n_views=float(len(factors)),
            term=float(terms.sum()),
            log_error=float(sum(logs)),
            error=float(sum(errors)),
            gap=float(((factors - ask.common) ** 2).sum()),
        )

    @step(releases=sent.Shares, when="at the end")
    def tell_weights(self, ask: sent.Listing) -> sent.Shares:
        """Tell the weights of the site's views: no other site has them, so no sum could hide whose they are."""
        terms = dict(zip(self.data.views, self.memory.weight_terms.tolist(), strict=True))
        if len(ask.sites) != len(ask.views) or not ask.total_term >= max(terms.values()) * (1 - 1e-6):
            raise MessageError("the list is not one of views and their weights", where="Listing")
        own = [terms.get(view, 0.0) for site, view in zip(ask.sites, ask.views, strict=True) if site == self.site]
        return sent.Shares(np.minimum(np.array(own) / ask.total_term, 1.0), patients=len(self.data))

    @property
    def memory(self) -> sent.Memory:
        """What the site remembers."""
        if not isinstance(self.state, sent.Memory):
            raise ConfigurationError("no fit began", where=self.site, hint="Begin the fit anew.")
        return self.state

    @property
    def scaled_views(self) -> list[Floats]:
        """The views in the units of the factorisation, in the order of the data."""
        if self._scaled is None:
            scaled = (scale_view(self.data.array(view), self.memory.scale) for view in self.data.views)
            self._scaled = [rotate_columns(X) for X in scaled]
        return self._scaled

    @property
    def _rho(self) -> float:
        return self.memory.rho * len(self.data) / self.memory.n_clusters

    def _caught_up(self, ask: sent.Common) -> sent.Memory:
        """Return the memory with the multipliers moved to the new common factor, from which the first round begins."""
        memory = self.memory
        if ask.round_number == 1:
            factors = np.repeat(np.maximum(ask.common, 0.0)[None], len(memory.factors), axis=0)
            return replace(memory, round_number=1, factors=factors)
        duals = memory.duals + memory.factors - ask.common
        return replace(memory, round_number=ask.round_number, duals=duals)

    def _checked(self, ask: sent.Common) -> sent.Memory:
        memory = self.memory
        self._check_crowd()
        shape = (len(self.data), memory.n_clusters)
        if ask.common.shape != shape or float(np.abs(ask.common).max()) > LARGEST_COMMON:
            raise MessageError("the common factor does not fit the patients, or is too large", where="Common.common")
        if ask.round_number != memory.round_number + 1 or ask.round_number > memory.max_iter:
            raise ConfigurationError(
                "rounds are answered in order, each once, and no more than were agreed",
                where="Common.round_number",
                hint="Begin a new fit.",
            )
        own = float(memory.weight_terms.sum())
        if ask.round_number > 1 and not (own * (1 - 1e-6) <= ask.total_term and 1 <= ask.n_views <= sent.MOST_VIEWS):
            raise MessageError("the weights are not those of these views", where="Common.total_term")
        return memory

    def _check_directions(self, directions: Floats) -> None:
        n, p = directions.shape
        most = min(len(self.data), self.memory.n_clusters + EXTRA_DIRECTIONS)
        if n != len(self.data) or not 1 <= p <= most or (directions**2).sum(axis=0).max() > 1.0 + 1e-6:
            raise MessageError(f"at most {most} directions of length 1 are taken", where="Directions.directions")

    def _check_crowd(self) -> None:
        """Refuse to work on with what two sites share: each could take its own factors off and hold the other's."""
        if self.n_peers < LEAST_SITES and self.least_behind > 0:
            raise RefusedByPolicy(
                f"the common factor of fewer than {LEAST_SITES} sites shows each the other's factors",
                where=self.site,
                hint="Fit over three sites or more; a simulation may do without, by min_patients=0.",
            )

    def _check_data(self) -> None:
        if self.common is None:
            raise ConfigurationError(
                "the records are not aligned",
                where=self.site,
                hint="Align them with multicentre.linkage.alignment.align.",
            )
        views = self.data.views
        partial = {view: self.data.partial_columns(view) for view in views if np.isnan(self.data.array(view)).any()}
        gaps = [place(view, *columns) for view, columns in partial.items()]
        if len(self.common.places) != self.common.n_common or gaps:
            raise DataError(
                "the method has no answer to missing entries, or to patients whom a site lacks",
                where=f"{self.site}: {'; '.join(gaps) or 'the aligned patients'}",
                hint="Align with incomplete=False, and leave out patients and columns with missing entries.",
            )

    def _check_views_vary(self) -> None:
        silent = [view for view, X in zip(self.data.views, self.scaled_views, strict=True) if not X.any()]
        if silent:
            raise DataError(
                "nothing is left of the view once it is standardised",
                where=f"{self.site}: {', '.join(silent)}",
                hint='Leave out constant views; of a view with one column, use scale="feature".',
            )


def check_terms(ask: sent.Terms, n: int) -> None:
    """Raise unless the terms are those of a factorisation of n patients.

    Raises
    ------
    MessageError
        A value is out of range.
    ConfigurationError
        There are more clusters than :func:`max_clusters`.
    """
    good: dict[str, Any] = {
        "n_clusters": 2 <= ask.n_clusters <= min(n, MOST_CLUSTERS),
        "scale": ask.scale in SCALES,
        "lam": 0.0 < ask.lam <= 3.0,
        "rho": 1.0 / LARGEST_PENALTY <= ask.rho <= LARGEST_PENALTY,
        "fraction": 0.0 < ask.fraction <= 1.0,
        "max_iter": 1 <= ask.max_iter <= MOST_ROUNDS,
        "seed": ask.seed >= 0,
    }
    for name, is_good in good.items():
        if not is_good:
            raise MessageError("the value is out of range", where=f"Terms.{name}")
    if ask.n_clusters > max_clusters(n):
        raise ConfigurationError(
            f"more than two clusters need {PATIENTS_A_CLUSTER} aligned patients each, or sums tell too much",
            where="n_clusters",
            hint="Ask for fewer clusters.",
        )


def max_clusters(n: int) -> int:
    """Return into how many clusters a site lets n patients be divided: one for ten, but two at least.

    Examples
    --------
    >>> max_clusters(36), max_clusters(12)
    (3, 2)
    """
    return max(2, n // PATIENTS_A_CLUSTER)


def _added(tables: Floats) -> Floats:
    """Return the sum over views, one after the other: the same bits wherever they lie."""
    total = np.zeros(tables.shape[1:])
    for table in tables:
        total = total + table
    return total
