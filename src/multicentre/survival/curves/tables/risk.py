"""Numbers at risk, events and censorings by group and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multicentre.survival.times import at_grid

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class RiskTable:
    """Patients by group, outcome and time.

    Parameters
    ----------
    groups : tuple of str
    grid : array of shape (K,)
    events : array of shape (g, c, K)
        Events by group, cause and place on the grid: those in (G_{k-1}, G_k] have place k.
    leaving : array of shape (g, 2K + 1)
        Censored patients: those between G_{k-1} and G_k have place 2k, those at G_k place 2k + 1, later ones 2K.
    exact : bool
        All events lie at times of the grid. Otherwise, patients who leave between two times count half at the later
        one, as in an actuarial life table.

    Examples
    --------
    >>> leaving = np.array([[0.0, 1.0, 2.0, 0.0, 4.0]])
    >>> table = RiskTable(("all",), np.array([2.0, 3.0]), np.array([[[1.0, 2.0]]]), leaving, False)
    >>> table.n_patients.tolist(), table.entering.tolist(), table.at_risk.tolist()
    ([10.0], [[10.0, 8.0]], [[10.0, 7.0]])
    """

    groups: tuple[str, ...]
    grid: Floats
    events: Floats
    leaving: Floats
    exact: bool

    @cached_property
    def n_patients(self) -> Floats:
        """Patients, shape (g,)."""
        return np.asarray(self.events.sum(axis=(1, 2)) + self.leaving.sum(axis=1), dtype=np.float64)

    @cached_property
    def died(self) -> Floats:
        """Events of any cause, shape (g, K)."""
        return np.asarray(self.events.sum(axis=1), dtype=np.float64)

    @property
    def between(self) -> Floats:
        """Patients censored between the time before and this time, exclusive, shape (g, K)."""
        return self.leaving[:, :-1:2]

    @property
    def censored(self) -> Floats:
        """Patients censored after the time before, up to this time, shape (g, K)."""
        return self.between + self.leaving[:, 1::2]

    @cached_property
    def entering(self) -> Floats:
        """Patients followed beyond the time before, shape (g, K)."""
        return _from_here_on(self.died) + _from_here_on(self.leaving)[:, :-1:2]

    @cached_property
    def at_risk(self) -> Floats:
        """Patients at risk of the events of each place, shape (g, K)."""
        return self.entering - (1.0 if self.exact else 0.5) * self.between

    def count_at(self, times: Floats) -> Floats:
        """Return the number of patients followed up to given times, shape (g, t).

        At a time of the grid, these are the patients with that time or a later one. If the grid is not `exact`,
        patients with an event of the same place are not counted. Between two times of the grid, these are the patients
        followed beyond the earlier one.

        Examples
        --------
        >>> table = RiskTable(("all",), np.array([2.0, 3.0]), np.ones((1, 1, 2)), np.array([[0.0, 1.0, 2.0, 0.0, 4.0]]),
        ...                   True)
        >>> table.count_at(np.array([0.0, 2.0, 2.5, 3.0, 4.0])).tolist()
        [[9.0, 9.0, 7.0, 5.0, 4.0]]
        """
        n_times = len(self.grid)
        after = np.concatenate([self.entering, self.leaving[:, -1:]], axis=1)
        place = np.searchsorted(self.grid, times, side="left")
        counts = after[:, place]
        on_grid = np.flatnonzero((place < n_times) & (self.grid[np.minimum(place, n_times - 1)] == times))
        at_grid = self.at_risk if self.exact else after[:, 1:] + self.leaving[:, 1::2]
        counts[:, on_grid] = at_grid[:, place[on_grid]]
        return counts


def read_curve(
    curve: Floats, table: RiskTable, times: Sequence[float] | Floats, *, start: float, horizon: float
) -> Floats:
    """Evaluate a curve at given times, shape (..., t); NaN beyond the horizon.

    Parameters
    ----------
    curve : array of shape (..., K)
        Values at the times of the table's grid; constant between them if the table is exact, else linear.
    table : RiskTable
    times : array of shape (t,)
    start : float
        Value at time 0.
    horizon : float
        Last time, at or after the end of the grid; an exact curve is constant after the end of the grid.

    Examples
    --------
    >>> table = RiskTable(("all",), np.array([1.0, 3.0]), np.zeros((1, 1, 2)), np.zeros((1, 5)), False)
    >>> read_curve(np.array([0.8, 0.4]), table, [0.5, 2.0, 4.0], start=1.0, horizon=3.0).round(3).tolist()
    [0.9, 0.6, nan]
    """
    positions = np.asarray(times, dtype=np.float64)
    x = np.concatenate([[0.0], table.grid])
    y = np.concatenate([np.full((*curve.shape[:-1], 1), start), curve], axis=-1)
    left = np.clip(np.searchsorted(x, positions, side="right") - 1, 0, len(x) - 1)
    right = np.minimum(left + 1, len(x) - 1)
    widths = np.where(x[right] > x[left], x[right] - x[left], 1.0)
    share = 0.0 if table.exact else np.clip((positions - x[left]) / widths, 0.0, 1.0)
    values = y[..., left] + share * (y[..., right] - y[..., left])
    return np.asarray(np.where((positions >= 0) & (positions <= horizon), values, np.nan), dtype=np.float64)


def _from_here_on(counts: Floats) -> Floats:
    return np.asarray(np.cumsum(counts[:, ::-1], axis=1)[:, ::-1], dtype=np.float64)


Integers = NDArray[np.int64]


def count_table(
    time: Floats, event: NDArray[np.integer], group: Integers, grid: Floats, causes: Integers, n_groups: int
) -> tuple[Integers, Integers]:
    """Count patients with an event, shape (g, c, K), and censored patients, shape (g, 2K + 1).

    Parameters
    ----------
    time : array of shape (n,)
    event : array of shape (n,)
        Cause, 0 for none. Events of causes that are not in `causes` are treated as censored.
    group : array of shape (n,)
        Group from 0; patients of group -1 are left out.
    grid : array of shape (K,)
    causes : array of shape (c,)
    n_groups : int

    Examples
    --------
    >>> time, event, group = np.array([1.0, 2.0, 2.5, 9.0]), np.array([1, 0, 0, 1]), np.zeros(4, dtype=np.int64)
    >>> events, leaving = count_table(time, event, group, np.array([2.0, 3.0]), np.array([1]), 1)
    >>> events.tolist(), leaving.tolist()
    ([[[1, 0]]], [[0, 1, 1, 0, 1]])
    """
    n_times, time = len(grid), at_grid(time, grid)
    place = np.searchsorted(grid, time, side="left")
    events = np.zeros((n_groups, len(causes), n_times), dtype=np.int64)
    censored = (group >= 0) & (~np.isin(event, causes) | (place == n_times))
    for number, cause in enumerate(causes):
        chosen = (group >= 0) & (event == cause) & (place < n_times)
        np.add.at(events, (group[chosen], number, place[chosen]), 1)
    leaving = np.zeros((n_groups, 2 * n_times + 1), dtype=np.int64)
    place = place + np.searchsorted(grid, time, side="right")
    np.add.at(leaving, (group[censored], place[censored]), 1)
    return events, leaving
