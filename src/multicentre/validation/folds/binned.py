"""Neighbouring values in bins, and bins dealt out to folds in an order that a key decides.

Folds of neighbouring values make a model extrapolate, and its scores too low. Bins break the neighbourhood; a bin is
wide enough for most copies of a value that were measured twice.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.linkage.pseudonyms import PseudonymKey

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def parts_of(values: Floats, thresholds: Floats) -> Integers:
    """Return the part of each value, shape (n,): the number of thresholds below it; -1 for NaN.

    Examples
    --------
    >>> parts_of(np.array([0.5, 1.0, 7.0, np.nan]), np.array([1.0, 2.0])).tolist()
    [0, 0, 2, -1]
    """
    return np.where(np.isnan(values), -1, np.searchsorted(thresholds, values, side="left")).astype(np.int64)


def order_bins(key: PseudonymKey, purpose: str, n_bins: int) -> Integers:
    """Return the bins in the order of their keyed hashes, shape (n_bins,).

    Examples
    --------
    >>> from multicentre.privacy.secrets import Secret
    >>> sorted(order_bins(PseudonymKey(Secret(bytes(range(32)))), "example", 5).tolist())
    [0, 1, 2, 3, 4]
    """
    begun = key.hash_for(purpose)
    marks = []
    for number in range(n_bins):
        hashed = begun.copy()
        hashed.update(number.to_bytes(2, "big"))
        marks.append(hashed.digest())
    return np.array(sorted(range(n_bins), key=marks.__getitem__), dtype=np.int64)


def deal_bins(sizes: Integers, order: Integers, n_splits: int) -> Integers:
    """Return the fold of each bin, shape (n_bins,): in their order, each goes to the fold that has fewest records yet.

    Parameters
    ----------
    sizes : array of int, shape (n_bins,)
        Records in each bin.
    order : array of int, shape (n_bins,)
    n_splits : int

    Examples
    --------
    >>> deal_bins(np.array([10, 10, 10, 10]), np.array([2, 0, 3, 1]), 2).tolist()
    [1, 1, 0, 0]
    """
    fold, filled = np.empty(len(sizes), dtype=np.int64), np.zeros(n_splits, dtype=np.int64)
    for place in order.tolist():
        fold[place] = int(filled.argmin())
        filled[fold[place]] += sizes[place]
    return fold
