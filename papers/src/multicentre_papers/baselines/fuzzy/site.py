"""Site part of FedMVFCM and FedMVFPC: the steps that a coordinator can request. No step is inherited.

Both methods request the same: sums of rows over patients, weighted by their memberships for given cluster centres. The
methods differ in the coordinator's update. Memberships and labels stay at the site.

Unmasked sums of many rounds can be combined until a single patient's row remains, regardless of the number of patients
behind each sum. An unmasked sum therefore counts as based on the fewest patients with identical rows, which no weights
can separate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from multicentre.core.messages import Length, Lengths, Message, Nothing
from multicentre.core.steps import Acknowledgement, SitePart, step
from multicentre.data.multiview import MultiViewData
from multicentre.data.records import fewest_alike, fewest_different
from multicentre.errors import ConfigurationError
from multicentre_papers.baselines.fuzzy import limits, messages
from multicentre_papers.baselines.fuzzy.maths import Floats, Rows, add_up, measure_distances, share_memberships

BLOCK_ROWS = 2**15  # rows per block, so that copies of the rows stay small


class FuzzySite(SitePart):
    """Common site part of both methods; subclasses add only the method's name."""

    holds: ClassVar[type] = MultiViewData
    sums_fields: ClassVar[bool] = True
    remembers: ClassVar[type[Message]] = messages.Memory
    lengths: ClassVar[Lengths] = {
        "d": "columns of all views",
        "k": "views",
        "c": Length("clusters", "n_clusters"),
    }
    data: MultiViewData
    state: messages.Memory | None = None
    _rows: Rows | None = None

    @step(releases=messages.Description, when="once")
    def describe(self, request: Nothing) -> messages.Description:
        """Return the names of the views and columns, so that errors can name a site that differs."""
        limits.check_rows(self.data)
        schema = self.data.schema
        columns = {view: tuple(schema.columns[view]) for view in schema.views}
        kinds = {view: tuple(str(kind) for kind in schema.kinds[view]) for view in schema.views}
        return messages.Description(schema.views, columns, kinds, patients=self.fewest)

    @step(releases=messages.Orders, when="once", summed=True)
    def column_orders(self, request: messages.Layout) -> messages.Orders:
        """Return the order of magnitude of every column's spread, for the units of the sums."""
        limits.check_layout(self.data, request)
        n = self._count(request)
        here = np.maximum(n, 1.0)
        mean = self._total(request, 0.0, 1.0) / here
        spread = np.sqrt(self._total(request, mean, 1.0, squared=True) / here)
        spread = np.where(spread > np.abs(mean) * 1e-12, spread, np.abs(mean))
        orders = np.where((n > 0) & (spread > 0), np.rint(np.log2(np.where(spread > 0, spread, 1.0))), 0.0)
        return messages.Orders((n > 0).astype(np.float64), orders, patients=self.behind())

    @step(releases=messages.Totals, when="once", summed=True)
    def column_totals(self, request: messages.Measured) -> messages.Totals:
        """Count the patients per view and sum the columns, for the means over all sites."""
        limits.check_layout(self.data, request)
        limits.check_units(request, units=request.units)
        by_view = np.array([self._patients_by_view.get(view, 0) for view in request.views], dtype=np.float64)
        total = self._total(request, 0.0, request.units)
        return messages.Totals(by_view, float(len(self.data)), total, patients=self.behind())

    @step(releases=messages.Squares, when="once", summed=True)
    def column_squares(self, request: messages.Centred) -> messages.Squares:
        """Sum the squared deviations from the means over all sites, for the scales."""
        limits.check_layout(self.data, request)
        limits.check_units(request, request.centre, units=request.units)
        return messages.Squares(
            self._total(request, request.centre, request.units, squared=True), patients=self.behind()
        )

    @step(releases=Acknowledgement, when="once")
    def prepare(self, request: messages.Standards) -> Acknowledgement:
        """Store the agreed units, once; nothing leaves the site."""
        limits.check_layout(self.data, request)
        limits.check_units(request, request.centre, units=request.spread)
        if self.state is not None and not _is_same(self.state, request):
            raise ConfigurationError(
                "units must be those that the site has stored; got other units",
                where="prepare",
                hint="Start a new fit.",
            )
        if self.state is None:
            self.state = messages.Memory(request.views, request.columns, request.centre, request.spread, n_requests=0)
        return Acknowledgement()

    @step(releases=messages.MembershipSums, when="every round", summed=True)
    def sum_memberships(self, request: messages.Clusters) -> messages.MembershipSums:
        """Sum the patients' rows and their distances per cluster, weighted by memberships."""
        memory = self.memory
        limits.check_clusters(request, memory)
        limits.check_count(memory.n_requests)
        distances = measure_distances(self.rows, request.centres, plain=request.plain)
        weights = (
            share_memberships(distances, request.view_weights, request.fuzziness, plain=request.plain)
            ** request.fuzziness
        )
        self.state = replace(memory, n_requests=memory.n_requests + 1)
        sums = add_up(self.rows, weights, distances)
        patients = self.fewest if self.masked else self._fewest_alike
        return messages.MembershipSums(sums.moments, sums.masses, sums.dispersions, patients=patients)

    @cached_property
    def fewest(self) -> int:
        """Smallest number of patients with one of the site's views."""
        return min((n for n in self._patients_by_view.values() if n), default=0)

    def behind(self) -> int:
        """Return the number of patients behind sums of columns; unmasked, the fewest with another value in a column."""
        return self.fewest if self.masked else min(self.fewest, self._fewest_different)

    @property
    def memory(self) -> messages.Memory:
        """State of the site: the agreed units and the number of answered requests.

        Raises
        ------
        ConfigurationError
            No units were agreed.
        """
        if self.state is None:
            raise ConfigurationError(
                "units must be agreed before sums are requested; got a request without agreed units",
                where=self.method,
                hint="Start a new fit.",
            )
        return self.state

    @property
    def rows(self) -> Rows:
        """Rows of the site in the agreed units; computed once."""
        if self._rows is None:
            memory = self.memory
            standard = np.concatenate([(block - memory.centre) / memory.spread for block in self._blocks(memory)])
            self._rows = Rows.of(standard, list(memory.sizes.values()))
        return self._rows

    @cached_property
    def _entries(self) -> Floats:
        return np.hstack([self.data.array(view) for view in self.data.views])

    @cached_property
    def _fewest_alike(self) -> int:
        return fewest_alike(self._entries)

    @cached_property
    def _fewest_different(self) -> int:
        return fewest_different(self._entries)

    @cached_property
    def _patients_by_view(self) -> dict[str, int]:
        return self.data.n_patients_by_view

    def _count(self, layout: messages.Layout) -> Floats:
        return np.concatenate([np.full(n, float(self._patients_by_view.get(v, 0))) for v, n in layout.sizes.items()])

    def _total(
        self, layout: messages.Layout, centre: Floats | float, units: Floats | float, *, squared: bool = False
    ) -> Floats:
        total = np.zeros(sum(layout.sizes.values()))
        for block in self._blocks(layout):
            values = (block - centre) / units
            total += np.nansum(np.square(values) if squared else values, axis=0)
        return total

    def _blocks(self, layout: messages.Layout) -> Iterator[Floats]:
        """Yield the site's rows in blocks, so that copies stay small."""
        for start in range(0, len(self.data), BLOCK_ROWS):
            block = np.arange(start, min(start + BLOCK_ROWS, len(self.data)))
            yield self.data.take(block).stacked(layout.views, layout.sizes)


class MVFCMSite(FuzzySite):
    """Site part of FedMVFCM."""

    method: ClassVar[str] = "fed-mvfcm"


class MVFPCSite(FuzzySite):
    """Site part of FedMVFPC."""

    method: ClassVar[str] = "fed-mvfpc"


def _is_same(agreed: messages.Standards, requested: messages.Standards) -> bool:
    names = [field.name for field in fields(messages.Standards)]
    return all(np.array_equal(getattr(agreed, name), getattr(requested, name)) for name in names)
