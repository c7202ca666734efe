"""The coordinator's search: it walks down the cells that hold wanted ranks, for all columns at once.

Each round splits the cell of every wanted rank in 2**bits sub-cells. A rank is found when the nearer border of its cell
is less than half the tolerance away, or when the cell cannot be split: then its records are tied, and stay together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.statistics.quantiles.maths import Codes, Floats, Integers, between, split_cells


@dataclass(frozen=True)
class Terms:
    """What is searched for.

    Parameters
    ----------
    n_columns : int
    n_parts : int
        A column is cut in at most so many parts.
    bits : int
        A cell has 2**bits sub-cells.
    finest : int
        Codes that share so many binary digits count as tied.
    tol : float
        Tolerance of a part's size, as a share of it.
    min_cell : int
        Tolerance in records; the larger of the two counts.
    every_value : bool
        Columns with no more different values than parts have a threshold between any two of them.
    """

    n_columns: int
    n_parts: int
    bits: int
    finest: int
    tol: float
    min_cell: int
    every_value: bool


class Search:
    """The state of a search.

    Attributes
    ----------
    level : int
    column, prefix : arrays of shape (q,)
        The cells to be counted next; none when the search is over.

    Examples
    --------
    >>> from multicentre.statistics.quantiles.maths import count_in_cells, encode_doubles
    >>> codes = np.sort(encode_doubles(np.arange(1000.0)))
    >>> search = Search(Terms(1, 4, 4, 48, 0.001, 0, False))
    >>> while len(search.column):
    ...     search.take(count_in_cells(codes, split_cells(search.prefix, search.level, 4), search.level, 4))
    >>> [int((np.arange(1000.0) <= t).sum()) for t in search.thresholds()[0]]
    [250, 500, 750]
    """

    def __init__(self, terms: Terms) -> None:
        n_columns = terms.n_columns
        self._terms = terms
        self.level = 0
        self.column = np.arange(n_columns, dtype=np.int32)
        self.prefix = np.zeros(n_columns, dtype=np.uint64)
        self._base = np.zeros(n_columns, dtype=np.int64)
        self._n_records = np.zeros(n_columns, dtype=np.int64)
        self._every = np.full(n_columns, terms.every_value)
        self._rank = self._rank_column = self._rank_cell = np.zeros(0, dtype=np.int64)
        self._wanted: list[Integers] = []
        self._known: list[tuple[NDArray[np.int32], Codes, Integers]] = []

    def take(self, below: Integers) -> None:
        """Take in the counts of the cells, shape (q, 2**bits), and choose the cells to be counted next."""
        if self.level == 0:
            self._want_ranks(below[:, -1])
        ends = self._base[:, None] + below
        starts = np.append(self._base[:, None], ends[:, :-1], axis=1)
        self._remember_borders(ends)
        wanted = np.append(self._cells_of_ranks(starts, ends), self._cells_of_values(ends - starts))
        self.level += 1
        chosen = np.unique(wanted) if self.level * self._terms.bits < self._terms.finest else wanted[:0]
        self._go_down(chosen, starts)

    def thresholds(self) -> list[Floats]:
        """Return each column's thresholds t, increasing; a part is x <= t of those above the threshold before."""
        column, border, below = (np.concatenate(parts) for parts in zip(*self._known, strict=True))
        order = np.lexsort((border, column))
        place = np.searchsorted(column[order], np.arange(self._terms.n_columns + 1))
        borders, counts = border[order], below[order]
        spans = [slice(*place[number : number + 2]) for number in range(self._terms.n_columns)]
        return [self._chosen(number, borders[span], counts[span]) for number, span in enumerate(spans)]

    def _want_ranks(self, n_records: Integers) -> None:
        n_parts = self._terms.n_parts
        ranks = np.arange(1, n_parts) * n_records[:, None] // n_parts
        self._n_records = n_records
        self._wanted = [np.unique(each[each > 0]) for each in ranks]
        self._rank = np.concatenate([*self._wanted, np.zeros(0, dtype=np.int64)])
        self._rank_column = np.repeat(np.arange(len(n_records)), [len(each) for each in self._wanted])
        self._rank_cell = self._rank_column

    def _remember_borders(self, ends: Integers) -> None:
        borders = split_cells(self.prefix, self.level, self._terms.bits)[:, 1:]
        counts, column = ends[:, :-1], np.broadcast_to(self.column[:, None], borders.shape)
        inside = (counts > 0) & (counts < self._n_records[column])
        self._known.append((column[inside], borders[inside], counts[inside]))

    def _cells_of_ranks(self, starts: Integers, ends: Integers) -> Integers:
        """Return the sub-cells of those ranks that are not found yet, and keep these ranks."""
        bits = self._terms.bits
        sub_cell = (ends[self._rank_cell] < self._rank[:, None]).sum(axis=1)
        flat = (self._rank_cell << bits) + sub_cell
        low, high = starts.reshape(-1)[flat], ends.reshape(-1)[flat]
        n_records = self._n_records[self._rank_column]
        before = np.where(low > 0, self._rank - low, n_records)
        behind = np.where(high < n_records, high - self._rank, n_records)
        unfound = np.minimum(before, behind) > self._tolerance[self._rank_column] / 2
        self._rank, self._rank_column = self._rank[unfound], self._rank_column[unfound]
        self._rank_cell = flat[unfound]
        return self._rank_cell

    def _cells_of_values(self, counts: Integers) -> Integers:
        """Return all occupied sub-cells of the columns that seem to have few different values."""
        n_occupied = np.bincount(self.column, (counts > 0).sum(axis=1), len(self._every))
        self._every &= n_occupied <= self._terms.n_parts
        large = counts > np.maximum(self._tolerance, 1)[self.column][:, None]
        return np.flatnonzero((large & self._every[self.column][:, None]).reshape(-1))

    def _go_down(self, chosen: Integers, starts: Integers) -> None:
        bits = self._terms.bits
        cell, sub_cell = chosen >> bits, (chosen & (2**bits - 1)).astype(np.uint64)
        self._rank_cell = np.searchsorted(chosen, self._rank_cell)
        self._base = starts.reshape(-1)[chosen]
        self.column, self.prefix = self.column[cell], (self.prefix[cell] << np.uint64(bits)) | sub_cell

    def _chosen(self, column: int, borders: Codes, counts: Integers) -> Floats:
        """Return the thresholds at the known counts nearest to the wanted ranks; at all counts where they are few."""
        known, first = np.unique(counts, return_index=True)
        last = np.append(first[1:], len(counts)) - 1
        values: Floats = between(borders[first], borders[last]) if len(known) else np.zeros(0)
        if not len(known) or (self._every[column] and len(known) < self._terms.n_parts):
            return values
        rank = self._wanted[column]
        above = np.minimum(np.searchsorted(known, rank), len(known) - 1)
        under = np.maximum(above - 1, 0)
        nearest = np.where(rank - known[under] <= known[above] - rank, under, above)
        return np.asarray(values[np.unique(nearest)], dtype=np.float64)

    @property
    def _tolerance(self) -> Floats:
        """Records that a cell may hold around a wanted rank, by column."""
        terms = self._terms
        return np.maximum(float(terms.min_cell), terms.tol * self._n_records / terms.n_parts)
