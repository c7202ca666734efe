"""Survival trees on columns and times with the same bins at all sites (histogram log-rank trees)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.estimator.parameters import Integer, OneOf, ParameterRanges, Real, check_parameters
from multicentre.survival.agreement.messages import Patients, Prepared
from multicentre.survival.fitted_models.trees import Trees
from multicentre.survival.learners.cohort import at_shown_times

Floats = NDArray[np.float64]
MaxFeatures = Literal["sqrt", "log2"] | int | float | None
# Largest depth of a tree.
DEEPEST = 64
# Valid values of the settings of trees, for all methods that grow them.
TREE_RANGES: ParameterRanges = {
    "max_depth": (None, Integer(0)),
    "min_samples_leaf": Integer(1),
    "min_events_leaf": Integer(0),
    "max_features": (None, OneOf("sqrt", "log2"), Integer(1), Real(0, 1, open="low")),
}


@dataclass(frozen=True)
class TreeSettings:
    """Settings of survival trees.

    Parameters
    ----------
    max_depth : int, optional
        Maximum depth of a tree; 64 by default.
    min_samples_leaf : int, default 15
        Minimum number of patients of a leaf, each counted once independent of the weight.
    min_events_leaf : int, default 3
        Minimum number of these patients with an event, from 0.
    max_features : {"sqrt", "log2"}, int, float or None, default "sqrt"
        Number of columns tried at a node: the square root of their number, its binary logarithm, this number, this
        share of them, or all (None), as in scikit-learn.

    Raises
    ------
    ConfigurationError
        A setting is out of range.

    Examples
    --------
    >>> [TreeSettings(max_features=value).number_of_columns(55) for value in ("sqrt", "log2", 9, 0.5, None)]
    [7, 5, 9, 27, 55]
    """

    max_depth: int | None = None
    min_samples_leaf: int = 15
    min_events_leaf: int = 3
    max_features: MaxFeatures = "sqrt"

    def __post_init__(self) -> None:
        check_parameters(vars(self), TREE_RANGES)

    def number_of_columns(self, of: int) -> int:
        """Return the number of columns tried at a node, at least 1, for `of` columns."""
        if self.max_features is None:
            return of
        if isinstance(self.max_features, str):
            return max(1, math.isqrt(of) if self.max_features == "sqrt" else int(math.log2(of)))
        if isinstance(self.max_features, int | np.integer):
            return min(int(self.max_features), of)
        return max(1, int(self.max_features * of))


def fit_trees(
    patients: Patients, weights: Floats, settings: TreeSettings | None = None, rng: np.random.Generator | None = None
) -> Trees:
    """Grow one tree per row of weights, with equal shares.

    At a node the bins of a column are split where the weighted log-rank statistic is largest, so thresholds lie on the
    agreed edges. The curve of a leaf is the weighted Kaplan-Meier estimate on the agreed grid; between grouped times it
    is linear (:func:`~multicentre.survival.learners.cohort.at_shown_times`).

    Parameters
    ----------
    patients : Patients
        Under an agreement with bins (``Needs(max_bins=64)``).
    weights : array of shape (T, n) or (n,)
        Weights of the patients, or numbers of bootstrap draws; scaled to sum to n. Patients of weight 0 are not used.
    settings : TreeSettings, optional
    rng : numpy.random.Generator, optional
        Generator of the draws of columns; not needed if all columns are tried.

    Returns
    -------
    Trees
        ``patients`` is the size of the smallest leaf. Rows of weights with too few patients or events for a leaf give
        no tree; the result is empty if all rows are such.

    References
    ----------
    .. [1] M. LeBlanc, J. Crowley, "Survival trees by goodness of split", JASA 88 (1993), 457-467.
    .. [2] H. Ishwaran, U. B. Kogalur, E. H. Blackstone, M. S. Lauer, "Random survival forests", Annals of Applied
       Statistics 2 (2008), 841-860.

    Examples
    --------
    >>> from multicentre.data.survival import SurvivalData
    >>> from multicentre.survival.agreement.messages import Prepared
    >>> agreed = Prepared(("x0",), "", 1, 4.0, 4.0, np.array([1.0, 2.0, 3.0, 4.0]), np.zeros(1), np.ones(1),
    ...                 np.array([0.5]), np.array([0, 1]))
    >>> data = SurvivalData([[0.0], [0.0], [1.0], [1.0]], [1.0, 2.0, 3.0, 4.0], [1, 1, 1, 1])
    >>> tree = fit_trees(Patients(data, agreed), np.ones(4), TreeSettings(min_samples_leaf=2, min_events_leaf=1))
    >>> tree.threshold[0], tree.curves.tolist(), tree.patients
    (np.float64(0.5), [[0.5, 0.0, 0.0, 0.0], [1.0, 1.0, 0.5, 0.0]], 2)
    """
    from multicentre.survival.kernels.logrank import grow_tree

    settings, rng = settings or TreeSettings(), rng or np.random.default_rng(0)
    agreed, rows = patients.agreed, _scaled(np.atleast_2d(weights))
    seeds = rng.integers(2**62, size=len(rows))
    grown = [
        grow_tree(
            patients.binned.T,
            agreed.n_bins,
            patients.bins,
            patients.happened,
            row,
            len(agreed.times),
            DEEPEST if settings.max_depth is None else settings.max_depth,
            settings.min_samples_leaf,
            settings.min_events_leaf,
            settings.number_of_columns(len(agreed.columns)),
            seed,
        )
        for row, seed in zip(rows, seeds.tolist(), strict=True)
    ]
    trees = [_as_trees(patients, nodes, curves, fewest) for *nodes, curves, fewest in grown if fewest]
    return Trees.joined(trees, np.full(len(trees), 1.0))


def fit_forest(patients: Patients, n_estimators: int, settings: TreeSettings, rng: np.random.Generator) -> Trees:
    """Grow trees on bootstrap samples of the patients, sequentially to limit memory.

    Parameters
    ----------
    patients : Patients
        Under an agreement with bins.
    n_estimators : int
    settings : TreeSettings
    rng : numpy.random.Generator
        Generator of the samples, and of the columns tried.

    Returns
    -------
    Trees
        Result as of :func:`fit_trees`; samples with too few patients or events give no tree.

    Examples
    --------
    >>> from multicentre.data.survival import SurvivalData
    >>> from multicentre.survival.agreement.messages import Prepared
    >>> agreed = Prepared(("x0",), "", 1, 4.0, 4.0, np.array([2.0, 4.0]), np.zeros(1), np.ones(1), np.zeros(0),
    ...                 np.array([0, 0]))
    >>> data = SurvivalData(np.zeros((40, 1)), np.arange(40) / 10, np.ones(40))
    >>> fit_forest(Patients(data, agreed), 3, TreeSettings(), np.random.default_rng(0)).shares.round(2).tolist()
    [0.33, 0.33, 0.33]
    """
    n = len(patients)
    draws = (np.bincount(rng.integers(n, size=n), minlength=n).astype(np.float64) for _ in range(n_estimators))
    trees = [fit_trees(patients, draw, settings, rng) for draw in draws]
    return Trees.joined(trees, np.ones(n_estimators))


def _scaled(weights: Floats) -> Floats:
    """Scale weights to sum to the number of patients; integers with this sum are unchanged."""
    total = weights.sum(axis=1, keepdims=True)
    factor = np.divide(weights.shape[1], total, out=np.zeros_like(total), where=total > 0)
    return np.asarray(weights * factor, dtype=np.float64)


def _as_trees(patients: Patients, nodes: list[NDArray[np.int32]], curves: Floats, fewest: int) -> Trees:
    agreed = patients.agreed
    column, cut, left, right, leaf = nodes
    threshold = thresholds_at(agreed, column, cut)
    one = np.zeros(1, dtype=np.int32), np.ones(1)
    leaf_curves = at_shown_times(curves, patients, 1.0)
    return Trees(agreed.times, *one, column, threshold, left, right, leaf, leaf_curves, patients=fewest)


def thresholds_at(agreed: Prepared, column: NDArray[np.int32], cut: NDArray[np.int32]) -> Floats:
    """Return the threshold of each node's split in the units of its column, 0 at a leaf, shape (m,)."""
    inner = column >= 0
    threshold = np.zeros(len(column))
    threshold[inner] = agreed.edges[agreed.first[column[inner]] + cut[inner]]
    return threshold
