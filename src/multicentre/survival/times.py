"""Grids of times, curves as step functions, and merging of cells with few patients."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.core.ties import TIE
from multicentre.errors import ConfigurationError, DataError

Floats = NDArray[np.float64]

# Smallest survival whose logarithm is taken, so that cumulative hazards are finite.
SMALLEST = 1e-12


def kaplan_meier(events: Floats, at_risk: Floats) -> Floats:
    """Return the product-limit estimate, shape (K,); constant where nobody is at risk.

    Examples
    --------
    >>> kaplan_meier(np.array([1.0, 1.0, 0.0]), np.array([4.0, 2.0, 0.0])).tolist()
    [0.75, 0.375, 0.375]
    """
    return np.asarray(np.cumprod(1.0 - hazard(events, at_risk)), dtype=np.float64)


def nelson_aalen(events: Floats, at_risk: Floats) -> Floats:
    """Return the cumulative hazard, shape (K,).

    Examples
    --------
    >>> nelson_aalen(np.array([1.0, 1.0]), np.array([4.0, 2.0])).tolist()
    [0.25, 0.75]
    """
    return np.cumsum(hazard(events, at_risk))


def hazard(events: Floats, at_risk: Floats) -> Floats:
    """Return events divided by patients at risk, 0 where nobody is at risk; same shape."""
    return np.divide(events, at_risk, out=np.zeros_like(events, dtype=np.float64), where=at_risk > 0)


def restricted_mean(survival: Floats, grid: Floats) -> Floats:
    """Return the mean time survived up to the horizon: the area under each curve, shape (...,).

    Parameters
    ----------
    survival : array of shape (..., K)
    grid : array of shape (K,)

    Examples
    --------
    >>> float(restricted_mean(np.array([0.5, 0.0]), np.array([1.0, 3.0])))
    2.0
    """
    widths = np.diff(grid, prepend=0.0)
    return np.asarray(widths[0] + survival[..., :-1] @ widths[1:], dtype=np.float64)


def time_to_share(survival: Floats, grid: Floats, share: float = 0.5) -> Floats:
    """Return the first time at which each curve is at or below `share`, else the horizon; shape (...,).

    Examples
    --------
    >>> time_to_share(np.array([[0.6, 0.4], [0.9, 0.8]]), np.array([1.0, 3.0])).tolist()
    [3.0, 3.0]
    """
    below = survival <= share
    return np.asarray(np.where(below.any(axis=-1), grid[np.argmax(below, axis=-1)], grid[-1]), dtype=np.float64)


def at_times(survival: Floats, grid: Floats, times: Floats) -> Floats:
    """Evaluate curves at given times, shape (..., len(times)); constant beyond the horizon.

    Examples
    --------
    >>> at_times(np.array([0.5, 0.2]), np.array([1.0, 3.0]), np.array([0.5, 1.0, 2.9, 7.0])).tolist()
    [1.0, 0.5, 0.5, 0.2]
    """
    places = np.searchsorted(grid, times, side="right")
    padded = np.concatenate([np.ones((*survival.shape[:-1], 1)), survival], axis=-1)
    return np.asarray(padded[..., places], dtype=np.float64)


def cumulative_hazard(survival: Floats) -> Floats:
    """Return minus the logarithm of curves, whose values are at least 1e-12.

    Examples
    --------
    >>> float(cumulative_hazard(np.array(0.0)).round(2))
    27.63
    """
    return -np.log(np.maximum(survival, SMALLEST))


Integers = NDArray[np.int64]


def is_sequence(value: object) -> bool:
    """Return whether a value is a sequence of numbers, or an array with one axis.

    Examples
    --------
    >>> is_sequence([12.0, 24.0]), is_sequence("exact"), is_sequence(["12", "24"]), is_sequence(12.0)
    (True, False, False, False)
    """
    try:
        array = np.asarray(value)
    except ValueError:  # rows of different lengths
        return False
    return array.ndim == 1 and (array.dtype.kind in "biuf" or not array.size)


def check_grid(times: Floats) -> None:
    """Raise ConfigurationError unless times are non-empty, finite, non-negative and increasing."""
    good = times.ndim == 1 and len(times) > 0 and np.isfinite(times).all() and times[0] >= 0
    if not good or (np.diff(times) <= 0).any():
        raise ConfigurationError(
            "times must be finite, non-negative and increasing; got others",
            where="times",
            hint="Sort them and remove duplicates.",
        )


def at_grid(time: Floats, grid: Floats) -> Floats:
    """Return times, with the time of the grid in place of each that differs from it by at most 1e-9 of its value.

    Sites store their times separately; a grid of times of all sites then may hold another of two tied times.

    Examples
    --------
    >>> at_grid(np.array([2.0000000001, 1.9999999999, 2.1]), np.array([1.0, 2.0])).tolist()
    [2.0, 2.0, 2.1]
    """
    place = np.searchsorted(grid, time, side="left")
    padded = np.concatenate([[-np.inf], grid, [np.inf]])
    earlier, later = padded[place], padded[place + 1]
    nearest = np.where(later <= time * (1.0 + TIE), later, time)
    return np.asarray(np.where(time <= earlier * (1.0 + TIE), earlier, nearest), dtype=np.float64)


def by_end(time: Floats, end: float) -> NDArray[np.bool_]:
    """Flag times up to an end of follow-up, or tied with it, shape (n,).

    Examples
    --------
    >>> by_end(np.array([1.0, 2.0000000001, 2.1]), 2.0).tolist()
    [True, True, False]
    """
    return np.asarray(time <= end * (1.0 + TIE), dtype=np.bool_)


def to_bins(time: Floats, grid: Floats) -> Integers:
    """Return the bin of every time, shape (n,); len(grid) beyond the horizon.

    Examples
    --------
    >>> to_bins(np.array([0.0, 1.0, 1.5, 9.0]), np.array([1.0, 2.0])).tolist()
    [0, 0, 1, 2]
    """
    return np.searchsorted(grid, at_grid(time, grid), side="left").astype(np.int64)


def count_by_bin(
    bins: Integers, happened: NDArray[np.bool_], n_times: int, weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return weighted numbers of events and of patients at risk, each of shape (K,).

    Parameters
    ----------
    bins : array of shape (n,)
        Bin of every patient's time, from 0 to K.
    happened : array of shape (n,)
        Flags of patients whose time is that of an event.
    n_times : int
        Length of the grid, K.
    weights : array of shape (n,), optional
        Weights of the patients, 1 by default.

    Examples
    --------
    >>> events, at_risk = count_by_bin(np.array([0, 1, 2]), np.array([True, False, True]), 2)
    >>> events.tolist(), at_risk.tolist()
    ([1.0, 0.0], [3.0, 2.0])
    """
    mass = np.ones(len(bins)) if weights is None else weights
    leaving = np.bincount(bins, weights=mass, minlength=n_times + 1).astype(np.float64)
    events = np.bincount(bins[happened], weights=mass[happened], minlength=n_times + 1).astype(np.float64)
    return events[:n_times], np.cumsum(leaving[::-1])[::-1][:n_times].copy()


def censored_by_bin(
    bins: Integers, happened: NDArray[np.bool_], n_times: int, weights: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return weighted numbers of censorings and of patients at risk of censoring, each of shape (K,).

    Events come before censorings of the same time, as in scikit-survival, so patients with an event in a bin are not at
    risk of censoring there. The curve of these numbers is the reverse Kaplan-Meier estimate.

    Examples
    --------
    >>> censored, at_risk = censored_by_bin(np.array([0, 0, 1]), np.array([True, False, False]), 2)
    >>> censored.tolist(), at_risk.tolist()
    ([1.0, 1.0], [2.0, 1.0])
    """
    events, at_risk = count_by_bin(bins, happened, n_times, weights)
    censored, _ = count_by_bin(bins, ~happened, n_times, weights)
    return censored, at_risk - events


Flags = NDArray[np.bool_]


class Block(NamedTuple):
    """Block of merged cells.

    Parameters
    ----------
    cells : tuple of int
        Cells that hold patients.
    totals : tuple of float
        Number of patients of each row.
    place : int
        Cell into which the patients are moved.
    """

    cells: tuple[int, ...]
    totals: tuple[float, ...]
    place: int


def find_places(counts: NDArray[np.generic], least: int) -> Integers:
    """Return the cell into which the patients of each cell are merged, shape (n,); -1 if all are too few.

    Parameters
    ----------
    counts : array of shape (r, n)
        Rows over n cells, which are merged in the same way.
    least : int
        Smallest number of patients per row in a block; a row may also hold none.

    Examples
    --------
    >>> find_places(np.array([[3, 8, 0, 0, 12, 0, 0, 1]]), 10).tolist()
    [1, 1, 2, 3, 4, 5, 6, 4]
    """
    n_cells = counts.shape[1]
    places = np.arange(n_cells)
    occupied = np.flatnonzero(counts.any(axis=0)).tolist()
    totals = {cell: tuple(counts[:, cell].tolist()) for cell in occupied}
    depth = int(np.ceil(np.log2(max(n_cells, 2))))
    for block in _blocks(occupied, totals, 0, 2**depth, least):
        place = min(block.place, n_cells - 1) if _is_enough(block, least) else -1
        places[list(block.cells)] = place
    return places


def joined_bins(bins: Integers, happened: Flags, n_times: int, least: int) -> tuple[Integers, Flags]:
    """Merge bins so that in each bin 0 or at least `least` patients have an event, and 0 or at least `least` leave.

    If too few patients are beyond the horizon, they are moved to the last time. If all events are too few, all patients
    are censored. If all patients are too few, all are moved beyond the horizon.

    Parameters
    ----------
    bins, happened : arrays of shape (n,)
    n_times : int
    least : int

    Examples
    --------
    >>> bins, happened = joined_bins(np.array([0, 1, 2, 2]), np.array([True, True, True, False]), 3, 2)
    >>> bins.tolist(), happened.tolist()
    ([1, 1, 1, 1], [True, True, True, False])
    """
    if least <= 1:
        return bins, happened
    if int(happened.sum()) < least:
        happened = np.zeros(len(bins), dtype=np.bool_)
    stays = (bins >= n_times) & (int((bins >= n_times).sum()) >= least)
    inside = np.minimum(bins, n_times - 1)
    leaving = np.bincount(inside[~stays], minlength=n_times)
    events = np.bincount(inside[happened], minlength=n_times)
    places = find_places(np.array([events, leaving]), least)[inside]
    nobody = places < 0
    return np.where(stays | nobody, n_times, places).astype(np.int64), happened & ~nobody


def _blocks(occupied: list[int], totals: dict[int, tuple[float, ...]], low: int, high: int, least: int) -> list[Block]:
    """Return the blocks of the cells from `low` to below `high`; if one holds too few patients, it is the only one."""
    if not occupied:
        return []
    if high - low == 1:
        return [Block((low,), totals[low], low)]
    border = (low + high) // 2
    left = _blocks([cell for cell in occupied if cell < border], totals, low, border, least)
    right = _blocks([cell for cell in occupied if cell >= border], totals, border, high, least)
    place = high - 1
    if left and not _is_enough(left[0], least):
        return _absorbed(left[0], right, place, least)
    if right and not _is_enough(right[0], least):
        return _absorbed(right[0], left[::-1], place, least)[::-1]
    return left + right


def _absorbed(few: Block, others: list[Block], place: int, least: int) -> list[Block]:
    """Merge a block of too few patients with the nearest others until it holds enough."""
    joined = few
    for number, other in enumerate(others):
        other_place = other.place if _is_enough(other, least) else place
        totals = tuple(one + two for one, two in zip(joined.totals, other.totals, strict=True))
        joined = Block(joined.cells + other.cells, totals, other_place)
        if _is_enough(joined, least):
            return [joined, *others[number + 1 :]]
    return [joined._replace(place=place)]


def _is_enough(block: Block, least: int) -> bool:
    return all(total == 0 or total >= least for total in block.totals)


@dataclass(frozen=True, eq=False)
class StepFunction:
    """Right-continuous step function with the interface of scikit-survival.

    Parameters
    ----------
    x : array of shape (K,)
        Times of the steps, increasing.
    y : array of shape (K,)
        Value from each time on.
    start : float
        Value before the first time: 1 for survival, 0 for a cumulative hazard.

    Examples
    --------
    >>> curve = StepFunction(np.array([1.0, 3.0]), np.array([0.5, 0.2]), 1.0)
    >>> curve([0.0, 1.0, 2.0]).tolist(), curve.domain
    ([1.0, 0.5, 0.5], (0.0, 3.0))
    """

    x: Floats
    y: Floats
    start: float

    @property
    def domain(self) -> tuple[float, float]:
        """First and last time at which the function is defined."""
        return 0.0, float(self.x[-1])

    def __call__(self, time: ArrayLike) -> Floats:
        """Evaluate the function at given times; same shape.

        Raises
        ------
        DataError
            A time is outside the domain.
        """
        times = np.asarray(time, dtype=np.float64)
        if not ((times >= 0) & (times <= self.x[-1])).all():
            raise DataError(
                f"time must lie within the curve's domain, {self.domain[0]:g} to {self.domain[1]:g}; got a time "
                "outside",
                where="time",
                hint="Fit with a later horizon, or evaluate earlier times.",
            )
        places = np.searchsorted(self.x, times, side="right")
        return np.asarray(np.concatenate([[self.start], self.y])[places], dtype=np.float64)
