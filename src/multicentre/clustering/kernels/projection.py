"""Exact Euclidean projection of many short vectors on the probability simplex."""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Places = NDArray[np.int64]


@njit(cache=True)
def project_segments(values: Floats, starts: Places) -> Floats:
    """Project every segment of `values` on the simplex; segment i lies from ``starts[i]`` to ``starts[i + 1]``.

    The threshold t of ``max(v - t, 0)`` is found by sorting a segment (Held, Wolfe and Crowder 1974). Empty segments
    stay empty.

    Examples
    --------
    >>> import numpy as np
    >>> project_segments(np.array([3.0, 2.5, 0.0, 7.0]), np.array([0, 3, 4])).tolist()
    [0.75, 0.25, 0.0, 1.0]
    """
    projected = np.empty_like(values)
    for i in range(starts.size - 1):
        segment = values[starts[i] : starts[i + 1]]
        if segment.size == 0:
            continue
        largest = segment.max()
        descending = np.sort(segment - largest)[::-1]
        total, threshold = 0.0, 0.0
        for j in range(descending.size):
            total += descending[j]
            candidate = (total - 1.0) / (j + 1)
            if descending[j] <= candidate:
                break
            threshold = candidate
        for j in range(segment.size):
            projected[starts[i] + j] = max(segment[j] - largest - threshold, 0.0)
    return projected
