"""Tables of methods in the layout of a journal: intervals in one column, p-values to three decimals."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from multicentre.estimator.figures import Table
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

    A column that is followed by "lower" and "upper" is joined with them.
    """
    places = _first_places(table.columns)
    columns = [_column(table, place) for place in places]
    columns[0] = [spaced(name) for name in columns[0]]
    rows = [[column[number] for column in columns] for number in range(len(table.rows))]
    names = [_name(table.columns, place) for place in places]
    numeric = frozenset(
        place for place, column in enumerate(columns) if place and any(column) and all(map(_is_numeric, column))
    )
    caption = table.caption if _IS_NUMBERED.fullmatch(table.title) else f"{table.title}. {table.caption}"
    return PageTable(caption, names, rows, numeric)


def _first_places(names: Sequence[str]) -> list[int]:
    return [place for place in range(len(names)) if not any(_has_limits(names, place - back) for back in (1, 2))]


def _has_limits(names: Sequence[str], place: int) -> bool:
    return place > 0 and tuple(names[place + 1 : place + 3]) == LIMITS


def _name(names: Sequence[str], place: int) -> str:
    return f"{names[place]} (interval)" if _has_limits(names, place) else names[place]


def _column(table: Table, place: int) -> list[str]:
    cells = [row[place] for row in table.rows]
    if table.columns[place] in _FORMATS:
        return [cell if isinstance(cell, str) else _FORMATS[table.columns[place]](cell) for cell in cells]
    if not _has_limits(table.columns, place):
        return _format(cells)
    n_rows = len(cells)
    texts = _format([*cells, *(row[place + 1] for row in table.rows), *(row[place + 2] for row in table.rows)])
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
    **dict.fromkeys(("p", "p-value", "p value"), format_p),
    "chi-square": _format_statistic,
    "share": _format_share,
}


def _is_numeric(text: str) -> bool:
    return _NUMBERS.fullmatch(text) is not None or "\u202f" in text or "×" in text
