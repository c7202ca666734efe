"""FedHazardBoost beside the patients: all that a coordinator can ask of a site, and all that it answers.

A site keeps the margins of its own patients; what leaves are sums over patients and intervals by bin, as terms of sums
over sites.
"""

from __future__ import annotations

from dataclasses import fields
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, DisclosureRefused
from multicentre.federation.messages import Message, Nothing
from multicentre.federation.steps import Acknowledgement, step
from multicentre.survival.agreement.messages import Agreed
from multicentre.survival.agreement.site import SurvivalPart, check_grid_is_coarse
from multicentre.survival.hazard import messages as sent
from multicentre.survival.hazard.limits import check_beginning, check_level, check_tree
from multicentre.survival.hazard.maths import first_cells, last_intervals
from multicentre.survival.hazard.rows import Rows, find_small
from multicentre.survival.times.joining import joined_bins

Integers = NDArray[np.int32]
Sums = NDArray[np.int64]


class HazardSite(SurvivalPart):
    """The site part of FedHazardBoost."""

    method: ClassVar[str] = "fed-hazard-boost"
    remembers: ClassVar[type[Message]] = sent.Memory
    _rows: Rows | None = None

    @step(releases=sent.IntervalCounts, when="once", summed=True)
    def count_intervals(self, ask: Nothing) -> sent.IntervalCounts:
        """Count patients by interval, those with an event and those who leave, for the hazard that all start from."""
        check_grid_is_coarse(self.agreed.times)
        last, n_times = self._last, len(self.agreed.times)
        events = np.bincount(last[self.patients.happened], minlength=n_times).astype(np.float64)
        leaving = np.bincount(last[last >= 0], minlength=n_times).astype(np.float64)
        joined = [self.joined(counts) for counts in (events, leaving)]
        return sent.IntervalCounts(*joined, patients=self.behind(np.concatenate(joined)))

    @step(releases=Acknowledgement, when="once")
    def begin(self, ask: sent.Beginning) -> Acknowledgement:
        """Take in where all patients start, once; nothing leaves."""
        check_grid_is_coarse(self.agreed.times)
        check_beginning(ask, len(self.agreed.times))
        memory = self.memory
        asked = sent.Beginning(memory.base, memory.seed, memory.subsample, memory.validation)
        if len(memory.base) and not _are_equal(asked, ask):
            raise ConfigurationError("the fit began otherwise", where="begin", mend="Begin a new fit.")
        self.state = _remember(memory, base=ask.base, seed=ask.seed, subsample=ask.subsample, validation=ask.validation)
        return Acknowledgement()

    @step(releases=sent.Histograms, when="every round", summed=True)
    def sum_slopes(self, ask: sent.Level) -> sent.Histograms:
        """Sum slopes and curvatures of the log-loss by node and bin, for the next splits of a tree."""
        n_bins = np.append(self.agreed.n_bins, len(self.agreed.times))
        check_level(ask, n_bins)
        self._check_protection()
        rows = self._caught_up(ask, n_bins)
        first = first_cells(self.agreed.n_bins, len(self.agreed.times))
        slopes, curvatures, patients = rows.sum_by_bin(ask.growing, ask.wanted, first)
        if not self.masked and self.least_behind > 1:
            small = find_small(rows, ask.growing, self.least_behind)[ask.wanted]
            for sums in (slopes, curvatures, patients):
                sums[small] = 0
            rows.join(slopes, curvatures, patients, first, self.least_behind)
        losses = rows.losses
        if not self.masked:
            losses = losses * (losses[:, 1:] >= self.least_behind)
        fewest = min(self.behind(patients), self.behind(losses[:, 1]))
        return sent.Histograms(slopes, curvatures, losses, patients=fewest)

    def first_memory(self, agreed: Agreed) -> sent.Memory:
        """Return a memory without a start and without trees."""
        none = np.zeros(0, dtype=np.int32)
        known = {field.name: getattr(agreed, field.name) for field in fields(agreed)}
        return sent.Memory(
            **known,
            base=np.zeros(0),
            seed=0,
            subsample=1.0,
            validation=0.0,
            roots=none,
            node_column=none,
            cut=none,
            left=none,
            right=none,
            value=np.zeros(0),
        )

    @property
    def memory(self) -> sent.Memory:
        """What the site remembers."""
        agreed = self.agreed
        if not isinstance(agreed, sent.Memory):
            raise ConfigurationError("the site has agreed on nothing", where=self.method, mend="Begin the fit anew.")
        return agreed

    @property
    def _least(self) -> int:
        """How many patients share an interval, a bin and a margin: one under an agreement for masked sums."""
        return 1 if self.agreed.masked else max(1, self.least_behind)

    @property
    def _last(self) -> Integers:
        """Return the last interval in which each patient counts, shape (n,); that of many, in clear."""
        patients, n_times = self.patients, len(self.agreed.times)
        last = last_intervals(patients.bins, patients.happened, self.data.time, self.agreed.times)
        joined, _ = joined_bins(last.astype(np.int64) + 1, patients.happened, n_times + 1, self._least)
        return np.minimum(joined - 1, n_times - 1).astype(np.int32)

    def _check_protection(self) -> None:
        """Raise DisclosureRefused for an ask in clear under an agreement for masked sums: nothing was joined."""
        if self.agreed.masked and not self.masked and self.least_behind > 1:
            raise DisclosureRefused(
                "the site agreed on masked sums", where="sum_slopes", mend="Begin a new fit, masked or not throughout."
            )

    def _caught_up(self, ask: sent.Level, n_bins: NDArray[np.int64]) -> Rows:
        """Return the patients' rows under as many trees as the coordinator has finished."""
        memory = self.memory
        if not len(memory.base):
            raise ConfigurationError("the fit has not begun", where="sum_slopes", mend="Begin the fit anew.")
        if ask.number == len(memory.roots) + 1 and len(ask.last_column):
            check_tree(ask.last, n_bins)
            memory = memory.with_tree(ask.last)
            self.state = memory
        if ask.number != len(memory.roots):
            raise ConfigurationError("a tree was skipped", where="Level.number", mend="Begin the fit anew.")
        if self._rows is None:
            self._rows = Rows(self.patients, self.data, self._last, memory, self._least)
            self._patients = None  # columns in full, which Rows no longer needs
        self._rows.catch_up(memory.trees)
        return self._rows


def _remember(memory: sent.Memory, **news: object) -> sent.Memory:
    known = {field.name: getattr(memory, field.name) for field in fields(memory)}
    return sent.Memory(**{**known, **news})


def _are_equal(one: sent.Beginning, other: sent.Beginning) -> bool:
    return all(np.array_equal(getattr(one, name), getattr(other, name)) for name in sent.Beginning.declarations())
