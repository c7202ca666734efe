"""Content of a run folder, read and checked for reports."""

from __future__ import annotations

import csv
import hashlib
import math
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, TypeVar

from pydantic import BaseModel, TypeAdapter, ValidationError

from multicentre.core.parsing import load_json, load_toml
from multicentre.errors import ConfigurationError
from multicentre.estimator.figures import Figure, read_figure
from multicentre.estimator.labels import Labels

NEEDED = ("study.toml", "run.json", "environment.json", "disclosure.json")
_ALL = (
    *NEEDED,
    "sites/data.json",
    "history.csv",
    "comparison.json",
    "figures.json",
    "cross-validation.json",
    "model/model.json",
    "model/model.npz",
)
_RERUN = "Run the study again, or bring the file back from a copy of the run folder."
T = TypeVar("T")


class Site(BaseModel):
    """A site of the run; counts are None where they were suppressed.

    ``parts`` counts the records with an entry in each part of the data: a view, a mode of events. ``records`` is also
    None if sites are on separate machines.
    """

    name: str
    patients: int | None
    records: int | None = None
    parts: dict[str, int | None]


class Headline(BaseModel):
    """Figure at the top of the report."""

    name: str
    value: float | str | None
    unit: str
    meaning: str


class AnalysisEntry(BaseModel):
    """One of the analyses of a study, as ``run.json`` lists it; a run of a single analysis is its only entry."""

    name: str
    title: str = ""
    question: str = ""
    method: str = ""
    folder: str = ""
    status: str = "finished"
    message: str = ""
    answer: str = ""
    model: str = ""
    n_patients: int | None = None
    n_events: int | None = None
    rounds: int = 0
    missing: str = ""
    headline: list[Headline] = []


class SiteFlow(BaseModel):
    """Records that a study assessed, left out by reason, and analysed; None for numbers that are not published."""

    assessed: int | None = None
    excluded: dict[str, int | None] = {}
    analysed: int | None = None


class StudyFlow(SiteFlow):
    """Flow of records over all sites, and of each site if the policies permit the numbers of all."""

    sites: dict[str, SiteFlow] = {}
    refused: str = ""


class RunMetadata(BaseModel):
    """``run.json``; ``vertical`` where sites hold different views of the same patients.

    ``counted`` is "records" where a site cannot tell which of its records are of one patient.
    """

    study: str
    method: str = ""
    description: str = ""
    answer: str = ""
    model: str = ""
    n_patients: int | None = None
    n_events: int | None = None
    analyses: list[AnalysisEntry] = []
    status: Literal["running", "finished", "interrupted", "failed"]
    started: datetime
    ended: datetime | None
    seconds: float
    seed: int | None
    engine: str
    protection: Literal["unmasked", "masked"]
    simulated: bool
    vertical: bool = False
    flow: StudyFlow | None = None
    refused_at_sites: list[str] = []
    patients_aligned: int | None = None
    counted: Literal["patients", "records"] = "patients"
    sites: list[Site]
    min_patients: int
    quorum: int | str | None
    rounds: int = 0
    calls_per_site: int
    bytes_from_sites: int
    bytes_to_sites: int
    lost: list[str] = []
    losses: dict[str, str] = {}
    left_out: dict[str, str] = {}
    ledger_notices: dict[str, str] = {}
    missing: str = ""
    privacy: str | None = None
    message: str = ""
    headline: list[Headline] = []


class Environment(BaseModel):
    """``environment.json``."""

    python: str
    multicentre: str
    platform: str
    packages: dict[str, str]


class Metric(BaseModel):
    """One metric of the federated, the pooled and the site-alone fits."""

    name: str
    label: str
    better: Literal["lower", "higher"]
    federated: float | None
    pooled: float | None
    site_alone: dict[str, float | None]
    note: str = ""


class Comparison(BaseModel):
    """``comparison.json``: metrics on held-out patients, or on patients of all fits."""

    metrics: list[Metric]
    notes: dict[str, str] = {}
    patients_held_out: int | None = None
    patients_of_all_fits: int | None = None


class CardLine(BaseModel):
    """One field on the disclosure card."""

    step: str
    when: str
    field: str
    what: str
    shape: str
    unit: str
    seen: str
    span: str = ""
    noise: str = ""
    purpose: str = ""
    analysis: str = ""


class CardLetter(BaseModel):
    """Meaning of a letter in the shapes on the card."""

    letter: str
    what: str
    number: str = ""
    method: str = ""


class Card(BaseModel):
    """The disclosure card; ``individual`` names the steps whose values are about single patients."""

    method: str
    lines: list[CardLine]
    steps: list[tuple[str, str]]
    remembers: str
    min_patients: int
    warnings: list[str]
    individual: list[str] = []
    counted: Literal["patients", "records"] = "patients"
    caveat: str = ""
    sentences: list[str] = []
    letters: list[CardLetter] = []


class Released(BaseModel):
    """One field that left one site."""

    site: str
    step: str
    field: str
    times: int
    numbers: int
    bytes: int
    records_min: int | None = None
    patients_min: int | None
    protection: str


class Refused(BaseModel):
    """Answer that a site's guard refused to send."""

    site: str
    step: str
    reason: str


class LedgerHead(BaseModel):
    """End of a site's ledger: number of entries and hash of the last entry."""

    entries: int
    hash: str


class Disclosure(BaseModel):
    """``disclosure.json``."""

    card: Card
    released: list[Released]
    refused: list[Refused]
    ledgers: dict[str, LedgerHead]


@dataclass(frozen=True)
class Analysis:
    """Content of one analysis, which is the whole run if a study has one. Parts are None when their file is absent."""

    entry: AnalysisEntry
    parameters: Mapping[str, Any]
    history: Mapping[str, list[float]] | None
    comparison: Comparison | None
    figures: list[Figure] | None
    validated: str = ""


@dataclass(frozen=True)
class RunContents:
    """Content of a report."""

    study_text: str
    study: Mapping[str, Any]
    run: RunMetadata
    environment: Environment
    disclosure: Disclosure
    analyses: list[Analysis]
    digests: Mapping[str, str]

    @property
    def labels(self) -> Labels:
        """Labels of the variables."""
        return Labels.of_study(self.study.get("data", {}))


def read_run(folder: Path) -> RunContents:
    """Read a run folder.

    Raises
    ------
    ConfigurationError
        The folder or a file that every run leaves is missing, or a file has invalid content.
    """
    if not folder.is_dir():
        raise ConfigurationError(
            "path must be a run folder; got no such folder",
            where=str(folder),
            hint="Name a folder that `multicentre run` has written.",
        )
    _check_ended(folder)
    for name in NEEDED:
        if not (folder / name).is_file():
            raise ConfigurationError(
                f"the run folder must contain {name}; it is missing", where=str(folder), hint=_RERUN
            )
    run = _model(folder / "run.json", RunMetadata)
    study = _parse(folder / "study.toml", load_toml)
    return RunContents(
        study_text=_text(folder / "study.toml"),
        study=study,
        run=run,
        environment=_model(folder / "environment.json", Environment),
        disclosure=_model(folder / "disclosure.json", Disclosure),
        analyses=_analyses(folder, run, study),
        digests={name: _digest(folder / name) for name in _files(folder, run)},
    )


def _analyses(folder: Path, run: RunMetadata, study: Mapping[str, Any]) -> list[Analysis]:
    """Return the analyses of a run; the run as a whole is its only analysis if it lists none."""
    if not run.analyses:
        whole = run.model_dump(include=AnalysisEntry.model_fields.keys() & RunMetadata.model_fields.keys())
        entry = AnalysisEntry(name=run.method, question=run.description, **whole)
        return [_read_analysis(folder, entry, study.get("parameters", {}))]
    parameters = {block.get("name"): block.get("parameters", {}) for block in study.get("analysis", [])}
    return [_read_analysis(_place(folder, entry), entry, parameters.get(entry.name, {})) for entry in run.analyses]


def _read_analysis(place: Path, entry: AnalysisEntry, parameters: Mapping[str, Any]) -> Analysis:
    return Analysis(
        entry=entry,
        parameters=parameters,
        history=_optional(place / "history.csv", _history),
        comparison=_optional(place / "comparison.json", lambda path: _model(path, Comparison)),
        figures=_optional(place / "figures.json", _figures),
        validated=_optional(place / "cross-validation.json", _validation) or "",
    )


def _place(folder: Path, entry: AnalysisEntry) -> Path:
    """Return the folder of an analysis, which is within the run's folder."""
    place = folder / (entry.folder or f"analyses/{entry.name}")
    if not place.resolve().is_relative_to(folder.resolve()):
        raise ConfigurationError(
            "the folder of an analysis must be within the run's folder; it is outside",
            where=str(folder / "run.json"),
            hint=_RERUN,
        )
    return place


def _files(folder: Path, run: RunMetadata) -> list[str]:
    """Return the files whose hashes the report prints."""
    within = [_place(folder, entry).relative_to(folder).as_posix() for entry in run.analyses]
    names = [*_ALL, *(f"{place}/{name}" for place in within for name in _ALL)]
    return [name for name in names if (folder / name).is_file()]


def _check_ended(folder: Path) -> None:
    run = folder / "run.json"
    if run.is_file() and _model(run, RunMetadata).ended is None:
        raise ConfigurationError(
            "the run must have ended; got an unfinished run",
            where=str(folder),
            hint=f"Wait for its end, or resume it: multicentre run --resume {shlex.quote(str(folder))}",
        )


def _optional(path: Path, read: Callable[[Path], T]) -> T | None:
    return read(path) if path.is_file() else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"the file must be readable text; got {type(error).__name__}", where=str(path), hint=_RERUN
        ) from None


def _parse(path: Path, parse: Callable[[str], T]) -> T:
    try:
        return parse(_text(path))
    except ValueError as error:
        raise ConfigurationError(
            f"the file must be valid; got an error while parsing it ({error})", where=str(path), hint=_RERUN
        ) from None


def _model(path: Path, kind: type[T]) -> T:
    try:
        return TypeAdapter(kind).validate_python(_parse(path, load_json))
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ConfigurationError(first["msg"], where=f"{path}, {place}", hint=_RERUN) from None


def _figures(path: Path) -> list[Figure]:
    figures = []
    for number, plain in enumerate(_model(path, list[dict[str, Any]]), start=1):
        try:
            figures.append(read_figure(plain))
        except (KeyError, TypeError):
            raise ConfigurationError(
                f"figure {number} must be of a kind of this version; got another", where=str(path), hint=_RERUN
            ) from None
    return figures


def _validation(path: Path) -> str:
    """Return a sentence on the held-out validation of an analysis."""
    content = _model(path, dict[str, Any])
    folds, strategy = len(content.get("records", [])), content.get("strategy", "")
    return f"Held-out validation: {folds} folds ({strategy}), each scored by a fit to the other folds."


def _history(path: Path) -> dict[str, list[float]]:
    rows = list(csv.DictReader(_text(path).splitlines()))
    try:
        return {name: [float(row[name] or math.nan) for row in rows] for name in (rows[0] if rows else ())}
    except (TypeError, ValueError):
        raise ConfigurationError(
            "every row must contain only numbers; got other text", where=str(path), hint=_RERUN
        ) from None


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
