"""Site part of FedMSGL: the steps that a coordinator can request and their answers.

No step is inherited from another module; the alignment of records before a fit has a separate site part, in
linkage/alignment/site.py. Releases are declared in clustering/fedmsgl/messages.py. Terms of sums over sites are the
answers of ``relate``, ``count_shared``, ``code`` and ``sum_parts``. Each site answers separately to ``describe`` (names
of views), ``list_relations``, ``list_codes``, ``refine`` (distances of views) and ``profile``.

A site expresses each of its patients by the others, view by view. Rows never leave the site. Relations of
patients leave it under pseudonyms: as a masked sum over sites, or as lists of the largest relations if the policy
allows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.fedmsgl import messages
from multicentre.clustering.fedmsgl.local_views import LocalViews, check_distances, check_settings
from multicentre.clustering.fedmsgl.maths.fusion import (
    pack_pairs,
    place_lists,
    symmetrise,
    two_digits,
    weigh_alike,
    weigh_views,
)
from multicentre.clustering.fedmsgl.maths.preparation import profile_columns
from multicentre.core.messages import Length, Lengths, Message, Nothing
from multicentre.core.steps import SitePart, step
from multicentre.data import MultiViewData
from multicentre.errors import ConfigurationError, RefusedByPolicy

Floats = NDArray[np.float64]
# Fewest patients of a cluster in a profile, so that a mean does not describe single patients.
MIN_IN_PROFILE = 10
# Every round releases distances and parts, so the limit bounds the disclosure; it leaves room beyond the default number
# of rounds.
MAX_ROUNDS = 50
# Least coupling, relative to lambda_1: a smaller one would return the uncoupled solutions of a site once more.
MIN_COUPLING = 0.01
# With two sites each could subtract its part of the consensus and obtain the other's.
MIN_SITES = 3
START = messages.SiteState({}, 0.0, 0)


class RelationPart(SitePart):
    """Base of site parts that return the shared and the view-specific part of the relations in rounds.

    A step of the subclass sets both parts of every view, the function that weighs views, and the loss of the round.
    """

    holds: ClassVar[type] = MultiViewData
    remembers: ClassVar[type[Message]] = messages.SiteState
    lengths: ClassVar[Lengths] = {
        "n": "patients of all sites",
        "pairs": "pairs of patients of all sites",
        "m": "patients who have the view, or patients who are landmarks",
        "t": "largest relations of a patient",
        "b": "patients of one batch",
        "c": Length("clusters", "n_clusters"),
        "d": "columns of the view",
    }
    data: MultiViewData
    state: messages.SiteState | None = None
    _views: LocalViews | None = None
    _parts: dict[str, tuple[Floats, Floats]] | None = None
    _weigh: Callable[[Floats], Floats] | None = None
    _loss: float = 0.0
    _profiled: bool = False

    @step(releases=messages.ViewNames, when="once")
    def describe(self, request: Nothing) -> messages.ViewNames:
        """Return the names of the views, and the number of views that some patients lack."""
        views = self._local
        return messages.ViewNames(views.names, views.n_incomplete, patients=len(self.data))

    @step(releases=messages.RefinedRelations, when="every round", summed=True)
    def sum_parts(self, request: messages.ViewDistances) -> messages.RefinedRelations:
        """Return the weighted shared part and the view-specific part, summed over views, once per round."""
        if self._parts is None or self._weigh is None:
            raise ConfigurationError(
                "parts must be requested once per round, after the distances; got another request for parts",
                where=self.site,
                hint="Fit again.",
            )
        weights = self._weights(request, self._weigh)
        n = self._local.checked_size()
        shared, specific = np.zeros((n, n)), np.zeros((n, n))
        for view, parts in self._parts.items():
            shared += weights[view] * parts[0]
            specific += parts[1]
        self._parts = None
        return messages.RefinedRelations(shared, pack_pairs(symmetrise(specific)), self._loss)

    @step(releases=messages.Profiles, when="on request")
    def profile(self, request: messages.ClusterLabels) -> messages.Profiles:
        """Return rounded column means of each cluster of ten or more patients, once per fit."""
        if self._profiled:
            raise ConfigurationError(
                "profiles must be requested once per fit; got a second request", where=self.site, hint="Fit again."
            )
        least = max(self.least_behind, MIN_IN_PROFILE)
        labels = self._local.checked_labels(request.labels, request.n_clusters)
        self._profiled = True
        profiles = {
            view: profile_columns(self.data.array(view), labels, request.n_clusters, least) for view in self.data.views
        }
        return messages.Profiles(
            {view: one.sizes for view, one in profiles.items()},
            {view: one.means for view, one in profiles.items()},
            patients={view: int(one.sizes[one.sizes > 0].min(initial=len(labels))) for view, one in profiles.items()},
        )

    def _rounded(self, distance: float) -> Floats:
        """Return a distance to two digits; in full if the policy sets no minimum of patients."""
        return np.array([two_digits(distance) if self.least_behind > 0 else distance])

    def _check_sites(self, *, is_first: bool) -> None:
        """Refuse a consensus of two sites: each could subtract its part and obtain the other's."""
        if not is_first and self.n_peers < MIN_SITES and self.least_behind > 0:
            raise RefusedByPolicy(
                f"sites must be at least {MIN_SITES} in rounds after the first; got {self.n_peers}",
                where=self.site,
                hint="Set max_iter=1.",
            )

    def _weights(
        self, request: messages.ViewDistances | messages.RefinementRequest, weigh: Callable[[Floats], Floats]
    ) -> dict[str, float]:
        """Return the weights of the site's views, computed from the distances of all views."""
        returned = {} if self.state is None else self.state.distances
        check_distances(request, self.site, {view: float(distance[0]) for view, distance in returned.items()})
        rows = zip(request.sites, request.views, weigh(request.distances).tolist(), strict=True)
        return {view: weight for site, view, weight in rows if site == self.site}

    @property
    def _local(self) -> LocalViews:
        if self._views is None:
            if self.common is None:
                raise ConfigurationError(
                    "records must be aligned before a fit; got records without an alignment",
                    where=self.site,
                    hint="Align them with multicentre.linkage.alignment.align.",
                )
            self._views = LocalViews(self.data, self.common, self.site)
        return self._views


class FedMSGLSite(RelationPart):
    """Site part of FedMSGL."""

    method: ClassVar[str] = "fed-msgl"
    _settings: tuple[object, ...] | None = None

    @step(releases=messages.Relations, when="once", summed=True)
    def relate(self, request: messages.Settings) -> messages.Relations:
        """Return the relation of each pair of patients, summed over views."""
        self._check_once(request)
        views, n = self._local, self._local.checked_size()
        total = np.zeros((n, n))
        for view in views.names:
            total += symmetrise(place_lists(views.express(view, request), n)).toarray()
        return messages.Relations(pack_pairs(total))

    @step(releases=messages.PairCounts, when="once", summed=True)
    def count_shared(self, request: Nothing) -> messages.PairCounts:
        """Count the views that have both patients of a pair."""
        self._local.checked_size()
        present = np.array([self._local.present(view) for view in self._local.names], dtype=np.float64)
        return messages.PairCounts(pack_pairs(present.T @ present))

    @step(releases=messages.NeighbourLists, when="once")
    def list_relations(self, request: messages.Settings) -> messages.NeighbourLists:
        """Return each patient's largest relations in every view."""
        self._check_once(request)
        relations = {view: self._local.express(view, request) for view in self._local.names}
        return messages.NeighbourLists(
            {view: lists.places for view, lists in relations.items()},
            {view: lists.columns for view, lists in relations.items()},
            {view: lists.values for view, lists in relations.items()},
        )

    @step(releases=messages.Distances, when="every round")
    def refine(self, request: messages.RefinementRequest) -> messages.Distances:
        """Express the patients close to the consensus; return the distance of each view from it."""
        check_settings(request, has_minimum=self.least_behind > 0)
        previous = self._checked_round(request)
        weights = self._weights(request, weigh_views) if request.coupling else dict.fromkeys(self._local.names, 0.0)
        refined = {view: self._local.refine(view, request, weights[view]) for view in self._local.names}
        self._parts = {view: (one.shared, one.specific) for view, one in refined.items()}
        self._weigh = weigh_views if request.coupling else weigh_alike
        self._loss = sum(
            one.loss + request.coupling / 2.0 * weights[view] * one.distance**2 for view, one in refined.items()
        )
        distances = {view: self._rounded(one.distance) for view, one in refined.items()}
        self.state = messages.SiteState(distances, max(previous.coupling, request.coupling), previous.n_rounds + 1)
        return messages.Distances(distances, patients=self._local.fewest)

    @step(releases=messages.LandmarkCodes, when="on request", summed=True)
    def code(self, request: messages.CodingRequest) -> messages.LandmarkCodes:
        """Return the weight of every landmark in each patient of a block, summed over views."""
        self._check_once(request)
        return messages.LandmarkCodes(np.sum([self._local.code(view, request) for view in self._local.names], axis=0))

    @step(releases=messages.LandmarkLists, when="on request")
    def list_codes(self, request: messages.CodingRequest) -> messages.LandmarkLists:
        """Return the landmarks of largest weight in each patient of a block, in every view."""
        self._check_once(request)
        codes = {view: self._local.list_codes(view, request) for view in self._local.names}
        return messages.LandmarkLists(
            {view: one[0] for view, one in codes.items()}, {view: one[1] for view, one in codes.items()}
        )

    def _check_once(self, request: messages.Settings) -> None:
        """Check that all requests of a session have the same settings and landmarks."""
        check_settings(request, has_minimum=self.least_behind > 0)
        landmarks = request.landmarks.tobytes() if isinstance(request, messages.CodingRequest) else b""
        settings = (*(getattr(request, name) for name in messages.Settings.declarations()), landmarks)
        if self._settings not in (None, settings):
            raise RefusedByPolicy(
                "settings must be the same in all requests of a fit; got different ones",
                where=self.site,
                hint="Fit again.",
            )
        self._settings = settings

    def _checked_round(self, request: messages.RefinementRequest) -> messages.SiteState:
        previous = self.state or START
        is_first = previous.n_rounds == 0
        in_turn = (request.coupling == 0) == is_first and previous.coupling in (0, request.coupling)
        in_turn = in_turn and not (is_first and request.consensus.any())
        self._check_sites(is_first=is_first)
        if not in_turn or previous.n_rounds >= MAX_ROUNDS or 0 < request.coupling < MIN_COUPLING * request.lambda_1:
            raise RefusedByPolicy(
                f"rounds must be consecutive, at most {MAX_ROUNDS}, with one coupling from a hundredth of lambda_1; "
                f"got the coupling {request.coupling:g} after {previous.n_rounds} rounds",
                where=self.site,
                hint="Fit again.",
            )
        return previous
