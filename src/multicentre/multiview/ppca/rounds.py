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

With ``method="hierarchical"`` a second loop follows. One round consists of:

1. The coordinator sends the global law of the parameters to every site.
2. Each site fits its own parameters and case mix under that law; both stay at the site. It returns the differences of
   its parameters to the global ones, their squares and their posterior variances, and sums of its latents.
3. The sums over sites give the next global law by empirical Bayes. The latent axes move as above.

A loop stops when the log-likelihood changes by less than ``tol``, relatively, in two successive rounds.

With `epsilon`, the sites release one noised sum instead (:mod:`~multicentre.multiview.ppca.private`), and the
coordinator runs all rounds of the shared parameters on the moments that it contains.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from multicentre.core.messages import Nothing, array
from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.multiview.ppca import messages
from multicentre.multiview.ppca.maths import ard, start
from multicentre.multiview.ppca.maths.groupstep import first_prior, regauge_prior
from multicentre.multiview.ppca.maths.invariant import SharedSums, answer_round, maximise_shared
from multicentre.multiview.ppca.maths.model import Floats, LatentLaw, Layout, Parameters, square_root
from multicentre.multiview.ppca.maths.moments import PatternMoments
from multicentre.multiview.ppca.maths.prior import Prior, PriorSums, PriorUnits, maximise_prior
from multicentre.multiview.ppca.maths.problem import NoiseModel
from multicentre.multiview.ppca.maths.rows import update_law
from multicentre.multiview.ppca.site import MvPPCASite

# Columns up to which the whole second-moment matrix is one release (1.3 MB at 400).
LARGEST_DIRECT = 400
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
        Relative change of the objective below which two rounds in a row end a loop.
    noise : {"isotropic", "diagonal"}
    loadings_variance : array of shape (k,), optional
        Variance of the prior law of a loading of each view while parameters are shared.
    ard : bool
        Let latent dimensions that a view does not need switch off.
    ddof : {0, 1}
        Subtracted from the number of sites in the between-site variances.
    seed : int
    """

    layout: Layout
    n_components: int
    max_iter: int
    n_local_iter: int
    tol: float
    noise: NoiseModel
    loadings_variance: Floats | None
    ard: bool
    ddof: int
    seed: int


@dataclass(frozen=True)
class SharedState(messages.Shared):
    """State of the coordinator between rounds of the shared parameters."""

    precisions: Floats = array("precision of the loadings by view and latent dimension; 0 leaves them free", ("k", "q"))


@dataclass(frozen=True)
class GlobalState(messages.Global):
    """State of the coordinator between rounds around the global law."""


def find_start(session: Session, plan: Plan, part: type[MvPPCASite] = MvPPCASite) -> messages.Shared:
    """Start from the leading directions of the summed within-site second moments."""
    layout = plan.layout
    first = session.sum(part.sum_first_moments, Nothing())
    sums = start.StartSums(first.pairs, first.total, first.variances)
    start.require_views(sums, layout)
    _warn_of_unlinked_views(start.group_unlinked_views(sums.pairs, layout.names))
    if layout.n_features <= LARGEST_DIRECT:
        request = messages.Directions(np.eye(layout.n_features), sums.pairs)
        covariance = session.sum(part.multiply_moments, request).products
        return _shared(start.start_from_covariance(sums, covariance, layout, plan.n_components))
    generator = np.random.default_rng(plan.seed)
    directions = start.draw_directions(layout, plan.n_components, generator)
    for step in range(SUBSPACE_STEPS):
        request = messages.Directions(start.scale_directions(sums, layout, directions), sums.pairs)
        products = session.sum(part.multiply_moments, request).products
        if step < SUBSPACE_STEPS - 1:
            directions = start.next_directions(sums, layout, products)
    return _shared(start.start_from_products(sums, layout, directions, products, plan.n_components))


def fit_shared(session: Session, plan: Plan, first: messages.Shared) -> tuple[Parameters, Rounds[SharedState]]:
    """Fit the shared parameters with one sum per round; without priors the log-likelihood never falls."""
    return _climb(session, plan, first, lambda request: session.sum(MvPPCASite.fit_shared, request))


def fit_moments(session: Session, plan: Plan, patterns: list[PatternMoments]) -> tuple[Parameters, Rounds[SharedState]]:
    """Fit shared parameters to moments that the coordinator holds; no site is called."""
    layout, law = plan.layout, LatentLaw.standard(plan.n_components)
    sums = start.sum_first_moments(patterns, layout)
    covariance = start.multiply_second_moments(patterns, layout, np.eye(layout.n_features), sums.pairs)
    first = _shared(start.start_from_covariance(sums, covariance, layout, plan.n_components))
    return _climb(
        session,
        plan,
        first,
        lambda request: answer_round(patterns, layout, _parameters(request), law, n_repetitions=0)[0],
    )


def _climb(
    session: Session,
    plan: Plan,
    first: messages.Shared,
    answer: Callable[[messages.Shared], messages.SharedSums | SharedSums],
) -> tuple[Parameters, Rounds[SharedState]]:
    free = np.zeros((plan.layout.n_views, plan.n_components))
    rounds = session.rounds(
        plan.max_iter, SharedState, lambda: SharedState(**messages.fields_of(first), precisions=free), name="shared"
    )
    for _ in rounds:
        state = rounds.state
        sums = SharedSums(
            **messages.fields_of(answer(messages.Shared(**messages.fields_of(state, messages.Shared))), SharedSums)
        )
        rounds.record(log_likelihood=sums.log_likelihood / sums.n_rows)
        rounds.state = _next_shared(sums, state, plan)
        if is_settled(rounds, "log_likelihood", plan.tol):
            rounds.stop()
    return _parameters(rounds.state), rounds


def fit_around(session: Session, plan: Plan, shared: messages.Shared) -> tuple[Prior, Rounds[GlobalState]]:
    """Fit a global law and, at the sites, parameters around it, with between-site variances by empirical Bayes."""
    layout = plan.layout

    def begin() -> GlobalState:
        prior = first_prior(_parameters(shared), layout)
        return _global(prior, plan.n_components, shared.gauge_mean, shared.gauge_axes)

    rounds = session.rounds(plan.max_iter, GlobalState, begin, name="around")
    for _ in rounds:
        request = messages.AroundRequest(**messages.fields_of(rounds.state), n_iterations=plan.n_local_iter)
        answer = session.sum(MvPPCASite.fit_around, request)
        rounds.record(log_likelihood=answer.objective / answer.n_rows)
        previous = _prior(rounds.state)
        sums = PriorUnits.of(previous, layout).read(_prior_sums(answer), layout)
        prior = maximise_prior(sums, previous, layout, ddof=plan.ddof)
        gauge = update_law(answer.latent_first, answer.latent_second, answer.n_rows)
        prior = regauge_prior(prior, layout, gauge)
        rounds.state = _global(prior, plan.n_components, gauge.mean, square_root(gauge.covariance))
        if is_settled(rounds, "log_likelihood", plan.tol):
            rounds.stop()
    return _prior(rounds.state), rounds


def is_settled(rounds: Rounds[SharedState] | Rounds[GlobalState], name: str, tol: float) -> bool:
    """Return whether the metric changed by less than `tol`, relatively, in this round and the last one."""
    values = [entry[name] for entry in rounds.history[-2:]] + [rounds.metrics[name]]
    if len(values) < 3:
        return False
    return all(abs(new - old) <= tol * max(abs(old), 1.0) for old, new in itertools.pairwise(values))


def _warn_of_unlinked_views(groups: list[tuple[str, ...]]) -> None:
    if len(groups) > 1:
        linked = "; ".join(", ".join(group) for group in groups)
        warnings.warn(
            f"no patient links these groups of views: {linked}. Their latent dimensions cannot be matched.",
            UserWarning,
            stacklevel=9,
        )


def _next_shared(sums: SharedSums, state: SharedState, plan: Plan) -> SharedState:
    previous = _parameters(state)
    if plan.ard:
        relevant = ard.maximise_relevant(sums, previous, state.precisions, plan.layout, noise=plan.noise)
        axes = square_root(relevant.gauge.covariance) @ relevant.turn
        moved = _shared(relevant.parameters, relevant.gauge.mean, axes)
        return SharedState(**messages.fields_of(moved), precisions=relevant.precisions)
    parameters, gauge = maximise_shared(
        sums, previous, plan.layout, noise=plan.noise, loadings_variance=plan.loadings_variance
    )
    return SharedState(
        **messages.fields_of(_shared(parameters, gauge.mean, square_root(gauge.covariance))),
        precisions=state.precisions,
    )


def _shared(parameters: Parameters, origin: Floats | None = None, axes: Floats | None = None) -> messages.Shared:
    q = parameters.n_components
    return messages.Shared(
        parameters.loadings,
        parameters.mean,
        parameters.noise,
        np.zeros(q) if origin is None else origin,
        np.eye(q) if axes is None else axes,
    )


def _global(prior: Prior, q: int, origin: Floats | None = None, axes: Floats | None = None) -> GlobalState:
    moved = {"gauge_mean": np.zeros(q) if origin is None else origin, "gauge_axes": np.eye(q) if axes is None else axes}
    return GlobalState(**messages.fields_of(prior), **moved)


def _parameters(state: messages.Shared) -> Parameters:
    return Parameters(state.loadings, state.mean, state.noise)


def _prior(state: messages.Global) -> Prior:
    return Prior(**messages.fields_of(state, Prior))


def _prior_sums(answer: messages.GlobalSums) -> PriorSums:
    return PriorSums(**messages.fields_of(answer, PriorSums))
