"""Warnings about suspicious data: codes for missing numbers, empty columns, unusual event codes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from multicentre.data.categories import families

Floats = NDArray[np.float64]
# Codes for missing numbers in questionnaires and registries. They are conventions, so a message may name them.
CODES = (-9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0, 99999.0)
# With fewer equal values the code may be coincidence; with fewer other values there is no range to compare with.
MIN_REPEATS = 3


class DataWarning(UserWarning):
    """Data are usable but suspicious."""


def find_codes(values: Floats) -> list[tuple[float, int]]:
    """Return the likely codes for missing numbers and their frequencies.

    A code is reported if it occurs at least three times, and is either the only negative value or farther from all
    other values than their range.

    Parameters
    ----------
    values : array of shape (n,)
        NaN where missing.

    Examples
    --------
    >>> find_codes(np.array([61.0, 70.0, 55.0, 999.0, 999.0, 999.0]))
    [(999.0, 3)]
    >>> find_codes(np.array([61.0, 70.0, 98.0, 99.0, 99.0, 99.0]))
    []
    """
    observed = values[~np.isnan(values)]
    others = observed[~np.isin(observed, CODES)]
    if len(others) < MIN_REPEATS:
        return []
    low, high = float(others.min()), float(others.max())
    counts = {code: int((observed == code).sum()) for code in CODES}
    frequent = [(code, n) for code, n in counts.items() if n >= MIN_REPEATS]
    return [(code, n) for code, n in frequent if code < 0 <= low or max(low - code, code - high) > max(high - low, 1.0)]


def warn_of_columns(X: Floats, columns: Sequence[str], levels: Sequence[str]) -> None:
    """Warn of columns without an entry, and of likely codes for missing entries.

    Parameters
    ----------
    X : array of shape (n, d)
    columns : sequence of str
    levels : sequence of str
        Declared levels, ``name=level``; their columns are not searched for codes.
    """
    category_of = {level: name for name, family in families(levels).items() for level in family}
    empty = [columns[place] for place in np.flatnonzero(np.isnan(X).all(axis=0)).tolist()]
    if empty:
        sources = ", ".join(dict.fromkeys(category_of.get(name, name) for name in empty))
        _warn(f"{sources}: all entries of this site are missing. Check that the column was exported.")
    for place, name in enumerate(columns):
        if name not in category_of:
            warn_of_codes(X[:, place], name)


def warn_of_codes(values: Floats, name: str) -> None:
    """Warn of likely codes for missing entries."""
    for code, n in find_codes(values):
        _warn(
            f"{n} of {len(values)} entries of {name!r} are {code:g}, far from all other values. {code:g} is a common "
            "code for a missing number. Leave missing entries empty (pandas: frame.replace(...))."
        )


def warn_of_events(event: NDArray[np.int8]) -> None:
    """Warn of event codes 1 and 2 without 0, which are read as two competing causes without censoring."""
    if len(event) and set(np.unique(event).tolist()) == {1, 2}:
        _warn(
            "events are 1 or 2 and never 0: 1 is read as the event, 2 as a competing event, and no patient is "
            "censored. If 1 means censored and 2 the event, as in R's survival::lung, subtract 1."
        )


def _warn(what: str) -> None:
    """Issue a warning that points to the first caller outside the package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("multicentre."):
        level, frame = level + 1, frame.f_back
    warnings.warn(what, DataWarning, stacklevel=level)
