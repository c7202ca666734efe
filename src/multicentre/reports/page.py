"""Report of a run: one self-contained HTML page."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined

from multicentre.core.printable import harmless
from multicentre.core.storage import write_atomically
from multicentre.errors import describe_reasons
from multicentre.reports import formats, methods_text, tables
from multicentre.reports.analysis_view import AnalysisView, view_analysis
from multicentre.reports.exports import can_write_word, write_tables
from multicentre.reports.machine_paths import toml_without_folders, value_without_folders, without_folders
from multicentre.reports.run_contents import Disclosure, RunContents, RunMetadata, Site, read_run
from multicentre.reports.tables import PageTable

PAGE = "report.html"


@dataclass(frozen=True)
class Heading:
    """Section of the page, with its number (of the annex: its letter)."""

    anchor: str
    number: str
    title: str


def write_report(folder: Path) -> Path:
    """Write the report of a run into its folder and return its path; its tables are also written for papers.

    Parameters
    ----------
    folder : Path
        Run folder, as ``multicentre run`` writes it.

    Raises
    ------
    ConfigurationError
        The folder is missing or incomplete; the message names the file.
    """
    page, page_tables = _render(Path(folder))
    write_atomically(Path(folder) / PAGE, page.encode())
    write_tables(Path(folder), page_tables)
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
    return _render(Path(folder))[0]


def _render(folder: Path) -> tuple[str, list[PageTable]]:
    """Return the page, and its tables before the annex in the order of their numbers."""
    context = _context(read_run(folder))
    environment = Environment(
        loader=PackageLoader("multicentre", "reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        # Names of variables and levels could otherwise reverse the order of what is displayed.
        finalize=lambda value: type(value)(harmless(value)) if isinstance(value, str) else value,
    )
    environment.filters |= {
        "bytes": formats.format_bytes,
        "instant": formats.format_instant,
        "number": formats.format_number,
        "seconds": formats.format_seconds,
    }
    page = environment.get_template("report.html.j2").render(context)
    return page, context["numbered"].tables


def _context(contents: RunContents) -> dict[str, Any]:
    run = contents.run
    disclosure = Disclosure.model_validate(value_without_folders(contents.disclosure.model_dump()))
    names = (f"figure{number}" for number in count(1))
    views = [
        view_analysis(analysis, contents.study, number, names)
        for number, analysis in enumerate(contents.analyses, start=1)
    ]
    main, annex = _outline(views, has_sites=_counts_sites(run), has_flow=run.flow is not None)
    return {
        "run": run,
        "about": {
            key: contents.labels.name(name) if key in ("exposure", "outcome") else name
            for key, name in contents.study.get("study", {}).items()
        },
        "message": without_folders(run.message),
        "losses": {site: without_folders(reason) for site, reason in run.losses.items()},
        "left_out": without_folders(describe_reasons(run.left_out)),
        "analyses": views,
        "several": len(views) > 1,
        "main": main,
        "annex": annex,
        "headings": {heading.anchor: heading for heading in (*main, *annex)},
        "fitted_sites": _fitted_sites(run),
        "patients": _describe_patients(contents),
        "card": disclosure.card,
        "card_table": tables.card_table(disclosure),
        "letter_table": tables.letter_table(disclosure),
        "leaving_table": tables.leaving_table(disclosure, run.min_patients),
        "released_table": tables.released_table(disclosure, run.min_patients),
        "refused_table": tables.refused_table(disclosure),
        "ledger_table": tables.ledger_table(disclosure),
        "study_text": toml_without_folders(contents.study_text),
        "study_table": tables.study_table(value_without_folders(contents.study), vertical=run.vertical),
        "refusals": _refused_at_sites(run),
        "flow_table": None if run.flow is None else tables.flow_table(run.flow),
        "site_table": tables.site_table(run) if _counts_sites(run) else None,
        "methods": contents.labels.sentence(methods_text.methods_paragraph(contents)),
        "bibtex": methods_text.bibliography(contents),
        "environment": contents.environment,
        "digests": contents.digests,
        "has_word": can_write_word(),
        "numbered": _Numbers(),
    }


def _outline(views: list[AnalysisView], *, has_sites: bool, has_flow: bool) -> tuple[list[Heading], list[Heading]]:
    """Return the sections of the page and those of its annex; sections without content are left out."""
    has_sites = has_sites or any(view.items.sites or view.comparison_items or view.notes for view in views)
    main = [("result", "Results")]
    main += [("validation", "Held-out validation")] if any(view.items.validation for view in views) else []
    main += [("sites", "Sites")] if has_sites else []
    main += [("missing", "Missing values"), ("methods", "Methods to cite")]
    if has_flow or any(view.items.patients for view in views):
        main.insert(0, ("patients", "Patients"))
    annex = [
        ("study", "Configuration"),
        ("fit", "Convergence"),
        ("disclosure", "What left the sites"),
        ("environment", "Environment"),
        ("verify", "How to verify"),
        ("fields", "Every field, and the study's file"),
    ]
    return (
        [Heading(anchor, str(number), title) for number, (anchor, title) in enumerate(main, start=1)],
        [Heading(anchor, letter, title) for letter, (anchor, title) in zip("ABCDEF", annex, strict=True)],
    )


def _refused_at_sites(run: RunMetadata) -> list[str]:
    """Return what sites with the policy of a new site would refuse of a simulated study."""
    refused = [one for one in run.analyses if run.simulated and one.message and one.status != "failed"]
    reasons = [*run.refused_at_sites, *(f"analysis {one.name}: {one.message}" for one in refused)]
    return [without_folders(reason) for reason in reasons]


def _fitted_sites(run: RunMetadata) -> list[Site]:
    return [site for site in run.sites if site.name not in run.left_out]


def _counts_sites(run: RunMetadata) -> bool:
    """Return whether the number of patients of any site is known; real sites release none."""
    return any(site.patients is not None or site.parts for site in run.sites)


def _describe_patients(contents: RunContents) -> str:
    """Return a text with the number of patients of a run, who may be at several sites; empty without a number."""
    run, counted = contents.run, methods_text.patients_of(contents)
    if run.vertical:
        return f"{counted} aligned over the sites" if counted else "different views of the same patients"
    return counted


class _Numbers:
    """Numbers figures and tables in the order of the template."""

    def __init__(self) -> None:
        self._last = {"Figure": 0, "Table": 0}
        self.tables: list[PageTable] = []
        self._in_annex = False

    def __call__(self, kind: str) -> str:
        self._last[kind] += 1
        return f"{kind} {self._last[kind]}."

    def table(self, table: PageTable) -> str:
        """Return the number of a table, which is kept for other documents unless it is in the annex."""
        self.tables += [] if self._in_annex else [table]
        return self("Table")

    def begin_annex(self) -> str:
        """Keep no further tables."""
        self._in_annex = True
        return ""

    def again(self, kind: str) -> str:
        """Return the last number, for the next part of a table that is cut."""
        return f"{kind} {self._last[kind]}, continued."
