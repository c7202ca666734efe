"""The weak learner by proportional hazards: a weighted, penalised Cox model of one site's patients."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.survival.agreement.patients import Patients
from multicentre.survival.kernels.cox import derive, hazard_ratios, maximise, sum_terms
from multicentre.survival.kernels.risk_sets import RiskSets, Ties
from multicentre.survival.learners.cohort import at_shown_times
from multicentre.survival.models.cox import LARGEST, CoxModel

Floats = NDArray[np.float64]
MIN_EVENTS = 3


def fit_cox(
    patients: Patients, weights: Floats, *, ridge: float = 1.0, ties: Ties = "breslow", min_events: int = MIN_EVENTS
) -> CoxModel:
    """Fit a Cox model to weighted patients, at the times of their own events; the model holds the grid's times alone.

    Parameters
    ----------
    patients : Patients
        Columns are standardised by the agreed means and deviations. Times are cut at the horizon.
    weights : array of shape (n,)
        Above or equal to 0, on any scale; they are made to sum to n.
    ridge : float
        Half of it times the squared coefficients of standardised columns is taken from the log-likelihood, as
        scikit-survival's `alpha` does. 0 for none: columns that depend on each other then share their effect.
    ties : {"breslow", "efron"}
        Events at one time. With Efron's, they share their mean weight, as in R's ``coxph``.
    min_events : int
        Events of patients with weight, at least.

    Returns
    -------
    CoxModel
        With a baseline by Breslow's estimator, which rises where the patients' events are seen; an empty one where
        events are too few, or no finite maximum was found.

    References
    ----------
    D. R. Cox (1972), Regression models and life-tables, Journal of the Royal Statistical Society B 34, 187-202.

    Examples
    --------
    >>> from multicentre.data.survival import SurvivalData
    >>> from multicentre.survival.agreement.messages import Agreed
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1))
    >>> data = SurvivalData(X, rng.exponential(np.exp(-X[:, 0])), np.ones(200))
    >>> agreed = Agreed(("x0",), "", 1, 200.0, 200.0, np.array([0.5, 1.0, 3.0]), np.zeros(1), np.ones(1),
    ...                 np.zeros(0), np.zeros(2, dtype=np.int64))
    >>> fit_cox(Patients(data, agreed), np.ones(200)).coefficients.round(2).tolist()
    [0.91]
    """
    agreed = patients.agreed
    happened, total = patients.happened & (weights > 0), float(weights.sum())
    if int(happened.sum()) < max(min_events, 1) or not np.isfinite(total):
        return CoxModel.empty()
    scaled = weights * (len(weights) / total)
    sets = RiskSets.at_own_times(patients.standardised, patients.time, happened, scaled)
    with np.errstate(all="ignore"):
        found = maximise(lambda tried: derive(sets, tried, ties), np.zeros(len(agreed.centre)), ridge)
        baseline = _baseline(sets, np.unique(patients.time[happened]), patients.times, found.coefficients)
    whole = found.converged and np.isfinite(found.coefficients).all() and np.isfinite(baseline).all()
    if not whole or baseline[-1] > LARGEST:
        return CoxModel.empty()
    shown = at_shown_times(baseline, patients)
    return CoxModel(agreed.times, found.coefficients / agreed.spread, agreed.centre, shown, patients=len(patients))


def _baseline(sets: RiskSets, times: Floats, grid: Floats, coefficients: Floats) -> Floats:
    """Return Breslow's cumulative hazard at the mean patient, on the grid, shape (K,)."""
    theta, shift = hazard_ratios(sets, coefficients)
    cumulated = np.cumsum(sum_terms(sets.tables(theta, "breslow")).first) * np.exp(-shift)
    return np.concatenate([[0.0], cumulated])[np.searchsorted(times, grid, side="right")]
