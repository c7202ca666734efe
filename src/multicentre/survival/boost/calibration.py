"""Proportional hazards model from sums over sites, on the columns (a candidate) or on risks (recalibration)."""

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
# Penalty on the coefficients of standardised columns.
RIDGE = 1.0
# Risks with a smaller standard deviation are treated as constant.
SMALLEST_SPREAD = 1e-9


def fit_columns(session: Session, agreed: Agreed) -> CoxModel | None:
    """Fit a proportional hazards model to all patients who are not held out; None if no finite maximum exists.

    The model maximises Breslow's partial likelihood at the times of the grid, with a ridge penalty of 1 on standardised
    columns. It is computed via sums, so it equals the fit of the pooled patients for every split over sites.
    """
    fit = _fit(session, len(agreed.columns), RIDGE, lambda candidate: sent.Coefficients(candidate, False, 0, 0.0, 1.0))
    if fit is None:
        return None
    coefficients, baseline = fit
    return CoxModel(agreed.times, coefficients / agreed.spread, agreed.centre, baseline)


def calibrate(session: Session, left_out: int) -> sent.Calibration:
    """Fit a proportional hazards model to out-of-fold risks of the ensembles; a slope of 0 if no fit exists.

    Parameters
    ----------
    session : Session
    left_out : int
        Fold to leave out; 0 for none.
    """
    ask = sent.Coefficients(np.zeros(1), True, left_out, 0.0, 1.0)
    sums = session.sum(BoostSite.sum_risks, ask)
    centre = sums.total / sums.n_patients
    spread = float(np.sqrt(max(0.0, sums.squares / sums.n_patients - centre**2)))
    if not spread > SMALLEST_SPREAD:
        return sent.Calibration(0.0, centre, 1.0, np.zeros(0))
    fit = _fit(session, 1, 0.0, lambda candidate: sent.Coefficients(candidate, True, left_out, centre, spread))
    if fit is None:
        return sent.Calibration(0.0, centre, spread, np.zeros(0))
    coefficients, baseline = fit
    return sent.Calibration(float(coefficients[0]), centre, spread, baseline)


def _fit(
    session: Session, n_covariates: int, ridge: float, ask_at: Callable[[Floats], sent.Coefficients]
) -> tuple[Floats, Floats] | None:
    """Return coefficients and the cumulative baseline hazard, by Newton-Raphson on sums over sites."""

    def evaluate(candidate: Floats) -> Likelihood:
        ask = ask_at(candidate)
        sums = session.sum(BoostSite.sum_hazards, ask)
        terms, by_time = sum_terms(_tables(sums)), Sums(sums.risk_sum, np.zeros_like(sums.risk_sum))
        curvature = sent.Curvature(ask.coefficients, ask.on_risks, ask.left_out, ask.centre, ask.spread, terms.first)
        moments = session.sum(BoostSite.sum_moments, curvature).moments
        value = float(sums.event_sum @ candidate) - float(terms.log.sum())
        return Likelihood(value, gradient(sums.event_sum, by_time, terms), moments - squared_means(by_time, terms))

    fit = maximise(evaluate, np.zeros(n_covariates), ridge)
    if not fit.converged:
        return None
    at_end = _tables(session.sum(BoostSite.sum_hazards, ask_at(fit.coefficients)))
    return fit.coefficients, np.cumsum(sum_terms(at_end).first)


def _tables(sums: sent.Hazards) -> Tables:
    return Tables(sums.events, sums.events, sums.risk, np.zeros_like(sums.risk))
