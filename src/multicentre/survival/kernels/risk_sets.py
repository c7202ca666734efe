"""Sums over risk sets of one site's patients, for the Cox partial likelihood.

Notation: n patients, d columns, K times. At a time, S0 and S1 are the sums of theta and of theta x over those at risk,
where theta is a patient's weight times hazard ratio. E0 and E1 are the same sums over those with the event at that
time. No array has K times d squared elements.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]
Ties = Literal["breslow", "efron"]
# Number of times or patients per block, which limits memory.
CHUNK = 4096


@dataclass(frozen=True)
class Tables:
    """Sums by time, over the patients of one site or of all, each of shape (K,).

    Parameters
    ----------
    events : array
        Weighted number of events, D.
    n_events : array
        Number of events, m.
    risk : array
        S0.
    tied : array
        E0; zeros with Breslow's ties, which do not use it.
    """

    events: Floats
    n_events: Floats
    risk: Floats
    tied: Floats


@dataclass(frozen=True)
class Sums:
    """Sums of columns by time, each of shape (K, d).

    Parameters
    ----------
    risk : array
        S1.
    tied : array
        E1; zeros with Breslow's ties.
    """

    risk: Floats
    tied: Floats


class RiskSets:
    """Patients by the number of times at which they are at risk.

    Parameters
    ----------
    rows : array of shape (n, d)
        Columns, preferably standardised.
    reached : array of shape (n,)
        Number of times, from 0 to K, at which the patient is at risk, starting with the first.
    happened : array of shape (n,)
        Flags of patients with the event, which is at the last time at which they are at risk.
    n_times : int
        K.
    weights : array of shape (n,), optional
        1 by default.
    offset : array of shape (n,), optional
        Addition to each patient's log hazard ratio; 0 by default.

    Examples
    --------
    >>> patients = RiskSets(np.array([[1.0], [3.0]]), np.array([2, 1]), np.array([True, True]), 2)
    >>> theta = np.array([1.0, 2.0])
    >>> patients.at_risk(theta).tolist(), patients.sums(theta, "breslow").risk.tolist(), patients.events.tolist()
    ([3.0, 1.0], [[7.0], [1.0]], [1.0, 1.0])
    """

    def __init__(
        self,
        rows: Floats,
        reached: Integers,
        happened: Flags,
        n_times: int,
        weights: Floats | None = None,
        offset: Floats | None = None,
    ) -> None:
        self.rows = np.ascontiguousarray(rows)
        self.reached, self.happened, self.n_times = reached, happened, n_times
        self.weights = np.ones(len(rows)) if weights is None else weights
        self.offset = np.zeros(len(rows)) if offset is None else offset
        self._everyone = _Groups(reached > 0, reached - 1, n_times)
        self._with_event = _Groups(happened, reached - 1, n_times)
        self.events = self._with_event.add(self.weights)
        self.n_events = self._with_event.add(np.ones(len(rows)))
        self.event_sum = (self.weights * happened) @ self.rows
        self.event_offset = float((self.weights * happened) @ self.offset)

    @classmethod
    def at_own_times(
        cls,
        rows: Floats,
        time: Floats,
        happened: Flags,
        weights: Floats | None = None,
        offset: Floats | None = None,
    ) -> RiskSets:
        """Return the risk sets at the times of the patients' events.

        Examples
        --------
        >>> RiskSets.at_own_times(np.zeros((2, 1)), np.array([5.0, 7.0]), np.array([True, False])).reached.tolist()
        [1, 1]
        """
        times = np.unique(time[happened])
        return cls(rows, np.searchsorted(times, time, side="right"), happened, len(times), weights, offset)

    def tables(self, theta: Floats, ties: Ties) -> Tables:
        """Return the sums by time."""
        tied = self._with_event.add(theta) if ties == "efron" else np.zeros(self.n_times)
        return Tables(self.events, self.n_events, self.at_risk(theta), tied)

    def at_risk(self, theta: Floats) -> Floats:
        """Return S0, shape (K,)."""
        return np.cumsum(self._everyone.add(theta)[::-1])[::-1]

    def sums(self, theta: Floats, ties: Ties) -> Sums:
        """Return the sums of columns by time."""
        blocks = [block for _, block in self.blocks(theta, ties)][::-1]
        if not blocks:
            return Sums(np.zeros((0, self.rows.shape[1])), np.zeros((0, self.rows.shape[1])))
        return Sums(np.concatenate([each.risk for each in blocks]), np.concatenate([each.tied for each in blocks]))

    def blocks(self, theta: Floats, ties: Ties) -> Iterator[tuple[slice, Sums]]:
        """Yield the sums of columns by time in blocks of a few thousand times, from the last to the first."""
        later = np.zeros(self.rows.shape[1])
        for end in range(self.n_times, 0, -CHUNK):
            times = slice(max(end - CHUNK, 0), end)
            leaving = self._everyone.add_rows(theta, self.rows, times)
            risk = np.cumsum(leaving[::-1], axis=0)[::-1] + later
            later = risk[0]
            tied = self._with_event.add_rows(theta, self.rows, times) if ties == "efron" else np.zeros_like(risk)
            yield times, Sums(risk, tied)

    def own_hazards(self, theta: Floats, first: Floats, first_tied: Floats) -> Floats:
        """Return each patient's theta times the baseline's cumulative hazard while at risk, shape (n,).

        Parameters
        ----------
        theta : array of shape (n,)
        first : array of shape (K,)
            Increment of the hazard of those at risk at each time.
        first_tied : array of shape (K,)
            Reduction of that increment for those with the event at the time.
        """
        cumulated = np.concatenate([[0.0], np.cumsum(first)])[self.reached]
        cumulated[self.happened] -= first_tied[self.reached[self.happened] - 1]
        return np.asarray(theta * cumulated, dtype=np.float64)


class _Groups:
    """Patients sorted by time, so that sums by time are one sparse product."""

    def __init__(self, chosen: Flags, time: Integers, n_times: int) -> None:
        members = np.flatnonzero(chosen)
        self._members = members[np.argsort(time[members], kind="stable")]
        self._time = time[self._members]
        self._ends = np.concatenate([[0], np.cumsum(np.bincount(self._time, minlength=n_times))])

    def add(self, theta: Floats) -> Floats:
        n_times = len(self._ends) - 1
        return np.bincount(self._time, weights=theta[self._members], minlength=n_times).astype(np.float64)

    def add_rows(self, theta: Floats, rows: Floats, times: slice) -> Floats:
        ends = self._ends[times.start : times.stop + 1]
        members = self._members[ends[0] : ends[-1]]
        shape = (len(ends) - 1, len(rows))
        return np.asarray(csr_array((theta[members], members, ends - ends[0]), shape=shape) @ rows)


def weighted_products(rows: Floats, weights: Floats) -> Floats:
    """Sum weight times x times x transposed over patients, shape (d, d), in blocks of a few thousand rows.

    Examples
    --------
    >>> weighted_products(np.array([[1.0, 2.0]]), np.array([3.0])).tolist()
    [[3.0, 6.0], [6.0, 12.0]]
    """
    total = np.zeros((rows.shape[1], rows.shape[1]))
    for start in range(0, len(rows), CHUNK):
        part = rows[start : start + CHUNK]
        total += part.T @ (part * weights[start : start + CHUNK, None])
    return total
