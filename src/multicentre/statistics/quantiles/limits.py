"""Checks of a search request at a site, before any counting."""

from __future__ import annotations

import numpy as np

from multicentre.federation.errors import ConfigurationError, DisclosureRefused, MessageError
from multicentre.statistics.quantiles.messages import Cells

BITS = (1, 2, 4, 8)
MOST_PARTS = 1024
MOST_STARTS = 4


def check_cells(ask: Cells, before: Cells | None, n_columns: int, most_parts: int = MOST_PARTS) -> None:
    """Raise unless the cells can come from a search: each in one of those asked for before, and few enough.

    Parameters
    ----------
    ask : Cells
    before : Cells, optional
        What was asked for last in this session.
    n_columns : int
    most_parts : int, default 1024

    Raises
    ------
    MessageError
        Numbers are out of range, or cells are not in order.
    ConfigurationError
        The cells do not follow from those asked for before, or another search was begun.

    Examples
    --------
    >>> none = np.zeros(1, dtype=np.uint64)
    >>> check_cells(Cells(5, 4, 0, np.zeros(1, dtype=np.int32), none), None, 1)
    """
    if ask.bits not in BITS or not 2 <= ask.n_parts <= most_parts or not 0 <= ask.level < 64 // ask.bits:
        raise MessageError("parts, bits or level are out of range", where="Cells")
    column, prefix = ask.column.astype(np.int64), ask.prefix
    if not len(column) or column.min() < 0 or column.max() >= n_columns:
        raise MessageError(f"{n_columns} columns are here", where="Cells.column")
    if ask.level < 64 // ask.bits and (prefix >> np.uint64(ask.level * ask.bits)).any():
        raise MessageError("a cell has more digits than its level", where="Cells.prefix")
    ordered = (np.diff(column) > 0) | ((np.diff(column) == 0) & (prefix[1:] > prefix[:-1]))
    if not ordered.all() or np.bincount(column).max() > ask.n_parts:
        raise MessageError("cells are not in order, or more than parts", where="Cells")
    if not ask.level and before is not None and (before.n_parts, before.bits) != (ask.n_parts, ask.bits):
        raise ConfigurationError(
            "the request must belong to the current search; another search was begun",
            where="count_below",
            hint="Begin the search again.",
        )
    if ask.level and not _follows(ask, before):
        raise ConfigurationError(
            "cells must follow from those of the previous request", where="count_below", hint="Begin the search again."
        )


def check_fineness(ask: Cells, finest: int, least_behind: int) -> None:
    """Raise DisclosureRefused for cells finer than `finest` digits, where the policy asks for a minimum of patients.

    Examples
    --------
    >>> none = np.zeros(1, dtype=np.uint64)
    >>> check_fineness(Cells(5, 4, 11, np.zeros(1, dtype=np.int32), none), 48, 10)
    """
    if (ask.level + 1) * ask.bits > finest and least_behind > 1:
        raise DisclosureRefused(
            f"cells of more than {finest} digits come close to a patient's value, and the policy asks for "
            f"{least_behind} patients behind a value",
            where="count_below",
            hint="Search with a tolerance above 0.",
        )


def _follows(ask: Cells, before: Cells | None) -> bool:
    if before is None or (before.n_parts, before.bits) != (ask.n_parts, ask.bits):
        return False
    if ask.level == before.level:
        return np.array_equal(ask.column, before.column) and np.array_equal(ask.prefix, before.prefix)
    parents = zip(ask.column.tolist(), (ask.prefix >> np.uint64(ask.bits)).tolist(), strict=True)
    known = set(zip(before.column.tolist(), before.prefix.tolist(), strict=True))
    return ask.level == before.level + 1 and known.issuperset(parents)
