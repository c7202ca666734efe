"""Newton-Raphson rounds of the outcome model, a logistic regression on memberships in phenotypes.

Before the first round:

1. The coordinator sends the phenotypes to every site. Each site fits the memberships of its patients to them and draws
   the held-out patients; both stay at the site.
2. Each site returns the number of its training patients, the number of those with the outcome, and sums of their
   memberships and of products of two memberships. The sums over sites give means and standard deviations.

The rounds are those of :mod:`multicentre.likelihood.newton`. Each site standardises the memberships of its training
patients and returns their number, the log-likelihood, its gradient and the information matrix. If patients are held
out, each site then returns counts of them by score and outcome, from which the coordinator computes the area under the
curve. With ``refit=True``, step 2 of the preparation and the rounds are repeated with all patients.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.core.rounds import History
from multicentre.core.session import Session
from multicentre.errors import DataError
from multicentre.likelihood.newton import Derivatives, Problem, maximise
from multicentre.likelihood.separation import Reported
from multicentre.phenotyping.outcome import messages
from multicentre.phenotyping.outcome.maths import newton_step, ridge, standard_deviations
from multicentre.phenotyping.outcome.site import OutcomeSite

Floats = NDArray[np.float64]


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
        lambda: session.sum(OutcomeSite.sum_moments, messages.PatientSubset(everyone)),
    )
    check_outcomes(moments)
    centre = moments.total / moments.n_patients
    spread = standard_deviations(moments.total, moments.products, moments.n_patients)
    problem = OutcomeProblem(session, moments, messages.Model(everyone, np.zeros(0), centre, spread), plan.alpha)
    reached = maximise(session, problem, max_iter=plan.max_iter, tol=plan.tol, name=name)
    return Fit(
        model=replace(problem.model, coefficients=reached.point),
        moments=moments,
        information=reached.last.information,
        log_likelihood=float(reached.last.figures[0]),
        history=reached.history,
        converged=reached.converged,
    )


class OutcomeProblem(Problem):
    """Likelihood of the outcomes by standardised memberships."""

    def __init__(self, session: Session, moments: messages.Moments, model: messages.Model, alpha: float) -> None:
        self.session, self.model, self.alpha = session, model, alpha
        w = 1 + len(moments.total)
        self.start = np.zeros(w)  # the log odds of the outcome
        self.start[0] = np.log(moments.n_outcomes / (moments.n_patients - moments.n_outcomes))
        self.ridge, self.is_penalised = ridge(w, alpha), alpha > 0
        self.reported = Reported(np.eye(w), None, moments.n_patients)  # the estimator warns of separated outcomes
        step = OutcomeSite.sum_derivatives
        self.rounding, self.gradient_rounding = (
            session.rounding(step, name) for name in ("log_likelihood", "gradient")
        )

    def evaluate(self, point: Floats, *, tentative: bool) -> Derivatives:
        """Return the sums of all sites."""
        sums = self.session.sum(OutcomeSite.sum_derivatives, replace(self.model, coefficients=point))
        figures = np.array([sums.log_likelihood])
        return Derivatives(sums.log_likelihood, sums.gradient, sums.information, sums.n_patients, figures)

    def next_step(self, point: Floats, at: Derivatives) -> Floats:
        """Return a Newton step that is cut to a length, 0 in directions without information."""
        return newton_step(at.gradient, at.information, point, self.alpha)


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
