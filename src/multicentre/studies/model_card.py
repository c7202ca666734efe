"""Card of a validated model with the fields of TRIPOD+AI, as Markdown and HTML, and the recalibrated model as a file.

Facts come from the study, the model and the sums over sites. What only the authors of the model know, such as its
intended use, is left as a line to fill in.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from markupsafe import escape

from multicentre.core.printable import harmless
from multicentre.core.storage import write_atomically
from multicentre.errors import ConfigurationError, MissingExtra
from multicentre.estimator.base import FederatedEstimator
from multicentre.studies.study import Study

if TYPE_CHECKING:
    import pandas as pd

CARD, RECALIBRATED = "model-card", "recalibrated-model.json"
_TO_FILL_IN = "(to be filled in by the authors)"
_MAX_COEFFICIENTS = 100  # more than any published score; a longer list hides the rest of the card
_STYLE = "body{font:1rem/1.5 sans-serif;max-width:50rem;margin:2rem auto}th{text-align:left;padding-right:1rem}"


@dataclass(frozen=True)
class Section:
    """Part of a card: lines of a name and its value."""

    title: str
    lines: list[tuple[str, str]]


def write_model_card(folder: Path, study: Study, estimator: FederatedEstimator) -> None:
    """Write the card of the model that a finished analysis validated, and the recalibrated model if there is one.

    Parameters
    ----------
    folder : Path
        Folder of the results of the analysis.
    study : Study
        Study of the single analysis.
    estimator : FederatedEstimator
        Fitted validation.
    """
    sections = card_of_model(study, estimator)
    write_atomically(folder / f"{CARD}.md", to_markdown(study.name, sections).encode(), durable=False)
    write_atomically(folder / f"{CARD}.html", to_html(study.name, sections).encode(), durable=False)
    if hasattr(estimator, "recalibrated"):
        from multicentre.validation.external.model_files import write_model

        # A link without a recalibration, or trees without xgboost: the card says which line was fitted.
        with contextlib.suppress(ConfigurationError, MissingExtra):
            write_model(estimator.recalibrated(), folder / RECALIBRATED)


def card_of_model(study: Study, estimator: FederatedEstimator) -> list[Section]:
    """Return the sections of the card of a validated model."""
    return [
        Section("Model", [*_model_lines(estimator), ("Intended use and users", _TO_FILL_IN)]),
        Section("Data of the validation", _data_lines(study, estimator)),
        Section("Performance", _frame_lines(estimator.to_frame())),
        *_further_tables(estimator),
        Section("Recalibration", _recalibration_lines(estimator)),
        Section(
            "Limits",
            [
                ("Derivation data and overfitting", _TO_FILL_IN),
                ("Fairness", "Compare the subgroups above; differences of case mix are not adjusted for."),
                ("Software", f"multicentre {version('multicentre')}; no patient's row left its site"),
            ],
        ),
    ]


def to_markdown(title: str, sections: list[Section]) -> str:
    r"""Return a card as Markdown.

    Examples
    --------
    >>> to_markdown("pilot", [Section("Model", [("Family", "binomial | logit")])])
    '# Model card: pilot\n\n## Model\n\n| | |\n|---|---|\n| Family | binomial \\| logit |\n'
    """
    parts = [f"# Model card: {harmless(title)}\n"]
    for section in sections:
        rows = [f"| {_cell(name)} | {_cell(value)} |" for name, value in section.lines]
        parts.append("\n".join([f"## {section.title}", "", "| | |", "|---|---|", *rows]) + "\n")
    return "\n".join(parts)


def to_html(title: str, sections: list[Section]) -> str:
    """Return a card as a self-contained page."""
    parts = [f"<h1>Model card: {escape(harmless(title))}</h1>"]
    for section in sections:
        rows = "".join(
            f"<tr><th scope='row'>{escape(harmless(name))}</th><td>{escape(harmless(value))}</td></tr>"
            for name, value in section.lines
        )
        parts.append(f"<h2>{escape(section.title)}</h2><table>{rows}</table>")
    head = f"<meta charset='utf-8'><title>Model card: {escape(harmless(title))}</title><style>{_STYLE}</style>"
    return f"<!doctype html><html lang='en'><head>{head}</head><body>{''.join(parts)}</body></html>\n"


def _cell(text: str) -> str:
    return harmless(text).replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")


def _model_lines(estimator: FederatedEstimator) -> list[tuple[str, str]]:
    from multicentre.validation.external.model_files import describe_model, digest_of

    model: Any = getattr(estimator, "given_model", None) or estimator.get_params(deep=False)["model"]
    lines = describe_model(model)
    if len(lines) > _MAX_COEFFICIENTS:
        lines = [*lines[:_MAX_COEFFICIENTS], ("further", f"{len(lines) - _MAX_COEFFICIENTS} lines are not shown")]
    return [*lines, ("SHA-256 of the model at the sites", digest_of(model))]


def _data_lines(study: Study, estimator: FederatedEstimator) -> list[tuple[str, str]]:
    survival, table = study.data.survival, study.data.table
    outcome = "" if table is None else table.outcome
    if survival is not None:
        outcome = f"{survival.event} (time: {survival.time}{', in ' + survival.unit if survival.unit else ''})"
    left_out = ", ".join(estimator.left_out_) or "none"
    return [
        ("Question", study.about.description or _TO_FILL_IN),
        ("Outcome", outcome),
        ("Sites", ", ".join(study.sites)),
        ("Sites left out", left_out),
        ("Result", estimator.answer()),
    ]


def _frame_lines(frame: pd.DataFrame) -> list[tuple[str, str]]:
    return [(_title(name), _values(row)) for name, row in frame.to_dict("index").items()]


def _further_tables(estimator: FederatedEstimator) -> list[Section]:
    tables = estimator.result_tables()
    names = [name for name in ("calibration", "subgroups", "by site") if name in tables]
    return [Section(_title(name), _frame_lines(tables[name])) for name in names]


def _recalibration_lines(estimator: FederatedEstimator) -> list[tuple[str, str]]:
    if not hasattr(estimator, "line"):
        return [("Calibration", "see the calibration by time in the report")]
    intercept, slope = estimator.line()
    return [
        ("Intercept and slope", f"{intercept:.4g} and {slope:.4g}; 0 and 1 for a calibrated model"),
        ("Intercept at a slope of 1", f"{estimator.shift():.4g}"),
        ("Recalibrated model", f"{RECALIBRATED}, where the model's link permits it"),
    ]


def _values(row: Mapping[Any, Any]) -> str:
    present = {name: value for name, value in row.items() if value == value and value is not None}
    return ", ".join(
        f"{'' if name == 'value' else _title(name).lower() + ' '}{value:.4g}"
        if isinstance(value, int | float)
        else f"{_title(name).lower()} {value}"
        for name, value in present.items()
    )


def _title(name: object) -> str:
    text = ", ".join(str(part) for part in name) if isinstance(name, tuple) else str(name)
    text = text.replace("_", " ")
    return text[:1].upper() + text[1:]
