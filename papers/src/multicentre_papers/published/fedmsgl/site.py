"""The site parts of FedMSGL as published and as printed: iterations on the site's views.

Steps inherited from clustering/fedmsgl/site.py of ``multicentre``: ``describe``, ``sum_parts`` and ``profile``. All
releases are declared in clustering/fedmsgl/messages.py. Only ``sum_parts`` returns terms of sums over sites.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.fedmsgl import messages
from multicentre.clustering.fedmsgl.site import MAX_ROUNDS, RelationPart
from multicentre.core.messages import Message, array, arrays, count, flag, number
from multicentre.core.steps import step
from multicentre.errors import ConfigurationError, RefusedByPolicy
from multicentre_papers.published.fedmsgl.maths.variants import (
    VARIANTS,
    Operators,
    PublishedTerms,
    Variant,
    local_round,
    measure_distance,
    prepare_operators,
    start,
    weigh_distances,
)

Floats = NDArray[np.float64]
MAX_LOCAL = 1_000  # a hundred times the paper's iterations; a request for more would block the site


@dataclass(frozen=True)
class IterationRequest(Message):
    """Request of a round."""

    lambda_1: float = number("penalty of the shared part")
    lambda_2: float = number("additional penalty of the shared part by distance")
    lambda_3: float = number("penalty of the view-specific part")
    n_local: int = count("iterations at a site")
    seed: int = count("seed of the first view-specific parts")
    is_first: bool = flag("whether this is the first round")
    consensus: Floats = array("consensus of the views", ("n", "n"))


@dataclass(frozen=True)
class PartsState(messages.SiteState):
    """State that a site keeps between rounds."""

    specific: dict[str, Floats] = arrays("view-specific part of every view", ("n", "n"))


NOTHING = PartsState({}, 0.0, 0, {})


class IteratingPart(RelationPart):
    """Base of both site parts; a subclass names its `variant`."""

    remembers: ClassVar[type[Message]] = PartsState
    variant: ClassVar[Variant]
    state: PartsState | None = None
    _operators: dict[str, Operators] | None = None

    @step(releases=messages.Distances, when="every round")
    def iterate(self, request: IterationRequest) -> messages.Distances:
        """Run the site's iterations; return the distance of each view from the part that all views share."""
        previous = self.state or NOTHING
        if request.is_first != (previous.n_rounds == 0) or previous.n_rounds >= MAX_ROUNDS:
            raise RefusedByPolicy(
                f"rounds must be consecutive and at most {MAX_ROUNDS}; got a request after {previous.n_rounds} rounds",
                where=self.site,
                hint="Fit again.",
            )
        self._check_sites(is_first=request.is_first)
        self._parts = self._iterated(request, previous)
        self._weigh, self._loss = self._shares, 0.0
        distances = {
            view: self._rounded(measure_distance(parts[0], request.consensus)) for view, parts in self._parts.items()
        }
        specific = {view: parts[1] for view, parts in self._parts.items()}
        self.state = PartsState(distances, 0.0, previous.n_rounds + 1, specific)
        return messages.Distances(distances, patients=self._local.fewest)

    def _iterated(self, request: IterationRequest, previous: PartsState) -> dict[str, tuple[Floats, Floats]]:
        """Return both parts of every view after the iterations of a round, samples in columns."""
        views = self._local
        if (
            views.n_incomplete
            or request.consensus.shape[0] != views.n_common
            or (not request.is_first and set(previous.specific) != set(views.names))
        ):
            raise ConfigurationError(
                "every patient must have every view in every round; got patients or views that differ",
                where=self.site,
                hint="Fit again.",
            )
        terms, generator = self._checked_terms(request), self.generator(request.seed)
        if self._operators is None:
            self._operators = {
                view: prepare_operators(self.data.array(view), terms, self.variant) for view in views.names
            }
        parts = {}
        for view in views.names:
            shared, specific, _ = start(views.n_common, generator)
            if not request.is_first:
                shared, specific = request.consensus, previous.specific[view]
            parts[view] = local_round(self._operators[view], shared, specific, terms, self.variant)
        return parts

    def _checked_terms(self, request: IterationRequest) -> PublishedTerms:
        if not np.isfinite(request.consensus).all():
            raise ConfigurationError("the consensus must be finite; got other values", where="consensus")
        if not 1 <= request.n_local <= MAX_LOCAL or request.seed < 0:
            raise ConfigurationError(
                f"n_local must be from 1 to {MAX_LOCAL}, and the seed at least 0; got {request.n_local} and "
                f"{request.seed}",
                where="n_local, seed",
            )
        return PublishedTerms(request.lambda_1, request.lambda_2, request.lambda_3, n_local=request.n_local)

    def _shares(self, distances: Floats) -> Floats:
        return weigh_distances(distances, self.variant)[0]


class AsPublishedSite(IteratingPart):
    """The site part of FedMSGL as its authors' code runs."""

    method: ClassVar[str] = "fed-msgl-as-published"
    variant: ClassVar[Variant] = VARIANTS["as_published"]


class AsPrintedSite(IteratingPart):
    """The site part of FedMSGL by the formulas of the paper."""

    method: ClassVar[str] = "fed-msgl-as-printed"
    variant: ClassVar[Variant] = VARIANTS["paper"]
