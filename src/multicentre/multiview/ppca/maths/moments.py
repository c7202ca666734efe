"""Moments of a site's rows by pattern of missing values.

Rows whose views are complete or absent are reduced to a count, a mean and a scatter matrix per pattern of views. All
sums of the fit are functions of these, so that the cost of the E-step does not depend on the number of patients. Rows
with missing entries are grouped by their observed features, so that each pattern needs one matrix only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from multicentre.errors import DataError
from multicentre.multiview.ppca.maths.model import Booleans, Floats, Integers, Layout


class Moments(Protocol):
    """Count, mean and scatter of rows with the same d features."""

    @property
    def n(self) -> int:
        """Number of rows."""

    @property
    def mean(self) -> Floats:
        """Mean row, shape (d,)."""

    @property
    def scatter_diagonal(self) -> Floats:
        """Diagonal of ``S``, the sum of (t - mean)(t - mean)', shape (d,)."""

    def scatter_times(self, directions: Floats) -> Floats:
        """Return ``S P`` for directions ``P`` of shape (d, q)."""


@dataclass(frozen=True)
class ScatterMoments:
    """Moments that hold the scatter matrix, shape (d, d), for many rows."""

    n: int
    mean: Floats
    scatter: Floats

    @cached_property
    def scatter_diagonal(self) -> Floats:
        """Diagonal of ``S``, shape (d,)."""
        return np.diagonal(self.scatter).copy()

    def scatter_times(self, directions: Floats) -> Floats:
        """Return ``S P`` for directions ``P`` of shape (d, q)."""
        return self.scatter @ directions


@dataclass(frozen=True)
class RowMoments:
    """Moments that hold the centred rows, shape (n, d), for fewer rows than half the features."""

    n: int
    mean: Floats
    centred: Floats

    @cached_property
    def scatter_diagonal(self) -> Floats:
        """Diagonal of ``S``, shape (d,)."""
        return np.asarray(np.einsum("nd,nd->d", self.centred, self.centred))

    def scatter_times(self, directions: Floats) -> Floats:
        """Return ``S P`` for directions ``P`` of shape (d, q)."""
        return self.centred.T @ (self.centred @ directions)


@dataclass(frozen=True)
class PatternMoments:
    """Moments of the rows of one site that hold the same views.

    Parameters
    ----------
    features : mask of shape (d,)
        Features of the layout that these rows hold.
    moments : Moments
        Moments of those features only, in the layout's order.
    """

    features: Booleans
    moments: Moments

    def views(self, layout: Layout) -> Booleans:
        """Mask of the views that these rows hold, shape (k,)."""
        return self.features[layout.starts]


class MomentAccumulator:
    """One-pass accumulation of moments over blocks of rows, in bounded memory.

    Blocks are stored until they contain half as many rows as features. They are then added to a scatter matrix by the
    pairwise update of Chan, Golub and LeVeque (1983).
    """

    def __init__(self, n_features: int) -> None:
        self._n = 0
        self._mean = np.zeros(n_features)
        self._scatter: Floats | None = None
        self._pending: list[Floats] = []
        self._n_pending = 0

    def add(self, rows: Floats) -> None:
        """Add rows of shape (n, d)."""
        self._pending.append(np.array(rows, dtype=np.float64))
        self._n_pending += len(rows)
        if 2 * self._n_pending >= len(self._mean):
            self._fold()

    def finish(self) -> Moments:
        """Return the moments of all rows added so far."""
        if self._scatter is None:
            rows = np.concatenate(self._pending)
            mean = rows.mean(axis=0)
            return RowMoments(len(rows), mean, rows - mean)
        if self._pending:
            self._fold()
        return ScatterMoments(self._n, self._mean, self._scatter)

    def _fold(self) -> None:
        rows = self._pending[0] if len(self._pending) == 1 else np.concatenate(self._pending)
        self._pending, self._n_pending = [], 0
        mean = rows.mean(axis=0)
        rows -= mean
        scatter = rows.T @ rows
        if self._scatter is None:
            self._n, self._mean, self._scatter = len(rows), mean, scatter
            return
        total = self._n + len(rows)
        shift = mean - self._mean
        self._scatter += scatter
        self._scatter += np.outer(shift * (self._n * len(rows) / total), shift)
        self._mean = self._mean + shift * (len(rows) / total)
        self._n = total


def reduce_rows(rows: Floats, layout: Layout) -> list[PatternMoments]:
    """Reduce the rows of one site to one set of moments per pattern of views.

    Parameters
    ----------
    rows : array of shape (n, d)
        Stacked rows; a view that a row lacks is NaN in all its columns.
    layout : Layout
        Views and their columns.

    Returns
    -------
    list of PatternMoments
        Sorted by the views of the patterns, so that the order does not depend on the order of the rows.

    Raises
    ------
    DataError
        A row holds part of a view only, an entry is infinite, or no row holds a view.

    Examples
    --------
    >>> import numpy as np
    >>> layout = Layout(("blood", "scan"), (1, 2))
    >>> whole, no_scan = reduce_rows(np.array([[1.0, 2, 3], [3.0, 2, 5], [4.0, np.nan, np.nan]]), layout)
    >>> whole.moments.n, whole.moments.mean.tolist(), no_scan.features.tolist()
    (2, [2.0, 2.0, 4.0], [True, False, False])
    """
    return reduce_chunks((rows,), layout)


def reduce_chunks(blocks: Iterable[Floats], layout: Layout) -> list[PatternMoments]:
    """Reduce blocks of rows, shape (n, d), in one pass; see :func:`reduce_rows`."""
    accumulators: dict[tuple[bool, ...], MomentAccumulator] = {}
    for block in blocks:
        views = _views_held(np.asarray(block), layout)
        for pattern in np.unique(views, axis=0):
            features = pattern[layout.view_of]
            if pattern.any():
                key = tuple(bool(held) for held in pattern)
                accumulator = accumulators.setdefault(key, MomentAccumulator(int(features.sum())))
                accumulator.add(block[np.ix_((views == pattern).all(axis=1), features)])
    if not accumulators:
        raise DataError(
            "at least one row must have a complete view; got none",
            hint="Check that the columns of the site are read, and how missing values are declared.",
        )
    return [
        PatternMoments(np.array(key)[layout.view_of], accumulators[key].finish())
        for key in sorted(accumulators, reverse=True)
    ]


def _views_held(rows: Floats, layout: Layout) -> Booleans:
    if rows.ndim != 2 or rows.shape[1] != layout.n_features:
        raise DataError(
            f"rows must have shape (n, {layout.n_features}); got {rows.shape}",
            hint="Stack the views in the layout's order.",
        )
    if np.isinf(rows).any():
        raise DataError("each entry must be finite or missing; got an infinite one", hint="Correct it or remove it.")
    entries = np.add.reduceat(~np.isnan(rows), layout.starts, axis=1, dtype=np.int64)
    for name, size, count in zip(layout.names, layout.sizes, entries.T, strict=True):
        if np.any((count > 0) & (count < size)):
            raise DataError(
                "each row must have all columns of a view or none; got rows with some of them",
                where=f"view {name}",
                hint="Impute the missing entries, or remove the view from those rows.",
            )
    return np.asarray(entries > 0)


# Rows per group from which groups are multiplied one by one. A loop costs one call per group; a batched product copies
# one matrix per row. The results are the same.
MIN_ROWS_FOR_LOOP = 6


@dataclass(frozen=True)
class Rows:
    """Stacked rows, split into values and patterns of observed entries.

    Parameters
    ----------
    values : array of shape (n, d)
        Entries, zero where missing.
    patterns : bool array of shape (p, d)
        Distinct patterns; True where observed.
    pattern_of : int array of shape (n,)
        Index of the pattern of each row.
    """

    values: Floats
    patterns: Booleans
    pattern_of: Integers

    @classmethod
    def read(cls, X: Floats) -> Rows:
        """Return the rows `X` of shape (n, d), NaN where missing.

        Examples
        --------
        >>> rows = Rows.read(np.array([[1.0, np.nan], [2.0, 3.0], [4.0, np.nan]]))
        >>> rows.patterns.tolist(), rows.pattern_of.tolist()
        ([[True, False], [True, True]], [0, 1, 0])
        """
        observed = ~np.isnan(X)
        if observed.all():
            return cls(np.asarray(X, dtype=np.float64), observed[:1], np.zeros(len(X), dtype=np.int64))
        packed = np.packbits(observed, axis=1)
        _, first, pattern_of = np.unique(packed, axis=0, return_index=True, return_inverse=True)
        return cls(np.where(observed, X, 0.0), observed[first], pattern_of.reshape(-1).astype(np.int64))

    @property
    def observed(self) -> Booleans:
        """Mask of the observed entries, shape (n, d), or (1, d) if all rows have the same pattern."""
        return self.patterns if len(self.patterns) == 1 else self.patterns[self.pattern_of]

    def deviations(self, mean: Floats) -> Floats:
        """Observed entries minus `mean`, zero where missing, shape (n, d)."""
        return np.asarray((self.values - mean) * self.observed)


def members_of(group_of: Integers) -> Iterator[tuple[int, Integers]]:
    """Yield each non-empty group and the positions of its members."""
    order = np.argsort(group_of, kind="stable")
    groups, starts = np.unique(group_of[order], return_index=True)
    for group, members in zip(groups, np.split(order, starts[1:]), strict=True):
        yield int(group), members


def multiply_grouped(rows: Floats, matrices: Floats, group_of: Integers) -> Floats:
    """Multiply each row, shape (n, a), by the matrix of its group, shape (p, a, b); return shape (n, b)."""
    if len(matrices) == 1:
        return np.asarray(rows @ matrices[0])
    if len(rows) < MIN_ROWS_FOR_LOOP * len(matrices):
        return np.asarray(np.einsum("na,nab->nb", rows, matrices[group_of]))
    product = np.empty((len(rows), matrices.shape[2]))
    for group, members in members_of(group_of):
        product[members] = rows[members] @ matrices[group]
    return product


def sum_outer_grouped(rows: Floats, group_of: Integers, n_groups: int) -> Floats:
    """Sum the outer products of the rows, shape (n, a), within each group; return shape (p, a, a)."""
    width = rows.shape[1]
    if n_groups == 1:
        return np.asarray(rows.T @ rows)[None]
    sums = np.zeros((n_groups, width, width))
    if len(rows) < MIN_ROWS_FOR_LOOP * n_groups:
        order = np.argsort(group_of, kind="stable")
        groups, starts = np.unique(group_of[order], return_index=True)
        ordered = rows[order]
        sums[groups] = np.add.reduceat(ordered[:, :, None] * ordered[:, None, :], starts, axis=0)
        return sums
    for group, members in members_of(group_of):
        sums[group] = rows[members].T @ rows[members]
    return sums
