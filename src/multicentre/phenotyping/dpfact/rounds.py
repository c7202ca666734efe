"""Rounds of DPFact, the federated nonnegative tensor factorisation.

One round consists of:

1. The coordinator sends the current factors to every site, for ``"stat"`` and ``"poisson"`` mode by mode.
2. Each site fits the memberships of its patients, which stay at the site.
3. Each site returns sums over its patients: products and Gram matrices (``"stat"``), ratios (``"poisson"``) or its
   local factors (``"easgd"``, ``"psgd"``).
4. The coordinator computes the next factors from the sums over sites.

The rounds stop when the factors change by less than ``tol``, relatively.

With several starts, a few rounds are run from each. The start whose loss is lowest after them is continued.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Nothing
from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
from multicentre.core.tie_breaking import is_less
from multicentre.errors import DisclosureRefused, RefusedByPolicy
from multicentre.phenotyping.agreement import Vocabulary
from multicentre.phenotyping.dpfact import messages
from multicentre.phenotyping.dpfact.maths import cooccurrence
from multicentre.phenotyping.dpfact.maths import local as elastic
from multicentre.phenotyping.dpfact.site import DPFactSite
from multicentre.phenotyping.fitted.fit_sums import MEMBER_SHARE, FitSums
from multicentre.phenotyping.kernels.factors import (
    draw_factors,
    normalise_columns,
    relative_change,
    squared_error_of_update,
    update_factor,
)
from multicentre.phenotyping.kernels.hals import hadamard_gram
from multicentre.phenotyping.kernels.poisson import column_totals, multiply_rows

Floats = NDArray[np.float64]
# Pairs of codes up to which the sum of co-occurrences is sent whole (8 MiB); above, only its leading subspace is sent.
MAX_DENSE = 2**20
# Each step is one call to the sites. More steps bring the subspace closer to the leading one.
SUBSPACE_STEPS = 3
# Multiplicative updates leave zeros at zero, so a start has none.
MIN_RATE = 1e-6
# Clip of a patient's term, whose counts have length 1. A smaller clip bounds outliers more and distorts more patients.
MAX_PRODUCT = 1.0
# Rounds from every start before one is chosen. Fewer tell less of the final error, more cost more than they lower it
# (`benchmarks/phenotype_starts.py --trials`).
N_TRIAL_ROUNDS = 5


Turned = tuple[dict[str, Floats], dict[str, float]]


# Least decrease per iteration of the factorisation of co-occurrences. The rounds improve the factors faster than more
# iterations would.
START_TOL = 1e-4


@dataclass(frozen=True)
class Plan:
    """Settings that stay fixed during a fit.

    Parameters
    ----------
    vocabulary : Vocabulary
    rank : int
    n_starts : int
        Factorisations of the co-occurrences, and starts that are tried.
    max_iter : int
        The paper's ``E``.
    tol : float
        Relative change of the released factors below which the rounds end.
    n_passes : int
        The paper's ``tau``.
    n_sweeps : int
    sparsity : float
        ``mu_0``.
    elastic_penalty : float
        Elastic term.
    weight : float
        ``alpha``.
    nonnegative : bool
    track_errors : bool
        Request the errors of every round.
    poisson : bool
        True if memberships are fitted under the Poisson likelihood.
    site_size : float
        Mean number of patients of a site.
    seed : int
    """

    vocabulary: Vocabulary
    rank: int
    n_starts: int
    max_iter: int
    tol: float
    n_passes: int
    n_sweeps: int
    sparsity: float
    elastic_penalty: float
    weight: float
    nonnegative: bool
    track_errors: bool
    poisson: bool
    site_size: float
    seed: int


# Runs a round: session, plan, factors and number of the round to the next factors and the metrics.
Turn = Callable[[Session, Plan, dict[str, Floats], int], Turned]


def find_start(session: Session, plan: Plan) -> messages.Factors:
    """Start from the co-occurrences of codes: one sum, or a few sums of products if there are many codes."""
    sizes, n_starts = plan.vocabulary.sizes, plan.n_starts
    widths = list(sizes.values())
    if sum(m * n for i, m in enumerate(widths) for n in widths[:i]) <= MAX_DENSE:
        marginals = session.sum(DPFactSite.sum_cooccurrence, Nothing()).marginals
        blocks = cooccurrence.split_marginals(marginals, widths)
    else:
        # With many codes each factorisation takes the time of several rounds at the sites, which try other starts.
        blocks, n_starts = _compressed(session, widths, plan), 1
    factors = cooccurrence.start_from_blocks(blocks, sizes, plan.rank, plan.seed, n_starts=n_starts, tol=START_TOL)
    return messages.Factors(factors)


def _compressed(session: Session, sizes: list[int], plan: Plan) -> cooccurrence.Blocks:
    generator = np.random.default_rng(plan.seed)
    width = min(plan.rank + cooccurrence.OVERSAMPLING, sum(sizes))
    directions = generator.standard_normal((sum(sizes), width))
    for _ in range(SUBSPACE_STEPS):
        basis = np.linalg.qr(directions)[0]
        directions = session.sum(DPFactSite.multiply_cooccurrence, messages.Directions(basis)).products
    return cooccurrence.compress_marginals(basis, directions, sizes)


def draw_start(plan: Plan, number: int = 0) -> messages.Factors:
    """Start from random factors: those of the seed if the number is 0, further ones otherwise."""
    seed = [plan.seed, number] if number else plan.seed
    return messages.Factors(draw_factors(plan.vocabulary.sizes, plan.rank, seed))


def begin(session: Session, plan: Plan, start: messages.Factors) -> messages.Factors:
    """Send the initial factors to the sites; return them."""
    factors = start.factors
    if plan.poisson:
        factors = {mode: np.maximum(factor, MIN_RATE) for mode, factor in factors.items()}
    session.ask(DPFactSite.begin, messages.Begin(factors, plan.seed))
    return messages.Factors(factors)


def choose_start(session: Session, plan: Plan, turn: Turn, *, from_cooccurrence: bool) -> Rounds[messages.Trial]:
    """Run a few rounds from every start; the state of the result holds the factors with the lowest loss.

    The first start is that of the co-occurrences, if requested; the others are random. The loss of a trial is a
    function of sums over sites that every round releases, or of one more sum if the solver has no loss. A group lasso
    is left out of the trials, because a phenotype that it switches off does not return.
    """
    trial_plan = replace(plan, sparsity=0.0)
    trials = session.rounds(plan.n_starts, messages.Trial, lambda: messages.Trial({}, 0.0), name="starts")
    for number in trials:
        random_number = number - 1 - from_cooccurrence
        metrics: dict[str, float] = {}
        start = find_start(session, plan) if random_number < 0 else draw_start(plan, random_number)
        factors = begin(session, plan, start).factors
        for round_number in range(1, N_TRIAL_ROUNDS + 1):
            before = factors
            factors, metrics = turn(session, trial_plan, dict(before), round_number)
            if relative_change(factors, before) < plan.tol:
                break
        loss = next(iter(metrics.values()), None)
        if loss is None:
            sums = ask_for_errors(session, trial_plan, factors)
            loss = float(np.sqrt(max(sums.error, 0.0) / sums.n_entries))
        trials.record(loss=loss, random=float(random_number >= 0), rounds=round_number)
        if not trials.state.factors or is_less(loss, trials.state.loss):
            trials.state = messages.Trial(factors, loss)
    return trials


def alternate(session: Session, plan: Plan, factors: dict[str, Floats], number: int) -> Turned:
    """Run a round of exact alternating least squares: products and Gram matrices add up over sites."""
    gram, error, squares, n_entries = np.eye(plan.rank), 0.0, 0.0, 1.0
    updated = list(factors)[-1]
    for place, mode in enumerate(factors):
        request = messages.Update(updated, factors[updated], mode)
        if place == 0:
            answer = session.sum(DPFactSite.fit_memberships, _with_fit(request, plan, number))
            gram, products = answer.gram, answer.products
            squares, n_entries = answer.squares, answer.n_entries
        else:
            products = session.sum(DPFactSite.sum_products, request).products
        others = gram * hadamard_gram([factor for other, factor in factors.items() if other != mode])
        solved = update_factor(products, others, factors[mode], n_sweeps=plan.n_sweeps, nonnegative=plan.nonnegative)
        error = squared_error_of_update(squares, products, solved, others)
        factors[mode], updated = normalise_columns(solved)[0], mode
    return factors, {"rmse": float(np.sqrt(max(error, 0.0) / n_entries))}


def multiply_rates(session: Session, plan: Plan, factors: dict[str, Floats], number: int) -> Turned:
    """Run a round of multiplicative updates of the Poisson likelihood, whose parts add up over sites."""
    totals, loss, updated = np.ones(plan.rank), 0.0, list(factors)[-1]
    for place, mode in enumerate(factors):
        request = messages.Update(updated, factors[updated], mode)
        if place == 0:
            answer = session.sum(DPFactSite.fit_rates, _with_fit(request, plan, number))
            products, totals = answer.products, answer.totals
            loss = answer.loss / answer.n_entries
        else:
            products = session.sum(DPFactSite.sum_ratios, request).products
        others = totals * column_totals([factor for other, factor in factors.items() if other != mode])
        factors[mode], updated = multiply_rows(factors[mode], products, others), mode
    return factors, {"loss": loss}


def average(session: Session, plan: Plan, factors: dict[str, Floats], number: int) -> Turned:
    """Run a round of elastic averaging of local fits, each phenotype weighted by its memberships' squared length."""
    sparsity = plan.sparsity if number > 1 else 0.0
    request = messages.FitLocally(factors, plan.n_passes, plan.elastic_penalty, sparsity, plan.n_sweeps)
    answer = session.sum(DPFactSite.fit_locally, request)
    moved = {}
    for mode, factor in factors.items():
        mean = elastic.weighted_mean(answer.factors[mode], answer.weights, factor)
        moved[mode] = normalise_columns(elastic.move_to_mean(factor, mean, plan.weight))[0]
    return moved, {}


def descend(session: Session, plan: Plan, factors: dict[str, Floats], number: int) -> Turned:
    """Run a round of passes over patients, each clipped, one factor after the other; the means of the sites.

    The learning rate is ``R / I_t``, with the mean number of patients of a site, over the number of the round.
    """
    n_sites = len(session.sites)
    step = min(1.0, plan.rank / plan.site_size) / number
    for mode in factors:
        request = messages.PassPatients(factors, mode, plan.n_sweeps, plan.n_passes, step, MAX_PRODUCT, number)
        total = session.sum(DPFactSite.pass_patients, request).factor
        factors[mode] = normalise_columns(total / n_sites)[0]
    return factors, {}


TURNS: dict[str, Turn] = {"stat": alternate, "poisson": multiply_rates, "easgd": average, "psgd": descend}


def ask_for_rare_codes(session: Session) -> messages.RareCodes:
    """Return entries and codes that the list of codes leaves out; zeros if a site refuses the counts."""
    try:
        with session.handling_refusals():
            return session.sum(DPFactSite.count_rare_codes, Nothing())
    except (RefusedByPolicy, DisclosureRefused):
        return messages.RareCodes(0.0, 0.0, 0.0, 0.0, patients=0)


def ask_for_errors(
    session: Session,
    plan: Plan,
    factors: Mapping[str, Floats],
    *,
    refit: bool = True,
    keep: bool = False,
    part: type[DPFactSite] = DPFactSite,
) -> FitSums:
    """Return the errors of the fit and the sums of the memberships."""
    request = messages.Final(
        factors=dict(factors),
        refit=refit,
        keep=keep,
        n_sweeps=2 * plan.n_sweeps,
        sparsity=plan.sparsity,
        threshold=MEMBER_SHARE,
        poisson=plan.poisson,
    )
    return session.sum(part.sum_errors, request)


def repeat(
    session: Session,
    plan: Plan,
    start: messages.Factors,
    turn: Turn,
    *,
    refit: bool = True,
    part: type[DPFactSite] = DPFactSite,
) -> Rounds[messages.Factors]:
    """Run a turn per round until the factors converge.

    Parameters
    ----------
    session : Session
    plan : Plan
    start : Factors
    turn : callable
        Runs one round.
    refit : bool, default True
        Compute the errors of a round with memberships that are fitted to its factors, instead of the current ones.
    part : type, default DPFactSite
        Site part of the session.
    """
    rounds = session.rounds(plan.max_iter, messages.Factors, lambda: start, name="rounds")
    for number in rounds:
        before = rounds.state.factors
        after, metrics = turn(session, plan, dict(before), number)
        rounds.state = messages.Factors(after)
        rounds.record(**metrics, change=relative_change(after, before))
        if plan.track_errors:
            sums = ask_for_errors(session, plan, after, refit=refit, part=part)
            rounds.record(
                rmse=np.sqrt(max(sums.error, 0.0) / sums.n_entries),
                rmse_at_entries=np.sqrt(sums.error_at_entries / sums.n_entries),
            )
        if rounds.metrics["change"] < plan.tol:
            rounds.stop()
    return rounds


def _with_fit(request: messages.Update, plan: Plan, number: int) -> messages.UpdateAndFit:
    return messages.UpdateAndFit(
        request.updated,
        request.factor,
        request.wanted,
        n_sweeps=plan.n_sweeps,
        sparsity=plan.sparsity if number > 1 else 0.0,
        nonnegative=plan.nonnegative,
    )
