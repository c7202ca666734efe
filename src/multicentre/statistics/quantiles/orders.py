"""Rounds of a search for order statistics of columns, from which quantiles are interpolated.

Cells and counts are those of a search for thresholds (see :mod:`multicentre.statistics.quantiles.rounds`). In each
round, the sub-cell that contains the value of a rank is divided further, until cells share the largest permitted number
of digits. A value is known to lie in its last cell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array
from multicentre.core.session import Session
from multicentre.statistics.quantiles.maths import (
    CODE_BITS,
    Codes,
    Floats,
    Integers,
    decode_doubles,
)
from multicentre.statistics.quantiles.site import Cells, CountingPart


@dataclass(frozen=True)
class Quantiles(Message):
    """Cells of the two order statistics around each quantile of m columns.

    A quantile is the first order statistic plus `weight` times the distance to the second, as ``numpy.quantile``
    computes it. Without enough values all are NaN.
    """

    low: Floats = array("first number of the cell", ("m", "s", 2), finite=False)
    high: Floats = array("last number of the cell", ("m", "s", 2), finite=False)
    weight: Floats = array("weight of the second order statistic", ("m", "s"), finite=False)

    def values(self, steps: Floats) -> tuple[Floats, NDArray[np.bool_]]:
        """Return the quantiles, shape (m, s), and whether they are exact.

        Parameters
        ----------
        steps : array of shape (m,)
            Step of which all values of a column are multiples; 0 for none. A cell with one multiple gives its value;
            otherwise the middle of the cell is returned.

        Examples
        --------
        >>> quantiles = Quantiles(np.array([[[1.9, 2.9]]]), np.array([[[2.1, 3.1]]]), np.array([[0.5]]))
        >>> [each.tolist() for each in quantiles.values(np.array([1.0]))]
        [[[2.5]], [[True]]]
        """
        width = steps[:, None, None]
        with np.errstate(invalid="ignore", divide="ignore"):
            first, last = np.ceil(self.low / width), np.floor(self.high / width)
            is_single = (width > 0) & (first == last)
            contains_zero = (self.low <= 0) & (self.high >= 0)
            middle = np.where(contains_zero, 0.0, self.low / 2 + self.high / 2)
            values = np.where(is_single, first * width, middle) + 0.0  # -0.0 becomes 0.0
        weight = self.weight
        needed = is_single[..., 0] & (is_single[..., 1] | (weight == 0))
        return np.asarray((1 - weight) * values[..., 0] + weight * values[..., 1]), np.asarray(needed)


class OrderSearch:
    """State of a search for the order statistics around quantiles.

    Parameters
    ----------
    n_columns : int
    shares : array of shape (s,)
        Quantiles, between 0 and 1.
    bits : int
        A cell has 2**bits sub-cells.
    finest : array of int, shape (n_columns,)
        Binary digits that the last cells of each column share.
    fewest : int
        Columns with fewer values are not searched.

    Examples
    --------
    >>> from multicentre.statistics.quantiles.maths import count_in_cells, encode_doubles, split_cells
    >>> codes = np.sort(encode_doubles(np.arange(1000.0)))
    >>> search = OrderSearch(1, np.array([0.25, 0.5]), 8, np.array([24]), 10)
    >>> while len(search.column):
    ...     search.take(count_in_cells(codes, split_cells(search.prefix, search.level, 8), search.level, 8))
    >>> search.quantiles().values(np.ones(1))[0].tolist()
    [[249.75, 499.5]]
    """

    def __init__(self, n_columns: int, shares: Floats, bits: int, finest: Integers, fewest: int) -> None:
        self.level = 0
        self.column = np.arange(n_columns, dtype=np.int32)
        self.prefix = np.zeros(n_columns, dtype=np.uint64)
        self._n_columns, self._shares, self._bits, self._fewest = n_columns, shares, bits, fewest
        self._finest = np.repeat(finest, 2 * len(shares))
        self._levels = np.zeros(n_columns * 2 * len(shares), dtype=np.int64)
        self._base = np.zeros(n_columns, dtype=np.int64)
        self._rank = self._cell = np.zeros(0, dtype=np.int64)
        self._rank_prefix: Codes = np.zeros(len(self._levels), dtype=np.uint64)
        self._is_open = np.zeros(0, dtype=np.bool_)
        self._weight = np.zeros((n_columns, len(shares)))

    def take(self, below: Integers) -> None:
        """Add the counts of the cells, shape (q, 2**bits), and choose the cells to count next."""
        if self.level == 0:
            self._set_ranks(below[:, -1])
            self._is_open = self._rank > 0
        ends = self._base[:, None] + below
        sub_cell = (ends[self._cell] < self._rank[:, None]).sum(axis=1)
        flat = (self._cell << self._bits) + sub_cell
        digits = np.minimum(sub_cell, 2**self._bits - 1).astype(np.uint64)
        sub_prefix = (self.prefix[self._cell] << np.uint64(self._bits)) | digits
        self._rank_prefix = np.where(self._is_open, sub_prefix, self._rank_prefix)
        self._levels += self._is_open
        self.level += 1
        self._is_open = self._is_open & (self.level * self._bits < self._finest)
        chosen = np.unique(flat[self._is_open])
        starts = np.append(self._base[:, None], ends[:, :-1], axis=1).reshape(-1)
        self._base = starts[chosen]
        cell = chosen >> self._bits
        digits = (chosen & (2**self._bits - 1)).astype(np.uint64)
        self.column, self.prefix = self.column[cell], (self.prefix[cell] << np.uint64(self._bits)) | digits
        if len(chosen):
            self._cell = np.where(self._is_open, np.searchsorted(chosen, flat), 0)

    def quantiles(self) -> Quantiles:
        """Return the cells of the order statistics."""
        # Columns without values have no level; a shift by all 64 bits is undefined.
        shift = (CODE_BITS - np.maximum(self._levels, 1) * self._bits).astype(np.uint64)
        first = self._rank_prefix << shift
        last = first | ((np.uint64(1) << shift) - np.uint64(1))
        shape = (self._n_columns, len(self._shares), 2)
        has_values = (self._rank > 0).reshape(shape)
        low, high = (np.where(has_values, decode_doubles(codes).reshape(shape), np.nan) for codes in (first, last))
        return Quantiles(low, high, np.where(has_values[..., 0], self._weight, np.nan))

    def _set_ranks(self, n_records: Integers) -> None:
        places = np.maximum(n_records[:, None] - 1, 0) * self._shares
        first = np.floor(places).astype(np.int64)
        self._weight = places - first
        ranks = np.stack([first + 1, np.minimum(first + 2, n_records[:, None])], axis=2)
        self._rank = np.where(n_records[:, None, None] >= max(self._fewest, 1), ranks, 0).reshape(-1)
        self._cell = np.repeat(np.arange(self._n_columns), 2 * len(self._shares))


def find_quantiles(
    session: Session,
    part: type[CountingPart],
    *,
    n_columns: int,
    shares: Floats,
    bits: int,
    finest: int | Integers,
    fewest: int,
    name: str = "quantiles",
) -> Quantiles:
    """Return the cells of the order statistics around the quantiles of each column, over all sites.

    The search needs ``finest / bits`` sums for all columns together, by the column with most digits. It narrows down
    the values of the patients at the ranks of the quantiles to these digits, without linking them to a patient or a
    site.

    Parameters
    ----------
    session : Session
    part : type
        Site part of the session.
    n_columns : int
        Number of columns of `quantile_values`.
    shares : array of shape (s,)
        Quantiles, between 0 and 1.
    bits : {1, 2, 4, 8}
        A round splits each cell into 2**bits sub-cells.
    finest : int or array of int, shape (n_columns,)
        Binary digits that the last cells share, by column: 24 for a relative width of 1/4096.
    fewest : int
        Columns with fewer values have quantiles of NaN; their values are not narrowed down.
    name : str
        Name that distinguishes the searches of one fit.
    """
    digits = np.broadcast_to(np.asarray(finest, dtype=np.int64), n_columns)
    return session.once(name, Quantiles, lambda: _search(session, part, shares, bits, digits, fewest))


def _search(
    session: Session, part: type[CountingPart], shares: Floats, bits: int, finest: Integers, fewest: int
) -> Quantiles:
    while True:
        sites = session.sites
        search = OrderSearch(len(finest), shares, bits, finest, fewest)
        while len(search.column) and session.sites == sites:
            request = Cells(2 * len(shares) + 2, bits, search.level, search.column, search.prefix)
            below = session.sum(part.count_below, request).below
            if session.sites == sites:
                search.take(below)
        if session.sites == sites:
            return search.quantiles()
