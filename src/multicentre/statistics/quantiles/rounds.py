"""The rounds of a search for thresholds: each asks for the sums of counts in ever smaller cells."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError
from multicentre.federation.session import Session
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
from multicentre.statistics.quantiles.site import BITS, MOST_PARTS, Cells, CountingPart, Thresholds


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
    name: str = "thresholds",
) -> list[Floats]:
    """Return thresholds that cut each column in parts of as many records, over all sites.

    Part j holds the records with t[j - 1] < x <= t[j]. Tied records are in one part, so that there may be fewer parts;
    records whose values agree in the part's `finest` digits count as tied, and subnormal values (magnitudes below
    2.2e-308) with 0;
    a constant column and one without values have none. At most 64 / bits sums are taken, for all columns together; the
    smallest and the largest value stay unknown.

    Parameters
    ----------
    session : Session
        Of the fit, as `begin` returned it.
    part : type
        Its site part.
    n_columns : int
        Columns of `quantile_values`.
    n_parts : int
        From 2 to 1024; target ranks are floor(j n / n_parts), n the column's known values.
    bits : {4, 1, 2, 8}
        A round splits each cell in 2**bits.
    tol : float, default 0.01
        A part's size differs from n / n_parts by at most this share of it, ties apart.
    min_cell : int, default 0
        The same in records; the larger tolerance counts. No cell of so few records is split.
    exact : bool, default False
        Tell any two values apart, as far as their last binary digit, and allow ``tol=0``: the counts are then those of
        sorted records, and a cell may close in on one patient's value. Sites whose policy asks for a minimum of
        patients refuse cells of more than the part's `finest` digits.
    every_value : bool, default False
        A column with no more different values than parts has a threshold between any two neighbours, even where one of
        them has few records (more than the tolerance).
    name : str
        Tells the searches of one fit apart; a resumed run takes what was found.

    Returns
    -------
    list of arrays of shape (at most n_parts - 1,)
        Increasing, by column. A threshold lies half-way in the gap that is known to be empty, or on a border that is no
        round number.

    Raises
    ------
    ConfigurationError
        A parameter is out of range, or ``tol=0`` without `exact`.

    Notes
    -----
    Counts are exact, so that a threshold does not depend on how records are split over sites. Unmasked, a site refuses
    counts in which a cell that is not empty has fewer records than its policy's minimum, or in which fewer records lack
    a value. When a site is lost on the way, the search begins again.

    What shows: counts over all sites in the cells that were split. A coordinator that strays from the search can follow
    n_parts ranks of the pooled values, four times in a fit, to `finest` digits, without learning whose they are; in
    many fits, all of them.

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
    finest = CODE_BITS if exact else part.finest
    terms = Terms(n_columns, n_parts, bits, finest, tol, min_cell, every_value)
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
    name: str = "cuts",
) -> list[NDArray[np.float32]]:
    """Return the cuts of histogram boosting, at most n_bins - 1 a column, in single precision; bin j is x < cut[j].

    Every two neighbouring values of a column with few different ones have a cut between them. Parameters and errors
    are those of :func:`find_thresholds`; `quantile_values` should be single precision themselves, and the part's
    `finest` 36.

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
    if n_columns < 1 or not 2 <= n_parts <= MOST_PARTS or bits not in BITS:
        raise ConfigurationError(
            f"{n_columns} columns in {n_parts} parts, {bits} bits a round, cannot be searched",
            where="thresholds",
            hint=f"Take a column or more, 2 to {MOST_PARTS} parts, and 1, 2, 4 or 8 bits.",
        )
    if not 0 <= tol <= 1 or min_cell < 0:
        raise ConfigurationError("a tolerance is out of range", where="tol", hint="Take a share from 0 to 1.")
    if tol == 0 and not exact:
        raise ConfigurationError(
            "without tolerance the search closes in on single patients", where="tol", hint="Take 0.01, or exact=True."
        )


# As CountingPart.finest: 24 digits distinguish values with a relative difference above 1/4096.
FINEST = 24


def pooled_thresholds(
    values: Floats, *, n_parts: int, bits: int = 4, tol: float = 0.01, min_cell: int = 0, finest: int = FINEST
) -> list[Floats]:
    """Return what :func:`find_thresholds` finds over sites that together hold these records and count exactly.

    Parameters
    ----------
    values : array of shape (n, m)
        NaN where missing.
    n_parts, bits, tol, min_cell
        As there.
    finest : int, default 24
        As of the site part.

    Examples
    --------
    >>> [found.tolist() for found in pooled_thresholds(np.array([[1.0], [1.0], [2.0], [np.nan]]), n_parts=2)]
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
