"""What is asked and answered before the first round of a survival method."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import Message, array, count, number, text, texts
from multicentre.federation.steps import Release

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
