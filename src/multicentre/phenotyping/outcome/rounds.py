"""Newton-Raphson rounds of the outcome model, a logistic regression on memberships in phenotypes.

Before the first round:

1. The coordinator sends the phenotypes to every site. Each site fits the memberships of its patients to them and draws
   the held-out patients; both stay at the site.
2. Each site returns the number of its training patients, the number of those with the outcome, and sums of their
   memberships and of products of two memberships. The sums over sites give means and standard deviations.

One round consists of:

1. The coordinator sends the coefficients, means and standard deviations to every site.
2. Each site standardises the memberships of its training patients and returns their number, the log-likelihood, its
   gradient and the information matrix.
3. The coordinator adds up the sites' values. If the penalised log-likelihood fell, the step is halved. Otherwise, and
   after the loss of a site, the coefficients are accepted and the next Newton step is computed.

The rounds stop when all entries of a new Newton step are below ``tol``. If patients are held out, each site then
returns counts of them by score and outcome, from which the coordinator computes the area under the curve. With
``refit=True``, step 2 of the preparation and the rounds are repeated with all patients.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.rounds import History
from multicentre.core.session import Session
from multicentre.errors import DataError
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
    rounding = session.rounding(OutcomeSite.sum_derivatives, "log_likelihood")
    for _ in rounds:
        before = rounds.state
        request = messages.Model(everyone, before.coefficients + before.share * before.step, centre, spread)
        sums = session.sum(OutcomeSite.sum_derivatives, request)
        rounds.state = _climb(before, request.coefficients, sums, plan.alpha, rounding)
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
            "patients must be both with and without the outcome; "
            f"got {'only patients with it' if moments.n_outcomes else 'none with it'}",
            where="outcomes",
            hint="Set outcomes to 1 for patients with the outcome and to 0 for all others.",
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


def _climb(
    before: messages.Ascent, tried: Floats, sums: messages.Sums, alpha: float, rounding: float
) -> messages.Ascent:
    """Accept the step if the objective rose, and halve it otherwise; after the loss of a site, accept it.

    A fall that `rounding`, the largest error of a log-likelihood, can explain is none.
    """
    reached = objective(sums.log_likelihood, tried, alpha)
    slack = NOISE * (1.0 + abs(reached)) + 2.0 * rounding  # of the two that are compared
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
