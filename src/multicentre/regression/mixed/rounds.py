"""Rounds of the mixed models: Newton steps on the likelihood, with sums over sites.

Before the first round, columns, means and scales are agreed as for a generalised linear model
(:mod:`multicentre.regression.rounds`).

Linear mixed model. One call compares a few covariances of the effects, one of them 0, at which the rounds may start.
One round consists of:

1. The coordinator sends the covariance of the effects, relative to the residual variance.
2. Each site returns products of its covariates and outcomes, weighted by the inverse of their covariance, the logarithm
   of the determinant, and the derivatives of both by the covariance of the effects.
3. The sums over sites give coefficients, residual variance and the (restricted) likelihood, and a Newton step for the
   Cholesky factor of the covariance.

Generalised linear mixed model. One round consists of:

1. The coordinator sends coefficients and the Cholesky factor of the covariance of the effects.
2. Each site finds the mode of its effects, and returns the likelihood by Laplace's approximation with its derivatives.
3. The sums over sites give a Newton step for coefficients and factor.

While the likelihood falls, a step is halved. The rounds stop when all entries of a step are below ``tol``; this last
step is taken. With the factor as parameter, a variance of 0 is reached without a constraint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from multicentre.core.rounds import History
from multicentre.core.session import Session
from multicentre.data.categories import dependent_error
from multicentre.errors import DataError
from multicentre.regression.maths import DEPENDENT, DEPENDENT_MASKED, Family, dependent_columns, predictor_of
from multicentre.regression.maths import start_coefficients as first_coefficients
from multicentre.regression.mixed import messages
from multicentre.regression.mixed.maths import (
    Curved,
    Solution,
    Weighted,
    basis_of,
    by_factor,
    derive_criterion,
    descent_step,
    directions_of,
    lower,
    sensitivity,
    solve,
    triangle,
)
from multicentre.regression.mixed.site import GeneralizedMixedSite, LinearMixedSite
from multicentre.regression.rounds import LARGEST_START, NOISE, Agreed, Plan

Floats = NDArray[np.float64]
# Variances of an effect, relative to the variance of its estimate at a site of mean size, among which a fit starts.
STARTS = (0.1, 1.0, 10.0, 100.0)
# Longest step of a coefficient, and of an entry of a Cholesky factor in units of order 1.
LONGEST = 1.0
# Standard deviation of the effects where the rounds of a generalised model start, on the scale of the predictor.
FIRST_DEVIATION = 0.5


@dataclass(frozen=True)
class Point:
    """Objective at some parameters, with its derivatives.

    Parameters
    ----------
    objective : float
    gradient : array of shape (w,)
    hessian : array of shape (w, w)
    basis : array of shape (w, w)
        Matrix from the coordinates of the derivatives, in units of order 1, to the parameters.
    n_patients : float
    rounding : float
        Largest error of the objective through the rounding of masked sums.
    """

    objective: float
    gradient: Floats
    hessian: Floats
    basis: Floats
    n_patients: float
    rounding: float


@dataclass(frozen=True)
class Minimum:
    """Parameters at the end of the rounds."""

    point: Floats
    converged: bool
    history: History


@dataclass(frozen=True)
class LinearFit:
    """Fitted linear mixed model, on the scale of the rounds.

    Parameters
    ----------
    solution : Solution
    covariance : array of shape (q, q)
        Covariance of the effects, relative to the residual variance.
    n_patients, n_sites : float
    null_criterion : float
        Criterion without effects of sites.
    minimum : Minimum
    """

    solution: Solution
    covariance: Floats
    n_patients: float
    n_sites: float
    null_criterion: float
    minimum: Minimum


@dataclass(frozen=True)
class GeneralizedFit:
    """Fitted generalised linear mixed model, on the scale of the rounds.

    Parameters
    ----------
    coefficients : array of shape (p,)
    factor : array of shape (q, q)
        Cholesky factor of the covariance of the effects.
    sums : Laplace
        Sums at these parameters.
    minimum : Minimum
    """

    coefficients: Floats
    factor: Floats
    sums: messages.Laplace
    minimum: Minimum


def check_several(session: Session) -> None:
    """Raise DataError if there is one site only, which shows no variance between sites."""
    if len(session.sites) < 2:
        raise DataError(
            "random effects must be of at least two sites; got one",
            where="sites",
            hint="Fit a regression without effects of sites (FedGLM).",
        )


def effects_of(agreed: Agreed, slopes: tuple[str, ...]) -> dict[str, Any]:
    """Return the fields that all requests of a mixed model share."""
    fields = {name: getattr(agreed.centre, name) for name in type(agreed.centre).declarations()}
    return {**fields, "spread": agreed.spread, "scale": agreed.scale, "slopes": slopes}


def fit_linear(session: Session, agreed: Agreed, slopes: tuple[str, ...], plan: Plan, *, restricted: bool) -> LinearFit:
    """Maximise the (restricted) likelihood of a linear mixed model."""
    fields, size = effects_of(agreed, slopes), 1 + len(slopes)
    divisor = agreed.totals.n_patients / len(session.sites)
    starts = np.array([0.0, *STARTS])[:, None, None] * np.eye(size) / divisor
    request = messages.Candidates(**fields, covariances=starts)
    candidates = session.once(
        "candidates", messages.Weighted, lambda: session.sum(LinearMixedSite.sum_candidates, request)
    )
    _check_independent(candidates.products[0, :-1, :-1], agreed, masked=plan.masked)
    sums = [Weighted(*each) for each in zip(candidates.products, candidates.log_determinants, strict=True)]
    criteria = [solve(each, candidates.n_patients, restricted=restricted).criterion for each in sums]
    start = np.sqrt(STARTS[int(np.argmin(criteria[1:]))]) * np.eye(size)

    def request_at(factor: Floats) -> messages.AtCovariance:
        covariance, directions = factor @ factor.T / divisor, directions_of(factor) / np.sqrt(divisor)
        return messages.AtCovariance(**fields, covariance=0.5 * (covariance + covariance.T), directions=directions)

    def evaluate(entries: Floats) -> Point:
        factor = lower(entries)
        sums = session.sum(LinearMixedSite.sum_curvature, request_at(factor))
        curved = Curved(
            sums.products,
            sums.log_determinant,
            sums.slopes,
            sums.curvatures,
            sums.determinant_slopes,
            sums.determinant_curvatures,
        )
        solution = solve(curved, sums.n_patients, restricted=restricted)
        derivatives = derive_criterion(curved, solution, sums.n_patients, restricted=restricted)
        directions = directions_of(factor)
        inner = np.asarray(np.linalg.solve(directions, factor), dtype=np.float64)
        rounding = of_determinant + of_products * sensitivity(solution, restricted=restricted)
        basis = basis_of(directions)
        return Point(solution.criterion, *by_factor(inner, *derivatives), basis, sums.n_patients, rounding)

    step = LinearMixedSite.sum_curvature
    of_products, of_determinant = (session.rounding(step, name) for name in ("products", "log_determinant"))
    minimum = _descend(session, start[triangle(size)], evaluate, plan)
    last = request_at(lower(minimum.point))
    reached = session.once("reached", messages.Curved, lambda: session.sum(LinearMixedSite.sum_curvature, last))
    weighted = Weighted(reached.products, reached.log_determinant)
    solution = solve(weighted, reached.n_patients, restricted=restricted)
    return LinearFit(solution, last.covariance, reached.n_patients, reached.n_sites, criteria[0], minimum)


def fit_generalized(session: Session, agreed: Agreed, slopes: tuple[str, ...], plan: Plan) -> GeneralizedFit:
    """Maximise the likelihood of a generalised linear mixed model by Laplace's approximation."""
    fields, size, p = effects_of(agreed, slopes), 1 + len(slopes), 1 + len(agreed.covariates)
    spread, totals = agreed.spread, agreed.totals
    products = agreed.moments.products / np.outer(spread, spread)
    _check_independent(np.pad(products, (1, 0)) + np.diag(np.eye(p)[0]) * totals.weight, agreed, masked=plan.masked)
    family, mean = cast(Family, agreed.centre.family), agreed.centre.mean
    slopes_of = first_coefficients(family, products, agreed.moments.cross / spread, totals.weight, mean)
    intercept = predictor_of("logit" if family == "binomial" else "log", np.array([mean]))
    factor = (FIRST_DEVIATION * np.eye(size))[triangle(size)]
    start = np.concatenate([intercept, np.clip(slopes_of, -LARGEST_START, LARGEST_START), factor])

    def request_at(point: Floats) -> messages.AtFactor:
        return messages.AtFactor(**fields, coefficients=point[:p], factor=point[p:])

    def evaluate(point: Floats) -> Point:
        sums = session.sum(GeneralizedMixedSite.sum_laplace, request_at(point))
        return Point(-sums.value, -sums.gradient, sums.information, np.eye(len(point)), sums.n_patients, rounding)

    rounding = session.rounding(GeneralizedMixedSite.sum_laplace, "value")
    minimum = _descend(session, start, evaluate, plan)
    last = request_at(minimum.point)
    sums = session.once("reached", messages.Laplace, lambda: session.sum(GeneralizedMixedSite.sum_laplace, last))
    return GeneralizedFit(minimum.point[:p], lower(minimum.point[p:]), sums, minimum)


def _descend(session: Session, start: Floats, evaluate: Callable[[Floats], Point], plan: Plan) -> Minimum:
    """Minimise an objective by Newton steps that are halved while it rises."""
    nothing = np.zeros_like(start)
    first = messages.Descent(start, nothing, 0.0, 1.0, np.inf, 0.0)
    rounds = session.rounds(plan.max_iter, messages.Descent, lambda: first)
    for _ in rounds:
        before = rounds.state
        tried = before.point + before.share * before.step
        at = evaluate(tried)
        rounds.state = _accept(before, tried, at)
        rounds.record(objective=at.objective, change=rounds.state.change, share=before.share)
        if rounds.state.share == 1.0 and rounds.state.change < plan.tol:
            rounds.stop()
    final = rounds.state
    point = final.point + (final.step if rounds.stopped else 0.0)
    return Minimum(point, rounds.stopped, rounds.history)


def _accept(before: messages.Descent, tried: Floats, at: Point) -> messages.Descent:
    """Accept the step if the objective fell, and halve it otherwise; after the loss of a site, accept it.

    A rise that rounding can explain is none.
    """
    slack = NOISE * (1.0 + abs(at.objective)) + 2.0 * at.rounding  # of the two that are compared
    if at.n_patients == before.n_patients and at.objective > before.objective + slack:
        return replace(before, share=before.share / 2.0)
    step = descent_step(at.gradient, at.hessian, LONGEST)
    change = float(np.abs(step).max())
    return messages.Descent(tried, at.basis @ step, change, 1.0, at.objective, at.n_patients)


def _check_independent(products: Floats, agreed: Agreed, *, masked: bool) -> None:
    """Raise DataError if covariates depend on each other; the message names them."""
    dependent = dependent_columns(products, DEPENDENT_MASKED if masked else DEPENDENT)
    if dependent.any():
        names = [("intercept", *agreed.covariates)[place] for place in np.flatnonzero(dependent).tolist()]
        raise dependent_error(names, agreed.levels, has_penalty=False)
