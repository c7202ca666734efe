"""Partition of the rows of an embedding by k-means."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.errors import ConfigurationError, DataError

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
# Largest seed: k-means draws the seeds of its starts as 32-bit integers.
MAX_SEED = 2**31 - 1


def partition_rows(
    embedding: ArrayLike,
    n_clusters: int,
    *,
    n_init: int = 10,
    random_state: int | np.random.Generator | None = None,
) -> Integers:
    """Return the cluster of each row: k-means with k-means++ starts, the best of `n_init`.

    Equal rows share a cluster. Where no more rows differ than clusters are wanted, each distinct row is its own
    cluster and some of the clusters stay empty: the labels are then fewer than `n_clusters`.

    Parameters
    ----------
    embedding : array of shape (n, c)
        One row per sample, finite.
    n_clusters : int
        Between 1 and n.
    n_init : int, default 10
        Number of starts.
    random_state : int or numpy.random.Generator, optional
        Makes the starts reproducible.

    Returns
    -------
    int64 array of shape (n,)
        Numbers from 0, in the order in which the clusters first appear.

    Raises
    ------
    DataError
        Rows that are not finite, or more clusters than rows.
    ConfigurationError
        Fewer than one cluster or start.

    Examples
    --------
    >>> partition_rows([[0.0], [0.1], [5.0], [5.2], [0.2]], 2, random_state=0).tolist()
    [0, 0, 1, 1, 0]
    >>> partition_rows([[3.0, 1.0]] * 4, 2, random_state=0).tolist()
    [0, 0, 0, 0]
    """
    rows = np.ascontiguousarray(embedding, dtype=np.float64)
    _check(rows, n_clusters, n_init)
    distinct, place = np.unique(rows, axis=0, return_inverse=True)
    if len(distinct) <= n_clusters:
        return number_by_appearance(place.reshape(-1))
    return number_by_appearance(_cluster(rows, n_clusters, n_init, random_state))


def number_by_appearance(labels: NDArray[np.integer]) -> Integers:
    """Return the same partition with its clusters numbered from 0 in the order of their first sample.

    Parameters
    ----------
    labels : int array of shape (n,)

    Examples
    --------
    >>> number_by_appearance(np.array([7, 7, 2, 9, 2])).tolist()
    [0, 0, 1, 2, 1]
    """
    _, first, place = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(first), dtype=np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return np.asarray(rank[place.reshape(-1)])


def _cluster(rows: Floats, n_clusters: int, n_init: int, random_state: int | np.random.Generator | None) -> Integers:
    """Run k-means without its warning of fewer clusters, which rows that differ only by rounding cause."""
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    if isinstance(random_state, np.random.Generator):
        random_state = int(random_state.integers(MAX_SEED))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return np.asarray(KMeans(n_clusters, n_init=n_init, random_state=random_state).fit(rows).labels_)


def _check(rows: Floats, n_clusters: int, n_init: int) -> None:
    if rows.ndim != 2 or rows.size == 0 or not np.isfinite(rows).all():
        raise DataError(
            f"embedding must be a table of finite numbers, one row per sample; got shape {rows.shape}",
            where="embedding",
        )
    if n_clusters < 1 or n_init < 1:
        raise ConfigurationError(
            f"n_clusters and n_init must be at least 1; got {n_clusters} and {n_init}", where="n_clusters, n_init"
        )
    if n_clusters > len(rows):
        raise DataError(
            f"n_clusters must be at most the number of samples, {len(rows)}; got {n_clusters}",
            where="n_clusters",
            hint="Decrease n_clusters.",
        )
