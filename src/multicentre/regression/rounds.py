"""Rounds of the generalised linear models: Fisher scoring with sums over sites.

Before the first round:

1. Each site returns the names of its columns and classes. The coordinator checks that they are equal.
2. Each site counts missing entries and handles them in the agreed way.
   With a formula, the sites build its columns (:mod:`multicentre.formula.agreement`).
3. Each site returns the number of its patients, and sums of its covariates and outcomes. The sums over sites give the
   means.
4. Each site returns sums of products of covariates and outcomes about the means. They give standard deviations, and
   coefficients from which the rounds start.

One round consists of:

1. The coordinator sends the coefficients to every site.
2. Each site returns its deviance, and the first and the expected second derivatives of its log-likelihood.
3. The coordinator adds up the sites' values. If the penalised deviance rose, the step is halved. Otherwise, and after
   the loss of a site, the coefficients are accepted and the next step is computed.

With a lasso penalty, the step minimises the quadratic approximation with the penalty
(:mod:`multicentre.regression.penalty`).

The rounds stop when all entries of a new step are below ``tol``, or when the information at the end of the step follows
from earlier rounds with such an error (``curvature.py``). This last step is taken. With an offset, the same rounds also
fit a model with an intercept only, which the tests compare the fit with.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Nothing
from multicentre.core.rounds import History, Rounds
from multicentre.core.session import Session
from multicentre.data.categories import dependent_error
from multicentre.data.missing.values import Missing, MissingValues, handle_missing
from multicentre.data.rare_columns import leave_out_rare
from multicentre.data.schema import agree_tables
from multicentre.data.tabular import indicators_of
from multicentre.errors import DataError, SchemaMismatch
from multicentre.formula.agreement import agree_design
from multicentre.formula.design import Design
from multicentre.formula.grammar import Formula
from multicentre.regression import messages
from multicentre.regression.curvature import extrapolate_information
from multicentre.regression.maths import (
    DEPENDENT,
    DEPENDENT_MASKED,
    Family,
    dependent_columns,
    predictor_of,
    start_coefficients,
)
from multicentre.regression.patients import STEEPEST
from multicentre.regression.penalty import minimise_penalised
from multicentre.regression.rounding import COARSE, check_varying, rounding_of
from multicentre.regression.separation import FALLEN, FALLEN_PER_PATIENT, has_fallen
from multicentre.regression.site import RegressionSite

Floats = NDArray[np.float64]
# Relative rise of the deviance that is treated as rounding error of the sums and does not halve the step.
NOISE = 1e-9
# Masked sums are rounded to 4e-8 (TOTAL in messages.py) and added over at most some tens of sites: a sum of outcomes up
# to this counts as 0.
SUM_ROUNDING = 1e-5
# Gain of the log-likelihood per patient below which it counts as unchanged, and the smallest entry of a step that
# cannot be rounding. Near a maximum, a step of 0.05 gains more, unless predicted probabilities are below a
# ten-thousandth. A larger step without a gain is a sign of separation.
NO_GAIN, STILL_MOVING = 1e-7, 0.05
# Coefficients per standard deviation from which the rounds start are at most this, as second moments may exaggerate.
LARGEST_START = 5.0
# The information is extrapolated only along steps whose entries are below the first, with the second of ``tol`` as the
# largest estimated error. The estimate was at most five times too small in simulations. With masked sums, the third,
# the error that their rounding may have in results, takes the place of ``tol``.
SHORT_STEP, SAFE_SHARE, MASKED_ERROR = 1e-5, 0.2, 1e-6
# Rounds whose steps and changes of the information are stored: more than a fit to ordinary data needs.
MOST_STORED = 8


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
class Agreed:
    """Covariates, means and scales that all sites share."""

    columns: tuple[str, ...]
    covariates: tuple[str, ...]
    classes: tuple[str, ...]
    levels: tuple[str, ...]
    totals: messages.Totals
    moments: messages.Moments
    centre: messages.Centre
    spread: Floats
    scale: float
    design: Design | None = None
    has_intercept: bool = True
    data_columns: tuple[str, ...] = ()
    data_levels: tuple[str, ...] = ()

    def at(self, coefficients: Floats) -> messages.At:
        """Return the request for sums at some coefficients."""
        fields = {name: getattr(self.centre, name) for name in messages.Centre.declarations()}
        return messages.At(**fields, spread=self.spread, scale=self.scale, coefficients=coefficients)

    def has_fallen(self, information: Floats, least: float) -> NDArray[np.bool_]:
        """Flag coefficients on which the information fell by more than a factor, shape (p,); see separation.py."""
        products = self.moments.products / np.outer(self.spread, self.spread)
        return has_fallen(self.centre, self.totals, products, information, least, about_means=self.has_intercept)


@dataclass(frozen=True)
class Fit:
    """Maximum of the penalised likelihood, and the sums there.

    Parameters
    ----------
    coefficients : array of shape (p,)
        Intercept, and coefficients of standardised covariates.
    ascent : Ascent
        Sums at the last coefficients that the sites received.
    converged : bool
    diverging : array of bool, shape (p,)
        Coefficients that still move although the deviance no longer falls.
    history : list of dict
    """

    coefficients: Floats
    ascent: messages.Ascent
    converged: bool
    diverging: NDArray[np.bool_]
    history: History


def _part_of(session: Session) -> type[RegressionSite]:
    """Return the site part of a regression, whose steps a mixed model inherits."""
    return cast(type[RegressionSite], session.part)


def _describe(session: Session, formula: Formula | None) -> messages.Described:
    """Return the description that all sites share, and compare the name of the outcome with that of the formula."""
    described = session.ask(_part_of(session).describe, Nothing())
    for site, answer in described.items():
        if formula is not None and formula.outcome and answer.outcome not in ((), (formula.outcome,)):
            raise SchemaMismatch(
                f"the outcome of the formula must be that of the data, {answer.outcome[0]}; got {formula.outcome}",
                where=f"site {site}, formula",
                hint="Correct the formula, or leave the outcome out of it.",
            )
    return agree_tables(described)


def agree(
    session: Session, model: messages.Model, missing: Missing, formula: Formula | None = None
) -> tuple[Agreed, MissingValues]:
    """Agree on columns, means and scales; with a formula, on its columns."""
    described = session.once("described", messages.Described, lambda: _describe(session, formula))
    design = None
    if formula is None:
        gaps = handle_missing(session, _part_of(session), described.columns, described.levels, missing)
        columns = (*described.columns, *(indicators_of(gaps.incomplete_columns) if missing == "indicator" else ()))
    else:
        named = (model.offset, model.weights, model.cluster)
        passed = [name for name in named if name not in ("", formula.offset_name)]
        design, gaps = agree_design(session, _part_of(session), formula, described, passed=passed, missing=missing)
        columns = design.column_names
    covariates = tuple(name for name in columns if name not in (model.offset, model.weights, model.cluster))
    covariates = leave_out_rare(session, _part_of(session), covariates)
    totals = session.once("totals", messages.Totals, lambda: session.sum(_part_of(session).sum_columns, model))
    if model.family == "binomial" and not SUM_ROUNDING < totals.outcome < totals.weight - SUM_ROUNDING:
        only = described.classes[int(totals.outcome > SUM_ROUNDING)]
        raise DataError(
            f"there must be patients of both classes; got only {only!r}",
            where="y",
            hint="Check the outcome, and the order of the classes.",
        )
    if totals.outcome <= SUM_ROUNDING and model.family in ("poisson", "negative_binomial"):
        raise DataError("at least one outcome must be above 0; got none", where="y", hint="Check the outcome.")
    fields = {name: getattr(model, name) for name in messages.Model.declarations()}
    about_means = float(formula is None or formula.intercept)  # without an intercept, products are about 0
    means, mean = totals.total / totals.present * about_means, totals.outcome / totals.weight * about_means
    centre = messages.Centre(**fields, centre=means, mean=mean)
    moments = session.once("moments", messages.Moments, lambda: session.sum(_part_of(session).sum_products, centre))
    variances = np.maximum(np.diagonal(moments.products), 0.0) / totals.weight
    spread = np.sqrt(variances)
    rounding = rounding_of(session)
    check_varying(covariates, np.diagonal(moments.products), totals.weight, centre.centre, COARSE * rounding)
    is_gaussian = model.family == "gaussian"
    if not moments.outcome_squares > (COARSE * rounding if is_gaussian else -np.inf):
        small = ", or differ by too little for masked sums in this unit" if rounding else ""
        raise DataError(
            f"outcomes must vary; they are the same for all patients{small}",
            where="y",
            hint="Check the outcome." if not rounding else "Check the outcome, and use a smaller unit.",
        )
    gaussian = is_gaussian and model.link == "identity"
    scale = float(np.sqrt(moments.outcome_squares / totals.weight)) if gaussian else 1.0
    levels = described.levels if design is None else ()
    agreed = Agreed(
        columns,
        covariates,
        described.classes,
        levels,
        totals,
        moments,
        centre,
        spread,
        scale,
        design,
        formula is None or formula.intercept,
        described.columns,
        described.levels,
    )
    return agreed, gaps


def fit_model(session: Session, agreed: Agreed, plan: Plan, *, null: bool = False) -> Fit:
    """Maximise the penalised likelihood; with `null`, only over the intercept."""
    free = np.zeros(len(agreed.covariates) + 1, dtype=np.bool_)
    free[: 1 if null else None] = True
    free[0] &= agreed.has_intercept and not agreed.centre.site_intercepts  # sites maximise over their intercepts
    name = "null" if null else "rounds"
    rounds = session.rounds(plan.max_iter, messages.Ascent, lambda: _start(agreed, null=null), name=name)
    diverging = np.zeros_like(free)
    rounding = session.rounding(_part_of(session).sum_derivatives, "deviance")
    for _ in rounds:
        before = rounds.state
        tried = before.coefficients + before.share * before.step
        sums = session.sum(_part_of(session).sum_derivatives, agreed.at(np.clip(tried, -STEEPEST, STEEPEST)))
        if not (plan.is_penalised or np.isfinite(before.objective)):
            check_independent(sums.information, agreed, DEPENDENT_MASKED if plan.masked else DEPENDENT, free)
        rounds.state = reached = _climb(before, tried, sums, plan, free, rounding)
        change = float(np.abs(reached.step).max())
        rounds.record(deviance=sums.deviance, change=change, share=before.share)
        if reached.share == 1.0:
            gain = (reached.objective - before.objective) / max(sums.n_patients, 1.0)
            if change < plan.tol:
                rounds.stop()
            elif ahead := _look_ahead(reached, plan, free, agreed.centre):
                rounds.state = ahead
                rounds.stop()
            elif gain < NO_GAIN and change > STILL_MOVING:
                diverging = _diverging(agreed, reached, null=null)
                if diverging.any():
                    break
    return _end(agreed, rounds, diverging, is_free=null or plan.is_penalised)


def _end(agreed: Agreed, rounds: Rounds[messages.Ascent], diverging: NDArray[np.bool_], *, is_free: bool) -> Fit:
    """Return the fit at the end of the rounds; with `is_free`, covariates cannot separate or depend on each other."""
    last = rounds.state
    if not is_free:
        diverging = diverging | _separated(agreed, last)
        beyond = np.abs(last.coefficients[1:]) > STEEPEST
        if beyond.any() and not (rounds.stopped or diverging.any()):
            raise dependent_error(
                [agreed.covariates[place] for place in np.flatnonzero(beyond).tolist()], agreed.levels
            )
    converged = rounds.stopped and not diverging.any()
    coefficients = last.coefficients + (last.step if converged else 0.0)
    return Fit(coefficients, last, converged, diverging, rounds.history)


def _diverging(agreed: Agreed, reached: messages.Ascent, *, null: bool) -> NDArray[np.bool_]:
    """Flag coefficients that still move, if the information on them fell; dependent covariates also move far."""
    moving = np.abs(reached.step) > STILL_MOVING
    return moving if null else moving & agreed.has_fallen(reached.information, FALLEN)


def _separated(agreed: Agreed, last: messages.Ascent) -> NDArray[np.bool_]:
    """Flag coefficients on which nearly no information is left although the rounds may have stopped."""
    size = max(agreed.totals.n_patients, agreed.totals.weight, agreed.totals.outcome)
    fallen = agreed.has_fallen(last.information, FALLEN_PER_PATIENT * size)
    return fallen & (np.arange(len(fallen)) > 0)


def start_of(agreed: Agreed, *, null: bool) -> Floats:
    """Return the coefficients where the rounds start, shape (p,); with `null`, of an intercept only."""
    coefficients = np.zeros(len(agreed.covariates) + 1)
    mean = agreed.centre.mean / agreed.scale
    link, family = agreed.centre.link, cast(Family, agreed.centre.family)
    if agreed.has_intercept and not (link == "log" and mean <= 0):
        coefficients[0] = float(predictor_of(link, np.array([mean]))[0])  # type: ignore[arg-type]
    if not null and (agreed.has_intercept or link == "identity"):
        spread, scale = agreed.spread, agreed.scale
        products = agreed.moments.products / np.outer(spread, spread)
        cross = agreed.moments.cross / (spread * scale)
        start = start_coefficients(family, products, cross, agreed.totals.weight, agreed.centre.mean / scale)
        coefficients[1:] = np.clip(start, -LARGEST_START, LARGEST_START) if link != "identity" else start
    return coefficients


def _start(agreed: Agreed, *, null: bool) -> messages.Ascent:
    coefficients = start_of(agreed, null=null)
    p = len(coefficients)
    nothing, earlier = np.zeros((p, p)), (np.zeros((0, p)), np.zeros((0, p, p)))
    return messages.Ascent(coefficients, np.zeros(p), 1.0, -np.inf, 0.0, 0.0, 0.0, nothing, np.zeros(p), *earlier)


def _look_ahead(
    reached: messages.Ascent, plan: Plan, free: NDArray[np.bool_], model: messages.Centre
) -> messages.Ascent | None:
    """Return the state with the information at the end of the next step, or None where it does not follow.

    Only with canonical links is a step so much shorter than the one before it that none needs to follow. The Pearson
    statistic, from which a dispersion is computed, changes with the step; classes have none.
    """
    is_logistic = (model.family, model.link) == ("binomial", "logit")
    if not is_logistic or plan.is_penalised or not free.all() or float(np.abs(reached.step).max()) > SHORT_STEP:
        return None
    ahead = extrapolate_information(reached.information, reached.step, reached.steps, reached.changes)
    allowed = SAFE_SHARE * (MASKED_ERROR if plan.masked else plan.tol)
    return replace(reached, information=ahead.information) if ahead.error < allowed else None


def _climb(
    before: messages.Ascent,
    tried: Floats,
    sums: messages.Sums,
    plan: Plan,
    free: NDArray[np.bool_],
    rounding: float,
) -> messages.Ascent:
    """Accept the step if the objective rose, and halve it otherwise; after the loss of a site, accept it.

    A fall that `rounding`, the largest error of a deviance, can explain is none: of two objectives that are compared,
    each may be off by half of it.
    """
    penalty = np.where(np.arange(len(tried)) > 0, plan.alpha, 0.0)
    objective = -0.5 * sums.deviance - 0.5 * float(penalty @ np.square(tried))
    objective -= plan.lasso * float(np.abs(tried[1:]).sum())
    slack = NOISE * (1.0 + abs(objective)) + rounding
    if sums.n_patients == before.n_patients and objective < before.objective - slack:
        return replace(before, share=before.share / 2.0)
    gradient = (sums.gradient - penalty * tried)[free]
    information = (sums.information + np.diag(penalty))[np.ix_(free, free)]
    step = np.zeros_like(tried)
    if plan.lasso and free[1:].all():
        step = _lasso_step(sums, tried, plan, has_intercept=bool(free[0]))
    else:
        step[free] = np.linalg.lstsq(information, gradient, rcond=None)[0]
    steps, changes = before.steps, before.changes
    if sums.n_patients == before.n_patients:
        steps = np.concatenate([steps, (tried - before.coefficients)[None]])[-MOST_STORED:]
        changes = np.concatenate([changes, (sums.information - before.information)[None]])[-MOST_STORED:]
    else:  # the first round, or the sums of fewer sites
        steps, changes = steps[:0], changes[:0]
    return messages.Ascent(
        tried,
        step,
        1.0,
        objective,
        sums.n_patients,
        sums.deviance,
        sums.pearson,
        sums.information,
        sums.gradient,
        steps,
        changes,
    )


def _lasso_step(sums: messages.Sums, tried: Floats, plan: Plan, *, has_intercept: bool) -> Floats:
    """Return the step to the minimum of the quadratic approximation with the penalties."""
    linear = sums.gradient + sums.information @ tried
    ridge, lasso = np.array([plan.alpha]), np.array([plan.lasso])
    start = tried[None]
    best = minimise_penalised(sums.information[None], linear[None], ridge, lasso, start, has_intercept=has_intercept)
    return np.asarray(best[0] - tried, dtype=np.float64)


def check_independent(information: Floats, agreed: Agreed, tol: float, free: NDArray[np.bool_]) -> None:
    """Raise DataError if covariates depend on each other; the message names them."""
    dependent = np.zeros_like(free)
    dependent[free] = dependent_columns(information[np.ix_(free, free)], tol)
    if agreed.centre.site_intercepts:  # what varies between sites only carries no information within them
        sizes = np.diagonal(information)
        dependent |= free & (sizes <= tol * float(sizes.max(initial=0.0)))
    if dependent.any():
        names = [("intercept", *agreed.covariates)[place] for place in np.flatnonzero(dependent).tolist()]
        of_sites = " or constant within each site" * agreed.centre.site_intercepts
        raise dependent_error(names, agreed.levels, of_sites=of_sites)
