"""Weighted patients in the order of their times, and Breslow's partial likelihood and baseline of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from multicentre.survival.agreement.patients import Patients

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
    >>> from multicentre.survival.learners.travelling import group_for_travel
    >>> grid = np.array([1.0, 2.0, 3.0, 4.0])
    >>> agreed = Agreed(("x0",), "", 1, 4.0, 4.0, grid, np.zeros(1), np.ones(1), np.zeros(0), np.array([0, 0]))
    >>> patients = group_for_travel(SurvivalData(np.zeros((4, 1)), grid, np.ones(4)), agreed, 2)
    >>> at_shown_times(np.array([0.25, 0.5, 1.0, 2.0]), patients).tolist()
    [0.0, 0.5, 0.5, 2.0]
    """
    ends = np.unique(patients.bins[patients.happened])
    known = np.concatenate([[0.0], baseline[ends]])
    return np.asarray(known[np.searchsorted(ends, np.arange(len(baseline)), side="right")], dtype=np.float64)
