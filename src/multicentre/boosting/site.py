"""Site part of federated XGBoost: the steps that a coordinator can request and their answers.

Steps inherited from other modules:

- ``count_below``, from statistics/quantiles/site.py;
- ``count_gaps``, ``handle_gaps``, ``add_indicators`` and ``report_gaps``, from data/missing/values.py;
- ``sum_observed`` and ``fill_gaps``, from data/missing/filling.py.

Releases are declared in boosting/messages.py, those of inherited steps next to the steps. All are terms of sums over
sites, except the answers of ``describe`` (names of columns, levels and classes) and ``report_gaps``.

A site stores the margins of its records. Without masks, a policy with a minimum of patients refuses smaller counts. It
also refuses the sums of the rounds if a group of records with equal bins and outcome is smaller. In each round a site
answers for one set of growing trees, and stores it to refuse any other.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.boosting import messages
from multicentre.boosting.messages import EXPONENTS, check_level, check_start, check_trees, is_grown_from
from multicentre.boosting.trees import MOST_CLASSES, OBJECTIVES, check_margins, single
from multicentre.core.messages import Lengths, Message, Nothing
from multicentre.core.steps import Acknowledgement, step
from multicentre.data.missing.filling import FillingPart
from multicentre.data.records import fewest_alike
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch
from multicentre.statistics.quantiles.maths import coarsen
from multicentre.statistics.quantiles.site import CountingPart

Bins = NDArray[np.uint16]

Integers = NDArray[np.int32]

Sums = NDArray[np.int64]


class Records:
    """Bins, margins and gradients of every record.

    Parameters
    ----------
    X : array of shape (n, d)
        Values in single precision, NaN for missing.
    y : array of shape (n,)
        Outcomes in single precision, or places of classes.
    start : Start
        Settings that all sites agree on.
    """

    def __init__(self, X: NDArray[np.float32], y: NDArray[np.float32], start: messages.Start) -> None:
        self._start, self._y = start, y
        self._objective = OBJECTIVES.index(start.objective)
        self._n_bins, self._first = start.n_bins, start.first
        self._binned = digitise(X, start)
        self._margins = np.repeat(start.base[None, :], len(y), axis=0)
        self._n_rounds = 0
        self._derivatives: Sums | None = None
        self._losses: Sums | None = None

    def catch_up(self, trees: messages.Trees) -> None:
        """Add the new rounds to the margins; with fewer rounds than before, compute the margins again."""
        n_groups = len(self._start.base)
        n_rounds = len(trees.roots) // n_groups
        if n_rounds == self._n_rounds:
            return
        if n_rounds < self._n_rounds:
            self._margins[:], self._n_rounds = self._start.base, 0
        for number in range(self._n_rounds, n_rounds):
            new = trees.slice(number * n_groups, (number + 1) * n_groups)
            leaves = self.find_leaves(new)
            for group in range(n_groups):
                self._margins[:, group] += new.value[leaves[group]]
        self._n_rounds, self._derivatives, self._losses = n_rounds, None, None

    def find_leaves(self, trees: messages.Trees) -> Integers:
        """Return the leaf of every record in each tree, shape (t, n)."""
        from multicentre.boosting.kernels import find_leaves

        nodes = (trees.roots, trees.column, trees.cut, trees.default_left, trees.left)
        return find_leaves(self._binned, self._n_bins, *nodes)

    def sum_by_bin(self, growing: messages.Trees, wanted: Integers) -> Sums:
        """Return slopes, curvatures and numbers of records by wanted leaf and cell, shape (s, q, 3)."""
        from multicentre.boosting.kernels import derive, sum_by_bin

        start = self._start
        if self._derivatives is None:
            units = 2.0**-start.slope_exponent, 2.0**-start.curvature_exponent
            self._derivatives = derive(self._objective, self._margins, self._y, start.positive, *units)
        row = np.full(len(growing.column), -1, dtype=np.int32)
        row[wanted] = np.arange(len(wanted))
        leaves = self.find_leaves(growing)
        return sum_by_bin(self._binned, leaves, row, self._derivatives, self._first, len(wanted))

    @cached_property
    def fewest(self) -> int:
        """Smallest number of records in an unmasked sum over nodes and bins.

        Records with equal bins and outcome are in the same leaf of every tree, with equal gradient and loss. All sums
        of all rounds consist of such groups. Deep trees separate any other records.
        """
        return fewest_alike(np.column_stack([self._binned.astype(np.float32), self._y]))

    @property
    def losses(self) -> Sums:
        """Sum of the losses, and number of records, shape (2,)."""
        from multicentre.boosting.kernels import find_losses

        if self._losses is None:
            losses = find_losses(self._objective, self._margins, self._y, 2.0**-self._start.loss_exponent)
            self._losses = np.array([losses.sum(), len(self._y)], dtype=np.int64)
        return self._losses


def digitise(X: NDArray[np.float32], cuts: messages.Cuts) -> Bins:
    """Return the bin of every value, shape (n, d): the number of cuts at or below it; one more than all if missing.

    Examples
    --------
    >>> cuts = messages.Cuts(np.array([1, 2], dtype=np.float32), np.array([2], dtype=np.int32))
    >>> digitise(np.array([[0.5], [1], [3], [np.nan]], dtype=np.float32), cuts).ravel().tolist()
    [0, 1, 2, 3]
    """
    binned = np.empty(X.shape, dtype=np.uint16)
    ends = np.append(0, np.cumsum(cuts.n_cuts)).tolist()
    for column in range(X.shape[1]):
        column_cuts, values = cuts.cuts[ends[column] : ends[column + 1]], X[:, column]
        bins = np.searchsorted(column_cuts, values, side="right")
        binned[:, column] = np.where(np.isnan(values), len(column_cuts) + 1, bins)
    return binned


class BoostingSite(FillingPart, CountingPart):
    """Site part of federated XGBoost."""

    method: ClassVar[str] = "fed-xgb"
    holds: ClassVar[type] = TableData
    remembers: ClassVar[type[Message]] = messages.Memory
    finest: ClassVar[int] = 28
    lengths: ClassVar[Lengths] = {
        "k": "classes",
        "s": "nodes of the trees that grow",
        "q": "cells: bins of a column in a node, or thresholds of the search for cuts",
        "z": "sums of each cell: slopes, curvatures, and numbers of records on request",
    }
    data: TableData
    state: messages.Memory | None = None
    _records: Records | None = None
    _unit: int | None = None
    _grown: tuple[int, messages.Trees] | None = None

    def quantile_values(self) -> NDArray[np.float64]:
        """Return the columns, shape (n, d), in single precision."""
        return single(self.data.X).astype(np.float64)

    @step(releases=messages.Described, when="once")
    def describe(self, request: Nothing) -> messages.Described:
        """Return the names of columns, levels of categories and classes, which must agree over sites."""
        data = self.data
        single(data.X)
        return messages.Described(data.columns, data.classes, levels=data.levels, patients=len(data))

    @step(releases=messages.ClassCounts, when="once", summed=True)
    def count_classes(self, request: messages.OfClasses) -> messages.ClassCounts:
        """Count records by class, for the first margin."""
        if self.data.outcome != "class" or not len(self.data.classes) <= request.n_classes <= MOST_CLASSES:
            raise SchemaMismatch(
                f"the outcome must be one of at most {request.n_classes} classes; got {self.data.outcome}, "
                f"{len(self.data.classes)} classes",
                where="classes",
                hint="Use the same classes at all sites.",
            )
        counts = np.bincount(self.data.y, minlength=request.n_classes)
        return messages.ClassCounts(counts, patients=self._behind(counts))

    @step(releases=messages.Magnitudes, when="once", summed=True)
    def count_magnitudes(self, request: Nothing) -> messages.Magnitudes:
        """Count records by the order of magnitude of their outcome, for the unit of the sums."""
        y = self._outcomes()
        exponents = np.clip(np.frexp(y[y != 0])[1] - messages.LOWEST_EXPONENT, 0, messages.N_EXPONENTS - 1)
        counts = np.bincount(exponents, minlength=messages.N_EXPONENTS)
        return messages.Magnitudes(counts, patients=self._behind(counts))

    @step(releases=messages.Outcomes, when="once", summed=True)
    def sum_outcomes(self, request: messages.InUnits) -> messages.Outcomes:
        """Sum the outcomes, for the first margin."""
        if request.exponent not in EXPONENTS or self._unit not in (None, request.exponent):
            raise ConfigurationError(
                f"the exponent must be from {EXPONENTS[0]} to {EXPONENTS[-1]} and that of the first request; "
                f"got {request.exponent}",
                where="InUnits",
                hint="Begin a new fit.",
            )
        self._unit = request.exponent
        whole = np.rint(np.clip(self._outcomes() * 2.0**-request.exponent, -messages.LARGEST_SUM, messages.LARGEST_SUM))
        total = np.array([np.clip(whole.sum(), -messages.LARGEST_SUM, messages.LARGEST_SUM), len(whole)]).astype(
            np.int64
        )
        behind = len(whole) if self.masked else int(np.count_nonzero(whole)) or len(whole)
        return messages.Outcomes(total, patients=behind)

    @step(releases=Acknowledgement, when="once")
    def begin(self, request: messages.Start) -> Acknowledgement:
        """Store the agreed settings, once; no result leaves the site."""
        same = (request.columns, request.levels) == (self.data.columns, self.data.levels)
        if not same or request.classes[: len(self.data.classes)] != self.data.classes:
            raise SchemaMismatch(
                "columns and classes must be those of the site; got different ones",
                where="begin",
                hint="Use the same names at all sites.",
            )
        if (self.data.outcome == "class") != bool(request.classes):
            raise SchemaMismatch(
                f"the outcome must be a {'class' if request.classes else 'number'}; got a {self.data.outcome}",
                where="begin",
                hint="Use FedXGBClassifier for classes and FedXGBRegressor for numbers.",
            )
        check_start(request, len(self.data.columns))
        if request.objective == "count:poisson" and (self._outcomes() < 0).any():
            raise DataError(
                "counts must be at least 0; got a negative outcome", where="y", hint="Use reg:squarederror."
            )
        settings: dict[str, Any] = {name: getattr(request, name) for name in messages.Start.declarations()}
        if self.state is not None and not all(np.array_equal(getattr(self.state, n), v) for n, v in settings.items()):
            raise ConfigurationError(
                "settings must be those of the first request; got different ones",
                where="begin",
                hint="Begin a new fit.",
            )
        if self.state is None:
            self.state = messages.Memory(**settings, **messages.Trees.none().fields)
        return Acknowledgement()

    @step(releases=messages.Histograms, when="every round", summed=True)
    def sum_gradients(self, request: messages.Level) -> messages.Histograms:
        """Sum slopes and curvatures of the loss by node and bin, for the next splits."""
        n_groups = len(self.memory.base)
        check_level(request, self.memory.n_bins, n_groups)
        n_finished = len(request.roots) - n_groups
        records = self._caught_up(request.since, request.slice(0, n_finished))
        growing = request.slice(n_finished)
        self._check_growth(len(self.memory.roots) // n_groups, growing)
        sums = records.sum_by_bin(growing, request.wanted - request.roots[n_finished])
        requested = sums if request.counted else np.ascontiguousarray(sums[..., :2])
        return messages.Histograms(
            _in_range(requested), _in_range(records.losses), patients=self._behind_rounds(records)
        )

    @step(releases=messages.Losses, when="every round", summed=True)
    def sum_losses(self, request: messages.Finished) -> messages.Losses:
        """Sum the loss of the records under the trees so far."""
        check_trees(request, self.memory.n_bins, len(self.memory.base))
        records = self._caught_up(request.since, request.trees)
        return messages.Losses(_in_range(records.losses), patients=self._behind_rounds(records))

    @property
    def memory(self) -> messages.Memory:
        """State of the site: the agreed start and the trees so far.

        Raises
        ------
        ConfigurationError
            The fit has not begun.
        """
        if self.state is None:
            raise ConfigurationError(
                "the fit must begin with its settings; got another request first",
                where=self.method,
                hint="Begin the fit again.",
            )
        return self.state

    def _caught_up(self, since: int, news: messages.Trees) -> Records:
        """Return the records with the margins of all finished trees."""
        memory = self.memory
        n_stored, start = len(memory.roots), since * len(memory.base)
        n_again = min(n_stored - start, len(news.roots))
        if n_again < 0 or not _are_equal(memory.slice(start, start + n_again), news.slice(0, n_again)):
            raise ConfigurationError(
                "trees must continue those of the site; got a sequence with skipped or changed trees",
                where="Finished",
                hint="Begin the fit again.",
            )
        if len(news.roots) < n_stored - start:
            raise ConfigurationError(
                f"trees must be at least the {n_stored - start} that the site has; got {len(news.roots)}",
                where="Finished",
                hint="Begin the fit again.",
            )
        if n_again < len(news.roots):
            self.state = memory = self._with_trees(memory, news.slice(n_again))
        if self._records is None:
            X, by_cell = self._cells_of(single(self.data.X)), replace(memory, cuts=self._cells_of(memory.cuts))
            self._records = Records(X, self.data.y.astype(np.float32), by_cell)
        self._records.catch_up(memory)
        return self._records

    def _cells_of(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the first value of the public cell of each value, if the policy requires a minimum of patients.

        Values and cuts are compared by cell. Cuts from a search are borders of cells and separate the same records as
        before. A cut chosen next to the value of one record does not separate it from the others of its cell.
        """
        if self.least_behind <= 1:
            return values
        return coarsen(values.astype(np.float64), self.finest).astype(np.float32)

    def _with_trees(self, memory: messages.Memory, new: messages.Trees) -> messages.Memory:
        """Return the state with new rounds, after a check of their margins and of the trees that grew last."""
        number, n_groups = len(memory.roots) // len(memory.base), len(memory.base)
        if self._grown and self._grown[0] == number and not is_grown_from(new.slice(0, n_groups), self._grown[1]):
            raise ConfigurationError(
                "finished trees must be those that grew; got different trees",
                where="Finished",
                hint="Begin a new fit.",
            )
        memory = replace(memory, **memory.followed_by(new).fields)
        check_margins(memory.objective, memory.base, memory.roots, memory.value)
        return memory

    def _check_growth(self, number: int, growing: messages.Trees) -> None:
        """Raise ConfigurationError unless trees grow from those of the last answer."""
        last, before = self._grown or (number, growing)
        if last > number or (last == number and not is_grown_from(growing, before)):
            raise ConfigurationError(
                "trees must grow by splits of leaves only; got changed splits",
                where="Level",
                hint="Begin a new fit.",
            )
        self._grown = number, growing

    def _outcomes(self) -> NDArray[np.float64]:
        if self.data.outcome != "number":
            raise SchemaMismatch("the outcome must be a number; got a class", where="y", hint='Set outcome="number".')
        return single(self.data.y).astype(np.float64)

    def _behind(self, counts: Sums) -> int:
        """Return the number of records of the smallest cell that is not empty; with a mask, of all cells."""
        return len(self.data) if self.masked else int(counts[counts > 0].min(initial=len(self.data)))

    def _behind_rounds(self, records: Records) -> int:
        """Return the smallest number of records in sums of the rounds; it is constant, so a refusal comes first."""
        return len(self.data) if self.masked else records.fewest


def _in_range(sums: Sums) -> Sums:
    """Return sums clipped to the declared bound, so that no record can make a site refuse."""
    return np.clip(sums, -int(messages.LARGEST_SUM), int(messages.LARGEST_SUM))


def _are_equal(one: messages.Trees, other: messages.Trees) -> bool:
    return all(np.array_equal(value, other.fields[name]) for name, value in one.fields.items())
