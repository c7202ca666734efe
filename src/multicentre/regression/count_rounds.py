"""Rounds of negative binomial regression: Newton steps on coefficients and overdispersion together.

The rounds begin as those of the other families (``rounds.py``): names, missing entries, means, products. They are those
of :mod:`multicentre.likelihood.newton`; sites return the log-likelihood with its first and second derivatives by
coefficients and overdispersion. Where the information is not positive definite, the step is a Fisher step on the
coefficients and one along the slope of the overdispersion. A large overdispersion moves by factors: its step is one of
the logarithm. An overdispersion that a step would take below 0 is set to 0, where the law is that of Poisson. It stays
there while the likelihood does not rise with it; there is then no overdispersion.

The rounds stop when no coefficient of a standardised covariate, and not the overdispersion times the mean outcome,
would change by more than ``tol``, relative to itself above 1; this last step is taken. The same rounds then fit a model
with an intercept only (and the offset), with its own overdispersion for the tests, and with that of the fit for the
null deviance.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.core.session import Session
from multicentre.likelihood.newton import Derivatives, Maximum, Problem, maximise
from multicentre.likelihood.separation import Reported
from multicentre.regression import messages
from multicentre.regression.maths import DEPENDENT, DEPENDENT_MASKED
from multicentre.regression.rounds import Fit, Plan, Prepared, check_independent, check_settled
from multicentre.regression.site import RegressionSite
from multicentre.statistics.chi_square import TestResult, chi_square_test

Floats = NDArray[np.float64]
# Overdispersion times the mean outcome where the rounds start is at least this. From 0, the first step would be long.
SMALLEST_START = 0.1
# Longer Newton steps than the first are replaced by Fisher steps, as the observed information changes with the means;
# steps are cut to the second, so that a poor start (the means of an offset are not shared) leads to no extreme means.
# Both hold for the overdispersion times the mean outcome, and above 1 for its logarithm.
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


@dataclass(frozen=True, kw_only=True)
class CountDerivatives(Derivatives):
    """Derivatives by the coefficients and, in units of `unit`, by the overdispersion times the mean outcome."""

    observed: Floats
    slope: float
    curvature: float
    mixed: Floats
    unit: float


class CountProblem(Problem):
    """Likelihood of negative binomial counts; the last parameter is the overdispersion times the mean outcome."""

    def __init__(self, session: Session, agreed: Prepared, plan: Plan, *, null: bool, fixed: float | None) -> None:
        self.session, self.agreed, self.plan, self.null, self.fixed = session, agreed, plan, null, fixed
        d = len(agreed.covariates)
        self.names = (*agreed.names, "overdispersion")
        of_coefficients, padding = agreed.reported(null=null), (0, 1)
        matrix = np.pad(of_coefficients.matrix, padding)
        matrix[-1, -1] = 1.0
        null_information = of_coefficients.information
        information = None if null_information is None else np.pad(null_information, padding)
        self.reported = Reported(matrix, information, of_coefficients.n_patients)
        self.ridge = np.concatenate([[0.0], np.full(d, plan.alpha), [0.0]])
        self.is_penalised = plan.is_penalised
        step = RegressionSite.sum_count_derivatives
        self.rounding, self.gradient_rounding = (
            session.rounding(step, name) for name in ("log_likelihood", "gradient")
        )
        self.free = np.ones(d + 2, dtype=np.bool_)
        self.free[1:-1] = not null
        self.free[0], self.free[-1] = agreed.has_intercept, fixed is None

    def begin(self) -> tuple[Floats, Floats]:
        """Return the coefficients without covariates and an overdispersion from second moments, and the first step."""
        agreed = self.agreed
        coefficients, step = agreed.start(null=self.null)
        mean = agreed.totals.outcome / agreed.totals.weight
        variance = agreed.moments.outcome_squares / agreed.totals.weight - (mean - agreed.centre.mean) ** 2
        start = max((variance - mean) / mean, SMALLEST_START) if self.fixed is None else self.fixed * mean
        return np.append(coefficients, start), np.append(step, 0.0)

    def evaluate(self, point: Floats, *, tentative: bool) -> CountDerivatives:
        """Return the sums of all sites."""
        at = self.agreed.at(point[:-1], tentative=tentative)
        fields = {name: getattr(at, name) for name in messages.At.declarations()}
        alpha, unit = alpha_of(point, self.agreed), max(float(point[-1]), 1.0)
        fields |= {"overdispersion": alpha, "unit": unit * alpha_of(np.ones(1), self.agreed)}
        sums = self.session.sum(RegressionSite.sum_count_derivatives, messages.AtCounts(**fields))
        p = len(point) - 1
        information = np.zeros((p + 1, p + 1))
        information[:p, :p], information[p, p] = sums.information, sums.curvature / unit**2
        return CountDerivatives(
            value=sums.log_likelihood,
            gradient=np.append(sums.gradient, sums.slope / unit),
            information=information,
            n_patients=sums.n_patients,
            figures=np.array([sums.log_likelihood, sums.deviance, sums.pearson]),
            n_withdrawn=sums.n_withdrawn,
            observed=sums.observed,
            slope=sums.slope,
            curvature=sums.curvature,
            mixed=sums.mixed,
            unit=unit,
        )

    def check(self, first: Derivatives) -> None:
        """Raise DataError if covariates depend on each other."""
        if not (self.plan.is_penalised or self.null):
            tol = DEPENDENT_MASKED if self.plan.masked else DEPENDENT
            check_independent(first.information[:-1, :-1], self.agreed, tol, self.free[:-1])

    def next_step(self, point: Floats, at: Derivatives) -> Floats:
        """Return the next step; the overdispersion stays at 0 or above."""
        assert isinstance(at, CountDerivatives)
        moving, ridge = self.free.copy(), np.broadcast_to(self.ridge, len(point))
        if point[-1] <= 0.0 and at.slope <= 0.0:
            moving[-1] = False
        by_factors = at.unit > 1.0  # then the unit is the parameter itself, and the step is of its logarithm
        curvature = at.curvature - at.slope if by_factors else at.curvature
        observed = np.block([[at.observed, at.mixed[:, None]], [at.mixed[None], np.array([[curvature]])]])
        slope = (np.append(at.gradient[:-1], at.slope) - ridge * point)[moving]
        best = _newton_step((observed + np.diag(ridge))[np.ix_(moving, moving)], slope)
        if best is None or np.abs(best).max(initial=0.0) > LONGEST_NEWTON:
            expected = at.information + np.diag(ridge)
            expected[-1, -1] = abs(curvature) or 1.0
            best = np.asarray(np.linalg.lstsq(expected[np.ix_(moving, moving)], slope, rcond=None)[0], dtype=np.float64)
        step = np.zeros_like(point)
        step[moving] = np.clip(best, -LONGEST_STEP, LONGEST_STEP)
        step[-1] = point[-1] * np.expm1(step[-1]) if by_factors else max(step[-1], -point[-1])
        return step

    def change(self, point: Floats, step: Floats) -> float:
        """Return the largest entry of a step, of the overdispersion relative to itself above 1."""
        return super().change(point, np.append(step[:-1], step[-1] / max(float(point[-1]), 1.0)))


def fit_counts(
    session: Session, agreed: Prepared, plan: Plan, *, null: bool = False, fixed: float | None = None
) -> CountFit:
    """Maximise the penalised likelihood; with `null`, over an intercept only, with `fixed`, at an overdispersion."""
    name = "rounds" if not null else "null" if fixed is None else "null at the overdispersion"
    problem = CountProblem(session, agreed, plan, null=null, fixed=fixed)
    reached = maximise(session, problem, max_iter=plan.max_iter, tol=plan.tol, name=name)
    if not (null or plan.is_penalised):
        check_settled(reached, agreed)
    return _result(reached, agreed)


def _result(reached: Maximum, agreed: Prepared) -> CountFit:
    last, values = reached.last, reached.point
    log_likelihood, deviance, pearson = (last.figures if last.has_begun else np.zeros(3)).tolist()
    alpha, curvature = alpha_of(values, agreed), float(last.information[-1, -1])
    error = np.nan
    if reached.converged and alpha > 0 and curvature > 0:
        error = alpha_of(np.ones(1), agreed) / float(np.sqrt(curvature))
    fit = Fit(
        values[:-1],
        deviance,
        pearson,
        last.gradient[:-1],
        last.information[:-1, :-1],
        reached.converged,
        reached.settled,
        reached.diverging[:-1],
        reached.history,
    )
    return CountFit(fit, log_likelihood, alpha, error)


def alpha_of(values: Floats, agreed: Prepared) -> float:
    """Return the overdispersion; the last value is its product with the mean outcome."""
    return float(max(values[-1], 0.0) * agreed.totals.weight / agreed.totals.outcome)


def _newton_step(observed: Floats, slope: Floats) -> Floats | None:
    """Return the Newton step, or None where the information is not positive definite."""
    try:
        np.linalg.cholesky(observed)
    except np.linalg.LinAlgError:
        return None
    return np.asarray(np.linalg.solve(observed, slope), dtype=np.float64)


def test_counts(fit: CountFit, null: CountFit, n_covariates: int, *, has_intercept: bool) -> dict[str, TestResult]:
    """Return likelihood-ratio and score test of all covariates, against a model with its own overdispersion.

    The score test does not depend on the error of the overdispersion, as its expected mixed derivatives are 0.
    """
    gain = 2.0 * (fit.log_likelihood - null.log_likelihood)
    tests = {"likelihood_ratio": chi_square_test(gain, n_covariates)}
    if has_intercept:
        gradient, information = null.fit.gradient, null.fit.information
        tests["score"] = chi_square_test(float(gradient @ np.linalg.solve(information, gradient)), n_covariates)
    return tests


@dataclass(frozen=True)
class CountFits:
    """Fit of counts, fit without covariates, and the deviance without covariates at the overdispersion of the fit."""

    full: CountFit
    null: CountFit
    null_deviance: float


def fit_with_null(session: Session, agreed: Prepared, plan: Plan) -> CountFits:
    """Fit the model, and the models without covariates with which it is compared."""
    full = fit_counts(session, agreed, plan)
    unpenalised = replace(plan, alpha=0.0)
    null = fit_counts(session, agreed, unpenalised, null=True)
    same = fit_counts(session, agreed, unpenalised, null=True, fixed=full.overdispersion)
    return CountFits(full, null, same.fit.deviance)
