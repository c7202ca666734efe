"""Base class of the pooled multi-view clusterings: reading of views, parameter checks and common steps."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Self, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import linalg
from scipy.cluster import hierarchy
from sklearn.base import BaseEstimator, ClusterMixin

from multicentre.data.multiview import MultiViewData
from multicentre.errors import DataError
from multicentre.estimator.parameters import Integer, ParameterRanges, check_parameters

Floats = NDArray[np.float64]
Labels = NDArray[np.int64]
Views = dict[str, Floats]


class PooledClusterer(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Base of clusterings of pooled views.

    A subclass defines ``__init__``, with the first parameter `n_clusters`, the ranges of its parameters, and
    ``_fit(views)``, which sets ``labels_``.

    Attributes
    ----------
    labels_ : array of int64, shape (n,)
        Cluster of each sample, from 0.
    views_ : tuple of str
        Names of the views, in the order used.
    n_features_in_ : int
        Number of columns of all views.
    """

    parameter_ranges: ClassVar[ParameterRanges] = {"n_clusters": Integer(2)}
    n_clusters: int
    labels_: Labels
    views_: tuple[str, ...]
    n_features_in_: int

    def fit(self, data: MultiViewData | Mapping[str, ArrayLike], y: object = None) -> Self:
        """Cluster the samples.

        Parameters
        ----------
        data : MultiViewData or mapping from str to array of shape (n, d_k)
            One table per view, with the same n samples in the same order and no missing entry.
        y : ignored
            Not used, present for API consistency by convention.

        Returns
        -------
        PooledClusterer
            The fitted estimator.

        Raises
        ------
        ConfigurationError
            A parameter is out of range.
        DataError
            An entry is missing or infinite, the views have different numbers of samples, or there are fewer than two
            samples or fewer samples than clusters.
        """
        check_parameters(self.get_params(deep=False), self.parameter_ranges)
        views = self.read_views(data)
        self.views_ = tuple(views)
        self.n_features_in_ = sum(X.shape[1] for X in views.values())
        self._fit(views)
        return self

    @abstractmethod
    def _fit(self, views: Views) -> None:
        """Set ``labels_`` and the other attributes of the method."""

    def read_views(self, data: MultiViewData | Mapping[str, ArrayLike]) -> Views:
        """Return the views as arrays of float64 of shape (n, d_k), in their order; raise DataError as `fit` does."""
        if isinstance(data, MultiViewData):
            views = {view: np.asarray(data.array(view), dtype=np.float64) for view in data.views}
        elif isinstance(data, Mapping):
            views = {str(view): _read_table(str(view), table) for view, table in data.items()}
        else:
            raise DataError(
                f"data must be a MultiViewData or a mapping of tables; got {type(data).__name__}",
                where="data",
                hint="Map the name of each view to its table.",
            )
        _check_views(views)
        _check_samples(views, self.n_clusters)
        return views


def standardise(X: Floats) -> Floats:
    """Standardise the columns of X to mean 0 and standard deviation 1; constant columns become 0.

    Examples
    --------
    >>> import numpy as np
    >>> standardise(np.array([[1.0, 5.0], [3.0, 5.0]])).round(6).tolist()
    [[-1.0, 0.0], [1.0, 0.0]]
    """
    extent = np.abs(X).max(axis=0)
    scaled = np.divide(X, extent, out=np.zeros_like(X), where=extent > 0)
    centred = scaled - scaled.mean(axis=0)
    spread = np.sqrt(np.mean(centred**2, axis=0))
    return cast("Floats", np.divide(centred, spread, out=np.zeros_like(X), where=spread > 1e-12))


def nearest_orthonormal(M: Floats) -> Floats:
    """Return the matrix with orthonormal columns (rows if M is wide) and the largest inner product with M.

    The orthogonal Procrustes solution ``U V^T`` of the singular value decomposition ``M = U S V^T``.

    Examples
    --------
    >>> import numpy as np
    >>> nearest_orthonormal(np.array([[0.0, -2.0], [3.0, 0.0]])).tolist()
    [[0.0, -1.0], [1.0, 0.0]]
    """
    left, _, right = linalg.svd(M, full_matrices=False)
    return cast("Floats", left @ right)


def merge_groups(labels: Labels, views: Views, n_clusters: int) -> Labels:
    """Merge groups by average linkage of their means until `n_clusters` are left; fewer groups stay unchanged.

    The means are taken over the standardised views.

    Parameters
    ----------
    labels : array of int64, shape (n,)
        Consecutive groups from 0, none of them empty.
    views : dict of str to array of shape (n, d_k)
    n_clusters : int

    Returns
    -------
    array of int64, shape (n,)

    Examples
    --------
    >>> import numpy as np
    >>> merge_groups(np.array([0, 1, 2, 0]), {"a": np.array([[0.0], [9.0], [1.0], [0.0]])}, 2).tolist()
    [0, 1, 0, 0]
    """
    sizes = np.bincount(labels)
    if len(sizes) <= n_clusters:
        return labels
    joint = np.hstack([standardise(X) for X in views.values()])
    means = np.zeros((len(sizes), joint.shape[1]))
    np.add.at(means, labels, joint)
    tree = hierarchy.linkage(means / sizes[:, None], "average")
    groups: Labels = hierarchy.cut_tree(tree, n_clusters)[:, 0].astype(np.int64)
    return groups[labels]


def _read_table(view: str, table: ArrayLike) -> Floats:
    try:
        values = np.asarray(table, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("all entries must be numbers; got other entries", where=f"view {view!r}") from None
    if values.ndim != 2 or 0 in values.shape:
        raise DataError(
            f"a view must be a table with rows and columns; got shape {values.shape}",
            where=f"view {view!r}",
            hint="Pass one row per sample and one column per feature.",
        )
    return values


def _check_views(views: Views) -> None:
    if not views:
        raise DataError("data must have at least one view; got none", where="data")
    for view, X in views.items():
        n_missing = int(np.isnan(X).sum())
        if n_missing:
            raise DataError(
                f"all entries must be present; got {n_missing} missing entries",
                where=f"view {view!r}",
                hint="This method needs complete views. Impute the entries or leave the samples out.",
            )
        if not np.all(np.isfinite(X)):
            raise DataError("all entries must be finite; got infinite entries", where=f"view {view!r}")


def _check_samples(views: Views, n_clusters: int) -> None:
    sizes = {view: len(X) for view, X in views.items()}
    if len(set(sizes.values())) > 1:
        raise DataError(
            f"all views must have the same number of samples; got {sizes}",
            where="data",
            hint="Pass the same samples in the same order in every view.",
        )
    n = next(iter(sizes.values()))
    if n < 2:
        raise DataError(f"there must be at least two samples; got {n}", where="data")
    if n_clusters > n:
        raise DataError(f"n_clusters must be at most the number of samples, {n}; got {n_clusters}", where="n_clusters")
