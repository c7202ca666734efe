"""A site's views, and their patients expressed by one another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.fedmsgl import messages as sent
from multicentre.clustering.fedmsgl.maths.coupling import express_coupled, measure_coupled_objective
from multicentre.clustering.fedmsgl.maths.expression import express, keep_largest, list_largest, reduce_weights, split
from multicentre.clustering.fedmsgl.maths.fusion import Neighbours
from multicentre.clustering.fedmsgl.maths.landmarks import (
    Landmarks,
    code_on_all,
    code_on_nearest,
    number_landmarks,
    prepare_landmarks,
    spread_codes,
)
from multicentre.clustering.fedmsgl.maths.preparation import (
    GramFactor,
    factor_gram,
    manifold_weights,
    prepare_view,
)
from multicentre.data import MultiViewData
from multicentre.federation.errors import ConfigurationError, DataError, RefusedByPolicy
from multicentre.federation.steps import Common

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

NORMS = ("l2", "z", "mms", "raw")
LEAST_PATIENTS = 3
MOST_PAIRED = 20_000
MOST_LANDMARKS = 5_000
MOST_CLUSTERS = 1_000
MOST_LISTED = 200
MOST_MU = 100.0
FINE = 1e-4
LARGEST_PENALTY = 1e9


@dataclass(frozen=True, eq=False)
class _View:
    """One view, prepared: the places of its patients, and their rows."""

    places: Integers
    rows: Floats

    @cached_property
    def factor(self) -> GramFactor:
        """The factor of the products of the rows."""
        return factor_gram(self.rows)


@dataclass(frozen=True, eq=False)
class RefinedView:
    """A view's relations, close to what all views share.

    Parameters
    ----------
    shared, own : arrays of shape (n, n)
        Both parts; row j makes up patient j.
    distance : float
        Of the shared part from what all share.
    loss : float
        What is left of the view unexplained, and its penalties.
    """

    shared: Floats
    own: Floats
    distance: float
    loss: float


class LocalViews:
    """The views of one site, in the order that the sites agreed on.

    Parameters
    ----------
    data : MultiViewData
    common : Common
    site : str

    Raises
    ------
    DataError
        Too few patients have a view, or some have it in part.
    """

    def __init__(self, data: MultiViewData, common: Common, site: str) -> None:
        self._data, self._common, self._site = data, common, site
        self._prepared: dict[tuple[str, str], _View] = {}
        self._landmarks: dict[tuple[str, str, bytes], Landmarks] = {}
        self._present = {view: data.patients_with(view) for view in data.views}
        data.check_whole_views()
        for view, present in self._present.items():
            if present.sum() < LEAST_PATIENTS:
                raise DataError(
                    f"fewer than {LEAST_PATIENTS} of the aligned patients have the view", where=f"{site}, {view}"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the views."""
        return self._data.views

    @property
    def n_common(self) -> int:
        """Patients in the common order."""
        return self._common.n_common

    @property
    def fewest(self) -> int:
        """Patients who have the rarest view."""
        return min(int(present.sum()) for present in self._present.values())

    @property
    def n_incomplete(self) -> int:
        """Views that some patients of the common order lack."""
        return sum(int(present.sum()) < self.n_common for present in self._present.values())

    def places(self, view: str) -> Integers:
        """Return the places of the patients who have a view."""
        return self._common.places[self._present[view]]

    def present(self, view: str) -> Flags:
        """Return who of the common order has a view, shape (n,)."""
        present = np.zeros(self.n_common, dtype=np.bool_)
        present[self.places(view)] = True
        return present

    def express(self, view: str, terms: sent.Terms) -> Neighbours:
        """Return the largest shares by which each patient is made up of others, see equation (4)."""
        known = self._view(view, terms.norm)
        codes = _solve(known, terms)
        columns, values = list_largest(codes, terms.top)
        placed = np.where(columns >= 0, known.places[columns], -1)
        return Neighbours(known.places, placed, values.astype(np.float64))

    def refine(self, view: str, ask: sent.Refining, weight: float) -> RefinedView:
        """Return the relations of a view close to what all views share, see equation (10).

        Parameters
        ----------
        view : str
        ask : Refining
        weight : float
            Of the view, from 0 to 1.

        Raises
        ------
        ConfigurationError
            What is shared is not of the patients in the common order, or negative; or some of them lack the view.
        """
        consensus = self._checked_consensus(ask)
        known, a = self._view(view, ask.norm), _penalty(self._view(view, ask.norm), ask)
        pull = ask.coupling * weight
        if pull:
            single = ask.tolerance >= FINE
            parts = express_coupled(known.factor, a, ask.lambda_3, pull, consensus, tol=ask.tolerance, single=single)
        else:
            parts = split(_solve(known, ask), a, ask.lambda_3)
        kept = keep_largest(parts[0] + parts[1], ask.top) > 0
        shared, own = (np.where(kept, part, 0.0).astype(np.float64) for part in parts)
        loss = measure_coupled_objective(known.factor, shared, own, a, ask.lambda_3, 0.0, consensus)
        return RefinedView(shared, own, float(np.linalg.norm(shared - consensus)), float(loss.sum()))

    def code(self, view: str, ask: sent.Coding) -> Floats:
        """Return how much of each patient of a block every landmark makes up, shape (b, m)."""
        rows, own, landmarks = self._block(view, ask)
        if not ask.nearest:
            return code_on_all(rows, own, landmarks, _mu(ask), tol=ask.tolerance).astype(np.float64)
        columns, values = code_on_nearest(rows, own, landmarks, _mu(ask), ask.nearest)
        return spread_codes(columns, values, len(ask.landmarks))

    def list_codes(self, view: str, ask: sent.Coding) -> tuple[Integers, Floats]:
        """Return the landmarks that make up most of each patient of a block, and how much, both of shape (b, t)."""
        rows, own, landmarks = self._block(view, ask)
        if ask.nearest:
            return code_on_nearest(rows, own, landmarks, _mu(ask), ask.nearest)
        from multicentre.clustering.kernels.spectrum import largest_of_rows

        codes = code_on_all(rows, own, landmarks, _mu(ask), tol=ask.tolerance)
        return largest_of_rows(codes.astype(np.float64), min(ask.top, codes.shape[1]), -len(codes))

    def checked_size(self) -> int:
        """Return the number of patients in the common order, if tables of their pairs can be made.

        Raises
        ------
        ConfigurationError
            There are too many; or some lack a view, where sites did not agree to that: a sum would show the pairs that
            one site alone has.
        """
        if self.n_incomplete and not self._common.incomplete:
            raise ConfigurationError(
                "some patients lack a view", where=self._site, hint="Say incomplete=True, or leave them out."
            )
        if self.n_common > MOST_PAIRED:
            raise ConfigurationError(
                f"tables of pairs are made of at most {MOST_PAIRED} patients", where=self._site, hint="Use landmarks."
            )
        return self.n_common

    def checked_labels(self, labels: Integers, n_clusters: int) -> Integers:
        """Return the clusters of the site's own patients, -1 for none.

        Raises
        ------
        ConfigurationError
            The labels are not of the patients in the common order, or name clusters that there are not.
        """
        if len(labels) != self.n_common or not 1 <= n_clusters <= min(self.n_common, MOST_CLUSTERS):
            raise ConfigurationError("the clusters are not of these patients", where=self._site)
        if labels.min() < -1 or labels.max() >= n_clusters:
            raise ConfigurationError(f"there are clusters 0 to {n_clusters - 1}", where=self._site)
        return labels[self._common.places]

    def _checked_consensus(self, ask: sent.Refining) -> Floats:
        consensus = ask.consensus.astype(np.float64)
        if self.n_incomplete or consensus.shape[0] != self.n_common or consensus.min(initial=0.0) < 0:
            raise ConfigurationError(
                "what views share is not of these patients, negative, or some of them lack a view",
                where=self._site,
                hint="Take max_iter=1.",
            )
        if not 0 <= ask.coupling <= LARGEST_PENALTY or consensus.max(initial=0.0) > sent.MOST_VIEWS:
            raise ConfigurationError("the coupling is from 0 to 1e9, and what views share at most 64", where=self._site)
        return consensus

    def _block(self, view: str, ask: sent.Coding) -> tuple[Floats, Integers, Landmarks]:
        drawn = ask.landmarks
        if self.n_incomplete:
            raise ConfigurationError("some patients lack a view", where=self._site, hint="Do without landmarks.")
        if (
            not 2 <= len(drawn) <= MOST_LANDMARKS
            or np.any(np.diff(drawn) <= 0)
            or drawn[0] < 0
            or drawn[-1] >= self.n_common
        ):
            raise ConfigurationError(f"landmarks are 2 to {MOST_LANDMARKS} places, ascending", where=self._site)
        if not 0 <= ask.first < ask.last <= self.n_common or not 0 <= ask.nearest <= len(drawn):
            raise ConfigurationError("there is no such block of patients", where=self._site)
        known = self._view(view, ask.norm)
        key = (view, ask.norm, drawn.tobytes())
        if key not in self._landmarks:
            self._landmarks[key] = prepare_landmarks(known.rows[drawn])
        own = number_landmarks(np.arange(ask.first, ask.last), drawn)
        return known.rows[ask.first : ask.last], own, self._landmarks[key]

    def _view(self, view: str, norm: str) -> _View:
        if (view, norm) not in self._prepared:
            kind: Any = norm
            values, present = self._data.array(view), self._present[view]
            rows = prepare_view(values if present.all() else values[present], kind)
            self._prepared[view, norm] = _View(self.places(view), rows)
        return self._prepared[view, norm]


def check_terms(terms: sent.Terms, *, modest: bool) -> None:
    """Raise ConfigurationError unless a site can work by these terms.

    Parameters
    ----------
    terms : Terms
    modest : bool
        Refuse terms by which relations come near the patients' inner products: many of them, hardly told apart.
    """
    if modest and not (terms.top <= MOST_LISTED and _mu(terms) <= MOST_MU):
        raise ConfigurationError(
            f"more than {MOST_LISTED} relations of a patient, or mu above {MOST_MU:g}, show inner products of rows",
            where="top, mu",
            hint="Take fewer; a policy with min_patients = 0 is for simulations.",
        )
    penalties = (terms.lambda_1, terms.lambda_3)
    if terms.norm not in NORMS:
        raise ConfigurationError("there is no such norm", where="norm", hint=f"Take one of {', '.join(NORMS)}.")
    if (
        not all(1 / LARGEST_PENALTY <= one <= LARGEST_PENALTY for one in penalties)
        or not 0 <= terms.lambda_2 <= LARGEST_PENALTY
    ):
        raise ConfigurationError(
            "penalties are above 0, lambda_2 at least 0", where="lambda_1, lambda_2, lambda_3", hint="Take mu = 5."
        )
    if not 1e-10 <= terms.tolerance <= 0.1 or terms.top < 1:
        raise ConfigurationError("a tolerance from 1e-10 to 0.1 and at least one relation are needed", where="top, tol")


def check_told(told: sent.Told | sent.Refining, site: str, own: Mapping[str, float]) -> None:
    """Raise RefusedByPolicy unless the distances of a site's views are among those told, as it told them itself.

    All sites are told the same, or their masks would not cancel: so nobody but the sites decides on the weights.
    """
    rows = zip(told.sites, told.views, told.distances.tolist(), strict=False)
    found = {view: distance for name, view, distance in rows if name == site}
    if found != dict(own) or not len(told.sites) == len(told.views) == len(told.distances):
        raise RefusedByPolicy(
            "weights follow from what the sites told, and this site told otherwise", where=site, hint="Fit anew."
        )


def _mu(terms: sent.Terms) -> float:
    return float(reduce_weights(terms.lambda_1, terms.lambda_3))


def _penalty(known: _View, terms: sent.Terms) -> float | Floats:
    if not terms.lambda_2:
        return terms.lambda_1
    return np.asarray(terms.lambda_1 + terms.lambda_2 * manifold_weights(known.rows) ** 2)


def _solve(known: _View, terms: sent.Terms) -> NDArray[Any]:
    weights = reduce_weights(_penalty(known, terms), terms.lambda_3)
    return express(known.factor, weights, tol=terms.tolerance, single=terms.tolerance >= FINE).codes
