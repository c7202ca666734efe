"""Site part of the descriptive table: the steps that a coordinator can request.

Steps also inherited: ``count_below`` from statistics/quantiles/site.py, for quartiles.

Sites return counts and sums by group, which the coordinator adds up over sites. Only ``describe_site`` and
``check_quality`` return values of a single site. The guard refuses the first if a cell has fewer patients than the
policy's minimum; the second leaves out and rounds what would rest on few patients.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.analytics.describe.bins import N_BINS, STEPS, are_fine, bins_of, is_multiple
from multicentre.analytics.describe.messages import (
    PATIENTS,
    TOTAL,
    BinCounts,
    BinEdges,
    Counts,
    Described,
    Groups,
    Magnitudes,
    Means,
    Products,
    RankScores,
    ResolutionFlag,
    SiteQuality,
    SiteSummary,
    Squares,
    Standard,
    Units,
)
from multicentre.analytics.describe.ranks import counts_of_ranks, rank_scores
from multicentre.analytics.describe.site_quality import SPIKES, quality_of_column
from multicentre.analytics.describe.units import MAX_EXPONENT, check_sums, exponents_of
from multicentre.core.messages import Lengths, Message, Nothing
from multicentre.core.steps import step
from multicentre.core.transcript import digest_of
from multicentre.data.categories import families, join_level, read_level, split_level
from multicentre.data.records import effective_departures, fewest_different
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, MessageError, SchemaMismatch
from multicentre.statistics.quantiles.site import CountingPart, spreads_of

Floats = NDArray[np.float64]
OUTCOME = "outcome"
# Largest number of binary digits of a quartile: values that differ by a four-billionth.
MAX_DIGITS = 40


class DescribeSite(CountingPart):
    """Site part of the descriptive table."""

    method: ClassVar[str] = "describe"
    revision: ClassVar[int] = 4
    finest_of_spread: ClassVar[int] = MAX_DIGITS
    holds: ClassVar[type] = TableData
    remembers: ClassVar[type[Message]] = Groups
    lengths: ClassVar[Lengths] = {
        "g": "groups; the last is of patients without a group",
        "d": "numeric variables",
        "l": "levels of all categories",
        "t": "steps of recorded values",
        "b": "bins of a numeric variable",
        "k": "codes such as 999",
        "m": "2: size and spread",
    }
    data: TableData
    state: Groups | None = None
    _ranked: str = ""

    @step(releases=Described, when="once")
    def describe(self, request: Nothing) -> Described:
        """Return the names of columns, levels and classes, which must agree over sites."""
        data = self.data
        outcome = (data.outcome_name,) if data.outcome_name else ()
        return Described(data.columns, data.classes, levels=data.levels, outcome=outcome, patients=len(data))

    @step(releases=Magnitudes, when="once", summed=True)
    def find_magnitudes(self, request: Groups) -> Magnitudes:
        """Return the orders of magnitude of the numeric variables, for the units of their sums."""
        self._agree(request)
        flags, exponents = exponents_of(self._numbers)
        return Magnitudes(flags, exponents, patients=self._behind((~np.isnan(self._numbers)).sum(axis=0)))

    @step(releases=Counts, when="once", summed=True)
    def count_groups(self, request: Units) -> Counts:
        """Count patients by group and level, and sum the numeric variables."""
        self._agree(request)
        unit = self._unit_of(request)
        members, observed = self._members, ~np.isnan(self._numbers)
        counts = members.sum(axis=0), members.T @ observed, members.T @ np.nan_to_num(self._levels)
        n_patients, present, levels = (np.rint(each).astype(np.int64) for each in counts)
        total = members.T @ np.nan_to_num(self._numbers / unit)
        check_sums(total, request.numbers, TOTAL, "count_groups")
        return Counts(n_patients, present, levels, total, patients=self._behind(n_patients, present, levels))

    @step(releases=Squares, when="every round", summed=True)
    def sum_squares(self, request: Means) -> Squares:
        """Sum differences from the means, and their squares, by group, for the standard deviations."""
        self._agree(request)
        members, numbers = self._members, self._numbers
        if request.mean.shape != (members.shape[1], numbers.shape[1]):
            raise MessageError("the means must be those of the groups and variables of the fit", where=self.method)
        unit = self._unit_of(request)
        shift, squares = np.zeros((2, members.shape[1], numbers.shape[1]))
        for group in range(members.shape[1]):
            here = members[:, group] == 1.0
            differences = (numbers[here] - request.mean[group]) / unit
            shift[group], squares[group] = np.nansum(differences, axis=0), np.nansum(np.square(differences), axis=0)
        check_sums(np.maximum(np.abs(shift), squares), request.numbers, TOTAL, "sum_squares")
        present = np.rint(members.T @ ~np.isnan(numbers)).astype(np.int64)
        return Squares(shift, squares, patients=self._behind(members.sum(axis=0), present))

    @step(releases=SiteSummary, when="on request", refusable=True)
    def describe_site(self, request: Groups) -> SiteSummary:
        """Return counts, means and standard deviations of this site; refused if a cell is small."""
        self._agree(request)
        numbers, levels = self._numbers, np.nansum(self._levels, axis=0).astype(np.int64)
        present = (~np.isnan(numbers)).sum(axis=0)
        mean = np.nansum(numbers, axis=0) / np.maximum(present, 1)
        squares = np.nansum(np.square(numbers - mean), axis=0)
        deviation = np.sqrt(squares / np.maximum(present - 1, 1))
        n_patients = np.array([len(self.data)])
        cells = np.concatenate([n_patients, present, len(self.data) - present, levels])
        return SiteSummary(n_patients, present, levels, mean, deviation, patients=self._behind(cells, by_group=False))

    @step(releases=ResolutionFlag, when="once", summed=True)
    def find_steps(self, request: Groups) -> ResolutionFlag:
        """Return whether some value is not a multiple of a step (1, 0.1), by variable and step."""
        self._agree(request)
        off = np.array([[self._off_step(column, each) for each in STEPS] for column in self._numbers.T], dtype=np.int64)
        off = off.reshape(len(request.numbers), len(STEPS))
        return ResolutionFlag(np.minimum(off, 1), patients=self._behind(off))

    @step(releases=BinCounts, when="once", summed=True)
    def count_bins(self, request: BinEdges) -> BinCounts:
        """Count the patients of each group in the bins of each numeric variable."""
        self._agree(request)
        numbers, members = self._numbers, self._members
        self._check_bins(request)
        counts = np.zeros((members.shape[1], numbers.shape[1], N_BINS + 2), dtype=np.int64)
        for place, column in enumerate(numbers.T):
            present = ~np.isnan(column)
            bins = bins_of(column[present], float(request.low[place]), float(request.width[place]))
            np.add.at(counts[:, place], (members[present].argmax(axis=1), bins), 1)
        return BinCounts(counts, patients=self._behind(counts))

    @step(releases=Products, when="once", summed=True)
    def sum_products(self, request: Standard) -> Products:
        """Sum products of standardised variables over the patients with both of a pair, for correlations."""
        self._agree(request)
        numbers = self._numbers
        if not len(request.mean) == len(request.deviation) == numbers.shape[1] or (request.deviation <= 0).any():
            raise MessageError("there must be a mean and a positive deviation per variable", where=self.method)
        return self._products((numbers - request.mean) / request.deviation)

    @step(releases=Products, when="once", summed=True)
    def sum_rank_products(self, request: RankScores) -> Products:
        """Sum products of the scores of the bins, for rank correlations."""
        self._agree(request)
        self._check_bins(request)
        numbers, cells = self._numbers, []
        pooled_counts = _pooled_counts(request.score, numbers.shape[1])
        digest = digest_of(request)
        if self._ranked not in ("", digest):
            raise DisclosureRefused(
                "ranks of a fit must be those of its first request for rank correlations; got different ones",
                where="sum_rank_products",
                hint="Begin a new fit.",
            )
        self._ranked = digest
        scores = np.full(numbers.shape, np.nan)
        for place, pooled in enumerate(pooled_counts):
            present = ~np.isnan(numbers[:, place])
            bins = bins_of(numbers[present, place], float(request.low[place]), float(request.width[place]))
            cells.append(np.bincount(bins, minlength=N_BINS + 2))
            # All sites together have at least the patients of this site. A refusal of fewer would disclose its counts.
            scores[present, place] = rank_scores(np.maximum(pooled, cells[-1]))[bins]
        return self._products(scores, *cells, *self._departures(scores))

    @step(releases=SiteQuality, when="on request", refusable=True)
    def check_quality(self, request: Groups) -> SiteQuality:
        """Return rounded figures of this site for a comparison with others; what rests on few patients is left out."""
        self._agree(request)
        least = max(self.least_behind, 1)
        columns = [quality_of_column(column[~np.isnan(column)], least) for column in self._numbers.T]
        uses = (np.nansum(self._levels, axis=0) >= least).astype(np.int64)
        d = len(columns)
        present = np.array([column.present for column in columns], dtype=np.int64)
        spikes = np.array([column.spikes for column in columns], dtype=np.int64).reshape(d, len(SPIKES))
        moments, quarters, ends = (
            np.array([getattr(column, name) for column in columns], dtype=np.float64).reshape(d, n)
            for name, n in (("moments", 2), ("quarters", 3), ("ends", 2))
        )
        return SiteQuality(present, moments, quarters, ends, spikes, uses, patients=len(self.data))

    def quantile_values(self) -> Floats:
        """Return each numeric variable for all patients, then for those of each group, shape (n, (G + 1) d)."""
        numbers, members = self._numbers, self._members
        grouped = [np.where(members[:, [group]] == 1.0, numbers, np.nan) for group in range(members.shape[1] - 1)]
        return np.column_stack([numbers, *grouped])

    def spreads(self) -> Floats:
        """Return the standard deviation of each variable at this site, for all patients and each group alike."""
        return np.tile(spreads_of(self._numbers, self.least_behind), self._members.shape[1])

    def _check_bins(self, request: BinEdges) -> None:
        n_variables = self._numbers.shape[1]
        if not len(request.low) == len(request.width) == n_variables or (request.width <= 0).any():
            raise MessageError("there must be a lower edge and a positive width per variable", where=self.method)
        if self.least_behind > 1 and are_fine(request.low, request.width):
            raise DisclosureRefused(
                "bins must not be finer than a 3,840th of their lower edge if the policy has a minimum of patients",
                where="count_bins",
                hint="Use wider bins.",
            )

    def _unit_of(self, request: Units) -> Floats:
        """Return the unit of each variable, shape (d,)."""
        exponent = request.exponent
        if exponent.shape != (self._numbers.shape[1],) or (np.abs(exponent) > MAX_EXPONENT).any():
            raise MessageError(
                f"there must be an exponent from -{MAX_EXPONENT} to {MAX_EXPONENT} per variable",
                where=self.method,
            )
        return np.asarray(np.exp2(exponent.astype(np.float64)), dtype=np.float64)

    def _products(self, values: Floats, *cells: NDArray[Any]) -> Products:
        observed, filled = (~np.isnan(values)).astype(np.float64), np.nan_to_num(values)
        pairs = np.rint(observed.T @ observed).astype(np.int64)
        sums = filled.T @ observed, (filled**2).T @ observed, filled.T @ filled
        return Products(pairs, *sums, patients=self._behind(pairs, *cells))

    def _departures(self, scores: Floats) -> list[Floats]:
        """Return the effective numbers of patients behind sums of scores and of their products; not under a mask."""
        if self.masked:
            return []
        columns = [*scores.T, *(one * other for place, one in enumerate(scores.T) for other in scores.T[: place + 1])]
        numbers = [effective_departures(column[~np.isnan(column)]) for column in columns]
        return [np.array([number for number in numbers if number < len(scores)])]

    def _off_step(self, column: Floats, each: float) -> int:
        present = column[~np.isnan(column)]
        return int((~is_multiple(present, each)).sum())

    def _agree(self, request: Groups) -> None:
        fields: dict[str, Any] = {name: getattr(request, name) for name in Groups.declarations()}
        groups = Groups(**fields)
        if self.state not in (None, groups):
            raise ConfigurationError(
                "groups and variables must be those of the first request; got different ones",
                where=self.method,
                hint="Begin a new fit.",
            )
        self.state = groups

    @property
    def _groups(self) -> Groups:
        if self.state is None:
            raise ConfigurationError(
                "the fit must begin with its groups; got another request first",
                where=self.method,
                hint="Begin the fit again.",
            )
        return self.state

    @cached_property
    def _members(self) -> Floats:
        """Membership of each patient in each group, shape (n, G + 1); the last group is without a group."""
        groups = self._groups
        if not groups.by:
            return np.column_stack([np.ones(len(self.data)), np.zeros(len(self.data))])
        values = np.column_stack([self._level(join_level(groups.by, level)) for level in groups.group_levels])
        members = np.nan_to_num(values)
        return np.column_stack([members, members.sum(axis=1) == 0])

    @cached_property
    def _numbers(self) -> Floats:
        """Numeric variables, shape (n, d)."""
        data, names = self.data, self._groups.numbers
        columns = [data.y if self._is_outcome(name) else self._column(name) for name in names]
        return np.column_stack([np.zeros((len(data), 0)), *columns]).astype(np.float64)

    @cached_property
    def _fewest_different(self) -> list[int]:
        """Fewest who lack a variable, differ from most in it or dominate it: among all patients, then in each group."""
        columns = np.column_stack([self._numbers, self._levels])
        groups = [self._members[:, group] == 1.0 for group in range(self._members.shape[1])]
        return [fewest_different(columns), *(fewest_different(columns[here]) for here in groups if here.any())]

    @cached_property
    def _levels(self) -> Floats:
        """Levels of all categories, shape (n, l); NaN where missing."""
        return np.column_stack([np.zeros((len(self.data), 0)), *map(self._level, self._groups.levels)])

    def _is_outcome(self, name: str) -> bool:
        return name in (OUTCOME, self.data.outcome_name) and name not in self.data.columns

    def _column(self, name: str) -> Floats:
        if name not in self.data.columns:
            raise SchemaMismatch(
                f"variables must be columns of the site; got {name}",
                where="columns",
                hint=f"The columns are {', '.join(self.data.columns[:10])}.",
            )
        return np.asarray(self.data.X[:, self.data.columns.index(name)], dtype=np.float64)

    def _level(self, name: str) -> Floats:
        """Return 1 for the patients of a level, 0 for others, NaN where missing, shape (n,)."""
        data = self.data
        variable, level = split_level(name)
        if variable in families(data.levels):
            values = read_level(data.X, data.columns, data.levels, name)
            if values is None:
                raise SchemaMismatch(f"the level {name} must be declared at the site; it is not", where="levels")
            return np.asarray(values, dtype=np.float64)
        if data.classes and self._is_outcome(variable):
            return np.asarray(data.y == data.classes.index(level), dtype=np.float64)
        values = self._column(variable)
        if not np.isin(values[~np.isnan(values)], (0.0, 1.0)).all():
            raise DataError(
                "a categorical column of numbers must hold 0 and 1; some entries differ",
                where=variable,
                hint="Declare the levels of the category when the data are made.",
            )
        return np.asarray(np.where(np.isnan(values), np.nan, values == float(level)), dtype=np.float64)

    def _behind(self, *counts: NDArray[Any], by_group: bool = True) -> int:
        """Return the number of patients of the smallest non-empty cell; under a mask, of the site.

        Unmasked it is at most the number of those who differ in a variable, whatever the step, so that the refusal
        precedes all steps: a mean of zeros and ones is a count, and one level follows from the others.
        """
        if self.masked:
            return len(self.data)
        fewest = min(self._fewest_different if by_group else self._fewest_different[:1])
        cells = np.concatenate([np.asarray(each, dtype=np.float64).ravel() for each in counts])
        return int(cells[cells > 0].min(initial=fewest))


def _pooled_counts(ranks: Floats, n_variables: int) -> list[Floats]:
    """Return the patients of all sites in each bin, by variable, from the mean ranks of the bins."""
    if ranks.shape == (n_variables, N_BINS + 2):
        pooled = [counts_of_ranks(row) for row in ranks]
        if all((row >= 0).all() and (row == np.rint(row)).all() and row.sum() <= PATIENTS for row in pooled):
            return pooled
    raise MessageError("there must be a mean rank per variable and bin, of whole numbers of patients", where="describe")
