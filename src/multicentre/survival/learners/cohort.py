"""Weighted patients sorted by time, with Breslow's partial likelihood and baseline."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.messages import Patients, Prepared, flatten_rare
from multicentre.survival.agreement.sketch import public_times, public_values
from multicentre.survival.fitted_models.cox import LARGEST, CoxModel
from multicentre.survival.kernels.partial_likelihood import hazard_ratios, maximise, partial_likelihood, sum_terms
from multicentre.survival.kernels.risk_sets import RiskSets, Ties
from multicentre.survival.times import joined_bins

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Cohort:
    """Patients sorted from the latest time to the earliest, so that each risk set is a prefix of the cohort.

    Parameters
    ----------
    rows : array of shape (n, d)
    time : array of shape (n,)
        Times in decreasing order.
    happened : array of shape (n,)
        Flags of patients whose time is that of an event.
    weights : array of shape (n,)
        Positive weights.

    Examples
    --------
    >>> cohort = Cohort.of(np.zeros((3, 1)), np.array([1.0, 2.0, 2.0]), np.array([True, True, False]), np.ones(3))
    >>> cohort.time.tolist(), cohort.last.tolist()
    ([2.0, 2.0, 1.0], [1, 1, 2])
    >>> cohort.baseline(np.zeros(3), np.array([0.5, 1.0, 4.0])).round(4).tolist()
    [0.0, 0.3333, 0.8333]
    """

    rows: Floats
    time: Floats
    happened: Flags
    weights: Floats

    @classmethod
    def of(cls, rows: Floats, time: Floats, happened: Flags, weights: Floats) -> Self:
        """Sort patients into a cohort."""
        order = np.argsort(-time, kind="stable")
        return cls(rows[order], time[order], happened[order], weights[order])

    def __len__(self) -> int:
        return len(self.time)

    @property
    def n_events(self) -> int:
        """Number of patients with an event."""
        return int(self.happened.sum())

    @property
    def last(self) -> Integers:
        """Place of the last patient with the same time, shape (n,), which ends the patient's risk set."""
        return np.searchsorted(-self.time, -self.time, side="right").astype(np.int64) - 1

    def take(self, places: Integers) -> Self:
        """Return the patients at increasing places."""
        return type(self)(self.rows[places], self.time[places], self.happened[places], self.weights[places])

    def log_likelihood(self, log_risk: Floats) -> float:
        """Return the weighted log partial likelihood (Breslow, 1974), summed over the events.

        Parameters
        ----------
        log_risk : array of shape (n,)
            Log hazard ratio of every patient, in the cohort's order.

        Examples
        --------
        >>> cohort = Cohort.of(np.zeros((2, 1)), np.array([1.0, 2.0]), np.array([True, True]), np.ones(2))
        >>> round(cohort.log_likelihood(np.zeros(2)), 4)
        -0.6931
        """
        at_risk = np.logaddexp.accumulate(log_risk + np.log(self.weights))[self.last] if len(self) else log_risk
        return float((self.weights * (log_risk - at_risk))[self.happened].sum())

    def baseline(self, log_risk: Floats, times: Floats) -> Floats:
        """Return the cumulative hazard (Breslow, 1974) of a log hazard ratio of 0 at increasing times, shape (K,)."""
        at_risk = np.cumsum(self.weights * np.exp(log_risk))[self.last]
        jumps = (self.weights / at_risk)[self.happened][::-1]
        padded = np.concatenate([[0.0], np.cumsum(jumps)])
        return np.asarray(padded[np.searchsorted(self.time[self.happened][::-1], times, side="right")])


def at_shown_times(values: Floats, patients: Patients, start: float) -> Floats:
    """Return curves that depend only on their values at the patients' grouped event times, shape (..., K).

    If patients were grouped by :func:`group_for_travel`, events of neighbouring times share the last of them. A curve
    with a step there would be late for all others. Between two such times it is therefore linear in the number of the
    time. The times of a grid are quantiles of all sites' events, so this is where the events of all sites are. Curves
    of patients who were not grouped are unchanged.

    Parameters
    ----------
    values : array of shape (..., K)
        Survival or cumulative hazard at the times of the grid.
    patients : Patients
    start : float
        Value at time 0.

    Examples
    --------
    >>> from multicentre.data.survival import SurvivalData
    >>> from multicentre.survival.agreement.messages import Prepared
    >>> from multicentre.survival.learners.cohort import group_for_travel
    >>> grid = np.array([1.0, 2.0, 3.0, 4.0])
    >>> agreed = Prepared(("x0",), "", 1, 4.0, 4.0, grid, np.zeros(1), np.ones(1), np.zeros(0), np.array([0, 0]))
    >>> patients = group_for_travel(SurvivalData(np.zeros((4, 1)), grid, np.ones(4)), agreed, 2)
    >>> at_shown_times(np.array([0.1, 0.5, 0.6, 2.0]), patients, 0.0).tolist()
    [0.25, 0.5, 1.25, 2.0]
    """
    if not patients.grouped:
        return values
    ends = np.unique(patients.bins[patients.happened])
    at_knots = np.concatenate([np.full((*values.shape[:-1], 1), start), values[..., ends]], axis=-1)
    if not len(ends):
        return np.repeat(at_knots, values.shape[-1], axis=-1)
    knots = np.append(-1, ends)
    places = np.minimum(np.arange(values.shape[-1]), ends[-1])
    after = np.searchsorted(knots, places)
    fraction = (places - knots[after - 1]) / (knots[after] - knots[after - 1])
    before, later = at_knots[..., after - 1], at_knots[..., after]
    # Clipped, because a rounding error could make a curve rise.
    between = np.clip(before + (later - before) * fraction, np.minimum(before, later), np.maximum(before, later))
    return np.asarray(np.where(fraction == 1.0, later, between), dtype=np.float64)


# Smallest number of events of a Cox model.
MIN_EVENTS = 3


def fit_cox(
    patients: Patients,
    weights: Floats,
    *,
    ridge: float = 1.0,
    ties: Ties = "breslow",
    min_events_leaf: int = MIN_EVENTS,
) -> CoxModel:
    """Fit a Cox model to weighted patients at their event times; the model stores only times of the grid.

    Parameters
    ----------
    patients : Patients
        Columns are standardised by the agreed means and deviations. Times are cut at the horizon.
    weights : array of shape (n,)
        Non-negative weights, scaled to sum to n.
    ridge : float
        Ridge penalty: ``ridge / 2`` times the squared coefficients of standardised columns is subtracted from the
        log-likelihood, as with `alpha` of scikit-survival. With 0, linearly dependent columns share their effect.
    ties : {"breslow", "efron"}
        Handling of events at the same time. With Efron's method, they share their mean weight, as in R's ``coxph``.
    min_events_leaf : int
        Minimum number of events of patients with positive weight.

    Returns
    -------
    CoxModel
        Model with Breslow's baseline at the patients' grouped event times, linear between them. It is empty if there
        are too few events, or the likelihood has no finite maximum.

    References
    ----------
    D. R. Cox (1972), Regression models and life-tables, Journal of the Royal Statistical Society B 34, 187-202.

    Examples
    --------
    >>> from multicentre.data.survival import SurvivalData
    >>> from multicentre.survival.agreement.messages import Prepared
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(200, 1))
    >>> data = SurvivalData(X, rng.exponential(np.exp(-X[:, 0])), np.ones(200))
    >>> agreed = Prepared(("x0",), "", 1, 200.0, 200.0, np.array([0.5, 1.0, 3.0]), np.zeros(1), np.ones(1),
    ...                 np.zeros(0), np.zeros(2, dtype=np.int64))
    >>> fit_cox(Patients(data, agreed), np.ones(200)).coefficients.round(2).tolist()
    [0.91]
    """
    agreed = patients.agreed
    has_event, total = patients.happened & (weights > 0), float(weights.sum())
    if int(has_event.sum()) < max(min_events_leaf, 1) or not np.isfinite(total):
        return CoxModel.empty()
    scaled = weights * (len(weights) / total)
    sets = RiskSets.at_own_times(patients.standardised, patients.time, has_event, scaled)
    with np.errstate(all="ignore"):
        maximum = maximise(
            lambda coefficients: partial_likelihood(sets, coefficients, ties), np.zeros(len(agreed.centre)), ridge
        )
        baseline = _baseline(sets, np.unique(patients.time[has_event]), patients.times, maximum.coefficients)
    is_finite = maximum.converged and np.isfinite(maximum.coefficients).all() and np.isfinite(baseline).all()
    if not is_finite or baseline[-1] > LARGEST:
        return CoxModel.empty()
    grouped_baseline = at_shown_times(baseline, patients, 0.0)
    return CoxModel(
        agreed.times, maximum.coefficients / agreed.spread, agreed.centre, grouped_baseline, patients=len(patients)
    )


def _baseline(sets: RiskSets, times: Floats, grid: Floats, coefficients: Floats) -> Floats:
    """Return Breslow's cumulative hazard at the mean patient, on the grid, shape (K,)."""
    theta, shift = hazard_ratios(sets, coefficients)
    cumulated = np.cumsum(sum_terms(sets.tables(theta, "breslow")).first) * np.exp(-shift)
    return np.concatenate([[0.0], cumulated])[np.searchsorted(times, grid, side="right")]


def group_for_travel(data: SurvivalData, agreed: Prepared, least: int) -> Patients:
    """Group patients so that a model that leaves the site describes no group of fewer than `least` patients.

    Patients of neighbouring times of the grid are moved to one time. At each time 0 or at least `least` patients have
    the event, and 0 or at least `least` leave. If fewer have the event in total, all are censored. Rare values of a
    column are removed (:func:`flatten_rare`).

    Follow-up is cut at the agreed times rounded up to public ones, and values are rounded before a tree splits them. A
    forged agreement therefore discloses neither recorded times nor recorded values.

    Parameters
    ----------
    data : SurvivalData
    agreed : Prepared
    least : int
        Smallest group; with 0 or 1 patients are not grouped.

    Examples
    --------
    >>> import numpy as np
    >>> agreed = Prepared(("x0",), "", 1, 4.0, 4.0, np.arange(1.0, 5.0), np.zeros(1), np.ones(1), np.zeros(0),
    ...                 np.zeros(2, dtype=np.int64))
    >>> data = SurvivalData([[0.0], [0.0], [0.0], [1.0]], np.arange(1.0, 5.0), np.ones(4))
    >>> patients = group_for_travel(data, agreed, 2)
    >>> patients.bins.tolist(), patients.rows.ravel().tolist()
    ([1, 1, 3, 3], [0.0, 0.0, 0.0, 0.0])
    """
    if least <= 1:
        return Patients(data, agreed)
    X = flatten_rare(data.X, least)
    flat = SurvivalData(X, data.time, data.event, columns=data.columns, unit=data.unit)
    patients = Patients(flat, agreed, public_times(agreed.times))
    patients.binned = patients.bin_columns(public_values(X))
    patients.bins, patients.happened = joined_bins(patients.bins, patients.happened, len(agreed.times), least)
    patients.grouped = True
    return patients


def warn_of_constant(n_constant: int, n_models: int, instead: str) -> None:
    """Warn if at least half of the models fitted at single sites are constant.

    Parameters
    ----------
    n_constant, n_models : int
    instead : str
        Methods without this limitation.

    Examples
    --------
    >>> warn_of_constant(1, 3, "FedRSF")
    """
    # A few constant trees only reduce the spread of predictions; from half of them on the model has little information.
    if n_constant and 2 * n_constant >= n_models:
        warnings.warn(
            f"{n_constant} of {n_models} models that sites fitted alone are constant: their predictions are the same "
            "for every patient. A site may have too few patients or events for two leaves of the permitted size. Lower "
            f"min_samples_leaf or min_events_leaf, or use {instead}, which sum over sites.",
            UserWarning,
            stacklevel=5,
        )
