"""Site part of federated XGBoost: the steps that a coordinator can request and their answers.

Steps inherited from other modules:

- ``count_below``, from statistics/quantiles/site.py;
- ``count_gaps``, ``handle_gaps``, ``add_indicators`` and ``report_gaps``, from data/missing/values.py;
- ``sum_observed`` and ``fill_gaps``, from data/missing/filling.py.

Releases are declared in boosting/messages.py, those of inherited steps next to the steps. All are terms of sums over
sites, except the answers of ``describe`` (names of columns, levels and classes, and the digits of the public grid) and
``report_gaps``. The sums of the rounds are computed in boosting/records.py.

A site stores the margins of its records. Columns with weights or first margins are not features; the coordinator names
them before it searches for cuts. Without masks, a policy with a minimum of patients refuses smaller counts. It also
refuses the sums of the rounds if a group of records with equal bins, outcome, weight and first margin is smaller. In
each round a site answers for one set of growing trees, and stores it to refuse any other.
"""

from __future__ import annotations

from dataclasses import replace
from hashlib import sha256
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.boosting import messages
from multicentre.boosting.messages import (
    EXPONENTS,
    MAX_RECORD_WEIGHT,
    check_borders,
    check_level,
    check_start,
    check_trees,
)
from multicentre.boosting.records import Records
from multicentre.boosting.trees import MAX_CLASSES, OBJECTIVES, check_margins, single
from multicentre.core.calls import suggest_masks
from multicentre.core.messages import Lengths, Message, Nothing
from multicentre.core.steps import Acknowledgement, step
from multicentre.data.missing.filling import FillingPart
from multicentre.data.records import fewest_different
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, SchemaMismatch
from multicentre.statistics.quantiles.maths import coarsen
from multicentre.statistics.quantiles.site import CountingPart
from multicentre.trees.site import TreePart

Singles = NDArray[np.float32]

Sums = NDArray[np.int64]

# Sums of the magnitudes of no trees.
_NONE = (0.0, 0.0)


class BoostingSite(TreePart, FillingPart, CountingPart):
    """Site part of federated XGBoost."""

    method: ClassVar[str] = "fed-xgb"
    revision: ClassVar[int] = 2
    holds: ClassVar[type] = TableData
    remembers: ClassVar[type[Message]] = messages.Memory
    finest: ClassVar[int] = 28
    # Digits that distinguish any two numbers in single precision; see CountingPart.
    all_digits: ClassVar[int] = 36
    lengths: ClassVar[Lengths] = {
        "k": "classes",
        "s": "nodes of the trees that grow",
        "q": "cells: bins of a column in a node, or thresholds of the search for cuts",
        "z": "sums of each cell: slopes, curvatures, and numbers of records on request",
        "r": "cells of margins in which validation records are counted",
    }
    data: TableData
    state: messages.Memory | None = None
    _records: Records | None = None
    _unit: int | None = None
    _roles: messages.Roles = messages.Roles((), ())
    _checked: tuple[messages.Memory, tuple[float, float]] | None = None

    def quantile_values(self) -> NDArray[np.float64]:
        """Return the features, shape (n, d), in single precision."""
        return self._features().astype(np.float64)

    @step(releases=messages.Described, when="once")
    def describe(self, request: Nothing) -> messages.Described:
        """Return the names of columns, levels of categories and classes, which must agree over sites."""
        data = self.data
        single(data.X)
        digits = self.all_digits if self.least_behind <= 1 else self.finest
        return messages.Described(data.columns, data.classes, digits, levels=data.levels, patients=len(data))

    @step(releases=Acknowledgement, when="once")
    def assign_columns(self, request: messages.Roles) -> Acknowledgement:
        """Set the columns that are not features but weights or first margins; no value leaves the site."""
        named, begun = request.columns, self.state and self.state.roles
        is_new = self._roles in (messages.Roles((), ()), request) and begun in (None, request)
        if not is_new or len(set(named)) < len(named):
            raise ConfigurationError(
                "columns must have one role, that of the first request of this fit; got another one",
                where="assign_columns",
                hint="Begin a new fit.",
            )
        if missing := sorted(set(named) - set(self.data.columns)):
            raise SchemaMismatch(
                f"weights and first margins must be columns of the data; got {', '.join(missing)}",
                where="assign_columns",
                hint=f"The columns begin with {', '.join(self.data.columns[:8])}.",
            )
        if self._roles != request:
            self._roles = request
            # Entered in the transcript, so that no sum is read over sites with other roles.
            label = f"roles={sha256(repr(request).encode()).hexdigest()[:16]}"
            self.within = f"{self.within}/{label}" if self.within else label
        return Acknowledgement()

    @step(releases=messages.ClassCounts, when="once", summed=True)
    def count_classes(self, request: messages.OfClasses) -> messages.ClassCounts:
        """Count records by class, for the first margin."""
        if self.data.outcome != "class" or not len(self.data.classes) <= request.n_classes <= MAX_CLASSES:
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
        counts = count_magnitudes(self._outcomes())
        return messages.Magnitudes(counts, patients=self._behind(counts))

    @step(releases=messages.Magnitudes, when="once", summed=True)
    def count_weights(self, request: Nothing) -> messages.Magnitudes:
        """Count records by the order of magnitude of their weight, for the unit of the sums."""
        counts = count_magnitudes(self._weights().astype(np.float64))
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
        is_weighted, weights = request.weight_exponent is not None, self._weights().astype(np.float64)
        is_share = is_weighted and len(self.data.classes) == 2
        y = self.data.y.astype(np.float64) if is_share else self._outcomes()
        terms = in_units(y * weights, request.exponent)
        units = in_units(weights, int(request.weight_exponent or 0)) if is_weighted else np.ones(len(y))
        total = np.clip([terms.sum(), units.sum()], -messages.MAX_SUM, messages.MAX_SUM).astype(np.int64)
        behind = len(y) if self.masked else fewest_different(np.column_stack([terms, units]))
        return messages.Outcomes(total, patients=behind)

    @step(releases=Acknowledgement, when="once")
    def begin(self, request: messages.Start) -> Acknowledgement:
        """Store the agreed settings, once; no result leaves the site."""
        same = (request.columns, request.levels) == (self._feature_names, self.data.levels)
        same &= request.roles == self._roles
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
        check_start(request, len(self._feature_names))
        self._check_values(request)
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
        growing, wanted = self.take_level(request, messages.Trees, n_groups)
        records = self._caught_up()
        sums = records.sum_by_bin(growing, wanted, counted=request.counted)
        return messages.Histograms(sums, records.losses, patients=self._behind_rounds(records))

    @step(releases=messages.Losses, when="every round", summed=True)
    def sum_losses(self, request: messages.Finished) -> messages.Losses:
        """Sum the loss of the records under the trees so far."""
        check_trees(request, self.memory.n_bins, len(self.memory.base))
        self.take_trees(request.since, request.trees, len(self.memory.base))
        records = self._caught_up()
        return messages.Losses(records.losses, patients=self._behind_rounds(records))

    @step(releases=messages.Ranked, when="every round", summed=True)
    def count_ranks(self, request: messages.Ranking) -> messages.Ranked:
        """Count records by class and margin, for the area under the curve of validation records."""
        check_trees(request, self.memory.n_bins, len(self.memory.base))
        check_borders(request.borders)
        if self.memory.objective != "binary:logistic":
            raise ConfigurationError(
                f"the area under the curve requires two classes; got {self.memory.objective}",
                where="count_ranks",
                hint="Use the loss as the validation metric.",
            )
        self.take_trees(request.since, request.trees, len(self.memory.base))
        records = self._caught_up()
        sums = records.count_ranks(request.borders)
        return messages.Ranked(sums, patients=self._behind_rounds(records))

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

    def _caught_up(self) -> Records:
        """Return the records with the margins of all finished trees."""
        memory = self.memory
        if self._records is None:
            X, by_cell = self._cells_of(self._features()), replace(memory, cuts=self._cells_of(memory.cuts))
            columns = (self._weights(), self._first_margins())
            self._records = Records(X, self._signed_outcomes(), by_cell, *columns)
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

    def finished_trees(self) -> messages.Memory:
        """Return the site's state, which contains the trees of the fit."""
        return self.memory

    def add_trees(self, new: messages.Trees) -> None:
        """Add trees to the site's state, after a check of their margins."""
        memory = self.memory
        both = memory.trees.followed_by(new)
        checked, before = self._checked or (None, _NONE)
        # Trees of the state that was checked last are not checked again.
        unchecked, before = (new, before) if checked is memory else (both, _NONE)
        sums = check_margins(memory.objective, memory.base, unchecked.roots, unchecked.value, before)
        self.state = replace(memory, **both.fields)
        self._checked = self.state, sums

    @property
    def _feature_names(self) -> tuple[str, ...]:
        return tuple(name for name in self.data.columns if name not in self._roles.columns)

    def _features(self) -> Singles:
        """Return the columns without weights and first margins, shape (n, d), in single precision."""
        return single(self._columns_of(self._feature_names))

    def _weights(self) -> Singles:
        """Return the weights of the records, shape (n,)."""
        if not self._roles.weights:
            return np.ones(len(self.data), dtype=np.float32)
        weights = self._columns_of(self._roles.weights)[:, 0]
        if not ((weights >= 0) & (weights <= MAX_RECORD_WEIGHT)).all():
            raise DataError(
                f"weights must be numbers from 0 to {MAX_RECORD_WEIGHT:g}; at least one is missing or outside",
                where=self._roles.weights[0],
                hint="Leave out records without a weight.",
            )
        return weights.astype(np.float32)

    def _first_margins(self) -> Singles | None:
        """Return the first margins, shape (n, k); None if they are common."""
        return single(self._columns_of(self._roles.margins)) if self._roles.margins else None

    def _signed_outcomes(self) -> Singles:
        """Return the outcomes, shape (n,); with a column of events, times without an event are negative."""
        y = self.data.y.astype(np.float32)
        if not self._roles.events:
            return y
        events = self._columns_of(self._roles.events)[:, 0]
        if not np.isin(events, (0.0, 1.0)).all():
            raise DataError(
                "events must be 0 or 1; at least one is missing or another number",
                where=self._roles.events[0],
                hint="Leave out records of unknown state.",
            )
        return np.where(events == 1.0, y, -y)

    def _columns_of(self, names: tuple[str, ...]) -> NDArray[np.float64]:
        return self.data.X[:, [self.data.columns.index(name) for name in names]]

    def _check_values(self, request: messages.Start) -> None:
        """Raise DataError unless weights, first margins and outcomes are in range."""
        self._weights(), self._signed_outcomes()
        objective, margins = OBJECTIVES[request.objective], self._first_margins()
        if margins is not None and not (np.abs(margins) <= objective.largest_first_margin).all():
            raise DataError(
                f"first margins must be numbers of at most {objective.largest_first_margin:g} in magnitude; at least "
                "one is missing or larger",
                where=self._roles.margins[0],
                hint="Leave out records without a first margin.",
            )
        if objective.lowest is not None and not objective.permits(self._outcomes()):
            raise DataError(
                f"outcomes must be {'above' if objective.open_below else 'at least'} {objective.lowest:g} for "
                f"{request.objective}; got another one",
                where="y",
                hint="Use reg:squarederror.",
            )
        if request.subsample is not None and not self.masked and self.least_behind > 1:
            raise DisclosureRefused(
                f"sums over drawn records must be masked if the policy requires {self.least_behind} patients, because "
                "two draws may differ by few records; they are not masked",
                where="begin",
                hint=suggest_masks("Use subsample=1.", protection="unmasked", n_sites=self.n_peers),
            )

    def _outcomes(self) -> NDArray[np.float64]:
        if self.data.outcome != "number":
            raise SchemaMismatch("the outcome must be a number; got a class", where="y", hint='Set outcome="number".')
        return single(self.data.y).astype(np.float64)

    def _behind(self, counts: Sums) -> int:
        """Return the number of records of the smallest cell that is not empty; with a mask, of all cells."""
        return self.n_contributing(len(self.data), counts)

    def _behind_rounds(self, records: Records) -> int:
        """Return the smallest number of records in sums of the rounds; it is constant, so a refusal comes first."""
        return len(self.data) if self.masked else records.fewest


def count_magnitudes(values: NDArray[np.float64]) -> Sums:
    """Count values by their exponent of two, from LOWEST_EXPONENT on, shape (N_EXPONENTS,); zeros are left out."""
    exponents = np.clip(np.frexp(values[values != 0])[1] - messages.LOWEST_EXPONENT, 0, messages.N_EXPONENTS - 1)
    return np.bincount(exponents, minlength=messages.N_EXPONENTS)


def in_units(values: NDArray[np.float64], exponent: int) -> NDArray[np.float64]:
    """Return values as whole multiples of two to the power of `exponent`, within the range of sums."""
    return np.rint(np.clip(values * 2.0**-exponent, -messages.MAX_SUM, messages.MAX_SUM))
