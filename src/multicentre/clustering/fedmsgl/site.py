"""FedMSGL beside the patients: all that a coordinator can ask of a site, and all that the site answers.

A site expresses each of its patients by the others, view by view. Rows never leave; what leaves says which patients are
alike and how much, under pseudonyms: as a masked sum over sites, or as lists of the nearest where a policy allows it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.fedmsgl import messages as sent
from multicentre.clustering.fedmsgl.local import LocalViews, check_terms, check_told
from multicentre.clustering.fedmsgl.maths.fusion import (
    pack_pairs,
    place_lists,
    symmetrise,
    two_digits,
    weigh_alike,
    weigh_views,
)
from multicentre.clustering.fedmsgl.maths.profiles import profile_columns
from multicentre.data import MultiViewData
from multicentre.federation.errors import ConfigurationError, RefusedByPolicy
from multicentre.federation.messages import Length, Lengths, Message, Nothing
from multicentre.federation.steps import SitePart, step

Floats = NDArray[np.float64]
LEAST_IN_PROFILE = 10
MOST_ROUNDS = 50
LEAST_COUPLING = 0.01
LEAST_SITES = 3
NOTHING = sent.Held({}, 0.0, 0)


class RelationPart(SitePart):
    """Base of site parts that return both parts of the relations in rounds.

    A subclass has a step that sets both parts of every view, the weights and the loss of a round.
    """

    holds: ClassVar[type] = MultiViewData
    remembers: ClassVar[type[Message]] = sent.Held
    lengths: ClassVar[Lengths] = {
        "n": "patients of all sites",
        "pairs": "pairs of patients of all sites",
        "m": "patients who have the view, or patients who are landmarks",
        "t": "others that a patient is made up of",
        "b": "patients of one batch",
        "c": Length("clusters", "n_clusters"),
        "d": "columns of the view",
    }
    data: MultiViewData
    state: sent.Held | None = None
    _views: LocalViews | None = None
    _parts: dict[str, tuple[Floats, Floats]] | None = None
    _weigh: Callable[[Floats], Floats] | None = None
    _loss: float = 0.0
    _profiled: bool = False

    @step(releases=sent.Sizes, when="once")
    def describe(self, ask: Nothing) -> sent.Sizes:
        """Tell the names of the views, and how many of them some patients lack."""
        views = self._local
        return sent.Sizes(views.names, views.n_incomplete, patients=len(self.data))

    @step(releases=sent.Parts, when="every round", summed=True)
    def tell_parts(self, ask: sent.Told) -> sent.Parts:
        """Tell both parts of the relations, once a round: the shared one weighted, summed over views."""
        if self._parts is None or self._weigh is None:
            raise ConfigurationError("nothing was refined yet", where=self.site, hint="Begin the round anew.")
        weights = self._weights(ask, self._weigh)
        n = self._local.checked_size()
        shared, own = np.zeros((n, n)), np.zeros((n, n))
        for view, parts in self._parts.items():
            shared += weights[view] * parts[0]
            own += parts[1]
        self._parts = None
        return sent.Parts(shared, pack_pairs(symmetrise(own)), self._loss)

    @step(releases=sent.Profiles, when="on request")
    def profile(self, ask: sent.Grouping) -> sent.Profiles:
        """Tell, once and coarsely, what columns look like in each cluster of ten or more patients."""
        if self._profiled:
            raise ConfigurationError("the clusters were described already", where=self.site, hint="Fit anew.")
        least = max(self.least_behind, LEAST_IN_PROFILE)
        labels = self._local.checked_labels(ask.labels, ask.n_clusters)
        self._profiled = True
        found = {
            view: profile_columns(self.data.array(view), labels, ask.n_clusters, least) for view in self.data.views
        }
        return sent.Profiles(
            {view: one.sizes for view, one in found.items()},
            {view: one.means for view, one in found.items()},
            patients={view: int(one.sizes[one.sizes > 0].min(initial=len(labels))) for view, one in found.items()},
        )

    def _told(self, distance: float) -> Floats:
        """Return a distance as it is told: to two digits, unless the policy has no minimum."""
        return np.array([two_digits(distance) if self.least_behind > 0 else distance])

    def _check_crowd(self, *, is_first: bool) -> None:
        """Refuse to work on with what two sites share: each could take its own part off and hold the other's."""
        if not is_first and self.n_peers < LEAST_SITES and self.least_behind > 0:
            raise RefusedByPolicy(
                "what two sites share shows each the other's relations", where=self.site, hint="Take max_iter=1."
            )

    def _weights(self, told: sent.Told | sent.Refining, weigh: Callable[[Floats], Floats]) -> dict[str, float]:
        """Return the weights of the site's views, which follow from what all sites told of their distances."""
        own = {} if self.state is None else self.state.distances
        check_told(told, self.site, {view: float(distance[0]) for view, distance in own.items()})
        found = zip(told.sites, told.views, weigh(told.distances).tolist(), strict=True)
        return {view: weight for site, view, weight in found if site == self.site}

    @property
    def _local(self) -> LocalViews:
        if self._views is None:
            if self.common is None:
                raise ConfigurationError(
                    "the records are not aligned",
                    where=self.site,
                    hint="Align them with multicentre.linkage.alignment.align.",
                )
            self._views = LocalViews(self.data, self.common, self.site)
        return self._views


class FedMSGLSite(RelationPart):
    """The site part of FedMSGL."""

    method: ClassVar[str] = "fed-msgl"
    _asked: tuple[object, ...] | None = None

    @step(releases=sent.Relations, when="once", summed=True)
    def relate(self, ask: sent.Terms) -> sent.Relations:
        """Tell how much any two patients are made up of each other, summed over views."""
        self._check_once(ask)
        views, n = self._local, self._local.checked_size()
        total = np.zeros((n, n))
        for view in views.names:
            total += symmetrise(place_lists(views.express(view, ask), n)).toarray()
        return sent.Relations(pack_pairs(total))

    @step(releases=sent.Shared, when="once", summed=True)
    def count_shared(self, ask: Nothing) -> sent.Shared:
        """Count the views that have both patients of a pair."""
        self._local.checked_size()
        present = np.array([self._local.present(view) for view in self._local.names], dtype=np.float64)
        return sent.Shared(pack_pairs(present.T @ present))

    @step(releases=sent.Lists, when="once")
    def list_relations(self, ask: sent.Terms) -> sent.Lists:
        """Tell each patient's largest relations in every view."""
        self._check_once(ask)
        found = {view: self._local.express(view, ask) for view in self._local.names}
        return sent.Lists(
            {view: lists.places for view, lists in found.items()},
            {view: lists.columns for view, lists in found.items()},
            {view: lists.values for view, lists in found.items()},
        )

    @step(releases=sent.Distances, when="every round")
    def refine(self, ask: sent.Refining) -> sent.Distances:
        """Express the patients close to what views share, and tell how far each view is from it."""
        check_terms(ask, modest=self.least_behind > 0)
        held = self._checked_round(ask)
        weights = self._weights(ask, weigh_views) if ask.coupling else dict.fromkeys(self._local.names, 0.0)
        found = {view: self._local.refine(view, ask, weights[view]) for view in self._local.names}
        self._parts = {view: (one.shared, one.own) for view, one in found.items()}
        self._weigh = weigh_views if ask.coupling else weigh_alike
        self._loss = sum(one.loss + ask.coupling / 2.0 * weights[view] * one.distance**2 for view, one in found.items())
        distances = {view: self._told(one.distance) for view, one in found.items()}
        self.state = sent.Held(distances, max(held.coupling, ask.coupling), held.n_rounds + 1)
        return sent.Distances(distances, patients=self._local.fewest)

    @step(releases=sent.Codes, when="on request", summed=True)
    def code(self, ask: sent.Coding) -> sent.Codes:
        """Tell how much of each patient of a block every landmark makes up, summed over views."""
        self._check_once(ask)
        return sent.Codes(np.sum([self._local.code(view, ask) for view in self._local.names], axis=0))

    @step(releases=sent.Coded, when="on request")
    def list_codes(self, ask: sent.Coding) -> sent.Coded:
        """Tell the landmarks that make up most of each patient of a block, in every view."""
        self._check_once(ask)
        found = {view: self._local.list_codes(view, ask) for view in self._local.names}
        return sent.Coded({view: one[0] for view, one in found.items()}, {view: one[1] for view, one in found.items()})

    def _check_once(self, ask: sent.Terms) -> None:
        """Check that all that is asked of a session is by the same terms, and by the same landmarks."""
        check_terms(ask, modest=self.least_behind > 0)
        landmarks = ask.landmarks.tobytes() if isinstance(ask, sent.Coding) else b""
        asked = (*(getattr(ask, name) for name in sent.Terms.declarations()), landmarks)
        if self._asked not in (None, asked):
            raise RefusedByPolicy("a session has one set of terms", where=self.site, hint="Fit anew.")
        self._asked = asked

    def _checked_round(self, ask: sent.Refining) -> sent.Held:
        held = self.state or NOTHING
        is_first = held.n_rounds == 0
        in_turn = (ask.coupling == 0) == is_first and held.coupling in (0, ask.coupling)
        in_turn = in_turn and not (is_first and ask.consensus.any())
        self._check_crowd(is_first=is_first)
        if not in_turn or held.n_rounds >= MOST_ROUNDS or 0 < ask.coupling < LEAST_COUPLING * ask.lambda_1:
            raise RefusedByPolicy(
                "rounds are taken in turn, with one pull above a hundredth of lambda_1, and not so many",
                where=self.site,
                hint="Fit anew.",
            )
        return held
