"""Drawing of a figure's plain values on matplotlib axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import ConfigurationError
from multicentre.estimator.figures import Bars, Curves, EffectCurve, Figure, Forest, HeatMap, Lines, Points

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Floats = NDArray[np.float64]
# Width of a figure, and heights of its frame and of a row, in inches.
WIDTH, FRAME, ROW, HEIGHT = 7.0, 1.0, 0.25, 3.6
# Okabe and Ito's colours in an order where neighbours differ in lightness too, for readers who see no colours and print
# in grey. Markers and strokes repeat the difference.
COLOURS = ("#0072B2", "#E69F00", "#000000", "#56B4E9", "#D55E00", "#009E73", "#CC79A7", "#7F7F7F")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "<", ">", "p", "h")
STROKES: tuple[Any, ...] = (
    "-",
    (0, (6, 2)),
    (0, (1.5, 1.5)),
    (0, (6, 2, 1.5, 2)),
    (0, (3, 1)),
    (0, (8, 2, 1, 2, 1, 2)),
)


def draw(figure: Figure, ax: Axes | None = None) -> Axes:
    """Draw a figure on axes.

    Parameters
    ----------
    figure : Figure
        Any kind but a table.
    ax : matplotlib Axes, optional
        Axes to draw on; those of a new figure by default.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    ConfigurationError
        The figure is a table.

    Examples
    --------
    >>> figure = Bars("Importance", "", "model", "share", ["age", "dose"], {"share": [0.7, 0.3]}, {})
    >>> draw(figure).get_xlabel()
    'share'
    """
    drawer = _DRAWERS.get(type(figure))
    if drawer is None:
        raise ConfigurationError(
            f"figure must be of a kind that can be drawn; got {type(figure).__name__}", where=figure.title
        )
    axes = new_axes(figure) if ax is None else ax
    axes.set_prop_cycle(color=COLOURS)
    drawer(figure, axes)
    axes.set_title(figure.title)
    return axes


def plot(figure: Figure, ax: Axes | None = None) -> Axes:
    """Draw a figure for a person: without axes on a figure of pyplot, which notebooks show.

    Parameters
    ----------
    figure : Figure
    ax : matplotlib Axes, optional
        Axes to draw on; those of a new figure by default.
    """
    if ax is None:
        import matplotlib.pyplot as plt

        ax = plt.figure(figsize=size_of(figure), layout="constrained").subplots()
    return draw(figure, ax)


def can_draw(figure: Figure) -> bool:
    """Return whether :func:`draw` accepts a figure."""
    return type(figure) in _DRAWERS


def new_axes(figure: Figure) -> Axes:
    """Return the axes of a new matplotlib figure."""
    from matplotlib.figure import Figure as Canvas

    return Canvas(figsize=size_of(figure), layout="constrained").subplots()


def size_of(figure: Figure) -> tuple[float, float]:
    """Return the width and height of a drawing in inches, as high as its rows require."""
    rows = _n_rows(figure)
    return WIDTH, _height(figure) if rows is None else FRAME + ROW * max(rows, 3)


def _n_rows(figure: Figure) -> int | None:
    if isinstance(figure, Bars):
        return len(figure.categories) * max(1, len(figure.series))
    return len(figure.rows) if isinstance(figure, Forest | HeatMap) else None


def _height(figure: Figure) -> float:
    return HEIGHT + 0.17 * (len(figure.at_risk) + 1) if isinstance(figure, Curves) else HEIGHT


def _numbers(values: Sequence[float | None]) -> Floats:
    return np.array(values, dtype=np.float64)


def forest_limits(figure: Forest) -> tuple[float, float]:
    """Return the ends of the axis of a forest plot, which one wide interval does not move.

    The axis covers all estimates and the reference, and intervals up to three times their median half-length beyond.
    On a logarithmic axis lengths are ratios.

    Examples
    --------
    >>> rows = Forest("", "", "model", "ratio", ["a", "b", "c"],
    ...               [1.0, 1.1, 1.0], [0.9, 1.0, 0.001], [1.1, 1.2, 900.0], 0, 1.0)
    >>> low, high = forest_limits(rows)
    >>> low > 0.5, high < 2
    (True, True)
    """
    values, lower, upper = (_numbers(each) for each in (figure.estimates, figure.lower, figure.upper))
    finite = np.concatenate([values, lower, upper])
    is_log = figure.reference > 0 and bool((finite[np.isfinite(finite)] > 0).all())
    if is_log:
        values, lower, upper = np.log(values), np.log(lower), np.log(upper)
    reference = np.log(figure.reference) if is_log else figure.reference
    halves = (upper - lower)[np.isfinite(upper - lower)] / 2.0
    reach = 3.0 * float(np.median(halves)) if len(halves) else 0.0
    points = np.append(values[np.isfinite(values)], reference)
    low = max(float(np.nanmin(np.append(lower, points.min()))), float(points.min()) - reach)
    high = min(float(np.nanmax(np.append(upper, points.max()))), float(points.max()) + reach)
    margin = 0.04 * (high - low) or 1.0
    return (float(np.exp(low - margin)), float(np.exp(high + margin))) if is_log else (low - margin, high + margin)


def mark_clipped(figure: Forest, axes: Axes) -> None:
    """Set the limits of a forest plot, and draw an arrow where an interval leaves the axis."""
    low, high = forest_limits(figure)
    for ends, edge, marker in ((figure.lower, low, "<"), (figure.upper, high, ">")):
        beyond = np.flatnonzero(_numbers(ends) < low if marker == "<" else _numbers(ends) > high)
        axes.plot(np.full(len(beyond), edge), beyond, marker, color="#222222", markersize=4, clip_on=False, zorder=4)
    axes.set_xlim(low, high)


def _draw_forest(figure: Forest, axes: Axes) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter

    values, lower, upper = (_numbers(each) for each in (figure.estimates, figure.lower, figure.upper))
    places = np.arange(len(values))
    n_single = len(values) - figure.n_pooled
    for rows, marker in ((places[:n_single], "s"), (places[n_single:], "D")):
        axes.hlines(rows, lower[rows], upper[rows], color="0.3", linewidth=1)
        axes.plot(values[rows], rows, marker, markersize=5)
    axes.axvline(figure.reference, color="0.5", linewidth=1, linestyle="--")
    finite = np.concatenate([values, lower, upper])
    if figure.reference > 0 and (finite[np.isfinite(finite)] > 0).all():
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.xaxis.set_major_formatter(ScalarFormatter())
        axes.xaxis.set_minor_formatter(NullFormatter())
    mark_clipped(figure, axes)
    _name_rows(axes, figure.rows)
    axes.set_xlabel(figure.x_label)


def _draw_effect(figure: EffectCurve, axes: Axes) -> None:
    (line,) = axes.plot(_numbers(figure.x), _numbers(figure.y))
    band = _numbers(figure.lower), _numbers(figure.upper)
    axes.fill_between(_numbers(figure.x), *band, alpha=0.16, linewidth=0, color=line.get_color())
    set_effect_axis(figure, axes)
    _name_axes(axes, figure.x_label, figure.y_label, 1)


def set_effect_axis(figure: EffectCurve, axes: Axes) -> None:
    """Draw the lines at the reference and at no effect; ratios get a logarithmic axis with round ticks."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axes.axhline(figure.no_effect, color="0.5", linewidth=1, linestyle="--")
    axes.axvline(figure.reference, color="0.5", linewidth=1, linestyle=":")
    if figure.no_effect > 0:
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())


def _draw_curves(figure: Curves, axes: Axes) -> None:
    style, between = ("steps-post", "post") if figure.steps else ("default", None)
    for place, band in enumerate(figure.bands):
        x = _numbers(band.x)
        (line,) = axes.plot(x, _numbers(band.y), linestyle=_stroke(place), drawstyle=style, label=band.name)
        limits: dict[str, Any] = {"step": between, "alpha": 0.16, "linewidth": 0, "color": line.get_color()}
        axes.fill_between(x, _numbers(band.lower), _numbers(band.upper), **limits)
    axes.set_ylim(0.0, 1.02)
    axes.set_xlim(0.0, figure.end)
    if figure.at_risk:
        _write_numbers(figure, axes)
    _name_axes(axes, figure.x_label, figure.y_label, len(figure.bands))


def _write_numbers(figure: Curves, axes: Axes) -> None:
    """Write the numbers at risk below the labels of the axis, a row per curve; "few" for those that are left out."""
    counts = {name: ["few" if n is None else f"{n:.0f}" for n in numbers] for name, numbers in figure.at_risk.items()}
    columns = zip(figure.positions, *counts.values(), strict=True)
    axes.set_xticks(figure.positions, ["\n".join([f"{position:g}", "", *cells]) for position, *cells in columns])
    place: dict[str, Any] = {"xycoords": "axes fraction", "textcoords": "offset points", "ha": "right", "va": "top"}
    # The labels of the axis stand 7 points below it: a tick of 3.5 and a gap of 3.5.
    # Numbers are centred at the axis; a digit is about 6.4 points wide.
    left = 6.0 + 3.2 * max((len(cells[0]) for cells in counts.values() if cells), default=1)
    axes.annotate("\n".join(["", "at risk", *counts]), (0.0, 0.0), (-left, -7.0), **place)


def _draw_lines(figure: Lines, axes: Axes) -> None:
    for place, (name, values) in enumerate(figure.series.items()):
        axes.plot(_numbers(figure.x), _numbers(values), linestyle=_stroke(place), label=name)
    for name, position in figure.marks.items():
        axes.axvline(position, color="0.4", linewidth=1, linestyle=":", label=f"{name} ({position:g})")
    _name_axes(axes, figure.x_label, figure.y_label, len(figure.series) + len(figure.marks))


def _draw_points(figure: Points, axes: Axes) -> None:
    centres = list(dict.fromkeys(cloud.centre for cloud in figure.clouds))
    groups = list(dict.fromkeys(cloud.group for cloud in figure.clouds))
    for cloud in figure.clouds:
        marker = MARKERS[centres.index(cloud.centre) % len(MARKERS)]
        number = (groups if len(groups) > 1 else centres).index(cloud.group if len(groups) > 1 else cloud.centre)
        colour = COLOURS[number % len(COLOURS)]
        name = ", ".join(part for part in (cloud.centre, cloud.group) if part)
        axes.plot(_numbers(cloud.x), _numbers(cloud.y), marker, color=colour, markersize=4, label=name)
    _name_axes(axes, figure.x_label, figure.y_label, len(figure.clouds))


def _draw_bars(figure: Bars, axes: Axes) -> None:
    count = max(1, len(figure.series))
    thickness = 0.8 / count
    for place, (name, values) in enumerate(figure.series.items()):
        y = np.arange(len(figure.categories)) + (place - (count - 1) / 2) * thickness
        spread = _numbers(figure.spread[name]) if name in figure.spread else None
        axes.barh(y, _numbers(values), thickness * 0.9, xerr=spread, label=name)
    _name_rows(axes, figure.categories)
    _name_axes(axes, figure.y_label, "", count)


def _draw_heat_map(figure: HeatMap, axes: Axes) -> None:
    values = np.array([_numbers(row) for row in figure.values]).reshape(len(figure.rows), len(figure.columns))
    colours = "RdBu_r" if figure.low < 0 < figure.high else "Blues"
    mesh = axes.pcolormesh(np.ma.masked_invalid(values), cmap=colours, vmin=figure.low, vmax=figure.high)
    axes.set_yticks(np.arange(len(figure.rows)) + 0.5, list(figure.rows))
    axes.set_xticks(np.arange(len(figure.columns)) + 0.5, list(figure.columns), rotation=90)
    axes.invert_yaxis()
    axes.figure.colorbar(mesh, ax=axes, label=figure.unit)


def _name_rows(axes: Axes, names: Sequence[str]) -> None:
    axes.set_yticks(np.arange(len(names)), list(names))
    axes.set_ylim(len(names) - 0.4, -0.6)


def _name_axes(axes: Axes, x_label: str, y_label: str, n_named: int) -> None:
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if n_named > 1:  # next to the axes, where no data are
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.01, 1.0), borderaxespad=0.0, frameon=False)


def _stroke(place: int) -> Any:
    return STROKES[place % len(STROKES)]


_DRAWERS: dict[type[Figure], Callable[[Any, Axes], None]] = {
    Forest: _draw_forest,
    Curves: _draw_curves,
    EffectCurve: _draw_effect,
    Lines: _draw_lines,
    Points: _draw_points,
    Bars: _draw_bars,
    HeatMap: _draw_heat_map,
}
