"""Base of the site parts of survival methods: describes, counts and sums before the first round.

A sum is the same whether it is masked or not. With each answer a site states how many patients stand behind it: all of
them under a mask, which hides the site's cells in the total over sites; unmasked, those of the smallest cell. The
site's guard refuses an answer with fewer than its policy's minimum.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.data.minimum_counts import fewest_different
from multicentre.data.missing.values import Missing, TabularPart
from multicentre.data.survival import SurvivalData
from multicentre.federation.errors import ConfigurationError, MessageError, SchemaMismatch
from multicentre.federation.messages import Lengths, Message, Nothing
from multicentre.federation.steps import Acknowledgement, step
from multicentre.federation.wire import encode
from multicentre.survival.agreement import messages as sent
from multicentre.survival.agreement.messages import Patients
from multicentre.survival.agreement.sketch import N_COLUMN_BINS, N_TIME_BINS, column_edges, time_edges, to_column_bins
from multicentre.survival.times import to_bins

Floats = NDArray[np.float64]
MOST_TIMES = 256
TENFOLD = 10.0


class SurvivalPart(TabularPart):
    """Base of the site parts of survival methods; a subclass may remember more than the agreement.

    Notes
    -----
    A part that says ``has_exact_steps = True`` offers steps at recorded times, which need permission. It may agree on
    more than 256 times, and each of its other steps checks for itself that there are no more.
    """

    handles: ClassVar[tuple[Missing, ...]] = ("complete", "indicator", "mean")
    has_exact_steps: ClassVar[bool] = False
    holds: ClassVar[type] = SurvivalData
    remembers: ClassVar[type[Message]] = sent.Agreed
    lengths: ClassVar[Lengths] = {
        "b": "bins of a column or of time",
        "t": "times of events",
    }
    data: SurvivalData
    state: sent.Agreed | None = None
    _patients: Patients | None = None
    _asked: dict[str, bytes]

    def __init__(self, site: str, data: SurvivalData) -> None:
        super().__init__(site, data)
        self._asked = {}

    @step(releases=sent.Columns, when="once")
    def describe(self, ask: Nothing) -> sent.Columns:
        """Name columns, levels of categories and the unit of the times, so that a site that differs can be named."""
        data = self.data
        return sent.Columns(data.columns, (data.unit,), levels=data.levels, patients=len(data))

    @step(releases=sent.Sizes, when="once", summed=True)
    def sum_sizes(self, ask: sent.OfCause) -> sent.Sizes:
        """Count patients and events, and sum the columns, for their means."""
        sizes = self._sizes(ask)
        return sent.Sizes(**sizes, patients=self.behind(np.array([sizes["n_events"]])))

    @step(releases=sent.Squares, when="once", summed=True)
    def sum_squares(self, ask: sent.About) -> sent.Squares:
        """Sum squared differences from the means, for the standard deviations."""
        return sent.Squares(self._squares(ask.centre), patients=self.behind())

    @step(releases=sent.TimeCounts, when="once", summed=True)
    def count_times(self, ask: sent.OfCause) -> sent.TimeCounts:
        """Count and sum as sum_sizes does, and count patients by public bin of their times, for a grid of all sites."""
        sizes = self._sizes(ask)
        bins = to_bins(self.data.time, time_edges())
        of_cause = bins[self.data.event == ask.cause]
        events, leaving = (np.bincount(each, minlength=N_TIME_BINS + 1).astype(np.float64) for each in (of_cause, bins))
        behind = self.behind(np.concatenate([events, leaving]))
        return sent.TimeCounts(**sizes, events=events, leaving=leaving, patients=behind)

    @step(releases=sent.ColumnCounts, when="once", summed=True)
    def count_columns(self, ask: sent.Scale) -> sent.ColumnCounts:
        """Count patients by public bin of every column, for thresholds that all sites share."""
        self.ask_only_once("count_columns", ask)
        self._check_sides(ask.centre, ask.spread)
        edges = column_edges(ask.centre, ask.spread)
        counts = np.zeros((len(edges), N_COLUMN_BINS))
        for column, values in enumerate(self._known_values()):
            counts[column] = np.bincount(to_column_bins(values, edges[column]), minlength=N_COLUMN_BINS)
        return sent.ColumnCounts(counts, patients=self.behind(counts))

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
        return sent.OddUnits(squares, float(is_odd), patients=self.behind())

    @step(releases=sent.EventTimes, when="once")
    def tell_times(self, ask: sent.OfCause) -> sent.EventTimes:
        """Tell the times of events as they were recorded; asked only for exact times, and only with permission."""
        times = np.unique(self.data.time[self.data.event == ask.cause])
        return sent.EventTimes(times, patients=len(self.data))

    @step(releases=Acknowledgement, when="once")
    def agree(self, ask: sent.Agreed) -> Acknowledgement:
        """Take in what was agreed, once, when it is all in order; nothing leaves."""
        if (ask.columns, ask.levels) != (self.data.columns, self.data.levels):
            raise SchemaMismatch("the columns are not those agreed", where="columns", hint="Name the same everywhere.")
        ask.check(len(self.data.columns))
        if not self.has_exact_steps:
            check_grid_is_coarse(ask.times)
        if self.state is not None and not _is_same(self.state, ask):
            raise ConfigurationError(
                "the site has agreed on something else in this fit", where="agree", hint="Begin a new fit."
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
            raise ConfigurationError("the site has agreed on nothing", where=self.method, hint="Begin the fit anew.")
        return self.state

    @property
    def patients(self) -> Patients:
        """The site's patients under the agreement."""
        if self._patients is None:
            self._patients = Patients(self.data, self.agreed)
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
            raise ConfigurationError("the site has answered another ask of this fit", where=name, hint="Begin anew.")

    def behind(self, counts: NDArray[np.generic] | None = None) -> int:
        """Return how many patients stand behind a sum whose cells rest on `counts`: all of them under a mask.

        A mask hides every cell in the total over sites. Unmasked they are those of the smallest cell with any, or the
        fewest who stand out in a column.
        """
        if self.masked:
            return len(self.data)
        cells = np.zeros(0) if counts is None else np.asarray(counts, dtype=np.float64)
        return int(min(cells[cells > 0].min(initial=len(self.data)), self._fewest_in_column))

    def _sizes(self, ask: sent.OfCause) -> dict[str, Any]:
        """Return the fields of :class:`Sizes`; whichever step asks, for one cause."""
        self.ask_only_once("sizes", ask)
        n_events = float((self.data.event == ask.cause).sum())
        found = np.array([(len(values), values.sum()) for values in self._known_values()], dtype=np.float64)
        values = float(len(self.data)), n_events, found[:, 0], found[:, 1]
        return dict(zip(sent.Sizes.declarations(), values, strict=True))

    def _squares(self, centre: Floats) -> Floats:
        """Return the columns' squared differences; whichever step asks, from one centre."""
        self.ask_only_once("squares", sent.About(centre))
        self._check_sides(centre)
        squares = [np.square(values - mean).sum() for values, mean in zip(self._known_values(), centre, strict=True)]
        return np.array(squares, dtype=np.float64)

    def _check_sides(self, *arrays: Floats) -> None:
        for values in arrays:
            if len(values) != len(self.data.columns):
                raise MessageError(f"{len(self.data.columns)} columns are here", where=self.method)

    def _known_values(self) -> list[Floats]:
        return [values[~np.isnan(values)] for values in self.data.X.T]

    @cached_property
    def _fewest_in_column(self) -> int:
        return fewest_different(self.data.X)


def _is_same(known: sent.Agreed, asked: sent.Agreed) -> bool:
    names = sent.Agreed.declarations()
    return all(np.array_equal(getattr(known, name), getattr(asked, name)) for name in names)


def check_grid_is_coarse(times: Floats) -> None:
    """Raise ConfigurationError for more than 256 times: what leaves a site would show where it has events."""
    if len(times) > MOST_TIMES:
        raise ConfigurationError(
            f"a grid of {len(times)} times is too fine for what leaves a site",
            where="times",
            hint=f"Take at most {MOST_TIMES} times.",
        )
