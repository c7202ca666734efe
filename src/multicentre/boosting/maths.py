"""Splits and steps of boosted trees from sums of integers, in the arithmetic of xgboost's hist.

Equations are those of T. Chen and C. Guestrin, "XGBoost", KDD 2016. Sums are in double precision and gains in single
precision (`kernels/splits.py`). Candidates are in the order of xgboost: by column; within a column first with missing
values on the right and increasing cuts, then with missing values on the left and decreasing cuts. Of equal gains the
first is selected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.trees import splits as trees

Singles = NDArray[np.float32]
Sums = NDArray[np.int64]
# Streams of random numbers of a tree: one for each kind of draw of columns.
_BY_TREE, _BY_LEVEL, _BY_NODE = range(3)
# Minimum gain of a split: the constant kRtEps of xgboost.
MIN_GAIN = np.float32(1e-6)
# Bounds of steps without monotone constraints.
NO_BOUNDS = np.array([[-np.inf, np.inf]], dtype=np.float32)


@dataclass(frozen=True)
class Penalty:
    """Regularisation of splits and steps.

    Parameters
    ----------
    reg_lambda, reg_alpha : float
        Penalties of a step's square and of its magnitude.
    gamma : float
        Minimum gain of a split.
    min_child_weight : float
        Minimum sum of curvatures on either side of a split.
    least_records : int
        Minimum number of records over all sites on either side.
    largest_step : float
        Largest magnitude of a step; 0 for no limit.
    slope_unit, curvature_unit : float
        Unit of the sums.
    monotone : tuple of int
        Per column 1 if predictions must not fall with it, -1 if they must not rise, else 0; empty for no constraint.
    """

    reg_lambda: float
    reg_alpha: float
    gamma: float
    min_child_weight: float
    least_records: int
    largest_step: float
    slope_unit: float
    curvature_unit: float
    monotone: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[np.float32, np.float32, np.float32, np.float32]:
        """Penalties of a step, the minimum of a side and the largest step, in single precision."""
        names = (self.reg_lambda, self.reg_alpha, self.min_child_weight, self.largest_step)
        return np.float32(names[0]), np.float32(names[1]), np.float32(names[2]), np.float32(names[3])

    @property
    def units(self) -> tuple[float, float]:
        """Units of slopes and of curvatures."""
        return self.slope_unit, self.curvature_unit


@dataclass(frozen=True)
class Splits(trees.Splits):
    """Best split of each node, and the side of missing values."""

    default_left: NDArray[np.bool_]

    @property
    def fields(self) -> dict[str, NDArray[Any]]:
        """Values of the nodes that are split, by field."""
        return {**super().fields, "default_left": self.default_left}


def newton_steps(sums: Sums, penalty: Penalty, bounds: Singles | None = None) -> Singles:
    """Return the Newton step of each node (equation 5), shape (s,).

    Parameters
    ----------
    sums : array of shape (s, 2 or 3)
        Slopes and curvatures in units.
    penalty : Penalty
    bounds : array of shape (s, 2), optional
        Lowest and highest step of each node, from splits above it on columns with a monotone constraint.

    Examples
    --------
    >>> newton_steps(np.array([[-6, 2]]), Penalty(1.0, 0.0, 0.0, 1.0, 0, 0.0, 0.5, 1.0)).tolist()
    [1.0]
    """
    from multicentre.boosting.kernels.splits import take_steps

    steps: Singles = take_steps(sums, NO_BOUNDS if bounds is None else bounds, penalty.shape, penalty.units)
    return steps


def find_splits(
    sums: Sums,
    first: Sums,
    penalty: Penalty,
    *,
    permitted: NDArray[np.bool_] | None = None,
    bounds: Singles | None = None,
) -> Splits:
    """Return the split of each node with the largest gain (equation 7).

    Parameters
    ----------
    sums : array of shape (s, q, z)
        Slopes, curvatures and, where z is 3, numbers of records by cell; a column's last cell has its missing values.
    first : array of shape (d + 1,)
        First cell of every column, and the end.
    penalty : Penalty
    permitted : array of shape (s, d), optional
        Columns on which a node may be split; by default all.
    bounds : array of shape (s, 2), optional
        Lowest and highest step of each node.

    Examples
    --------
    >>> sums = np.array([[[-2, 2], [1, 1], [1, 1], [0, 0]]])
    >>> splits = find_splits(sums, np.array([0, 4]), Penalty(0.0, 0.0, 0.0, 0.5, 0, 0.0, 1.0, 1.0))
    >>> splits.column.tolist(), splits.cut.tolist(), splits.gain.tolist(), splits.left.tolist()
    ([0], [0], [4.0], [[-2, 2]])
    """
    from multicentre.boosting.kernels.splits import scan_splits

    rules = np.zeros((0, len(first) - 1), dtype=np.bool_) if permitted is None else permitted
    limits, direction = NO_BOUNDS if bounds is None else bounds, np.array(penalty.monotone, dtype=np.int64)
    of_penalty = (penalty.shape, penalty.units, penalty.least_records)
    splits, gain, left = scan_splits(sums, first, rules, limits, direction, *of_penalty)
    right = sums[:, first[0] : first[1]].sum(axis=1) - left
    made = (gain > MIN_GAIN) & (gain >= np.float32(penalty.gamma)) & (left[:, 1] != 0) & (right[:, 1] != 0)
    return Splits(np.where(made, splits[:, 0], -1), splits[:, 1], gain, left, right, splits[:, 2] == 1)


def bounds_below(splits: Splits, made: Sums, bounds: Singles, penalty: Penalty) -> Singles:
    """Return the bounds of the children of nodes that are split, shape (2 s, 2).

    As in xgboost, the middle of the children's steps divides the bounds of a node on a column with a constraint.
    """
    sides = np.stack([splits.left[made], splits.right[made]], axis=1).reshape(2 * len(made), splits.left.shape[1])
    steps = newton_steps(sides, penalty, np.repeat(bounds, 2, axis=0)).reshape(-1, 2)
    middle = (steps[:, 0] + steps[:, 1]) / np.float32(2.0)
    direction = np.array(penalty.monotone)[splits.column[made]]
    below = np.repeat(bounds[:, None], 2, axis=1)
    for is_bound, lower in ((direction > 0, 0), (direction < 0, 1)):
        below[is_bound, lower, 1] = below[is_bound, 1 - lower, 0] = middle[is_bound]
    return below.reshape(-1, 2)


@dataclass(frozen=True)
class Columns:
    """Rules for the columns on which a node may be split: drawn by a shared seed, and by sets of columns.

    Parameters
    ----------
    n_columns : int
    by_tree, by_level, by_node : float
        Shares of the columns that are drawn per tree, of these per level, and of these per node.
    seed : int
    groups : tuple of frozenset of int
        Sets of columns that may occur on the same path; none if all may.
    """

    n_columns: int
    by_tree: float
    by_level: float
    by_node: float
    seed: int
    groups: tuple[frozenset[int], ...]

    @property
    def is_free(self) -> bool:
        """True if every node may be split on every column."""
        return not self.groups and self.by_tree == self.by_level == self.by_node == 1.0

    def permitted(self, tree: int, depth: int, node: int, path: frozenset[int]) -> NDArray[np.bool_]:
        """Return the columns on which a node may be split, shape (d,).

        Parameters
        ----------
        tree : int
            Number of the tree in the fit.
        depth, node : int
        path : frozenset of int
            Columns of the splits above the node.

        Examples
        --------
        >>> rules = Columns(4, 1.0, 1.0, 1.0, 0, (frozenset({0, 1}), frozenset({1, 2})))
        >>> rules.permitted(0, 1, 1, frozenset({0})).tolist(), rules.permitted(0, 1, 1, frozenset({1})).tolist()
        ([True, True, False, False], [True, True, True, False])
        """
        drawn = self._draw(np.arange(self.n_columns), self.by_tree, tree, _BY_TREE)
        drawn = self._draw(drawn, self.by_level, tree, _BY_LEVEL, depth)
        drawn = self._draw(drawn, self.by_node, tree, _BY_NODE, node)
        flags = np.zeros(self.n_columns, dtype=np.bool_)
        flags[drawn] = True
        if self.groups and path:
            allowed = path.union(*(group for group in self.groups if path <= group))
            flags &= np.isin(np.arange(self.n_columns), list(allowed))
        return flags

    def _draw(self, columns: NDArray[np.int64], share: float, *stream: int) -> NDArray[np.int64]:
        """Return a share of the columns, at least one, without replacement."""
        if share == 1.0:
            return columns
        n_drawn = max(1, int(share * len(columns)))
        rng = np.random.default_rng([self.seed, *stream])
        return np.sort(rng.choice(columns, n_drawn, replace=False))
