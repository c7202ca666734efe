"""Figures and tables cut into parts that fit a page."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from multicentre.estimator.figures import Bars, Densities, Figure, HeatMap

# Six rows of five panels are 7.0 inches high (6 * 1.15 + 0.1); an A4 page has 10.3 inches (262 mm).
MAX_PANELS = 30

# 48 rows are 7.5 inches high (48 * 0.145 + 0.5), which leaves 2.8 of the page's 10.3 inches for names and caption.
MAX_CELL_ROWS = 48

# 60 columns leave a cell at most 2.9 mm of the page's width of 174 mm.
MAX_CELL_COLUMNS = 60

# Bars of all series count, as the height grows with them: 22 pairs take 9.4 of the page's 10.3 inches.
MAX_BARS = 44


def fit_to_pages(figure: Figure) -> list[Figure]:
    """Return a figure as parts that fit a page; most are one part. A table on the page cuts itself.

    >>> bars = Bars("B", "", "model", "share", [str(place) for place in range(60)], {"a": [0.5] * 60}, {})
    >>> [len(part.categories) for part in fit_to_pages(bars)]
    [30, 30]
    """
    parts = _parts(figure)
    if len(parts) == 1:
        return [figure]
    return [replace(part, title=f"{part.title} ({number} of {len(parts)})") for number, part in enumerate(parts, 1)]


def _parts(figure: Figure) -> list[Figure]:
    if isinstance(figure, Densities):
        return [replace(figure, panels=figure.panels[a:b]) for a, b in _cuts(len(figure.panels), MAX_PANELS)]
    if isinstance(figure, HeatMap):
        return [
            replace(
                figure,
                rows=figure.rows[a:b],
                columns=figure.columns[c:d],
                values=[row[c:d] for row in figure.values[a:b]],
            )
            for a, b in _cuts(len(figure.rows), MAX_CELL_ROWS)
            for c, d in _cuts(len(figure.columns), MAX_CELL_COLUMNS)
        ]
    if isinstance(figure, Bars):
        return [
            _some_bars(figure, a, b) for a, b in _cuts(len(figure.categories), MAX_BARS // max(1, len(figure.series)))
        ]
    return [figure]


def _some_bars(figure: Bars, start: int, end: int) -> Bars:
    return replace(
        figure,
        categories=figure.categories[start:end],
        series={name: values[start:end] for name, values in figure.series.items()},
        spread={name: values[start:end] for name, values in figure.spread.items()},
    )


def _cuts(length: int, most: int) -> list[tuple[int, int]]:
    n_parts = max(1, -(-length // max(1, most)))
    edges = [round(part * length / n_parts) for part in range(n_parts + 1)]
    return list(pairwise(edges))
