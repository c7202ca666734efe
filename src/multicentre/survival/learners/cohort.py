"""Weighted patients in the order of their times, and Breslow's partial likelihood and baseline of them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.survival.agreement.messages import Agreed, Patients, flatten_rare
from multicentre.survival.agreement.sketch import public_times, public_values
from multicentre.survival.kernels.cox import derive, hazard_ratios, maximise, sum_terms
from multicentre.survival.kernels.risk_sets import RiskSets, Ties
from multicentre.survival.models.cox import LARGEST, CoxModel
from multicentre.survival.times import joined_bins

Floats = NDArray[np.float64]

Integers = NDArray[np.int64]

Flags = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Cohort:
    """Patients from the latest time to the earliest, so that a risk set is a beginning of the cohort.

    Parameters
    ----------
    rows : array of shape (n, d)
    time : array of shape (n,)
        Times, none later than the one before.
    happened : array of shape (n,)
        Whether the time is that of an event.
    weights : array of shape (n,)
        Above 0.

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
        """Return patients in any order as a cohort."""
        order = np.argsort(-time, kind="stable")
        return cls(rows[order], time[order], happened[order], weights[order])

    def __len__(self) -> int:
        return len(self.time)

    @property
    def n_events(self) -> int:
        """Patients with an event."""
        return int(self.happened.sum())

    @property
    def last(self) -> Integers:
        """Place of the last patient with the same time, shape (n,): where the patient's risk set ends."""
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


def at_shown_times(baseline: Floats, patients: Patients) -> Floats:
    """Return the cumulative hazard with rises only where the patients are seen to have events, shape (K,).

    Of patients grouped for travel, events of neighbouring times are at one time: what rises between two such times
    rises at the later one.

    Examples
    --------
    >>> from multicentre.data.survival import SurvivalData
    >>> from multicentre.survival.agreement.messages import Agreed
    >>> from multicentre.survival.learners.cohort import group_for_travel
    >>> grid = np.array([1.0, 2.0, 3.0, 4.0])
    >>> agreed = Agreed(("x0",), "", 1, 4.0, 4.0, grid, np.zeros(1), np.ones(1), np.zeros(0), np.array([0, 0]))
    >>> patients = group_for_travel(SurvivalData(np.zeros((4, 1)), grid, np.ones(4)), agreed, 2)
    >>> at_shown_times(np.array([0.25, 0.5, 1.0, 2.0]), patients).tolist()
    [0.0, 0.5, 0.5, 2.0]
    """
    ends = np.unique(patients.bins[patients.happened])
    known = np.concatenate([[0.0], baseline[ends]])
    return np.asarray(known[np.searchsorted(ends, np.arange(len(baseline)), side="right")], dtype=np.float64)


MIN_EVENTS = 3


def fit_cox(
    patients: Patients,
    weights: Floats,
    *,
    ridge: float = 1.0,
    ties: Ties = "breslow",
    min_events_leaf: int = MIN_EVENTS,
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
    min_events_leaf : int
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
    if int(happened.sum()) < max(min_events_leaf, 1) or not np.isfinite(total):
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


def group_for_travel(data: SurvivalData, agreed: Agreed, least: int) -> Patients:
    """Return patients of whom a model that leaves the site shows no group of fewer than `least`.

    Patients of neighbouring times of the grid move to one time, so that at each time at least `least` patients have the
    event, or none, and at least `least` leave, or none. Where fewer have the event in all, nobody has. What only a few
    patients have of a column is left out (:func:`flatten_rare`).

    Follow-up is cut at the agreed times rounded up to public ones, and values are rounded before a tree splits them:
    an agreement that the coordinator made up finds no recorded time and no recorded value.

    Parameters
    ----------
    data : SurvivalData
    agreed : Agreed
    least : int
        0 or 1: the patients as they are.

    Examples
    --------
    >>> import numpy as np
    >>> agreed = Agreed(("x0",), "", 1, 4.0, 4.0, np.arange(1.0, 5.0), np.zeros(1), np.ones(1), np.zeros(0),
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
    return patients


def warn_of_constant(n_constant: int, n_models: int, instead: str) -> None:
    """Warn where at least half of the models that sites fitted alone predict the same for every patient.

    Parameters
    ----------
    n_constant, n_models : int
    instead : str
        Methods without this weakness.

    Examples
    --------
    >>> warn_of_constant(1, 3, "FedRSF")
    """
    # Some constant trees among others only draw predictions together; from half of them on the model says little.
    if n_constant and 2 * n_constant >= n_models:
        warnings.warn(
            f"{n_constant} of {n_models} models that sites fitted alone are constant: they predict the same for every "
            "patient. A site may have too few patients or events for two leaves of the size that may leave it: lower "
            f"min_samples_leaf or min_events_leaf, or use {instead}, which sum over sites.",
            UserWarning,
            stacklevel=5,
        )
