"""Exact weighted projections on the probability simplex, row by row.

For each row the multiplier tau solves sum_i z_i(key_i - tau) = 1. A piece z_i is zero below zero, then rises with one
slope, and beyond a kink with another slope that is at least as steep. The sum is convex and decreasing in tau. From a
start left of the root, Newton's method therefore increases tau to the root in finitely many passes.

References
----------
C. Michelot (1986), A finite algorithm for finding the projection of a point onto the canonical simplex, Journal of
Optimization Theory and Applications 50, 195-200.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.compilation import njit

Floats = NDArray[np.float64]

Reals = NDArray[Any]

Integers = NDArray[np.int64]

# Safeguard of a loop that is finite in exact arithmetic; passes beyond it could only repeat rounding errors.
MAX_PASSES = 200

# Rows of the array of pieces.
KEY, SLOPE, KINK, STEEP = 0, 1, 2, 3


@njit(cache=True, nogil=True)
def sum_pieces(pieces: Floats, n: int, tau: float) -> tuple[float, float]:
    """Return the sum of the first n pieces at tau, and its rate of decrease in tau.

    Parameters
    ----------
    pieces : array of shape (4, n) or wider
        Key, slope, kink and steeper slope: a piece is slope x up to x = kink and rises with the steeper slope
        beyond, where x = key - tau.
    n : int
    tau : float

    Examples
    --------
    >>> sum_pieces(np.array([[0.9, 0.5], [1.0, 1.0], [0.0, 0.1], [1.0, 3.0]]), 2, 0.2)
    (1.4, 4.0)
    """
    total, rate = 0.0, 0.0
    for i in range(n):
        x = pieces[KEY, i] - tau
        if x > pieces[KINK, i]:
            total += pieces[SLOPE, i] * pieces[KINK, i] + pieces[STEEP, i] * (x - pieces[KINK, i])
            rate += pieces[STEEP, i]
        elif x > 0.0:
            total += pieces[SLOPE, i] * x
            rate += pieces[SLOPE, i]
    return total, rate


@njit(cache=True, nogil=True)
def find_multiplier(pieces: Floats, n: int, tau: float) -> float:
    """Return the tau at which the first n pieces sum to one, from a start at which they sum to more.

    Parameters
    ----------
    pieces : array of shape (4, n) or wider
        See `sum_pieces`.
    n : int
    tau : float

    Examples
    --------
    >>> find_multiplier(np.array([[0.75, 0.5, -2.0], [1.0, 1.0, 1.0], [0.0, 0.0, 0.0], [1.0, 1.0, 1.0]]), 3, -3.0)
    0.125
    """
    for _ in range(MAX_PASSES):
        total, rate = sum_pieces(pieces, n, tau)
        if rate == 0.0:
            return tau
        higher = tau + (total - 1.0) / rate
        if higher <= tau:
            return higher
        tau = higher
    return tau


@njit(cache=True, nogil=True)
def find_largest(key: Reals, left_out: int) -> int:
    """Return the place of the largest key other than `left_out`; of equal ones the first.

    Examples
    --------
    >>> find_largest(np.array([1.0, 5.0, 3.0, 3.0]), 1)
    2
    """
    best = 1 if left_out == 0 else 0
    for i in range(best + 1, key.size):
        if key[i] > key[best] and i != left_out:
            best = i
    return best


@njit(cache=True, nogil=True)
def project_rows(linear: Reals, weights: Reals, left_out: Integers) -> Reals:
    """Return, row by row, the point z of the simplex that minimises sum_i w_i z_i^2 / 2 - b_i z_i.

    With weights of one it is the Euclidean projection of b.

    Parameters
    ----------
    linear : array of shape (m, n)
        b; an entry of -inf gets zero. Each row has a finite entry other than the one that is left out.
    weights : array of shape (m, n) or (1, 1)
        w > 0; one number for all entries in the latter case.
    left_out : array of shape (m,)
        Entry of each row that stays zero, -1 for none.

    Returns
    -------
    array of shape (m, n)
        In the precision of `linear`.

    Examples
    --------
    >>> project_rows(np.array([[0.75, 0.5, -2.0]]), np.ones((1, 1)), np.array([-1]))
    array([[0.625, 0.375, 0.   ]])
    """
    m, n = linear.shape
    projected = np.zeros_like(linear)
    keys, slopes, place = np.empty(n), np.empty(n), np.empty(n, np.int64)
    same, slope = weights.size == 1, 1.0 / np.float64(weights[0, 0])
    for j in range(m):
        best = find_largest(linear[j], left_out[j])
        highest, floor = np.float64(linear[j, best]), -np.float64(weights[0, 0] if same else weights[j, best])
        count, total, rate = 0, 0.0, 0.0
        for i in range(n):
            key = np.float64(linear[j, i]) - highest
            if key > floor and i != left_out[j]:
                keys[count], place[count] = key, i
                slopes[count] = slope if same else 1.0 / np.float64(weights[j, i])
                total += slopes[count] * (key - floor)
                rate += slopes[count]
                count += 1
        tau, count = _drop_to_root(keys, slopes, place, count, floor, floor + (total - 1.0) / rate)
        total = 0.0
        for c in range(count):
            total += slopes[c] * max(0.0, keys[c] - tau)
        for c in range(count):
            projected[j, place[c]] = slopes[c] * max(0.0, keys[c] - tau) / total
    return projected


@njit(cache=True, nogil=True)
def _drop_to_root(
    keys: Floats, slopes: Floats, place: Integers, n: int, tau: float, higher: float
) -> tuple[float, int]:
    """Return the tau at which the first n pieces without a kink sum to one, and the number of pieces that remain.

    `higher` is tau after its first step. Pieces that are zero are dropped in place, in order, since tau only increases:
    each pass then takes less time.
    """
    # The last step may lower tau by rounding; the pieces between must remain.
    margin = 1e-6 * abs(tau)
    for _ in range(MAX_PASSES):
        if higher <= tau:
            return higher, n
        tau = higher
        total, rate, count = 0.0, 0.0, 0
        for i in range(n):
            key, slope, x = keys[i], slopes[i], keys[i] - tau
            # Selections instead of branches, of which the processor would predict half wrongly.
            total += slope * x if x > 0.0 else 0.0
            rate += slope if x > 0.0 else 0.0
            keys[count], slopes[count], place[count] = key, slope, place[i]
            count += 1 if x > -margin else 0
        n = count
        if rate == 0.0:
            return tau, n
        higher = tau + (total - 1.0) / rate
    return tau, n


Places = NDArray[np.int64]


@njit(cache=True, nogil=True)
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
