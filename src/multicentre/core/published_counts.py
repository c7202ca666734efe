"""The rule for counts of patients that readers receive: tables, captions, sentences, printed output and saved models.

A count from 1 to ``least - 1`` is small. Readers see "<5" (of `least`) in its place, and files hold none. The thousands
of whole numbers are grouped by commas wherever readers see them ("1,325"): in texts by Python's format ``,``, in tables
by :func:`count_text` and :func:`multicentre.reports.formats.format_number`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

MIN_PUBLISHED = 5
"""Smallest count that is published, unless an analysis states another ``min_cell``."""

# A mark "<3" can be two numbers; "<2" would be 1.
MIN_MARK = 3


def is_small(counts: NDArray[Any], least: int) -> NDArray[np.bool_]:
    """Flag counts from 1 to ``least - 1``.

    Examples
    --------
    >>> is_small(np.array([0, 4, 5]), 5).tolist()
    [False, True, False]
    """
    return np.asarray((counts > 0) & (counts < least), dtype=np.bool_)


def published(count: float | None, least: int = MIN_PUBLISHED) -> int | None:
    """Return a count for a file or a column of numbers: None for a small one.

    Examples
    --------
    >>> published(0), published(4), published(12.0)
    (0, None, 12)
    """
    return None if count is None or 0 < count < least else round(count)


def count_text(count: float | None, least: int = MIN_PUBLISHED, *, is_hidden: bool | None = None) -> str:
    """Return a count as a text: "<5" for a small one (None stands for one), "-" for another that must not be shown.

    Parameters
    ----------
    count : float or None
    least : int, default 5
    is_hidden : bool, optional
        True if the count is left out to protect others; by default only small counts are.

    Examples
    --------
    >>> count_text(1325), count_text(3), count_text(None), count_text(12, is_hidden=True), count_text(1, 2)
    ('1,325', '<5', '<5', '-', '-')
    """
    is_few = count is None or 0 < count < least
    if not (is_few if is_hidden is None else is_hidden):
        return f"{round(count or 0):,}"
    return f"<{least}" if is_few and least >= MIN_MARK else "-"
