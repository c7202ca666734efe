"""Self-expression of a site's patients, view by view, with checks of the coordinator's requests.

Equations are those of D. Li, Z. Yang, S. Xie (2025), FedMSGL: a self-expressive hypergraph based federated multi-view
learning, AAAI.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.fedmsgl import messages
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
    ViewNorm,
    factor_gram,
    manifold_weights,
    prepare_view,
)
from multicentre.core.steps import Common
from multicentre.data import MultiViewData
from multicentre.errors import ConfigurationError, DataError, RefusedByPolicy

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

NORMS: tuple[ViewNorm, ...] = get_args(ViewNorm)
# Fewest patients of a view: each is expressed by at least two others.
MIN_PATIENTS = 3
# Patients up to which a site makes a table of pairs; at this number a table takes 3.2 GB.
MAX_PAIRED = 20_000
# Landmarks up to which a site decomposes their Gram matrix. The matrix and its eigenvectors take 200 MB each at this
# number; the time grows with its cube.
MAX_LANDMARKS = 5_000
# Clusters up to which a site returns profiles.
MAX_CLUSTERS = 1_000
# Relations per patient above which a list comes near the inner products of rows.
MAX_LISTED = 200
# Penalty above which weights are nearly linear in the inner products of rows.
MAX_MU = 100.0
# Residual below which single precision no longer suffices.
FINE = 1e-4
# Penalties beyond this value, or below its inverse, lose the precision of float64.
MAX_PENALTY = 1e9


@dataclass(frozen=True, eq=False)
class _View:
    """Prepared view: the places of its patients, and their rows."""

    places: Integers
    rows: Floats

    @cached_property
    def factor(self) -> GramFactor:
        """Factor of the Gram matrix of the rows."""
        return factor_gram(self.rows)


@dataclass(frozen=True, eq=False)
class RefinedView:
    """Relations of a view, close to the consensus.

    Parameters
    ----------
    shared, specific : arrays of shape (n, n)
        Shared and view-specific part; row j expresses patient j.
    distance : float
        Of the shared part from the consensus.
    loss : float
        Unexplained share of the view, and penalties.
    """

    shared: Floats
    specific: Floats
    distance: float
    loss: float


class LocalViews:
    """Views of one site, in the common order of patients.

    Parameters
    ----------
    data : MultiViewData
    common : Common
    site : str

    Raises
    ------
    DataError
        Too few patients have a view, or some have an incomplete view.
    """

    def __init__(self, data: MultiViewData, common: Common, site: str) -> None:
        self._data, self._common, self._site = data, common, site
        self._prepared: dict[tuple[str, str], _View] = {}
        self._landmarks: dict[tuple[str, str, bytes], Landmarks] = {}
        self._present = {view: data.patients_with(view) for view in data.views}
        data.check_whole_views()
        for view, present in self._present.items():
            if present.sum() < MIN_PATIENTS:
                raise DataError(
                    f"aligned patients with the view must be at least {MIN_PATIENTS}; got fewer",
                    where=f"{site}, {view}",
                    hint="Leave the view out.",
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the views."""
        return self._data.views

    @property
    def n_common(self) -> int:
        """Number of patients in the common order."""
        return self._common.n_common

    @property
    def fewest(self) -> int:
        """Number of patients who have the rarest view."""
        return min(int(present.sum()) for present in self._present.values())

    @property
    def n_incomplete(self) -> int:
        """Number of views that some patients of the common order lack."""
        return sum(int(present.sum()) < self.n_common for present in self._present.values())

    def places(self, view: str) -> Integers:
        """Return the places of the patients who have a view."""
        return self._common.places[self._present[view]]

    def present(self, view: str) -> Flags:
        """Return a mask of the patients who have a view, in the common order, shape (n,)."""
        present = np.zeros(self.n_common, dtype=np.bool_)
        present[self.places(view)] = True
        return present

    def express(self, view: str, settings: messages.Settings) -> Neighbours:
        """Return the largest weights of each patient's self-expression (equation 4 of Li et al. 2025)."""
        prepared = self._view(view, settings.norm)
        codes = _solve(prepared, settings)
        columns, values = list_largest(codes, settings.top)
        placed = np.where(columns >= 0, prepared.places[columns], -1)
        return Neighbours(prepared.places, placed, values.astype(np.float64))

    def refine(self, view: str, request: messages.RefinementRequest, weight: float) -> RefinedView:
        """Return the relations of a view close to the consensus (equation 10 of Li et al. 2025).

        Parameters
        ----------
        view : str
        request : RefinementRequest
        weight : float
            Of the view, from 0 to 1.

        Raises
        ------
        ConfigurationError
            The consensus does not fit the common order or is negative, or some patients lack the view.
        """
        consensus = self._checked_consensus(request)
        prepared, a = self._view(view, request.norm), _penalty(self._view(view, request.norm), request)
        pull = request.coupling * weight
        if pull:
            single = request.tolerance >= FINE
            parts = express_coupled(
                prepared.factor, a, request.lambda_3, pull, consensus, tol=request.tolerance, single=single
            )
        else:
            parts = split(_solve(prepared, request), a, request.lambda_3)
        is_largest = keep_largest(parts[0] + parts[1], request.top) > 0
        shared, specific = (np.where(is_largest, part, 0.0).astype(np.float64) for part in parts)
        loss = measure_coupled_objective(prepared.factor, shared, specific, a, request.lambda_3, 0.0, consensus)
        return RefinedView(shared, specific, float(np.linalg.norm(shared - consensus)), float(loss.sum()))

    def code(self, view: str, request: messages.CodingRequest) -> Floats:
        """Return the weight of every landmark in each patient of a block, shape (b, m)."""
        rows, landmark, landmarks = self._block(view, request)
        if not request.nearest:
            return code_on_all(rows, landmark, landmarks, _mu(request), tol=request.tolerance).astype(np.float64)
        columns, values = code_on_nearest(rows, landmark, landmarks, _mu(request), request.nearest)
        return spread_codes(columns, values, len(request.landmarks))

    def list_codes(self, view: str, request: messages.CodingRequest) -> tuple[Integers, Floats]:
        """Return the landmarks of largest weight in each patient of a block, and the weights, both of shape (b, t)."""
        rows, landmark, landmarks = self._block(view, request)
        if request.nearest:
            return code_on_nearest(rows, landmark, landmarks, _mu(request), request.nearest)
        from multicentre.clustering.kernels.spectrum import largest_of_rows

        codes = code_on_all(rows, landmark, landmarks, _mu(request), tol=request.tolerance)
        return largest_of_rows(codes.astype(np.float64), min(request.top, codes.shape[1]), -len(codes))

    def checked_size(self) -> int:
        """Return the number of patients in the common order, after checks that tables of pairs are possible.

        Raises
        ------
        ConfigurationError
            There are too many patients; or some lack a view although the sites agreed on complete ones. A sum would
            then show the pairs of a single site.
        """
        if self.n_incomplete and not self._common.incomplete:
            raise ConfigurationError(
                "every patient must have every view; got patients who lack a view",
                where=self._site,
                hint="Set incomplete=True, or leave the others out.",
            )
        if self.n_common > MAX_PAIRED:
            raise ConfigurationError(
                f"a table of pairs must have at most {MAX_PAIRED} patients; got {self.n_common}",
                where=self._site,
                hint="Use landmarks.",
            )
        return self.n_common

    def checked_labels(self, labels: Integers, n_clusters: int) -> Integers:
        """Return the clusters of the site's patients, -1 for no cluster.

        Raises
        ------
        ConfigurationError
            The labels do not fit the common order or the number of clusters.
        """
        if len(labels) != self.n_common or not 1 <= n_clusters <= min(self.n_common, MAX_CLUSTERS):
            raise ConfigurationError(
                f"labels must be of {self.n_common} patients in 1 to {min(self.n_common, MAX_CLUSTERS)} clusters; "
                f"got {len(labels)} labels and {n_clusters} clusters",
                where=self._site,
                hint="Fit again.",
            )
        if labels.min() < -1 or labels.max() >= n_clusters:
            raise ConfigurationError(
                f"labels must be from -1 to {n_clusters - 1}; got {labels.min()} to {labels.max()}",
                where=self._site,
                hint="Fit again.",
            )
        return labels[self._common.places]

    def _checked_consensus(self, request: messages.RefinementRequest) -> Floats:
        consensus = request.consensus.astype(np.float64)
        if self.n_incomplete or consensus.shape[0] != self.n_common or consensus.min(initial=0.0) < 0:
            raise ConfigurationError(
                f"the consensus must be non-negative, of {self.n_common} patients who have every view; "
                f"got shape {consensus.shape} and the minimum {consensus.min(initial=0.0):g}",
                where=self._site,
                hint="Set max_iter=1.",
            )
        if not 0 <= request.coupling <= MAX_PENALTY or consensus.max(initial=0.0) > messages.MAX_VIEWS:
            raise ConfigurationError(
                f"coupling must be from 0 to {MAX_PENALTY:g} and the consensus at most {messages.MAX_VIEWS:g}; "
                f"got {request.coupling:g} and {consensus.max(initial=0.0):g}",
                where=self._site,
                hint="Set consensus_penalty to a smaller value.",
            )
        return consensus

    def _block(self, view: str, request: messages.CodingRequest) -> tuple[Floats, Integers, Landmarks]:
        landmarks = request.landmarks
        if self.n_incomplete:
            raise ConfigurationError(
                "every patient must have every view; got patients who lack a view",
                where=self._site,
                hint="Set landmarks=None.",
            )
        if (
            not 2 <= len(landmarks) <= MAX_LANDMARKS
            or np.any(np.diff(landmarks) <= 0)
            or landmarks[0] < 0
            or landmarks[-1] >= self.n_common
        ):
            raise ConfigurationError(
                f"landmarks must be 2 to {MAX_LANDMARKS} places below {self.n_common} in ascending order; "
                f"got {len(landmarks)} places",
                where=self._site,
                hint="Fit again.",
            )
        if not 0 <= request.first < request.last <= self.n_common or not 0 <= request.nearest <= len(landmarks):
            raise ConfigurationError(
                f"the block must be within {self.n_common} patients; got {request.first} to {request.last}",
                where=self._site,
                hint="Fit again.",
            )
        prepared = self._view(view, request.norm)
        key = (view, request.norm, landmarks.tobytes())
        if key not in self._landmarks:
            self._landmarks[key] = prepare_landmarks(prepared.rows[landmarks])
        landmark = number_landmarks(np.arange(request.first, request.last), landmarks)
        return prepared.rows[request.first : request.last], landmark, self._landmarks[key]

    def _view(self, view: str, norm: str) -> _View:
        if (view, norm) not in self._prepared:
            kind: Any = norm
            values, present = self._data.array(view), self._present[view]
            rows = prepare_view(values if present.all() else values[present], kind)
            self._prepared[view, norm] = _View(self.places(view), rows)
        return self._prepared[view, norm]


def check_settings(settings: messages.Settings, *, has_minimum: bool) -> None:
    """Raise ConfigurationError unless the settings are in their ranges.

    Parameters
    ----------
    settings : Settings
    has_minimum : bool
        Whether the site's policy has a minimum of patients. It then refuses settings with which relations come near the
        inner products of rows: many relations, or a large mu.
    """
    if has_minimum and not (settings.top <= MAX_LISTED and _mu(settings) <= MAX_MU):
        raise ConfigurationError(
            f"top must be at most {MAX_LISTED} and mu at most {MAX_MU:g}, or relations show inner products of rows; "
            f"got {settings.top} and {_mu(settings):g}",
            where="top, mu",
            hint="Decrease them; a policy with min_patients = 0 is for simulations.",
        )
    penalties = (settings.lambda_1, settings.lambda_3)
    if settings.norm not in NORMS:
        raise ConfigurationError(
            f"norm must be one of {', '.join(map(repr, NORMS))}; got {settings.norm!r}", where="norm", hint="Use 'l2'."
        )
    if not all(1 / MAX_PENALTY <= one <= MAX_PENALTY for one in penalties) or not 0 <= settings.lambda_2 <= MAX_PENALTY:
        raise ConfigurationError(
            f"lambda_1 and lambda_3 must be from {1 / MAX_PENALTY:g} to {MAX_PENALTY:g}, lambda_2 at least 0; "
            f"got {settings.lambda_1:g}, {settings.lambda_3:g} and {settings.lambda_2:g}",
            where="lambda_1, lambda_2, lambda_3",
            hint="Set share_penalty=5 and distance_penalty=0.",
        )
    if not 1e-10 <= settings.tolerance <= 0.1 or settings.top < 1:
        raise ConfigurationError(
            f"tolerance must be from 1e-10 to 0.1 and top at least 1; got {settings.tolerance:g} and {settings.top}",
            where="top, tol",
            hint="Correct tol or n_neighbors.",
        )


def check_distances(
    request: messages.ViewDistances | messages.RefinementRequest, site: str, returned: Mapping[str, float]
) -> None:
    """Raise RefusedByPolicy unless the request has the distances that the site returned for its views.

    All sites receive the same distances, or their masks would not cancel. So only the sites determine the weights.
    """
    rows = zip(request.sites, request.views, request.distances.tolist(), strict=False)
    distances = {view: distance for name, view, distance in rows if name == site}
    if distances != dict(returned) or not len(request.sites) == len(request.views) == len(request.distances):
        raise RefusedByPolicy(
            "distances of the site's views must be those that it returned; got different ones",
            where=site,
            hint="Fit again.",
        )


def _mu(settings: messages.Settings) -> float:
    return float(reduce_weights(settings.lambda_1, settings.lambda_3))


def _penalty(prepared: _View, settings: messages.Settings) -> float | Floats:
    if not settings.lambda_2:
        return settings.lambda_1
    return np.asarray(settings.lambda_1 + settings.lambda_2 * manifold_weights(prepared.rows) ** 2)


def _solve(prepared: _View, settings: messages.Settings) -> NDArray[Any]:
    weights = reduce_weights(_penalty(prepared, settings), settings.lambda_3)
    return express(prepared.factor, weights, tol=settings.tolerance, single=settings.tolerance >= FINE).codes
