"""Report of a run: one self-contained HTML page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count, pairwise
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from multicentre.core.storage import write_atomically
from multicentre.errors import describe_reasons
from multicentre.estimator.figures import Bars, Densities, Figure, HeatMap, Lines, Section, Table
from multicentre.reports import formats, tables
from multicentre.reports.alt_texts import describe
from multicentre.reports.figures import draw
from multicentre.reports.run_contents import RunContents, RunMetadata, Site, read_run
from multicentre.reports.svg import inline_svg

# Six rows of five panels are 7.0 inches high (6 * 1.15 + 0.1); an A4 page has 10.3 inches (262 mm).
MOST_PANELS = 30

# 48 rows are 7.5 inches high (48 * 0.145 + 0.5), which leaves 2.8 of the page's 10.3 inches for names and caption.
MOST_CELL_ROWS = 48

# 60 columns leave a cell at most 2.9 mm of the page's width of 174 mm.
MOST_CELL_COLUMNS = 60

# Bars of all series count, as the height grows with them: 22 pairs take 9.4 of the page's 10.3 inches.
MOST_BARS = 44

# Nine columns have about 19 mm each of the page's width of 174 mm.
MOST_TABLE_COLUMNS = 9


def fit_to_pages(figure: Figure) -> list[Figure]:
    """Return a figure as parts that fit a page; most are one part.

    >>> wide = Table("T", "", "data", ["site", *"abcdefghijkl"], [["lyon", *range(12)]])
    >>> [len(part.columns) for part in fit_to_pages(wide)]
    [7, 7]
    """
    parts = _parts(figure)
    if len(parts) == 1:
        return [figure]
    return [replace(part, title=f"{part.title} ({number} of {len(parts)})") for number, part in enumerate(parts, 1)]


def _parts(figure: Figure) -> list[Figure]:
    if isinstance(figure, Densities):
        return [replace(figure, panels=figure.panels[a:b]) for a, b in _cuts(len(figure.panels), MOST_PANELS)]
    if isinstance(figure, HeatMap):
        return [
            replace(
                figure,
                rows=figure.rows[a:b],
                columns=figure.columns[c:d],
                values=[row[c:d] for row in figure.values[a:b]],
            )
            for a, b in _cuts(len(figure.rows), MOST_CELL_ROWS)
            for c, d in _cuts(len(figure.columns), MOST_CELL_COLUMNS)
        ]
    if isinstance(figure, Bars):
        return [
            _some_bars(figure, a, b) for a, b in _cuts(len(figure.categories), MOST_BARS // max(1, len(figure.series)))
        ]
    if isinstance(figure, Table):
        return [_some_columns(figure, a, b) for a, b in _cuts(len(figure.columns) - 1, MOST_TABLE_COLUMNS - 1)]
    return [figure]


def _some_bars(figure: Bars, start: int, end: int) -> Bars:
    return replace(
        figure,
        categories=figure.categories[start:end],
        series={name: values[start:end] for name, values in figure.series.items()},
        spread={name: values[start:end] for name, values in figure.spread.items()},
    )


def _some_columns(figure: Table, start: int, end: int) -> Table:
    def part_of(row: Sequence[str | float | None]) -> list[str | float | None]:
        return [*row[:1], *row[1 + start : 1 + end]]

    names = [*figure.columns[:1], *figure.columns[1 + start : 1 + end]]
    return replace(figure, columns=names, rows=[part_of(row) for row in figure.rows])


def _cuts(length: int, most: int) -> list[tuple[int, int]]:
    n_parts = max(1, -(-length // max(1, most)))
    edges = [round(part * length / n_parts) for part in range(n_parts + 1)]
    return list(pairwise(edges))


PAGE = "report.html"


@dataclass(frozen=True)
class Picture:
    """Figure on the page."""

    title: str
    caption: str
    svg: Markup


def write_report(folder: Path) -> Path:
    """Write the report of a run into its folder and return its path.

    Parameters
    ----------
    folder : Path
        Run folder, as ``multicentre run`` writes it.

    Raises
    ------
    ConfigurationError
        The folder is missing or incomplete; the message names the file.
    """
    page = render_report(folder)
    write_atomically(Path(folder) / PAGE, page.encode())
    return Path(folder) / PAGE


def render_report(folder: Path) -> str:
    """Return the report of a run as HTML; the same folder gives the same text.

    Parameters
    ----------
    folder : Path
        Run folder, as ``multicentre run`` writes it.

    Raises
    ------
    ConfigurationError
        The folder is missing or incomplete; the message names the file.

    Examples
    --------
    >>> render_report(Path("runs/none"))
    Traceback (most recent call last):
    ...
    multicentre.errors.ConfigurationError: runs/none: path must be a run folder; ...
    """
    run = read_run(Path(folder))
    environment = Environment(
        loader=PackageLoader("multicentre", "reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "bytes": formats.format_bytes,
        "instant": formats.format_instant,
        "number": formats.format_number,
        "seconds": formats.format_seconds,
    }
    return environment.get_template("report.html.j2").render(_context(run))


def _context(contents: RunContents) -> dict[str, Any]:
    run, disclosure = contents.run, contents.disclosure
    names = (f"figure{number}" for number in count(1))
    return {
        "run": run,
        "study_text": contents.study_text,
        "study_table": tables.study_table(contents.study, vertical=run.vertical),
        "left_out": describe_reasons(run.left_out),
        "fitted_sites": _fitted_sites(run),
        "patients": _count_patients(run),
        "site_table": tables.site_table(run),
        "column_table": tables.column_table(run) if run.columns else None,
        "figures": {section: _page_items(_of_section(contents, section), names) for section in _SECTIONS},
        "has_figures": contents.figures is not None,
        "comparison": contents.comparison,
        "comparison_table": tables.comparison_table(contents.comparison) if contents.comparison else None,
        "notes": _notes(contents),
        "alone_tables": _page_items([tables.alone_table(contents.comparison)], names) if contents.comparison else [],
        "card": disclosure.card,
        "card_table": tables.card_table(disclosure),
        "letter_table": tables.letter_table(disclosure),
        "leaving_table": tables.leaving_table(disclosure, run.min_patients),
        "released_table": tables.released_table(disclosure, run.min_patients),
        "refused_table": tables.refused_table(disclosure),
        "ledger_table": tables.ledger_table(disclosure),
        "environment": contents.environment,
        "digests": contents.digests,
        "numbered": _Numbers(),
    }


def _fitted_sites(run: RunMetadata) -> list[Site]:
    return [site for site in run.sites if site.name not in run.left_out]


def _count_patients(run: RunMetadata) -> str:
    """Return a text with the number of patients of a run, who may be at several sites."""
    counts = [site.patients for site in _fitted_sites(run)]
    if not run.simulated and not run.vertical and any(count is None for count in counts):
        return f"{run.counted} whose number stays at the sites"
    if not run.vertical:
        return f"{formats.format_total(counts, run.min_patients)} {run.counted}"
    if run.patients_aligned is None:
        return "different views of the same patients"
    return f"{formats.format_number(run.patients_aligned)} patients aligned over the sites"


_SECTIONS: tuple[Section, ...] = ("data", "fit", "model", "comparison")


class _Numbers:
    """Numbers figures and tables in the order of the template."""

    def __init__(self) -> None:
        self._counts = {kind: count(1) for kind in ("Figure", "Table")}

    def __call__(self, kind: str) -> str:
        return f"{kind} {next(self._counts[kind])}."


def _notes(contents: RunContents) -> list[str]:
    """Return the notes on the compared metrics, without repetitions."""
    metrics = contents.comparison.metrics if contents.comparison else []
    return list(dict.fromkeys(metric.note for metric in metrics if metric.note))


def _of_section(contents: RunContents, section: Section) -> list[Figure]:
    figures = [figure for figure in contents.figures or [] if figure.section == section]
    return figures or (_history_curves(contents) if section == "fit" else [])


def _history_curves(contents: RunContents) -> list[Figure]:
    history = contents.history or {}
    rounds = history.get("round", [])
    return [
        Lines(
            f"{name} over the rounds", "From the history of the run.", "fit", "round", name, rounds, {name: values}, {}
        )
        for name, values in history.items()
        if name != "round" and rounds
    ]


def _page_items(figures: Iterable[Figure], names: Iterator[str]) -> list[tables.PageTable | Picture]:
    parts = [part for figure in figures for part in fit_to_pages(figure)]
    return [tables.figure_table(part) if isinstance(part, Table) else _picture(part, next(names)) for part in parts]


def _picture(figure: Figure, name: str) -> Picture:
    svg = inline_svg(draw(figure), name, describe(figure))
    return Picture(figure.title, figure.caption, Markup(svg))
