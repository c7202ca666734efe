"""Text alternatives of figures, for readers who cannot see them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from multicentre.estimator.figures import Bars, Curves, Densities, EffectCurve, Figure, Forest, HeatMap, Lines, Points
from multicentre.reports.formats import format_number

# A screen reader reads the text alternative aloud; it names eight entries and counts the rest.
MAX_NAMED = 8


def describe(figure: Figure) -> str:
    """Return the text alternative of a figure.

    >>> describe(Lines("Fit", "", "fit", "round", "log-likelihood", [1, 2], {"total": [-9.5, -3.5]}, {}))
    'Fit. Line chart of log-likelihood over round from 1 to 2. total: from −9.5 to −3.5.'
    """
    return f"{figure.title}. {_DESCRIBERS[type(figure)](figure)}"


def _lines(figure: Lines) -> str:
    curves = [f"{name}: from {_first(values)} to {_first(values[::-1])}" for name, values in figure.series.items()]
    marks = [f"{name} at {format_number(position)}" for name, position in figure.marks.items()]
    span = f"from {_first(figure.x)} to {_first(figure.x[::-1])}"
    return f"Line chart of {figure.y_label} over {figure.x_label} {span}. {_join_names(curves + marks)}."


def _curves(figure: Curves) -> str:
    ranges = [f"{band.name}: from {_first(band.y)} to {_first(band.y[::-1])}" for band in figure.bands]
    return f"Curves of {figure.y_label} over {figure.x_label} with intervals. {_join_names(ranges)}."


def _effect(figure: EffectCurve) -> str:
    span = f"from {_first(figure.y)} at {_first(figure.x)} to {_first(figure.y[::-1])} at {_first(figure.x[::-1])}"
    return f"Curve of {figure.y_label} over {figure.x_label} with a band, {span}."


def _points(figure: Points) -> str:
    centres = [centre for centre in dict.fromkeys(cloud.centre for cloud in figure.clouds) if centre]
    groups = [group for group in dict.fromkeys(cloud.group for cloud in figure.clouds) if group]
    count = sum(len(cloud.x) for cloud in figure.clouds)
    parts = [
        f"{label}s {_join_names(names)}"
        for label, names in ((figure.centre_label, centres), (figure.group_label, groups))
        if names
    ]
    of = f" of {' and '.join(parts)}" if parts else ""
    return f"Scatter plot of {figure.y_label} against {figure.x_label}: {count} points{of}."


def _heat_map(figure: HeatMap) -> str:
    finite = [value for row in figure.values for value in row if value is not None and math.isfinite(value)]
    span = f"values from {format_number(min(finite))} to {format_number(max(finite))}" if finite else "no values"
    sides = f"{len(figure.rows)} rows and {len(figure.columns)} columns"
    return f"Heat map of {figure.unit}, {sides}, {span}. Columns: {_join_names(figure.columns)}."


def _bars(figure: Bars) -> str:
    series = [f"{name} from {_least(values)} to {_least(values, max)}" for name, values in figure.series.items()]
    return f"Bar chart of {figure.y_label} for {_join_names(figure.categories)}. {_join_names(series)}."


def _forest(figure: Forest) -> str:
    whole = zip(figure.rows, figure.estimates, figure.lower, figure.upper, strict=True)
    rows = [f"{name} {_estimate(*numbers)}" for name, *numbers in whole]
    return f"Forest plot of {figure.x_label}, {len(rows)} rows. {_join_names(rows)}."


def _estimate(value: float | None, low: float | None, high: float | None) -> str:
    if not _is_finite(value):
        return "unknown"
    limits = f" ({format_number(low)} to {format_number(high)})" if _is_finite(low) and _is_finite(high) else ""
    return f"{format_number(value)}{limits}"


def _densities(figure: Densities) -> str:
    titles = _join_names([panel.title for panel in figure.panels])
    return f"{len(figure.panels)} panels, each an observed histogram under a predicted density: {titles}."


def _first(values: Sequence[float]) -> str:
    return next((format_number(value) for value in values if _is_finite(value)), "nothing")


def _least(values: Sequence[float], choose: Callable[..., float] = min) -> str:
    finite = [value for value in values if _is_finite(value)]
    return format_number(choose(finite)) if finite else "nothing"


def _is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


def _join_names(names: Iterable[str]) -> str:
    every = list(names)
    rest = len(every) - MAX_NAMED
    return "; ".join(every[:MAX_NAMED]) + (f"; and {rest} more" if rest > 0 else "")


_DESCRIBERS: dict[type[Figure], Callable[[Any], str]] = {
    Lines: _lines,
    Curves: _curves,
    EffectCurve: _effect,
    Points: _points,
    HeatMap: _heat_map,
    Bars: _bars,
    Forest: _forest,
    Densities: _densities,
}
