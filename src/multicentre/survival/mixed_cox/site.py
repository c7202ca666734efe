"""Site part of the Cox model with effects of sites: the steps that a coordinator can request.

Steps also inherited: all of survival/cox/site.py.

``tell_effect`` and ``tell_exact_effect`` return the effect of a single site, on request. All other answers are terms of
sums over sites.
"""

from __future__ import annotations

from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths
from multicentre.core.steps import step
from multicentre.errors import ConfigurationError
from multicentre.survival.cox.site import CoxSite, hazards_of
from multicentre.survival.kernels.risk_sets import RiskSets, weighted_products
from multicentre.survival.mixed_cox import messages
from multicentre.survival.mixed_cox.maths import (
    DISTRIBUTIONS,
    Distribution,
    SiteEffect,
    pairs_of,
    reference_effect,
    site_effect,
)

Floats = NDArray[np.float64]
# Largest number of times: a site returns a number per pair of times in each round, and 1024 times are 4 MiB.
MAX_TIMES = 1024


class MixedCoxSite(CoxSite):
    """Site part of the federated Cox model with effects of sites."""

    method: ClassVar[str] = "fed-mixed-cox"
    revision: ClassVar[int] = 8
    lengths: ClassVar[Lengths] = {
        "w": "columns and times",
        "u": "pairs of columns and times",
        "g": "pairs of columns and times with gaussian effects, otherwise 0",
    }

    @step(releases=messages.Effects, when="every round", summed=True)
    def sum_effects(self, request: messages.AtEffects) -> messages.Effects:
        """Sum the likelihood with the effect of the site integrated or maximised out, on a coarse grid of times."""
        return self._unless_few(request, messages.Effects(**self._effects(request, exact=False)), exact=False)

    @step(releases=messages.ExactEffects, when="every round", summed=True)
    def sum_exact_effects(self, request: messages.AtEffects) -> messages.ExactEffects:
        """Sum the likelihood with the effect of the site integrated or maximised out, at the times of all events."""
        return self._unless_few(request, messages.ExactEffects(**self._effects(request, exact=True)), exact=True)

    @step(releases=messages.OwnEffect, when="on request", refusable=True)
    def tell_effect(self, request: messages.AtEffects) -> messages.OwnEffect:
        """Return the effect of the site for a fit on a grid, so that an analyst can compare the sites."""
        return self._own_effect(request, exact=False)

    @step(releases=messages.OwnEffect, when="on request", refusable=True)
    def tell_exact_effect(self, request: messages.AtEffects) -> messages.OwnEffect:
        """Return the effect of the site for a fit at the times of all events, so that an analyst can compare sites."""
        return self._own_effect(request, exact=True)

    def _hazards(self, request: messages.AtEffects, *, exact: bool) -> tuple[RiskSets, Floats, Floats, int]:
        """Return risk sets, hazard ratios, cumulative hazards of the patients, and their effective number."""
        self._check_increments(request)
        shared, theta, patients = self._weighed(request, request.increments, exact=exact)
        hazards = shared.own_hazards(theta, request.increments, np.zeros(len(request.increments)))
        return shared, theta, hazards, min(patients, self._effective(hazards))

    def _check_increments(self, request: messages.AtEffects) -> None:
        if len(request.increments) > MAX_TIMES or (request.increments < 0).any():
            raise ConfigurationError(
                f"the baseline hazard must have at most {MAX_TIMES} increments of at least 0; got others",
                where="times",
                hint='Fit with times="grid".',
            )

    def _effect(self, request: messages.AtEffects, n_events: float, hazard: float) -> SiteEffect:
        is_random = request.distribution != "fixed"
        if request.distribution not in DISTRIBUTIONS or (request.variance > 0) != is_random:
            raise ConfigurationError(
                "effects must be fixed, or gamma or gaussian with a positive variance; got others",
                where="site_effects",
                hint="Start a new fit.",
            )
        if not is_random and request.reference == self.site:
            return reference_effect(hazard)
        if not hazard > 0:
            raise ConfigurationError(
                "at least one patient must be at risk at a time of an event; none is",
                where=self.site,
                hint="Fit without this site, or with an earlier horizon.",
            )
        return site_effect(cast(Distribution, request.distribution), request.variance, n_events, hazard)

    def _effects(self, request: messages.AtEffects, *, exact: bool) -> dict[str, Any]:
        shared, theta, hazards, patients = self._hazards(request, exact=exact)
        n_events = float(shared.n_events.sum())
        effect = self._effect(request, n_events, float(hazards.sum()))
        risk, risk_sum = shared.at_risk(theta), shared.sums(theta, "breslow").risk
        slopes = np.concatenate([request.increments @ risk_sum, request.increments * risk])
        pairs = pairs_of(slopes)
        is_finite = np.isfinite(effect.effect)
        # An effect of -inf has weight 0, and its site does not count.
        log_effect = effect.effect if is_finite else 0.0
        uncertainty = 1.0 / effect.precision if is_finite and np.isfinite(effect.precision) else 0.0
        moves = np.square(effect.weight * uncertainty) * pairs
        slope, bend, cross = effect.by_variance
        return {
            "n_patients": float(len(self.data)),
            "n_events": n_events,
            "n_sites": 1.0,
            "n_infinite": float(not is_finite),
            "effect": log_effect * len(self.data),
            "squared_effect": log_effect**2,
            "uncertainty": uncertainty,
            "value": effect.value + float(shared.event_sum @ request.coefficients) + shared.event_offset,
            "event_sum": shared.event_sum,
            "risk": effect.weight * risk,
            "risk_sum": effect.weight * risk_sum,
            "products": weighted_products(shared.rows, effect.weight * hazards),
            "bends": effect.bend * pairs,
            "moves": moves if request.distribution == "gaussian" else np.zeros(0),
            "variance_slope": slope,
            "variance_bend": bend,
            "variance_cross": cross * slopes,
            "patients": patients,
        }

    def _own_effect(self, request: messages.AtEffects, *, exact: bool) -> messages.OwnEffect:
        # Effects under two hazards would show the number at risk at the times where the hazards differ.
        self.ask_only_once("tell_effect", request)
        self._check_increments(request)
        self._check(request.coefficients, request.increments)
        shared, _ = self._shared(exact=exact)
        hazards = shared.own_hazards(hazards_of(shared, request), request.increments, np.zeros(len(request.increments)))
        n_events = shared.n_events.sum(keepdims=True)
        effect = self._effect(request, float(n_events[0]), float(hazards.sum()))
        if not np.isfinite(effect.effect):
            return messages.OwnEffect(0.0, 0.0, patients=0)
        behind = min(self._effective(hazards), self.behind(n_events))
        return messages.OwnEffect(effect.effect, 1.0 / float(np.sqrt(effect.precision)), patients=behind)
