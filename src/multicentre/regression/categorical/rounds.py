"""Rounds of multinomial and ordinal regression: Newton-Raphson with sums over sites.

Before the first round:

1. Each site returns the names of its columns and classes. The coordinator checks that they are equal.
2. Each site counts missing entries and handles them in the agreed way.
   With a formula, the sites build its columns (:mod:`multicentre.formula.agreement`).
3. Each site counts its patients by class and sums its covariates. The sums over sites give the means.
4. Each site returns sums of products of covariates about the means, and sums of covariates by class. They give standard
   deviations, and parameters from which the rounds start.

The rounds are those of :mod:`multicentre.likelihood.newton`. A step after which thresholds would not increase is halved
without a call. After an ordinal fit, each site returns once the derivatives of the model with slopes for each
threshold, for the test of proportional odds. Where the rounding of masked sums would change the score test, each site
returns its derivatives in the model without covariates.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from multicentre.core.rounds import History
from multicentre.core.session import Session
from multicentre.data.categories import dependent_error
from multicentre.data.missing.values import Missing
from multicentre.errors import DataError
from multicentre.formula.grammar import Formula
from multicentre.likelihood.newton import Derivatives, Problem, maximise
from multicentre.likelihood.separation import Reported
from multicentre.regression.categorical import messages
from multicentre.regression.categorical.likelihoods import ClassLikelihood, ClassMoments, likelihood_of
from multicentre.regression.categorical.maths import score_statistic
from multicentre.regression.categorical.site import CategoricalSite
from multicentre.regression.maths import DEPENDENT, DEPENDENT_MASKED, dependent_columns
from multicentre.regression.messages import Centre, Model
from multicentre.regression.patients import STEEPEST
from multicentre.regression.rounding import EXACT_TESTS, rounding_of
from multicentre.regression.rounds import (
    SUM_ROUNDING,
    Columns,
    Plan,
    agree_columns,
    find_means,
    find_spread,
)

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# Halvings of a step that bring thresholds into order: after 60, the step is below the resolution of doubles.
MAX_HALVINGS = 60


@dataclass(frozen=True)
class Prepared(Columns):
    """Covariates, classes, means and scales that all sites share.

    Parameters
    ----------
    totals : messages.Totals
    centre : messages.Centre
    spread : array of shape (d,)
    moments : ClassMoments
        Of standardised covariates.
    """

    totals: messages.Totals
    centre: Centre
    spread: Floats
    moments: ClassMoments

    def at(self, parameters: Floats, *, tentative: bool = False) -> messages.At:
        """Return the request for sums at some parameters."""
        steep = np.clip(parameters, -STEEPEST, STEEPEST)
        return messages.At(**vars(self.centre), spread=self.spread, parameters=steep, tentative=tentative)

    @property
    def likelihood(self) -> ClassLikelihood:
        """Likelihood of the model."""
        return likelihood_of(self.centre.family, self.centre.link)

    @property
    def matrix(self) -> Floats:
        """Matrix from parameters of standardised covariates to parameters per unit, shape (q, q)."""
        return self.likelihood.to_units(self.centre.centre, self.spread, len(self.classes) - 1)

    @property
    def free_of_penalty(self) -> Flags:
        """Intercepts and thresholds, shape (q,)."""
        return self.likelihood.are_intercepts(len(self.classes) - 1, len(self.covariates))

    @property
    def names(self) -> list[str]:
        """Name of each parameter."""
        return self.likelihood.names(self.classes, self.covariates)

    @property
    def null(self) -> Floats:
        """Parameters of the model without covariates, shape (q,)."""
        intercepts = self.likelihood.null(self.moments.counts)
        slopes = np.zeros((self.likelihood.n_predictors(len(intercepts)), len(self.covariates)))
        return self.likelihood.join(intercepts, slopes)


@dataclass(frozen=True)
class Fit:
    """Maximum of the penalised likelihood, and the sums there.

    Parameters
    ----------
    parameters : array of shape (q,)
        Of standardised covariates.
    log_likelihood : float
        Without the penalty.
    information : array of shape (q, q)
    converged : bool
    settled : bool
        True if all parameters that do not diverge have converged.
    diverging : array of bool, shape (q,)
        Parameters along which the likelihood may rise without bound.
    history : list of dict
    """

    parameters: Floats
    log_likelihood: float
    information: Floats
    converged: bool
    settled: bool
    diverging: Flags
    history: History


def part_of(session: Session) -> type[CategoricalSite]:
    """Return the site part of the fit, that of this package or a subclass."""
    return cast(type[CategoricalSite], session.part)


def agree(session: Session, model: Model, missing: Missing, formula: Formula | None, *, independent: bool) -> Prepared:
    """Agree on columns, classes, means and scales; if `independent`, refuse columns that depend on others."""
    columns = agree_columns(session, model, missing, formula)
    totals = session.once("totals", messages.Totals, lambda: session.sum(part_of(session).sum_classes, model))
    sizes = totals.class_weights if model.weights else totals.counts.astype(np.float64)
    if not (sizes > SUM_ROUNDING).all():
        empty = [columns.classes[place] for place in np.flatnonzero(sizes <= SUM_ROUNDING).tolist()]
        raise DataError(
            f"there must be patients of every class; got none of {', '.join(empty[:5])}",
            where="y",
            hint="Merge the class with another one, or leave it out of classes.",
        )
    centre = Centre(**vars(model), centre=find_means(columns, totals), mean=0.0)
    sums = session.once("moments", messages.Moments, lambda: session.sum(part_of(session).sum_products, centre))
    spread = find_spread(session, columns, sums, totals.weight, centre.centre)
    moments = ClassMoments(sizes, sums.products / np.outer(spread, spread), sums.by_class / spread)
    tol = DEPENDENT_MASKED if session.protection == "masked" else DEPENDENT
    if independent and len(spread) and (dependent := dependent_columns(moments.products, tol)).any():
        names = [columns.covariates[place] for place in np.flatnonzero(dependent).tolist()]
        raise dependent_error(names, columns.levels)
    return Prepared(**vars(columns), totals=totals, centre=centre, spread=spread, moments=moments)


class CategoricalProblem(Problem):
    """Likelihood of a multinomial or ordinal model; with `null`, of one without covariates."""

    active: Flags

    def __init__(self, session: Session, agreed: Prepared, plan: Plan, *, null: bool) -> None:
        self.session, self.agreed, self.names = session, agreed, agreed.names
        self.ridge, self.lasso = (np.where(agreed.free_of_penalty, 0.0, each) for each in (plan.alpha, plan.lasso))
        self.is_penalised, self.looks_ahead = plan.is_penalised, not (plan.is_penalised or null)
        step = part_of(session).sum_derivatives
        self.rounding, self.gradient_rounding = (
            session.rounding(step, name) for name in ("log_likelihood", "gradient")
        )
        self.active = agreed.free_of_penalty | (not null)
        information = None if null else agreed.likelihood.null_information(agreed.moments)
        self.reported = Reported(agreed.matrix, information, max(agreed.totals.n_patients, agreed.totals.weight))

    def begin(self) -> tuple[Floats, Floats]:
        """Return the parameters without covariates, and the first step."""
        null = self.agreed.null
        if not self.active.all():
            return null, np.zeros_like(null)
        return null, self.agreed.likelihood.start(self.agreed.moments) - null

    def evaluate(self, point: Floats, *, tentative: bool) -> Derivatives:
        """Return the sums of all sites."""
        sums = self.session.sum(part_of(self.session).sum_derivatives, self.agreed.at(point, tentative=tentative))
        figures = np.array([sums.log_likelihood])
        return Derivatives(
            sums.log_likelihood, sums.gradient, sums.information, sums.n_patients, figures, sums.n_withdrawn
        )

    def feasible_step_size(self, point: Floats, step: Floats) -> float:
        """Return the size of a step, 1 or a power of a half, after which thresholds still increase."""
        k, step_size, likelihood = len(self.agreed.classes) - 1, 1.0, self.agreed.likelihood
        for _ in range(MAX_HALVINGS):
            if likelihood.is_feasible(likelihood.split(point + step_size * step, k)[0]):
                break
            step_size /= 2.0
        return step_size


def fit_model(session: Session, agreed: Prepared, plan: Plan, *, null: bool = False) -> Fit:
    """Maximise the penalised likelihood; with `null`, only over intercepts or thresholds."""
    problem = CategoricalProblem(session, agreed, plan, null=null)
    name = "null" if null else "rounds"
    reached = maximise(session, problem, max_iter=plan.max_iter, tol=plan.tol, name=name)
    last = reached.last
    value = float(last.figures[0]) if last.has_begun else np.nan
    return Fit(
        reached.point, value, last.information, reached.converged, reached.settled, reached.diverging, reached.history
    )


def test_slopes(session: Session, agreed: Prepared) -> float:
    """Return the score statistic of all slopes; where rounding would change it, from a further call."""
    likelihood, moments, slopes = agreed.likelihood, agreed.moments, ~agreed.free_of_penalty
    gradient = likelihood.null_gradient(moments)
    if rounding_of(session) > EXACT_TESTS * float(np.square(agreed.spread).min()):
        at = agreed.at(agreed.null)
        sums = session.once("null", messages.Sums, lambda: session.sum(part_of(session).sum_derivatives, at))
        gradient = sums.gradient[slopes]
    return score_statistic(gradient, likelihood.null_information(moments)[np.ix_(slopes, slopes)])


def test_equal_slopes(session: Session, agreed: Prepared, parameters: Floats) -> float:
    """Return the score statistic against slopes for each threshold."""
    sums = session.sum(part_of(session).sum_unequal_slopes, agreed.at(parameters))
    return float(sums.gradient @ np.linalg.lstsq(sums.information, sums.gradient, rcond=None)[0])
