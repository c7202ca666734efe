"""The rounds by which sites fit a logistic regression together: Newton and Raphson on sums, with step halving."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import DataError
from multicentre.federation.rounds import History
from multicentre.federation.session import Session
from multicentre.phenotyping.outcome import messages
from multicentre.phenotyping.outcome.maths import newton_step, objective, standard_deviations
from multicentre.phenotyping.outcome.site import OutcomeSite

Floats = NDArray[np.float64]
# Relative fall of the objective that is treated as rounding error of the sums and does not halve the step.
NOISE = 1e-7


@dataclass(frozen=True)
class Plan:
    """Parameters of the estimator that the rounds use."""

    alpha: float
    max_iter: int
    tol: float


@dataclass(frozen=True)
class Fit:
    """A logistic regression and the sums of its fit.

    Parameters
    ----------
    model : Model
    moments : Moments
        Of the patients of the fit.
    information : array of shape (p, p)
    log_likelihood : float
    history : list of dict
    converged : bool
    """

    model: messages.Model
    moments: messages.Moments
    information: Floats
    log_likelihood: float
    history: History
    converged: bool


def fit_model(session: Session, plan: Plan, *, everyone: bool) -> Fit:
    """Standardise via sums over sites, then maximise the penalised log-likelihood."""
    name = "everyone" if everyone else "training"
    moments = session.once(
        f"moments-{name}",
        messages.Moments,
        lambda: session.sum(OutcomeSite.sum_moments, messages.Among(everyone)),
    )
    check_outcomes(moments)
    centre = moments.total / moments.n_patients
    spread = standard_deviations(moments.total, moments.products, moments.n_patients)
    rounds = session.rounds(plan.max_iter, messages.Ascent, lambda: _start(moments), name=name)
    for _ in rounds:
        before = rounds.state
        request = messages.Model(everyone, before.coefficients + before.share * before.step, centre, spread)
        sums = session.sum(OutcomeSite.sum_derivatives, request)
        rounds.state = _climb(before, request.coefficients, sums, plan.alpha)
        change = float(np.abs(rounds.state.step).max())
        rounds.record(log_likelihood=sums.log_likelihood, change=change, share=before.share)
        if rounds.state.share == 1.0 and change < plan.tol:
            rounds.stop()
    reached = rounds.state
    return Fit(
        model=messages.Model(everyone, reached.coefficients, centre, spread),
        moments=moments,
        information=reached.information,
        log_likelihood=reached.objective - objective(0.0, reached.coefficients, plan.alpha),
        history=rounds.history,
        converged=rounds.stopped,
    )


def check_outcomes(moments: messages.Moments) -> None:
    """Raise DataError unless some patients have the outcome and some have not."""
    if not 0 < moments.n_outcomes < moments.n_patients:
        raise DataError(
            f"{'every' if moments.n_outcomes else 'no'} patient of all sites has the outcome",
            where="outcomes",
            hint="A model of the outcome needs patients with it and patients without; 1 stands for it, 0 for neither.",
        )


def count_held_out(session: Session, fit: Fit) -> messages.ScoreCounts:
    """Count the held-out patients by score, in bins that the sites compute."""
    return session.once("scores", messages.ScoreCounts, lambda: session.sum(OutcomeSite.count_scores, fit.model))


def _start(moments: messages.Moments) -> messages.Ascent:
    n_coefficients = 1 + len(moments.total)
    coefficients = np.zeros(n_coefficients)
    coefficients[0] = np.log(moments.n_outcomes / (moments.n_patients - moments.n_outcomes))
    nothing = np.zeros((n_coefficients, n_coefficients))
    return messages.Ascent(coefficients, np.zeros(n_coefficients), 1.0, -np.inf, nothing, 0.0)


def _climb(before: messages.Ascent, tried: Floats, sums: messages.Sums, alpha: float) -> messages.Ascent:
    """Accept the step if the objective rose, and halve it otherwise; after the loss of a site, accept it."""
    reached = objective(sums.log_likelihood, tried, alpha)
    slack = NOISE * (1.0 + abs(reached))
    if sums.n_patients == before.n_patients and reached < before.objective - slack:
        return messages.Ascent(
            before.coefficients,
            before.step,
            before.share / 2.0,
            before.objective,
            before.information,
            before.n_patients,
        )
    step = newton_step(sums.gradient, sums.information, tried, alpha)
    return messages.Ascent(tried, step, 1.0, reached, sums.information, sums.n_patients)
