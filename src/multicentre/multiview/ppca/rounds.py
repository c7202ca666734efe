"""Rounds of Fed-mv-PPCA at the coordinator.

After the agreement on columns and units, each site returns counts of its patients by pair of views and sums of its
columns, and then products of its second moments with directions. The leading directions of the sums over sites are the
first loadings.

One round of the shared parameters (exact federated EM) consists of:

1. The coordinator sends the loadings, means and noise variances to every site, with the change of the latent axes.
2. Each site updates its case mix, which stays at the site, and returns sums over its patients: entries times expected
   latents, second moments of the latents, squared entries, and the log-likelihood.
3. The sums over sites give the next loadings, means and noise variances. The latent axes move so that the average case
   mix is standard normal.

With ``method="hierarchical"`` a second loop follows (:mod:`~multicentre.multiview.ppca.around`).

A loop stops when the log-likelihood changes by less than ``tol``, relatively, in two successive rounds.

With `epsilon`, the sites release one noised sum instead (:mod:`~multicentre.multiview.ppca.private`), and the
coordinator runs all rounds of the shared parameters on the moments that it contains.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from multicentre.core.messages import Message, Nothing, array, count, number
from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.multiview.ppca import messages
from multicentre.multiview.ppca.maths import ard, start
from multicentre.multiview.ppca.maths.acceleration import MAX_REFUSALS, Trail
from multicentre.multiview.ppca.maths.gauge import prior_units
from multicentre.multiview.ppca.maths.global_step import weigh_logarithm
from multicentre.multiview.ppca.maths.invariant import (
    SharedSums,
    answer_round,
    average_law,
    centre_intercepts,
    update_intercept_variance,
    update_shared,
)
from multicentre.multiview.ppca.maths.model import (
    Booleans,
    Floats,
    LatentLaw,
    Layout,
    NoiseModel,
    Parameters,
    absorb_axes,
    absorb_law,
    square_root,
)
from multicentre.multiview.ppca.maths.moments import PatternMoments
from multicentre.multiview.ppca.maths.prior import TYPICAL_PATIENTS
from multicentre.multiview.ppca.site import MvPPCASite

# Logarithm of a variance that is beyond any unit of the columns, and whose square is a double.
MAX_LOG_VARIANCE = 300.0
# Largest ratio of an extrapolated noise variance to that of the plain step. A smaller variance would make the
# log-likelihood of outliers exceed the range of sums, before the round could be refused.
MAX_STRETCH = 100.0
# Columns up to which the whole second-moment matrix is one release (1.3 MB at 400).
MAX_DIRECT = 400
# Steps of the subspace iteration: each costs a sum; EM refines the start afterwards.
SUBSPACE_STEPS = 4


@dataclass(frozen=True)
class Plan:
    """Settings that stay fixed during a fit.

    Parameters
    ----------
    layout : Layout
    n_components : int
        Latent dimensions, the paper's q.
    max_iter : int
        The paper's R.
    n_local_iter : int
        The paper's I.
    tol : float
        Gain of the objective, in nats per patient, below which two accepted rounds in a row end a loop.
    shared_tol : float
        The same for the rounds of the shared parameters.
    noise : {"isotropic", "diagonal"}
    loadings_variance : array of shape (k,), optional
        Variance of the prior law of a loading of each view while parameters are shared.
    ard : bool
        Let latent dimensions that a view does not need switch off.
    ddof : {0, 1}
        Subtracted from the number of sites in the between-site variances.
    seed : int
    several : mask of shape (k,)
        Views that at least two sites have.
    first_intercepts : array of shape (d,)
        First variance of the sites' intercepts; 0 where a column has none.
    """

    layout: Layout
    n_components: int
    max_iter: int
    n_local_iter: int
    tol: float
    shared_tol: float
    noise: NoiseModel
    loadings_variance: Floats | None
    ard: bool
    ddof: int
    seed: int
    several: Booleans
    first_intercepts: Floats


@dataclass(frozen=True)
class EMState(Message):
    """Accepted rounds of a loop, in the latent units of the last of them, which is the best."""

    points: Floats = array("parameters of the last accepted rounds", ("h", "p"))
    images: Floats = array("parameters after the plain step from each of them", ("h", "p"))
    plain: Floats = array("parameters after the step from the best that never lowers the objective", ("p",))
    best: float = number("objective at the last of them", finite=False)
    refusals: int = count("rounds in a row that were refused since")
    log_likelihood: float = number("log-likelihood at the best round", finite=False)


@dataclass(frozen=True)
class SharedState(messages.Shared, EMState):
    """State of the coordinator between rounds of the shared parameters."""

    precisions: Floats = array("precision of the loadings by view and latent dimension; 0 leaves them free", ("k", "q"))
    average_mean: Floats = array("mean of the latents over all patients at the best round", ("q",))
    average_covariance: Floats = array("covariance of the latents over all patients at the best round", ("q", "q"))
    latent_pull: Floats = array("slope of the prior of the case mixes at the best round", ("q", "q"))
    latent_weight: float = number("curvature of the prior of the case mixes", unit="patients")
    n_rows: float = number("patients", unit="patients")


def find_start(session: Session, plan: Plan, part: type[MvPPCASite] = MvPPCASite) -> messages.Shared:
    """Start from the leading directions of the summed within-site second moments."""
    layout = plan.layout
    moments = session.sum(part.sum_first_moments, Nothing())
    sums = start.StartSums(moments.pairs, moments.total, moments.variances)
    start.require_views(sums, layout)
    _warn_of_unlinked_views(start.group_unlinked_views(sums.pairs, layout.names))
    if layout.n_features <= MAX_DIRECT:
        request = messages.Directions(np.eye(layout.n_features), sums.pairs)
        covariance = session.sum(part.multiply_moments, request).products
        first = start.start_from_covariance(sums, covariance, layout, plan.n_components)
        return _shared(first, intercept_variance=plan.first_intercepts)
    generator = np.random.default_rng(plan.seed)
    directions = start.draw_directions(layout, plan.n_components, generator)
    for step in range(SUBSPACE_STEPS):
        request = messages.Directions(start.scale_directions(sums, layout, directions), sums.pairs)
        products = session.sum(part.multiply_moments, request).products
        if step < SUBSPACE_STEPS - 1:
            directions = start.next_directions(sums, layout, products)
    first = start.start_from_products(sums, layout, directions, products, plan.n_components)
    return _shared(first, intercept_variance=plan.first_intercepts)


def fit_shared(session: Session, plan: Plan, first: messages.Shared) -> tuple[Parameters, Rounds[SharedState]]:
    """Fit the shared parameters with one sum per round; no accepted round lowers the objective."""
    return _climb(session, plan, first, lambda request: session.sum(MvPPCASite.fit_shared, request))


def fit_moments(session: Session, plan: Plan, patterns: list[PatternMoments]) -> tuple[Parameters, Rounds[SharedState]]:
    """Fit shared parameters to moments that the coordinator holds; no site is called."""
    layout, law = plan.layout, LatentLaw.standard(plan.n_components)
    sums = start.sum_first_moments(patterns, layout)
    covariance = start.multiply_second_moments(patterns, layout, np.eye(layout.n_features), sums.pairs)
    first = _shared(start.start_from_covariance(sums, covariance, layout, plan.n_components))

    def answer(request: messages.Shared) -> PriorSlopes:
        sums, _ = answer_round(patterns, layout, _parameters(request), law, n_repetitions=0)
        # The case mix is the standard one: its prior outweighs any number of patients.
        pull = sums.n_rows * (average_law(sums).covariance - np.eye(plan.n_components))
        return PriorSlopes(**messages.fields_of(sums), latent_pull=pull, latent_weight=sums.n_rows, log_prior=0.0)

    return _climb(session, plan, first, answer)


@dataclass(frozen=True)
class PriorSlopes(SharedSums):
    """Sums of a round, with those of the prior of the case mixes."""

    latent_pull: Floats
    latent_weight: float
    log_prior: float


def _climb(
    session: Session,
    plan: Plan,
    first: messages.Shared,
    answer: Callable[[messages.Shared], messages.SharedSums | PriorSlopes],
) -> tuple[Parameters, Rounds[SharedState]]:
    rounds = session.rounds(plan.max_iter, SharedState, lambda: _first_state(first, plan), name="shared")
    for _ in rounds:
        state = rounds.state
        sums = PriorSlopes(
            **messages.fields_of(answer(messages.Shared(**messages.fields_of(state, messages.Shared))), PriorSlopes)
        )
        rounds.state = (_next_relevant if plan.ard else _next_shared)(sums, state, plan)
        record_best(rounds, sums.n_rows)
        if is_settled(rounds, plan.shared_tol) or rounds.state.refusals >= MAX_REFUSALS:
            rounds.stop()
    return best_of(rounds.state, plan), rounds


def is_settled(rounds: Rounds[Any], tol: float) -> bool:
    """Return whether each of the last two accepted rounds raised the objective by less than `tol` nats per patient."""
    values = [entry["objective"] for entry in [*rounds.history, rounds.metrics] if not entry["refused"]][-3:]
    return len(values) == 3 and all(abs(new - old) < tol for old, new in itertools.pairwise(values))


def record_best(rounds: Rounds[Any], n_rows: float) -> None:
    """Record the best state so far: after a refused round, that of the last accepted one."""
    state = rounds.state
    rounds.record(
        objective=state.best / n_rows, log_likelihood=state.log_likelihood / n_rows, refused=float(state.refusals > 0)
    )


def _warn_of_unlinked_views(groups: list[tuple[str, ...]]) -> None:
    if len(groups) > 1:
        linked = "; ".join(", ".join(group) for group in groups)
        warnings.warn(
            f"no patient links these groups of views: {linked}. Their latent dimensions cannot be matched.",
            UserWarning,
            stacklevel=9,
        )


def _first_state(first: messages.Shared, plan: Plan) -> SharedState:
    q, p = plan.n_components, len(_pack(first))
    return SharedState(
        **messages.fields_of(first),
        **messages.fields_of(Trail.begin(p)),
        precisions=np.zeros((plan.layout.n_views, q)),
        log_likelihood=-np.inf,
        average_mean=np.zeros(q),
        average_covariance=np.eye(q),
        latent_pull=np.zeros((q, q)),
        latent_weight=0.0,
        n_rows=1.0,
    )


def _next_shared(sums: PriorSlopes, state: SharedState, plan: Plan) -> SharedState:
    """Judge the round, and choose the next parameters, in latent units of the best round."""
    trail = Trail(**messages.fields_of(state, Trail))
    value = sums.log_likelihood + sums.log_prior + _log_prior_of_loadings(state.loadings, plan)
    if trail.accepts(value):
        trail = trail.moved(lambda point: _move(point, state))
        trail = trail.accept(_pack(state), _pack(_maximise(sums, state, plan)), value)
        average = average_law(sums)
        state = replace(
            state,
            log_likelihood=sums.log_likelihood,
            average_mean=average.mean,
            average_covariance=average.covariance,
            latent_pull=sums.latent_pull,
            latent_weight=sums.latent_weight,
            n_rows=sums.n_rows,
        )
    else:
        trail = trail.refuse()
    proposed, image = (_unpack(point, state) for point in (trail.propose(_metric(state)), trail.images[-1]))
    gauge = _gauge(state, proposed.loadings, plan, trail.refusals)
    moved = absorb_law(_parameters(proposed), gauge)
    return replace(
        state,
        **messages.fields_of(trail),
        loadings=moved.loadings,
        mean=moved.mean,
        noise=np.clip(moved.noise, image.noise / MAX_STRETCH, image.noise * MAX_STRETCH),
        # Ten times the variance of the view: an extrapolation beyond it cannot be right.
        intercept_variance=np.minimum(proposed.intercept_variance, 100.0 * plan.first_intercepts),
        gauge_mean=gauge.mean,
        gauge_axes=square_root(gauge.covariance),
        undo=trail.refusals > 0,
    )


def _maximise(sums: PriorSlopes, state: SharedState, plan: Plan) -> messages.Shared:
    """Do the M-step, in the latent units of the sums."""
    previous = centre_intercepts(sums, _parameters(state), state.intercept_variance)
    fitted = update_shared(sums, previous, plan.layout, noise=plan.noise, loadings_variance=plan.loadings_variance)
    intercepts = update_intercept_variance(sums, state.intercept_variance, plan.layout, noise=plan.noise)
    return _shared(fitted, intercept_variance=intercepts)


def _log_prior_of_loadings(loadings: Floats, plan: Plan) -> float:
    return -0.5 * float(np.trace(_prior_curvature(loadings, plan)))


def _prior_curvature(loadings: Floats, plan: Plan) -> Floats:
    """Return ``sum over views of W_k' W_k / variance_k``, shape (q, q)."""
    if plan.loadings_variance is None:
        return np.zeros((plan.n_components, plan.n_components))
    return loadings.T @ (loadings / plan.loadings_variance[plan.layout.view_of, None])


def _gauge(state: SharedState, loadings: Floats, plan: Plan, refusals: int) -> LatentLaw:
    """Choose the next latent units: the longer step if no round is refused, and none after the second refusal."""
    if refusals > 1:
        return LatentLaw.standard(plan.n_components)
    if not state.latent_weight:
        return LatentLaw(state.average_mean, state.average_covariance)
    curvature = state.n_rows if refusals else state.latent_weight
    # With intercepts, the prior of the case mixes decides the origin too.
    origin = np.zeros(plan.n_components) if state.intercept_variance.any() else state.average_mean
    return LatentLaw(origin, prior_units(state.latent_pull, curvature, _prior_curvature(loadings, plan)))


def best_of(state: SharedState, plan: Plan) -> Parameters:
    """Return the parameters of the best round after their M-step, for a standard case mix on average."""
    if plan.ard:
        return _parameters(state)
    refused = state.refusals > 1
    best = _unpack(state.points[-1] if refused else state.images[-1], state)
    return absorb_law(_parameters(best), LatentLaw(state.average_mean, state.average_covariance))


def best_intercepts(state: SharedState, plan: Plan) -> Floats:
    """Return the variance of the sites' intercepts at the best round, shape (d,)."""
    return state.intercept_variance if plan.ard else _unpack(state.points[-1], state).intercept_variance


def _next_relevant(sums: PriorSlopes, state: SharedState, plan: Plan) -> SharedState:
    """Do a round with relevance determination, which is neither accelerated nor refused."""
    previous = centre_intercepts(sums, _parameters(state), state.intercept_variance)
    intercepts = update_intercept_variance(sums, state.intercept_variance, plan.layout, noise=plan.noise)
    relevant = ard.maximise_relevant(sums, previous, state.precisions, plan.layout, noise=plan.noise)
    axes = square_root(relevant.gauge.covariance) @ relevant.turn
    moved = _shared(relevant.parameters, relevant.gauge.mean, axes, intercepts)
    return replace(
        state,
        **messages.fields_of(moved),
        precisions=relevant.precisions,
        best=sums.log_likelihood,
        log_likelihood=sums.log_likelihood,
    )


def _pack(shared: messages.Shared) -> Floats:
    """Write parameters as a vector without constraints; variances as logarithms."""
    intercepts = np.log(np.where(shared.intercept_variance > 0, shared.intercept_variance, 1.0))
    return np.concatenate([shared.loadings.ravel(), shared.mean, np.log(shared.noise), intercepts])


def _unpack(vector: Floats, like: messages.Shared) -> messages.Shared:
    d, q = like.loadings.shape
    loadings, mean, noise, intercepts = np.split(vector, [d * q, d * q + d, d * q + 2 * d])
    variance = np.where(like.intercept_variance > 0, np.exp(np.minimum(intercepts, MAX_LOG_VARIANCE)), 0.0)
    return _shared(Parameters(loadings.reshape(d, q), mean, np.exp(noise)), intercept_variance=variance)


def _move(vector: Floats, state: messages.Shared) -> Floats:
    """Bring packed parameters to the latent units of the request."""
    point = _unpack(vector, state)
    moved = absorb_axes(_parameters(point), state.gauge_mean, state.gauge_axes)
    return _pack(_shared(moved, intercept_variance=point.intercept_variance))


def _metric(state: messages.Shared) -> Floats:
    """Return weights of residuals: loadings and means in units of the noise, and logarithms of variances."""
    d, q = state.loadings.shape
    by_noise = 1.0 / np.sqrt(state.noise)
    intercepts = weigh_logarithm(state.intercept_variance, state.noise / TYPICAL_PATIENTS)
    return np.concatenate([np.repeat(by_noise, q), by_noise, np.full(d, np.sqrt(0.5)), intercepts])


def _shared(
    parameters: Parameters,
    origin: Floats | None = None,
    axes: Floats | None = None,
    intercept_variance: Floats | None = None,
) -> messages.Shared:
    q, d = parameters.n_components, len(parameters.mean)
    return messages.Shared(
        parameters.loadings,
        parameters.mean,
        parameters.noise,
        np.zeros(d) if intercept_variance is None else intercept_variance,
        np.zeros(q) if origin is None else origin,
        np.eye(q) if axes is None else axes,
        undo=False,
    )


def _parameters(state: messages.Shared) -> Parameters:
    return Parameters(state.loadings, state.mean, state.noise)
