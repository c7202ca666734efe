"""Figures and tables of a fit as plain values, which reports draw and run folders store.

A method fills these; it never draws. Values that rest on few patients are left out by the method, not by the report.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.core.printable import harmless

Numbers = Sequence[float]
Section = Literal["data", "fit", "model", "comparison"]


@dataclass(frozen=True)
class Figure:
    """One figure or table.

    Parameters
    ----------
    title : str
        Heading above the figure.
    caption : str
        What is shown and how to read it, in one or two sentences.
    section : {"data", "fit", "model", "comparison"}
        Where in a report it stands.
    """

    title: str
    caption: str
    section: Section

    def to_dict(self) -> dict[str, Any]:
        """Return the figure as plain values with its kind; no text moves a cursor or changes the direction of text."""
        return {"kind": type(self).__name__, **_harmless(asdict(self))}


@dataclass(frozen=True)
class Table(Figure):
    """Rows and columns; a cell is a text, a number, or None where there is nothing to show."""

    columns: Sequence[str]
    rows: Sequence[Sequence[str | float | None]]


@dataclass(frozen=True)
class Lines(Figure):
    """Curves over a shared axis; ``marks`` are x positions worth a vertical line, by label."""

    x_label: str
    y_label: str
    x: Numbers
    series: Mapping[str, Numbers]
    marks: Mapping[str, float]


@dataclass(frozen=True)
class Band:
    """One curve and its limits over an axis of its own; None where there is nothing to show."""

    name: str
    x: Numbers
    y: Numbers
    lower: Numbers
    upper: Numbers


@dataclass(frozen=True)
class Curves(Figure):
    """Curves with bands around them; below, numbers by curve at chosen positions, None for those of too few patients.

    ``steps`` draws each value up to the next position; otherwise points are joined by straight lines. The axis runs to
    ``end``, or to the last point without one.
    """

    x_label: str
    y_label: str
    bands: Sequence[Band]
    steps: bool
    positions: Numbers
    at_risk: Mapping[str, Sequence[float | None]]
    end: float | None = None


@dataclass(frozen=True)
class Cloud:
    """Points of one centre and one group."""

    centre: str
    group: str
    x: Numbers
    y: Numbers


@dataclass(frozen=True)
class Points(Figure):
    """Clouds of points, drawn in one colour a group and one marker a centre; what these are is told by their labels."""

    x_label: str
    y_label: str
    clouds: Sequence[Cloud]
    group_label: str = "group"
    centre_label: str = "site"


@dataclass(frozen=True)
class HeatMap(Figure):
    """A matrix with named rows and columns; values within ``low`` to ``high``; None where there is nothing to show."""

    rows: Sequence[str]
    columns: Sequence[str]
    values: Sequence[Sequence[float | None]]
    unit: str
    low: float
    high: float


@dataclass(frozen=True)
class Bars(Figure):
    """Grouped bars, one group a category; ``spread`` holds half-lengths of error bars by series, or nothing."""

    y_label: str
    categories: Sequence[str]
    series: Mapping[str, Numbers]
    spread: Mapping[str, Numbers]

    @classmethod
    def of_importances(
        cls,
        names: Sequence[str],
        shares: NDArray[np.float64],
        caption: str,
        label: str,
        *,
        n_shown: int = 15,
        axis: str = "",
    ) -> Bars:
        """Return a plot of the largest importances of columns; more than 15 names do not fit on a page."""
        order = np.argsort(-shares, kind="stable")[:n_shown].tolist()
        series = {label: [float(shares[place]) for place in order]}
        return cls(
            "Importance of the columns", caption, "model", axis or label, [names[place] for place in order], series, {}
        )


@dataclass(frozen=True)
class Forest(Figure):
    """Estimates with intervals, a row each; the last ``n_pooled`` rows combine the others, and are drawn differently.

    None stands for an estimate that a row has not. The axis is logarithmic where all numbers are above 0 and
    ``reference`` is; there a line is drawn.
    """

    x_label: str
    rows: Sequence[str]
    estimates: Sequence[float | None]
    lower: Sequence[float | None]
    upper: Sequence[float | None]
    n_pooled: int
    reference: float


@dataclass(frozen=True)
class EffectCurve(Figure):
    """Effect of a number with a pointwise band; lines are drawn at the reference value and at no effect.

    The axis of effects is logarithmic where no effect is a ratio of 1.
    """

    x_label: str
    y_label: str
    x: Numbers
    y: Numbers
    lower: Numbers
    upper: Numbers
    reference: float
    no_effect: float


@dataclass(frozen=True)
class Panel:
    """One feature: a histogram of what was observed and the density that was predicted."""

    title: str
    edges: Numbers
    heights: Numbers
    x: Numbers
    density: Numbers


@dataclass(frozen=True)
class Densities(Figure):
    """Small panels side by side; heights and densities integrate to one."""

    panels: Sequence[Panel]


def _harmless(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {harmless(name): _harmless(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_harmless(part) for part in value]
    return harmless(value) if isinstance(value, str) else value


_KINDS: dict[str, type[Figure]] = {
    kind.__name__: kind for kind in (Table, Lines, Points, HeatMap, Bars, Densities, Curves, Forest, EffectCurve)
}


def read_figure(plain: Mapping[str, Any]) -> Figure:
    """Return the figure that :meth:`Figure.to_dict` wrote.

    >>> shown = Table("Sizes", "Patients a site.", "data", ["site", "patients"], [["lyon", 40]])
    >>> read_figure(shown.to_dict()) == shown
    True
    """
    fields = {name: value for name, value in plain.items() if name != "kind"}
    if plain["kind"] == "Points":
        fields["clouds"] = [Cloud(**cloud) for cloud in fields["clouds"]]
    if plain["kind"] == "Curves":
        fields["bands"] = [Band(**band) for band in fields["bands"]]
    if plain["kind"] == "Densities":
        fields["panels"] = [Panel(**panel) for panel in fields["panels"]]
    return _KINDS[plain["kind"]](**fields)
