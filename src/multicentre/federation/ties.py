"""Choices by a computed score, the same wherever they are computed.

Two scores that are equal in exact arithmetic may differ in their last digits: these depend on the processor, on the
number of threads, and on whether sums were masked. Scores that differ by no more than rounding are therefore tied, and
the first of those that are tied is chosen.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

# Above what rounding and the grid of masked sums change in a score (1e-10), below any difference that matters.
TIE = 1e-9


def first_least(scores: ArrayLike, axis: int = -1, *, size: ArrayLike = 0.0) -> NDArray[np.intp]:
    """Return the place of the first of the least scores along an axis, as ``argmin`` does but for rounding.

    Parameters
    ----------
    scores : array
        Infinite scores and NaN are chosen only if every score is one of them; the first is then chosen.
    axis : int, default -1
    size : float or array, default 0
        Size of the terms that make up a score. Scores are tied with the least one where they differ from it by at most
        1e-9 times its magnitude or, where it is larger, this size.

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
    """Return the place of the first of the largest scores along an axis, as ``argmax`` does but for rounding.

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
