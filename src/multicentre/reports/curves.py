"""Drawing of curves with bands, and of the numbers at risk below them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.estimator.figures import Band, Curves
from multicentre.reports.svg import COLOURS, STROKES, blank_figure, label, legend_above, plain_svg

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOO_FEW = "few"
LONGEST_NAME = 16


def draw_curves(shown: Curves) -> str:
    """Draw curves, told apart by colour and line style, each with its band; numbers at risk stand below."""
    n_rows = len(shown.at_risk)
    with blank_figure(2.6 + 0.17 * n_rows + (0.2 if n_rows else 0.0)) as figure:
        axes = figure.subplots()
        handles = [
            _draw_band(axes, band, colour, stroke, steps=shown.steps)
            for band, colour, stroke in zip(shown.bands, cycle(COLOURS), cycle(STROKES), strict=False)
        ]
        axes.set_ylim(0.0, 1.02)
        axes.set_xlim(left=0.0)
        axes.set_ylabel(label(shown.y_label, 45))
        axes.set_xlabel(label(shown.x_label, 90))
        if n_rows:
            _write_numbers(axes, shown)
        if len(handles) > 1:
            legend_above(figure, handles, [band.name for band in shown.bands])
        return plain_svg(figure)


def _draw_band(axes: Axes, band: Band, colour: str, stroke: Any, *, steps: bool) -> Any:
    x, lower, upper = _numbers(band.x), _numbers(band.lower), _numbers(band.upper)
    axes.fill_between(x, lower, upper, step="post" if steps else None, color=colour, alpha=0.16, linewidth=0)
    drawn = axes.plot(
        x,
        _numbers(band.y),
        color=colour,
        linestyle=stroke,
        linewidth=1.3,
        drawstyle="steps-post" if steps else "default",
    )
    return drawn[0]


def _write_numbers(axes: Axes, shown: Curves) -> None:
    """Write numbers under the ticks of the axis, a row for each curve, in lines of the ticks' own labels."""
    positions = _numbers(shown.positions)
    names = list(shown.at_risk)
    titles = ["at risk", *(label(name, LONGEST_NAME) for name in names)]
    columns = [["", *(_number(shown.at_risk[name][place]) for name in names)] for place in range(len(positions))]
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
