"""What follows from the sums over sites: numbers at risk, events and censorings by group and time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

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
        Those who left without an event: between G_{k-1} and G_k at 2k, at G_k itself at 2k + 1, later at 2K.
    exact : bool
        All events lie at times of the grid. If not, those who leave between two times count half at the later one, as
        in an actuarial life table.

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
        """Those who left between the time before and this one, shape (g, K)."""
        return self.leaving[:, :-1:2]

    @property
    def censored(self) -> Floats:
        """Those who left after the time before, up to this one, shape (g, K)."""
        return self.between + self.leaving[:, 1::2]

    @cached_property
    def entering(self) -> Floats:
        """Those followed beyond the time before, shape (g, K)."""
        return _from_here_on(self.died) + _from_here_on(self.leaving)[:, :-1:2]

    @cached_property
    def at_risk(self) -> Floats:
        """Those at risk of the events of each place, shape (g, K)."""
        return self.entering - (1.0 if self.exact else 0.5) * self.between

    def count_at(self, times: Floats) -> Floats:
        """Return how many are known to be followed up to given times, shape (g, t).

        At a time of the grid: all whose time is that one or later; where the grid is not `exact`, without those whose
        events share its place. Between two of them: all who were followed beyond the earlier.

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
        known = after[:, place]
        here = np.flatnonzero((place < n_times) & (self.grid[np.minimum(place, n_times - 1)] == times))
        at_grid = self.at_risk if self.exact else after[:, 1:] + self.leaving[:, 1::2]
        known[:, here] = at_grid[:, place[here]]
        return known


def read_curve(
    curve: Floats, table: RiskTable, times: Sequence[float] | Floats, *, start: float, horizon: float
) -> Floats:
    """Return a curve's values at given times, shape (..., t); NaN beyond the horizon.

    Parameters
    ----------
    curve : array of shape (..., K)
        Values at the times of the table's grid; between them steps if the table is exact, else straight lines.
    table : RiskTable
    times : array of shape (t,)
    start : float
        Value at time 0.
    horizon : float
        The last time, that of the grid or later; in between an exact curve stays as it is.

    Examples
    --------
    >>> table = RiskTable(("all",), np.array([1.0, 3.0]), np.zeros((1, 1, 2)), np.zeros((1, 5)), False)
    >>> read_curve(np.array([0.8, 0.4]), table, [0.5, 2.0, 4.0], start=1.0, horizon=3.0).round(3).tolist()
    [0.9, 0.6, nan]
    """
    asked = np.asarray(times, dtype=np.float64)
    x = np.concatenate([[0.0], table.grid])
    y = np.concatenate([np.full((*curve.shape[:-1], 1), start), curve], axis=-1)
    left = np.clip(np.searchsorted(x, asked, side="right") - 1, 0, len(x) - 1)
    right = np.minimum(left + 1, len(x) - 1)
    widths = np.where(x[right] > x[left], x[right] - x[left], 1.0)
    share = 0.0 if table.exact else np.clip((asked - x[left]) / widths, 0.0, 1.0)
    values = y[..., left] + share * (y[..., right] - y[..., left])
    return np.asarray(np.where((asked >= 0) & (asked <= horizon), values, np.nan), dtype=np.float64)


def _from_here_on(counts: Floats) -> Floats:
    return np.asarray(np.cumsum(counts[:, ::-1], axis=1)[:, ::-1], dtype=np.float64)


Integers = NDArray[np.int64]


def count_table(
    time: Floats, event: NDArray[np.integer], group: Integers, grid: Floats, causes: Integers, n_groups: int
) -> tuple[Integers, Integers]:
    """Return patients with an event, shape (g, c, K), and those who left without one, shape (g, 2K + 1).

    Parameters
    ----------
    time : array of shape (n,)
    event : array of shape (n,)
        Cause, 0 for none. An event of a cause that is not in `causes` ends the follow-up.
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
    n_times = len(grid)
    place = np.searchsorted(grid, time, side="left")
    events = np.zeros((n_groups, len(causes), n_times), dtype=np.int64)
    without = (group >= 0) & (~np.isin(event, causes) | (place == n_times))
    for number, cause in enumerate(causes):
        chosen = (group >= 0) & (event == cause) & (place < n_times)
        np.add.at(events, (group[chosen], number, place[chosen]), 1)
    leaving = np.zeros((n_groups, 2 * n_times + 1), dtype=np.int64)
    place = place + np.searchsorted(grid, time, side="right")
    np.add.at(leaving, (group[without], place[without]), 1)
    return events, leaving
