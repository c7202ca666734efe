"""What a site reduces its rows to: count, mean and scatter, one set for every pattern of views that its rows show.

Every sum that the fit needs is a function of these (the E-step's cost does not depend on the number of patients).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from multicentre.federation.errors import DataError
from multicentre.multiview.ppca.maths.model import Booleans, Floats, Layout


class Moments(Protocol):
    """Count, mean and scatter of rows that show the same d features."""

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
    """Moments that hold the scatter matrix itself, shape (d, d): best when there are many rows."""

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
    """Moments that hold the centred rows, shape (n, d): best when there are fewer rows than half the features."""

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
    """Moments of the rows of one site that show the same views.

    Parameters
    ----------
    features : mask of shape (d,)
        The layout's features that these rows show.
    moments : Moments
        Of those features alone, in the layout's order.
    """

    features: Booleans
    moments: Moments

    def views(self, layout: Layout) -> Booleans:
        """Mask of the views that these rows show, shape (k,)."""
        return self.features[layout.starts]


class MomentAccumulator:
    """One pass over blocks of rows, in memory that does not grow with their number.

    Blocks are kept until they hold half as many rows as features, then folded into a scatter matrix by the pairwise
    update of Chan, Golub and LeVeque (1983).
    """

    def __init__(self, n_features: int) -> None:
        self._n = 0
        self._mean = np.zeros(n_features)
        self._scatter: Floats | None = None
        self._pending: list[Floats] = []
        self._n_pending = 0

    def add(self, rows: Floats) -> None:
        """Take in rows of shape (n, d)."""
        self._pending.append(np.array(rows, dtype=np.float64))
        self._n_pending += len(rows)
        if 2 * self._n_pending >= len(self._mean):
            self._fold()

    def finish(self) -> Moments:
        """Return the moments of all rows seen."""
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
    """Reduce the rows of one site to moments, one set for every pattern of views.

    Parameters
    ----------
    rows : array of shape (n, d)
        NaN throughout a view marks a row without that view.
    layout : Layout

    Returns
    -------
    list of PatternMoments
        In the order of the patterns' views, so that the same rows always give the same list.

    Raises
    ------
    DataError
        A row shows part of a view, an entry is infinite, or no row shows any view.

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
    """Reduce rows that come in blocks of shape (n, d), in one pass; see :func:`reduce_rows`."""
    seen: dict[tuple[bool, ...], MomentAccumulator] = {}
    for block in blocks:
        views = _views_shown(np.asarray(block), layout)
        for pattern in np.unique(views, axis=0):
            features = pattern[layout.view_of]
            if pattern.any():
                key = tuple(bool(shown) for shown in pattern)
                accumulator = seen.setdefault(key, MomentAccumulator(int(features.sum())))
                accumulator.add(block[np.ix_((views == pattern).all(axis=1), features)])
    if not seen:
        raise DataError("no row shows any view", hint="Give the site at least one row with one whole view.")
    return [PatternMoments(np.array(key)[layout.view_of], seen[key].finish()) for key in sorted(seen, reverse=True)]


def _views_shown(rows: Floats, layout: Layout) -> Booleans:
    if rows.ndim != 2 or rows.shape[1] != layout.n_features:
        raise DataError(
            f"rows have shape {rows.shape}, the layout has {layout.n_features} features",
            hint="Stack the views in the layout's order.",
        )
    if np.isinf(rows).any():
        raise DataError("an entry is infinite", hint="Declare it missing or correct it.")
    shown = np.add.reduceat(~np.isnan(rows), layout.starts, axis=1, dtype=np.int64)
    for name, size, count in zip(layout.names, layout.sizes, shown.T, strict=True):
        if np.any((count > 0) & (count < size)):
            raise DataError(
                "some rows show only part of this view",
                where=f"view {name}",
                hint="Use the path for missing entries, or impute, or drop those rows' view.",
            )
    return np.asarray(shown > 0)
