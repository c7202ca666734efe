"""The rounds by which sites fit a Cox model together: Newton and Raphson on sums, with step halving."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, DataError
from multicentre.federation.messages import Message, Nothing, array, number
from multicentre.federation.rounds import History
from multicentre.federation.session import Session
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.cox import messages as sent
from multicentre.survival.cox.maths.inference import (
    TimeTransform,
    dependent_columns,
    informed,
    reliable,
    transform_times,
)
from multicentre.survival.cox.maths.residuals import risk_means
from multicentre.survival.cox.site import CoxSite
from multicentre.survival.kernels.cox import (
    LARGEST_COEFFICIENT,
    Likelihood,
    gradient,
    newton_step,
    squared_means,
    sum_terms,
)
from multicentre.survival.kernels.risk_sets import Sums, Tables, Ties
from multicentre.survival.models.base import MOST_TIMES
from multicentre.survival.models.cox import CoxModel
from multicentre.survival.times import hazard

Floats = NDArray[np.float64]

Times = Literal["stratified", "grid", "exact"]


@dataclass(frozen=True)
class Plan:
    """What the rounds need of the estimator's parameters."""

    times: Times
    ties: Ties
    alpha: float
    max_iter: int
    tol: float


@dataclass(frozen=True)
class Totals(Message):
    """Sums over the sites at some coefficients; those by time are empty where baselines are the sites' own."""

    n_patients: float = number("patients")
    n_events: float = number("events")
    shift: float = number("logarithm by which hazard ratios were divided")
    value: float = number("log partial likelihood")
    gradient: Floats = array("its first derivatives", ("d",))
    information: Floats = array("minus its second derivatives", ("d", "d"))
    events: Floats = array("events by time", ("K",))
    risk: Floats = array("sum of hazard ratios over those at risk", ("K",))
    risk_sum: Floats = array("the same times columns", ("K", "d"))
    tied: Floats = array("sum of hazard ratios over those with the event", ("K",))
    tied_sum: Floats = array("the same times columns", ("K", "d"))

    @property
    def tables(self) -> Tables:
        """The sums by time."""
        return Tables(self.events, self.events, self.risk, self.tied)

    @property
    def sums(self) -> Sums:
        """The sums of columns by time."""
        return Sums(self.risk_sum, self.tied_sum)

    @property
    def likelihood(self) -> Likelihood:
        """Value and derivatives."""
        return Likelihood(self.value, self.gradient, self.information)


def add_up(session: Session, coefficients: Floats, shift: float, plan: Plan) -> Totals:
    """Return the sums of all sites at some coefficients; anew where a site was lost between two of them."""
    if plan.times == "stratified":
        return _own_totals(session.sum(CoxSite.sum_derivatives, sent.At(coefficients, plan.ties == "efron")))
    while True:
        sites = session.sites
        found = _shared_totals(session, coefficients, shift, plan)
        if session.sites == sites:
            return found


def _own_totals(sums: sent.Derivatives) -> Totals:
    none, no_rows = np.zeros(0), np.zeros((0, len(sums.gradient)))
    by_time = none, none, no_rows, none, no_rows
    return Totals(sums.n_patients, sums.n_events, 0.0, sums.log_likelihood, sums.gradient, sums.information, *by_time)


def _shared_totals(session: Session, coefficients: Floats, shift: float, plan: Plan) -> Totals:
    exact, efron = plan.times == "exact", plan.ties == "efron"
    at = sent.AtShared(coefficients, efron, shift)
    sums = session.sum(CoxSite.sum_exact_risk, at) if exact else session.sum(CoxSite.sum_risk, at)
    nothing = np.zeros(len(sums.risk)), np.zeros_like(sums.risk_sum)
    tied = (sums.tied, sums.tied_sum) if efron else nothing
    terms = sum_terms(Tables(sums.events, sums.events, sums.risk, tied[0]))
    ask = sent.Hazards(coefficients, efron, shift, terms.first, terms.first_tied)
    summed = session.sum(CoxSite.sum_exact_products, ask) if exact else session.sum(CoxSite.sum_products, ask)
    products = summed.products
    n_events = float(sums.events.sum())
    value = float(sums.event_sum @ coefficients - terms.log.sum() - shift * n_events)
    return Totals(
        sums.n_patients,
        n_events,
        shift,
        value,
        gradient(sums.event_sum, Sums(sums.risk_sum, tied[1]), terms),
        products - squared_means(Sums(sums.risk_sum, tied[1]), terms),
        sums.events,
        sums.risk,
        sums.risk_sum,
        *tied,
    )


Flags = NDArray[np.bool_]

NOISE = 1e-12

RANK = 1e-10

SOME_RIDGE = 0.1

NO_GAIN = 1e-7

STILL_MOVING = 1e-3

MASKED_TOL = 1e-7


@dataclass(frozen=True)
class Ascent(Message):
    """Where the coordinator stands on its way to the maximum."""

    coefficients: Floats = array("best coefficients so far", ("d",))
    step: Floats = array("where the next ones lie from there", ("d",))
    share: float = number("how much of the step is taken")
    objective: float = number("penalised log-likelihood of the best", finite=False)
    shift: float = number("logarithm by which hazard ratios are divided")
    n_patients: float = number("patients behind it")
    null_value: float = number("log-likelihood without columns")
    null_score: float = number("statistic of the score test without columns")


@dataclass(frozen=True)
class Fit:
    """A Cox model on standardised columns, and the sums behind it.

    Parameters
    ----------
    coefficients : array of shape (d,)
    totals : Totals
        At the coefficients.
    null : tuple of float
        Log-likelihood, and the score test's statistic, without columns.
    history : list of dict
    converged : bool
    endless : bool
        The likelihood rose no more while coefficients went on.
    moving : array of shape (d,)
        How far each coefficient would still go.
    lead : str
        The site that led a fit in one round; empty otherwise.
    """

    coefficients: Floats
    totals: Totals
    null: tuple[float, float]
    history: History
    converged: bool
    endless: bool
    moving: Floats
    lead: str = ""

    @property
    def flat(self) -> Flags:
        """Columns without information, whose coefficients are 0, shape (d,)."""
        known = informed(self.totals.information, self.totals.n_events)
        return ~known & (np.abs(self.coefficients) < STILL_MOVING)

    @property
    def diverging(self) -> Flags:
        """Columns along which the likelihood may rise without end, shape (d,)."""
        known = informed(self.totals.information, self.totals.n_events)
        return (self.endless & (np.abs(self.moving) > STILL_MOVING)) | (~known & ~self.flat)

    @property
    def reliable(self) -> Flags:
        """Columns whose coefficients have errors and intervals that hold, shape (d,)."""
        totals = self.totals
        return reliable(totals.gradient, totals.information, totals.n_events) & ~self.diverging


def fit_by_rounds(session: Session, agreed: Agreed, plan: Plan) -> Fit:
    """Climb the penalised partial likelihood to its maximum."""
    n_columns = len(agreed.columns)
    tol = max(plan.tol, MASKED_TOL) if session.protection == "masked" else plan.tol
    rounds = session.rounds(plan.max_iter, Ascent, lambda: _start(n_columns))
    for number_ in rounds:
        before = rounds.state
        tried = before.coefficients + before.share * before.step
        totals = add_up(session, tried, before.shift, plan)
        if number_ == 1:
            check_independent(totals, agreed, plan.alpha)
            before = replace(before, null_value=totals.value, null_score=_score_statistic(totals))
        rounds.state, gain = _climb(before, tried, totals, plan.alpha)
        change = float(np.abs(rounds.state.step).max())
        rounds.record(log_likelihood=totals.value, change=change, share=before.share)
        if rounds.state.share == 1.0 and (change < tol or (change > STILL_MOVING and gain < _no_gain(totals))):
            rounds.stop()
    reached = rounds.state
    converged = rounds.stopped and float(np.abs(reached.step).max()) < tol
    coefficients = reached.coefficients + reached.step if converged else reached.coefficients
    totals = _reached(session, coefficients, reached.shift, plan)
    null = reached.null_value, reached.null_score
    return Fit(coefficients, totals, null, rounds.history, converged, rounds.stopped and not converged, reached.step)


def fit_in_one_round(session: Session, agreed: Agreed, plan: Plan, lead: str | None) -> Fit:
    """Take the sites' mean, the derivatives there once, and one site's likelihood in the place of all (ODAC).

    Without a `lead` it is the site with most events, of those that tell how many they have.

    References
    ----------
    R. Duan et al. (2020), Learning from local to global: an efficient distributed algorithm for modeling time-to-event
    data, Journal of the American Medical Informatics Association 27, 1028-1036. C. Luo et al. (2022), ODACH: a one-shot
    distributed algorithm for Cox model with heterogeneous multi-center data, Scientific Reports 12, 6627.
    """
    penalty = sent.Penalty(max(plan.alpha, SOME_RIDGE), plan.ties == "efron")
    own = session.once("estimates", sent.Estimates, lambda: session.sum(CoxSite.sum_estimates, penalty))
    start = _weighted_mean(own, agreed.n_events)
    there, led = _led(session, agreed, plan, start, lead)
    solved = bool(led.coefficients.any())
    coefficients = led.coefficients if solved else start + _step(there, start, plan.alpha)
    totals = _reached(session, coefficients, _next_shift(there), plan)
    moving = _step(totals, coefficients, plan.alpha)
    history = [{"round": 1.0, "log_likelihood": totals.value, "change": float(np.abs(moving).max())}]
    return Fit(coefficients, totals, (np.nan, np.nan), history, solved, False, moving, led.lead)


def _led(session: Session, agreed: Agreed, plan: Plan, start: Floats, lead: str | None) -> tuple[Totals, sent.Led]:
    """Return the derivatives at the start and what the lead makes of them; the next leads where one refuses or is lost.

    A lead that is lost takes its patients along: the derivatives are those of the sites that are left.
    """
    leads = sent.Leads((lead,)) if lead else session.once("leads", sent.Leads, lambda: _by_events(session))
    for place, site in enumerate(leads.sites):
        there = session.once(f"derivatives-{place}", Totals, lambda: add_up(session, start, 0.0, plan))
        check_independent(there, agreed, plan.alpha)
        efron = plan.ties == "efron"
        ask = sent.Surrogate(start, efron, plan.alpha, there.n_events, there.gradient, there.information)
        solve = partial(_solve, session, ask, site, skip_refusals=not lead)
        led = session.once(f"solution-{place}", sent.Led, solve)
        if led.lead:
            return there, led
    raise ConfigurationError(
        "the lead must be a site that answers for itself; got none",
        where="lead",
        hint="Name a site whose policy permits it (lead=...), or fit in rounds (one_round=False).",
    )


def _solve(session: Session, ask: sent.Surrogate, lead: str, *, skip_refusals: bool) -> sent.Led:
    """Return what the lead solves, without a name where it refuses or is lost."""
    to = [lead] if lead in session.sites else []
    answers = session.ask(CoxSite.solve_surrogate, ask, to=to, skip_refusals=skip_refusals) if to else {}
    return sent.Led(lead, answers[lead].coefficients) if answers else sent.Led("", np.zeros(0))


def _by_events(session: Session) -> sent.Leads:
    offers = session.ask(CoxSite.offer_lead, Nothing(), skip_refusals=True)
    with_events = [site for site, offer in offers.items() if offer.n_events]
    return sent.Leads(tuple(sorted(with_events, key=lambda site: -offers[site].n_events)))


def check_independent(totals: Totals, agreed: Agreed, alpha: float) -> None:
    """Raise DataError where columns depend on each other and there is no penalty."""
    known = np.flatnonzero(informed(totals.information, totals.n_events))
    among = dependent_columns(totals.information[np.ix_(known, known)])
    if alpha > 0 or not len(among):
        return
    names = [agreed.columns[place] for place in known[among]]
    listed = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")
    raise DataError(
        f"columns depend on each other: {listed}",
        where="columns",
        hint="Leave one of them out (one level of a category, say), or fit with a penalty: alpha=1.0.",
    )


def _start(n_columns: int) -> Ascent:
    nothing = np.zeros(n_columns)
    return Ascent(nothing, nothing, 1.0, -np.inf, 0.0, 0.0, 0.0, 0.0)


def _climb(before: Ascent, tried: Floats, totals: Totals, alpha: float) -> tuple[Ascent, float]:
    """Go on from where the objective rose, or halve the step; after the loss of a site nothing can be compared."""
    objective = totals.value - 0.5 * alpha * float(tried @ tried)
    gain = objective - before.objective
    if totals.n_patients != before.n_patients:
        gain = np.inf
    if not gain >= -_no_gain(totals):
        return replace(before, share=before.share / 2.0), gain
    step = _step(totals, tried, alpha)
    state = replace(
        before,
        coefficients=tried,
        step=step,
        share=1.0,
        objective=objective,
        shift=_next_shift(totals),
        n_patients=totals.n_patients,
    )
    return state, gain


def _no_gain(totals: Totals) -> float:
    return NO_GAIN + NOISE * abs(totals.value)


def _step(totals: Totals, coefficients: Floats, alpha: float) -> Floats:
    """Return the next step, none for a column without information, and none beyond coefficients of 50."""
    known = informed(totals.information, totals.n_events)
    inside = Likelihood(totals.value, totals.gradient[known], totals.information[np.ix_(known, known)])
    step = np.zeros(len(coefficients))
    step[known] = newton_step(inside, coefficients[known], alpha)
    return np.clip(coefficients + step, -LARGEST_COEFFICIENT, LARGEST_COEFFICIENT) - coefficients


def _next_shift(totals: Totals) -> float:
    first = float(totals.risk[0]) if len(totals.risk) else 0.0
    return totals.shift + float(np.log(first / totals.n_patients)) if first > 0 else totals.shift


def _score_statistic(totals: Totals) -> float:
    known = informed(totals.information, totals.n_events)
    inverse = np.linalg.pinv(totals.information[np.ix_(known, known)], hermitian=True)
    return float(totals.gradient[known] @ inverse @ totals.gradient[known])


def _weighted_mean(own: sent.Estimates, n_events: float) -> Floats:
    known = informed(own.information, n_events)
    mean = np.zeros(len(own.weighted))
    inverse = np.linalg.pinv(own.information[np.ix_(known, known)], rcond=RANK, hermitian=True)
    mean[known] = inverse @ own.weighted[known]
    return np.clip(mean, -LARGEST_COEFFICIENT, LARGEST_COEFFICIENT)


def _reached(session: Session, coefficients: Floats, shift: float, plan: Plan) -> Totals:
    return session.once("reached", Totals, lambda: add_up(session, coefficients, shift, plan))


def make_model(session: Session, agreed: Agreed, fit: Fit, plan: Plan) -> CoxModel:
    """Return the model with one baseline for all sites, on the agreed times.

    With baselines of the sites' own in the fit, the sites count once more, on the grid. Of exact times at most 4096 are
    kept, as many patients apart as the events allow.
    """
    if plan.times == "stratified":
        at = sent.AtShared(fit.coefficients, plan.ties == "efron", 0.0)
        totals = session.once("baseline", sent.Baseline, lambda: session.sum(CoxSite.sum_baseline, at))
        increments, shift = hazard(totals.events, totals.risk), 0.0
    else:
        increments, shift = sum_terms(fit.totals.tables).first, fit.totals.shift
    baseline = np.cumsum(increments) * np.exp(-shift)
    kept = np.unique(np.linspace(0, len(baseline) - 1, min(len(baseline), MOST_TIMES)).round().astype(np.int64))
    coefficients = fit.coefficients / agreed.spread
    return CoxModel(
        agreed.times[kept], coefficients, agreed.centre, baseline[kept], patients=int(fit.totals.n_patients)
    )


def sum_scores(session: Session, agreed: Agreed, fit: Fit, plan: Plan) -> Floats:
    """Return the sum over all patients of their score residuals' products, shape (d, d)."""
    if plan.times == "stratified":
        ask = sent.At(fit.coefficients, plan.ties == "efron")
        return session.once("scores", sent.Products, lambda: session.sum(CoxSite.sum_own_scores, ask)).products
    means = _means(agreed, fit, plan, np.zeros(len(agreed.times)))
    if plan.times == "exact":
        exact = session.once("scores", sent.ExactProducts, lambda: session.sum(CoxSite.sum_exact_scores, means))
        return exact.products
    return session.once("scores", sent.Products, lambda: session.sum(CoxSite.sum_scores, means)).products


def sum_residuals(session: Session, agreed: Agreed, fit: Fit, plan: Plan, transform: TimeTransform) -> sent.Residuals:
    """Return sums of Schoenfeld's residuals over the events of all sites, by a transform of their times."""
    efron = plan.ties == "efron"
    nowhere = sent.AtShared(np.zeros(len(fit.coefficients)), efron, 0.0)
    counts: sent.ExactRisk | sent.Baseline
    if plan.times == "exact":
        counts = session.sum(CoxSite.sum_exact_risk, nowhere)
    else:
        counts = session.sum(CoxSite.sum_baseline, nowhere)
    values = transform_times(agreed.times, counts.events, counts.risk, transform)
    if plan.times == "stratified":
        return session.sum(CoxSite.sum_own_residuals, sent.Transform(fit.coefficients, efron, values))
    means = _means(agreed, fit, plan, values)
    if plan.times == "exact":
        return session.sum(CoxSite.sum_exact_residuals, means)
    return session.sum(CoxSite.sum_residuals, means)


def _means(agreed: Agreed, fit: Fit, plan: Plan, values: Floats) -> sent.Means:
    totals = fit.totals
    found = risk_means(totals.events, totals.sums, sum_terms(totals.tables))
    return sent.Means(
        fit.coefficients,
        plan.ties == "efron",
        fit.totals.shift,
        found.first,
        found.first_tied,
        found.mean,
        found.spent,
        found.spent_tied,
        values,
    )
