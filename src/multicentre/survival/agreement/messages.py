"""What is asked and answered before the first round of a survival method."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.federation.errors import MessageError
from multicentre.federation.messages import Message, array, count, number, text, texts
from multicentre.federation.steps import Release
from multicentre.survival.agreement.sketch import to_column_bins
from multicentre.survival.times import to_bins

Floats = NDArray[np.float64]

PATIENTS = 2.0**24

TOTAL = 2.0**36

LARGEST = 1e12

MOST_TIMES = 2**17

MOST_EDGES = 255


@dataclass(frozen=True)
class Columns(Release):
    """Names of a site's columns; nothing about any patient."""

    columns: tuple[str, ...] = texts("names of the columns", public=True)
    units: tuple[str, ...] = texts("unit of the times", public=True)
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", public=True, default=())


@dataclass(frozen=True)
class OfCause(Message):
    """Which events count; those of other causes end the follow-up."""

    cause: int = count("cause of the events")


@dataclass(frozen=True)
class Sizes(Release):
    """What a site adds to the sizes of the whole and to the columns' means."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_events: float = number("events", unit="patients", bound=PATIENTS)
    present: Floats = array("patients whose value is known", ("d",), unit="patients", bound=PATIENTS)
    total: Floats = array("sum of the known values", ("d",), bound=TOTAL)


@dataclass(frozen=True)
class About(Message):
    """Means of the columns over all sites."""

    centre: Floats = array("mean of every column", ("d",))


@dataclass(frozen=True)
class Squares(Release):
    """What a site adds to the columns' variances."""

    squares: Floats = array("sum of squared differences from the mean", ("d",), bound=TOTAL)


@dataclass(frozen=True)
class Scale(Message):
    """Where the public bins of the columns lie."""

    centre: Floats = array("mean of every column, to six digits of its deviation", ("d",))
    spread: Floats = array("standard deviation of every column, to six digits", ("d",))


@dataclass(frozen=True)
class TimeCounts(Sizes):
    """What a site adds to sizes and means, and its patients by public bin of their time."""

    events: Floats = array("patients with an event, by bin of its time", ("b",), unit="patients", bound=PATIENTS)
    leaving: Floats = array("patients by bin of the end of follow-up", ("b",), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class ColumnCounts(Release):
    """Patients by public bin of every column."""

    counts: Floats = array("patients by bin of the column", ("d", "b"), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class Typical(About):
    """Means of the columns over all sites, and the time that half of all follow-ups reach."""

    time: float = number("median follow-up over all sites")


@dataclass(frozen=True)
class OddUnits(Squares):
    """What a site adds to the columns' variances, and whether its times look as if they were in another unit."""

    n_sites: float = number("1 where the site's median follow-up differs tenfold", bound=1)


@dataclass(frozen=True)
class EventTimes(Release):
    """The times of a site's events, as they were recorded."""

    times: Floats = array("times of events, each once", ("t",), bound=LARGEST, permission="exact_times")


@dataclass(frozen=True)
class Agreed(Message):
    """What was agreed: all that a site needs to see its patients as the others see theirs."""

    columns: tuple[str, ...] = texts("names of the columns, in order")
    unit: str = text("unit of the times")
    cause: int = count("cause of the events that count")
    n_patients: float = number("patients of all sites")
    n_events: float = number("events of all sites")
    times: Floats = array("times of the grid", ("K",))
    centre: Floats = array("mean of every column; it fills gaps", ("d",))
    spread: Floats = array("standard deviation of every column, 1 for a constant one", ("d",))
    edges: Floats = array("thresholds between the bins of the columns, column by column", ("q",))
    first: NDArray[np.int64] = array("place of every column's first threshold, and the end", ("e",), dtype="i8")
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", default=())

    def check(self, n_columns: int) -> None:
        """Raise MessageError unless scales and thresholds fit so many columns, and the grid increases.

        What is counted by bin is written where bins say: nothing here is trusted before.
        """
        lengths = [len(self.columns), len(self.centre), len(self.spread), len(self.first) - 1]
        if lengths != [n_columns] * 4 or not (self.spread > 0).all():
            raise MessageError(f"it is not for {n_columns} columns", where="Agreed")
        if not 0 < len(self.times) <= MOST_TIMES or self.times[0] < 0 or (np.diff(self.times) <= 0).any():
            raise MessageError("the grid's times do not increase, or are too many", where="Agreed.times")
        steps = np.diff(self.first)
        if self.first[0] != 0 or self.first[-1] != len(self.edges) or (steps < 0).any() or (steps > MOST_EDGES).any():
            raise MessageError("thresholds do not fit the columns", where="Agreed.first")
        if any((np.diff(self.edges_of(column)) <= 0).any() for column in range(n_columns)):
            raise MessageError("thresholds do not increase", where="Agreed.edges")

    def edges_of(self, column: int) -> Floats:
        """Return the thresholds of one column."""
        return self.edges[self.first[column] : self.first[column + 1]]

    @property
    def n_bins(self) -> NDArray[np.int64]:
        """Number of bins of every column, shape (d,)."""
        return np.diff(self.first) + 1


Flags = NDArray[np.bool_]


class Patients:
    """The patients of one site under an agreement.

    Parameters
    ----------
    data : SurvivalData
    agreed : Agreed
    times : array of shape (K,), optional
        Times at which follow-up is cut, in place of the agreed ones.

    Examples
    --------
    >>> from multicentre.survival.agreement.messages import Agreed
    >>> none = np.zeros(0)
    >>> agreed = Agreed(("x0",), "", 1, 2.0, 1.0, np.array([1.0, 4.0]), np.array([3.0]), np.array([2.0]), none,
    ...                 np.zeros(2, dtype=np.int64))
    >>> patients = Patients(SurvivalData([[1.0], [np.nan]], [0.5, 9.0], [1, 1]), agreed)
    >>> patients.standardised.tolist(), patients.bins.tolist(), patients.happened.tolist()
    ([[-1.0], [0.0]], [0, 2], [True, False])
    """

    def __init__(self, data: SurvivalData, agreed: Agreed, times: Floats | None = None) -> None:
        self.agreed = agreed
        self.data = data
        self.times = agreed.times if times is None else times

    def __len__(self) -> int:
        return len(self.data)

    @cached_property
    def rows(self) -> Floats:
        """Columns with gaps filled, shape (n, d)."""
        return self._filled()

    @cached_property
    def standardised(self) -> Floats:
        """Columns less their means, over their standard deviations, shape (n, d)."""
        scaled = self._filled()
        scaled -= self.agreed.centre
        scaled /= self.agreed.spread
        return scaled

    @cached_property
    def binned(self) -> NDArray[np.uint8]:
        """Bin of every value, shape (n, d): the number of thresholds below it; a column lies together in memory."""
        return self.bin_columns(self.data.X)

    @cached_property
    def bins(self) -> NDArray[np.int64]:
        """Bin of every time on the grid, shape (n,); K beyond the horizon."""
        return to_bins(self.data.time, self.times)

    @cached_property
    def happened(self) -> Flags:
        """Whether the event happened up to the horizon, shape (n,)."""
        of_cause = self.data.event == self.agreed.cause
        return np.asarray(of_cause & (self.bins < len(self.times)), dtype=np.bool_)

    @property
    def time(self) -> Floats:
        """Times, cut at the horizon, shape (n,)."""
        return np.asarray(np.minimum(self.data.time, self.times[-1]), dtype=np.float64)

    def bin_columns(self, X: Floats) -> NDArray[np.uint8]:
        """Return the bin of every value of X, shape (n, d), with gaps filled."""
        binned = np.empty(X.shape, dtype=np.uint8, order="F")
        for column in range(len(self.agreed.columns)):
            values = self._filled_column(X, column)
            binned[:, column] = to_column_bins(values, self.agreed.edges_of(column))
        return binned

    def _filled(self) -> Floats:
        filled = np.empty(self.data.X.shape)
        for column in range(len(self.agreed.columns)):
            filled[:, column] = self._filled_column(self.data.X, column)
        return filled

    def _filled_column(self, X: Floats, column: int) -> Floats:
        values = np.array(X[:, column])
        values[np.isnan(values)] = self.agreed.centre[column]
        return values


def flatten_rare(X: Floats, least: int) -> Floats:
    """Return the columns without what only a few patients have, shape (n, d).

    A column that fewer than `least` patients have a value of is missing for all; one in which some values differ from
    the commonest, but fewer than `least`, is constant.

    Examples
    --------
    >>> flatten_rare(np.array([[0.0, 1.0, 2.0], [0.0, 2.0, np.nan], [1.0, 3.0, np.nan]]), 2).tolist()
    [[0.0, 1.0, nan], [0.0, 2.0, nan], [0.0, 3.0, nan]]
    """
    flat = X.copy()
    for values in flat.T if least > 1 else ():
        present = ~np.isnan(values)
        common = np.nan if present.sum() < least else rare_value(values[present], least)
        if common is not None:
            values[present] = common
    return flat


def rare_value(values: Floats, least: int) -> float | None:
    """Return the commonest value where some values differ from it, but fewer than `least`; long columns are not sorted.

    Examples
    --------
    >>> rare_value(np.array([0.0, 0.0, 1.0]), 2), rare_value(np.array([0.0, 1.0, 2.0]), 2), rare_value(np.zeros(3), 2)
    (0.0, None, None)
    """
    # Such a value is most of any 2 least - 1 values: it need be sought among the first of them only.
    found, counts = np.unique(values[: 2 * least - 1], return_counts=True)
    if not len(found):
        return None
    common = float(found[np.argmax(counts)])
    return common if 0 < np.count_nonzero(values != common) < least else None
