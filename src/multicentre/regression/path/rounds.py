"""Rounds of the path of penalties: fits to all patients and without each fold, for all penalties together.

With gaussian outcomes and the identity link, one call is enough: each site returns sums of products by fold, from which
all fits and the deviances of the folds follow.

Otherwise each fit, a pair of a penalty and a fold that is left out, takes penalised Newton steps. One round consists
of:

1. The coordinator sends the coefficients of all fits that have not converged.
2. Each site returns for every fit the deviance and its derivatives without the fold, and the deviance of the fold.
3. The coordinator adds up the sites' values. Where the penalised deviance rose, the step is halved. Otherwise the next
   step minimises the quadratic approximation with the penalties.

A fit ends when each entry of its step is below the tolerance or within the rounding of masked sums.

The path shares the step and the rules on rounding with :mod:`multicentre.likelihood.newton`, but not its rounds: these
ask for one fit per call, whereas a call of the path is for all fits that have not converged.

The first round is at the model without covariates, for all folds; its approximation starts the fits of the first block
of penalties. A block has as many penalties as fit into a call. The next block starts from the last penalty of the one
before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.session import Session
from multicentre.likelihood.elastic_net import minimise_penalised
from multicentre.likelihood.newton import NOISE
from multicentre.likelihood.steps import COARSEST_TOL, step_rounding
from multicentre.regression import messages, rounds
from multicentre.regression.path.messages import AtFolds, AtPath, FoldMoments, PathState, PathSums
from multicentre.regression.path.site import PathSite
from multicentre.regression.patients import STEEPEST
from multicentre.regression.rounds import Plan, Prepared

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Numbers of the information matrices in one answer: 8 MB per site.
MAX_NUMBERS = 2**20


@dataclass(frozen=True)
class PathPlan:
    """Parameters of the estimator that the path uses.

    Parameters
    ----------
    alphas : int or array
        Number of penalties, or the penalties themselves.
    smallest : float
        Smallest penalty relative to the largest, if `alphas` is a number.
    l1_ratio : float
    n_folds : int
    seed : int
    max_iter : int
    tol : float
    masked : bool
    """

    alphas: int | Floats
    smallest: float
    l1_ratio: float
    n_folds: int
    seed: int
    max_iter: int
    tol: float
    masked: bool


@dataclass(frozen=True)
class Path:
    """Fits to all patients by penalty, and the deviance of the folds.

    Parameters
    ----------
    alphas : array of shape (l,)
        Decreasing penalties.
    coefficients : array of shape (l, p)
        Intercept and coefficients on the scale of the rounds.
    held_deviance : array of shape (l, k)
        Deviance of each fold under the fit without it.
    fold_weights : array of shape (k,)
        Patients of each fold, or the sum of their weights.
    converged : bool
    """

    alphas: Floats
    coefficients: Floats
    held_deviance: Floats
    fold_weights: Floats
    converged: bool


def fit_path(session: Session, agreed: Prepared, plan: PathPlan) -> Path:
    """Return the fits of all penalties."""
    if (agreed.centre.family, agreed.centre.link) == ("gaussian", "identity"):
        return _path_of_moments(session, agreed, plan)
    return _path_of_rounds(session, agreed, plan)


def choose_alphas(gradient: Floats, plan: PathPlan) -> Floats:
    """Return decreasing penalties, from the smallest with which all coefficients are 0.

    Parameters
    ----------
    gradient : array of shape (d,)
        Derivatives of half the deviance by the coefficients of standardised covariates in the model without covariates.
    plan : PathPlan

    Examples
    --------
    >>> choose_alphas(np.array([-4.0, 2.0]), PathPlan(3, 0.01, 0.5, 5, 0, 25, 1e-8, False)).round(3).tolist()
    [8.0, 0.8, 0.08]
    """
    if not isinstance(plan.alphas, int):
        return np.sort(np.asarray(plan.alphas, dtype=np.float64))[::-1]
    # With a ridge penalty only, no penalty makes all coefficients 0; glmnet's choice.
    largest = float(np.abs(gradient).max()) / max(plan.l1_ratio, 1e-3)
    return np.geomspace(largest, plan.smallest * largest, plan.alphas)


def _request(agreed: Prepared, plan: PathPlan) -> dict[str, object]:
    fields: dict[str, object] = {name: getattr(agreed.centre, name) for name in messages.Centre.declarations()}
    return fields | {"spread": agreed.spread, "scale": agreed.scale, "n_folds": plan.n_folds, "seed": plan.seed}


def _path_of_moments(session: Session, agreed: Prepared, plan: PathPlan) -> Path:
    request = AtFolds(**_request(agreed, plan))  # type: ignore[arg-type]
    moments = session.once("folds", FoldMoments, lambda: session.sum(PathSite.sum_fold_products, request))
    total, p = moments.products.sum(axis=0), moments.products.shape[1] - 1
    gradient = total[1:p, p] - (total[1:p, 0] * total[0, p] / total[0, 0] if agreed.has_intercept else 0.0)
    alphas = choose_alphas(gradient * agreed.scale, plan)
    trained = np.concatenate([total[None], total - moments.products])
    fits = np.empty((len(alphas), len(trained), p))
    start = np.zeros((len(trained), p))
    shares = trained[:, 0, 0] / total[0, 0]
    for place, alpha in enumerate(alphas.tolist()):
        ridge, lasso = _penalties(np.full(len(trained), alpha), shares, plan, agreed)
        fits[place] = start = _minimise(trained[:, :p, :p], trained[:, :p, p], ridge, lasso, start, agreed)
    errors = np.concatenate([-fits[:, 1:], np.ones((len(alphas), plan.n_folds, 1))], axis=2)
    held = np.einsum("lki,kij,lkj->lk", errors, moments.products, errors)
    coefficients = fits[:, 0].copy()
    coefficients[:, 0] += agreed.centre.mean / agreed.scale if agreed.has_intercept else 0.0
    return Path(alphas, coefficients, held, moments.products[:, 0, 0], True)


def _penalties(alphas: Floats, shares: Floats, plan: PathPlan, agreed: Prepared) -> tuple[Floats, Floats]:
    """Return ridge and lasso penalties on the scale of the rounds; the penalty per patient is equal without a fold."""
    ridge, lasso = agreed.penalties(1.0, plan.l1_ratio)
    return alphas * ridge * shares, alphas * lasso * shares


@dataclass(frozen=True)
class _Jobs:
    """Fits of a block: penalty and fold of each."""

    alphas: Floats
    held_out: Integers


def _path_of_rounds(session: Session, agreed: Prepared, plan: PathPlan) -> Path:
    null = rounds.fit_model(session, agreed, Plan(0.0, plan.max_iter, plan.tol, plan.masked), null=True)
    alphas = choose_alphas(null.gradient[1:] * agreed.scale**2 / agreed.coefficient_scale, plan)
    folds = np.arange(-1, plan.n_folds)
    n_sets, p = len(folds), len(null.coefficients)
    per_block = max(MAX_NUMBERS // (n_sets * p * p), 1)
    first = _evaluate(session, agreed, plan, np.tile(null.coefficients, (n_sets, 1)), folds)
    near = (np.tile(null.coefficients, (n_sets, 1)), first.gradient, first.information)
    weights, states = first.weight, []
    for number, start in enumerate(range(0, len(alphas), per_block)):
        block = alphas[start : start + per_block]
        jobs = _Jobs(np.repeat(block, n_sets), np.tile(folds, len(block)))
        state = _settle(session, agreed, plan, jobs, near, weights, f"path {number}")
        states.append(state)
        near = (state.coefficients[-n_sets:], state.gradient[-n_sets:], state.information[-n_sets:])
    fits = np.concatenate([state.coefficients + state.step * state.settled[:, None] for state in states])
    held = np.concatenate([state.held_deviance for state in states]).reshape(-1, n_sets)[:, 1:]
    converged = all(state.settled.all() for state in states)
    return Path(alphas, fits.reshape(-1, n_sets, p)[:, 0], held, first.held_weight[1:], converged)


def _evaluate(session: Session, agreed: Prepared, plan: PathPlan, coefficients: Floats, held_out: Integers) -> PathSums:
    clipped = np.clip(coefficients, -STEEPEST, STEEPEST)
    request = AtPath(**_request(agreed, plan), coefficients=clipped, held_out=held_out)  # type: ignore[arg-type]
    return session.sum(PathSite.sum_path_derivatives, request)


def _settle(
    session: Session,
    agreed: Prepared,
    plan: PathPlan,
    jobs: _Jobs,
    near: tuple[Floats, Floats, Floats],
    weights: Floats,
    name: str,
) -> PathState:
    """Return the state of a block after the rounds; `near` is an approximation of each fold's deviance."""
    sets = jobs.held_out + 1
    ridge, lasso = _penalties(jobs.alphas, weights[sets] / weights[0], plan, agreed)
    rounding = [session.rounding(PathSite.sum_path_derivatives, name) for name in ("deviance", "gradient")]

    def start() -> PathState:
        at, gradient, information = (values[sets] for values in near)
        step = _step(at, gradient, information, ridge, lasso, agreed)
        m = len(at)
        nothing, open_ = np.zeros(m), np.full(m, np.inf)
        none = np.zeros(m, dtype=np.bool_)
        return PathState(at, step, np.ones(m), open_, gradient, information, nothing, nothing, none, 0.0)

    progress = session.rounds(plan.max_iter, PathState, start, name=name)
    for _ in progress:
        before = progress.state
        active = np.flatnonzero(~before.settled)
        tried = before.coefficients[active] + before.step_size[active, None] * before.step[active]
        sums = _evaluate(session, agreed, plan, tried, jobs.held_out[active])
        progress.state = after = _advance(before, active, tried, sums, (ridge, lasso), rounding, plan, agreed)
        progress.record(open_fits=int((~after.settled).sum()))
        if after.settled.all():
            progress.stop()
    return progress.state


def _advance(
    before: PathState,
    active: Integers,
    tried: Floats,
    sums: PathSums,
    penalties: tuple[Floats, Floats],
    rounding: Sequence[float],
    plan: PathPlan,
    agreed: Prepared,
) -> PathState:
    """Accept steps with which the penalised deviance fell, or rose within its rounding error; halve the others."""
    ridge, lasso = (each[active] for each in penalties)
    objective = 0.5 * sums.deviance + 0.5 * ridge * np.square(tried[:, 1:]).sum(axis=1)
    objective = objective + lasso * np.abs(tried[:, 1:]).sum(axis=1)
    is_same = sums.n_patients == before.n_patients or not before.n_patients  # else a site was lost
    slack = NOISE * (1.0 + np.abs(objective)) + rounding[0]  # half of both deviances that are compared
    better = (objective <= before.objective[active] + slack) | (not is_same)
    state = {field: getattr(before, field).copy() for field in PathState.declarations() if field != "n_patients"}
    if not is_same:
        state["settled"][:] = False
        state["objective"][:] = np.inf
    worse, accepted = active[~better], active[better]
    state["step_size"][worse] /= 2.0
    state["step_size"][accepted] = 1.0
    state["coefficients"][accepted] = tried[better]
    state["objective"][accepted] = objective[better]
    for field in ("gradient", "information", "held_deviance", "held_weight"):
        state[field][accepted] = getattr(sums, field)[better]
    state["step"][accepted] = _step(
        tried[better], sums.gradient[better], sums.information[better], ridge[better], lasso[better], agreed
    )
    resolved = _resolved(state["step"][accepted], tried[better], sums.information[better], ridge[better], rounding[1])
    state["settled"][accepted] = (np.abs(state["step"][accepted]) < np.maximum(plan.tol, resolved)).all(axis=1)
    return PathState(**state, n_patients=sums.n_patients)


def _resolved(steps: Floats, at: Floats, information: Floats, ridge: Floats, rounding: float) -> Floats:
    """Return the largest error of each entry of the steps through the rounding of masked sums, shape (m, p).

    A step also takes back the error of the one before it. Coefficients that a lasso keeps at 0 do not move.
    """
    errors = np.zeros_like(steps)
    for job in np.flatnonzero(np.abs(steps).max(axis=1) < COARSEST_TOL).tolist() if rounding else []:
        moving = (at[job] != 0.0) | (steps[job] != 0.0)
        penalised = information[job] + np.diag(np.append(0.0, np.full(len(moving) - 1, ridge[job])))
        errors[job, moving] = step_rounding(penalised[np.ix_(moving, moving)], 2.0 * rounding)
    return errors


def _step(at: Floats, gradient: Floats, information: Floats, ridge: Floats, lasso: Floats, agreed: Prepared) -> Floats:
    linear = gradient + np.einsum("mij,mj->mi", information, at)
    return _minimise(information, linear, ridge, lasso, at, agreed) - at


def _minimise(
    information: Floats, linear: Floats, ridge: Floats, lasso: Floats, start: Floats, agreed: Prepared
) -> Floats:
    """Return the coefficients of each penalised fit, shape (m, d + 1); without an intercept, the first ones are 0."""
    first, is_slope = int(not agreed.has_intercept), np.arange(linear.shape[1]) > 0
    ridge, lasso = ((each[:, None] * is_slope)[:, first:] for each in (ridge, lasso))
    result = np.zeros_like(linear)
    result[:, first:] = minimise_penalised(
        information[:, first:, first:], linear[:, first:], ridge, lasso, start[:, first:]
    )
    return result
