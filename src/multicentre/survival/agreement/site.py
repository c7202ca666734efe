"""What the site parts of survival methods share: they describe, count and sum before the first round.

Where sums are masked, a site's counts are hidden in the total, and leave as they are. Where they are not, counts of
fewer patients than the site's policy wants are joined with their neighbours, and a column in which fewer patients
differ from its commonest value is flat: nothing then rests on a handful.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data.survival import SurvivalData
from multicentre.federation.errors import ConfigurationError, MessageError, SchemaMismatch
from multicentre.federation.messages import Message, Nothing
from multicentre.federation.steps import Acknowledgement, SitePart, step
from multicentre.federation.wire import encode
from multicentre.survival.agreement import messages as sent
from multicentre.survival.agreement.patients import Patients, hidden_columns, rare_value, shown_column
from multicentre.survival.agreement.sketch import N_COLUMN_BINS, N_TIME_BINS, column_edges, time_edges
from multicentre.survival.times.grid import to_bins
from multicentre.survival.times.joining import join_small

Floats = NDArray[np.float64]
MOST_TIMES = 256
TENFOLD = 10.0


class SurvivalPart(SitePart):
    """Base of the site parts of survival methods; a subclass may remember more than the agreement."""

    holds: ClassVar[type] = SurvivalData
    remembers: ClassVar[type[Message]] = sent.Agreed
    data: SurvivalData
    state: sent.Agreed | None = None
    _patients: Patients | None = None
    _fewest: int | None = None
    _asked: dict[str, bytes]

    def __init__(self, site: str, data: SurvivalData) -> None:
        super().__init__(site, data)
        self._asked = {}

    @step(releases=sent.Columns, when="once")
    def describe(self, ask: Nothing) -> sent.Columns:
        """Name the columns and the unit of the times, so that a site that differs can be named."""
        return sent.Columns(self.data.columns, (self.data.unit,), patients=len(self.data))

    @step(releases=sent.Sizes, when="once", summed=True)
    def sum_sizes(self, ask: sent.OfCause) -> sent.Sizes:
        """Count patients and events, and sum the columns, for their means."""
        return sent.Sizes(**self._sizes(ask), patients=len(self.data))

    @step(releases=sent.Squares, when="once", summed=True)
    def sum_squares(self, ask: sent.About) -> sent.Squares:
        """Sum squared differences from the means, for the standard deviations."""
        return sent.Squares(self._squares(ask.centre), patients=len(self.data))

    @step(releases=sent.TimeCounts, when="once", summed=True)
    def count_times(self, ask: sent.OfCause) -> sent.TimeCounts:
        """Count and sum as sum_sizes does, and count patients by public bin of their times, for a grid of all sites."""
        sizes = self._sizes(ask)
        bins = to_bins(self.data.time, time_edges())
        of_cause = bins[self.data.event == ask.cause]
        both = [np.bincount(each, minlength=N_TIME_BINS + 1).astype(np.float64) for each in (of_cause, bins)]
        joined = [counts if self.masked else join_small(counts, self.least_behind, middle=True) for counts in both]
        by_bin = dict.fromkeys(("events", "leaving"), self.behind(np.concatenate(joined)))
        return sent.TimeCounts(**sizes, events=joined[0], leaving=joined[1], patients={**self._everyone, **by_bin})

    @step(releases=sent.ColumnCounts, when="once", summed=True)
    def count_columns(self, ask: sent.Scale) -> sent.ColumnCounts:
        """Count patients by public bin of every column, for thresholds that all sites share."""
        self.ask_only_once("count_columns", ask)
        self._check_sides(ask.centre, ask.spread)
        edges = column_edges(ask.centre, ask.spread)
        counts = np.zeros((len(edges), N_COLUMN_BINS))
        for column, values in enumerate(self._shown()):
            counts[column] = np.bincount(np.searchsorted(edges[column], values), minlength=N_COLUMN_BINS)
        joined = counts if self.masked else join_small(counts, self.least_behind, middle=True)
        return sent.ColumnCounts(joined, patients=self.behind(joined))

    @step(releases=sent.OddUnits, when="once", summed=True)
    def compare_units(self, ask: sent.Typical) -> sent.OddUnits:
        """Sum squares as sum_squares does, and tell whether follow-up differs tenfold from the median of all sites.

        It does where times are in another unit, days and months, say.
        """
        squares = self._squares(ask.centre)
        self.ask_only_once("compare_units", ask)
        # To half a power of ten: asking again and again would tell no more of the median.
        own = 10.0 ** (round(2 * np.log10(max(float(np.median(self.data.time)), 1e-300))) / 2)
        is_odd = not ask.time / TENFOLD <= own <= ask.time * TENFOLD
        if is_odd:
            log = logging.getLogger(f"multicentre.site.{self.site}")
            log.warning("the median follow-up differs tenfold from that of all sites: is it in %r?", self.data.unit)
        return sent.OddUnits(squares, float(is_odd), patients=len(self.data))

    @step(releases=sent.EventTimes, when="once")
    def tell_times(self, ask: sent.OfCause) -> sent.EventTimes:
        """Tell the times of events as they were recorded; asked only for exact times, and only with permission."""
        times = np.unique(self.data.time[self.data.event == ask.cause])
        return sent.EventTimes(times, patients=len(self.data))

    @step(releases=Acknowledgement, when="once")
    def agree(self, ask: sent.Agreed) -> Acknowledgement:
        """Take in what was agreed, once, when it is all in order; nothing leaves."""
        if ask.columns != self.data.columns:
            raise SchemaMismatch("the columns are not those agreed", where="columns", mend="Name the same everywhere.")
        ask.check(len(self.data.columns))
        if self.state is not None and not _is_same(self.state, ask):
            raise ConfigurationError(
                "the site has agreed on something else in this fit", where="agree", mend="Begin a new fit."
            )
        if self.state is None:
            self.state = self.first_memory(ask)
        return Acknowledgement()

    def first_memory(self, agreed: sent.Agreed) -> sent.Agreed:
        """Return what the part remembers once there is an agreement; a subclass adds to it."""
        return agreed

    @property
    def agreed(self) -> sent.Agreed:
        """The agreement.

        Raises
        ------
        ConfigurationError
            There is none.
        """
        if self.state is None:
            raise ConfigurationError("the site has agreed on nothing", where=self.method, mend="Begin the fit anew.")
        return self.state

    @property
    def patients(self) -> Patients:
        """The site's patients under the agreement."""
        if self._patients is None:
            self._patients = Patients(self.data, self.agreed, 0 if self.agreed.masked else self.least_behind)
        return self._patients

    def ask_only_once(self, name: str, ask: Message) -> None:
        """Refuse a second ask of this name that differs from the first: the difference could single a patient out.

        Raises
        ------
        ConfigurationError
            It differs.
        """
        asked = encode(ask)
        if self._asked.setdefault(name, asked) != asked:
            raise ConfigurationError("the site has answered another ask of this fit", where=name, mend="Begin anew.")

    def behind(self, counts: NDArray[np.generic] | None = None) -> int:
        """Return how many patients stand behind a sum whose cells rest on `counts`: all of them under a mask.

        A mask hides every cell in the total over sites. An agreement for masked sums leaves rare columns as they are,
        so that an unmasked answer under it rests on the fewest of their patients.
        """
        if self.masked:
            return len(self.data)
        cells = np.zeros(0) if counts is None else np.asarray(counts, dtype=np.float64)
        return int(min(cells[cells > 0].min(initial=len(self.data)), self._fewest_in_column()))

    def joined(self, counts: Floats) -> Floats:
        """Return counts as they may leave: under a mask as they are, else none of fewer patients than the policy's."""
        return counts if self.masked else join_small(counts, self.least_behind)

    def _sizes(self, ask: sent.OfCause) -> dict[str, Any]:
        """Return the fields of :class:`Sizes`; whichever step asks, for one cause."""
        self.ask_only_once("sizes", ask)
        n_events = float(self.joined(np.array([(self.data.event == ask.cause).sum()], dtype=np.float64))[0])
        found = np.array([(len(values), values.sum()) for values in self._shown()], dtype=np.float64)
        values = float(len(self.data)), n_events, found[:, 0], found[:, 1]
        return dict(zip(sent.Sizes.declarations(), values, strict=True))

    def _squares(self, centre: Floats) -> Floats:
        """Return the columns' squared differences; whichever step asks, from one centre."""
        self.ask_only_once("squares", sent.About(centre))
        self._check_sides(centre)
        squares = [np.square(values - mean).sum() for values, mean in zip(self._shown(), centre, strict=True)]
        return np.array(squares, dtype=np.float64)

    @property
    def _everyone(self) -> dict[str, int]:
        return dict.fromkeys(sent.Sizes.declarations(), len(self.data))

    def _check_sides(self, *arrays: Floats) -> None:
        for values in arrays:
            if len(values) != len(self.data.columns):
                raise MessageError(f"{len(self.data.columns)} columns are here", where=self.method)

    def _shown(self) -> Iterator[Floats]:
        """Yield the known values of every column as they may leave."""
        hidden = {} if self.masked else hidden_columns(self.data.X, self.least_behind)
        for column in range(self.data.X.shape[1]):
            values = shown_column(self.data.X, column, hidden)
            yield values[~np.isnan(values)]

    def _fewest_in_column(self) -> int:
        if self.state is None or not self.agreed.masked:
            return len(self.data)
        if self._fewest is None:
            self._fewest = fewest_different(self.data.X)
        return self._fewest


def fewest_different(X: Floats) -> int:
    """Return how many patients stand out in the column where they are fewest but some.

    They differ from the column's commonest value, or lack a value that others have, or have one that others lack.

    Examples
    --------
    >>> fewest_different(np.array([[0.0, 1.0], [0.0, 2.0], [1.0, 3.0]]))
    1
    >>> fewest_different(np.array([[np.nan], [np.nan], [np.nan], [5.0], [5.0]]))
    2
    """
    fewest = len(X)
    for values in X.T:
        known = values[~np.isnan(values)]
        if 0 < len(known) < len(values):
            fewest = min(fewest, len(known), len(values) - len(known))
        common = rare_value(known, fewest)
        if common is not None:
            fewest = int(np.count_nonzero(known != common))
    return fewest


def _is_same(known: sent.Agreed, asked: sent.Agreed) -> bool:
    names = sent.Agreed.declarations()
    return all(np.array_equal(getattr(known, name), getattr(asked, name)) for name in names)


def check_grid_is_coarse(times: Floats) -> None:
    """Raise ConfigurationError for more than 256 times: what leaves a site would show where it has events."""
    if len(times) > MOST_TIMES:
        raise ConfigurationError(
            f"a grid of {len(times)} times is too fine for what leaves a site",
            where="times",
            mend=f"Take at most {MOST_TIMES} times.",
        )
