"""One analysis as the template shows it: answer, Table 1, results, sites, missing values and annex."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from multicentre.estimator.figures import Figure, Forest, Lines, Table
from multicentre.estimator.labels import Labels
from multicentre.reports import tables
from multicentre.reports.alt_texts import describe
from multicentre.reports.figures import draw, fits_narrow
from multicentre.reports.formats import format_number
from multicentre.reports.machine_paths import without_folders
from multicentre.reports.method_tables import method_table
from multicentre.reports.methods_text import COMPLETE
from multicentre.reports.parts import fit_to_pages
from multicentre.reports.references import with_references
from multicentre.reports.run_contents import Analysis, Headline
from multicentre.reports.svg import NARROW, inline_svg
from multicentre.reports.tables import PageTable

TABLE_ONE = "describe"
MISSING_VALUES = "Missing values"
# Headlines that compare fits, which are not results of a study.
NO_RESULTS = ("largest difference",)
_SENTENCE_END = re.compile(r"(?<=[.]) (?=[A-Z0-9<])")


@dataclass(frozen=True)
class Picture:
    """Figure on the page; ``narrow`` is drawn for telephones, and empty for a figure that is scrolled there."""

    title: str
    caption: str
    svg: Markup
    narrow: Markup


Item = PageTable | Picture


@dataclass
class Items:
    """Tables and figures of an analysis by the part of the report in which they stand."""

    patients: list[Item] = field(default_factory=list)
    result: list[Item] = field(default_factory=list)
    validation: list[Item] = field(default_factory=list)
    sites: list[Item] = field(default_factory=list)
    missing: list[Item] = field(default_factory=list)
    fit: list[Item] = field(default_factory=list)


@dataclass(frozen=True)
class AnalysisView:
    """One analysis on the page."""

    title: str
    anchor: str
    question: str
    answer: str
    model: str
    status: str
    message: str
    method: str
    rounds: int
    headline: list[Headline]
    assessed: str
    missing: str
    items: Items
    has_figures: bool
    comparison_items: list[Item] | None
    alone_items: list[Item]
    notes: list[str]


def view_analysis(analysis: Analysis, study: Mapping[str, Any], number: int, names: Iterator[str]) -> AnalysisView:
    """Return an analysis with its tables laid out and its figures drawn.

    Parameters
    ----------
    analysis : Analysis
    study : mapping
        Contents of ``study.toml``.
    number : int
        Place of the analysis in the report.
    names : iterator of str
        Prefixes of the identifiers of figures, a new one for each.
    """
    entry, comparison, labels = analysis.entry, analysis.comparison, Labels.of_study(study.get("data", {}))
    compared: list[Item] | None = None if comparison is None else []
    alone: list[Item] = []
    if comparison is not None and comparison.metrics:
        compared, alone = [tables.comparison_table(comparison)], _draw_all([tables.alone_table(comparison)], names)
    return AnalysisView(
        title=entry.title or entry.name,
        anchor=f"analysis-{number}",
        question=entry.question,
        answer=labels.sentence(entry.answer),
        model=labels.sentence(_without_sentences_of(entry.answer, entry.model)),
        status=entry.status,
        message=labels.sentence(without_folders(entry.message)),
        method=entry.method,
        rounds=entry.rounds,
        headline=[one for one in entry.headline if one.name not in NO_RESULTS],
        assessed=_assessed(analysis),
        missing="" if entry.missing == COMPLETE else labels.sentence(entry.missing),
        items=_sort_items(analysis, study, names),
        has_figures=analysis.figures is not None,
        comparison_items=compared,
        alone_items=alone,
        notes=_notes(analysis),
    )


def _sort_items(analysis: Analysis, study: Mapping[str, Any], names: Iterator[str]) -> Items:
    labels = Labels.of_study(study.get("data", {}))
    figures = [labels.figure(with_references(figure, study)) for figure in analysis.figures or []]
    parts = Items()
    has_model = any(figure.section == "model" for figure in figures)
    for figure in figures:
        # An evaluation has no model: what it fits are its results.
        is_result = figure.section == "fit" and not has_model
        of_part = parts.result if is_result else _part_of(figure, parts, analysis.entry.method)
        of_part += _draw_all([figure], names)
    if not any(figure.section == "fit" for figure in figures):
        parts.fit += _draw_all(_history_curves(analysis), names)
    return parts


def _part_of(figure: Figure, parts: Items, method: str) -> list[Item]:
    """Return the part of the report in which a figure stands."""
    if figure.section == "model":
        if method == TABLE_ONE and isinstance(figure, Table):
            return parts.patients
        return parts.sites if isinstance(figure, Forest) and figure.n_pooled else parts.result
    if figure.section == "data":
        return parts.missing if figure.title == MISSING_VALUES else parts.sites
    return parts.fit if figure.section == "fit" else parts.validation


def _history_curves(analysis: Analysis) -> list[Figure]:
    history = analysis.history or {}
    rounds = history.get("round", [])
    figures: list[Figure] = []
    for name, values in history.items():
        label = name.replace("_", " ")
        if name != "round" and len(set(values)) > 1:  # a constant needs no picture
            caption = "From the history of the run."
            figures.append(
                Lines(f"{label} over the rounds", caption, "fit", "round", label, rounds, {label: values}, {})
            )
    return figures


def _draw_all(figures: Iterable[Figure], names: Iterator[str]) -> list[Item]:
    parts = [part for figure in figures for part in fit_to_pages(figure)]
    return [method_table(part) if isinstance(part, Table) else _picture(part, next(names)) for part in parts]


def _picture(figure: Figure, name: str) -> Picture:
    alternative = describe(figure)
    svg = inline_svg(draw(figure), name, alternative)
    narrow = inline_svg(draw(figure, NARROW), f"{name}n", alternative) if fits_narrow(figure) else ""
    return Picture(figure.title, without_folders(figure.caption), Markup(svg), Markup(narrow))


def _without_sentences_of(answer: str, text: str) -> str:
    """Return a text without the sentences that an answer before it states, such as that on a horizon."""
    return " ".join(sentence for sentence in _SENTENCE_END.split(text) if sentence not in answer)


def _assessed(analysis: Analysis) -> str:
    """Return which fit the headlines describe."""
    n_held_out = analysis.comparison.patients_held_out if analysis.comparison else None
    if not n_held_out:
        return ""
    return f"On {format_number(n_held_out)} patients who were held out of a second fit:"


def _notes(analysis: Analysis) -> list[str]:
    """Return the notes on the compared metrics, without repetitions; without metrics, those on the fits that failed."""
    comparison = analysis.comparison
    if comparison is None:
        return []
    notes = [metric.note for metric in comparison.metrics if metric.note]
    if not comparison.metrics:
        notes = [f"{fit}: {reason}" for fit, reason in comparison.notes.items()]
    return [without_folders(note) for note in dict.fromkeys(notes)]
