"""Mathematics of a level of the forest: draws of columns, packing of counts, and curves of leaves.

Random survival forests after H. Ishwaran, U. B. Kogalur, E. H. Blackstone and M. S. Lauer (Annals of Applied
Statistics 2, 2008), on columns and times with the same bins at all sites.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from multicentre.survival.times import hazard

Floats = NDArray[np.float64]
Integers = NDArray[np.int32]
Counts = NDArray[np.int64]


def draw_columns(generator: np.random.Generator, n_nodes: int, max_bins: Counts, n_columns: int) -> Integers:
    """Draw the columns to try at each node, without replacement, from those with more than one bin; shape (s, c).

    Examples
    --------
    >>> drawn = draw_columns(np.random.default_rng(0), 2, np.array([4, 1, 4, 2]), 2)
    >>> drawn.shape, bool((drawn == 1).any())
    ((2, 2), False)
    """
    usable = np.flatnonzero(max_bins > 1).astype(np.int32)
    order = np.argsort(generator.random((n_nodes, len(usable))), axis=1)
    return usable[np.sort(order[:, :n_columns], axis=1)]


def bits_for(totals: Counts) -> Integers:
    """Return the number of bits for counts up to each total, shape (s,).

    Examples
    --------
    >>> bits_for(np.array([1, 7, 8])).tolist()
    [1, 3, 4]
    """
    return np.array([max(int(total).bit_length(), 1) for total in totals], dtype=np.int32)


def first_words(tried: Integers, max_bins: Counts, width: Counts) -> Counts:
    """Return the first word of each node, and the number of words, shape (s + 1,).

    Parameters
    ----------
    tried : array of shape (s, c)
    max_bins : array of shape (d,)
    width : array of shape (s,)
        Words per bin at each node.

    Examples
    --------
    >>> first_words(np.array([[0, 1], [1, 1]]), np.array([2, 3]), np.array([5, 1])).tolist()
    [0, 25, 31]
    """
    return np.concatenate([[0], np.cumsum(max_bins[tried].sum(axis=1) * width)]).astype(np.int64)


def batches(words: Counts, most: int) -> Iterator[slice]:
    """Yield slices of nodes with at most `most` words in total, or of a single node.

    Parameters
    ----------
    words : array of shape (s + 1,)
        First word of each node, and the number of words.

    Examples
    --------
    >>> [(part.start, part.stop) for part in batches(np.array([0, 3, 6, 20, 21]), 6)]
    [(0, 2), (2, 3), (3, 4)]
    """
    start, n_nodes = 0, len(words) - 1
    while start < n_nodes:
        stop = max(int(np.searchsorted(words, words[start] + most, side="right")) - 1, start + 1)
        yield slice(start, stop)
        start = stop


def group_times(bins: Counts, n_times: int, n_groups: int) -> Counts:
    """Return the group of each time of the grid, same shape: neighbours, in groups of about equal size; K maps to S.

    Examples
    --------
    >>> group_times(np.array([0, 1, 2, 3, 4, 5]), 5, 2).tolist()
    [0, 0, 0, 1, 1, 2]
    """
    return np.asarray(bins * n_groups // n_times, dtype=np.int64)


def leaf_curves(counts: Counts) -> Floats:
    """Return the Kaplan-Meier estimate of every leaf on the grid, shape (L, K).

    Parameters
    ----------
    counts : array of shape (L, 2 K + 1)
        Events by time, and ends of follow-up by time and beyond the horizon.

    Examples
    --------
    >>> leaf_curves(np.array([[1, 1, 1, 1, 2]])).round(3).tolist()
    [[0.75, 0.5]]
    """
    n_times = counts.shape[1] // 2
    events, leaving = counts[:, :n_times].astype(np.float64), counts[:, n_times:]
    at_risk = np.cumsum(leaving[:, ::-1], axis=1)[:, :0:-1].astype(np.float64)
    return np.asarray(np.cumprod(1.0 - hazard(events, at_risk), axis=1), dtype=np.float64)


def drawn_total(counts: Counts) -> Counts:
    """Return the number of drawn patients of each node, with repetitions, shape (s,).

    Parameters
    ----------
    counts : array of shape (s, 2 S + 3)
        Events by group of times, ends of follow-up by group and beyond, patients, patients with an event.

    Examples
    --------
    >>> drawn_total(np.array([[1, 1, 1, 1, 2, 4, 2]])).tolist()
    [4]
    """
    n_groups = (counts.shape[1] - 3) // 2
    return np.asarray(counts[:, n_groups:-2].sum(axis=1), dtype=np.int64)
