"""Site part of FedMVL: the steps that a coordinator can request. No step is inherited.

A site factorises its views, X ~ V_m U'. The bases U, which describe the columns, are never stored and never leave. The
factors V_m leave as terms of sums over sites; for every request they depend only on the inner products of the patients'
rows.
"""

from __future__ import annotations

from dataclasses import fields, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Length, Lengths, Message, Nothing
from multicentre.core.steps import Acknowledgement, SitePart, step
from multicentre.data import MultiViewData
from multicentre.data.blocks import place
from multicentre.errors import ConfigurationError, DataError, MessageError, RefusedByPolicy
from multicentre_papers.baselines.fedmvl import messages
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
# Bounds memory: for each view, a site stores two arrays of one number per patient and cluster.
MAX_CLUSTERS = 1_000
# Bounds the sums of factors that a coordinator can request in one fit: one per round.
MAX_ROUNDS = 10_000
N_SKETCHES = 4  # products of the spectral start
EXTRA_DIRECTIONS = 5  # directions beyond the number of clusters: the usual oversampling of a randomised basis
# Beyond two clusters, released sums have at most a tenth as many columns as patients, which limits disclosure.
PATIENTS_PER_CLUSTER = 10
MIN_SITES = 3  # from a sum of two sites, each can subtract its own factors and obtain the other's
# A larger entry means divergence; 2**10 below MAX_FACTOR, so that sums of factors and multipliers fit.
MAX_COMMON = 2.0**10
# Six decades to either side of 1, the mean squared row length of a scaled view; refuses mistyped penalties.
MAX_PENALTY = 1e6


class FedMVLSite(SitePart):
    """Site part of FedMVL."""

    method: ClassVar[str] = "fed-mvl"
    holds: ClassVar[type] = MultiViewData
    remembers: ClassVar[type[Message]] = messages.Memory
    lengths: ClassVar[Lengths] = {
        "n": "patients of all sites",
        "p": "random directions",
        "c": Length("clusters", "n_clusters"),
        "k": "views",
    }
    data: MultiViewData
    _scaled: list[Floats] | None = None

    @step(releases=messages.Views, when="once")
    def describe(self, request: Nothing) -> messages.Views:
        """Return the names of the views; all entries of the aligned patients must be present."""
        self._check_data()
        return messages.Views(self.data.views, patients=len(self.data))

    @step(releases=Acknowledgement, when="once")
    def begin(self, request: messages.Terms) -> Acknowledgement:
        """Store the settings of the factorisation, once; nothing leaves the site."""
        self._check_data()
        if self.state is not None:
            raise ConfigurationError(
                "a fit must begin once; got a second request to begin", where=self.site, hint="Start a new fit."
            )
        check_terms(request, len(self.data))
        self._check_sites()
        k = len(self.data.views)
        none = np.zeros((k, len(self.data), request.n_clusters))
        terms = {field.name: getattr(request, field.name) for field in fields(request)}
        memory = messages.Memory(
            **terms, round_number=0, n_sketches=0, factors=none, duals=none.copy(), weight_terms=np.ones(k)
        )
        self.state = memory
        self._check_views_vary()
        return Acknowledgement()

    @step(releases=messages.Products, when="every round", summed=True)
    def multiply(self, request: messages.Directions) -> messages.Products:
        """Multiply the inner products of the patients' rows by directions for the spectral start; at most 4 times."""
        memory = self.memory
        self._check_sites()
        self._check_directions(request.directions)
        if memory.round_number or memory.n_sketches >= N_SKETCHES:
            raise ConfigurationError(
                f"products must be requested before round 1, at most {N_SKETCHES} times; got a further request",
                where=self.site,
                hint="Start a new fit.",
            )
        self.state = replace(memory, n_sketches=memory.n_sketches + 1)
        total = np.zeros_like(request.directions)
        for X in self.scaled_views:
            total += X @ (X.T @ request.directions)
        return messages.Products(total / len(self.data))

    @step(releases=messages.Sums, when="every round", summed=True)
    def renew(self, request: messages.Common) -> messages.Sums:
        """Update the bases and the factors of the site's views; return the factors, summed over views."""
        memory = self._checked(request)
        before = self._caught_up(request)
        factors, errors = before.factors.copy(), []
        for m, (view, X) in enumerate(zip(self.data.views, self.scaled_views, strict=True)):
            weight = 1.0
            if request.round_number > 1:
                weight = data_weight(memory.weight_terms[m] / request.total_term, request.n_views, memory.lam)
            rows = draw_rows(len(X), memory.fraction, memory.seed, request.round_number, view)
            U = solve_basis(X, factors[m])
            near = request.common[rows] - before.duals[m][rows]
            factors[m][rows] = solve_rows(X[rows], U, near, weight, self._rho, factors[m][rows])
            errors.append(float(((X - factors[m] @ U.T) ** 2).sum()) / len(X))
        logs = [log_error(error) for error in errors]
        terms = np.array([weight_term(log, request.reference, memory.lam) for log in logs])
        self.state = replace(before, factors=factors, weight_terms=terms)
        return messages.Sums(
            _sum_views(factors + before.duals),
            n_views=float(len(factors)),
            term=float(terms.sum()),
            log_error=float(sum(logs)),
            error=float(sum(errors)),
            gap=float(((factors - request.common) ** 2).sum()),
        )

    @step(releases=messages.Shares, when="at the end")
    def send_weights(self, request: messages.Listing) -> messages.Shares:
        """Return the weights of the site's views; each view has one site, so a sum would not hide them."""
        terms = dict(zip(self.data.views, self.memory.weight_terms.tolist(), strict=True))
        if len(request.sites) != len(request.views) or not request.total_term >= max(terms.values()) * (1 - 1e-6):
            raise MessageError(
                "the listing must have one site per view and the sum of all weight terms; "
                f"got {len(request.sites)} sites, {len(request.views)} views and the sum {request.total_term:g}",
                where="Listing",
            )
        view_terms = [
            terms.get(view, 0.0) for site, view in zip(request.sites, request.views, strict=True) if site == self.site
        ]
        return messages.Shares(np.minimum(np.array(view_terms) / request.total_term, 1.0), patients=len(self.data))

    @property
    def memory(self) -> messages.Memory:
        """State of the site between rounds."""
        if not isinstance(self.state, messages.Memory):
            raise ConfigurationError(
                "a fit must begin before other steps; got another step", where=self.site, hint="Start a new fit."
            )
        return self.state

    @property
    def scaled_views(self) -> list[Floats]:
        """Views in the units of the factorisation, in the order of the data."""
        if self._scaled is None:
            scaled = (scale_view(self.data.array(view), self.memory.scale) for view in self.data.views)
            self._scaled = [rotate_columns(X) for X in scaled]
        return self._scaled

    @property
    def _rho(self) -> float:
        return self.memory.rho * len(self.data) / self.memory.n_clusters

    def _caught_up(self, request: messages.Common) -> messages.Memory:
        """Return the state with multipliers updated for the new common factor; round 1 starts from that factor."""
        memory = self.memory
        if request.round_number == 1:
            factors = np.repeat(np.maximum(request.common, 0.0)[None], len(memory.factors), axis=0)
            return replace(memory, round_number=1, factors=factors)
        duals = memory.duals + memory.factors - request.common
        return replace(memory, round_number=request.round_number, duals=duals)

    def _checked(self, request: messages.Common) -> messages.Memory:
        memory = self.memory
        self._check_sites()
        shape = (len(self.data), memory.n_clusters)
        if request.common.shape != shape or float(np.abs(request.common).max()) > MAX_COMMON:
            raise MessageError(
                f"common factor must have shape {shape} and entries within {MAX_COMMON:g} of 0; "
                f"got shape {request.common.shape} or larger entries",
                where="Common.common",
            )
        if request.round_number != memory.round_number + 1 or request.round_number > memory.max_iter:
            raise ConfigurationError(
                f"rounds must be requested in order, each once, up to {memory.max_iter}; "
                f"got round {request.round_number} after round {memory.round_number}",
                where="Common.round_number",
                hint="Start a new fit.",
            )
        site_term = float(memory.weight_terms.sum())
        if request.round_number > 1 and not (
            site_term * (1 - 1e-6) <= request.total_term and 1 <= request.n_views <= messages.MAX_VIEWS
        ):
            raise MessageError(
                "the sum of weight terms must include the terms of this site, and the number of views must lie in "
                f"[1, {messages.MAX_VIEWS:g}]; got the sum {request.total_term:g} and {request.n_views:g} views",
                where="Common.total_term",
            )
        return memory

    def _check_directions(self, directions: Floats) -> None:
        n, p = directions.shape
        most = min(len(self.data), self.memory.n_clusters + EXTRA_DIRECTIONS)
        if n != len(self.data) or not 1 <= p <= most or (directions**2).sum(axis=0).max() > 1.0 + 1e-6:
            raise MessageError(
                f"directions must be 1 to {most} columns of length 1 with one row per patient; "
                f"got shape {directions.shape} or longer columns",
                where="Directions.directions",
            )

    def _check_sites(self) -> None:
        """Refuse sums over two sites: each site could subtract its own factors and obtain the other's."""
        if self.n_peers < MIN_SITES and self.least_behind > 0:
            raise RefusedByPolicy(
                f"factors must be summed over at least {MIN_SITES} sites; got {self.n_peers}",
                where=self.site,
                hint="From a sum of two sites, each site can compute the factors of the other. Fit over at least three "
                "sites. A simulation can use min_patients=0.",
            )

    def _check_data(self) -> None:
        if self.common is None:
            raise ConfigurationError(
                "records must be aligned before a fit; got records without an alignment",
                where=self.site,
                hint="Align them with multicentre.linkage.alignment.align.",
            )
        views = self.data.views
        partial = {view: self.data.partial_columns(view) for view in views if np.isnan(self.data.array(view)).any()}
        gaps = [place(view, *columns) for view, columns in partial.items()]
        if len(self.common.places) != self.common.n_common or gaps:
            raise DataError(
                "all entries of all aligned patients must be present; got missing entries or patients",
                where=f"{self.site}: {'; '.join(gaps) or 'the aligned patients'}",
                hint="Align with incomplete=False, and leave out patients and columns with missing entries.",
            )

    def _check_views_vary(self) -> None:
        constant_views = [view for view, X in zip(self.data.views, self.scaled_views, strict=True) if not X.any()]
        if constant_views:
            raise DataError(
                "views must vary after standardisation; got a constant view",
                where=f"{self.site}: {', '.join(constant_views)}",
                hint='Leave out constant views. For a view with one column, use scale="feature".',
            )


def check_terms(request: messages.Terms, n: int) -> None:
    """Raise unless the terms are valid for a factorisation of n patients.

    Raises
    ------
    MessageError
        A value is out of range.
    ConfigurationError
        `n_clusters` exceeds :func:`max_clusters`.
    """
    most = min(n, MAX_CLUSTERS)
    checks: dict[str, tuple[bool, str]] = {
        "n_clusters": (2 <= request.n_clusters <= most, f"from 2 to {most}"),
        "scale": (request.scale in SCALES, f"one of {', '.join(map(repr, SCALES))}"),
        "lam": (0.0 < request.lam <= 3.0, "above 0 and at most 3"),
        "rho": (
            1.0 / MAX_PENALTY <= request.rho <= MAX_PENALTY,
            f"in [{1.0 / MAX_PENALTY:g}, {MAX_PENALTY:g}]",
        ),
        "fraction": (0.0 < request.fraction <= 1.0, "above 0 and at most 1"),
        "max_iter": (1 <= request.max_iter <= MAX_ROUNDS, f"from 1 to {MAX_ROUNDS}"),
        "seed": (request.seed >= 0, "non-negative"),
    }
    for name, (is_valid, expected) in checks.items():
        if not is_valid:
            raise MessageError(f"{name} must be {expected}; got {getattr(request, name)!r}", where=f"Terms.{name}")
    if request.n_clusters > max_clusters(n):
        raise ConfigurationError(
            f"n_clusters must be at most {max_clusters(n)} for {n} aligned patients; got {request.n_clusters}",
            where="n_clusters",
            hint=f"Request fewer clusters. More than two clusters need {PATIENTS_PER_CLUSTER} patients each, which "
            "limits disclosure via sums.",
        )


def max_clusters(n: int) -> int:
    """Return the maximum number of clusters for n patients: one per ten patients, but at least two.

    Examples
    --------
    >>> max_clusters(36), max_clusters(12)
    (3, 2)
    """
    return max(2, n // PATIENTS_PER_CLUSTER)


def _sum_views(tables: Floats) -> Floats:
    """Return the sum over views in a fixed order, so that results are bit-identical for every layout."""
    total = np.zeros(tables.shape[1:])
    for table in tables:
        total = total + table
    return total
