"""What is summed once the coefficients are known: the baseline, robust errors, and a test of proportional hazards."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.coordinator import Federation
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.cox import messages as sent
from multicentre.survival.cox.maths.inference import TimeTransform, transform_times
from multicentre.survival.cox.maths.residuals import risk_means
from multicentre.survival.cox.rounds import Fit
from multicentre.survival.cox.site import CoxSite
from multicentre.survival.cox.totals import Plan
from multicentre.survival.kernels.cox import sum_terms
from multicentre.survival.models.base import MOST_TIMES
from multicentre.survival.models.cox import CoxModel
from multicentre.survival.times.curves import hazard

Floats = NDArray[np.float64]


def make_model(federation: Federation, agreed: Agreed, fit: Fit, plan: Plan) -> CoxModel:
    """Return the model with one baseline for all sites, on the agreed times.

    With baselines of the sites' own in the fit, the sites count once more, on the grid. Of exact times at most 4096 are
    kept, as many patients apart as the events allow.
    """
    if plan.times == "stratified":
        at = sent.AtShared(fit.coefficients, plan.ties == "efron", 0.0)
        totals = federation.once("baseline", sent.Baseline, lambda: federation.sum(CoxSite.sum_baseline, at))
        increments, shift = hazard(totals.events, totals.risk), 0.0
    else:
        increments, shift = sum_terms(fit.totals.tables).first, fit.totals.shift
    baseline = np.cumsum(increments) * np.exp(-shift)
    kept = np.unique(np.linspace(0, len(baseline) - 1, min(len(baseline), MOST_TIMES)).round().astype(np.int64))
    coefficients = fit.coefficients / agreed.spread
    return CoxModel(
        agreed.times[kept], coefficients, agreed.centre, baseline[kept], patients=int(fit.totals.n_patients)
    )


def sum_scores(federation: Federation, agreed: Agreed, fit: Fit, plan: Plan) -> Floats:
    """Return the sum over all patients of their score residuals' products, shape (d, d)."""
    if plan.times == "stratified":
        ask = sent.At(fit.coefficients, plan.ties == "efron")
        return federation.once("scores", sent.Products, lambda: federation.sum(CoxSite.sum_own_scores, ask)).products
    means = _means(agreed, fit, plan, np.zeros(len(agreed.times)))
    if plan.times == "exact":
        exact = federation.once("scores", sent.ExactProducts, lambda: federation.sum(CoxSite.sum_exact_scores, means))
        return exact.products
    return federation.once("scores", sent.Products, lambda: federation.sum(CoxSite.sum_scores, means)).products


def sum_residuals(
    federation: Federation, agreed: Agreed, fit: Fit, plan: Plan, transform: TimeTransform
) -> sent.Residuals:
    """Return sums of Schoenfeld's residuals over the events of all sites, by a transform of their times."""
    efron = plan.ties == "efron"
    nowhere = sent.AtShared(np.zeros(len(fit.coefficients)), efron, 0.0)
    counts: sent.ExactRisk | sent.Baseline
    if plan.times == "exact":
        counts = federation.sum(CoxSite.sum_exact_risk, nowhere)
    else:
        counts = federation.sum(CoxSite.sum_baseline, nowhere)
    values = transform_times(agreed.times, counts.events, counts.risk, transform)
    if plan.times == "stratified":
        return federation.sum(CoxSite.sum_own_residuals, sent.Transform(fit.coefficients, efron, values))
    means = _means(agreed, fit, plan, values)
    if plan.times == "exact":
        return federation.sum(CoxSite.sum_exact_residuals, means)
    return federation.sum(CoxSite.sum_residuals, means)


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
