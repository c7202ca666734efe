"""Messages exchanged before the first round of a survival method, and the patients of a site under an agreement."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, count, flag, number, text, texts
from multicentre.core.steps import Release
from multicentre.data.survival import SurvivalData
from multicentre.errors import MessageError
from multicentre.survival.agreement.sketch import to_column_bins
from multicentre.survival.times import to_bins

Floats = NDArray[np.float64]

# Largest magnitudes of a site's values, for masking: numbers of patients, sums of columns, times.
PATIENTS = 2.0**24
# PATIENTS times 2**12: values of 4096 in magnitude for every patient.
TOTAL = 2.0**36
# As MAX_TIME of survival.fitted_models.base, the largest time of a model; a century is 3.2e9 in seconds.
LARGEST = 1e12

# Largest number of times that an agreement may hold.
MAX_AGREED_TIMES = 2**17

# Largest number of thresholds of a column: bins are stored in one byte.
MAX_EDGES = 255


@dataclass(frozen=True)
class Columns(Release):
    """Names of a site's columns; independent of its patients' values."""

    columns: tuple[str, ...] = texts("names of the columns", public=True)
    units: tuple[str, ...] = texts("unit of the times", public=True)
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", public=True, default=())


@dataclass(frozen=True)
class OfCause(Message):
    """Code of the event of interest; events of other causes are treated as censored."""

    cause: int = count("code of the event of interest")


@dataclass(frozen=True)
class NamedColumns(Message):
    """Columns of the data that are no covariates."""

    offset: str = text("column that is added to the log hazard ratio; empty for none")
    weights: str = text("column of weights; empty for none")
    cluster: str = text("column of clusters; empty for none")
    frequency: bool = flag("weights are numbers of patients, not inverse probabilities")

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns, without those that are not set."""
        return tuple(name for name in (self.offset, self.weights, self.cluster) if name)


@dataclass(frozen=True)
class Sizes(Release):
    """Counts of patients and events, and sums for the means of the columns."""

    n_patients: float = number("patients", unit="patients", bound=PATIENTS)
    n_events: float = number("events", unit="patients", bound=PATIENTS)
    present: Floats = array("patients with a value", ("d",), unit="patients", bound=PATIENTS)
    total: Floats = array("sum of the values present", ("d",), bound=TOTAL)


@dataclass(frozen=True)
class About(Message):
    """Means of the columns over all sites."""

    centre: Floats = array("mean of every column", ("d",))


@dataclass(frozen=True)
class Squares(Release):
    """Sums for the variances of the columns."""

    squares: Floats = array("sum of squared differences from the mean", ("d",), bound=TOTAL)


@dataclass(frozen=True)
class Scale(Message):
    """Location and scale of the public bins of the columns."""

    centre: Floats = array("mean of every column, to six digits of its deviation", ("d",))
    spread: Floats = array("standard deviation of every column, to six digits", ("d",))


@dataclass(frozen=True)
class TimeCounts(Sizes):
    """Counts and sums of :class:`Sizes`, and patients by public bin of their time."""

    events: Floats = array("patients with an event, by bin of its time", ("b",), unit="patients", bound=PATIENTS)
    leaving: Floats = array("patients by bin of the end of follow-up", ("b",), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class ColumnCounts(Release):
    """Patients by public bin of every column."""

    counts: Floats = array("patients by bin of the column", ("d", "b"), unit="patients", bound=PATIENTS)


@dataclass(frozen=True)
class Typical(About):
    """Means of the columns over all sites, and the median follow-up."""

    time: float = number("median follow-up over all sites")


@dataclass(frozen=True)
class UnitMismatch(Squares):
    """Sums for the variances of the columns, and a flag for times that seem to have another unit."""

    n_sites: float = number("1 where the site's median follow-up differs tenfold", bound=1)


@dataclass(frozen=True)
class EventTimes(Release):
    """Recorded times of a site's events."""

    times: Floats = array("times of events, each once", ("t",), bound=LARGEST, permission="exact_times")


@dataclass(frozen=True)
class Prepared(Message):
    """Agreement of all sites on columns, times, scales and thresholds."""

    columns: tuple[str, ...] = texts("names of the columns, in order")
    unit: str = text("unit of the times")
    cause: int = count("code of the event of interest")
    n_patients: float = number("patients of all sites")
    n_events: float = number("events of all sites")
    times: Floats = array("times of the grid", ("K",))
    centre: Floats = array("mean of every column, which replaces missing entries", ("d",))
    spread: Floats = array("standard deviation of every column, 1 for a constant one", ("d",))
    edges: Floats = array("thresholds between the bins of the columns, column by column", ("q",))
    first: NDArray[np.int64] = array("place of every column's first threshold, and the end", ("e",), dtype="i8")
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", default=())
    ends: float = number("time at which follow-up ends; later events do not count", default=LARGEST)

    def check(self, n_columns: int) -> None:
        """Raise MessageError unless scales and thresholds fit the number of columns, and the grid increases.

        Counts by bin are written to the places that the thresholds give, so the thresholds are checked before use.
        """
        lengths = [len(self.columns), len(self.centre), len(self.spread), len(self.first) - 1]
        if lengths != [n_columns] * 4 or not (self.spread > 0).all():
            raise MessageError(
                f"the agreement must hold positive scales for {n_columns} columns; got lengths {lengths}",
                where="Prepared",
            )
        if not 0 < len(self.times) <= MAX_AGREED_TIMES or self.times[0] < 0 or (np.diff(self.times) <= 0).any():
            raise MessageError(
                f"times must be 1 to {MAX_AGREED_TIMES} increasing non-negative numbers; got {len(self.times)} others",
                where="Prepared.times",
            )
        steps = np.diff(self.first)
        if self.first[0] != 0 or self.first[-1] != len(self.edges) or (steps < 0).any() or (steps > MAX_EDGES).any():
            raise MessageError(
                f"first must divide the thresholds into at most {MAX_EDGES} per column; got {self.first.tolist()[:10]}",
                where="Prepared.first",
            )
        if any((np.diff(self.edges_of(column)) <= 0).any() for column in range(n_columns)):
            raise MessageError(
                "edges must increase within each column; got equal or decreasing thresholds", where="Prepared.edges"
            )

    def edges_of(self, column: int) -> Floats:
        """Return the thresholds of one column."""
        return self.edges[self.first[column] : self.first[column + 1]]

    @property
    def n_bins(self) -> NDArray[np.int64]:
        """Number of bins of every column, shape (d,)."""
        return np.diff(self.first) + 1


@dataclass(frozen=True)
class AfterHorizon(Release):
    """Patients and events after the time at which the follow-up of a fit ends; the answer to an agreement."""

    n_patients: float = number("patients followed beyond the horizon", unit="patients", bound=PATIENTS)
    n_events: float = number("events of interest after the horizon", unit="patients", bound=PATIENTS)
    n_others: float = number("events of other causes after the horizon", unit="patients", bound=PATIENTS)


Flags = NDArray[np.bool_]


class Patients:
    """Patients of one site under an agreement.

    Parameters
    ----------
    data : SurvivalData
    agreed : Prepared
    times : array of shape (K,), optional
        Times of the grid, instead of the agreed ones.

    Attributes
    ----------
    grouped : bool
        True if neighbouring times were merged, so that an event happened at or before its bin.

    Examples
    --------
    >>> from multicentre.survival.agreement.messages import Prepared
    >>> none = np.zeros(0)
    >>> agreed = Prepared(("x0",), "", 1, 2.0, 1.0, np.array([1.0, 4.0]), np.array([3.0]), np.array([2.0]), none,
    ...                 np.zeros(2, dtype=np.int64))
    >>> patients = Patients(SurvivalData([[1.0], [np.nan]], [0.5, 9.0], [1, 1]), agreed)
    >>> patients.standardised.tolist(), patients.bins.tolist(), patients.happened.tolist()
    ([[-1.0], [0.0]], [0, 2], [True, False])
    """

    def __init__(self, data: SurvivalData, agreed: Prepared, times: Floats | None = None) -> None:
        self.agreed = agreed
        self.data = data
        self.times = agreed.times if times is None else times
        self.grouped = False

    def __len__(self) -> int:
        return len(self.data)

    @cached_property
    def rows(self) -> Floats:
        """Columns with missing entries filled, shape (n, d)."""
        return self._filled()

    @cached_property
    def standardised(self) -> Floats:
        """Standardised columns with missing entries filled, shape (n, d)."""
        scaled = self._filled()
        scaled -= self.agreed.centre
        scaled /= self.agreed.spread
        return scaled

    @cached_property
    def binned(self) -> NDArray[np.uint8]:
        """Bin of every value, shape (n, d): the number of thresholds below it; stored column by column."""
        return self.bin_columns(self.data.X)

    @cached_property
    def bins(self) -> NDArray[np.int64]:
        """Bin of every time on the grid, shape (n,); K beyond the horizon."""
        return to_bins(self.data.time, self.times)

    @cached_property
    def happened(self) -> Flags:
        """Flags of patients with the event up to the horizon, shape (n,)."""
        of_cause = self.data.event == self.agreed.cause
        return np.asarray(of_cause & (self.bins < len(self.times)), dtype=np.bool_)

    @property
    def time(self) -> Floats:
        """Times, cut at the horizon, shape (n,)."""
        return np.asarray(np.minimum(self.data.time, self.times[-1]), dtype=np.float64)

    def bin_columns(self, X: Floats) -> NDArray[np.uint8]:
        """Return the bin of every value of X, shape (n, d), with missing entries filled."""
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
    """Remove rare values from the columns, shape (n, d).

    A column with values for fewer than `least` patients becomes missing for all. A column in which fewer than `least`
    values differ from the most common one becomes constant.

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
    """Return the most common value if 1 to `least - 1` values differ from it, else None; long columns are not sorted.

    Examples
    --------
    >>> rare_value(np.array([0.0, 0.0, 1.0]), 2), rare_value(np.array([0.0, 1.0, 2.0]), 2), rare_value(np.zeros(3), 2)
    (0.0, None, None)
    """
    # Such a value is the majority of any 2 least - 1 values, so it is enough to search the first ones.
    values_present, counts = np.unique(values[: 2 * least - 1], return_counts=True)
    if not len(values_present):
        return None
    common = float(values_present[np.argmax(counts)])
    return common if 0 < np.count_nonzero(values != common) < least else None
