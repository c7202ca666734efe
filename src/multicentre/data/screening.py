"""Signs that data which can be used are not what their columns say."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from multicentre.data.categories import families

Floats = NDArray[np.float64]
# Codes by which questionnaires and registries mark a missing number. They are conventions, so a message may name them.
CODES = (-9.0, -99.0, -999.0, -9999.0, 99.0, 999.0, 9999.0, 99999.0)
# Fewer equal values may be coincidence, and fewer others show no range.
LEAST_REPEATS = 3


class DataWarning(UserWarning):
    """Data that can be used look as if something went wrong in them."""


def find_codes(values: Floats) -> list[tuple[float, int]]:
    """Return the codes that seem to stand for missing numbers, and how often each occurs.

    A code counts where it occurs three times or more, and is either the one negative value or farther from all others
    than these lie apart.

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
    known = values[~np.isnan(values)]
    others = known[~np.isin(known, CODES)]
    if len(others) < LEAST_REPEATS:
        return []
    low, high = float(others.min()), float(others.max())
    counts = {code: int((known == code).sum()) for code in CODES}
    frequent = [(code, n) for code, n in counts.items() if n >= LEAST_REPEATS]
    return [(code, n) for code, n in frequent if code < 0 <= low or max(low - code, code - high) > max(high - low, 1.0)]


def warn_of_columns(X: Floats, columns: Sequence[str], levels: Sequence[str]) -> None:
    """Warn of columns without an entry, and of numbers that look like codes for missing entries.

    Parameters
    ----------
    X : array of shape (n, d)
    columns : sequence of str
    levels : sequence of str
        Declared levels, ``name=level``; their columns hold no code.
    """
    category_of = {level: name for name, family in families(levels).items() for level in family}
    empty = [columns[place] for place in np.flatnonzero(np.isnan(X).all(axis=0)).tolist()]
    if empty:
        named = ", ".join(dict.fromkeys(category_of.get(name, name) for name in empty))
        _warn(f"{named}: no patient of this site has an entry. Check that the column was exported.")
    for place, name in enumerate(columns):
        if name not in category_of:
            warn_of_codes(X[:, place], name)


def warn_of_codes(values: Floats, name: str) -> None:
    """Warn of numbers that look like codes for missing entries."""
    for code, n in find_codes(values):
        _warn(
            f"{n} of {len(values)} entries of {name!r} are {code:g}, far from all others, as where {code:g} stands for "
            "a missing number. Leave missing entries empty (pandas: frame.replace(...))."
        )


def warn_of_events(event: NDArray[np.int8]) -> None:
    """Warn of events that are 1 and 2 and never 0, which are taken for two competing causes without censoring."""
    if len(event) and set(np.unique(event).tolist()) == {1, 2}:
        _warn(
            "Events are 1 or 2 and never 0: 1 is taken as the event and 2 as a competing one, and nobody is censored. "
            "Where 1 is censored and 2 the event, as in R's survival::lung, subtract 1."
        )


def _warn(what: str) -> None:
    """Warn where the package was called, however deep below that the data are made."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals["__name__"].startswith("multicentre."):
        level, frame = level + 1, frame.f_back
    warnings.warn(what, DataWarning, stacklevel=level)
