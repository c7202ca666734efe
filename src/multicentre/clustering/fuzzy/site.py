"""FedMVFCM and FedMVFPC beside the patients: all that a coordinator can ask of a site, and all that it answers.

Both methods ask the same: given the clusters' centres, sums of rows over patients weighted by their memberships. What
the coordinator makes of the sums tells them apart. No membership and no label leaves.

Where answers leave in clear, a site leaves out the clusters to which too few of its patients amount (those patients
count in the other clusters), and answers as it did last until each cluster differs by enough patients from every one
that left in the fit, and no combination of all that left would rest mostly on one patient: otherwise a difference of
answers, however long ago, would be one patient's row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from multicentre.clustering.fuzzy import limits
from multicentre.clustering.fuzzy import messages as sent
from multicentre.clustering.fuzzy.crowds import (
    ROUNDING,
    count_behind,
    have_many_moved,
    is_of_many,
    span,
    weigh_many,
    widen,
)
from multicentre.clustering.fuzzy.maths import Floats, Rows, add_up, find_nearest, measure_distances, share_memberships
from multicentre.data.multiview import MultiViewData
from multicentre.federation.errors import ConfigurationError
from multicentre.federation.messages import Message, Nothing
from multicentre.federation.steps import Acknowledgement, SitePart, step

BLOCK_ROWS = 2**15


class FuzzySite(SitePart):
    """What the site parts of both methods share, which is all but their names."""

    holds: ClassVar[type] = MultiViewData
    remembers: ClassVar[type[Message]] = sent.Memory
    data: MultiViewData
    state: sent.Memory | None = None
    _rows: Rows | None = None
    _spanned: tuple[Floats | None, list[Floats]] | None = None

    @step(releases=sent.Description, when="once")
    def describe(self, ask: Nothing) -> sent.Description:
        """Name the views and columns, so that a site that differs can be named."""
        limits.check_rows(self.data)
        schema = self.data.schema
        columns = {view: tuple(schema.columns[view]) for view in schema.views}
        kinds = {view: tuple(str(kind) for kind in schema.kinds[view]) for view in schema.views}
        return sent.Description(schema.views, columns, kinds, patients=self.fewest)

    @step(releases=sent.Orders, when="once", summed=True)
    def column_orders(self, ask: sent.Layout) -> sent.Orders:
        """Tell the order of magnitude of every column's spread, for the units of the sums."""
        limits.check_layout(self.data, ask)
        n = self._count(ask)
        here = np.maximum(n, 1.0)
        mean = self._total(ask, 0.0, 1.0) / here
        spread = np.sqrt(self._total(ask, mean, 1.0, squared=True) / here)
        spread = np.where(spread > np.abs(mean) * 1e-12, spread, np.abs(mean))
        orders = np.where((n > 0) & (spread > 0), np.rint(np.log2(np.where(spread > 0, spread, 1.0))), 0.0)
        return sent.Orders((n > 0).astype(np.float64), orders, patients=self.fewest)

    @step(releases=sent.Totals, when="once", summed=True)
    def column_totals(self, ask: sent.Measured) -> sent.Totals:
        """Count patients by view and sum the columns, for the means over all sites."""
        limits.check_layout(self.data, ask)
        limits.check_units(ask, units=ask.units)
        by_view = np.array([self._patients_by_view.get(view, 0) for view in ask.views], dtype=np.float64)
        total = self._total(ask, 0.0, ask.units)
        return sent.Totals(by_view, float(len(self.data)), total, patients=self.fewest)

    @step(releases=sent.Squares, when="once", summed=True)
    def column_squares(self, ask: sent.Centred) -> sent.Squares:
        """Sum the squares about the means over all sites, for the scales."""
        limits.check_layout(self.data, ask)
        limits.check_units(ask, ask.centre, units=ask.units)
        return sent.Squares(self._total(ask, ask.centre, ask.units, squared=True), patients=self.fewest)

    @step(releases=Acknowledgement, when="once")
    def prepare(self, ask: sent.Standards) -> Acknowledgement:
        """Take in the agreed units, once; nothing leaves."""
        limits.check_layout(self.data, ask)
        limits.check_units(ask, ask.centre, units=ask.spread)
        if self.state is not None and not _is_same(self.state, ask):
            raise ConfigurationError("the fit began in other units", where="prepare", mend="Begin a new fit.")
        if self.state is None:
            self.state = sent.Memory(ask.views, ask.columns, ask.centre, ask.spread, n_asked=0)
        return Acknowledgement()

    @step(releases=sent.MembershipSums, when="every round", summed=True)
    def sum_memberships(self, ask: sent.Clusters) -> sent.MembershipSums:
        """Sum the patients' rows by cluster, each weighted by its membership, and the distances to the centres."""
        memory = self.memory
        limits.check_clusters(ask, memory)
        limits.check_count(memory.n_asked)
        distances = measure_distances(self.rows, ask.centres, plain=ask.plain)
        if self.masked or self.least_behind <= 1:
            weights = share_memberships(distances, ask.view_weights, ask.fuzziness, plain=ask.plain) ** ask.fuzziness
            self.state = replace(memory, n_asked=memory.n_asked + 1)
            return self._answer(weights, distances)
        return self._answer_in_clear(ask, distances)

    @cached_property
    def fewest(self) -> int:
        """The fewest patients that have one of the site's views."""
        return min((n for n in self._patients_by_view.values() if n), default=0)

    @property
    def memory(self) -> sent.Memory:
        """What the site remembers.

        Raises
        ------
        ConfigurationError
            The site was not prepared.
        """
        if self.state is None:
            raise ConfigurationError("the site has agreed on nothing", where=self.method, mend="Begin the fit anew.")
        return self.state

    @property
    def rows(self) -> Rows:
        """The site's rows in the agreed units; made once."""
        if self._rows is None:
            memory = self.memory
            standard = np.concatenate([(block - memory.centre) / memory.spread for block in self._blocks(memory)])
            self._rows = Rows.of(standard, list(memory.sizes.values()))
        return self._rows

    def _answer(self, weights: Floats, distances: Floats) -> sent.MembershipSums:
        sums = add_up(self.rows, weights, distances)
        return sent.MembershipSums(sums.moments, sums.masses, sums.dispersions, patients=self._behind(weights))

    def _answer_in_clear(self, ask: sent.Clusters, distances: Floats) -> sent.MembershipSums:
        memory, shown, least = self.memory, self.rows.shown, self.least_behind
        weights = weigh_many(distances, ask.view_weights, ask.fuzziness, shown, plain=ask.plain, least=least)
        told = _or_none(memory.weights, weights)
        if told.shape[1:] != weights.shape:
            raise ConfigurationError("the fit began with other clusters", where="Clusters", mend="Begin a new fit.")
        self.state = memory = replace(memory, n_asked=memory.n_asked + 1)
        if len(told) and not self._may_add(told, weights):
            return self._repeat(told, ask, distances)
        answer = self._answer(weights, distances)
        bases = widen(self._bases(told), weights, shown)
        self.state = memory = replace(
            memory,
            weights=np.concatenate([told, weights[None]]),
            centres=np.concatenate([_or_none(memory.centres, ask.centres), ask.centres[None]]),
            dispersions=np.concatenate([_or_none(memory.dispersions, answer.dispersions), answer.dispersions[None]]),
        )
        self._spanned = memory.weights, bases
        return answer

    def _repeat(self, told: Floats, ask: sent.Clusters, distances: Floats) -> sent.MembershipSums:
        """Return the answer to the ask whose centres were nearest: no patient decides which."""
        memory = self.memory
        which, order = find_nearest(_or_none(memory.centres, ask.centres), ask.centres)
        dispersions = _or_none(memory.dispersions, np.empty(0))[which]
        return replace(self._answer(told[which][:, order], distances), dispersions=dispersions)

    def _may_add(self, told: Floats, weights: Floats) -> bool:
        """Whether weights may leave besides those of all earlier answers."""
        shown, least = self.rows.shown, self.least_behind
        return (
            len(told) < limits.most_in_clear(*weights.shape)
            and all(have_many_moved(before, weights, shown, least) for before in reversed(told))
            and is_of_many(widen(self._bases(told), weights, shown))
        )

    def _bases(self, told: Floats) -> list[Floats]:
        """Return what the answers that left span; made anew from what is remembered after a break."""
        if self._spanned is None or self._spanned[0] is not told:
            self._spanned = told, span(told, self.rows.shown)
        return self._spanned[1]

    def _behind(self, weights: Floats) -> int:
        """Return to how many patients the smallest cluster amounts: all of them under a mask."""
        if self.masked or self.least_behind <= 1:
            return self.fewest
        behind = count_behind(weights, self.rows.shown)
        return int(behind[behind > 0].min(initial=float(self.fewest)) + ROUNDING)

    @cached_property
    def _patients_by_view(self) -> dict[str, int]:
        return self.data.n_patients_by_view

    def _count(self, layout: sent.Layout) -> Floats:
        return np.concatenate([np.full(n, float(self._patients_by_view.get(v, 0))) for v, n in layout.sizes.items()])

    def _total(
        self, layout: sent.Layout, centre: Floats | float, units: Floats | float, *, squared: bool = False
    ) -> Floats:
        found = np.zeros(sum(layout.sizes.values()))
        for block in self._blocks(layout):
            values = (block - centre) / units
            found += np.nansum(np.square(values) if squared else values, axis=0)
        return found

    def _blocks(self, layout: sent.Layout) -> Iterator[Floats]:
        """Yield the site's rows a block at a time, so that copies of them stay small."""
        for start in range(0, len(self.data), BLOCK_ROWS):
            block = np.arange(start, min(start + BLOCK_ROWS, len(self.data)))
            yield self.data.take(block).stacked(layout.views, layout.sizes)


class MVFCMSite(FuzzySite):
    """The site part of FedMVFCM."""

    method: ClassVar[str] = "fed-mvfcm"


class MVFPCSite(FuzzySite):
    """The site part of FedMVFPC."""

    method: ClassVar[str] = "fed-mvfpc"


def _or_none(known: Floats | None, one: Floats) -> Floats:
    """Return what is known, or none of what will be."""
    return np.empty((0, *one.shape)) if known is None else known


def _is_same(known: sent.Standards, asked: sent.Standards) -> bool:
    names = [field.name for field in fields(sent.Standards)]
    return all(np.array_equal(getattr(known, name), getattr(asked, name)) for name in names)
