"""Reproducible choices by a computed score.

Two scores that are equal in exact arithmetic may differ in their last digits, which depend on the processor, on the
number of threads, and on masks. Scores that differ by rounding alone are therefore tied, and the first of the tied
scores is chosen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Rounding and the grid of masked sums change a score by up to 1e-10; differences that matter are larger than 1e-9.
TIE = 1e-9


def first_least(scores: ArrayLike, axis: int = -1, *, size: ArrayLike = 0.0) -> NDArray[np.intp]:
    """Return the index of the first of the smallest scores along an axis, like ``argmin`` up to rounding.

    Parameters
    ----------
    scores : array
        Infinite scores and NaN are chosen only if all scores are infinite or NaN; the first is then chosen.
    axis : int, default -1
    size : float or array, default 0
        Size of the terms that a score is the sum of. A score is tied with the smallest one if they differ by at most
        1e-9 times the magnitude of the smallest score or, if that is larger, 1e-9 times this size.

    Examples
    --------
    >>> scores = [0.3, 0.1 + 0.2 - 0.1, 0.2]
    >>> int(first_least(scores)), int(np.argmin(scores))
    (1, 2)
    >>> first_least([[np.nan, 2.0, 1.0], [1e-17, np.inf, 0.0]], size=1.0).tolist()
    [2, 0]
    """
    scores = np.asarray(scores, dtype=np.float64)
    finite = np.isfinite(scores)
    least = np.min(scores, axis=axis, keepdims=True, initial=np.inf, where=finite)
    slack = TIE * np.maximum(np.where(np.isfinite(least), np.abs(least), 0.0), size)
    return np.asarray(np.argmax(finite & (scores <= least + slack), axis=axis))


def first_largest(scores: ArrayLike, axis: int = -1, *, size: ArrayLike = 0.0) -> NDArray[np.intp]:
    """Return the index of the first of the largest scores along an axis, like ``argmax`` up to rounding.

    Examples
    --------
    >>> int(first_largest([0.5, 0.5 + 1e-16, 0.25])), first_largest([[1.0, 3.0], [2.0, -np.inf]]).tolist()
    (0, [1, 0])
    """
    return first_least(-np.asarray(scores, dtype=np.float64), axis, size=size)


def is_less(score: float, other: float) -> bool:
    """Return True if a score is less than another by more than rounding.

    Examples
    --------
    >>> is_less(0.3, 0.1 + 0.2), is_less(0.2, 0.3), is_less(0.2, np.inf)
    (False, True, True)
    """
    return bool(score < other - TIE * abs(other)) if np.isfinite(other) else bool(score < other)
