"""Site part of the descriptive table: the steps that a coordinator can request, and their messages.

Steps also inherited: ``count_below`` from statistics/quantiles/site.py, for quartiles.

Sites return counts and sums by group, which the coordinator adds up over sites. Only ``describe_site`` returns values
of a single site; the guard refuses them if a cell has fewer patients than the policy's minimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, Nothing, array, text, texts
from multicentre.core.steps import Release, step
from multicentre.data.categories import families, read_level
from multicentre.data.tabledata import TableData
from multicentre.errors import ConfigurationError, DataError, MessageError, SchemaMismatch
from multicentre.statistics.quantiles.site import CountingPart

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
OUTCOME = "outcome"
# Bounds of a site's counts and sums, for masking; as in survival methods.
PATIENTS, TOTAL = 2.0**24, 2.0**36


@dataclass(frozen=True)
class Described(Release):
    """Names of columns, levels and classes; independent of patients' values."""

    columns: tuple[str, ...] = texts("names of the columns", public=True)
    classes: tuple[str, ...] = texts("classes of the outcome; none for a number", public=True)
    levels: tuple[str, ...] = texts("declared levels of the categories, as name=level", public=True, default=())


@dataclass(frozen=True)
class Groups(Message):
    """Groups that are compared, and the variables."""

    by: str = text("variable whose levels are the groups; empty for none")
    group_levels: tuple[str, ...] = texts("levels of that variable")
    numbers: tuple[str, ...] = texts("numeric variables")
    levels: tuple[str, ...] = texts("levels of the other variables, as name=level")


@dataclass(frozen=True)
class Means(Groups):
    """Means of the numeric variables by group."""

    mean: Floats = array("mean by group and variable", ("g", "d"))


@dataclass(frozen=True)
class Counts(Release):
    """Counts by group, and sums of the numeric variables; patients without a group are the last group."""

    n_patients: Integers = array("patients of each group", ("g",), dtype="i8", bound=PATIENTS, counts=True)
    present: Integers = array(
        "patients with a number, by group and variable", ("g", "d"), dtype="i8", bound=PATIENTS, counts=True
    )
    levels: Integers = array("patients by group and level", ("g", "l"), dtype="i8", bound=PATIENTS, counts=True)
    total: Floats = array("sum of the numbers by group and variable", ("g", "d"), bound=TOTAL)


@dataclass(frozen=True)
class Squares(Release):
    """Sums for the variances of the numeric variables."""

    squares: Floats = array("sum of squared differences from the mean, by group and variable", ("g", "d"), bound=TOTAL)


@dataclass(frozen=True)
class SiteSummary(Release):
    """Counts, means and standard deviations of one site."""

    n_patients: Integers = array("patients", (1,), dtype="i8")
    present: Integers = array("patients with a number, by variable", ("d",), dtype="i8")
    levels: Integers = array("patients by level", ("l",), dtype="i8")
    mean: Floats = array("mean of every numeric variable; 0 without patients", ("d",))
    deviation: Floats = array("standard deviation of every numeric variable; 0 for fewer than two patients", ("d",))


class DescribeSite(CountingPart):
    """Site part of the descriptive table."""

    method: ClassVar[str] = "describe"
    holds: ClassVar[type] = TableData
    remembers: ClassVar[type[Message]] = Groups
    lengths: ClassVar[Lengths] = {
        "g": "groups; the last is of patients without a group",
        "d": "numeric variables",
        "l": "levels of all categories",
    }
    data: TableData
    state: Groups | None = None

    @step(releases=Described, when="once")
    def describe(self, request: Nothing) -> Described:
        """Return the names of columns, levels and classes, which must agree over sites."""
        data = self.data
        return Described(data.columns, data.classes, levels=data.levels, patients=len(data))

    @step(releases=Counts, when="once", summed=True)
    def count_groups(self, request: Groups) -> Counts:
        """Count patients by group and level, and sum the numeric variables."""
        self._agree(request)
        members, observed = self._members, ~np.isnan(self._numbers)
        counts = members.sum(axis=0), members.T @ observed, members.T @ np.nan_to_num(self._levels)
        n_patients, present, levels = (np.rint(each).astype(np.int64) for each in counts)
        total = members.T @ np.nan_to_num(self._numbers)
        return Counts(n_patients, present, levels, total, patients=self._behind(n_patients, present, levels))

    @step(releases=Squares, when="once", summed=True)
    def sum_squares(self, request: Means) -> Squares:
        """Sum squared differences from the means by group, for the standard deviations."""
        self._agree(request)
        members, numbers = self._members, self._numbers
        if request.mean.shape != (members.shape[1], numbers.shape[1]):
            raise MessageError("the means must be those of the groups and variables of the fit", where=self.method)
        squares = np.zeros((members.shape[1], numbers.shape[1]))
        for group in range(members.shape[1]):
            here = members[:, group] == 1.0
            squares[group] = np.nansum(np.square(numbers[here] - request.mean[group]), axis=0)
        present = np.rint(members.T @ ~np.isnan(numbers)).astype(np.int64)
        return Squares(squares, patients=self._behind(members.sum(axis=0), present))

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
        behind = int(cells[cells > 0].min())
        return SiteSummary(n_patients, present, levels, mean, deviation, patients=behind)

    def quantile_values(self) -> Floats:
        """Return each numeric variable for all patients, then for those of each group, shape (n, (G + 1) d)."""
        numbers, members = self._numbers, self._members
        grouped = [np.where(members[:, [group]] == 1.0, numbers, np.nan) for group in range(members.shape[1] - 1)]
        return np.column_stack([numbers, *grouped])

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
        values = np.column_stack([self._level(f"{groups.by}={level}") for level in groups.group_levels])
        members = np.nan_to_num(values)
        return np.column_stack([members, members.sum(axis=1) == 0])

    @cached_property
    def _numbers(self) -> Floats:
        """Numeric variables, shape (n, d)."""
        data, names = self.data, self._groups.numbers
        columns = [data.y if name == OUTCOME and name not in data.columns else self._column(name) for name in names]
        return np.column_stack([np.zeros((len(data), 0)), *columns]).astype(np.float64)

    @cached_property
    def _levels(self) -> Floats:
        """Levels of all categories, shape (n, l); NaN where missing."""
        return np.column_stack([np.zeros((len(self.data), 0)), *map(self._level, self._groups.levels)])

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
        variable, _, level = name.partition("=")
        if variable in families(data.levels):
            values = read_level(data.X, data.columns, data.levels, name)
            if values is None:
                raise SchemaMismatch(f"the level {name} must be declared at the site; it is not", where="levels")
            return np.asarray(values, dtype=np.float64)
        if variable == OUTCOME and data.classes and variable not in data.columns:
            return np.asarray(data.y == data.classes.index(level), dtype=np.float64)
        values = self._column(variable)
        other = ~np.isin(values[~np.isnan(values)], (0.0, 1.0))
        if other.any():
            raise DataError(
                f"a categorical column of numbers must hold 0 and 1; {int(other.sum())} of {len(other)} entries differ",
                where=variable,
                hint="Declare the levels of the category when the data are made.",
            )
        return np.asarray(np.where(np.isnan(values), np.nan, values == float(level)), dtype=np.float64)

    def _behind(self, *counts: NDArray[Any]) -> int:
        """Return the number of patients of the smallest non-empty cell; under a mask, of the site."""
        if self.masked:
            return len(self.data)
        cells = np.concatenate([np.asarray(each, dtype=np.float64).ravel() for each in counts])
        return int(cells[cells > 0].min(initial=len(self.data)))
