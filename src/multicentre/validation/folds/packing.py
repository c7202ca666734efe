"""Buckets of people packed into folds that are alike in size and in the classes of the outcome."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

RECORDS_A_BUCKET = 20
BUCKETS_A_FOLD = 8
MOST_BUCKETS = 4096


def bucket_number(n_records: int, n_splits: int) -> int:
    """Return how many buckets serve to balance folds: n / 20, at least 8 a fold, at most 4096.

    Examples
    --------
    >>> bucket_number(300, 5), bucket_number(12_000, 5), bucket_number(10**6, 5)
    (40, 600, 4096)
    """
    return int(np.clip(n_records // RECORDS_A_BUCKET, BUCKETS_A_FOLD * n_splits, MOST_BUCKETS))


def pack_buckets(table: Integers, n_splits: int) -> Integers:
    """Return the fold of each bucket, by the greedy rule of scikit-learn's StratifiedGroupKFold.

    Buckets whose classes are least alike in number come first (of equal ones the larger, then the earlier). Each goes
    to the fold that leaves the shares of the classes most alike over the folds: the least mean over classes of the
    standard deviation of the folds' shares, then the fewest records, then the first fold.

    Parameters
    ----------
    table : array of int, shape (B, C)
        Records by bucket and class; below 2**53 / n_splits together, so that any machine packs alike.
    n_splits : int

    Returns
    -------
    array of int64, shape (B,)

    Examples
    --------
    >>> pack_buckets(np.array([[9, 1], [9, 1], [10, 0], [10, 0]]), 2).tolist()
    [0, 1, 0, 1]
    """
    counts = np.asarray(table, dtype=np.float64)
    totals = np.maximum(counts.sum(axis=0), 1.0)
    packed, sizes = np.zeros((counts.shape[1], n_splits)), np.zeros(n_splits)
    fold = np.empty(len(counts), dtype=np.int64)
    for bucket in _packing_order(counts):
        own = counts[bucket]
        chosen = np.lexsort((np.arange(n_splits), sizes, _spreads(packed, own, totals)))[0]
        fold[bucket] = chosen
        packed[:, chosen] += own
        sizes[chosen] += own.sum()
    return fold


def _packing_order(counts: Floats) -> Integers:
    n_classes, sizes = counts.shape[1], counts.sum(axis=1)
    unlike = n_classes * (counts**2).sum(axis=1) - sizes**2
    return np.lexsort((np.arange(len(counts)), -sizes, -unlike))


def _spreads(packed: Floats, own: Floats, totals: Floats) -> Floats:
    """Return how unlike the folds are once one has a bucket, shape (K,); whole numbers until the root."""
    n_splits = packed.shape[1]
    squares = (packed**2).sum(axis=1)[:, None] + own[:, None] * (2 * packed + own[:, None])
    sums = (packed.sum(axis=1) + own)[:, None]
    deviations = np.sqrt(n_splits * squares - sums**2) / totals[:, None]
    return np.asarray(sum(deviations), dtype=np.float64)
