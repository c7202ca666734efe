"""Rounds of multinomial and ordinal regression: Newton-Raphson with sums over sites.

Before the first round:

1. Each site returns the names of its columns and classes. The coordinator checks that they are equal.
2. Each site counts missing entries and handles them in the agreed way.
3. Each site counts its patients by class and sums its covariates. The sums over sites give the means.
4. Each site returns sums of products of covariates about the means, and sums of covariates by class. They give standard
   deviations, and parameters from which the rounds start.

One round consists of:

1. The coordinator sends the parameters to every site.
2. Each site returns its log-likelihood and the first and second derivatives.
3. The coordinator adds up the sites' values. If the penalised log-likelihood fell, the step is halved. Otherwise, and
   after the loss of a site, the parameters are accepted and the next step is computed. A step after which thresholds
   would not increase is halved without a call.

The rounds stop when all entries of a new step are below ``tol``, or when the information at the end of the step follows
from earlier rounds with such an error; this last step is taken. After an ordinal fit, each site returns once the
derivatives of the model with slopes for each threshold, for the test of proportional odds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Nothing
from multicentre.core.rounds import History
from multicentre.core.session import Session
from multicentre.data.categories import dependent_error
from multicentre.data.missing.values import Missing, MissingValues, handle_missing
from multicentre.data.rare_columns import leave_out_rare
from multicentre.data.schema import agree_tables
from multicentre.data.tabular import indicators_of
from multicentre.errors import DataError
from multicentre.regression.categorical import messages
from multicentre.regression.categorical.maths import (
    ClassMoments,
    are_ordered,
    link_of,
    start_multinomial,
    start_ordinal,
)
from multicentre.regression.categorical.site import CategoricalSite
from multicentre.regression.curvature import extrapolate_information
from multicentre.regression.maths import DEPENDENT, DEPENDENT_MASKED, dependent_columns
from multicentre.regression.messages import Described
from multicentre.regression.patients import STEEPEST
from multicentre.regression.rounding import COARSE, check_varying, rounding_of
from multicentre.regression.rounds import (
    LARGEST_START,
    MASKED_ERROR,
    MOST_STORED,
    NO_GAIN,
    NOISE,
    SAFE_SHARE,
    SHORT_STEP,
    STILL_MOVING,
    Plan,
)

Floats = NDArray[np.float64]
# Halvings of a step that bring thresholds into order: after 60, the step is below the resolution of doubles.
MOST_HALVINGS = 60


@dataclass(frozen=True)
class Agreed:
    """Covariates, classes, means and scales that all sites share.

    Parameters
    ----------
    columns, covariates, classes, levels : tuple of str
    totals : messages.Totals
    centre : messages.Centre
    spread : array of shape (d,)
    moments : ClassMoments
        Of standardised covariates.
    """

    columns: tuple[str, ...]
    covariates: tuple[str, ...]
    classes: tuple[str, ...]
    levels: tuple[str, ...]
    totals: messages.Totals
    centre: messages.Centre
    spread: Floats
    moments: ClassMoments

    def at(self, parameters: Floats) -> messages.At:
        """Return the request for sums at some parameters."""
        centre = self.centre
        return messages.At(centre.kind, centre.link, centre.centre, self.spread, parameters)

    @property
    def free_of_penalty(self) -> NDArray[np.bool_]:
        """Intercepts and thresholds, shape (q,)."""
        k, d = len(self.classes) - 1, len(self.covariates)
        if self.centre.kind == "multinomial":
            return np.tile(np.arange(d + 1) == 0, k)
        return np.arange(k + d) < k

    def names(self) -> list[str]:
        """Return a name for each parameter."""
        if self.centre.kind == "multinomial":
            return [f"{column} ({name})" for name in self.classes[1:] for column in ("intercept", *self.covariates)]
        return [f"threshold {name}" for name in self.classes[:-1]] + list(self.covariates)


@dataclass(frozen=True)
class Fit:
    """Maximum of the penalised likelihood, and the sums there.

    Parameters
    ----------
    parameters : array of shape (q,)
        Of standardised covariates.
    ascent : messages.Ascent
    converged : bool
    diverging : array of bool, shape (q,)
        Parameters that still move although the likelihood no longer rises.
    history : list of dict
    """

    parameters: Floats
    ascent: messages.Ascent
    converged: bool
    diverging: NDArray[np.bool_]
    history: History


def agree(
    session: Session, model: messages.Model, missing: Missing, *, independent: bool
) -> tuple[Agreed, MissingValues]:
    """Agree on columns, classes, means and scales; with `independent`, refuse columns that depend on others."""
    described = session.once(
        "described", Described, lambda: agree_tables(session.ask(CategoricalSite.describe, Nothing()))
    )
    gaps = handle_missing(session, CategoricalSite, described.columns, described.levels, missing)
    columns = (*described.columns, *(indicators_of(gaps.incomplete_columns) if missing == "indicator" else ()))
    covariates = leave_out_rare(session, CategoricalSite, columns)
    totals = session.once("totals", messages.Totals, lambda: session.sum(CategoricalSite.sum_classes, model))
    if not (totals.counts > 0).all():
        empty = [name for name, n in zip(described.classes, totals.counts.tolist(), strict=True) if n <= 0]
        raise DataError(
            f"there must be patients of every class; got none of {', '.join(empty[:5])}",
            where="y",
            hint="Merge the class with another one, or leave it out of classes.",
        )
    centre = messages.Centre(model.kind, model.link, totals.total / totals.present)
    sums = session.once("moments", messages.Moments, lambda: session.sum(CategoricalSite.sum_products, centre))
    spread = np.sqrt(np.maximum(np.diagonal(sums.products), 0.0) / totals.n_patients)
    squares = np.diagonal(sums.products)
    least = COARSE * rounding_of(session) * totals.n_patients  # the score test follows from these sums
    check_varying(covariates, squares, totals.n_patients, centre.centre, least)
    moments = ClassMoments(
        totals.counts.astype(np.float64), sums.products / np.outer(spread, spread), sums.by_class / spread
    )
    tol = DEPENDENT_MASKED if session.protection == "masked" else DEPENDENT
    if independent and len(covariates) and (dependent := dependent_columns(moments.products, tol)).any():
        raise dependent_error([covariates[place] for place in np.flatnonzero(dependent).tolist()], described.levels)
    return Agreed(columns, covariates, described.classes, described.levels, totals, centre, spread, moments), gaps


def fit_model(session: Session, agreed: Agreed, plan: Plan) -> Fit:
    """Maximise the penalised likelihood."""
    penalty = np.where(agreed.free_of_penalty, 0.0, plan.alpha)
    rounds = session.rounds(plan.max_iter, messages.Ascent, lambda: _start(agreed), name="rounds")
    diverging = np.zeros(len(penalty), dtype=np.bool_)
    rounding = session.rounding(CategoricalSite.sum_derivatives, "log_likelihood")
    for _ in rounds:
        before = rounds.state
        tried = before.parameters + before.share * before.step
        sums = session.sum(CategoricalSite.sum_derivatives, agreed.at(np.clip(tried, -STEEPEST, STEEPEST)))
        rounds.state = reached = _climb(before, tried, sums, penalty, agreed, rounding)
        change = float(np.abs(reached.step).max())
        rounds.record(log_likelihood=sums.log_likelihood, change=change, share=before.share)
        if reached.step is before.step:
            continue  # the step was halved
        gain = (reached.objective - before.objective) / max(sums.n_patients, 1.0)
        if change < plan.tol:
            rounds.stop()
        elif ahead := _look_ahead(reached, plan):
            rounds.state = ahead
            rounds.stop()
        elif gain < NO_GAIN and change > STILL_MOVING:
            diverging = np.abs(reached.step) > STILL_MOVING
            break
    last = rounds.state
    parameters = last.parameters + (last.step if rounds.stopped else 0.0)
    return Fit(parameters, last, rounds.stopped, diverging, rounds.history)


def test_equal_slopes(session: Session, agreed: Agreed, parameters: Floats) -> float:
    """Return the score statistic against slopes for each threshold."""
    sums = session.sum(CategoricalSite.sum_unequal_slopes, agreed.at(parameters))
    return float(sums.gradient @ np.linalg.lstsq(sums.information, sums.gradient, rcond=None)[0])


def _start(agreed: Agreed) -> messages.Ascent:
    model, moments = agreed.centre, agreed.moments
    if model.kind == "multinomial":
        parameters = start_multinomial(moments, LARGEST_START)
    else:
        parameters = start_ordinal(link_of(model.link), moments, LARGEST_START)
    q = len(parameters)
    nothing, earlier = np.zeros((q, q)), (np.zeros((0, q)), np.zeros((0, q, q)))
    return messages.Ascent(parameters, np.zeros(q), 1.0, -np.inf, 0.0, 0.0, nothing, *earlier)


def _climb(
    before: messages.Ascent, tried: Floats, sums: messages.Sums, penalty: Floats, agreed: Agreed, rounding: float
) -> messages.Ascent:
    """Accept the step if the objective rose, and halve it otherwise; after the loss of a site, accept it.

    A fall that `rounding`, the largest error of a log-likelihood, can explain is none.
    """
    objective = sums.log_likelihood - 0.5 * float(penalty @ np.square(tried))
    slack = NOISE * (1.0 + abs(objective)) + 2.0 * rounding  # of the two that are compared
    if sums.n_patients == before.n_patients and objective < before.objective - slack:
        return replace(before, share=before.share / 2.0)
    gradient = sums.gradient - penalty * tried
    step: Floats = np.linalg.lstsq(sums.information + np.diag(penalty), gradient, rcond=None)[0].astype(np.float64)
    steps, changes = before.steps, before.changes
    if sums.n_patients == before.n_patients:
        steps = np.concatenate([steps, (tried - before.parameters)[None]])[-MOST_STORED:]
        changes = np.concatenate([changes, (sums.information - before.information)[None]])[-MOST_STORED:]
    else:  # the first round, or the sums of fewer sites
        steps, changes = steps[:0], changes[:0]
    return messages.Ascent(
        tried,
        step,
        _ordered_share(agreed, tried, step),
        objective,
        sums.n_patients,
        sums.log_likelihood,
        sums.information,
        steps,
        changes,
    )


def _ordered_share(agreed: Agreed, parameters: Floats, step: Floats) -> float:
    """Return the share of a step, 1 or a power of a half, after which thresholds still increase."""
    k, share = len(agreed.classes) - 1, 1.0
    if agreed.centre.kind == "ordinal":
        for _ in range(MOST_HALVINGS):
            if are_ordered((parameters + share * step)[:k]):
                break
            share /= 2.0
    return share


def _look_ahead(reached: messages.Ascent, plan: Plan) -> messages.Ascent | None:
    """Return the state with the information at the end of the next step, or None where it does not follow."""
    if plan.alpha or reached.share < 1.0 or float(np.abs(reached.step).max()) > SHORT_STEP:
        return None
    ahead = extrapolate_information(reached.information, reached.step, reached.steps, reached.changes)
    allowed = SAFE_SHARE * (MASKED_ERROR if plan.masked else plan.tol)
    return replace(reached, information=ahead.information) if ahead.error < allowed else None
