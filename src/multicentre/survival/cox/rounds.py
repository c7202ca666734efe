"""Rounds of the federated Cox model, and its fit in one round.

The rounds are those of :mod:`multicentre.likelihood.newton`, for columns in standard deviations. The first one is at
coefficients of 0. To evaluate the likelihood at some coefficients:

1. The coordinator sends the coefficients to every site.
2. Each site returns its log partial likelihood, gradient and information matrix; with a shared baseline, sums over the
   patients at risk at each time.
3. With a shared baseline, the coordinator sends the increments of the baseline hazard that follow from these sums, and
   each site returns products of its columns weighted by these hazards.

No coefficient moves by more than 1 in a round, or beyond 50. A column without information keeps a coefficient of 0.
After the rounds, the likelihood is evaluated at the final coefficients.

A fit in one round (ODAC) consists of:

1. Each site returns its estimate, weighted by its information, and the coordinator computes the mean.
2. Each site returns its derivatives at the mean, as in step 2 above, and the coordinator adds them up.
3. The coordinator sends the total to the lead site, which returns the maximum of its likelihood, corrected to have
   these derivatives.
4. Each site returns its derivatives at this maximum, for standard errors; and once more one Newton step further if a
   coefficient might have no finite maximum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, Nothing, array, number
from multicentre.core.rounds import History
from multicentre.core.session import Session
from multicentre.data.categories import dependent_error
from multicentre.errors import ConfigurationError, DataError
from multicentre.likelihood.elastic_net import penalised_step
from multicentre.likelihood.newton import Derivatives, Problem, maximise
from multicentre.likelihood.separation import Reported
from multicentre.likelihood.steps import RANK
from multicentre.survival.agreement.messages import Prepared
from multicentre.survival.cox import messages
from multicentre.survival.cox.maths import (
    TimeTransform,
    dependent_columns,
    informed,
    reliable,
    risk_means,
    transform_times,
)
from multicentre.survival.cox.site import RECORDED, CoxSite
from multicentre.survival.fitted_models.base import MAX_MODEL_TIMES
from multicentre.survival.fitted_models.cox import LARGEST, CoxModel
from multicentre.survival.kernels.partial_likelihood import (
    MAX_COEFFICIENT,
    MAX_STEP,
    Likelihood,
    gradient,
    newton_step,
    squared_means,
    sum_terms,
)
from multicentre.survival.kernels.risk_sets import Sums, Tables, Ties
from multicentre.survival.times import hazard

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

BaselineTimes = Literal["stratified", "grid", "exact"]

# Smallest penalty of the sites' separate fits in one round, which keeps their estimates finite.
SMALLEST_PENALTY = 0.1

# Change of a standardised coefficient above which it has not settled.
STILL_MOVING = 1e-3

# A sum of squares must be this many times its rounding: the scales of the rounds then differ by less than one percent
# from standard deviations, which changes no coefficient.
COARSE = 100.0

# Step after a fit in one round above which a coefficient may have no finite maximum. That of a level of which a
# thousandth of the patients are is 0.03, its standard deviation.
NOT_SETTLED = 0.01


@dataclass(frozen=True)
class Plan:
    """Parameters of the estimator that the rounds use."""

    times: BaselineTimes
    ties: Ties
    alpha: float
    max_iter: int
    tol: float
    lasso: float = 0.0

    @property
    def is_penalised(self) -> bool:
        """True if there is a penalty."""
        return self.alpha > 0 or self.lasso > 0


@dataclass(frozen=True)
class Totals(Message):
    """Sums over the sites at given coefficients; with a baseline per site, the sums by time are empty."""

    n_patients: float = number("patients")
    n_events: float = number("events")
    shift: float = number("logarithm by which hazard ratios were divided")
    value: float = number("log partial likelihood")
    gradient: Floats = array("first derivatives of the log partial likelihood", ("d",))
    information: Floats = array("minus the second derivatives of the log partial likelihood", ("d", "d"))
    events: Floats = array("events by time, or the sum of their weights", ("K",))
    cases: Floats = array("events by time", ("K",))
    risk: Floats = array("sum of hazard ratios over those at risk", ("K",))
    risk_sum: Floats = array("sum of hazard ratios times columns over those at risk", ("K", "d"))
    tied: Floats = array("sum of hazard ratios over those with the event", ("K",))
    tied_sum: Floats = array("sum of hazard ratios times columns over those with the event", ("K", "d"))
    within: Floats = array("share of each column's variance that lies within sites; 1 with a shared baseline", ("d",))
    n_withdrawn: float = number("sites that withdrew their sums; above 0, the others have no meaning", default=0.0)

    @property
    def tables(self) -> Tables:
        """Sums by time."""
        return Tables(self.events, self.cases, self.risk, self.tied)

    @property
    def sums(self) -> Sums:
        """Sums of columns by time."""
        return Sums(self.risk_sum, self.tied_sum)


def add_up(session: Session, coefficients: Floats, shift: float, plan: Plan, *, tentative: bool = False) -> Totals:
    """Return the sums of all sites at given coefficients; with `tentative`, a site may withdraw its own."""
    efron = plan.ties == "efron"
    if plan.times == "stratified":
        request = messages.At(coefficients, efron, tentative=tentative)
        return _own_totals(session.sum(CoxSite.sum_derivatives, request))
    return _shared_totals(session, messages.AtShared(coefficients, efron, shift, tentative=tentative), plan)


def _own_totals(sums: messages.Derivatives) -> Totals:
    derivatives = sums.log_likelihood, sums.gradient, sums.information
    within = np.divide(sums.within, sums.squares, out=np.ones_like(sums.within), where=sums.squares > 0)
    by_time = _no_times(len(within))
    return Totals(sums.n_patients, sums.n_events, 0.0, *derivatives, *by_time, within, n_withdrawn=sums.n_withdrawn)


def _no_times(d: int) -> tuple[Floats, Floats, Floats, Floats, Floats, Floats]:
    none, no_rows = np.zeros(0), np.zeros((0, d))
    return none, none, none, no_rows, none, no_rows


def _withdrawn(d: int, n_withdrawn: float) -> Totals:
    derivatives = 0.0, np.zeros(d), np.zeros((d, d))
    return Totals(0.0, 0.0, 0.0, *derivatives, *_no_times(d), np.ones(d), n_withdrawn=n_withdrawn)


def _shared_totals(session: Session, at: messages.AtShared, plan: Plan) -> Totals:
    exact, coefficients, shift = plan.times == "exact", at.coefficients, at.shift
    part = cast(type[CoxSite], session.part)  # a model with effects of sites inherits the steps
    sums = session.sum(part.sum_exact_risk, at) if exact else session.sum(part.sum_risk, at)
    if sums.n_withdrawn > 0.5:
        return _withdrawn(len(coefficients), sums.n_withdrawn)
    nothing = np.zeros(len(sums.risk)), np.zeros_like(sums.risk_sum)
    tied = (sums.tied, sums.tied_sum) if at.efron else nothing
    cases = sums.cases if len(sums.cases) else sums.events
    terms = sum_terms(Tables(sums.events, cases, sums.risk, tied[0]))
    request = messages.Hazards(coefficients, at.efron, shift, terms.first, terms.first_tied, tentative=at.tentative)
    summed = session.sum(part.sum_exact_products, request) if exact else session.sum(part.sum_products, request)
    products = summed.products
    n_events = float(cases.sum())
    value = float(sums.event_sum @ coefficients - terms.log.sum() - shift * sums.events.sum()) + sums.event_offset
    return Totals(
        sums.n_patients,
        n_events,
        shift,
        value,
        gradient(sums.event_sum, Sums(sums.risk_sum, tied[1]), terms),
        products - squared_means(Sums(sums.risk_sum, tied[1]), terms),
        sums.events,
        cases,
        sums.risk,
        sums.risk_sum,
        *tied,
        np.ones(len(coefficients)),
        n_withdrawn=summed.n_withdrawn,
    )


@dataclass(frozen=True)
class Fit:
    """Fitted Cox model on standardised columns, and the sums behind it.

    Parameters
    ----------
    coefficients : array of shape (d,)
    totals : Totals
        Sums at the coefficients.
    null : tuple of float
        Log-likelihood and statistic of the score test, at coefficients of 0.
    history : list of dict
    converged : bool
    monotone : array of shape (d,)
        Columns along which the steps show that the likelihood may rise without bound.
    moving : array of shape (d,)
        Newton step that remains for each coefficient.
    lead : str
        Lead site of a fit in one round; empty otherwise.
    """

    coefficients: Floats
    totals: Totals
    null: tuple[float, float]
    history: History
    converged: bool
    monotone: Flags
    moving: Floats
    lead: str = ""

    @property
    def flat(self) -> Flags:
        """Columns without information, whose coefficients are 0, shape (d,)."""
        is_informed = informed(self.totals.information, self.totals.n_events)
        return ~is_informed & (np.abs(self.coefficients) < STILL_MOVING)

    @property
    def diverging(self) -> Flags:
        """Columns along which the likelihood may rise without bound, shape (d,)."""
        is_informed = informed(self.totals.information, self.totals.n_events)
        return self.monotone | (~is_informed & ~self.flat)

    @property
    def reliable(self) -> Flags:
        """Columns whose coefficients have valid standard errors and intervals, shape (d,)."""
        totals = self.totals
        return reliable(totals.gradient, totals.information, totals.n_events) & ~self.diverging


class CoxProblem(Problem):
    """Partial likelihood of columns in standard deviations."""

    def __init__(self, session: Session, agreed: Prepared, plan: Plan) -> None:
        self.start = np.zeros(len(agreed.columns))
        self.session, self.plan, self.names = session, plan, agreed.columns
        self.ridge, self.lasso, self.is_penalised = plan.alpha, plan.lasso, plan.is_penalised
        self.null = session.once("null", Totals, lambda: add_up(session, self.start, 0.0, plan))
        check_varying(session, self.null, agreed)
        check_independent(self.null, agreed, is_penalised=plan.is_penalised)
        is_informed = informed(self.null.information, self.null.n_events)
        information = np.where(np.outer(is_informed, is_informed), self.null.information, 0.0)
        self.reported = Reported(np.eye(len(self.start)), information, self.null.n_events)

    def evaluate(self, point: Floats, *, tentative: bool) -> Derivatives:
        """Return the sums of all sites."""
        shift, totals = _shift_of(self.figures), self.null
        if point.any():
            totals = add_up(self.session, point, shift, self.plan, tentative=tentative)
        if not totals.n_withdrawn > 0.5:
            self.rounding, self.gradient_rounding = _rounding_of(self.session, totals, self.plan)
        figures = np.array([_next_shift(totals)])
        derivatives = totals.value, totals.gradient, totals.information
        return Derivatives(*derivatives, totals.n_patients, figures, totals.n_withdrawn)

    def next_step(self, point: Floats, at: Derivatives) -> Floats:
        """Return the next Newton step: 0 for a column without information, and cut at coefficients of 50."""
        return _step(at, point, self.plan, self.null.n_events)


def _shift_of(figures: Floats) -> float:
    """Return the logarithm by which hazard ratios are divided."""
    return float(figures[0]) if len(figures) else 0.0


def fit_by_rounds(session: Session, agreed: Prepared, plan: Plan) -> Fit:
    """Maximise the penalised partial likelihood in rounds."""
    problem = CoxProblem(session, agreed, plan)
    maximum = maximise(session, problem, max_iter=plan.max_iter, tol=plan.tol)
    last, converged = maximum.last, maximum.converged
    totals = _reached(session, maximum.point, _shift_of(last.figures), plan)
    null = problem.null.value, _score_statistic(problem.null)
    return Fit(maximum.point, totals, null, maximum.history, converged, maximum.diverging, last.step)


def fit_one_shot(session: Session, agreed: Prepared, plan: Plan, lead: str | None) -> Fit:
    """Fit in one round: mean of the sites' estimates, derivatives at the mean, and likelihood of the lead (ODAC).

    Without a `lead`, the site with most events leads, among those whose policy permits them to return their number.

    References
    ----------
    R. Duan et al. (2020), Learning from local to global: an efficient distributed algorithm for modeling time-to-event
    data, Journal of the American Medical Informatics Association 27, 1028-1036. C. Luo et al. (2022), ODACH: a one-shot
    distributed algorithm for Cox model with heterogeneous multi-center data, Scientific Reports 12, 6627.
    """
    penalty = messages.Penalty(max(plan.alpha, SMALLEST_PENALTY), plan.ties == "efron")
    estimates = session.once("estimates", messages.Estimates, lambda: session.sum(CoxSite.sum_estimates, penalty))
    start = _weighted_mean(estimates, agreed.n_events)
    start_totals, solution = _led(session, agreed, plan, start, lead)
    solved = bool(solution.coefficients.any())
    coefficients = solution.coefficients if solved else start + _step(start_totals, start, plan, start_totals.n_events)
    totals = _reached(session, coefficients, _next_shift(start_totals), plan)
    moving = _step(totals, coefficients, plan, totals.n_events)
    history = [{"round": 1.0, "log_likelihood": totals.value, "change": float(np.abs(moving).max())}]
    monotone = _find_monotone(session, coefficients, totals, moving, plan)
    return Fit(coefficients, totals, (np.nan, np.nan), history, solved, monotone, moving, solution.lead)


def _find_monotone(session: Session, coefficients: Floats, totals: Totals, moving: Floats, plan: Plan) -> Flags:
    """Flag columns whose Newton step does not shrink, although less than one expected event is left, shape (d,).

    Near a maximum the next step is far smaller. If a level has no events, each step has the same length, and its square
    over the variance is the number of events that the level is still expected to have. The next step is computed only
    if a step might be such a one.
    """
    is_informed = informed(totals.information, totals.n_events)
    variance = np.zeros(len(moving))
    information = totals.information[np.ix_(is_informed, is_informed)] + plan.alpha * np.eye(int(is_informed.sum()))
    variance[is_informed] = np.diagonal(np.linalg.pinv(information, hermitian=True))
    length = np.abs(moving)
    suspected = (length > NOT_SETTLED) & (length < 0.99 * MAX_STEP) & (np.square(moving) < variance)
    if not suspected.any():
        return suspected
    there = coefficients + moving
    further = session.once("further", Totals, lambda: add_up(session, there, totals.shift, plan))
    next_step = _step(further, there, plan, further.n_events)
    return np.asarray(suspected & (next_step * np.sign(moving) > 0.5 * length))


def _led(
    session: Session, agreed: Prepared, plan: Plan, start: Floats, lead: str | None
) -> tuple[Totals, messages.Led]:
    """Return the derivatives at the start and the lead's solution; if a lead refuses, the next one leads."""
    leads = messages.Leads((lead,)) if lead else session.once("leads", messages.Leads, lambda: _by_events(session))
    totals = session.once("derivatives", Totals, lambda: add_up(session, start, 0.0, plan))
    check_varying(session, totals, agreed)
    check_independent(totals, agreed, is_penalised=plan.is_penalised)
    efron = plan.ties == "efron"
    request = messages.Surrogate(start, efron, plan.alpha, totals.n_events, totals.gradient, totals.information)
    for place, site in enumerate(leads.sites):
        solve = partial(_solve, session, request, site, skip_refusals=not lead)
        solution = session.once(f"solution-{place}", messages.Led, solve)
        if solution.lead:
            return totals, solution
    raise ConfigurationError(
        "the lead must be a site that answers for itself; got none",
        where="lead",
        hint="Name a site whose policy permits it (lead=...), or fit in rounds (one_round=False).",
    )


def _solve(session: Session, request: messages.Surrogate, lead: str, *, skip_refusals: bool) -> messages.Led:
    """Return the solution of a lead; the name is empty if the lead refuses."""
    answers = session.ask(CoxSite.solve_surrogate, request, to=[lead], skip_refusals=skip_refusals)
    return messages.Led(lead, answers[lead].coefficients) if answers else messages.Led("", np.zeros(0))


def _by_events(session: Session) -> messages.Leads:
    offers = session.ask(CoxSite.offer_lead, Nothing(), skip_refusals=True)
    with_events = [site for site, offer in offers.items() if offer.n_events]
    return messages.Leads(tuple(sorted(with_events, key=lambda site: -offers[site].n_events)))


def check_varying(session: Session, totals: Totals, agreed: Prepared) -> None:
    """Raise DataError if a column is constant, or if its variance is a sum that rounding of masked sums makes useless.

    A column that varies, but not among the patients at risk of one baseline, is not an error: its coefficient is 0.
    """
    part = cast(type[CoxSite], session.part)
    least = COARSE * session.rounding(part.compare_units, "squares")
    # A scale of 1 takes the place of a standard deviation that rounds to 0.
    is_constant = ~informed(totals.information, totals.n_events) & (agreed.spread == 1.0)
    is_constant |= agreed.spread**2 * agreed.n_patients <= least
    # A declared level has no small variation: it is absent, for example in a subgroup, and changes no other ratio.
    is_constant &= ~np.isin(agreed.columns, agreed.levels)
    if not is_constant.any():
        return
    listed = ", ".join([agreed.columns[place] for place in np.flatnonzero(is_constant).tolist()][:6])
    beyond = " by more than the rounding of masked sums" if least else ""
    raise DataError(
        f"columns must vary{beyond}; got the same value for all patients, or too small a variation, in {listed}",
        where="columns",
        hint="Leave constant columns out; use a smaller unit for others (micromoles instead of moles).",
    )


def check_independent(totals: Totals, agreed: Prepared, *, is_penalised: bool) -> None:
    """Raise DataError if columns depend on each other and there is no penalty."""
    informed_places = np.flatnonzero(informed(totals.information, totals.n_events))
    dependent = dependent_columns(totals.information[np.ix_(informed_places, informed_places)])
    if is_penalised or not len(dependent):
        return
    raise dependent_error([agreed.columns[place] for place in informed_places[dependent]], agreed.levels)


def _rounding_of(session: Session, totals: Totals, plan: Plan) -> tuple[float, float]:
    """Return the largest errors of the likelihood and of its gradient's entries by the rounding of masked sums."""
    if plan.times == "stratified":
        value, gradient = (session.rounding(CoxSite.sum_derivatives, name) for name in ("log_likelihood", "gradient"))
        return value, gradient
    part = cast(type[CoxSite], session.part)
    step = part.sum_exact_risk if plan.times == "exact" else part.sum_risk
    terms = sum_terms(totals.tables)
    # Derivatives of the likelihood by the sums over risk sets. The sum over the events is rounded alike in all rounds.
    weight = float(terms.first.sum() + terms.first_tied.sum())
    by_column = session.rounding(step, "event_sum") + weight * session.rounding(step, "risk_sum")
    return weight * session.rounding(step, "risk"), by_column


def _step(at: Totals | Derivatives, coefficients: Floats, plan: Plan, n_events: float) -> Floats:
    """Return the next Newton step: 0 for a column without information, and cut at coefficients of 50."""
    is_informed = informed(at.information, n_events)
    gradient, information = at.gradient[is_informed], at.information[np.ix_(is_informed, is_informed)]
    step, point = np.zeros(len(coefficients)), coefficients[is_informed]
    if plan.lasso:
        ridge, lasso = np.full(len(point), plan.alpha), np.full(len(point), plan.lasso)
        longest = penalised_step(gradient, information, point, ridge, lasso)
        step[is_informed] = longest * min(1.0, MAX_STEP / max(float(np.abs(longest).max(initial=0.0)), MAX_STEP))
    else:
        step[is_informed] = newton_step(Likelihood(at.value, gradient, information), point, plan.alpha)
    return np.clip(coefficients + step, -MAX_COEFFICIENT, MAX_COEFFICIENT) - coefficients


def _next_shift(totals: Totals) -> float:
    first = float(totals.risk[0]) if len(totals.risk) else 0.0
    return totals.shift + float(np.log(first / totals.n_patients)) if first > 0 else totals.shift


def _score_statistic(totals: Totals) -> float:
    is_informed = informed(totals.information, totals.n_events)
    inverse = np.linalg.pinv(totals.information[np.ix_(is_informed, is_informed)], hermitian=True)
    return float(totals.gradient[is_informed] @ inverse @ totals.gradient[is_informed])


def _weighted_mean(estimates: messages.Estimates, n_events: float) -> Floats:
    is_informed = informed(estimates.information, n_events)
    mean = np.zeros(len(estimates.weighted))
    inverse = np.linalg.pinv(estimates.information[np.ix_(is_informed, is_informed)], rcond=RANK, hermitian=True)
    mean[is_informed] = inverse @ estimates.weighted[is_informed]
    return np.clip(mean, -MAX_COEFFICIENT, MAX_COEFFICIENT)


def _reached(session: Session, coefficients: Floats, shift: float, plan: Plan) -> Totals:
    return session.once("reached", Totals, lambda: add_up(session, coefficients, shift, plan))


def make_model(session: Session, agreed: Prepared, fit: Fit, plan: Plan) -> CoxModel:
    """Return the model with one baseline for all sites, on the agreed times.

    After a fit with a baseline per site, the sites are asked once more for counts, on the grid. Of exact times, at most
    4096 equally spaced ones are stored.
    """
    if plan.times == "stratified":
        request = messages.AtShared(fit.coefficients, plan.ties == "efron", 0.0)
        totals = session.once("baseline", messages.Baseline, lambda: session.sum(CoxSite.sum_baseline, request))
        increments, shift = hazard(totals.events, totals.risk), 0.0
    else:
        increments, shift = sum_terms(fit.totals.tables).first, fit.totals.shift
    return model_with_baseline(agreed, fit.coefficients, increments, shift, int(fit.totals.n_patients))


def model_with_baseline(
    agreed: Prepared, coefficients: Floats, increments: Floats, shift: float, n_patients: int
) -> CoxModel:
    """Return the model of coefficients per standard deviation and of increments, shape (K,), divided by exp(-shift).

    Raises
    ------
    ConfigurationError
        The baseline hazard is too large: the hazard ratios have no common scale.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        baseline = np.cumsum(increments) * np.exp(-shift)
    if not (baseline <= LARGEST).all():
        raise ConfigurationError(
            f"the cumulative baseline hazard must be at most {LARGEST:g}; got a larger one",
            where="baseline",
            hint="Fit with alpha above 0.",
        )
    count = min(len(baseline), MAX_MODEL_TIMES)
    places = np.unique(np.linspace(0, len(baseline) - 1, count).round().astype(np.int64))
    return CoxModel(
        agreed.times[places], coefficients / agreed.spread, agreed.centre, baseline[places], patients=n_patients
    )


def sum_scores(session: Session, agreed: Prepared, fit: Fit, plan: Plan) -> Floats:
    """Return the sum of the products of all patients' score residuals, shape (d, d)."""
    if plan.times == "stratified":
        request = messages.At(fit.coefficients, plan.ties == "efron")
        return session.once("scores", messages.Products, lambda: session.sum(CoxSite.sum_own_scores, request)).products
    means = _means(agreed, fit, plan, np.zeros(len(agreed.times)))
    if plan.times == "exact":
        exact = session.once("scores", messages.ExactProducts, lambda: session.sum(CoxSite.sum_exact_scores, means))
        return exact.products
    return session.once("scores", messages.Products, lambda: session.sum(CoxSite.sum_scores, means)).products


@dataclass(frozen=True)
class TimeValues:
    """Values of times in a test of proportional hazards: by time of the grid, or a function of recorded times."""

    by_time: Floats
    recorded: str = ""


def sum_residuals(session: Session, agreed: Prepared, fit: Fit, plan: Plan, values: TimeValues) -> messages.Residuals:
    """Return sums of Schoenfeld residuals over the events of all sites, weighted by a value of their times."""
    if plan.times == "stratified":
        return session.sum(CoxSite.sum_own_residuals, _own_transform(fit, plan, values))
    means = _means(agreed, fit, plan, values.by_time)
    if plan.times == "exact":
        return session.sum(CoxSite.sum_exact_residuals, means)
    return session.sum(CoxSite.sum_residuals, means)


def sum_curvatures(session: Session, fit: Fit, plan: Plan, values: TimeValues) -> messages.Curvatures:
    """Return sums over the events of all sites of the information, times a value of their times and its square."""
    if plan.times == "stratified":
        return session.sum(CoxSite.sum_own_curvatures, _own_transform(fit, plan, values))
    totals, efron = fit.totals, plan.ties == "efron"
    sums = []
    for power in (1, 2):
        terms = sum_terms(totals.tables).weighted(values.by_time**power)
        request = messages.Hazards(fit.coefficients, efron, totals.shift, terms.first, terms.first_tied)
        if plan.times == "exact":
            products = session.sum(CoxSite.sum_exact_products, request).products
        else:
            products = session.sum(CoxSite.sum_products, request).products
        sums.append(products - squared_means(totals.sums, terms))
    return messages.Curvatures(*sums, patients=round(totals.n_patients))


def _own_transform(fit: Fit, plan: Plan, values: TimeValues) -> messages.Transform:
    return messages.Transform(fit.coefficients, plan.ties == "efron", values.by_time, values.recorded)


def value_times(
    session: Session, agreed: Prepared, fit: Fit, plan: Plan, transform: TimeTransform, *, of_all: bool
) -> TimeValues:
    """Return the values of the times in a test; stratified by site, sites compute those that need no other times."""
    if plan.times == "stratified" and of_all and transform in RECORDED:
        return TimeValues(np.zeros(len(agreed.times)), transform)
    efron = plan.ties == "efron"
    at_zero = messages.AtShared(np.zeros(len(fit.coefficients)), efron, 0.0)
    counts: messages.ExactRisk | messages.Baseline
    if plan.times == "exact":
        counts = session.sum(CoxSite.sum_exact_risk, at_zero)
    else:
        counts = session.sum(CoxSite.sum_baseline, at_zero)
    return TimeValues(transform_times(agreed.times, counts.events, counts.risk, transform, of_all=of_all))


def _means(agreed: Prepared, fit: Fit, plan: Plan, values: Floats) -> messages.Means:
    totals = fit.totals
    means = risk_means(totals.events, totals.sums, sum_terms(totals.tables))
    return messages.Means(
        fit.coefficients,
        plan.ties == "efron",
        fit.totals.shift,
        means.first,
        means.first_tied,
        means.mean,
        means.mean_hazard,
        means.mean_hazard_tied,
        values,
    )
