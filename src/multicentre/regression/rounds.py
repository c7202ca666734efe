"""Rounds of the generalised linear models: Fisher scoring with sums over sites.

Before the first round:

1. Each site returns the names of its columns and classes. The coordinator checks that they are equal.
2. Each site counts missing entries and handles them in the agreed way.
   With a formula, the sites build its columns (:mod:`multicentre.formula.agreement`).
3. Each site returns the number of its patients, and sums of its covariates and outcomes. The sums over sites give the
   means.
4. Each site returns sums of products of covariates and outcomes about the means. They give standard deviations, and
   coefficients from which the rounds start.

The rounds are those of :mod:`multicentre.likelihood.newton`; sites return the deviance and the expected second
derivatives. With an offset, the same rounds also fit a model with an intercept only, which the tests compare the fit
with.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Nothing
from multicentre.core.rounds import History
from multicentre.core.session import Session
from multicentre.data.categories import dependent_error
from multicentre.data.missing.values import Missing
from multicentre.data.rare_columns import leave_out_rare
from multicentre.data.schema import agree_tables
from multicentre.errors import DataError, SchemaMismatch
from multicentre.formula.agreement import SharedColumns, share_columns
from multicentre.formula.grammar import Formula
from multicentre.likelihood.newton import Derivatives, Maximum, Problem, maximise
from multicentre.likelihood.separation import Reported
from multicentre.likelihood.steps import cap_slopes
from multicentre.regression import messages
from multicentre.regression.maths import (
    DEPENDENT,
    DEPENDENT_MASKED,
    Family,
    Link,
    dependent_columns,
    has_bounded_information,
    null_weight,
    predictor_of,
    start_coefficients,
    to_units,
)
from multicentre.regression.patients import STEEPEST, RegressionColumns
from multicentre.regression.rounding import COARSE, check_varying, rounding_of
from multicentre.regression.site import RegressionSite

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
# Masked sums are rounded to 4e-8 (TOTAL in messages.py) and added over at most some tens of sites: a sum of outcomes up
# to this counts as 0.
SUM_ROUNDING = 1e-5


@dataclass(frozen=True)
class Plan:
    """Parameters of the estimator that the rounds use; penalties are of coefficients on the scale of the rounds."""

    alpha: float
    max_iter: int
    tol: float
    masked: bool
    lasso: float = 0.0

    @property
    def is_penalised(self) -> bool:
        """True if there is a penalty."""
        return self.alpha > 0 or self.lasso > 0


@dataclass(frozen=True)
class Columns(SharedColumns):
    """Columns of a regression that all sites share, and which of them are covariates."""

    covariates: tuple[str, ...]
    classes: tuple[str, ...]
    has_intercept: bool


@dataclass(frozen=True)
class Prepared(Columns):
    """Covariates, means and scales that all sites share."""

    totals: messages.Totals
    moments: messages.Moments
    centre: messages.Centre
    spread: Floats
    scale: float

    def at(self, coefficients: Floats, *, tentative: bool = False) -> messages.At:
        """Return the request for sums at some coefficients."""
        fields = {name: getattr(self.centre, name) for name in messages.Centre.declarations()}
        steep = np.clip(coefficients, -STEEPEST, STEEPEST)
        return messages.At(**fields, spread=self.spread, scale=self.scale, coefficients=steep, tentative=tentative)

    @property
    def coefficient_scale(self) -> float:
        """Unit of the coefficients, divided by that of the rounds; only with the identity link not 1."""
        return self.scale if self.centre.link == "identity" else 1.0

    @property
    def shift(self) -> float:
        """Difference of the intercept from that of the rounds, whose outcomes are divided by `scale`."""
        return float(np.log(self.scale)) if self.centre.link == "log" else 0.0

    def penalties(self, alpha: float, l1_ratio: float) -> tuple[float, float]:
        """Return ridge and lasso penalty on the scale of the rounds."""
        share = self.coefficient_scale / self.scale
        return alpha * (1.0 - l1_ratio) * share**2, alpha * l1_ratio * share / self.scale

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the coefficients."""
        return ("intercept", *self.covariates)

    def start(self, *, null: bool) -> tuple[Floats, Floats]:
        """Return the coefficients of a model without covariates, and the first step; with `null`, none."""
        nothing = np.zeros(len(self.covariates) + 1)
        coefficients, step = nothing, nothing.copy()
        mean, link = self.centre.mean / self.scale, self.centre.link
        if self.has_intercept and not (link == "log" and mean <= 0):
            coefficients[0] = float(predictor_of(cast(Link, link), np.array([mean]))[0])
        if not null and (self.has_intercept or link == "identity"):
            products = self.moments.products / np.outer(self.spread, self.spread)
            cross = self.moments.cross / (self.spread * self.scale)
            family = cast(Family, self.centre.family)
            first = start_coefficients(family, products, cross, self.totals.weight, mean)
            if family == "gaussian" and link == "log":
                first = first / mean if mean > 0 else np.zeros_like(first)  # one Fisher step from the mean
            # With the identity link, the step ends at the maximum, however long it is.
            step[1:] = first if link == "identity" else cap_slopes(first, products / self.totals.weight)
        return coefficients, step

    def reported(self, *, null: bool) -> Reported:
        """Return the form in which coefficients are reported, and the information without covariates."""
        matrix = to_units(self.centre.centre, self.spread, self.coefficient_scale)
        size = max(self.totals.n_patients, self.totals.weight, self.totals.outcome)
        family, link, d = cast(Family, self.centre.family), cast(Link, self.centre.link), len(self.covariates)
        if null or has_bounded_information(family) or not d:
            return Reported(matrix, None, size)
        weight = null_weight(family, link, self.totals.outcome / self.totals.weight)
        information = np.zeros((d + 1, d + 1))
        information[0, 0] = weight * self.totals.weight * (self.has_intercept and not self.centre.site_intercepts)
        information[1:, 1:] = weight * self.moments.products / np.outer(self.spread, self.spread)
        return Reported(matrix, information, size)


@dataclass(frozen=True)
class Fit:
    """Maximum of the penalised likelihood, and the sums there.

    Parameters
    ----------
    coefficients : array of shape (p,)
        Intercept, and coefficients of standardised covariates.
    deviance, pearson : float
        At the last coefficients that the sites received.
    gradient : array of shape (p,)
    information : array of shape (p, p)
    converged : bool
    settled : bool
        True if all coefficients that do not diverge have converged.
    diverging : array of bool, shape (p,)
        Coefficients along which the likelihood may rise without bound.
    history : list of dict
    """

    coefficients: Floats
    deviance: float
    pearson: float
    gradient: Floats
    information: Floats
    converged: bool
    settled: bool
    diverging: Flags
    history: History


def _part_of(session: Session) -> type[RegressionSite]:
    """Return the site part of a generalised linear model, whose steps before the rounds a mixed model shares."""
    return cast(type[RegressionSite], session.part)


def _describe(session: Session, part: type[RegressionColumns], formula: Formula | None) -> messages.Described:
    """Return the description that all sites share, and compare the name of the outcome with that of the formula."""
    described = session.ask(part.describe, Nothing())
    for site, answer in described.items():
        if formula is not None and formula.outcome and answer.outcome not in ((), (formula.outcome,)):
            raise SchemaMismatch(
                f"the outcome of the formula must be that of the data, {answer.outcome[0]}; got {formula.outcome}",
                where=f"site {site}, formula",
                hint="Correct the formula, or leave the outcome out of it.",
            )
    return agree_tables(described)


def agree_columns(session: Session, model: messages.Model, missing: Missing, formula: Formula | None) -> Columns:
    """Agree on the columns of the data, or let the sites build those of a formula, and handle missing entries."""
    part = cast(type[RegressionColumns], session.part)
    described = session.once("described", messages.Described, lambda: _describe(session, part, formula))
    named = (model.offset, model.weights, model.cluster)
    shared = share_columns(session, part, described, formula, missing, named=named)
    covariates = leave_out_rare(session, part, tuple(name for name in shared.columns if name not in named))
    return Columns(
        **vars(shared),
        covariates=covariates,
        classes=described.classes,
        has_intercept=formula is None or formula.intercept,
    )


def find_means(columns: Columns, totals: messages.ColumnTotals) -> Floats:
    """Return the means of the covariates, shape (d,); without an intercept 0, about which products then are."""
    return np.asarray(totals.total / totals.present * float(columns.has_intercept), dtype=np.float64)


def find_spread(session: Session, columns: Columns, sums: messages.ColumnMoments, size: float, means: Floats) -> Floats:
    """Return the standard deviations of the covariates, shape (d,).

    Raises
    ------
    DataError
        A covariate is constant.
    """
    squares = np.diagonal(sums.products)
    check_varying(columns.covariates, squares, size, means, COARSE * rounding_of(session))
    return np.asarray(np.sqrt(np.maximum(squares, 0.0) / size), dtype=np.float64)


def agree(session: Session, model: messages.Model, missing: Missing, formula: Formula | None = None) -> Prepared:
    """Agree on columns, means and scales; with a formula, on its columns."""
    columns, part = agree_columns(session, model, missing, formula), _part_of(session)
    totals = session.once("totals", messages.Totals, lambda: session.sum(part.sum_columns, model))
    if model.family == "binomial" and not SUM_ROUNDING < totals.outcome < totals.weight - SUM_ROUNDING:
        only = columns.classes[int(totals.outcome > SUM_ROUNDING)]
        raise DataError(
            f"there must be patients of both classes; got only {only!r}",
            where="y",
            hint="Check the outcome, and the order of the classes.",
        )
    if totals.outcome <= SUM_ROUNDING and model.family in ("poisson", "negative_binomial"):
        raise DataError("at least one outcome must be above 0; got none", where="y", hint="Check the outcome.")
    means, mean = find_means(columns, totals), totals.outcome / totals.weight * float(columns.has_intercept)
    centre = messages.Centre(**vars(model), centre=means, mean=mean)
    moments = session.once("moments", messages.Moments, lambda: session.sum(part.sum_products, centre))
    spread = find_spread(session, columns, moments, totals.weight, means)
    is_gaussian, rounding = model.family == "gaussian", rounding_of(session)
    if not moments.outcome_squares > (COARSE * rounding if is_gaussian else -np.inf):
        small = ", or differ by too little for masked sums in this unit" if rounding else ""
        raise DataError(
            f"outcomes must vary; they are the same for all patients{small}",
            where="y",
            hint="Check the outcome." if not rounding else "Check the outcome, and use a smaller unit.",
        )
    scale = float(np.sqrt(moments.outcome_squares / totals.weight)) if is_gaussian else 1.0
    return Prepared(**vars(columns), totals=totals, moments=moments, centre=centre, spread=spread, scale=scale)


class RegressionProblem(Problem):
    """Likelihood of a generalised linear model; with `null`, of one with an intercept only."""

    best_value: ClassVar[str] = "deviance"
    active: Flags

    def __init__(self, session: Session, agreed: Prepared, plan: Plan, *, null: bool) -> None:
        self.session, self.agreed, self.plan, self.null = session, agreed, plan, null
        self.names = agreed.names
        self.reported = agreed.reported(null=null)
        self.is_penalised = plan.is_penalised
        penalties = np.append(0.0, np.full(len(agreed.covariates), 1.0))
        self.ridge: Floats = plan.alpha * penalties
        self.lasso: Floats = plan.lasso * penalties
        step = _part_of(session).sum_derivatives
        self.rounding = 0.5 * session.rounding(step, "deviance")
        self.gradient_rounding = session.rounding(step, "gradient")
        self.active = np.full(len(agreed.covariates) + 1, not null)
        self.active[0] = agreed.has_intercept and not agreed.centre.site_intercepts  # sites maximise over theirs
        # Only with canonical links is a step so much shorter than the one before it that none needs to follow. The
        # Pearson statistic, from which a dispersion is computed, changes with the step; classes have none.
        is_logistic = (agreed.centre.family, agreed.centre.link) == ("binomial", "logit")
        self.looks_ahead = bool(is_logistic and not plan.is_penalised and self.active.all())

    def begin(self) -> tuple[Floats, Floats]:
        """Return the coefficients without covariates, and the first step."""
        return self.agreed.start(null=self.null)

    def evaluate(self, point: Floats, *, tentative: bool) -> Derivatives:
        """Return the sums of all sites."""
        request = self.agreed.at(point, tentative=tentative)
        sums = self.session.sum(_part_of(self.session).sum_derivatives, request)
        figures = np.array([sums.deviance, sums.pearson])
        return Derivatives(
            -0.5 * sums.deviance, sums.gradient, sums.information, sums.n_patients, figures, sums.n_withdrawn
        )

    def check(self, first: Derivatives) -> None:
        """Raise DataError if covariates depend on each other."""
        if not self.plan.is_penalised:
            tol = DEPENDENT_MASKED if self.plan.masked else DEPENDENT
            check_independent(first.information, self.agreed, tol, self.active)

    def metrics(self, at: Derivatives) -> dict[str, float]:
        """Return the deviance."""
        return {"deviance": float(at.figures[0])}


def fit_model(session: Session, agreed: Prepared, plan: Plan, *, null: bool = False) -> Fit:
    """Maximise the penalised likelihood; with `null`, only over the intercept."""
    problem, name = RegressionProblem(session, agreed, plan, null=null), "null" if null else "rounds"
    reached = maximise(session, problem, max_iter=plan.max_iter, tol=plan.tol, name=name)
    if not (null or plan.is_penalised):
        check_settled(reached, agreed)
    last = reached.last
    deviance, pearson = (last.figures if last.has_begun else np.zeros(2)).tolist()
    return Fit(
        reached.point,
        deviance,
        pearson,
        last.gradient,
        last.information,
        reached.converged,
        reached.settled,
        reached.diverging,
        reached.history,
    )


def check_settled(reached: Maximum, agreed: Prepared) -> None:
    """Raise DataError, which names them, if coefficients went to the largest ones without a sign of separation."""
    beyond = np.flatnonzero(np.abs(reached.last.point[1:]) > STEEPEST)
    if len(beyond) and not (reached.converged or reached.diverging.any()):
        raise dependent_error([agreed.covariates[place] for place in beyond.tolist()], agreed.levels)


def check_independent(information: Floats, agreed: Prepared, tol: float, free: Flags) -> None:
    """Raise DataError if covariates depend on each other; the message names them."""
    dependent = np.zeros_like(free)
    dependent[free] = dependent_columns(information[np.ix_(free, free)], tol)
    if agreed.centre.site_intercepts:  # what varies between sites only carries no information within them
        sizes = np.diagonal(information)
        dependent |= free & (sizes <= tol * float(sizes.max(initial=0.0)))
    if dependent.any():
        names = [agreed.names[place] for place in np.flatnonzero(dependent).tolist()]
        of_sites = " or constant within each site" * agreed.centre.site_intercepts
        raise dependent_error(names, agreed.levels, of_sites=of_sites)
