"""A site's records by part of a column and class of the outcome, and where they go when they are few."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.analytics.tables.counting import join_places
from multicentre.quantiles.maths import decode_doubles, encode_doubles, join_codes

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


def join_values(values: Floats, least: int, classes: Integers | None = None) -> Floats:
    """Return each value as that of a group of at least so many neighbours of its class; NaN where there are too few.

    Whatever tables are counted of joined values, they differ by whole groups.

    Examples
    --------
    >>> len(np.unique(join_values(np.arange(20.0), 5)))
    4
    >>> join_values(np.array([1.0, 1.0, 2.0]), 2, np.array([0, 0, 1])).tolist()
    [1.0, 1.0, nan]
    """
    joined = np.full(len(values), np.nan)
    labels = np.zeros(len(values), dtype=np.int64) if classes is None else classes
    for label in np.unique(labels).tolist():
        own = np.flatnonzero((labels == label) & ~np.isnan(values))
        own = own[np.argsort(values[own], kind="stable")]
        places = join_codes(encode_doubles(values[own]), least)
        joined[own[: len(places)]] = decode_doubles(places)
    return joined


def join_cells(table: Integers, least: int, n_records: int) -> tuple[Floats, int]:
    """Return a table of `n_records` as it may leave in clear, and the fewest records behind one of its cells.

    Within a class neighbouring parts are joined, see :func:`multicentre.analytics.tables.counting.join_places`, so that
    the sizes of parts stay about right. What is left over, such as a class of few records, goes to the fullest cell, so
    that no difference of totals tells of it.

    Parameters
    ----------
    table : array of int, shape (b, c)
    least : int
    n_records : int
        At least the table's total.

    Examples
    --------
    >>> joined, fewest = join_cells(np.array([[6, 1], [6, 0], [9, 0], [30, 0]]), 10, 53)
    >>> joined.tolist(), fewest
    ([[6.0, 0.0], [6.0, 0.0], [0.0, 0.0], [41.0, 0.0]], 12)
    """
    if least <= 1:
        return table.astype(np.float64), int(table[table > 0].min(initial=n_records))
    wide = np.ones(len(table), dtype=np.bool_)
    blocks = [join_places(row, least, wide) for row in table.T]
    joined = np.column_stack([row for row, _ in blocks])
    joined[np.unravel_index(int(joined.argmax()), joined.shape)] += n_records - joined.sum()
    return joined, min((size for _, sizes in blocks for size in sizes), default=n_records)


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
