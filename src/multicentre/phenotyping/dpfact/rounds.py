"""Rounds of DPFact, the federated nonnegative tensor factorisation.

One round consists of:

1. The coordinator sends the current factors to every site, for ``"stat"`` and ``"poisson"`` mode by mode.
2. Each site fits the memberships of its patients, which stay at the site.
3. Each site returns sums over its patients: products and Gram matrices (``"stat"``), ratios (``"poisson"``) or its
   local factors (``"easgd"``, ``"psgd"``).
4. The coordinator computes the next factors from the sums over sites.

The rounds stop when the factors change by less than ``tol``, relatively.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Nothing
from multicentre.core.rounds import Rounds
from multicentre.core.session import Session
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
LARGEST_DENSE = 2**20
# Each step is one call to the sites. More steps bring the subspace closer to the leading one.
SUBSPACE_STEPS = 3
# Multiplicative updates leave zeros at zero, so a start has none.
LEAST_RATE = 1e-6
# Clip of a patient's term, whose counts have length 1. A smaller clip bounds outliers more and distorts more patients.
LARGEST_PRODUCT = 1.0


@dataclass(frozen=True)
class Plan:
    """Settings that stay fixed during a fit.

    Parameters
    ----------
    vocabulary : Vocabulary
    rank : int
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


def find_start(session: Session, plan: Plan) -> messages.Factors:
    """Start from the co-occurrences of codes: one sum, or a few sums of products if there are many codes."""
    sizes = plan.vocabulary.sizes
    widths = list(sizes.values())
    if sum(m * n for i, m in enumerate(widths) for n in widths[:i]) <= LARGEST_DENSE:
        marginals = session.sum(DPFactSite.sum_cooccurrence, Nothing()).marginals
        blocks = cooccurrence.split_marginals(marginals, widths)
    else:
        blocks = _compressed(session, widths, plan)
    return messages.Factors(cooccurrence.start_from_blocks(blocks, sizes, plan.rank, plan.seed))


def _compressed(session: Session, sizes: list[int], plan: Plan) -> cooccurrence.Blocks:
    generator = np.random.default_rng(plan.seed)
    width = min(plan.rank + cooccurrence.OVERSAMPLING, sum(sizes))
    directions = generator.standard_normal((sum(sizes), width))
    for _ in range(SUBSPACE_STEPS):
        basis = np.linalg.qr(directions)[0]
        directions = session.sum(DPFactSite.multiply_cooccurrence, messages.Directions(basis)).products
    return cooccurrence.compress_marginals(basis, directions, sizes)


def draw_start(plan: Plan) -> messages.Factors:
    """Start from random factors."""
    return messages.Factors(draw_factors(plan.vocabulary.sizes, plan.rank, plan.seed))


def begin(session: Session, plan: Plan, start: messages.Factors) -> None:
    """Send the initial factors to the sites."""
    session.ask(DPFactSite.begin, messages.Begin(start.factors, plan.seed))


def fit_stat(session: Session, plan: Plan, start: messages.Factors) -> Rounds[messages.Factors]:
    """Fit by exact alternating least squares: products and Gram matrices add up over sites."""

    def turn(factors: dict[str, Floats], number: int) -> tuple[dict[str, Floats], dict[str, float]]:
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
            solved = update_factor(
                products, others, factors[mode], n_sweeps=plan.n_sweeps, nonnegative=plan.nonnegative
            )
            error = squared_error_of_update(squares, products, solved, others)
            factors[mode], updated = normalise_columns(solved)[0], mode
        return factors, {"rmse": float(np.sqrt(max(error, 0.0) / n_entries))}

    return repeat(session, plan, start, turn)


def fit_poisson(session: Session, plan: Plan, start: messages.Factors) -> Rounds[messages.Factors]:
    """Fit the Poisson likelihood by multiplicative updates, whose parts add up over sites."""

    def turn(factors: dict[str, Floats], number: int) -> tuple[dict[str, Floats], dict[str, float]]:
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

    positive = {mode: np.maximum(factor, LEAST_RATE) for mode, factor in start.factors.items()}
    return repeat(session, plan, messages.Factors(positive), turn)


def fit_elastic(session: Session, plan: Plan, start: messages.Factors) -> Rounds[messages.Factors]:
    """Fit by elastic averaging of local fits, each phenotype weighted by the squared length of its memberships."""

    def turn(factors: dict[str, Floats], number: int) -> tuple[dict[str, Floats], dict[str, float]]:
        sparsity = plan.sparsity if number > 1 else 0.0
        request = messages.FitLocally(factors, plan.n_passes, plan.elastic_penalty, sparsity, plan.n_sweeps)
        answer = session.sum(DPFactSite.fit_locally, request)
        moved = {}
        for mode, factor in factors.items():
            mean = elastic.weighted_mean(answer.factors[mode], answer.weights, factor)
            moved[mode] = normalise_columns(elastic.move_to_mean(factor, mean, plan.weight))[0]
        return moved, {}

    return repeat(session, plan, start, turn)


def fit_passes(session: Session, plan: Plan, start: messages.Factors) -> Rounds[messages.Factors]:
    """Fit by passes over patients, each clipped, one factor after the other; the means of the sites.

    The learning rate is ``R / I_t``, with the mean number of patients of a site, over the number of the round.
    """

    def turn(factors: dict[str, Floats], number: int) -> tuple[dict[str, Floats], dict[str, float]]:
        n_sites = len(session.sites)
        step = min(1.0, plan.rank / plan.site_size) / number
        for mode in factors:
            request = messages.PassPatients(factors, mode, plan.n_sweeps, plan.n_passes, step, LARGEST_PRODUCT, number)
            total = session.sum(DPFactSite.pass_patients, request).factor
            factors[mode] = normalise_columns(total / n_sites)[0]
        return factors, {}

    return repeat(session, plan, start, turn)


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


Turn = Callable[[dict[str, Floats], int], tuple[dict[str, Floats], dict[str, float]]]


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
        Returns the next factors and the metrics of the round, from the factors and the number of the round.
    refit : bool, default True
        Compute the errors of a round with memberships that are fitted to its factors, instead of the current ones.
    part : type, default DPFactSite
        Site part of the session.
    """
    rounds = session.rounds(plan.max_iter, messages.Factors, lambda: start, name="rounds")
    for number in rounds:
        before = rounds.state.factors
        after, metrics = turn(dict(before), number)
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
