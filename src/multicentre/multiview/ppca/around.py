"""Rounds of Fed-mv-PPCA around a global law, from which the parameters of each site are drawn.

One round consists of:

1. The coordinator sends the global law to every site, with the change of the latent axes.
2. Each site fits its own parameters and case mix under that law; both stay at the site. It returns the differences of
   its parameters to the global ones, their products, squares and posterior variances, and sums of its latents.
3. The sums over sites give the next global law by empirical Bayes, and the origin and the units of the latents that the
   priors prefer.

The next law is combined with those of earlier rounds. A round that lowers the objective is refused, and undone by the
next one. After two refusals in a row the latent axes stay, and the step is one that never lowers the objective.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from multicentre.core.messages import array
from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.multiview.ppca import messages
from multicentre.multiview.ppca.maths.acceleration import MAX_REFUSALS, Trail
from multicentre.multiview.ppca.maths.global_step import (
    first_prior,
    log_prior_of_centre,
    pack_prior,
    regauge_prior,
    step_prior,
    unpack_prior,
    weigh_prior,
)
from multicentre.multiview.ppca.maths.latent_step import LatentSlopes, step_latents
from multicentre.multiview.ppca.maths.model import Floats, LatentLaw, square_root
from multicentre.multiview.ppca.maths.prior import Prior, PriorSums, PriorUnits
from multicentre.multiview.ppca.maths.rows import update_law
from multicentre.multiview.ppca.rounds import EMState, Plan, SharedState, best_of, is_settled, record_best
from multicentre.multiview.ppca.site import MvPPCASite


@dataclass(frozen=True)
class GlobalState(messages.Global, EMState):
    """State of the coordinator between rounds around the global law."""

    average_mean: Floats = array("mean of the latents over all patients at the best round", ("q",))
    average_covariance: Floats = array("covariance of the latents over all patients at the best round", ("q", "q"))
    next_origin: Floats = array("origin of the latents that the priors prefer at the best round", ("q",))
    next_units: Floats = array("covariance of the latents that becomes the identity", ("q", "q"))

    @property
    def prior(self) -> Prior:
        """The global law."""
        return Prior(**messages.fields_of(self, Prior))


def fit_around(session: Session, plan: Plan, shared: SharedState) -> tuple[Prior, Rounds[GlobalState]]:
    """Fit a global law and, at the sites, parameters around it; no accepted round lowers the bound."""
    rounds = session.rounds(plan.max_iter, GlobalState, lambda: _first_global(shared, plan), name="around")
    variance = plan.loadings_variance
    point_variance = np.full(plan.layout.n_views, np.inf) if variance is None else variance
    for _ in rounds:
        request = messages.AroundRequest(
            **messages.fields_of(rounds.state, messages.Global),
            point_variance=point_variance,
            n_iterations=plan.n_local_iter,
        )
        answer = session.sum(MvPPCASite.fit_around, request)
        rounds.state = _next_global(answer, rounds.state, plan, point_variance)
        record_best(rounds, answer.n_rows)
        if is_settled(rounds, plan.tol) or rounds.state.refusals >= MAX_REFUSALS:
            rounds.stop()
    state = rounds.state
    best = unpack_prior(state.points[-1], state.prior)
    return regauge_prior(best, plan.layout, LatentLaw(state.average_mean, state.average_covariance)), rounds


def _first_global(shared: SharedState, plan: Plan) -> GlobalState:
    """Start around the shared fit, for latents in units of the average case mix."""
    q, best = plan.n_components, best_of(shared, plan)
    prior = first_prior(best, plan.layout, plan.several, shared.intercept_variance)
    gauge = (shared.gauge_mean, shared.gauge_axes)
    if not plan.ard:
        gauge = (shared.average_mean, square_root(shared.average_covariance))
    return GlobalState(
        **messages.fields_of(prior),
        gauge_mean=gauge[0],
        gauge_axes=gauge[1],
        undo=shared.undo,
        **messages.fields_of(Trail.begin(len(pack_prior(prior)))),
        log_likelihood=-np.inf,
        average_mean=np.zeros(q),
        average_covariance=np.eye(q),
        next_origin=np.zeros(q),
        next_units=np.eye(q),
    )


def _next_global(answer: messages.GlobalSums, state: GlobalState, plan: Plan, centre_variance: Floats) -> GlobalState:
    """Judge the round, and choose the next global law and latent axes."""
    layout, prior, reml = plan.layout, state.prior, plan.ddof > 0
    units = PriorUnits.of(prior, layout)
    sums = units.read(PriorSums(**messages.fields_of(answer, PriorSums)), layout)
    value = answer.objective + log_prior_of_centre(sums, prior, layout, centre_variance=centre_variance, reml=reml)
    trail = Trail(**messages.fields_of(state, Trail))
    if trail.accepts(value):
        fast, slow = (
            step_prior(sums, prior, layout, centre_variance=centre_variance, reml=reml, plain=plain)
            for plain in (False, True)
        )
        trail = trail.moved(lambda point: _move(point, state, plan))
        trail = trail.accept(pack_prior(prior), pack_prior(fast), value, plain=pack_prior(slow))
        average = update_law(answer.latent_first, answer.latent_second, answer.n_rows)
        slopes = LatentSlopes(units.read_products(answer.products), answer.latent_pull, answer.latent_weight)
        preferred = step_latents(slopes, sums, prior, layout, centre_variance=centre_variance, reml=reml)
        state = replace(
            state,
            log_likelihood=answer.objective,
            average_mean=average.mean,
            average_covariance=average.covariance,
            next_origin=preferred.mean,
            next_units=preferred.covariance,
        )
    else:
        trail = trail.refuse()
    gauge = LatentLaw(state.next_origin, state.next_units)
    if trail.refusals > 1:
        gauge = LatentLaw.standard(plan.n_components)
    proposed = regauge_prior(unpack_prior(trail.propose(weigh_prior(prior, layout)), prior), layout, gauge)
    return replace(
        state,
        **messages.fields_of(trail),
        **messages.fields_of(proposed),
        gauge_mean=gauge.mean,
        gauge_axes=square_root(gauge.covariance),
        undo=trail.refusals > 0,
    )


def _move(vector: Floats, state: GlobalState, plan: Plan) -> Floats:
    """Bring a packed law to the latent units of the request."""
    gauge = LatentLaw(state.gauge_mean, state.gauge_axes @ state.gauge_axes.T)
    return pack_prior(regauge_prior(unpack_prior(vector, state.prior), plan.layout, gauge))
