"""Area under the curve of validation records, from numbers of records by class and cell of their margin.

One evaluation consists of:

1. The coordinator sends the trees so far, and borders that divide the margins into cells.
2. Each site returns numbers of its records (or sums of their weights) by class and cell.
3. The coordinator adds up the sums, and divides the cells that contain both classes for the next request.

The requests end when no such cell can be divided, or after three divisions. Records of two classes in one cell count as
tied. The largest error that this can cause follows from the same sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import NDArray

Singles = NDArray[np.float32]
Sums = NDArray[np.int64]
# Largest margin of the first borders: single precision tells few probabilities beyond it from 0 and 1.
_HIGHEST = 16.0
# Number of the first borders.
_N_FIRST = 1023
# Number of cells into which a request divides those of both classes.
_N_FURTHER = 4096
# Divisions: a fourth would divide cells of a width near that of single precision.
_N_DIVISIONS = 3
# Error below which cells are not divided further: far below the sampling error of any validation records.
_MIN_ERROR = 1e-6


def find_area(count: Callable[[Singles], Sums]) -> tuple[float, float]:
    """Return the area under the curve, and its largest error.

    Parameters
    ----------
    count : callable
        Returns the sums of two classes by cell, shape (2, b + 1), for b increasing borders.

    Examples
    --------
    >>> def count(borders):
    ...     cells = [np.searchsorted(borders, np.float32(each), "right") for each in ([-1.0, 0.1], [0.1001, 3.0])]
    ...     return np.array([np.bincount(each, minlength=len(borders) + 1) for each in cells])
    >>> find_area(count)
    (1.0, 0.0)
    """
    borders = np.linspace(-_HIGHEST, _HIGHEST, _N_FIRST, dtype=np.float32)
    sums = count(borders)
    for _ in range(_N_DIVISIONS):
        # The first and the last cell have no end, and stay whole.
        mixed = np.flatnonzero((sums[:, 1:-1] > 0).all(axis=0)) + 1
        parts = [_divide(borders[cell - 1], borders[cell], _N_FURTHER // len(mixed)) for cell in mixed]
        if area(sums)[1] <= _MIN_ERROR or not any(len(part) > 2 for part in parts):
            break
        requested = np.unique(np.concatenate(parts))
        borders, sums = _splice(
            borders, sums, dict(zip(mixed.tolist(), parts, strict=True)), requested, count(requested)
        )
    return area(sums)


def _divide(low: np.float32, high: np.float32, n_parts: int) -> Singles:
    """Return the borders of the parts of a cell, with its ends; fewer parts where single precision has no more."""
    return np.unique(np.linspace(low, high, max(2, n_parts) + 1, dtype=np.float32))


def _splice(
    borders: Singles, sums: Sums, parts: Mapping[int, Singles], requested: Singles, answer: Sums
) -> tuple[Singles, Sums]:
    """Return borders and sums in which some cells are replaced by their parts."""
    new_borders, new_sums = [borders[:0]], [sums[:, :0]]
    for cell in range(sums.shape[1]):
        if cell in parts:
            first, last = np.searchsorted(requested, parts[cell][[0, -1]]) + 1
            new_borders.append(parts[cell][1:-1])
            new_sums.append(answer[:, first:last])
        else:
            new_sums.append(sums[:, cell : cell + 1])
        new_borders.append(borders[cell : cell + 1])
    return np.concatenate(new_borders), np.concatenate(new_sums, axis=1)


def area(sums: Sums) -> tuple[float, float]:
    """Return the area under the curve with half of the tied pairs, and half of the share of tied pairs.

    Parameters
    ----------
    sums : array of shape (2, r)
        Records of the first and of the second class, or their weight, by cell in the order of margins.

    Examples
    --------
    >>> area(np.array([[1, 1, 0], [0, 1, 2]]))
    (0.9166666666666666, 0.08333333333333333)
    """
    first, second = sums.astype(np.float64)
    n_pairs = first.sum() * second.sum()
    if not n_pairs:
        return float("nan"), float("nan")
    below = np.cumsum(first) - first
    return float((second * (below + first / 2)).sum() / n_pairs), float((second * first).sum() / 2 / n_pairs)
