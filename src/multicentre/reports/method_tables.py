"""Tables of methods in the layout of a journal: intervals in one column, p-values to three decimals."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import pairwise

from multicentre.estimator.figures import Table
from multicentre.estimator.printing import is_p_value
from multicentre.reports.formats import NOTHING, format_column, format_p
from multicentre.reports.references import spaced
from multicentre.reports.tables import PageTable

Cell = str | float | None
LIMITS = ("lower", "upper")
# A title such as "Table 1", which the report's own number repeats.
_IS_NUMBERED = re.compile(r"Table \d+")
# Texts that a method made of numbers: counts, percentages, intervals, suppressed cells.
_NUMBERS = re.compile(r"[\s\d.,<≥()\[\]%†±–−-]*|not reached|[\d.,\s−-]+\(.* to .*\)")


def method_table(table: Table) -> PageTable:
    """Return a method's table; the numbers of a column have the same number of decimals.

    Columns "lower" and "upper" are joined with the estimate before them, "ratio lower" and "ratio upper" with "ratio".
    """
    limits = _limits(table.columns)
    joined = {place for pair in limits.values() for place in pair}
    places = [place for place in range(len(table.columns)) if place not in joined]
    columns = [_column(table, place, limits.get(place)) for place in places]
    columns[0] = [spaced(name) for name in columns[0]]
    rows = [[column[number] for column in columns] for number in range(len(table.rows))]
    names = [f"{table.columns[place]} (interval)" if place in limits else table.columns[place] for place in places]
    numeric = frozenset(
        place for place, column in enumerate(columns) if place and any(column) and all(map(_is_numeric, column))
    )
    caption = table.caption if _IS_NUMBERED.fullmatch(table.title) else f"{table.title}. {table.caption}"
    return PageTable(caption, names, rows, numeric)


def _limits(names: Sequence[str]) -> dict[int, tuple[int, int]]:
    """Return the places of the limits by the place of their estimate, which is not in the first column.

    >>> _limits(["column", "coefficient", "standard error", "lower", "upper", "ratio", "ratio lower", "ratio upper"])
    {1: (3, 4), 5: (6, 7)}
    """
    limits = {}
    for place, pair in enumerate(pairwise(names)):
        if pair == LIMITS:
            estimates = [before for before in range(1, place) if names[before] != "standard error"]
            estimate = estimates[-1] if estimates else None
        else:
            estimate = next((at for at, name in enumerate(names) if pair == (f"{name} lower", f"{name} upper")), None)
        if estimate:
            limits[estimate] = (place, place + 1)
    return limits


def _column(table: Table, place: int, limits: tuple[int, int] | None) -> list[str]:
    cells = [row[place] for row in table.rows]
    name = table.columns[place]
    if print_cell := format_p if is_p_value(name) else _FORMATS.get(name):
        return [cell if isinstance(cell, str) else print_cell(cell) for cell in cells]
    if limits is None:
        return _format(cells)
    n_rows, (low, high) = len(cells), limits
    texts = _format([*cells, *(row[low] for row in table.rows), *(row[high] for row in table.rows)])
    return [
        text if lower == upper == NOTHING else f"{text} ({lower} to {upper})"
        for text, lower, upper in zip(texts[:n_rows], texts[n_rows : 2 * n_rows], texts[2 * n_rows :], strict=True)
    ]


def _format(cells: Sequence[Cell]) -> list[str]:
    numbers_as_text = iter(format_column([cell for cell in cells if not isinstance(cell, str)]))
    return [cell if isinstance(cell, str) else next(numbers_as_text) for cell in cells]


def _format_statistic(value: float | None) -> str:
    return NOTHING if value is None else f"{value:.1f}"


def _format_share(value: float | None) -> str:
    if value is None:
        return NOTHING
    return "<0.1 %" if 0 < value < 0.001 else f"{100 * value:.1f} %"


# Columns that every journal prints in the same way.
_FORMATS: dict[str, Callable[[float | None], str]] = {
    "chi-square": _format_statistic,
    "share": _format_share,
}


def _is_numeric(text: str) -> bool:
    return _NUMBERS.fullmatch(text) is not None or "×" in text
