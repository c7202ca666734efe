"""Site part of a search for thresholds: the site counts its records by cell, exactly, and sends nothing else.

Masked sums reveal only totals over sites. If sums are unmasked, the guard refuses counts in which a non-empty cell has
fewer records than the policy's minimum.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Lengths, Message, array, count
from multicentre.core.steps import Release, SitePart, step
from multicentre.errors import ConfigurationError, DataError, DisclosureRefused, MessageError
from multicentre.statistics.quantiles.maths import Codes, count_in_cells, decode_doubles, encode_doubles, split_cells

# Upper bound of a count, for masking: about 2 billion, far more than a site has.
RECORDS = 2.0**31
# Divisors of 64, so that rounds split a code evenly; 16 bits would need 65,536 sub-cells per cell.
BITS = (1, 2, 4, 8)
# 1024 bins are four times xgboost's default (256); the limit also bounds the number of cells per request.
MAX_PARTS = 1024
# Smallest width of a cell beyond `finest` digits, in standard deviations: that of 24 digits at a value of one.
SHARE_OF_SPREAD = 2.0**-12
# A search begins again if a site is lost: one search, three repeats. This bounds the ranks that can be followed.
MAX_STARTS = 4


@dataclass(frozen=True)
class Cells(Message):
    """Cells of columns whose records are counted by sub-cell; each is within a cell of the previous request."""

    n_parts: int = count("parts that a column is cut into; upper limit of the cells per column")
    bits: int = count("a cell has 2**bits sub-cells")
    level: int = count("cells share their first level x bits binary digits")
    column: NDArray[np.int32] = array("column of each cell", ("q",), dtype="i4")
    prefix: NDArray[np.uint64] = array("common digits of the codes of a cell", ("q",), dtype="u8")


@dataclass(frozen=True)
class CellCounts(Release):
    """Counts of records in each cell, up to the end of each of its sub-cells."""

    below: NDArray[np.int64] = array("records, by cell and sub-cell", ("q", "b"), dtype="i8", bound=RECORDS)


@dataclass(frozen=True)
class Thresholds(Message):
    """Thresholds of all columns, one column after the other."""

    values: NDArray[np.float64] = array("thresholds, increasing within a column", ("t",))
    first: NDArray[np.int64] = array("index of the first threshold of every column, and the end", ("c",), dtype="i8")

    @classmethod
    def of(cls, columns: list[NDArray[np.float64]]) -> Thresholds:
        """Return the message for the thresholds of some columns."""
        first = np.cumsum([0, *(len(values) for values in columns)], dtype=np.int64)
        return cls(np.concatenate([np.zeros(0), *columns]), first)

    @property
    def columns(self) -> list[NDArray[np.float64]]:
        """Thresholds by column."""
        return np.split(self.values, self.first[1:-1])


class CountingPart(SitePart):
    """Base of the site parts of methods that search for thresholds of columns.

    A subclass returns the columns in :meth:`quantile_values`.

    Attributes
    ----------
    finest : int
        Maximum number of binary digits of a code if the policy requires a minimum of patients. 24 digits distinguish
        numbers with a relative difference above 1/4096. 36 digits distinguish any two float32 numbers.
    finest_of_spread : int
        Maximum number of digits of cells that are not narrower than a 4096th of the column's standard deviation at the
        site: values with a large constant then are as fine as centred ones. By default `finest`.

    Notes
    -----
    With masked sums, a coordinator that forges cells can follow a single record to this number of digits, but cannot
    link it to a patient.
    """

    sums_fields: ClassVar[bool] = True
    finest: ClassVar[int] = 24
    finest_of_spread: ClassVar[int] = 0
    lengths: ClassVar[Lengths] = {
        "q": "cells in which thresholds are searched",
        "b": "sub-cells of a cell",
    }
    _before: Cells | None = None
    _starts: int = 0
    _sorted: tuple[int, list[Codes]] | None = None

    def quantile_values(self) -> NDArray[np.float64]:
        """Return the columns to cut, shape (n, m), one row per patient or record; NaN where missing."""
        raise NotImplementedError

    def most_parts(self) -> int:
        """Return the maximum number of parts of a column, which also limits the number of cells per request."""
        return MAX_PARTS

    @step(releases=CellCounts, when="every round", summed=True)
    def count_below(self, request: Cells) -> CellCounts:
        """Count records by sub-cell of the range of values, for thresholds that cut a column into equal parts."""
        n_records, columns = self._codes()
        check_cells(request, self._before, len(columns), self.most_parts())
        starts = split_cells(request.prefix, request.level, request.bits)
        is_deeper = (request.level + 1) * request.bits > self.finest
        if is_deeper and not self._are_wide(request, starts):
            check_fineness(request, self.finest, self.least_behind)
        self._starts += request.level == 0
        if self._starts > MAX_STARTS:
            raise ConfigurationError(
                f"a fit must search at most {MAX_STARTS} times; got search {self._starts}",
                where="count_below",
                hint="Start a new fit.",
            )
        self._before = request
        below = np.empty(starts.shape, dtype=np.int64)
        for column in np.unique(request.column).tolist():
            here = request.column == column
            below[here] = count_in_cells(columns[column], starts[here], request.level, request.bits)
        missing = [n_records - len(columns[column]) for column in np.unique(request.column).tolist()]
        counts = np.diff(below, axis=1, prepend=0), missing
        return CellCounts(below, patients=self.n_contributing(n_records, *counts))

    def spreads(self) -> NDArray[np.float64]:
        """Return the standard deviation of each column at this site, shape (m,); infinite for few values."""
        return spreads_of(self.quantile_values(), self.least_behind)

    def _are_wide(self, request: Cells, starts: Codes) -> bool:
        """Return whether each sub-cell is at least a 4096th of a standard deviation wide, within the allowed digits."""
        if (request.level + 1) * request.bits > self.finest_of_spread:
            return False
        with np.errstate(invalid="ignore"):
            widths = np.diff(decode_doubles(starts), axis=1).min(axis=1)
        return bool((widths >= SHARE_OF_SPREAD * self.spreads()[request.column]).all())

    def _codes(self) -> tuple[int, list[Codes]]:
        """Return the number of records and the sorted codes of each column."""
        if self._sorted is None:
            values = self.quantile_values()
            if np.isinf(values).any():
                raise DataError(
                    "values must be finite or missing; at least one is infinite",
                    where="count_below",
                    hint="Leave missing entries empty.",
                )
            present = [column[~np.isnan(column)] for column in values.T]
            self._sorted = len(values), [np.sort(encode_doubles(column)) for column in present]
        return self._sorted


def spreads_of(values: NDArray[np.float64], least: int) -> NDArray[np.float64]:
    """Return the standard deviation of each column, shape (m,); infinite for fewer values than `least`, 0 for none.

    Examples
    --------
    >>> spreads_of(np.array([[1.0, 5.0, np.nan], [3.0, np.nan, np.nan]]), 2).tolist()
    [1.0, inf, 0.0]
    """
    present = ~np.isnan(values)
    sizes = present.sum(axis=0)
    centred = np.where(present, values - np.nansum(values, axis=0) / np.maximum(sizes, 1), 0.0)
    spreads = np.sqrt(np.square(centred).sum(axis=0) / np.maximum(sizes, 1))
    return np.asarray(np.where((sizes > 0) & (sizes < least), np.inf, spreads))


def check_cells(request: Cells, before: Cells | None, n_columns: int, most_parts: int = MAX_PARTS) -> None:
    """Raise unless the cells can belong to a search: each within a cell of the previous request, and few enough.

    Parameters
    ----------
    request : Cells
    before : Cells, optional
        Previous request in this session.
    n_columns : int
    most_parts : int, default 1024

    Raises
    ------
    MessageError
        Numbers are out of range, or cells are not in order.
    ConfigurationError
        The cells are not within those of the previous request, or belong to a different search.

    Examples
    --------
    >>> none = np.zeros(1, dtype=np.uint64)
    >>> check_cells(Cells(5, 4, 0, np.zeros(1, dtype=np.int32), none), None, 1)
    """
    if (
        request.bits not in BITS
        or not 2 <= request.n_parts <= most_parts
        or not 0 <= request.level < 64 // request.bits
    ):
        raise MessageError(
            f"bits must be one of {', '.join(map(str, BITS))}, n_parts from 2 to {most_parts}, "
            f"and level from 0 to below 64 / bits; got {request.bits}, {request.n_parts} and {request.level}",
            where="Cells",
        )
    column, prefix = request.column.astype(np.int64), request.prefix
    if not len(column) or column.min() < 0 or column.max() >= n_columns:
        raise MessageError(
            f"column must be numbers from 0 to {n_columns - 1}, at least one; got {len(column)}, or others",
            where="Cells.column",
        )
    if request.level < 64 // request.bits and (prefix >> np.uint64(request.level * request.bits)).any():
        raise MessageError(
            f"prefix must have at most {request.level * request.bits} binary digits; got more", where="Cells.prefix"
        )
    ordered = (np.diff(column) > 0) | ((np.diff(column) == 0) & (prefix[1:] > prefix[:-1]))
    if not ordered.all() or np.bincount(column).max() > request.n_parts:
        raise MessageError(
            f"cells must be in ascending order, at most {request.n_parts} per column; got unsorted cells, or more",
            where="Cells",
        )
    if not request.level and before is not None and (before.n_parts, before.bits) != (request.n_parts, request.bits):
        raise ConfigurationError(
            "n_parts and bits must be those of the previous search of the fit; got different ones",
            where="count_below",
            hint="Start the search again.",
        )
    if request.level and not _follows(request, before):
        raise ConfigurationError(
            "cells must be sub-cells of those of the previous request; got different ones",
            where="count_below",
            hint="Start the search again.",
        )


def check_fineness(request: Cells, finest: int, least_behind: int) -> None:
    """Raise DisclosureRefused for cells finer than `finest` digits if the policy requires a minimum of patients.

    Examples
    --------
    >>> none = np.zeros(1, dtype=np.uint64)
    >>> check_fineness(Cells(5, 4, 11, np.zeros(1, dtype=np.int32), none), 48, 10)
    """
    if (request.level + 1) * request.bits > finest and least_behind > 1:
        raise DisclosureRefused(
            f"cells must have at most {finest} digits if the policy requires {least_behind} patients per value; "
            f"got {(request.level + 1) * request.bits}",
            where="count_below",
            hint="Search with a tolerance above 0, or subtract a constant from columns whose values are far from 0.",
        )


def _follows(request: Cells, before: Cells | None) -> bool:
    if before is None or (before.n_parts, before.bits) != (request.n_parts, request.bits):
        return False
    if request.level == before.level:
        return np.array_equal(request.column, before.column) and np.array_equal(request.prefix, before.prefix)
    parents = zip(request.column.tolist(), (request.prefix >> np.uint64(request.bits)).tolist(), strict=True)
    parents_before = set(zip(before.column.tolist(), before.prefix.tolist(), strict=True))
    return request.level == before.level + 1 and parents_before.issuperset(parents)
