"""Base of the site parts of survival methods: description, counts and sums before the first round.

A sum has the same value masked and unmasked. Each answer states the number of patients behind it. Under a mask these
are all patients, because the mask hides the site's cells in the total over sites; unmasked, those of the smallest cell.
The site's guard refuses an answer with fewer than its policy's minimum.
"""

from __future__ import annotations

import logging
from functools import cached_property
from typing import Any, ClassVar, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, Nothing
from multicentre.core.steps import step
from multicentre.core.wire import encode
from multicentre.data.missing.values import Missing, TabularPart
from multicentre.data.records import check_squares, fewest_different
from multicentre.data.survival import SurvivalData
from multicentre.errors import ConfigurationError, MessageError, SchemaMismatch
from multicentre.survival.agreement import messages
from multicentre.survival.agreement.coarsening import join_bins
from multicentre.survival.agreement.messages import Patients
from multicentre.survival.agreement.sketch import N_COLUMN_BINS, N_TIME_BINS, column_edges, time_edges, to_column_bins
from multicentre.survival.times import by_end, to_bins

Floats = NDArray[np.float64]
# Largest number of times of a grid: a finer one would show at which times a site has events.
MAX_TIMES = 256
# Handling of missing entries by the survival models.
SurvivalMissing = Literal["complete", "indicator", "mean"]
# Ratio of median follow-ups above which times seem to have another unit, such as days and months.
TENFOLD = 10.0


class SurvivalPart(TabularPart):
    """Base of the site parts of survival methods; a subclass may store more than the agreement.

    Notes
    -----
    A part with ``has_exact_steps = True`` offers steps at recorded times, which need permission. It may agree on more
    than 256 times, and each of its other steps checks that there are at most 256.
    """

    handles: ClassVar[tuple[Missing, ...]] = get_args(SurvivalMissing)
    has_exact_steps: ClassVar[bool] = False
    holds: ClassVar[type] = SurvivalData
    remembers: ClassVar[type[Message]] = messages.Prepared
    lengths: ClassVar[Lengths] = {
        "b": "bins of a column or of time",
        "t": "times of events",
    }
    data: SurvivalData
    state: messages.Prepared | None = None
    _patients: Patients | None = None
    _first_requests: dict[str, bytes]

    def __init__(self, site: str, data: SurvivalData) -> None:
        super().__init__(site, data)
        self._first_requests = {}

    @step(releases=messages.Columns, when="once")
    def describe(self, request: Nothing) -> messages.Columns:
        """Return names of columns, levels of categories and the unit of the times, to detect sites that differ."""
        data = self.data
        return messages.Columns(data.columns, (data.unit,), levels=data.levels, patients=len(data))

    @step(releases=messages.Sizes, when="once", summed=True)
    def sum_sizes(self, request: messages.OfCause) -> messages.Sizes:
        """Count patients and events, and sum the columns, for their means."""
        sizes = self._sizes(request)
        return messages.Sizes(**sizes, patients=self.behind(np.array([sizes["n_events"]])))

    @step(releases=messages.Squares, when="once", summed=True)
    def sum_squares(self, request: messages.About) -> messages.Squares:
        """Sum squared differences from the means, for the standard deviations."""
        return messages.Squares(self._squares(request.centre), patients=self.behind())

    @step(releases=messages.TimeCounts, when="once", summed=True)
    def count_times(self, request: messages.OfCause) -> messages.TimeCounts:
        """Count and sum as in sum_sizes, and count patients by public bin of their times, for a shared grid."""
        sizes = self._sizes(request)
        bins, event = to_bins(self.data.time, time_edges()), self.data.event
        kinds = (event == request.cause, (event != request.cause) & (event > 0), event == 0)
        counts = np.array([np.bincount(bins[kind], minlength=N_TIME_BINS + 1) for kind in kinds], dtype=np.float64)
        if self.is_alone:
            counts = join_bins(counts, self.least_behind)
        events, leaving = counts[0], counts.sum(axis=0)
        behind = self.behind(np.concatenate([events, leaving]))
        return messages.TimeCounts(**sizes, events=events, leaving=leaving, patients=behind)

    @step(releases=messages.ColumnCounts, when="once", summed=True)
    def count_columns(self, request: messages.Scale) -> messages.ColumnCounts:
        """Count patients by public bin of every column, for thresholds that all sites share."""
        self.ask_only_once("count_columns", request)
        self._check_sides(request.centre, request.spread)
        edges = column_edges(request.centre, request.spread)
        counts = np.zeros((len(edges), N_COLUMN_BINS))
        for column, values in enumerate(self._known_values()):
            counts[column] = np.bincount(to_column_bins(values, edges[column]), minlength=N_COLUMN_BINS)
        return messages.ColumnCounts(counts, patients=self.behind(counts))

    @step(releases=messages.UnitMismatch, when="once", summed=True)
    def compare_units(self, request: messages.Typical) -> messages.UnitMismatch:
        """Sum squares as in sum_squares, and flag a follow-up that differs tenfold from the median of all sites.

        It differs tenfold if times have another unit, for example days and months.
        """
        squares = self._squares(request.centre)
        self.ask_only_once("compare_units", request)
        # Rounded to half a power of ten, so that repeated requests disclose no more of the median.
        site_median = 10.0 ** (round(2 * np.log10(max(float(np.median(self.data.time)), 1e-300))) / 2)
        is_odd = not request.time / TENFOLD <= site_median <= request.time * TENFOLD
        if is_odd:
            log = logging.getLogger(f"multicentre.site.{self.site}")
            log.warning(
                "the median follow-up differs tenfold from that of all sites: check that it is in %r", self.data.unit
            )
        return messages.UnitMismatch(squares, float(is_odd), patients=self.behind())

    @step(releases=messages.EventTimes, when="once")
    def tell_times(self, request: messages.OfCause) -> messages.EventTimes:
        """Return the recorded times of events; used for exact times only, and only with permission."""
        times = np.unique(self.data.time[self.data.event == request.cause])
        return messages.EventTimes(times, patients=len(self.data))

    @step(releases=messages.AfterHorizon, when="once", summed=True)
    def agree(self, request: messages.Prepared) -> messages.AfterHorizon:
        """Check and store the agreement, once per fit, and count patients and events after its end of follow-up."""
        if (request.columns, request.levels) != (self.data.columns, self.data.levels):
            raise SchemaMismatch(
                f"columns must be the agreed ones, {', '.join(request.columns[:5])}; got "
                f"{', '.join(self.data.columns[:5])}",
                where="columns",
                hint="Use the same columns at every site.",
            )
        request.check(len(self.data.columns))
        if not self.has_exact_steps:
            check_grid_is_coarse(request.times)
        if self.state is not None and not _is_same(self.state, request):
            raise ConfigurationError(
                "the agreement must be the same throughout a fit; got a different one",
                where="agree",
                hint="Start a new fit.",
            )
        if self.state is None:
            self.state = self.first_memory(request)
        return self._count_after(request)

    def _count_after(self, agreed: messages.Prepared) -> messages.AfterHorizon:
        is_after = ~by_end(self.data.time, agreed.ends)
        causes = self.data.event[is_after]
        events, others = (
            np.count_nonzero(causes == agreed.cause),
            np.count_nonzero((causes != agreed.cause) & (causes > 0)),
        )
        # Those before are the difference from all patients, whose number leaves too.
        cells = events, others, len(causes) - events - others, len(is_after) - len(causes)
        behind = self.n_contributing(len(self.data), *cells)
        return messages.AfterHorizon(float(len(causes)), float(events), float(others), patients=behind)

    def first_memory(self, agreed: messages.Prepared) -> messages.Prepared:
        """Return the initial state after the agreement; a subclass may add to it."""
        return agreed

    @property
    def agreed(self) -> messages.Prepared:
        """Agreement of the fit.

        Raises
        ------
        ConfigurationError
            There is none.
        """
        if self.state is None:
            raise ConfigurationError(
                "the site must have an agreement before this step; got none", where=self.method, hint="Start a new fit."
            )
        return self.state

    @property
    def patients(self) -> Patients:
        """Patients of the site under the agreement."""
        if self._patients is None:
            self._patients = Patients(self.data, self.agreed)
        return self._patients

    @property
    def is_alone(self) -> bool:
        """True for the unmasked answer of the only site, which joins times until its counts meet its minimum."""
        return not self.masked and self.n_peers == 1

    def ask_only_once(self, name: str, request: Message) -> None:
        """Refuse a second request of this name that differs from the first: the difference could single out a patient.

        Raises
        ------
        ConfigurationError
            The request differs from the first.
        """
        encoded = encode(request)
        if self._first_requests.setdefault(name, encoded) != encoded:
            raise ConfigurationError(
                "repeated requests of a fit must be identical; got a different one", where=name, hint="Start a new fit."
            )

    def behind(self, counts: NDArray[np.generic] | None = None) -> int:
        """Return the number of patients behind a sum whose cells rest on `counts`: all of them under a mask.

        A mask hides every cell in the total over sites. Unmasked, the number is that of the smallest non-empty cell, or
        of the fewest patients who differ from the others in a column.
        """
        if self.masked:
            return len(self.data)
        cells = np.zeros(0) if counts is None else np.asarray(counts, dtype=np.float64)
        return int(min(cells[cells > 0].min(initial=len(self.data)), self._fewest_in_column))

    def _sizes(self, request: messages.OfCause) -> dict[str, Any]:
        """Return the fields of :class:`Sizes`, for the same cause in all steps of a fit."""
        self.ask_only_once("sizes", request)
        n_events = float((self.data.event == request.cause).sum())
        counts_and_sums = np.array([(len(sizes), sizes.sum()) for sizes in self._known_values()], dtype=np.float64)
        sizes = float(len(self.data)), n_events, counts_and_sums[:, 0], counts_and_sums[:, 1]
        return dict(zip(messages.Sizes.declarations(), sizes, strict=True))

    def _squares(self, centre: Floats) -> Floats:
        """Return the columns' squared differences from the centre, which is the same in all steps of a fit."""
        self.ask_only_once("squares", messages.About(centre))
        self._check_sides(centre)
        sums = [np.square(values - mean).sum() for values, mean in zip(self._known_values(), centre, strict=True)]
        squares = np.array(sums, dtype=np.float64)
        check_squares(self.data.columns, squares, messages.TOTAL)
        return squares

    def _check_sides(self, *arrays: Floats) -> None:
        for values in arrays:
            if len(values) != len(self.data.columns):
                raise MessageError(
                    f"the request must hold {len(self.data.columns)} columns; got {len(values)}", where=self.method
                )

    def _known_values(self) -> list[Floats]:
        return [values[~np.isnan(values)] for values in self.data.X.T]

    @cached_property
    def _fewest_in_column(self) -> int:
        return fewest_different(self.data.X)


def _is_same(stored: messages.Prepared, received: messages.Prepared) -> bool:
    names = messages.Prepared.declarations()
    return all(np.array_equal(getattr(stored, name), getattr(received, name)) for name in names)


def check_grid_is_coarse(times: Floats) -> None:
    """Raise ConfigurationError for more than 256 times, at which a site's answers would show its events."""
    if len(times) > MAX_TIMES:
        raise ConfigurationError(
            f"the grid must have at most {MAX_TIMES} times; got {len(times)} times, which is too fine",
            where="times",
            hint="Use a coarser grid.",
        )
