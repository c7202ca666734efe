"""The largest value over all sites, digit by digit, from sums alone.

A site marks the bin of its own largest value among 64; the highest bin that any site marked is searched again, 64 times
finer. Eight rounds give 48 binary digits, and a sum shows how many sites marked a bin, not which.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
N_BINS = 64
N_DIGITS = 8


def mark_bin(largest: Floats, low: Floats, width: float) -> Floats:
    """Return a 1 in the bin of each value that lies above `low`, shape (q, 64).

    Parameters
    ----------
    largest : array of shape (q,)
        A site's largest value, by hypothesis.
    low : array of shape (q,)
        Where the bins of each hypothesis begin.
    width : float
        Width of a bin. A value beyond the last bin is in the last.

    Examples
    --------
    >>> np.argwhere(mark_bin(np.array([2.5, 0.5]), np.array([0.0, 1.0]), 1.0)).tolist()
    [[0, 2]]
    """
    marks = np.zeros((len(largest), N_BINS))
    for row in np.flatnonzero(largest >= low):
        marks[row, min(int((largest[row] - low[row]) / width), N_BINS - 1)] = 1.0
    return marks


def go_to_highest(low: Floats, width: float, marks: Floats) -> Floats:
    """Return where the highest bin begins that some site marked, shape (q,); `low` where none is marked.

    Examples
    --------
    >>> go_to_highest(np.zeros(1), 1.0, np.eye(64)[[5]] + np.eye(64)[[3]]).tolist()
    [5.0]
    """
    occupied = marks > 0.5
    highest = N_BINS - 1 - np.argmax(occupied[:, ::-1], axis=1)
    return np.asarray(low + np.where(occupied.any(axis=1), highest, 0) * width, dtype=np.float64)
