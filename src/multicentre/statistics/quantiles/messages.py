"""Requests and answers of a search for thresholds."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
