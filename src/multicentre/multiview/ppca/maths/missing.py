"""Rows with missing entries, grouped by the features they hold, so that equal patterns share their algebra."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from multicentre.multiview.ppca.maths.model import Booleans, Floats, Integers

# Below this many rows a group, a product batched over rows beats a loop over groups.
ROWS_WORTH_A_LOOP = 6


@dataclass(frozen=True)
class Rows:
    """Stacked rows, split into values and patterns of presence.

    Parameters
    ----------
    values : array of shape (n, d)
        The rows, zero where an entry is missing.
    patterns : bool array of shape (p, d)
        The distinct patterns; True where observed.
    pattern_of : int array of shape (n,)
        Which pattern each row has.
    """

    values: Floats
    patterns: Booleans
    pattern_of: Integers

    @classmethod
    def read(cls, X: Floats) -> Rows:
        """Split `X`, shape (n, d), NaN where missing.

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
        """Which entries are there, shape (n, d), or (1, d) when every row has the same."""
        return self.patterns if len(self.patterns) == 1 else self.patterns[self.pattern_of]

    def deviations(self, mean: Floats) -> Floats:
        """Observed entries minus `mean`, zero where missing, shape (n, d)."""
        return np.asarray((self.values - mean) * self.observed)


def members_of(group_of: Integers) -> Iterator[tuple[int, Integers]]:
    """Yield every non-empty group and the positions of its members."""
    order = np.argsort(group_of, kind="stable")
    groups, starts = np.unique(group_of[order], return_index=True)
    for group, members in zip(groups, np.split(order, starts[1:]), strict=True):
        yield int(group), members


def multiply_grouped(rows: Floats, matrices: Floats, group_of: Integers) -> Floats:
    """Multiply every row, shape (n, a), by the matrix of its group, shape (p, a, b); shape (n, b)."""
    if len(matrices) == 1:
        return np.asarray(rows @ matrices[0])
    if len(rows) < ROWS_WORTH_A_LOOP * len(matrices):
        return np.asarray(np.einsum("na,nab->nb", rows, matrices[group_of]))
    product = np.empty((len(rows), matrices.shape[2]))
    for group, members in members_of(group_of):
        product[members] = rows[members] @ matrices[group]
    return product


def sum_outer_grouped(rows: Floats, group_of: Integers, n_groups: int) -> Floats:
    """Sum the outer products of the rows, shape (n, a), within every group; shape (p, a, a)."""
    width = rows.shape[1]
    if n_groups == 1:
        return np.asarray(rows.T @ rows)[None]
    sums = np.zeros((n_groups, width, width))
    if len(rows) < ROWS_WORTH_A_LOOP * n_groups:
        order = np.argsort(group_of, kind="stable")
        groups, starts = np.unique(group_of[order], return_index=True)
        ordered = rows[order]
        sums[groups] = np.add.reduceat(ordered[:, :, None] * ordered[:, None, :], starts, axis=0)
        return sums
    for group, members in members_of(group_of):
        sums[group] = rows[members].T @ rows[members]
    return sums
