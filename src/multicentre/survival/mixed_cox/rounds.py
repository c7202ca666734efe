"""Rounds of the Cox model with effects of sites: Newton steps for coefficients, baseline hazard and variance.

Before the first round, columns, times and scales are agreed, and a Cox model without effects of sites is fitted
(:mod:`multicentre.survival.cox.rounds`, Breslow's ties). One round consists of:

1. The coordinator sends coefficients, the increments of the baseline hazard, and the variance of the effects.
2. Each site integrates its effect out (gamma), or maximises over it (gaussian, fixed), and returns its likelihood and
   derivatives by coefficients, increments and variance. The matrix of second derivatives has a row per column and time,
   so that the effects of sites need not leave the sites.
3. The sums over sites give a Newton step for coefficients, logarithms of increments, and the logarithm of a gamma
   variance. The step is halved while the likelihood falls.

The variance of gaussian effects solves ``theta = (sum of squared effects + sum of their variances) / sites``, the
restricted maximum likelihood of Therneau and Grambsch. Whenever the other parameters have converged, the variance is
changed by a secant step. If the step leads below the smallest variance, the equation is evaluated there: if the
likelihood falls, the variance is 0.

A fit whose variance is 0 is the fit without effects of sites.

The rounds stop when all entries of a step are below ``tol``, or within the rounding of masked sums; this last step is
taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.core.rounds import History
from multicentre.core.session import Session
from multicentre.errors import ConfigurationError, DataError
from multicentre.survival.cox.maths import dependent_columns
from multicentre.survival.cox.rounds import Fit
from multicentre.survival.kernels.partial_likelihood import COARSEST_TOL, sum_terms
from multicentre.survival.mixed_cox import messages
from multicentre.survival.mixed_cox.maths import Distribution, matrix_of
from multicentre.survival.mixed_cox.site import MOST_TIMES, MixedCoxSite

Floats = NDArray[np.float64]
# Variance of the effects where the rounds start.
FIRST_VARIANCE = 0.1
# Variances below are reported as 0: hazards of sites then differ by less than one percent, and the likelihood by less
# than the rounding error of masked sums.
SMALLEST_VARIANCE = 1e-5
# Longest step of a coefficient, of the logarithm of an increment, and of the logarithm of the variance.
LONGEST = 1.0
# Largest distance from the solution of the variance's equation, relative to the variance, at which rounds may stop.
LARGEST_EXCESS = 0.1
# Largest step of the logarithm of a gamma variance that rounding explains: a variance is accurate to one percent then.
COARSEST_VARIANCE = 1e-2
# Relative fall of the likelihood that is treated as rounding error of the sums and does not halve the step.
NOISE = 1e-9
# Smallest factor between two successive gaussian variances, unless the step leads to the smallest variance.
SMALLEST_FACTOR = 0.2
# Share of a column's information that is left within the sites below which the column is constant there; masked sums
# round it to about 1e-8.
WITHIN = 1e-6
# Share below which standard errors are more than three times those without effects of sites.
LEAST_WITHIN = 0.1


@dataclass(frozen=True)
class Plan:
    """Parameters of the estimator that the rounds use."""

    distribution: Distribution
    exact: bool
    max_iter: int
    tol: float


@dataclass(frozen=True)
class Problem:
    """Constants of the rounds.

    Parameters
    ----------
    plan : Plan
    columns : tuple of str
    held : array of shape (d,)
        Coefficients of the fit without effects of sites.
    moving : array of int
        Columns whose coefficients change, d' of them; the others have no information, or no finite maximum.
    events : array of shape (K,)
        Events of all sites by time.
    places : array of int
        Times with an event.
    shift : float
        Logarithm by which hazard ratios are divided.
    reference : str
        Site whose fixed effect is 0; empty for random effects.
    """

    plan: Plan
    columns: tuple[str, ...]
    held: Floats
    moving: NDArray[np.int64]
    events: Floats
    places: NDArray[np.int64]
    shift: float
    reference: str

    def request(self, point: Floats, variance: float) -> messages.AtEffects:
        """Return the request for sums at a point."""
        d, increments = len(self.moving), np.zeros(len(self.events))
        increments[self.places] = np.exp(point[d : d + len(self.places)])
        if self.plan.distribution == "gamma":
            variance = float(np.exp(point[-1]))
        return messages.AtEffects(
            self.coefficients(point), False, self.shift, increments, self.plan.distribution, variance, self.reference
        )

    def sums(self, session: Session, request: messages.AtEffects) -> messages.Effects:
        """Return the sums of all sites."""
        if self.plan.exact:
            return session.sum(MixedCoxSite.sum_exact_effects, request)
        return session.sum(MixedCoxSite.sum_effects, request)

    def coefficients(self, point: Floats) -> Floats:
        """Return the coefficients of all columns at a point, shape (d,)."""
        coefficients = self.held.copy()
        coefficients[self.moving] = point[: len(self.moving)]
        return coefficients

    @property
    def free(self) -> NDArray[np.int64]:
        """Rows of the columns and times of a point in a matrix of all columns and times."""
        return np.concatenate([self.moving, len(self.columns) + self.places])

    @property
    def constant(self) -> float:
        """Difference of the likelihood with a baseline hazard from the partial likelihood."""
        events = self.events[self.places]
        return float(events @ (np.log(events) - 1.0) + self.shift * events.sum())


@dataclass(frozen=True)
class Expansion:
    """Log-likelihood at a point with its derivatives by the parameters of the point.

    Parameters
    ----------
    objective : float
    gradient : array of shape (w,)
    information : array of shape (w, w)
    """

    objective: float
    gradient: Floats
    information: Floats


@dataclass(frozen=True)
class MixedFit:
    """Fitted Cox model with effects of sites, on standardised columns.

    Parameters
    ----------
    coefficients : array of shape (d,)
    increments : array of shape (K,)
        Increments of the baseline hazard, of hazard ratios divided by ``exp(shift)``.
    shift : float
    variance : float
        Variance of the effects; 0 if fixed, or if sites do not differ.
    covariance : array of shape (d, d)
        Covariance of the coefficients, for the estimated variance.
    log_likelihood : float
        Partial log-likelihood: with gamma effects integrated out, otherwise at the estimated effects.
    sums : Effects
    converged : bool
    history : list of dict
    request : AtEffects
        Request for sums at these parameters.
    between : tuple of str
        Columns of which fixed effects of sites leave less than a tenth of the information.
    """

    coefficients: Floats
    increments: Floats
    shift: float
    variance: float
    covariance: Floats
    log_likelihood: float
    sums: messages.Effects
    converged: bool
    history: History
    request: messages.AtEffects
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
    totals = null.totals
    if len(totals.events) > MOST_TIMES:
        raise ConfigurationError(
            f"there must be at most {MOST_TIMES} times of events; got {len(totals.events)}",
            where="times",
            hint='Fit with times="grid".',
        )
    places = np.flatnonzero(totals.events > 0.5)
    reference = session.sites[0] if plan.distribution == "fixed" else ""
    moving = np.flatnonzero(~(null.flat | null.diverging))
    problem = Problem(plan, columns, null.coefficients, moving, totals.events, places, totals.shift, reference)
    first = sum_terms(totals.tables).first[places]
    variance = FIRST_VARIANCE if plan.distribution == "gaussian" else 0.0
    ends = [np.log(FIRST_VARIANCE)] if plan.distribution == "gamma" else []
    start = np.concatenate([null.coefficients[moving], np.log(first), ends])
    last, converged, history = _climb(session, problem, start, variance, null)
    request = problem.request(last.point, last.variance)
    sums = session.once("reached-effects", messages.Effects, lambda: _plain(problem.sums(session, request)))
    expansion, size = expand(problem, last.point, sums), len(problem.free)
    covariance = _covariance(expansion.information[:size, :size], problem.moving, len(columns))
    # The partial likelihood at the effects, without their penalty, as coxph reports it.
    penalty = 0.5 * sums.squared_effect / request.variance if plan.distribution == "gaussian" else 0.0
    fit = MixedFit(
        problem.coefficients(last.point),
        request.increments,
        problem.shift,
        request.variance,
        covariance,
        expansion.objective - problem.constant + penalty,
        sums,
        converged,
        history,
        request,
        _columns_between(problem, expansion.information, null),
    )
    is_none = converged and plan.distribution != "fixed" and request.variance <= SMALLEST_VARIANCE
    return _without_effects(fit, null) if is_none else fit


def _without_effects(fit: MixedFit, null: Fit) -> MixedFit:
    """Return the fit without effects of sites, for a variance of 0."""
    moving = np.flatnonzero(null.reliable)
    information = null.totals.information[np.ix_(moving, moving)]
    return replace(
        fit,
        coefficients=null.coefficients,
        increments=sum_terms(null.totals.tables).first,
        variance=0.0,
        covariance=_covariance(information, moving, len(null.coefficients)),
        log_likelihood=null.totals.value,
    )


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


def _climb(
    session: Session, problem: Problem, start: Floats, variance: float, null: Fit
) -> tuple[messages.Ascent, bool, History]:
    plan, nothing = problem.plan, np.zeros_like(start)
    first = messages.Ascent(start, nothing, 1.0, -np.inf, variance, 0.0, 0.0, 0.0)
    rounds = session.rounds(plan.max_iter, messages.Ascent, lambda: first, name="effects")
    rounding = _rounding_of(session)
    for round_number in rounds:
        before = rounds.state
        tried = before.point + before.share * before.step
        sums = problem.sums(session, problem.request(tried, before.variance))
        expansion = expand(problem, tried, sums)
        if round_number == 1 and plan.distribution == "fixed":
            between = null.totals.information[np.ix_(problem.moving, problem.moving)]
            check_within_sites(
                expansion.information, between, [problem.columns[place] for place in problem.moving.tolist()]
            )
        rounds.state = reached = _accept(before, tried, expansion, rounding.value)
        change = float(np.abs(reached.step).max())
        rounds.record(log_likelihood=expansion.objective - problem.constant, change=change, share=before.share)
        if reached.share < 1.0:
            continue
        if plan.distribution == "gamma" and np.exp(reached.point[-1]) <= SMALLEST_VARIANCE:
            rounds.stop()  # the likelihood still rises towards a variance of 0
        elif not _has_converged(reached, problem, expansion, rounding):
            continue
        elif plan.distribution == "gaussian":
            rounds.state = _change_variance(reached, problem, sums, expansion)
            if _has_settled(reached, rounds.state, plan.tol):
                rounds.stop()
        else:
            rounds.stop()
    final = rounds.state
    if rounds.stopped and plan.distribution != "gaussian":
        final = replace(final, point=final.point + final.step)
    return final, rounds.stopped, rounds.history


@dataclass(frozen=True)
class _Rounding:
    """Largest errors of sums through the rounding of masked sums."""

    value: float
    risk: float
    risk_sum: float
    variance_slope: float


def _rounding_of(session: Session) -> _Rounding:
    names = (field.name for field in fields(_Rounding))
    return _Rounding(**{name: session.rounding(MixedCoxSite.sum_effects, name) for name in names})


def _has_converged(reached: messages.Ascent, problem: Problem, expansion: Expansion, rounding: _Rounding) -> bool:
    """Return whether each entry of the step is below the tolerance, or within the rounding of masked sums."""
    d, n_times = len(problem.moving), len(problem.places)
    hazard = np.exp(reached.point[d : d + n_times])
    errors = [np.full(d, rounding.risk_sum * float(hazard.sum())), rounding.risk * hazard]
    largest = np.full(len(reached.step), COARSEST_TOL)
    if problem.plan.distribution == "gamma":
        errors.append(np.array([rounding.variance_slope]))
        largest[-1] = COARSEST_VARIANCE
    resolved = np.abs(np.linalg.pinv(expansion.information, hermitian=True)) @ np.concatenate(errors)
    return bool((np.abs(reached.step) < np.maximum(problem.plan.tol, np.minimum(resolved, largest))).all())


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


def _columns_between(problem: Problem, information: Floats, null: Fit) -> tuple[str, ...]:
    """Return the columns of which fixed effects of sites leave less than a tenth of the information."""
    if problem.plan.distribution != "fixed":
        return ()
    within = np.diagonal(_within_sites(information, len(problem.moving)))
    is_between = within < LEAST_WITHIN * np.diagonal(null.totals.information)[problem.moving]
    return tuple(problem.columns[place] for place in problem.moving[is_between].tolist())


def _accept(before: messages.Ascent, tried: Floats, expansion: Expansion, rounding: float) -> messages.Ascent:
    """Accept the step if the likelihood rose, and halve it otherwise.

    A fall that `rounding`, the largest error of a log-likelihood, can explain is none.
    """
    slack = NOISE * (1.0 + abs(expansion.objective)) + 2.0 * rounding  # of the two that are compared
    if expansion.objective < before.objective - slack:
        return replace(before, share=before.share / 2.0)
    step = _step(expansion)
    return replace(before, point=tried, step=step, share=1.0, objective=expansion.objective)


def _step(expansion: Expansion) -> Floats:
    """Return a Newton step that goes up where the likelihood is not concave, cut to a length of 1 in any entry."""
    information = 0.5 * (expansion.information + expansion.information.T)
    try:
        factor = np.linalg.cholesky(information)
        step = np.linalg.solve(factor.T, np.linalg.solve(factor, expansion.gradient))
    except np.linalg.LinAlgError:
        values, vectors = np.linalg.eigh(information)
        sizes = np.maximum(np.abs(values), 1e-8 * float(np.abs(values).max()))
        step = vectors @ ((vectors.T @ expansion.gradient) / sizes)
    return np.asarray(step * min(1.0, LONGEST / max(float(np.abs(step).max()), 1e-300)), dtype=np.float64)


def expand(problem: Problem, point: Floats, sums: messages.Effects) -> Expansion:
    """Return the log-likelihood of all sites and its derivatives at a point."""
    moving, places, free = problem.moving, problem.places, problem.free
    d = len(moving)
    logs = point[d : d + len(places)]
    hazard = np.exp(logs)
    events, expected = problem.events[places], hazard * sums.risk[places]
    weighted = hazard[:, None] * sums.risk_sum[np.ix_(places, moving)]
    objective = sums.value + float(events @ logs)
    gradient = np.concatenate([sums.event_sum[moving] - weighted.sum(axis=0), events - expected])
    information = -matrix_of(sums.bends)[np.ix_(free, free)]
    information[:d, :d] += sums.products[np.ix_(moving, moving)]
    information[:d, d:] += weighted.T
    information[d:, :d] += weighted
    information[d:, d:] += np.diag(expected)
    if problem.plan.distribution == "gamma":
        cross = sums.variance_cross[free]
        gradient = np.append(gradient, sums.variance_slope)
        information = np.block([[information, -cross[:, None]], [-cross[None, :], -np.array([[sums.variance_bend]])]])
    return Expansion(objective, gradient, information)


def _change_variance(
    reached: messages.Ascent, problem: Problem, sums: messages.Effects, expansion: Expansion
) -> messages.Ascent:
    """Return the state with the next gaussian variance; the same one if the variance is 0."""
    free = problem.free
    inverse, variance = np.linalg.inv(expansion.information), reached.variance
    is_smallest = variance <= SMALLEST_VARIANCE
    # At the smallest variance, both are equal but for rounding, which is larger in masked sums of `moves`.
    moves = matrix_of(variance * sums.bends if is_smallest else sums.moves)[np.ix_(free, free)]
    uncertainty = (sums.uncertainty + float(np.sum(inverse * moves))) / sums.n_sites
    excess = variance_excess(variance, sums.squared_effect / sums.n_sites, uncertainty)
    if is_smallest and excess <= 0.0:
        return reached
    rising = max(variance, reached.rising) if excess > 0.0 else reached.rising
    # The likelihood at another variance is not compared with that of this one.
    return replace(
        reached,
        step=np.zeros_like(reached.step),
        objective=-np.inf,
        variance=next_variance(replace(reached, rising=rising), excess),
        last_variance=variance,
        last_excess=excess,
        rising=rising,
    )


def _has_settled(before: messages.Ascent, after: messages.Ascent, tol: float) -> bool:
    """Return whether the variance solves its equation.

    A short secant step is not enough: at a variance near 0, rounding of masked sums may make the equation so steep that
    all steps are short.
    """
    is_short = abs(after.variance / before.variance - 1.0) < np.sqrt(tol) * 1e-2
    return bool(after is before or (is_short and abs(after.last_excess) < LARGEST_EXCESS * before.variance))


def variance_excess(variance: float, squared_effect: float, uncertainty: float) -> float:
    """Return how far the equation of the variance is from its solution.

    Its sign is that of the derivative of the restricted likelihood. If the effects were observed with normal errors of
    one variance, it would be the solution minus `variance`.

    Parameters
    ----------
    variance : float
    squared_effect : float
        Mean square of the effects.
    uncertainty : float
        Mean variance of the effects around their estimates, below `variance`.

    Examples
    --------
    >>> round(variance_excess(1.0, 0.75, 0.5), 6)  # effects plus errors have variance 3, errors have variance 1
    1.0
    """
    weight = max(1.0 - uncertainty / variance, 1e-9)  # rounding of masked sums must not make it 0
    return (squared_effect + uncertainty - variance) / weight**2


def next_variance(state: messages.Ascent, excess: float) -> float:
    """Return the next gaussian variance: a secant step, or at first a step that takes `excess` as the distance."""
    variance, last = state.variance, state.last_variance
    slope = (excess - state.last_excess) / (variance - last) if last else -1.0
    following = variance - excess / (slope if slope < 0.0 else -1.0)
    if excess < 0.0 and state.rising and following <= state.rising:
        return 0.5 * (variance + state.rising)
    if following <= SMALLEST_VARIANCE:
        return SMALLEST_VARIANCE
    if excess * state.last_excess < 0.0:  # the solution lies between the two
        return following
    return min(max(following, SMALLEST_FACTOR * variance), variance / SMALLEST_FACTOR)
