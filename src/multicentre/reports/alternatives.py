"""Text alternatives of figures, for readers who cannot see them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from multicentre.estimator.figures import Bars, Curves, Densities, Figure, Forest, HeatMap, Lines, Points
from multicentre.reports.formats import format_number

# A screen reader reads the text alternative aloud; it names eight entries and counts the rest.
MOST_NAMED = 8


def describe(shown: Figure) -> str:
    """Return the text alternative of a figure.

    >>> describe(Lines("Fit", "", "fit", "round", "log-likelihood", [1, 2], {"total": [-9.5, -3.5]}, {}))
    'Fit. Line chart of log-likelihood over round from 1 to 2. total: from −9.5 to −3.5.'
    """
    return f"{shown.title}. {_DESCRIBERS[type(shown)](shown)}"


def _lines(shown: Lines) -> str:
    curves = [f"{name}: from {_first(values)} to {_first(values[::-1])}" for name, values in shown.series.items()]
    marks = [f"{name} at {format_number(position)}" for name, position in shown.marks.items()]
    span = f"from {_first(shown.x)} to {_first(shown.x[::-1])}"
    return f"Line chart of {shown.y_label} over {shown.x_label} {span}. {_listed(curves + marks)}."


def _curves(shown: Curves) -> str:
    ranges = [f"{band.name}: from {_first(band.y)} to {_first(band.y[::-1])}" for band in shown.bands]
    return f"Curves of {shown.y_label} over {shown.x_label} with intervals. {_listed(ranges)}."


def _points(shown: Points) -> str:
    centres = [centre for centre in dict.fromkeys(cloud.centre for cloud in shown.clouds) if centre]
    groups = [group for group in dict.fromkeys(cloud.group for cloud in shown.clouds) if group]
    count = sum(len(cloud.x) for cloud in shown.clouds)
    parts = [
        f"{label}s {_listed(names)}"
        for label, names in ((shown.centre_label, centres), (shown.group_label, groups))
        if names
    ]
    of = f" of {' and '.join(parts)}" if parts else ""
    return f"Scatter plot of {shown.y_label} against {shown.x_label}: {count} points{of}."


def _heat_map(shown: HeatMap) -> str:
    finite = [value for row in shown.values for value in row if value is not None and math.isfinite(value)]
    span = f"values from {format_number(min(finite))} to {format_number(max(finite))}" if finite else "no values"
    sides = f"{len(shown.rows)} rows and {len(shown.columns)} columns"
    return f"Heat map of {shown.unit}, {sides}, {span}. Columns: {_listed(shown.columns)}."


def _bars(shown: Bars) -> str:
    series = [f"{name} from {_least(values)} to {_least(values, max)}" for name, values in shown.series.items()]
    return f"Bar chart of {shown.y_label} for {_listed(shown.categories)}. {_listed(series)}."


def _forest(shown: Forest) -> str:
    whole = zip(shown.rows, shown.estimates, shown.lower, shown.upper, strict=True)
    rows = [
        f"{name} {format_number(value)} ({format_number(low)} to {format_number(high)})"
        if value is not None and low is not None and high is not None
        else f"{name} unknown"
        for name, value, low, high in whole
    ]
    return f"Forest plot of {shown.x_label}, {len(rows)} rows. {_listed(rows)}."


def _densities(shown: Densities) -> str:
    titles = _listed([panel.title for panel in shown.panels])
    return f"{len(shown.panels)} panels, each an observed histogram under a predicted density: {titles}."


def _first(values: Sequence[float]) -> str:
    return next((format_number(value) for value in values if _known(value)), "nothing")


def _least(values: Sequence[float], choose: Callable[..., float] = min) -> str:
    finite = [value for value in values if _known(value)]
    return format_number(choose(finite)) if finite else "nothing"


def _known(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    rest = len(every) - MOST_NAMED
    return "; ".join(every[:MOST_NAMED]) + (f"; and {rest} more" if rest > 0 else "")


_DESCRIBERS: dict[type[Figure], Callable[[Any], str]] = {
    Lines: _lines,
    Curves: _curves,
    Points: _points,
    HeatMap: _heat_map,
    Bars: _bars,
    Forest: _forest,
    Densities: _densities,
}
