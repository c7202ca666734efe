"""Drawing functions, one per kind of figure of a method; each returns an SVG document.

Colour never carries a meaning alone: markers, line styles, hatches or printed values repeat it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.estimator.drawing import COLOURS, MARKERS, STROKES
from multicentre.estimator.figures import (
    Bars,
    Curves,
    Densities,
    EffectCurve,
    Figure,
    Forest,
    HeatMap,
    Lines,
    Panel,
    Points,
)
from multicentre.reports.curves import draw_curves, draw_effect, draw_forest
from multicentre.reports.svg import (
    HATCHES,
    WIDTH,
    blank_figure,
    label,
    legend_above,
    legend_below,
    plain_svg,
    room,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
# Up to 12 columns, a cell has room for a value with two decimals in 6 pt; with more columns only signs are drawn.
MAX_LABELLED_COLUMNS = 12
# In the width of a telephone, five columns leave room for values, next to names of rows.
MAX_NARROW_COLUMNS = 5
# Three rows of two panels fill the height of a telephone.
MAX_NARROW_PANELS = 6
# Odd, so that the diverging map has a neutral middle step, with ten shades on either side.
COLOUR_STEPS = 21
DARK = 0.46
"""Luminance below which the text of a cell is white."""


def draw(figure: Figure, width: float = WIDTH) -> str:
    """Return the SVG document of a figure.

    Parameters
    ----------
    figure : Figure
        Any kind but a table.
    width : float
        Width of the drawing in inches.
    """
    return _DRAWERS[type(figure)](figure, width)


def fits_narrow(figure: Figure) -> bool:
    """Return whether a figure is legible in the width of a telephone; large matrices and many panels are not."""
    if isinstance(figure, Densities):
        return len(figure.panels) <= MAX_NARROW_PANELS
    return not isinstance(figure, HeatMap) or len(figure.columns) <= MAX_NARROW_COLUMNS


def draw_lines(figure: Lines, width: float = WIDTH) -> str:
    """Draw curves with distinct colours, line styles and markers."""
    from matplotlib.ticker import MaxNLocator

    x = _numbers(figure.x)
    with blank_figure(2.6, width) as drawing:
        axes = drawing.subplots()
        handles: list[Any] = []
        looks = zip(figure.series.values(), cycle(COLOURS), cycle(STROKES), cycle(MARKERS), strict=False)
        for number, (values, colour, stroke, marker) in enumerate(looks):
            every = max(1, len(x) // 12)
            handles += axes.plot(
                x,
                _numbers(values),
                color=colour,
                linestyle=stroke,
                linewidth=1.3,
                marker=marker,
                markersize=4,
                markerfacecolor="white",
                markevery=(number * every // max(1, len(figure.series)), every),
            )
        for position, stroke in zip(figure.marks.values(), cycle(STROKES[::-1]), strict=False):
            handles.append(axes.axvline(position, color="#555555", linewidth=0.9, linestyle=stroke, zorder=1))
        if np.all(x == np.round(x)):
            axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        _name_axes(axes, figure.x_label, figure.y_label, width)
        names = [*figure.series, *(f"{name} ({position:g})" for name, position in figure.marks.items())]
        if len(names) > 1:
            legend_below(drawing, handles, names)
        return plain_svg(drawing)


def draw_points(figure: Points, width: float = WIDTH) -> str:
    """Draw clouds: one colour per group, filled and hollow in turn, and one marker per centre."""
    groups = list(dict.fromkeys(cloud.group for cloud in figure.clouds))
    centres = list(dict.fromkeys(cloud.centre for cloud in figure.clouds))
    coloured = groups if len(groups) > 1 else centres
    with blank_figure(2.9, width) as drawing:
        axes = drawing.subplots()
        for cloud in figure.clouds:
            name = cloud.group if len(groups) > 1 else cloud.centre
            look = _point_look(coloured.index(name), centres.index(cloud.centre), hollow_in_turn=len(groups) > 1)
            axes.plot(_numbers(cloud.x), _numbers(cloud.y), **look)
        _name_axes(axes, figure.x_label, figure.y_label, width)
        if len(groups) > 1:
            handles = [_sample(axes, _point_look(i, 0, hollow_in_turn=True)) for i in range(len(groups))]
            names = [group or f"no {figure.group_label}" for group in groups]
            legend_above(drawing, handles, names, title=figure.group_label.capitalize())
        looks = [_point_look(i if len(groups) <= 1 else 2, i, hollow_in_turn=False) for i in range(len(centres))]
        if len(centres) > 1:
            handles = [_sample(axes, look) for look in looks]
            names = [centre or f"no {figure.centre_label}" for centre in centres]
            legend_below(drawing, handles, names, title=figure.centre_label.capitalize())
        return plain_svg(drawing)


def draw_heat_map(figure: HeatMap, width: float = WIDTH) -> str:
    """Draw a matrix; values or signs are printed in the cells where there is room."""
    values = np.array([_numbers(row) for row in figure.values]).reshape(len(figure.rows), len(figure.columns))
    longest = max((len(label(name, 18)) for name in figure.columns), default=0)
    upright = longest * len(figure.columns) > room(70, width)
    height = 0.5 + 0.145 * len(figure.rows) + (0.07 * longest if upright else 0.1)
    with blank_figure(max(1.6, height), width) as drawing:
        axes = drawing.subplots()
        axes.grid(visible=False)
        axes.set_facecolor("#EDEDED")
        colours = _colour_map(figure.low, figure.high)
        mesh = axes.pcolormesh(
            np.ma.masked_invalid(values),
            cmap=colours,
            vmin=figure.low,
            vmax=figure.high,
            edgecolors="white",
            linewidth=0.4,
        )
        _hatch_unknown(axes, values)
        _write_cells(axes, values, mesh)
        _name_cells(axes, figure, upright=upright, longest_row=room(30, width))
        bar = drawing.colorbar(mesh, ax=axes, fraction=0.04, pad=0.015, aspect=30, label=label(figure.unit, 60))
        bar.outline.set_visible(False)
        return plain_svg(drawing)


def draw_bars(figure: Bars, width: float = WIDTH) -> str:
    """Draw horizontal grouped bars with distinct colours and hatches; horizontal bars leave room for long names."""
    from matplotlib.patches import Patch

    count = max(1, len(figure.series))
    thickness = 0.8 / count
    with blank_figure(0.55 + len(figure.categories) * (0.12 + 0.14 * count), width) as drawing:
        axes = drawing.subplots()
        axes.grid(visible=False, axis="y")
        looks: list[dict[str, Any]] = [
            {"facecolor": colour, "hatch": hatch, "edgecolor": "#222222", "linewidth": 0.6}
            for _, colour, hatch in zip(figure.series, cycle(_LIGHT), cycle(HATCHES), strict=False)
        ]
        for number, (name, values) in enumerate(figure.series.items()):
            y = np.arange(len(figure.categories)) + (number - (count - 1) / 2) * thickness
            spread = _numbers(figure.spread[name]) if name in figure.spread else None
            whiskers: dict[str, Any] = {"elinewidth": 0.9, "capsize": 2, "ecolor": "#222222"}
            axes.barh(y, _numbers(values), thickness * 0.92, xerr=spread, error_kw=whiskers, **looks[number])
        axes.set_yticks(range(len(figure.categories)), [label(name, room(36, width)) for name in figure.categories])
        axes.tick_params(axis="y", length=0)
        axes.set_ylim(len(figure.categories) - 0.45, -0.55)
        axes.axvline(0, color="#444444", linewidth=0.6)
        _name_axes(axes, figure.y_label, "", width)
        if len(figure.series) > 1:
            legend_below(drawing, [Patch(**look) for look in looks], list(figure.series))
        return plain_svg(drawing)


def draw_densities(figure: Densities, width: float = WIDTH) -> str:
    """Draw small panels: observed histogram in grey, predicted density as a line."""
    count = len(figure.panels)
    columns = min(count, 2 if width < WIDTH else 3 if count <= 6 else 5)
    rows = -(-count // columns)
    with blank_figure(0.1 + (1.5 if columns <= 3 else 1.15) * rows, width) as drawing:
        grid = drawing.subplots(rows, columns, squeeze=False).ravel()
        handles: list[Any] = []
        for axes, panel in zip(grid, figure.panels, strict=False):
            handles = _draw_panel(axes, panel, columns)
        for axes in grid[count:]:
            axes.set_axis_off()
        legend_below(drawing, handles, ["observed", "predicted"])
        return plain_svg(drawing)


def _draw_panel(axes: Axes, panel: Panel, columns: int) -> list[Any]:
    from matplotlib.ticker import MaxNLocator

    heights = np.nan_to_num(_numbers(panel.heights))
    observed = axes.stairs(heights, _numbers(panel.edges), fill=True, facecolor="#CFCFCF", edgecolor="#9A9A9A")
    predicted = axes.plot(_numbers(panel.x), _numbers(panel.density), color=COLOURS[0], linewidth=1.3)
    axes.set_title(label(panel.title, 32 if columns <= 3 else 18))
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.xaxis.set_major_locator(MaxNLocator(4 if columns <= 3 else 3))
    axes.grid(visible=False)
    return [observed, *predicted]


_LUMINANCE = np.array([0.2126, 0.7152, 0.0722])
_LIGHT = ("#4C9CCB", "#F3CF80", "#DDDDDD", "#A6D7F2", "#E89A66", "#80CEB9")


def _point_look(colour: int, centre: int, *, hollow_in_turn: bool) -> dict[str, Any]:
    shade = COLOURS[colour % len(COLOURS)]
    hollow = hollow_in_turn and colour % 2 == 1
    return {
        "linestyle": "none",
        "marker": MARKERS[centre % len(MARKERS)],
        "markersize": 4.6,
        "markerfacecolor": "none" if hollow else shade,
        "markeredgecolor": shade if hollow else "white",
        "markeredgewidth": 0.9 if hollow else 0.4,
    }


def _sample(axes: Axes, look: Mapping[str, Any]) -> Any:
    return axes.plot([], [], **look)[0]


def _colour_map(low: float, high: float) -> Any:
    from matplotlib import colormaps

    name = "RdBu_r" if low < 0 < high else "Blues" if high > 0 else "Blues_r"
    return colormaps[name].resampled(COLOUR_STEPS)


def _hatch_unknown(axes: Axes, values: Floats) -> None:
    from matplotlib.collections import PolyCollection

    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]])
    cells = [corners + place for place in np.argwhere(~np.isfinite(values))[:, ::-1]]
    axes.add_collection(PolyCollection(cells, facecolor="none", edgecolor="#9A9A9A", hatch="/////", linewidth=0))


def _write_cells(axes: Axes, values: Floats, mesh: Any) -> None:
    cells = np.argwhere(np.isfinite(values))
    shades = mesh.to_rgba(values[np.isfinite(values)])[:, :3] @ _LUMINANCE
    if values.shape[1] <= MAX_LABELLED_COLUMNS:
        decimals = 0 if np.all(values[np.isfinite(values)] % 1 == 0) else 2
        for (row, column), shade in zip(cells, shades, strict=True):
            text = f"{values[row, column]:z.{decimals}f}".replace("-", "−")
            ink = _ink(shade < DARK)
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=6, color=ink, in_layout=False)
        return
    for dark in (True, False):
        signed = cells[(values[tuple(cells.T)] < 0) & ((shades < DARK) == dark)] + 0.5
        axes.plot(signed[:, 1], signed[:, 0], "_", markersize=3, color=_ink(dark), markeredgewidth=0.7)


def _ink(on_dark: bool) -> str:
    return "white" if on_dark else "black"


def _name_cells(axes: Axes, figure: HeatMap, *, upright: bool, longest_row: int) -> None:
    longest = 18 if upright else 30
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.set_yticks(np.arange(len(figure.rows)) + 0.5, [label(name, longest_row) for name in figure.rows])
    axes.set_xticks(
        np.arange(len(figure.columns)) + 0.5,
        [label(name, longest) for name in figure.columns],
        rotation=90 if upright else 0,
    )
    axes.tick_params(length=0, labelsize=7)
    axes.invert_yaxis()


def _name_axes(axes: Axes, x_label: str, y_label: str, width: float) -> None:
    axes.set_xlabel(label(x_label, room(90, width)))
    axes.set_ylabel(label(y_label, 45))


def _numbers(values: Sequence[float | None]) -> Floats:
    return np.array(values, dtype=np.float64)


_DRAWERS: dict[type[Figure], Callable[[Any, float], str]] = {
    Lines: draw_lines,
    Curves: draw_curves,
    EffectCurve: draw_effect,
    Points: draw_points,
    HeatMap: draw_heat_map,
    Bars: draw_bars,
    Forest: draw_forest,
    Densities: draw_densities,
}
