"""Rounds of the Cox model with effects of sites: Newton steps for coefficients, baseline hazard and variance.

Before the first round, columns, times and scales are agreed, and a Cox model without effects of sites is fitted
(:mod:`multicentre.survival.cox.rounds`, Breslow's ties). The rounds are those of
:mod:`multicentre.likelihood.newton`, over coefficients, logarithms of the increments of the baseline hazard, and the
logarithm of a gamma variance. To evaluate the likelihood at a point:

1. The coordinator sends coefficients, the increments of the baseline hazard, and the variance of the effects.
2. Each site integrates its effect out (gamma), or maximises over it (gaussian, fixed), and returns its likelihood and
   derivatives by coefficients, increments and variance. The matrix of second derivatives has a row per column and time,
   so that the effects of sites need not leave the sites.

The variance of gaussian effects solves ``theta = (sum of squared effects + sum of their variances) / sites``, the
restricted maximum likelihood of Therneau and Grambsch. The rounds are repeated at one variance after another, which
secant steps give, from the parameters of the variance before. If a step leads below the smallest variance, the equation
is evaluated there: if the likelihood falls, the variance is 0.

A fit whose variance is 0 is the fit without effects of sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.core.rounds import History
from multicentre.core.session import Session
from multicentre.errors import ConfigurationError, DataError
from multicentre.likelihood.newton import Derivatives, Maximum, Problem, maximise
from multicentre.likelihood.separation import Reported
from multicentre.likelihood.steps import COARSEST_TOL, uphill_step
from multicentre.survival.cox.maths import dependent_columns
from multicentre.survival.cox.rounds import Fit
from multicentre.survival.kernels.partial_likelihood import sum_terms
from multicentre.survival.mixed_cox import messages
from multicentre.survival.mixed_cox.maths import (
    SMALLEST_VARIANCE,
    Distribution,
    VarianceSearch,
    matrix_of,
    variance_excess,
)
from multicentre.survival.mixed_cox.site import MAX_TIMES, MixedCoxSite

Floats = NDArray[np.float64]
# Variance of gamma effects where the rounds start.
FIRST_VARIANCE = 0.1
# Longest step of a coefficient, of the logarithm of an increment, and of the logarithm of the variance.
LONGEST = 1.0
# Largest distance from the solution of the variance's equation, relative to the variance, at which rounds may stop.
MAX_EXCESS = 0.1
# Largest step of the logarithm of a gamma variance that rounding explains: a variance is accurate to one percent then.
COARSEST_VARIANCE = 1e-2
# Share of a column's information that is left within the sites below which the column is constant there; masked sums
# round it to about 1e-8.
WITHIN = 1e-6
# Share below which standard errors are more than three times those without effects of sites.
MIN_WITHIN = 0.1


@dataclass(frozen=True)
class Plan:
    """Parameters of the estimator that the rounds use."""

    distribution: Distribution
    exact: bool
    max_iter: int
    tol: float


class EffectsProblem(Problem):
    """Likelihood by coefficients, logarithms of the increments of the baseline hazard, and that of a gamma variance.

    Coefficients without information or without a finite maximum in the fit without effects are held as they are there.
    """

    def __init__(self, session: Session, null: Fit, plan: Plan, columns: tuple[str, ...]) -> None:
        totals = null.totals
        self.session, self.plan, self.null = session, plan, null
        self.events, self.places = totals.events, np.flatnonzero(totals.events > 0.5)
        self.moving = np.flatnonzero(~(null.flat | null.diverging))
        self.columns = tuple(columns[place] for place in self.moving.tolist())
        # Rows of the columns and times of a point in a matrix of all columns and times.
        self.free = np.concatenate([self.moving, len(columns) + self.places])
        self.reference = session.sites[0] if plan.distribution == "fixed" else ""
        self.variance = 0.0  # of gaussian effects
        is_gamma, first = plan.distribution == "gamma", np.log(sum_terms(totals.tables).first[self.places])
        ends = np.full(int(is_gamma), np.log(FIRST_VARIANCE))
        self.start = np.concatenate([null.coefficients[self.moving], first, ends])
        self.names = (*self.columns, *["baseline hazard"] * len(first), *["variance"] * len(ends))
        self.reported = Reported(np.eye(len(self.start)), None, totals.n_patients)
        self.coarsest_tol = np.full(len(self.start), COARSEST_TOL)
        self.coarsest_tol[len(self.free) :] = COARSEST_VARIANCE
        self.warns_of = self.coarsest_tol < COARSEST_VARIANCE  # a variance is never known so well
        events = self.events[self.places]
        # Difference of the likelihood with a baseline hazard from the partial likelihood.
        self.constant = float(events @ (np.log(events) - 1.0) + totals.shift * events.sum())
        names = "value", "risk", "risk_sum", "variance_slope"
        self.rounding, *self.roundings = (session.rounding(MixedCoxSite.sum_effects, name) for name in names)

    def request(self, point: Floats, *, tentative: bool = False) -> messages.AtEffects:
        """Return the request for sums at a point."""
        d, increments = len(self.moving), np.zeros(len(self.events))
        increments[self.places] = np.exp(point[d : d + len(self.places)])
        coefficients = self.null.coefficients.copy()
        coefficients[self.moving] = point[:d]
        distribution, shift = self.plan.distribution, self.null.totals.shift
        variance = float(np.exp(point[-1])) if distribution == "gamma" else self.variance
        return messages.AtEffects(
            coefficients, False, shift, increments, distribution, variance, self.reference, tentative=tentative
        )

    def sums(self, point: Floats, *, tentative: bool = False) -> messages.Effects:
        """Return the sums of all sites."""
        request = self.request(point, tentative=tentative)
        if self.plan.exact:
            return self.session.sum(MixedCoxSite.sum_exact_effects, request)
        return self.session.sum(MixedCoxSite.sum_effects, request)

    def evaluate(self, point: Floats, *, tentative: bool) -> Derivatives:
        """Return the likelihood of all sites and its derivatives."""
        return self.expand(point, self.sums(point, tentative=tentative))

    def expand(self, point: Floats, sums: messages.Effects) -> Derivatives:
        """Return the partial likelihood of all sites and its derivatives by the parameters of the point."""
        moving, places, free = self.moving, self.places, self.free
        d = len(moving)
        logs = point[d : d + len(places)]
        hazard = np.exp(logs)
        events, expected = self.events[places], hazard * sums.risk[places]
        weighted = hazard[:, None] * sums.risk_sum[np.ix_(places, moving)]
        value = sums.value + float(events @ logs) - self.constant
        gradient = np.concatenate([sums.event_sum[moving] - weighted.sum(axis=0), events - expected])
        information = -matrix_of(sums.bends)[np.ix_(free, free)]
        information[:d, :d] += sums.products[np.ix_(moving, moving)]
        information[:d, d:] += weighted.T
        information[d:, :d] += weighted
        information[d:, d:] += np.diag(expected)
        risk, risk_sum, variance_slope = self.roundings
        rounding = np.concatenate([np.full(d, risk_sum * float(hazard.sum())), risk * hazard])
        if self.plan.distribution == "gamma":
            cross = sums.variance_cross[free]
            gradient, rounding = np.append(gradient, sums.variance_slope), np.append(rounding, variance_slope)
            information = np.block([[information, -cross[:, None]], [-cross, -np.array([sums.variance_bend])]])
        self.gradient_rounding = rounding
        figures = np.zeros(0)
        if self.plan.distribution == "gaussian":
            # At the smallest variance, both are equal but for rounding, which is larger in masked sums of `moves`.
            moves = self.variance * sums.bends if self.variance <= SMALLEST_VARIANCE else sums.moves
            figures = np.concatenate([[sums.squared_effect, sums.uncertainty, sums.n_sites], moves])
        return Derivatives(value, gradient, information, sums.n_patients, figures, sums.n_withdrawn)

    def check(self, first: Derivatives) -> None:
        """Raise DataError if fixed effects of sites leave no information on a column."""
        if self.plan.distribution == "fixed":
            between = self.null.totals.information[np.ix_(self.moving, self.moving)]
            check_within_sites(first.information, between, self.columns)

    def next_step(self, point: Floats, at: Derivatives) -> Floats:
        """Return a Newton step that goes up where the likelihood is not concave."""
        return uphill_step(at.gradient, at.information, LONGEST)

    def change(self, point: Floats, step: Floats) -> float:
        """Return the size of a step; 0 where the likelihood still rises towards a variance of 0."""
        is_none = self.plan.distribution == "gamma" and np.exp(point[-1]) <= SMALLEST_VARIANCE
        return 0.0 if is_none else super().change(point, step)

    def excess(self, maximum: Maximum) -> float:
        """Return how far the equation of the gaussian variance is from its solution."""
        squared_effect, uncertainty, n_sites = maximum.last.figures[:3].tolist()
        moves = matrix_of(maximum.last.figures[3:])[np.ix_(self.free, self.free)]
        uncertainty += float(np.sum(np.linalg.inv(maximum.last.information) * moves))
        return variance_excess(self.variance, squared_effect / n_sites, uncertainty / n_sites)


@dataclass(frozen=True)
class MixedFit:
    """Fitted Cox model with effects of sites, on standardised columns.

    Parameters
    ----------
    request : AtEffects
        Request for sums at the parameters. Its variance is 0 if effects are fixed, or if sites do not differ.
    covariance : array of shape (d, d)
        Covariance of the coefficients, for the estimated variance.
    log_likelihood : float
        Partial log-likelihood: with gamma effects integrated out, otherwise at the estimated effects.
    sums : Effects
    converged : bool
    history : list of dict
    between : tuple of str
        Columns of which fixed effects of sites leave less than a tenth of the information.
    """

    request: messages.AtEffects
    covariance: Floats
    log_likelihood: float
    sums: messages.Effects
    converged: bool
    history: History
    between: tuple[str, ...] = ()


def check_several(session: Session) -> None:
    """Raise DataError if there is one site only, which shows no variance between sites."""
    if len(session.sites) < 2:
        raise DataError(
            "random effects must be of at least two sites; got one",
            where="sites",
            hint="Fit a Cox model without effects of sites (FedCox).",
        )


def fit_effects(session: Session, null: Fit, plan: Plan, columns: tuple[str, ...]) -> MixedFit:
    """Maximise the likelihood with effects of sites, from a fit without.

    Raises
    ------
    ConfigurationError
        There are too many times.
    DataError
        With fixed effects, columns are constant within each site, or depend on each other there.
    """
    if len(null.totals.events) > MAX_TIMES:
        raise ConfigurationError(
            f"there must be at most {MAX_TIMES} times of events; got {len(null.totals.events)}",
            where="times",
            hint='Fit with times="grid".',
        )
    problem = EffectsProblem(session, null, plan, columns)
    if plan.distribution == "gaussian":
        point, converged, history = _maximise_gaussian(problem)
    else:
        maximum = maximise(session, problem, max_iter=plan.max_iter, tol=plan.tol, name="effects")
        point, converged, history = maximum.point, maximum.converged, maximum.history
    request = problem.request(point)
    sums = session.once("reached-effects", messages.Effects, lambda: _plain(problem.sums(point)))
    reached, size = problem.expand(point, sums), len(problem.free)
    covariance = _covariance(reached.information[:size, :size], problem.moving, len(columns))
    # The partial likelihood at the effects, without their penalty, as coxph reports it.
    penalty = 0.5 * sums.squared_effect / request.variance if plan.distribution == "gaussian" else 0.0
    fit = MixedFit(
        request,
        covariance,
        reached.value + penalty,
        sums,
        converged,
        history,
        _columns_between(problem, reached.information),
    )
    is_none = converged and plan.distribution != "fixed" and request.variance <= SMALLEST_VARIANCE
    return _without_effects(fit, null) if is_none else fit


def _maximise_gaussian(problem: EffectsProblem) -> tuple[Floats, bool, History]:
    """Maximise at one variance after another, until the variance solves its equation.

    A short secant step is not enough: at a variance near 0, rounding of masked sums may make the equation so steep that
    all steps are short.
    """
    history: History = []
    search, plan, n_variances = VarianceSearch(), problem.plan, 0
    while True:
        problem.variance, n_variances = search.variance, n_variances + 1
        name, max_iter = f"effects {n_variances}", plan.max_iter - len(history)
        maximum = maximise(problem.session, problem, max_iter=max_iter, tol=plan.tol, name=name)
        history += maximum.history
        problem.start = maximum.point
        if not maximum.converged:
            return maximum.point, False, history
        excess = problem.excess(maximum)
        following = search.following(excess)
        if following is search:
            return maximum.point, True, history
        is_short = abs(following.variance / search.variance - 1.0) < np.sqrt(maximum.tol) * 1e-2
        problem.variance = following.variance
        if is_short and abs(excess) < MAX_EXCESS * search.variance:
            return maximum.point, True, history
        search = following


def _without_effects(fit: MixedFit, null: Fit) -> MixedFit:
    """Return the fit without effects of sites, for a variance of 0."""
    moving = np.flatnonzero(null.reliable)
    information = null.totals.information[np.ix_(moving, moving)]
    increments = sum_terms(null.totals.tables).first
    request = replace(fit.request, coefficients=null.coefficients, increments=increments, variance=0.0)
    covariance = _covariance(information, moving, len(null.coefficients))
    return replace(fit, request=request, covariance=covariance, log_likelihood=null.totals.value)


def _covariance(information: Floats, moving: NDArray[np.int64], n_columns: int) -> Floats:
    """Return the covariance of the coefficients, shape (d, d); NaN for columns whose coefficients do not change."""
    covariance = np.full((n_columns, n_columns), np.nan)
    inverse = np.linalg.pinv(information, hermitian=True)[: len(moving), : len(moving)]
    covariance[np.ix_(moving, moving)] = inverse
    return covariance


def _plain(sums: messages.Effects) -> messages.Effects:
    """Return sums at exact times as those on a grid, which checkpoints store."""
    fields = {name: getattr(sums, name) for name in messages.Effects.declarations()}
    return messages.Effects(**fields, patients=sums.patients)


def check_within_sites(information: Floats, between: Floats, columns: Sequence[str]) -> None:
    """Raise DataError if columns depend on each other within sites; the message names them.

    Parameters
    ----------
    information : array of shape (w, w)
        Information on coefficients and baseline hazard, with fixed effects of sites.
    between : array of shape (d, d)
        Information on the coefficients without effects of sites.
    columns : sequence of str
        Names of the d columns.
    """
    within = _within_sites(information, len(columns))
    sizes = np.diagonal(between)
    refused = np.asarray(np.diagonal(within) <= WITHIN * sizes)
    rest = np.flatnonzero(~refused)
    refused[rest[dependent_columns(within[np.ix_(rest, rest)])]] = True
    if refused.any():
        names = [columns[place] for place in np.flatnonzero(refused).tolist()]
        raise DataError(
            "columns must be linearly independent within sites; got columns that are constant within each site or "
            f"depend on others there: {', '.join(names[:6])}",
            where="columns",
            hint='Leave them out, or fit random effects: site_effects="gamma".',
        )


def _within_sites(information: Floats, d: int) -> Floats:
    """Return the information on d coefficients that baseline hazard and effects of sites leave, shape (d, d)."""
    cross = information[:d, d:]
    return np.asarray(information[:d, :d] - cross @ np.linalg.solve(information[d:, d:], cross.T), dtype=np.float64)


def _columns_between(problem: EffectsProblem, information: Floats) -> tuple[str, ...]:
    """Return the columns of which fixed effects of sites leave less than a tenth of the information."""
    if problem.plan.distribution != "fixed":
        return ()
    within = np.diagonal(_within_sites(information, len(problem.moving)))
    is_between = within < MIN_WITHIN * np.diagonal(problem.null.totals.information)[problem.moving]
    return tuple(problem.columns[place] for place in np.flatnonzero(is_between).tolist())
