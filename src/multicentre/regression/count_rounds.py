"""Rounds of negative binomial regression: Newton steps on coefficients and overdispersion together.

The rounds begin as those of the other families (``rounds.py``): names, missing entries, means, products. One round
consists of:

1. The coordinator sends the coefficients and the overdispersion to every site.
2. Each site returns its log-likelihood with the first and second derivatives by both.
3. The coordinator adds up the sites' values. If the penalised log-likelihood fell, the step is halved. Otherwise, and
   after the loss of a site, the values are accepted and the next Newton step is computed; where the information is not
   positive definite, a Fisher step on the coefficients and a step along the slope of the overdispersion.

An overdispersion that a step would take below 0 is set to 0, where the law is that of Poisson. It stays there while the
likelihood does not rise with it; there is then no overdispersion.

The rounds stop when no coefficient of a standardised covariate, and not the overdispersion times the mean outcome,
would change by more than ``tol``; this last step is taken. The same rounds then fit a model with an intercept only
(and the offset), with its own overdispersion for the tests, and with that of the fit for the null deviance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.core.session import Session
from multicentre.regression import messages
from multicentre.regression.maths import DEPENDENT, DEPENDENT_MASKED
from multicentre.regression.patients import STEEPEST
from multicentre.regression.rounds import (
    NO_GAIN,
    NOISE,
    STILL_MOVING,
    Agreed,
    Fit,
    Plan,
    check_independent,
    start_of,
)
from multicentre.regression.separation import FALLEN
from multicentre.regression.site import RegressionSite
from multicentre.statistics.chi_square import TestResult, chi_square_test

Floats = NDArray[np.float64]
# Overdispersion times the mean outcome where the rounds start is at least this. From 0, the first step would be long.
SMALLEST_START = 0.1
# Longer Newton steps than the first are replaced by Fisher steps, as the observed information changes with the means;
# steps are cut to the second, so that a poor start (the means of an offset are not shared) leads to no extreme means.
LONGEST_NEWTON, LONGEST_STEP = 0.5, 2.0


@dataclass(frozen=True)
class CountFit:
    """Maximum of the likelihood of counts.

    Parameters
    ----------
    fit : Fit
        Coefficients; its information is the expected one.
    log_likelihood : float
    overdispersion : float
        0 if there is none.
    error : float
        Standard error of the overdispersion; NaN at 0.
    """

    fit: Fit
    log_likelihood: float
    overdispersion: float
    error: float


def fit_counts(
    session: Session, agreed: Agreed, plan: Plan, *, null: bool = False, fixed: float | None = None
) -> CountFit:
    """Maximise the penalised likelihood; with `null`, over an intercept only, with `fixed`, at an overdispersion."""
    free = np.ones(len(agreed.covariates) + 2, dtype=np.bool_)
    free[1:-1] = not null
    free[0] = agreed.has_intercept
    free[-1] = fixed is None
    name = "rounds" if not null else "null" if fixed is None else "null at the overdispersion"
    rounds = session.rounds(plan.max_iter, messages.CountAscent, lambda: _start(agreed, null, fixed), name=name)
    diverging = np.zeros(len(free) - 1, dtype=np.bool_)
    rounding = session.rounding(RegressionSite.sum_count_derivatives, "log_likelihood")
    for _ in rounds:
        before = rounds.state
        tried = before.values + before.share * before.step
        sums = session.sum(RegressionSite.sum_count_derivatives, _at(tried, agreed))
        if not (plan.is_penalised or null or np.isfinite(before.objective)):
            check_independent(sums.information, agreed, DEPENDENT_MASKED if plan.masked else DEPENDENT, free[:-1])
        rounds.state = reached = _climb(before, tried, sums, plan.alpha, free, rounding)
        change = float(np.abs(reached.step).max())
        rounds.record(log_likelihood=sums.log_likelihood, change=change, share=before.share)
        if reached.step is before.step:
            continue  # the step was halved
        gain = (reached.objective - before.objective) / max(sums.n_patients, 1.0)
        if change < plan.tol:
            rounds.stop()
        elif gain < NO_GAIN and change > STILL_MOVING:
            diverging = np.abs(reached.step[:-1]) > STILL_MOVING
            if null or (diverging := diverging & agreed.has_fallen(sums.information, FALLEN)).any():
                break
    last = rounds.state
    values = last.values + (last.step if rounds.stopped else 0.0)
    return _result(last, values, agreed, rounds.stopped, diverging, rounds.history)


def _result(
    last: messages.CountAscent,
    values: Floats,
    agreed: Agreed,
    converged: bool,
    diverging: NDArray[np.bool_],
    history: list[dict[str, float]],
) -> CountFit:
    p = len(values) - 1
    earlier = (np.zeros((0, p)), np.zeros((0, p, p)))
    ascent = messages.Ascent(
        values[:-1],
        np.zeros(p),
        1.0,
        last.objective,
        last.n_patients,
        last.deviance,
        last.pearson,
        last.information,
        np.asarray(last.gradient[:-1]),
        *earlier,
    )
    alpha = _alpha(values, agreed)
    error = np.nan
    if converged and alpha > 0 and last.curvature > 0:
        error = float(1.0 / np.sqrt(last.curvature) / agreed.totals.outcome * agreed.totals.weight)
    return CountFit(Fit(values[:-1], ascent, converged, diverging, history), last.log_likelihood, alpha, error)


def test_counts(fit: CountFit, null: CountFit, n_covariates: int, *, has_intercept: bool) -> dict[str, TestResult]:
    """Return likelihood-ratio and score test of all covariates, against a model with its own overdispersion.

    The score test does not depend on the error of the overdispersion, as its expected mixed derivatives are 0.
    """
    gain = 2.0 * (fit.log_likelihood - null.log_likelihood)
    tests = {"likelihood_ratio": chi_square_test(gain, n_covariates)}
    if has_intercept:
        gradient, information = null.fit.ascent.gradient, null.fit.ascent.information
        tests["score"] = chi_square_test(float(gradient @ np.linalg.solve(information, gradient)), n_covariates)
    return tests


def _at(values: Floats, agreed: Agreed) -> messages.AtCounts:
    at = agreed.at(np.clip(values[:-1], -STEEPEST, STEEPEST))
    fields = {name: getattr(at, name) for name in messages.At.declarations()}
    unit = agreed.totals.weight / agreed.totals.outcome
    return messages.AtCounts(**fields | {"overdispersion": _alpha(values, agreed)}, unit=unit)


def _alpha(values: Floats, agreed: Agreed) -> float:
    """Return the overdispersion; the last value is its product with the mean outcome."""
    return float(max(values[-1], 0.0) * agreed.totals.weight / agreed.totals.outcome)


def _start(agreed: Agreed, null: bool, fixed: float | None) -> messages.CountAscent:
    coefficients = start_of(agreed, null=null)
    mean = agreed.totals.outcome / agreed.totals.weight
    variance = agreed.moments.outcome_squares / agreed.totals.weight - (mean - agreed.centre.mean) ** 2
    start = max((variance - mean) / mean, SMALLEST_START) if fixed is None else fixed * mean
    values = np.append(coefficients, start)
    p = len(coefficients)
    nothing = np.zeros((p, p))
    return messages.CountAscent(
        values, np.zeros(p + 1), 1.0, -np.inf, 0.0, 0.0, 0.0, 0.0, nothing, np.zeros(p + 1), 0.0
    )


def _climb(
    before: messages.CountAscent,
    tried: Floats,
    sums: messages.CountSums,
    alpha: float,
    free: NDArray[np.bool_],
    rounding: float,
) -> messages.CountAscent:
    """Accept the step if the objective rose, and halve it otherwise; after the loss of a site, accept it.

    A fall that `rounding`, the largest error of a log-likelihood, can explain is none.
    """
    place = np.arange(len(tried))
    penalty = np.where((place > 0) & (place < len(tried) - 1), alpha, 0.0)
    objective = sums.log_likelihood - 0.5 * float(penalty @ np.square(tried))
    slack = NOISE * (1.0 + abs(objective)) + 2.0 * rounding  # of the two that are compared
    if sums.n_patients == before.n_patients and objective < before.objective - slack:
        return replace(before, share=before.share / 2.0)
    gradient = np.append(sums.gradient, sums.slope)
    return messages.CountAscent(
        tried,
        _step(tried, gradient, sums, penalty, free),
        1.0,
        objective,
        sums.n_patients,
        sums.log_likelihood,
        sums.deviance,
        sums.pearson,
        sums.information,
        gradient,
        sums.curvature,
    )


def _step(
    tried: Floats, gradient: Floats, sums: messages.CountSums, penalty: Floats, free: NDArray[np.bool_]
) -> Floats:
    """Return the next step; the overdispersion stays at 0 or above."""
    moving = free.copy()
    if tried[-1] <= 0.0 and sums.slope <= 0.0:
        moving[-1] = False
    observed = np.block([[sums.observed, sums.mixed[:, None]], [sums.mixed[None], np.array([[sums.curvature]])]])
    slope = (gradient - penalty * tried)[moving]
    step = np.zeros_like(tried)
    best = _newton_step((observed + np.diag(penalty))[np.ix_(moving, moving)], slope)
    if best is None or np.abs(best).max(initial=0.0) > LONGEST_NEWTON:
        p = len(sums.information)
        expected = np.diag(np.append(np.zeros(p), abs(sums.curvature) or 1.0) + penalty)
        expected[:p, :p] += sums.information
        best = np.asarray(np.linalg.lstsq(expected[np.ix_(moving, moving)], slope, rcond=None)[0], dtype=np.float64)
    step[moving] = np.clip(best, -LONGEST_STEP, LONGEST_STEP)
    if tried[-1] + step[-1] < 0.0:
        step[-1] = -tried[-1]
    return step


def _newton_step(observed: Floats, slope: Floats) -> Floats | None:
    """Return the Newton step, or None where the information is not positive definite."""
    try:
        np.linalg.cholesky(observed)
    except np.linalg.LinAlgError:
        return None
    return np.asarray(np.linalg.solve(observed, slope), dtype=np.float64)


@dataclass(frozen=True)
class CountFits:
    """Fit of counts, fit without covariates, and the deviance without covariates at the overdispersion of the fit."""

    full: CountFit
    null: CountFit
    null_deviance: float


def fit_with_null(session: Session, agreed: Agreed, plan: Plan) -> CountFits:
    """Fit the model, and the models without covariates with which it is compared."""
    full = fit_counts(session, agreed, plan)
    unpenalised = replace(plan, alpha=0.0)
    null = fit_counts(session, agreed, unpenalised, null=True)
    same = fit_counts(session, agreed, unpenalised, null=True, fixed=full.overdispersion)
    return CountFits(full, null, same.fit.ascent.deviance)
