"""Passes of boosting, side by side.

One round of a pass consists of:

1. The coordinator sends the scale of the weights and requests a hypothesis.
2. Each site fits a weak learner to its weighted patients and returns it.
3. The coordinator sends all learners, and the hypotheses as mixtures of them, to every site.
4. Each site returns the sum of its weighted losses per hypothesis, as a term of a sum over sites.
5. The coordinator selects the hypothesis with the smallest error and sends its vote.
6. Each site reweights its patients, and returns the sum of their weights and of held-out Brier scores.

With ``candidates="pool"``, steps 1 and 2 take place before the first round. With ``norm="max"``, step 4 includes a
search for the largest loss via sums. A pass stops when no hypothesis is better than a guess, when one makes no error,
or when `n_iter_no_change` rounds did not lower the held-out Brier score.

The pass of the model and those of the folds do not depend on each other. Their requests of one round travel together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from multicentre.core.rounds import History
from multicentre.core.session import Session
from multicentre.core.tie_breaking import is_less
from multicentre.errors import DataError, MessageError
from multicentre.survival.agreement.messages import OfCause, Prepared
from multicentre.survival.fitted_models import KINDS, CoxModel, Mixture, SurvivalModel
from multicentre.survival.fitted_models.base import join, split
from multicentre.survival.kernels.partial_likelihood import Likelihood, gradient, maximise, squared_means, sum_terms
from multicentre.survival.kernels.risk_sets import Sums, Tables
from multicentre.survival.surv_boost import messages
from multicentre.survival.surv_boost.hypotheses import LEARNERS, count_learners, pack_learners
from multicentre.survival.surv_boost.maths import N_BINS, N_DIGITS, Verdict, decide, go_to_highest
from multicentre.survival.surv_boost.plan import STEPS, Plan
from multicentre.survival.surv_boost.site import BoostSite
from multicentre.survival.times import kaplan_meier

Floats = NDArray[np.float64]
COMMITTEE = "committee of all sites"
EVERYONE = "proportional hazards of all sites"
NO_BETTER = "no better on the patients held out"
# Penalty on the coefficients of standardised columns.
RIDGE = 1.0
# Risks with a smaller standard deviation are treated as constant.
SMALLEST_SPREAD = 1e-9


class Offer(NamedTuple):
    """Learners of a round, their origins, and the sites whose learner was invalid."""

    learners: Sequence[SurvivalModel]
    names: Sequence[str]
    dropped: Sequence[str]


class Judgement(NamedTuple):
    """Verdict of a round, hypotheses as mixtures of learners, and the loss that counts as 1."""

    verdict: Verdict
    shares: Floats
    largest: float


@dataclass(frozen=True)
class PassPlan:
    """A pass of boosting.

    Parameters
    ----------
    plan : Plan
    number : int
        0 for the pass of the model; otherwise the fold that is held out for the recalibration.
    n_splits, held : int
        Number of folds, and the fold that is held out; 0 for none.
    """

    plan: Plan
    number: int
    n_splits: int
    held: int

    def scale(self, log_total: float, agreed: Prepared) -> messages.Scale:
        """Return the scale of the weights, with the number of the pass."""
        log_cap = self.plan.log_cap(agreed.n_patients)
        return messages.Scale(log_total=log_total, log_cap=log_cap, of_pass=self.number)


@dataclass(frozen=True)
class Pass:
    """Result of one pass of boosting.

    Parameters
    ----------
    ensemble : Ensemble
    history : list of dict
        Rounds of the pass; empty for those of the folds.
    model : Mixture
    n_kept : int
        Number of hypotheses in the model: all, or those up to the round with the best held-out Brier score.
    """

    ensemble: messages.Ensemble
    history: History
    model: Mixture
    n_kept: int


@dataclass(frozen=True)
class _Round:
    """Result of one round of a pass: the state after it, and its metrics."""

    ensemble: messages.Ensemble
    metrics: Mapping[str, float]


def find_staying(session: Session, agreed: Prepared) -> Floats:
    """Return the probability of not being censored, on the grid, from counts of all sites (reverse Kaplan-Meier)."""
    counts = session.once(
        "censored", messages.Censorings, lambda: session.sum(BoostSite.count_censored, OfCause(agreed.cause))
    )
    leaving = counts.censored.copy()
    leaving[:-1] += counts.events
    at_risk = np.cumsum(leaving[::-1])[::-1][:-1]
    return np.clip(kaplan_meier(counts.censored[:-1], at_risk - counts.events), 0.0, 1.0)


def boost(session: Session, agreed: Prepared, staying: Floats, passes: Sequence[PassPlan]) -> list[Pass]:
    """Run passes side by side; the first is that of the model, whose rounds are recorded.

    Parameters
    ----------
    session : Session
    agreed : Prepared
    staying : array of shape (K,)
        Probability of not being censored, on the grid.
    passes : sequence of PassPlan

    Raises
    ------
    DataError
        No site could fit a hypothesis.
    """

    def gather() -> messages.ByPass:
        return messages.ByPass.of(
            session.together([partial(_gather_pool, session, one, agreed, staying) for one in passes])
        )

    def start() -> messages.ByPass:
        return messages.ByPass.of(
            session.together(
                [partial(_start, session, one, staying, pool) for one, pool in zip(passes, pools, strict=True)]
            )
        )

    pools = session.once("pools", messages.ByPass, gather).read(messages.Pool)
    rounds = session.rounds(passes[0].plan.n_estimators, messages.ByPass, start, name="rounds")
    fixed = [_read_pool(pool, agreed) for pool in pools]
    for number in rounds:
        ensembles = rounds.state.read(messages.Ensemble)
        places = [place for place, one in enumerate(ensembles) if not one.stopped]
        results = session.together(
            [
                partial(_boost_once, session, passes[place], agreed, ensembles[place], fixed[place], number)
                for place in places
            ]
        )
        for place, result in zip(places, results, strict=True):
            ensembles[place] = result.ensemble
            if not place:
                rounds.record(**result.metrics)
        rounds.state = messages.ByPass.of(ensembles)
        if all(one.stopped for one in ensembles):
            rounds.stop()
    history = [entry for entry in rounds.history if "error" in entry]  # others were rounds of the folds alone
    states = rounds.state.read(messages.Ensemble)
    return [
        _assemble(state, [] if place else history, one.plan, agreed)
        for place, (one, state) in enumerate(zip(passes, states, strict=True))
    ]


def _boost_once(
    session: Session, one: PassPlan, agreed: Prepared, before: messages.Ensemble, fixed: Offer, number: int
) -> _Round:
    """Run one round of a pass."""
    plan, scale = one.plan, one.scale(before.log_total, agreed)
    offer = fixed if plan.candidates == "pool" else _fit(session, plan, agreed, scale, number, fixed)
    judged = _judge(session, plan, offer, scale, number, is_first=not len(before.votes))
    after = replace(before, dropped=(*before.dropped, *offer.dropped), stopped=judged.verdict.stop)
    if judged.verdict.is_selected:
        after = _join(session, plan, after, offer, judged, scale, len(agreed.columns))
    metrics = {"error": judged.verdict.error, "vote": judged.verdict.vote, "n_candidates": len(judged.shares)}
    return _Round(after, {**metrics, "brier": after.last} if np.isfinite(after.last) else metrics)


def warn_of_dropped(result: Pass) -> None:
    """Warn if the model consists only of the proportional hazards model of all sites."""
    n_dropped = sum(not name.startswith(EVERYONE) for name in result.ensemble.dropped)
    is_alone = all(entry["n_candidates"] <= 1 for entry in result.history)
    if n_dropped and is_alone and set(result.ensemble.names) == {EVERYONE}:
        warnings.warn(
            f"all {n_dropped} models that sites fitted alone were left out because of too few patients or events (see "
            "dropped_). The model is the proportional hazards model of all sites, as fitted by FedCox.",
            UserWarning,
            stacklevel=4,
        )


def _begin(one: PassPlan, staying: Floats) -> messages.Begin:
    return messages.Begin(one.plan.seed, one.n_splits, one.held, one.plan.loss, staying, of_pass=one.number)


def _gather_pool(session: Session, one: PassPlan, agreed: Prepared, staying: Floats) -> messages.Pool:
    """Begin the pass; collect the learners that are fixed for all rounds: the pool, or the proportional hazards."""
    plan = one.plan
    session.ask(BoostSite.begin, _begin(one, staying))
    learners: list[SurvivalModel] = []
    names: list[str] = []
    dropped: list[str] = []
    if plan.with_cox:
        learners, names, dropped = _hazards_of_all(session, agreed, one.number)
    if plan.candidates == "pool":
        scale = one.scale(0.0, agreed)
        for number in range(1, -(-plan.n_estimators // len(session)) + 1):
            offer = _ask_sites(session, plan, agreed, scale, number, alone=not plan.rule.equal)
            learners, names = [*learners, *offer.learners], [*names, *offer.names]
            dropped += offer.dropped
    return messages.Pool(*join(learners), tuple(names), tuple(dropped))


def _hazards_of_all(
    session: Session, agreed: Prepared, of_pass: int
) -> tuple[list[SurvivalModel], list[str], list[str]]:
    model = fit_columns(session, agreed, of_pass)
    if model is None:
        return [], [], [f"{EVERYONE}: no finite maximum"]
    return [model], [EVERYONE], []


def _read_pool(pool: messages.Pool, agreed: Prepared) -> Offer:
    return Offer(split(pool.packed, pool.lengths, LEARNERS, len(agreed.columns)), pool.names, ())


def _start(session: Session, one: PassPlan, staying: Floats, pool: messages.Pool) -> messages.Ensemble:
    if one.plan.candidates == "pool":
        # Separate boosting at the sites has changed their weights.
        session.ask(BoostSite.begin, _begin(one, staying))
    bytes_, whole, none, unknown = np.zeros(0, np.uint8), np.zeros(0, np.int64), np.zeros(0), float("inf")
    return messages.Ensemble(bytes_, whole, whole, none, none, (), pool.dropped, 0.0, unknown, unknown, 0, "")


def _fit(session: Session, plan: Plan, agreed: Prepared, scale: messages.Scale, number: int, fixed: Offer) -> Offer:
    """Request a learner from every site; return these and the learners that are fixed for all rounds."""
    offer = _ask_sites(session, plan, agreed, scale, number, alone=False)
    return Offer([*offer.learners, *fixed.learners], [*offer.names, *fixed.names], offer.dropped)


def _ask_sites(
    session: Session, plan: Plan, agreed: Prepared, scale: messages.Scale, number: int, *, alone: bool
) -> Offer:
    answers = session.ask(STEPS[plan.weak_learner], plan.fit_request(scale, number, alone=alone))
    valid = {site: model for site, model in answers.items() if _is_valid(model, agreed)}
    dropped = [f"{site}, round {number}" for site in answers if site not in valid]
    return Offer(list(valid.values()), list(valid), dropped)


def _is_valid(model: SurvivalModel, agreed: Prepared) -> bool:
    """Return whether a site's model has the agreed columns and grid; invalid models are skipped."""
    if model.is_empty or count_learners(model) != 1 or not np.array_equal(model.times, agreed.times):
        return False
    try:
        model.valid(len(agreed.columns))
    except MessageError:
        return False
    return True


def mix(n_sites: int, n_learners: int, candidates: str) -> Floats:
    """Return the hypotheses as mixtures of learners, shape (q, m): single learners, their committee, or both.

    Learners beyond those of the sites are single candidates and not part of the committee.

    Examples
    --------
    >>> mix(2, 3, "all").tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]
    """
    alone = np.eye(n_learners)
    committee = np.zeros((min(n_sites, 1), n_learners))
    committee[:, :n_sites] = 1.0 / max(n_sites, 1)
    parts = {
        "best": [alone],
        "pool": [alone],
        "committee": [committee],
        "all": [alone[:n_sites], committee, alone[n_sites:]],
    }
    return np.vstack(parts[candidates])


def _judge(
    session: Session, plan: Plan, offer: Offer, scale: messages.Scale, number: int, *, is_first: bool
) -> Judgement:
    """Send the learners to all sites, sum the errors and select a hypothesis.

    A pool is sent only in the first round.
    """
    if not offer.learners:
        return Judgement(decide(np.zeros(0), np.zeros(0), 1.0, plan.rule, is_first=is_first), np.zeros((0, 0)), 1.0)
    n_sites = sum(name != EVERYONE for name in offer.names)
    shares = mix(n_sites, len(offer.learners), plan.candidates)
    learners = offer.learners if plan.candidates != "pool" or number == 1 else []
    packed, lengths = pack_learners(learners)
    request = messages.Hypotheses(
        **messages.fields_of(scale), packed=packed, lengths=lengths, shares=shares if learners else np.zeros((0, 0))
    )
    errors = session.sum(BoostSite.judge, request)
    largest = _largest_losses(session, len(shares), scale.of_pass) if plan.norm == "max" else np.ones(len(shares))
    verdict = decide(errors.losses, largest, errors.total, plan.rule, is_first=is_first)
    return Judgement(verdict, shares, float(largest[verdict.index]))


def _largest_losses(session: Session, n_hypotheses: int, of_pass: int) -> Floats:
    """Return the largest loss of every hypothesis over all sites, with 48 binary digits, shape (q,)."""
    low, width = np.zeros(n_hypotheses), 1.0
    for _ in range(N_DIGITS):
        width /= N_BINS
        marks = session.sum(BoostSite.mark_largest, messages.Search(low, width, of_pass=of_pass)).marks
        low = go_to_highest(low, width, marks)
    return low + width


def _join(
    session: Session,
    plan: Plan,
    before: messages.Ensemble,
    offer: Offer,
    judged: Judgement,
    scale: messages.Scale,
    n_columns: int,
) -> messages.Ensemble:
    """Add the selected hypothesis to the ensemble, and let the sites reweight their patients."""
    verdict, shares = judged.verdict, judged.shares[judged.verdict.index]
    factor = 0.0 if plan.rule.equal else verdict.vote
    chosen = messages.Chosen(
        **messages.fields_of(scale), index=verdict.index, vote=verdict.vote, factor=factor, scale=judged.largest
    )
    weighed = session.sum(BoostSite.reweigh, chosen)
    members = np.flatnonzero(shares).tolist()
    name = offer.names[members[0]] if len(members) == 1 else COMMITTEE
    packed, lengths = join([_mixed([offer.learners[place] for place in members], shares[members], n_columns)])
    brier = weighed.brier / weighed.n_held if weighed.n_held else float("inf")
    improved = is_less(brier, before.brier)
    after = replace(
        before,
        packed=np.concatenate([before.packed, packed]),
        lengths=np.concatenate([before.lengths, lengths]),
        sizes=np.append(before.sizes, len(members)),
        votes=np.append(before.votes, verdict.vote),
        errors=np.append(before.errors, verdict.error),
        names=(*before.names, name),
        log_total=float(np.log(weighed.total)) if weighed.total > 0 else 0.0,
        last=brier,
        brier=brier if improved else before.brier,
        best=len(before.votes) + 1 if improved else before.best,
    )
    waited = len(after.votes) - after.best
    ends = (
        not after.stopped and weighed.n_held and plan.n_iter_no_change is not None and waited >= plan.n_iter_no_change
    )
    return replace(after, stopped=NO_BETTER) if ends else after


def _mixed(learners: Sequence[SurvivalModel], shares: Floats, n_columns: int) -> SurvivalModel:
    return learners[0] if len(learners) == 1 else Mixture.of(learners, shares, n_columns)


def _assemble(state: messages.Ensemble, history: History, plan: Plan, agreed: Prepared) -> Pass:
    """Return the mixture of the selected hypotheses."""
    n_kept = state.best if plan.n_iter_no_change is not None and state.best else len(state.votes)
    if not n_kept:
        raise DataError(
            state.stopped or "at least one hypothesis must be selected; got none",
            where="; ".join(state.dropped[:5]) or "sites",
            hint="Lower min_events_leaf or min_samples_leaf in learner_params, or join sites with few patients.",
        )
    end = int(state.lengths[:n_kept].sum())
    hypotheses = split(state.packed[:end], state.lengths[:n_kept], KINDS, len(agreed.columns))
    return Pass(state, history, Mixture.of(hypotheses, state.votes[:n_kept], len(agreed.columns)), n_kept)


def fit_columns(session: Session, agreed: Prepared, of_pass: int = 0) -> CoxModel | None:
    """Fit a proportional hazards model to all patients who are not held out; None if no finite maximum exists.

    The model maximises Breslow's partial likelihood at the times of the grid, with a ridge penalty of 1 on standardised
    columns. It is computed via sums, so it equals the fit of the pooled patients for every split over sites.
    """
    fit = _maximise(
        session,
        len(agreed.columns),
        RIDGE,
        lambda candidate: messages.Coefficients(candidate, False, 0, 0.0, 1.0, of_pass=of_pass),
    )
    if fit is None:
        return None
    coefficients, baseline = fit
    return CoxModel(agreed.times, coefficients / agreed.spread, agreed.centre, baseline)


def calibrate(session: Session, left_out: int) -> messages.Calibration:
    """Fit a proportional hazards model to out-of-fold risks of the ensembles; a slope of 0 if no fit exists.

    Parameters
    ----------
    session : Session
    left_out : int
        Fold to leave out; 0 for none.
    """
    request = messages.Coefficients(np.zeros(1), True, left_out, 0.0, 1.0)
    sums = session.sum(BoostSite.sum_risks, request)
    centre = sums.total / sums.n_patients
    spread = float(np.sqrt(max(0.0, sums.squares / sums.n_patients - centre**2)))
    if not spread > SMALLEST_SPREAD:
        return messages.Calibration(0.0, centre, 1.0, np.zeros(0))
    fit = _maximise(session, 1, 0.0, lambda candidate: messages.Coefficients(candidate, True, left_out, centre, spread))
    if fit is None:
        return messages.Calibration(0.0, centre, spread, np.zeros(0))
    coefficients, baseline = fit
    return messages.Calibration(float(coefficients[0]), centre, spread, baseline)


def _maximise(
    session: Session, n_covariates: int, ridge: float, ask_at: Callable[[Floats], messages.Coefficients]
) -> tuple[Floats, Floats] | None:
    """Return coefficients and the cumulative baseline hazard, by Newton-Raphson on sums over sites."""
    summed = BoostSite.sum_hazards
    of_events, of_risk, of_rows = (session.rounding(summed, name) for name in ("event_sum", "risk", "risk_sum"))

    def evaluate(candidate: Floats) -> Likelihood:
        request = ask_at(candidate)
        sums = session.sum(BoostSite.sum_hazards, request)
        terms, by_time = sum_terms(_tables(sums)), Sums(sums.risk_sum, np.zeros_like(sums.risk_sum))
        curvature = messages.Curvature(**messages.fields_of(request), hazard=terms.first)
        moments = session.sum(BoostSite.sum_moments, curvature).moments
        value = float(sums.event_sum @ candidate) - float(terms.log.sum())
        slope, information = gradient(sums.event_sum, by_time, terms), moments - squared_means(by_time, terms)
        # Derivatives of the value, and of the gradient, by the sums over risk sets are increments of the hazard.
        weight = float(terms.first.sum())
        return Likelihood(value, slope, information, weight * of_risk, of_events + weight * of_rows)

    fit = maximise(evaluate, np.zeros(n_covariates), ridge)
    if not fit.converged:
        return None
    at_end = _tables(session.sum(BoostSite.sum_hazards, ask_at(fit.coefficients)))
    return fit.coefficients, np.cumsum(sum_terms(at_end).first)


def _tables(sums: messages.Hazards) -> Tables:
    return Tables(sums.events, sums.events, sums.risk, np.zeros_like(sums.risk))
