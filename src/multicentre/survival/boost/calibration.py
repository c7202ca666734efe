"""Proportional hazards from sums over sites: on the columns, as a candidate, and on risks, to recalibrate curves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.session import Session
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.boost import messages as sent
from multicentre.survival.boost.site import BoostSite
from multicentre.survival.kernels.cox import Likelihood, gradient, maximise, squared_means, sum_terms
from multicentre.survival.kernels.risk_sets import Sums, Tables
from multicentre.survival.models import CoxModel

Floats = NDArray[np.float64]
RIDGE = 1.0
SMALLEST_SPREAD = 1e-9


def fit_columns(session: Session, agreed: Agreed) -> CoxModel | None:
    """Return proportional hazards of all patients who are not held out, by sums; None without a finite maximum.

    Breslow's partial likelihood at the times of the grid, with a ridge of 1 on standardised columns: that of the pooled
    patients, however they are split.
    """
    found = _fit(session, len(agreed.columns), RIDGE, lambda tried: sent.Coefficients(tried, False, 0, 0.0, 1.0))
    if found is None:
        return None
    coefficients, baseline = found
    return CoxModel(agreed.times, coefficients / agreed.spread, agreed.centre, baseline)


def calibrate(session: Session, left_out: int) -> sent.Calibration:
    """Return proportional hazards on the ensembles' risks of patients whom they did not see; a slope of 0 for none.

    Parameters
    ----------
    session : Session
    left_out : int
        Fold whose patients are left out; 0 for none.
    """
    ask = sent.Coefficients(np.zeros(1), True, left_out, 0.0, 1.0)
    sums = session.sum(BoostSite.sum_risks, ask)
    centre = sums.total / sums.n_patients
    spread = float(np.sqrt(max(0.0, sums.squares / sums.n_patients - centre**2)))
    if not spread > SMALLEST_SPREAD:
        return sent.Calibration(0.0, centre, 1.0, np.zeros(0))
    found = _fit(session, 1, 0.0, lambda tried: sent.Coefficients(tried, True, left_out, centre, spread))
    if found is None:
        return sent.Calibration(0.0, centre, spread, np.zeros(0))
    coefficients, baseline = found
    return sent.Calibration(float(coefficients[0]), centre, spread, baseline)


def _fit(
    session: Session, n_covariates: int, ridge: float, ask_at: Callable[[Floats], sent.Coefficients]
) -> tuple[Floats, Floats] | None:
    """Return coefficients and the baseline's cumulative hazard, by Newton and Raphson on sums."""

    def evaluate(tried: Floats) -> Likelihood:
        ask = ask_at(tried)
        sums = session.sum(BoostSite.sum_hazards, ask)
        terms, by_time = sum_terms(_tables(sums)), Sums(sums.risk_sum, np.zeros_like(sums.risk_sum))
        curvature = sent.Curvature(ask.coefficients, ask.on_risks, ask.left_out, ask.centre, ask.spread, terms.first)
        moments = session.sum(BoostSite.sum_moments, curvature).moments
        value = float(sums.event_sum @ tried) - float(terms.log.sum())
        return Likelihood(value, gradient(sums.event_sum, by_time, terms), moments - squared_means(by_time, terms))

    found = maximise(evaluate, np.zeros(n_covariates), ridge)
    if not found.converged:
        return None
    at_end = _tables(session.sum(BoostSite.sum_hazards, ask_at(found.coefficients)))
    return found.coefficients, np.cumsum(sum_terms(at_end).first)


def _tables(sums: sent.Hazards) -> Tables:
    return Tables(sums.events, sums.events, sums.risk, np.zeros_like(sums.risk))
