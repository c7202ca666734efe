"""Requests of an evaluation: the model is sent, follow-up is counted, and each score needs one sum.

The protocol consists of:

1. The coordinator sends the model and the times of the evaluation. Each site stores them and computes predictions.
2. Each site returns counts of its patients by time and by prediction. From their sums the coordinator computes the
   censoring curve, and bins of predictions.
3. For each score, the coordinator sends this curve or these bins, and each site returns weighted counts or sums.
4. The coordinator computes the scores from the sums over sites.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, Nothing
from multicentre.core.session import Session
from multicentre.core.steps import Release, Step
from multicentre.core.wire import encode
from multicentre.errors import ConfigurationError
from multicentre.statistics.line import MAX_LINES, Line, LineSums
from multicentre.survival.agreement.site import MAX_TIMES
from multicentre.survival.agreement.sketch import bin_edges
from multicentre.survival.evaluation import messages
from multicentre.survival.evaluation.maths import at_risk, restricted_mean_edges
from multicentre.survival.evaluation.settings import SCORES
from multicentre.survival.evaluation.site import MEAN_BINS, RISK_BINS, EvaluationSite
from multicentre.survival.scores.brier import Censoring

Floats = NDArray[np.float64]
Sums = dict[str, Release]


def hand_out(session: Session, judged: messages.Scored) -> messages.FollowUp:
    """Send the model and the times of the evaluation to every site, and return the sums of follow-up.

    Both requests travel together.

    Raises
    ------
    ConfigurationError
        The resumed run has another model, or other times.
    RefusedByPolicy
        There are more than 256 times, and a site's policy does not permit exact times.
    """

    def request() -> messages.Scored:
        send_judged(session, judged)
        return judged

    def check() -> None:
        if encode(session.once("judged", messages.Scored, request)) != encode(judged):
            raise ConfigurationError(
                "the model must be that of the resumed run; got another model",
                where="model",
                hint="Pass the model of the interrupted run.",
            )

    count = partial(_once, session, "follow_up", EvaluationSite.count_follow_up, Nothing())
    follow_up: messages.FollowUp = session.together([check, count])[1]
    return follow_up


def send_judged(session: Session, judged: messages.Scored) -> None:
    """Send the model and the times to every site; more than 256 times need its permission."""
    is_fine = len(judged.grid) > MAX_TIMES
    step: Step[Any, Any, Any] = EvaluationSite.judge_at_fine_times if is_fine else EvaluationSite.judge
    session.ask(step, judged)


def collect(
    session: Session,
    judged: messages.Scored,
    follow_up: messages.FollowUp,
    horizon: float,
    scores: Sequence[str],
    *,
    within_sites: bool,
    n_bins: int,
    n_groups: int,
    thresholds: Floats,
) -> Sums:
    """Return the sums over sites behind each of the scores, by score, and ``follow_up``.

    Parameters
    ----------
    session : Session
    judged : Scored
        Model and times that the sites received.
    follow_up : FollowUp
        Sums of follow-up, as :func:`hand_out` returns them.
    horizon : float
        Last time of the model's grid.
    scores : sequence of str
        Names from ``SCORES``.
    within_sites : bool
        Count only pairs of patients of the same site.
    n_bins, n_groups : int
        Bins of the predicted restricted mean, and groups of calibration.
    thresholds : array of shape (p,)
        Risks above which patients are treated.
    """
    staying = censoring_of(follow_up, judged.grid).staying
    edges = bin_edges(follow_up.means, restricted_mean_edges(horizon, MEAN_BINS), n_bins)
    pairs: tuple[Step[Any, Any, Any], Message] = (EvaluationSite.count_pairs, messages.ByMean(edges))
    steps = {
        "concordance": (EvaluationSite.count_own_pairs, Nothing()) if within_sites else pairs,
        "brier": (EvaluationSite.sum_errors, messages.CensoringCurve(staying)),
        "auc": (EvaluationSite.count_ranks, messages.CensoringByMean(staying, edges)),
        "calibration": (EvaluationSite.count_groups, messages.ByChance(group_edges(follow_up.chances, n_groups))),
        "net_benefit": (EvaluationSite.sum_benefits, messages.ByThreshold(staying, thresholds)),
    }
    names = [score for score in SCORES if score in scores]
    sums = session.together([partial(_once, session, name, *steps[name]) for name in names])
    return {"follow_up": follow_up, **dict(zip(names, sums, strict=True))}


def fit_lines(session: Session, n_times: int, n_patients: float) -> messages.Lines:
    """Fit observed over expected events, and the calibration slope, at each time of calibration."""
    rounding = n_patients / messages.FIXED
    fits = [[Line(0.0, 1.0, rounding=rounding) for _ in range(n_times)] for _ in range(2)]
    for _ in range(MAX_LINES):
        tried = np.array([[fit.tried for fit in row] for row in fits])
        sums = session.sum(EvaluationSite.sum_lines, messages.AtLines(tried))
        for row, place in np.ndindex(2, n_times):
            parts = (getattr(sums, name)[row, place] for name in ("deviances", "gradients", "informations"))
            deviance, gradient, information = (part / messages.FIXED for part in parts)
            fits[row][place].take(float(deviance), LineSums(gradient, information), intercept_only=row == 0)
        if all(fit.has_ended for row in fits for fit in row):
            break
    lines, errors = (np.array([[getattr(fit, name) for fit in row] for row in fits]) for name in ("result", "errors"))
    return messages.Lines(lines, errors)


def censoring_of(follow_up: messages.FollowUp, grid: Floats) -> Censoring:
    """Return the probability of not being censored, from counts; events come before censorings of the same time."""
    staying = at_risk(follow_up.events, follow_up.censored) - follow_up.events
    return Censoring.from_counts(follow_up.censored[:-1], staying, grid)


def group_edges(chances: Floats, n_groups: int) -> Floats:
    """Return predicted risks that separate groups of about equal size, shape (H, n_groups - 1).

    Examples
    --------
    >>> group_edges(np.full((1, RISK_BINS), 2.0), 4).tolist()
    [[0.25, 0.5, 0.75]]
    """
    cumulated = np.cumsum(chances, axis=1)
    shares = np.arange(1, n_groups) / n_groups
    rows = [np.searchsorted(row, shares * row[-1] - 1e-6) for row in cumulated]
    return np.asarray((np.minimum(rows, RISK_BINS - 1) + 1.0) / RISK_BINS, dtype=np.float64).reshape(len(rows), -1)


def _once(session: Session, name: str, step: Step[Any, Any, Any], request: Message) -> Any:
    return session.once(name, step.releases, lambda: session.sum(step, request))
