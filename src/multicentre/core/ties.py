"""Times that count as one, because they differ only by how they were computed (as R's ``timefix``)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
# Times that differ by at most this share of the earlier one are one time: dividing the same days by the same number in
# two ways gives times that differ by 1e-16.
TIE = 1e-9


def tied_times(time: Floats) -> Floats:
    """Return times with the earliest of those that differ by at most 1e-9 of it in place of each, shape (n,).

    Examples
    --------
    >>> tied_times(np.array([0.1 + 0.2, 0.3, 7.0 * (1 + 5e-10), 7.0, 0.0])).tolist()
    [0.3, 0.3, 7.0, 7.0, 0.0]
    """
    distinct, place = np.unique(time, return_inverse=True)
    firsts = distinct.copy()
    for near in (np.flatnonzero(np.diff(distinct) <= TIE * distinct[:-1]) + 1).tolist():
        if distinct[near] <= firsts[near - 1] * (1.0 + TIE):
            firsts[near] = firsts[near - 1]
    return np.asarray(firsts[place].reshape(time.shape), dtype=np.float64)
