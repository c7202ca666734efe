"""Drawing of curves with bands, and of the numbers at risk below them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.core.published_counts import MIN_PUBLISHED
from multicentre.estimator.drawing import COLOURS, STROKES, forest_limits, mark_clipped, set_effect_axis
from multicentre.estimator.figures import Band, Curves, EffectCurve, Forest
from multicentre.reports.formats import format_column
from multicentre.reports.svg import WIDTH, blank_figure, label, legend_above, plain_svg, room

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOO_FEW = f"<{MIN_PUBLISHED}"
REFERENCE = " (reference)"
# Letters of a row's name that fit left of a forest plot.
WIDE_NAME, NARROW_NAME = 34, 26
"""End of the name of a row that stands for a reference level."""

# Distances in points: from the axis to the first row of numbers, between rows, and from numbers to the axis label.
FIRST_LINE, LINE, AXIS_LABEL = 17.0, 10.0, 2.0
# Width of a digit in points, in 7.5 pt.
DIGIT = 4.8
# Names stand left of the axis in 7.5 pt; at half an em per letter, 16 letters take 60 pt of the width.
LONGEST_NAME = 16


def draw_curves(figure: Curves, width: float = WIDTH) -> str:
    """Draw curves with bands, in distinct colours and line styles, with numbers at risk below."""
    n_rows = len(figure.at_risk)
    with blank_figure(2.6 + 0.17 * n_rows + (0.2 if n_rows else 0.0), width) as drawing:
        axes = drawing.subplots()
        handles = [
            _draw_band(axes, band, colour, stroke, steps=figure.steps)
            for band, colour, stroke in zip(figure.bands, cycle(COLOURS), cycle(STROKES), strict=False)
        ]
        axes.set_ylim(0.0, 1.02)
        axes.set_xlim(0.0, figure.end)
        axes.set_ylabel(label(figure.y_label, 45))
        axes.set_xlabel(label(figure.x_label, room(90, width)))
        column, names = split_prefix([band.name for band in figure.bands])
        if n_rows:
            _write_numbers(axes, figure, room(LONGEST_NAME, width))
        if len(handles) > 1:
            legend_above(drawing, handles, names, title=column)
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


def draw_effect(figure: EffectCurve, width: float = WIDTH) -> str:
    """Draw the effect of a number with its band."""
    with blank_figure(2.6, width) as drawing:
        axes = drawing.subplots()
        band = Band(figure.title, figure.x, figure.y, figure.lower, figure.upper)
        _draw_band(axes, band, COLOURS[0], STROKES[0], steps=False)
        set_effect_axis(figure, axes)
        axes.set_ylabel(label(figure.y_label, 45))
        axes.set_xlabel(label(figure.x_label, room(90, width)))
        return plain_svg(drawing)


def split_prefix(names: Sequence[str]) -> tuple[str, list[str]]:
    """Return the column that all names begin with, and the names without it.

    >>> split_prefix(["stage I", "stage II"]), split_prefix(["Tumour grade: 1", "Tumour grade: 2"])
    (('stage', ['I', 'II']), ('Tumour grade', ['1', '2']))
    """
    for sign in (": ", " = ", "=", " "):
        columns = {name.partition(sign)[0] for name in names if name.partition(sign)[2]}
        if len(names) > 1 and len(columns) == 1 and all(name.partition(sign)[2] for name in names):
            return columns.pop(), [name.partition(sign)[2] for name in names]
    return "", list(names)


def _write_numbers(axes: Axes, figure: Curves, longest: int) -> None:
    """Write numbers under the ticks of the axis, a row for each curve."""
    positions = _numbers(figure.positions)
    axes.set_xticks(positions, [f"{x:g}" for x in positions])
    names = [label(name, longest) for name in split_prefix(list(figure.at_risk))[1]]
    # Names end left of the first numbers, which are centred at the axis.
    first = max((len(_number(numbers[0])) for numbers in figure.at_risk.values() if numbers), default=1)
    left = 5.0 + DIGIT * first / 2
    _write_below(axes, 0, "at risk", None, left)
    for row, (name, numbers) in enumerate(zip(names, figure.at_risk.values(), strict=True), start=1):
        _write_below(axes, row, name, None, left)
        for x, number in zip(positions, numbers, strict=True):
            _write_below(axes, row, _number(number), float(x))
    axes.xaxis.labelpad = AXIS_LABEL + LINE * (len(names) + 1)


def _write_below(axes: Axes, row: int, text: str, x: float | None, left: float = 0.0) -> None:
    """Write a text in a row below the axis: at a position, or points left of the axis."""
    axes.annotate(
        text,
        xy=(0.0 if x is None else x, 0.0),
        xycoords=axes.transAxes if x is None else axes.get_xaxis_transform(),
        xytext=(-left, -FIRST_LINE - LINE * row),
        textcoords="offset points",
        ha="right" if x is None else "center",
        va="top",
        fontsize=7.5,
        annotation_clip=False,
    )


def _number(value: float | None) -> str:
    return TOO_FEW if value is None else f"{value:,.0f}"


def _numbers(values: Sequence[float | None]) -> NDArray[np.float64]:
    return np.array(values, dtype=np.float64)


Floats = NDArray[np.float64]

# Side of a mark in pixels: visible at the lower end, and within its row of the plot at the upper end.
SMALLEST_MARK, MAX_MARK = 3.0, 8.0
# Side where rows are of different columns, whose precisions cannot be compared.
MARK = 4.5
# Ratio of the ends of a logarithmic axis below which ticks at 1, 2 and 5 would be two at most.
SHORT_AXIS = 6.0


def draw_forest(figure: Forest, width: float = WIDTH) -> str:
    """Draw one row per estimate: a square, of sites with an area by precision; a diamond for a pooled estimate.

    The row of a reference level has a hollow square. In a narrow drawing the numbers are below the names.
    """
    values, lower, upper = (_numbers(each) for each in (figure.estimates, figure.lower, figure.upper))
    n_rows, n_sites, is_narrow = len(values), len(values) - figure.n_pooled, width < WIDTH
    with blank_figure(0.75 + (0.34 if is_narrow else 0.19) * n_rows, width) as drawing:
        axes = drawing.subplots()
        axes.grid(visible=False, axis="y")
        logarithmic = _set_axis(axes, figure, np.concatenate([values, lower, upper]))
        sizes = _mark_sizes(lower, upper, logarithmic=logarithmic) if figure.n_pooled else np.full(n_rows, MARK)
        axes.axvline(figure.reference, color="#555555", linewidth=0.9, linestyle=(0, (3, 2)), zorder=1)
        for place in np.flatnonzero(np.isfinite(values)).tolist():
            ends = lower[place], upper[place]
            if place >= n_sites:
                x = [ends[0], values[place], ends[1], values[place]]
                axes.fill(x, [place, place - 0.28, place, place + 0.28], color=COLOURS[4], zorder=3)
            elif figure.rows[place].endswith(REFERENCE):
                axes.plot(
                    values[place], place, "s", color="#222222", markerfacecolor="white", markersize=MARK, zorder=3
                )
            else:
                axes.plot(ends, [place, place], color="#222222", linewidth=1.0, zorder=2)
                axes.plot(values[place], place, "s", color=COLOURS[0], markersize=sizes[place], zorder=3)
        if 0 < n_sites < n_rows:
            axes.axhline(n_sites - 0.5, color="#9A9A9A", linewidth=0.6)
        for place in np.flatnonzero(np.isnan(values) & np.isfinite(lower) & np.isfinite(upper)).tolist():
            axes.plot([lower[place], upper[place]], [place, place], color=COLOURS[4], linewidth=2.2, zorder=3)
        mark_clipped(figure, axes)
        axes.set_ylim(max(n_rows, 1) - 0.4, -0.6)
        axes.set_xlabel(label(figure.x_label, room(90, width)))
        _name_rows(axes, [label(name, WIDE_NAME) for name in figure.rows], figure, below=is_narrow)
        return plain_svg(drawing)


def _name_rows(axes: Axes, names: Sequence[str], figure: Forest, *, below: bool) -> None:
    """Write the names of the rows left of the axis, and their numbers below the names or right of the axis."""
    texts, places = _estimate_texts(figure), range(len(names))
    if below:  # a narrow drawing has no room for the mark of a reference level next to its name
        marks = [REFERENCE if name.endswith(REFERENCE) else "" for name in figure.rows]
        names = [label(name.removesuffix(REFERENCE), NARROW_NAME) for name in figure.rows]
        names = [f"{name}\n{text}{mark}" for name, text, mark in zip(names, texts, marks, strict=True)]
    axes.set_yticks(places, names)
    axes.tick_params(axis="y", length=0)
    if below:
        return
    right_axis = axes.secondary_yaxis("right")
    right_axis.set_yticks(places, texts)
    right_axis.tick_params(axis="y", length=0)
    right_axis.spines["right"].set_visible(False)


def _set_axis(axes: Axes, figure: Forest, numbers: Floats) -> bool:
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator

    finite = np.append(numbers[np.isfinite(numbers)], figure.reference)
    logarithmic = bool((finite > 0).all())
    if logarithmic:
        axes.set_xscale("log")
        low, high = forest_limits(figure)
        subs = (1.0, 2.0, 5.0) if high / low < 1e3 else (1.0,)
        is_short = high / low < SHORT_AXIS
        axes.xaxis.set_major_locator(MaxNLocator(5, steps=[1, 2, 2.5, 5, 10]) if is_short else LogLocator(subs=subs))
        axes.xaxis.set_minor_locator(NullLocator())
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.xaxis.set_minor_formatter(NullFormatter())
    return logarithmic


def _mark_sizes(lower: Floats, upper: Floats, *, logarithmic: bool) -> Floats:
    """Return the side of every square of a site: as 1 over the interval's length, so that areas are as weights."""
    if logarithmic:
        lower, upper = np.log(lower), np.log(upper)
    widths = upper - lower
    positive = np.isfinite(widths) & (widths > 0)
    sizes = np.full(len(widths), SMALLEST_MARK)
    if positive.any():
        sizes[positive] = np.clip(MAX_MARK * widths[positive].min() / widths[positive], SMALLEST_MARK, MAX_MARK)
    return sizes


def _estimate_texts(figure: Forest) -> list[str]:
    """Return the numbers of every row, all with the same number of decimals."""
    n_rows = len(figure.rows)
    numbers = format_column([*figure.estimates, *figure.lower, *figure.upper])
    texts = []
    for row, (value, low, high) in enumerate(zip(figure.estimates, figure.lower, figure.upper, strict=True)):
        is_known = np.isfinite(_numbers([value, low, high]))
        if is_known.all():
            texts.append(f"{numbers[row]} ({numbers[n_rows + row]} to {numbers[2 * n_rows + row]})")
        else:
            interval = (
                f"{numbers[n_rows + row]} to {numbers[2 * n_rows + row]}" if is_known[1:].all() else "not estimated"
            )
            texts.append(numbers[row] if is_known[0] else interval)
    return texts
