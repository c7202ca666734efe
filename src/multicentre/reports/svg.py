"""Blank figures in the report's style, and SVG that can be embedded next to other figures in one page."""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Literal
from xml.etree import ElementTree

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.figure import Figure

WIDTH = 6.85
"""Width of a figure in inches: that of an A4 page between its margins."""

NARROW = 3.75
"""Width of a figure on a telephone in inches: 360 of the 400 pixels, so that 7.5 pt remain 10 pixels."""

FONT = "system-ui, 'Segoe UI', 'Helvetica Neue', Arial, 'Liberation Sans', sans-serif"

HATCHES = ("", "/////", "xxxxx", "-----", "\\\\\\\\\\", "|||||")

_STYLE = {
    "svg.fonttype": "none",
    "svg.hashsalt": "multicentre",
    "text.parse_math": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.edgecolor": "#444444",
    "axes.formatter.useoffset": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.5,
    "xtick.color": "#444444",
    "ytick.color": "#444444",
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "hatch.linewidth": 0.5,
    "legend.frameon": False,
    "legend.fontsize": 7.5,
    "legend.title_fontsize": 7.5,
    "legend.handlelength": 2.6,
}
Place = Literal["outside lower left", "outside upper left"]
_SVG = "http://www.w3.org/2000/svg"
_XLINK = "{http://www.w3.org/1999/xlink}href"
_REFERENCE = re.compile(r"(?:href=\"#|url\(#)([^\")]+)")
_LONG_NUMBER = re.compile(r"(\.\d\d)\d+")


@contextmanager
def blank_figure(height: float, width: float = WIDTH) -> Iterator[Figure]:
    """Yield a figure of a width and a height in inches, drawn in the report's style.

    The user's matplotlib settings are neither used nor changed.
    """
    from matplotlib import style
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    with style.context(["default", _STYLE]), warnings.catch_warnings():
        # Text stays text: the reader's browser has the letters that matplotlib's own font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasSVG(figure)
        yield figure


def plain_svg(figure: Figure) -> str:
    """Return the SVG document of a figure; the same figure gives the same bytes."""
    page = io.StringIO()
    figure.savefig(page, format="svg", metadata={"Date": None, "Creator": None})
    return page.getvalue()


def inline_svg(document: str, name: str, alternative: str) -> str:
    """Return an SVG document as an element of an HTML page.

    Parameters
    ----------
    document : str
        Result of :func:`plain_svg`.
    name : str
        Prefix of every identifier, so that the identifiers of two figures differ.
    alternative : str
        Text alternative, for readers who cannot see the figure.
    """
    ElementTree.register_namespace("", _SVG)
    root = ElementTree.fromstring(document)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag in (f"{{{_SVG}}}metadata", f"{{{_SVG}}}style"):
                parent.remove(child)
    identifiers = set(_REFERENCE.findall(document))
    for element in root.iter():
        _lighten(element)
        _rename(element, name, identifiers)
    width, height = root.get("viewBox", "").split()[2:]
    root.attrib = {"viewBox": f"0 0 {width} {height}", "width": width, "height": height, "role": "img"}
    root.set("style", f"font-family: {FONT}")
    root.set("aria-label", alternative)
    return ElementTree.tostring(root, encoding="unicode")


def label(text: str, longest: int = 30) -> str:
    """Return a name as printable text, shortened in its middle if it is too long.

    >>> label("plasma neurofilament light chain, visit 3", 24)
    'plasma neurofi…, visit 3'
    """
    printable = "".join(letter if letter.isprintable() else " " for letter in text)
    if len(printable) <= longest:
        return printable
    tail = (longest - 1) * 2 // 5
    return f"{printable[: longest - 1 - tail]}…{printable[-tail:]}"


def room(letters: int, width: float) -> int:
    """Return how many of the letters that fit a figure of the page's width fit one of another width, at least 10.

    >>> room(90, NARROW), room(12, NARROW)
    (49, 10)
    """
    return max(10, int(letters * width / WIDTH))


def legend_below(figure: Figure, handles: Sequence[Artist], labels: Sequence[str], title: str = "") -> None:
    """Add a legend below the axes, in as many columns as fit, and extend the figure by its height."""
    _legend(figure, handles, labels, title, "outside lower left")


def legend_above(figure: Figure, handles: Sequence[Artist], labels: Sequence[str], title: str = "") -> None:
    """Add a legend above the axes, in as many columns as fit, and extend the figure by its height."""
    _legend(figure, handles, labels, title, "outside upper left")


def _legend(figure: Figure, handles: Sequence[Artist], labels: Sequence[str], title: str, where: Place) -> None:
    names = [_legend_label(label(text)) for text in labels]
    width, height = figure.get_size_inches()
    columns = max(1, min(len(names), int(width / (0.55 + 0.068 * max(map(len, names))))))
    rows = -(-len(names) // columns)
    figure.set_size_inches(width, height + 0.16 * rows + (0.2 if title else 0.1))
    # A legend is filled column by column; the eye reads row by row.
    order = [place for column in range(columns) for place in range(column, len(names), columns)]
    figure.legend(
        [handles[place] for place in order],
        [names[place] for place in order],
        loc=where,
        ncols=columns,
        title=title,
        alignment="left",
    )


def _legend_label(name: str) -> str:
    return f"\u2009{name}" if name.startswith("_") else name


def _lighten(element: ElementTree.Element) -> None:
    """Remove indentation, the repeated font and digits below a hundredth of a point."""
    if not (element.text or "").strip():
        element.text = None
    element.tail = None
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    for key, value in element.attrib.items():
        if key in ("d", "x", "y", "width", "height", "transform"):
            element.set(key, " ".join(_LONG_NUMBER.sub(r"\1", value).split()))
        elif key == "style":
            element.set(key, value.replace("font-family: 'DejaVu Sans'; ", ""))


def _rename(element: ElementTree.Element, name: str, referenced: set[str]) -> None:
    """Prefix the referenced identifiers with the name of the figure, and remove all others."""
    identifier = element.attrib.pop("id", None)
    if identifier in referenced:
        element.set("id", f"{name}-{identifier}")
    if _XLINK in element.attrib:
        element.set("href", element.attrib.pop(_XLINK).replace("#", f"#{name}-", 1))
    for key in ("style", "clip-path"):
        if key in element.attrib:
            element.set(key, element.attrib[key].replace("url(#", f"url(#{name}-"))
