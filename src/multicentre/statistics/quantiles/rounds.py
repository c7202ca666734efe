"""Rounds of a search for thresholds that cut columns into parts of equal size.

The values of a column are ordered by binary codes. A cell contains the codes that share their first digits, and has
``2**bits`` sub-cells. The first cell of a column is its whole range.

One round consists of:

1. The coordinator sends cells of all columns to every site.
2. Each site returns, for every cell, counts of its records in the cell up to the end of each sub-cell.
3. The coordinator adds up the counts. It chooses the sub-cells of the next round: those that contain the end of a part,
   if no border of the sub-cell is near enough to it. With ``every_value``, all sub-cells with two records or more are
   chosen in columns with few different values.

The rounds stop when no sub-cell is chosen, or when cells share the largest permitted number of digits. A threshold
lies between the borders whose count is nearest to the end of a part. If a site is lost, the search begins again.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.core.session import Session
from multicentre.errors import ConfigurationError
from multicentre.statistics.quantiles.maths import (
    CODE_BITS,
    Codes,
    Floats,
    Integers,
    between,
    count_in_cells,
    encode_doubles,
    split_cells,
    up_to_float32,
)
from multicentre.statistics.quantiles.site import BITS, MAX_PARTS, Cells, CountingPart, Thresholds


@dataclass(frozen=True)
class Terms:
    """Terms of a search.

    Parameters
    ----------
    n_columns : int
    n_parts : int
        Maximum number of parts per column.
    bits : int
        A cell has 2**bits sub-cells.
    finest : int
        Values whose codes share this number of binary digits are tied.
    tol : float
        Tolerance of the size of a part, relative to it.
    min_cell : int
        Tolerance in records. The larger tolerance applies.
    every_value : bool
        If True, a column with at most `n_parts` different values has a threshold between any two neighbours.
    """

    n_columns: int
    n_parts: int
    bits: int
    finest: int
    tol: float
    min_cell: int
    every_value: bool


class Search:
    """State of a search.

    Attributes
    ----------
    level : int
        Number of the round, from 0.
    column, prefix : arrays of shape (q,)
        Column and code prefix of the cells to count next; empty when the search is finished.

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
        self._n_single = np.zeros(n_columns, dtype=np.int64)
        self._rank = self._rank_column = self._rank_cell = np.zeros(0, dtype=np.int64)
        self._target_ranks: list[Integers] = []
        self._counted_borders: list[tuple[NDArray[np.int32], Codes, Integers]] = []

    def take(self, below: Integers) -> None:
        """Add the counts of the cells, shape (q, 2**bits), and choose the cells to count next."""
        if self.level == 0:
            self._set_target_ranks(below[:, -1])
        ends = self._base[:, None] + below
        starts = np.append(self._base[:, None], ends[:, :-1], axis=1)
        self._add_borders(ends)
        candidates = np.append(self._cells_of_ranks(starts, ends), self._cells_of_values(ends - starts))
        self.level += 1
        chosen = np.unique(candidates) if self.level * self._terms.bits < self._terms.finest else candidates[:0]
        self._descend(chosen, starts)

    def thresholds(self) -> list[Floats]:
        """Return the increasing thresholds t of each column; part j contains values with t[j - 1] < x <= t[j]."""
        column, border, below = (np.concatenate(parts) for parts in zip(*self._counted_borders, strict=True))
        order = np.lexsort((border, column))
        place = np.searchsorted(column[order], np.arange(self._terms.n_columns + 1))
        borders, counts = border[order], below[order]
        spans = [slice(*place[number : number + 2]) for number in range(self._terms.n_columns)]
        return [self._chosen(number, borders[span], counts[span]) for number, span in enumerate(spans)]

    def _set_target_ranks(self, n_records: Integers) -> None:
        n_parts = self._terms.n_parts
        ranks = np.arange(1, n_parts) * n_records[:, None] // n_parts
        self._n_records = n_records
        self._target_ranks = [np.unique(each[each > 0]) for each in ranks]
        self._rank = np.concatenate([*self._target_ranks, np.zeros(0, dtype=np.int64)])
        self._rank_column = np.repeat(np.arange(len(n_records)), [len(each) for each in self._target_ranks])
        self._rank_cell = self._rank_column

    def _add_borders(self, ends: Integers) -> None:
        borders = split_cells(self.prefix, self.level, self._terms.bits)[:, 1:]
        counts, column = ends[:, :-1], np.broadcast_to(self.column[:, None], borders.shape)
        inside = (counts > 0) & (counts < self._n_records[column])
        self._counted_borders.append((column[inside], borders[inside], counts[inside]))

    def _cells_of_ranks(self, starts: Integers, ends: Integers) -> Integers:
        """Return the sub-cells of the target ranks without a border near enough, and store these ranks."""
        bits = self._terms.bits
        sub_cell = (ends[self._rank_cell] < self._rank[:, None]).sum(axis=1)
        flat = (self._rank_cell << bits) + sub_cell
        low, high = starts.reshape(-1)[flat], ends.reshape(-1)[flat]
        n_records = self._n_records[self._rank_column]
        to_start = np.where(low > 0, self._rank - low, n_records)
        to_end = np.where(high < n_records, high - self._rank, n_records)
        is_open = np.minimum(to_start, to_end) > self._tolerance[self._rank_column] / 2
        self._rank, self._rank_column = self._rank[is_open], self._rank_column[is_open]
        self._rank_cell = flat[is_open]
        return self._rank_cell

    def _cells_of_values(self, counts: Integers) -> Integers:
        """Return the sub-cells with two records or more of columns that have few occupied sub-cells so far.

        The tolerance does not apply: two rare values in one sub-cell would otherwise share a bin.
        """
        is_open = counts > max(self._terms.min_cell, 1)
        n_columns = len(self._every)
        n_occupied = np.bincount(self.column, (counts > 0).sum(axis=1), n_columns)
        self._every &= self._n_single + n_occupied <= self._terms.n_parts
        is_single = (counts > 0) & ~is_open
        self._n_single += np.bincount(self.column, is_single.sum(axis=1), n_columns).astype(np.int64)
        return np.flatnonzero((is_open & self._every[self.column][:, None]).reshape(-1))

    def _descend(self, chosen: Integers, starts: Integers) -> None:
        bits = self._terms.bits
        cell, sub_cell = chosen >> bits, (chosen & (2**bits - 1)).astype(np.uint64)
        self._rank_cell = np.searchsorted(chosen, self._rank_cell)
        self._base = starts.reshape(-1)[chosen]
        self.column, self.prefix = self.column[cell], (self.prefix[cell] << np.uint64(bits)) | sub_cell

    def _chosen(self, column: int, borders: Codes, counts: Integers) -> Floats:
        """Return the thresholds at the counts nearest to the target ranks, or at all counts if there are few."""
        levels, first = np.unique(counts, return_index=True)
        last = np.append(first[1:], len(counts)) - 1
        values: Floats = between(borders[first], borders[last]) if len(levels) else np.zeros(0)
        if not len(levels) or (self._every[column] and len(levels) < self._terms.n_parts):
            return values
        rank = self._target_ranks[column]
        above = np.minimum(np.searchsorted(levels, rank), len(levels) - 1)
        under = np.maximum(above - 1, 0)
        nearest = np.where(rank - levels[under] <= levels[above] - rank, under, above)
        return np.asarray(values[np.unique(nearest)], dtype=np.float64)

    @property
    def _tolerance(self) -> Floats:
        """Largest distance in records between a target rank and a threshold, times 2, by column."""
        terms = self._terms
        return np.maximum(float(terms.min_cell), terms.tol * self._n_records / terms.n_parts)


STEPS = frozenset({"count_below"})


def find_thresholds(
    session: Session,
    part: type[CountingPart],
    *,
    n_columns: int,
    n_parts: int,
    bits: int = 4,
    tol: float = 0.01,
    min_cell: int = 0,
    exact: bool = False,
    every_value: bool = False,
    finest: int | None = None,
    name: str = "thresholds",
) -> list[Floats]:
    """Return thresholds that cut each column into parts with equal numbers of records, over all sites.

    Part j contains the records with t[j - 1] < x <= t[j]. Tied records are in one part, so there may be fewer parts
    than requested. Values that agree in the part's `finest` digits are tied, and so are 0 and subnormal values
    (magnitudes below 2.2e-308). A column that is constant or has no values has no thresholds.

    The search needs at most 64 / bits sums, for all columns together. It does not reveal the smallest and the largest
    value.

    Parameters
    ----------
    session : Session
        Session of the fit.
    part : type
        Site part of the session.
    n_columns : int
        Number of columns of `quantile_values`.
    n_parts : int
        Number of parts, from 2 to 1024. The target ranks are floor(j n / n_parts), where n is the number of values of
        the column.
    bits : {1, 2, 4, 8}, default 4
        A round splits each cell into 2**bits sub-cells.
    tol : float, default 0.01
        Largest deviation of the size of a part from n / n_parts, relative to it, apart from ties.
    min_cell : int, default 0
        Tolerance in records. The larger tolerance applies, and cells with at most this number of records are not split.
    exact : bool, default False
        Distinguish any two values, up to their last binary digit, and permit ``tol=0``. Counts are then those of sorted
        records, and the search may narrow down the value of a single patient. Sites whose policy requires a minimum of
        patients refuse cells of more than the part's `finest` digits.
    every_value : bool, default False
        Return a threshold between any two neighbouring values of a column with at most `n_parts` different values,
        however few records they have. Only `min_cell` leaves values together.
    finest : int, optional
        Number of binary digits that distinguish values, at most 64; by default the part's `finest`.
    name : str
        Name that distinguishes the searches of one fit. A resumed run uses the stored result of this name.

    Returns
    -------
    list of arrays of shape (at most n_parts - 1,)
        Increasing thresholds, by column. A threshold is near the middle of a gap without records, or on a border of a
        cell.

    Raises
    ------
    ConfigurationError
        A parameter is out of range, or ``tol=0`` without `exact`.

    Notes
    -----
    Counts are exact, so that a threshold does not depend on the distribution of records over sites. If sums are
    unmasked, a site refuses counts in which a non-empty cell, or the records without a value, are fewer than its
    policy's minimum. If a site is lost during the search, the search begins again.

    The search discloses counts over all sites in the cells that were split. A coordinator that deviates from the
    protocol can follow n_parts ranks of the pooled values to `finest` digits, four times per fit, but cannot link them
    to patients. With many fits it can follow all ranks.

    Examples
    --------
    >>> import multicentre as mc
    >>> class Ages(CountingPart):
    ...     method, holds = "ages", np.ndarray
    ...
    ...     def quantile_values(self):
    ...         return self.data
    >>> data = {f"site-{i}": np.random.default_rng(i).normal(60, 9, (200, 1)) for i in range(3)}
    >>> session = mc.Federation.in_process(data).begin(Ages)
    >>> thresholds = find_thresholds(session, Ages, n_columns=1, n_parts=4)[0]
    >>> np.bincount(np.searchsorted(thresholds, np.concatenate(list(data.values()))[:, 0])).tolist()
    [149, 151, 150, 150]
    """
    _check(n_columns, n_parts, bits, tol, min_cell, exact)
    digits = CODE_BITS if exact else part.finest if finest is None else finest
    terms = Terms(n_columns, n_parts, bits, digits, tol, min_cell, every_value)
    return session.once(name, Thresholds, lambda: _search(session, part, terms)).columns


def cuts_for_bins(
    session: Session,
    part: type[CountingPart],
    *,
    n_columns: int,
    n_bins: int = 256,
    bits: int = 4,
    tol: float = 0.05,
    min_cell: int = 0,
    finest: int | None = None,
    name: str = "cuts",
) -> list[NDArray[np.float32]]:
    """Return the cuts of histogram boosting in single precision, at most n_bins - 1 per column; bin j is x < cut[j].

    If a column has few different values, there is a cut between any two neighbours. Parameters and errors are those of
    :func:`find_thresholds`. The values of `quantile_values` should be in single precision, and the part's `finest`
    should be 36.

    Examples
    --------
    >>> import multicentre as mc
    >>> class Sexes(CountingPart):
    ...     method, holds, finest = "sexes", np.ndarray, 36
    ...
    ...     def quantile_values(self):
    ...         return self.data
    >>> data = {f"site-{i}": np.repeat([[0.0], [1.0]], [30, 90], axis=0) for i in range(3)}
    >>> session = mc.Federation.in_process(data).begin(Sexes)
    >>> [cut.tolist() for cut in cuts_for_bins(session, Sexes, n_columns=1)]
    [[0.5]]
    """
    thresholds = find_thresholds(
        session,
        part,
        n_columns=n_columns,
        n_parts=n_bins,
        bits=bits,
        tol=tol,
        min_cell=min_cell,
        every_value=True,
        finest=finest,
        name=name,
    )
    return [np.unique(up_to_float32(of_column)) for of_column in thresholds]


def _search(session: Session, part: type[CountingPart], terms: Terms) -> Thresholds:
    while True:
        sites = session.sites
        search = Search(terms)
        while len(search.column) and session.sites == sites:
            request = Cells(terms.n_parts, terms.bits, search.level, search.column, search.prefix)
            below = session.sum(part.count_below, request).below
            if session.sites == sites:
                search.take(below)
        if session.sites == sites:
            return Thresholds.of(search.thresholds())


def _check(n_columns: int, n_parts: int, bits: int, tol: float, min_cell: int, exact: bool) -> None:
    if n_columns < 1 or not 2 <= n_parts <= MAX_PARTS or bits not in BITS:
        raise ConfigurationError(
            f"n_columns must be at least 1, n_parts from 2 to {MAX_PARTS}, "
            f"and bits one of {', '.join(map(str, BITS))}; got {n_columns}, {n_parts} and {bits}",
            where="thresholds",
            hint="Example: n_parts=10, bits=4.",
        )
    if not 0 <= tol <= 1 or min_cell < 0:
        raise ConfigurationError(
            f"tol must be from 0 to 1, and min_cell at least 0; got {tol:g} and {min_cell}",
            where="tol",
            hint="Example: tol=0.01, min_cell=0.",
        )
    if tol == 0 and not exact:
        raise ConfigurationError(
            "tol must be above 0, because a search without tolerance narrows down values of single patients; got 0",
            where="tol",
            hint="Set tol=0.01, or exact=True.",
        )


# As CountingPart.finest: 24 digits distinguish values with a relative difference above 1/4096.
FINEST = 24


def pooled_thresholds(
    values: Floats, *, n_parts: int, bits: int = 4, tol: float = 0.01, min_cell: int = 0, finest: int = FINEST
) -> list[Floats]:
    """Return the thresholds of pooled records; those of :func:`find_thresholds` for the same records are identical.

    Parameters
    ----------
    values : array of shape (n, m)
        NaN where missing.
    n_parts, bits, tol, min_cell
        See :func:`find_thresholds`.
    finest : int, default 24
        See :class:`CountingPart`.

    Examples
    --------
    >>> [column.tolist() for column in pooled_thresholds(np.array([[1.0], [1.0], [2.0], [np.nan]]), n_parts=2)]
    [[1.2]]
    """
    codes = [np.sort(encode_doubles(column[~np.isnan(column)])) for column in values.T]
    search = Search(Terms(len(codes), n_parts, bits, finest, tol, min_cell, every_value=False))
    while len(search.column):
        starts = split_cells(search.prefix, search.level, bits)
        cells = zip(search.column.tolist(), starts, strict=True)
        counts = [count_in_cells(codes[column], cell[None], search.level, bits) for column, cell in cells]
        search.take(np.concatenate(counts))
    return search.thresholds()
