"""Exhibits too large for one page, cut into parts that each fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from multicentre.estimator.figures import Bars, Densities, Exhibit, HeatMap, Table

MOST_PANELS = 30
MOST_CELL_ROWS = 48
MOST_CELL_COLUMNS = 60
MOST_BARS = 44
MOST_TABLE_COLUMNS = 9


def fit_to_pages(shown: Exhibit) -> list[Exhibit]:
    """Return an exhibit as parts that fit a page; most are one part.

    >>> wide = Table("T", "", "data", ["site", *"abcdefghijkl"], [["lyon", *range(12)]])
    >>> [len(part.columns) for part in fit_to_pages(wide)]
    [7, 7]
    """
    parts = _parts(shown)
    if len(parts) == 1:
        return [shown]
    return [replace(part, title=f"{part.title} ({number} of {len(parts)})") for number, part in enumerate(parts, 1)]


def _parts(shown: Exhibit) -> list[Exhibit]:
    if isinstance(shown, Densities):
        return [replace(shown, panels=shown.panels[a:b]) for a, b in _cuts(len(shown.panels), MOST_PANELS)]
    if isinstance(shown, HeatMap):
        return [
            replace(
                shown,
                rows=shown.rows[a:b],
                columns=shown.columns[c:d],
                values=[row[c:d] for row in shown.values[a:b]],
            )
            for a, b in _cuts(len(shown.rows), MOST_CELL_ROWS)
            for c, d in _cuts(len(shown.columns), MOST_CELL_COLUMNS)
        ]
    if isinstance(shown, Bars):
        return [
            _some_bars(shown, a, b) for a, b in _cuts(len(shown.categories), MOST_BARS // max(1, len(shown.series)))
        ]
    if isinstance(shown, Table):
        return [_some_columns(shown, a, b) for a, b in _cuts(len(shown.columns) - 1, MOST_TABLE_COLUMNS - 1)]
    return [shown]


def _some_bars(shown: Bars, start: int, end: int) -> Bars:
    return replace(
        shown,
        categories=shown.categories[start:end],
        series={name: values[start:end] for name, values in shown.series.items()},
        spread={name: values[start:end] for name, values in shown.spread.items()},
    )


def _some_columns(shown: Table, start: int, end: int) -> Table:
    def kept(row: Sequence[str | float | None]) -> list[str | float | None]:
        return [*row[:1], *row[1 + start : 1 + end]]

    names = [*shown.columns[:1], *shown.columns[1 + start : 1 + end]]
    return replace(shown, columns=names, rows=[kept(row) for row in shown.rows])


def _cuts(length: int, most: int) -> list[tuple[int, int]]:
    n_parts = max(1, -(-length // max(1, most)))
    edges = [round(part * length / n_parts) for part in range(n_parts + 1)]
    return list(pairwise(edges))
