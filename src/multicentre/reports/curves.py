"""Drawing of curves with bands, and of the numbers at risk below them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.estimator.figures import Band, Curves, Forest
from multicentre.reports.formats import format_number
from multicentre.reports.svg import COLOURS, STROKES, blank_figure, label, legend_above, plain_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOO_FEW = "few"

# Names stand left of the axis in 7.5 pt; at half an em per letter, 16 letters take 60 pt of the width.
LONGEST_NAME = 16


def draw_curves(figure: Curves) -> str:
    """Draw curves with bands, in distinct colours and line styles, with numbers at risk below."""
    n_rows = len(figure.at_risk)
    with blank_figure(2.6 + 0.17 * n_rows + (0.2 if n_rows else 0.0)) as drawing:
        axes = drawing.subplots()
        handles = [
            _draw_band(axes, band, colour, stroke, steps=figure.steps)
            for band, colour, stroke in zip(figure.bands, cycle(COLOURS), cycle(STROKES), strict=False)
        ]
        axes.set_ylim(0.0, 1.02)
        axes.set_xlim(left=0.0)
        axes.set_ylabel(label(figure.y_label, 45))
        axes.set_xlabel(label(figure.x_label, 90))
        if n_rows:
            _write_numbers(axes, figure)
        if len(handles) > 1:
            legend_above(drawing, handles, [band.name for band in figure.bands])
        return plain_svg(drawing)


def _draw_band(axes: Axes, band: Band, colour: str, stroke: Any, *, steps: bool) -> Any:
    x, lower, upper = _numbers(band.x), _numbers(band.lower), _numbers(band.upper)
    axes.fill_between(x, lower, upper, step="post" if steps else None, color=colour, alpha=0.16, linewidth=0)
    line = axes.plot(
        x,
        _numbers(band.y),
        color=colour,
        linestyle=stroke,
        linewidth=1.3,
        drawstyle="steps-post" if steps else "default",
    )
    return line[0]


def _write_numbers(axes: Axes, figure: Curves) -> None:
    """Write numbers under the ticks of the axis, a row for each curve, in lines of the ticks' own labels."""
    positions = _numbers(figure.positions)
    names = list(figure.at_risk)
    titles = ["at risk", *(label(name, LONGEST_NAME) for name in names)]
    columns = [["", *(_number(figure.at_risk[name][place]) for name in names)] for place in range(len(positions))]
    axes.set_xticks(positions, ["\n".join([f"{x:g}", *column]) for x, column in zip(positions, columns, strict=True)])
    axes.annotate(
        "\n".join(["", *titles]),
        xy=(0.0, 0.0),
        xycoords="axes fraction",
        xytext=(-12.0, -6.0),
        textcoords="offset points",
        ha="right",
        va="top",
        fontsize=7.5,
        linespacing=1.2,
    )


def _number(value: float | None) -> str:
    return TOO_FEW if value is None else f"{value:.0f}"


def _numbers(values: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


Floats = NDArray[np.float64]

# Side of a mark in pixels: visible at the lower end, and within its row of the plot at the upper end.
SMALLEST_MARK, LARGEST_MARK = 3.0, 8.0


def draw_forest(figure: Forest) -> str:
    """Draw one row per estimate: a square whose area grows with its precision, a diamond for a pooled estimate."""
    values, lower, upper = (_numbers_forest(each) for each in (figure.estimates, figure.lower, figure.upper))
    n_rows, n_sites = len(values), len(values) - figure.n_pooled
    with blank_figure(0.75 + 0.19 * n_rows) as drawing:
        axes = drawing.subplots()
        axes.grid(visible=False, axis="y")
        logarithmic = _set_axis(axes, figure, np.concatenate([values, lower, upper]))
        sizes = _mark_sizes(lower, upper, logarithmic=logarithmic)
        axes.axvline(figure.reference, color="#555555", linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)
        for place in np.flatnonzero(np.isfinite(values)):
            if place < n_sites:
                axes.plot([lower[place], upper[place]], [place, place], color="#222222", linewidth=1.0, zorder=2)
                axes.plot(values[place], place, "s", color=COLOURS[0], markersize=sizes[place], zorder=3)
            else:
                x = [lower[place], values[place], upper[place], values[place]]
                axes.fill(x, [place, place - 0.28, place, place + 0.28], color=COLOURS[4], zorder=3)
        if 0 < n_sites < n_rows:
            axes.axhline(n_sites - 0.5, color="#9A9A9A", linewidth=0.6)
        axes.set_yticks(range(n_rows), [label(name, 34) for name in figure.rows])
        axes.set_ylim(max(n_rows, 1) - 0.4, -0.6)
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel(label(figure.x_label, 90))
        right_axis = axes.secondary_yaxis("right")
        right_axis.set_yticks(range(n_rows), [_estimate_text(*row) for row in zip(values, lower, upper, strict=True)])
        right_axis.tick_params(axis="y", length=0)
        right_axis.spines["right"].set_visible(False)
        return plain_svg(drawing)


def _set_axis(axes: Axes, figure: Forest, numbers: Floats) -> bool:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

    finite = np.append(numbers[np.isfinite(numbers)], figure.reference)
    logarithmic = bool((finite > 0).all())
    if logarithmic:
        axes.set_xscale("log")
        low, high = finite.min() / 1.1, finite.max() * 1.1
        subs = (1.0, 2.0, 5.0) if high / low < 1e3 else (1.0,)
        axes.xaxis.set_major_locator(LogLocator(subs=subs))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
        axes.set_xlim(low, high)
    return logarithmic


def _mark_sizes(lower: Floats, upper: Floats, *, logarithmic: bool) -> Floats:
    """Return the side of every square: as 1 over the interval's length, so that areas are as weights."""
    if logarithmic:
        lower, upper = np.log(lower), np.log(upper)
    widths = upper - lower
    positive = np.isfinite(widths) & (widths > 0)
    sizes = np.full(len(widths), SMALLEST_MARK)
    if positive.any():
        sizes[positive] = np.clip(LARGEST_MARK * widths[positive].min() / widths[positive], SMALLEST_MARK, LARGEST_MARK)
    return sizes


def _estimate_text(value: float, low: float, high: float) -> str:
    if not np.isfinite([value, low, high]).all():
        return "not estimated"
    return f"{format_number(value)} ({format_number(low)} to {format_number(high)})"


def _numbers_forest(values: Sequence[float | None]) -> Floats:
    return np.array(values, dtype=np.float64)
