"""Requests and answers of a search for thresholds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError, DisclosureRefused, MessageError
from multicentre.federation.messages import Message, array, count
from multicentre.federation.steps import Release

RECORDS = 2.0**31


@dataclass(frozen=True)
class Cells(Message):
    """Cells of columns whose records are to be counted by sub-cell; each lies in one that was asked for before."""

    n_parts: int = count("parts that a column is cut into; no more cells of it are asked for")
    bits: int = count("a cell has 2**bits sub-cells")
    level: int = count("cells share their first level x bits binary digits")
    column: NDArray[np.int32] = array("column of each cell", ("q",), dtype="i4")
    prefix: NDArray[np.uint64] = array("the digits that the codes of a cell share", ("q",), dtype="u8")


@dataclass(frozen=True)
class CellCounts(Release):
    """Records of each cell, up to the end of each of its sub-cells."""

    below: NDArray[np.int64] = array("records, by cell and sub-cell", ("q", "b"), dtype="i8", bound=RECORDS)


@dataclass(frozen=True)
class Thresholds(Message):
    """Thresholds of all columns, one column after the other."""

    values: NDArray[np.float64] = array("thresholds, increasing within a column", ("t",))
    first: NDArray[np.int64] = array("place of every column's first threshold, and the end", ("c",), dtype="i8")

    @classmethod
    def of(cls, columns: list[NDArray[np.float64]]) -> Thresholds:
        """Return the message of some columns' thresholds."""
        first = np.cumsum([0, *(len(values) for values in columns)], dtype=np.int64)
        return cls(np.concatenate([np.zeros(0), *columns]), first)

    @property
    def columns(self) -> list[NDArray[np.float64]]:
        """The thresholds, by column."""
        return np.split(self.values, self.first[1:-1])


BITS = (1, 2, 4, 8)
MOST_PARTS = 1024
MOST_STARTS = 4


def check_cells(ask: Cells, before: Cells | None, n_columns: int, most_parts: int = MOST_PARTS) -> None:
    """Raise unless the cells can come from a search: each in one of those asked for before, and few enough.

    Parameters
    ----------
    ask : Cells
    before : Cells, optional
        What was asked for last in this session.
    n_columns : int
    most_parts : int, default 1024

    Raises
    ------
    MessageError
        Numbers are out of range, or cells are not in order.
    ConfigurationError
        The cells do not follow from those asked for before, or another search was begun.

    Examples
    --------
    >>> none = np.zeros(1, dtype=np.uint64)
    >>> check_cells(Cells(5, 4, 0, np.zeros(1, dtype=np.int32), none), None, 1)
    """
    if ask.bits not in BITS or not 2 <= ask.n_parts <= most_parts or not 0 <= ask.level < 64 // ask.bits:
        raise MessageError("parts, bits or level are out of range", where="Cells")
    column, prefix = ask.column.astype(np.int64), ask.prefix
    if not len(column) or column.min() < 0 or column.max() >= n_columns:
        raise MessageError(f"{n_columns} columns are here", where="Cells.column")
    if ask.level < 64 // ask.bits and (prefix >> np.uint64(ask.level * ask.bits)).any():
        raise MessageError("a cell has more digits than its level", where="Cells.prefix")
    ordered = (np.diff(column) > 0) | ((np.diff(column) == 0) & (prefix[1:] > prefix[:-1]))
    if not ordered.all() or np.bincount(column).max() > ask.n_parts:
        raise MessageError("cells are not in order, or more than parts", where="Cells")
    if not ask.level and before is not None and (before.n_parts, before.bits) != (ask.n_parts, ask.bits):
        raise ConfigurationError(
            "the request must belong to the current search; another search was begun",
            where="count_below",
            hint="Begin the search again.",
        )
    if ask.level and not _follows(ask, before):
        raise ConfigurationError(
            "cells must follow from those of the previous request", where="count_below", hint="Begin the search again."
        )


def check_fineness(ask: Cells, finest: int, least_behind: int) -> None:
    """Raise DisclosureRefused for cells finer than `finest` digits, where the policy asks for a minimum of patients.

    Examples
    --------
    >>> none = np.zeros(1, dtype=np.uint64)
    >>> check_fineness(Cells(5, 4, 11, np.zeros(1, dtype=np.int32), none), 48, 10)
    """
    if (ask.level + 1) * ask.bits > finest and least_behind > 1:
        raise DisclosureRefused(
            f"cells of more than {finest} digits come close to a patient's value, and the policy asks for "
            f"{least_behind} patients behind a value",
            where="count_below",
            hint="Search with a tolerance above 0.",
        )


def _follows(ask: Cells, before: Cells | None) -> bool:
    if before is None or (before.n_parts, before.bits) != (ask.n_parts, ask.bits):
        return False
    if ask.level == before.level:
        return np.array_equal(ask.column, before.column) and np.array_equal(ask.prefix, before.prefix)
    parents = zip(ask.column.tolist(), (ask.prefix >> np.uint64(ask.bits)).tolist(), strict=True)
    known = set(zip(before.column.tolist(), before.prefix.tolist(), strict=True))
    return ask.level == before.level + 1 and known.issuperset(parents)
