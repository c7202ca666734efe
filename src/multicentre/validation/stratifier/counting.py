"""A site's records by part of a column and class of the outcome."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


def count_parts(values: Floats, cuts: Floats, classes: Integers, shape: tuple[int, int]) -> Integers:
    """Return records with a value by part of a column and class, of the given shape.

    Examples
    --------
    >>> count_parts(np.array([1.0, 3.0, 5.0, np.nan]), np.array([2.0]), np.array([0, 1, 1, 1]), (2, 2)).tolist()
    [[1, 0], [0, 2]]
    """
    known = ~np.isnan(values)
    cells = np.searchsorted(cuts, values[known]) * shape[1] + classes[known]
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape)


def split_outcome(values: Floats, cuts: Floats, n_parts: int) -> Integers:
    """Return which of a few parts each outcome is in, shape (n,), from thresholds of more parts.

    Examples
    --------
    >>> split_outcome(np.array([0.5, 2.5, 5.5]), np.array([1.0, 2.0, 3.0, 4.0, 5.0]), 3).tolist()
    [0, 1, 2]
    """
    ranks = np.arange(1, n_parts) * (len(cuts) + 1) // n_parts - 1
    chosen = cuts[ranks] if len(cuts) >= n_parts - 1 else cuts
    return np.searchsorted(chosen, values).astype(np.int64)


def count_agreement(values: Floats, patients: Integers) -> tuple[int, int]:
    """Return how many patients have known values that differ, and how many have several that agree.

    Examples
    --------
    >>> count_agreement(np.array([1.0, 1.0, 2.0, 3.0, np.nan]), np.array([0, 0, 1, 1, 0]))
    (1, 1)
    """
    known = ~np.isnan(values)
    who, value = patients[known], values[known]
    n_patients = int(patients.max(initial=-1)) + 1
    low, high = np.full(n_patients, np.inf), np.full(n_patients, -np.inf)
    np.minimum.at(low, who, value)
    np.maximum.at(high, who, value)
    several = np.bincount(who, minlength=n_patients) > 1
    return int((several & (low < high)).sum()), int((several & (low == high)).sum())
