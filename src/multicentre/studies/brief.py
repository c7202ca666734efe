"""Brief of a study: what a steward reads before the fields of the card.

A brief states the question, who asks, the sites and the file, the variables and the analyses. Terminal, pages and JSON
print this one structure.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multicentre.estimator.labels import Labels
from multicentre.privacy.card import DisclosureCard
from multicentre.studies.cross_validation import needs_pseudonym_key
from multicentre.studies.saved_models import ModelDigest, list_models
from multicentre.studies.study import Study, make_estimators
from multicentre.studies.tables import OutcomeTable, SurvivalTable
from multicentre.studies.terms import study_terms

if TYPE_CHECKING:
    from multicentre.estimator.base import FederatedEstimator

_KINDS = {
    "individual": "VALUES ABOUT SINGLE PATIENTS",
    "time": "RECORDED TIMES OF EVENTS",
    "total": "sums and counts over all sites",
    "number": "numbers of this site alone",
}
_WIDTH = 100  # of a terminal in which tables of five columns are readable
_NEEDS_KEY = "a pseudonym key that the sites share, named in site.toml: multicentre docs pseudonyms"
# Terms that a list of differences states one by one; more are a different study.
_MAX_TERMS = 15
NO_QUESTION = "not stated in the study file (description)"


@dataclass(frozen=True)
class Variable:
    """Variable that a study reads.

    Attributes
    ----------
    name, label, unit : str
        Label and unit are empty unless the study states them.
    role : str
    type : str
        "category", "number", "time", "event", "identifier", or "" if only the file tells.
    levels : tuple of str
        Declared levels of a category.
    analyses : tuple of str
        Names of the analyses that use it; empty for all.
    """

    name: str
    role: str
    type: str = ""
    label: str = ""
    unit: str = ""
    levels: tuple[str, ...] = ()
    analyses: tuple[str, ...] = ()


@dataclass(frozen=True)
class AnalysisBrief:
    """One analysis.

    Attributes
    ----------
    name, question : str
    method : str
        Name of the method.
    terms : str
        Selection of records, subgroups, estimates of single sites and given models.
    parameters : str
        All parameters of the method, and the content of given models.
    leaves, protection : str
        What leaves, and how its sums are protected.
    """

    name: str
    question: str
    method: str
    terms: str
    parameters: str
    leaves: str
    protection: str


@dataclass(frozen=True)
class Brief:
    """Question, sites, variables and analyses of a study.

    Attributes
    ----------
    study, question, asked_by : str
    sites : tuple of str
    files : dict of str to str
        Files of this site that the study reads; empty away from a site.
    variables : tuple of Variable
    analyses : tuple of AnalysisBrief
    records : str
        Selection of the records of all analyses; empty for all records.
    needs : str
        What the site has to have before it can take part.
    new : tuple of str, optional
        Differences from the last study that this site approved; None without one.
    """

    study: str
    question: str
    sites: tuple[str, ...]
    variables: tuple[Variable, ...]
    analyses: tuple[AnalysisBrief, ...]
    asked_by: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    records: str = ""
    needs: str = ""
    new: tuple[str, ...] | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the brief as plain values, for JSON."""
        return asdict(self)

    @property
    def facts(self) -> list[tuple[str, str]]:
        """Names and texts of the facts between the question and the tables."""
        files = ", ".join(f"{path} ({key})" if key != "file" else path for key, path in self.files.items())
        facts = [
            ("Asked by", self.asked_by),
            ("Sites", f"{', '.join(self.sites)} ({len(self.sites)})"),
            ("File of this site", files),
            ("Records", self.records),
            ("Needs", self.needs),
        ]
        return [(name, text) for name, text in facts if text]

    @property
    def variable_rows(self) -> list[list[str]]:
        """Rows of the table of variables: name with label, role, values, analyses."""
        return [
            [
                f"{one.name}: {one.label}" if one.label else one.name,
                one.role,
                ", ".join(one.levels or filter(None, (one.type, "" if one.label else one.unit))) or "-",
                ", ".join(one.analyses) or "all",
            ]
            for one in self.variables
        ]

    @property
    def analysis_rows(self) -> list[list[str]]:
        """Rows of the table of analyses: name, question with method and terms."""
        rows = []
        for one in self.analyses:
            repeats = one.method.casefold().startswith(one.question.rstrip(".").casefold())
            question = "" if repeats else one.question
            rows.append([one.name or "-", " ".join(filter(None, (question, f"{one.method}.", one.terms)))])
        return rows

    @property
    def leaving(self) -> list[str]:
        """Sentences on what leaves and how it is protected, one for all analyses with the same."""
        names: dict[str, list[str]] = {}
        for one in self.analyses:
            names.setdefault(f"{one.leaves} {one.protection}".strip(), []).append(one.name)
        if len(names) == 1:
            return [f"Leaves in each analysis: {text}" for text in names]
        return [f"Leaves in {', '.join(some)}: {text}" for text, some in names.items()]

    @property
    def parameter_rows(self) -> list[list[str]]:
        """Rows of the table of parameters: name of the analysis, parameters."""
        return [[one.name or "-", one.parameters] for one in self.analyses]

    def __str__(self) -> str:
        return self.text(fields=False)

    def text(self, *, fields: bool) -> str:
        """Return the brief as text, with or without all parameters of the analyses."""
        facts = [("Study", self.study), ("Question", self.question or NO_QUESTION), *self.facts]
        parts = [f"{f'{name}:'.ljust(19)}{text}" for name, text in facts]
        parts += ["", f"It uses {len(self.variables)} variables:"]
        parts += _lines(VARIABLE_COLUMNS, self.variable_rows)
        parts += ["", f"It makes {len(self.analyses)} {'analysis' if len(self.analyses) == 1 else 'analyses'}:"]
        parts += [_filled(name, text) for name, text in self.analysis_rows]
        parts += [_filled("-", text) for text in self.leaving]
        if self.new is not None:
            parts += ["", "New since the last study that you approved:"]
            parts += [_filled("-", one) for one in self.new]
            parts += [] if self.new else ["  nothing: the terms are the same"]
        if fields:
            parts += ["", "Parameters of the analyses:", *(_filled(*row) for row in self.parameter_rows)]
        return "\n".join(parts)


VARIABLE_COLUMNS = ("variable", "role", "values", "used by")


def brief_of(
    study: Study,
    card_of: Callable[[FederatedEstimator], DisclosureCard],
    *,
    asked_by: str = "",
    files: Mapping[str, Path] | None = None,
    previous: Study | None = None,
) -> Brief:
    """Return the brief of a study.

    Parameters
    ----------
    study : Study
    card_of : callable
        Returns the card of the method of an estimator.
    asked_by : str, optional
        Analyst or coordinator who asks.
    files : mapping from str to Path, optional
        Files of this site that the study reads.
    previous : Study, optional
        Last study that this site approved.
    """
    estimators = make_estimators(study)
    analyses = tuple(
        _analysis(study, name, part, estimators[name], card_of(estimators[name]))
        for name, part in study.split().items()
    )
    brief = Brief(
        study.name,
        " ".join(study.about.description.split()),
        tuple(study.sites),
        _variables(study),
        analyses,
        asked_by,
        {key: str(path) for key, path in (files or {}).items()},
        _records(study),
        _NEEDS_KEY if needs_pseudonym_key(study) else "",
    )
    if previous is None:
        return brief
    before = brief_of(previous, card_of)
    return Brief(**{**vars(brief), "new": tuple(_differences(brief, before, study, previous))})


def _analysis(
    study: Study, name: str, part: Study, estimator: FederatedEstimator, card: DisclosureCard
) -> AnalysisBrief:
    block = next((one for one in study.analyses if one.name == name), None)
    question = "" if block is None else block.question or block.title
    models = list_models(part.parameters)
    parts = [f"A given model (SHA-256 {one.sha256})." for one in models]
    if block is not None:
        parts += [f"Records where {block.where}."] if block.where else []
        parts += [f"Repeated by level of {', '.join(block.subgroups)}."] if block.subgroups else []
    if names := (study.about.by_site if block is None else block.by_site):
        parts.append(
            "A model of THIS SITE ALONE is fitted too. Its sums leave, and from them the coordinator can compute all "
            f"coefficients at this site; the report shows those of {', '.join(names)}."
        )
    model = estimator.describe_model()
    method = model.partition(";")[0].rstrip(".")
    parameters = [model, *(f"Model: {_model_text(one.load())}." for one in models)]
    terms = " ".join(parts)
    return AnalysisBrief(
        name, _sentence(question), method, terms, " ".join(parameters), _leaves(card), _protection(card)
    )


def _leaves(card: DisclosureCard) -> str:
    """Return what an analysis releases, in one phrase; names of columns and levels are not mentioned."""
    kinds = {line.kind for line in card.lines if line.answered}
    phrases = [phrase for kind, phrase in _KINDS.items() if kind in kinds]
    return f"{', '.join(phrases) or 'names of columns only'}."


def _protection(card: DisclosureCard) -> str:
    """Return how the sums of an analysis are protected, in one phrase."""
    totals = [line for line in card.lines if line.kind == "total" and line.answered]
    if card.guarantee:
        return f"Noise protects {card.guarantee}."
    if not totals:
        return ""
    is_masked = all(line.masked for line in totals)
    return (
        "Sums are masked: only totals can be read." if is_masked else "Sums are UNMASKED: the coordinator reads them."
    )


def _model_text(model: Any) -> str:
    """Return what a given model consists of; its digest alone where the study states nothing else."""
    if isinstance(model, ModelDigest):
        return "a file that the study does not hold"
    from multicentre.validation.external.model_files import describe_model

    return ", ".join(f"{name} {value}" for name, value in describe_model(model))


def _records(study: Study) -> str:
    """Return the selection of the records of all analyses."""
    data = study.data
    complete = "" if data.complete is None else "without missing values"
    if data.complete not in (None, "all"):
        complete += f" in {', '.join(data.complete or ())}"
    return ", ".join(filter(None, (data.where and f"where {data.where}", complete)))


def _sentence(text: str) -> str:
    text = " ".join(text.split())
    return text if not text or text[-1] in ".?!" else f"{text}."


def _variables(study: Study) -> tuple[Variable, ...]:
    labels = Labels.of_study(study.data.model_dump())
    raw = [*_identifiers(study), *_of_survival(study), *_of_table(study), *_of_views(study), *_of_events(study)]
    variables: dict[str, Variable] = {}
    for one in raw:
        earlier = variables.get(one.name)
        if earlier is None:
            variables[one.name] = one
        elif earlier.role != one.role:
            roles = f"{earlier.role}, {one.role}"
            variables[one.name] = Variable(**{**vars(earlier), "role": roles, "analyses": ()})
    exposure = study.about.exposure
    return tuple(
        Variable(
            **{
                **vars(one),
                "label": labels.labels.get(one.name, ""),
                "unit": one.unit or labels.unit(one.name),
                "role": "exposure" if one.name == exposure else one.role,
                "analyses": one.analyses or _users(study, one),
            }
        )
        for one in variables.values()
    )


def _identifiers(study: Study) -> list[Variable]:
    names = [study.data.id_column] if study.data.id_column else []
    names += [name for name in study.data.identifiers or () if name not in names]
    return [Variable(name, "stays at the site", "identifier") for name in names]


def _of_survival(study: Study) -> list[Variable]:
    table = study.data.survival
    if table is None:
        return []
    times = [Variable(table.time, "time", "number", unit=table.unit), Variable(table.event, "event", "0, 1, ...")]
    return [*times, *_covariates(table)]


def _of_table(study: Study) -> list[Variable]:
    table = study.data.table
    if table is None:
        return []
    levels = tuple(map(str, table.classes or ()))
    kind = "category" if table.kind == "class" else "number"
    return [Variable(table.outcome, "outcome", kind, levels=levels), *_covariates(table)]


def _covariates(table: SurvivalTable | OutcomeTable) -> list[Variable]:
    if table.columns is None:
        names: Sequence[str] = [*table.categories, "all other columns of the file"]
    else:
        names = table.columns
    categories = {name: tuple(map(str, levels)) for name, levels in table.categories.items()}
    return [
        Variable(name, "covariate", "category" if name in categories else "number", levels=categories.get(name, ()))
        for name in names
    ]


def _of_views(study: Study) -> list[Variable]:
    named = [Variable(name, f"view {view}", "number") for view, names in study.data.views.items() for name in names]
    views = sorted({view for files in study.sites.values() for view in files} - set(study.data.views) - {"file"})
    if study.data.survival is None and study.data.table is None and study.data.events is None:
        named += [Variable(f"all columns of {view}", f"view {view}", "number") for view in views]
    label = study.data.label_column
    return [*named, *([Variable(label, "group of figures; used by no method", "category")] if label else [])]


def _of_events(study: Study) -> list[Variable]:
    events = study.data.events
    if events is None:
        return []
    modes = [Variable(mode, "codes", ", ".join(systems)) for mode, systems in events.modes.items()]
    return [*(Variable(name, role, "") for role, name in events.columns.items()), *modes]


def _users(study: Study, variable: Variable) -> tuple[str, ...]:
    """Return the analyses of whose data the variable is part; empty for all of them."""
    if not study.analyses or variable.type == "identifier" or not (study.data.survival and study.data.table):
        return ()
    names = {"survival": {one.name for one in _of_survival(study)}, "table": {one.name for one in _of_table(study)}}
    users = tuple(
        name
        for name, estimator in make_estimators(study).items()
        if variable.name in names["survival" if "Survival" in estimator.site_part.holds.__name__ else "table"]
    )
    return () if len(users) == len(study.analyses) else users


def _differences(brief: Brief, before: Brief, study: Study, previous: Study) -> list[str]:
    """Return the differences of a study from an earlier one, a sentence each."""
    sentences = []
    for what, now, then in (
        ("variables", [one.name for one in brief.variables], [one.name for one in before.variables]),
        ("methods", study.method.split(", "), previous.method.split(", ")),
        ("sites", brief.sites, before.sites),
    ):
        if added := [name for name in now if name not in then]:
            sentences.append(f"{what} added: {', '.join(added)}.")
        if removed := [name for name in then if name not in now]:
            sentences.append(f"{what} no longer used: {', '.join(removed)}.")
    if study.masked != previous.masked:
        sentences.append(f"sums leave {'masked' if study.masked else 'UNMASKED'}, before {_masked(previous)}.")
    terms, earlier = _flat(study_terms(study)), _flat(study_terms(previous))
    changed = [key for key in sorted(terms.keys() | earlier.keys()) if terms.get(key) != earlier.get(key)]
    # Other terms bring other steps; digests matter where nothing else changed but the release.
    changed = [key for key in changed if not key.startswith("protocol.")] or changed
    sentences += [f"{key}: {_term(terms.get(key))}, before {_term(earlier.get(key))}." for key in changed[:_MAX_TERMS]]
    if len(changed) > _MAX_TERMS:
        sentences.append(f"and {len(changed) - _MAX_TERMS} more terms.")
    return sentences


def _flat(terms: Any, key: str = "") -> dict[str, Any]:
    """Return terms by their path, such as ``analyses.cox.by_site``; analyses are named, not numbered."""
    if isinstance(terms, Mapping):
        parts = terms.items()
    elif isinstance(terms, list) and terms and all(isinstance(one, Mapping) and "name" in one for one in terms):
        parts = [(one["name"], one) for one in terms]  # type: ignore[assignment]
    else:
        return {key: terms}
    flat: dict[str, Any] = {}
    for name, value in parts:
        flat |= _flat(value, f"{key}.{name}" if key else str(name))
    return flat


def _term(value: Any) -> str:
    """Return a value of the terms as a short text."""
    text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
    return _short(text) if value not in (None, "", []) else "nothing"


def _masked(study: Study) -> str:
    return "masked" if study.masked else "unmasked"


def _filled(name: str, text: str) -> str:
    text = text if name == "-" else f"{name}: {text}"
    return textwrap.fill(text, _WIDTH, initial_indent="  ", subsequent_indent="    ")


def _lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return an aligned table; columns without entries are left out, long cells are shortened."""
    used = [place for place in range(len(columns)) if any(row[place] != "-" for row in rows)]
    cells = [[columns[place] for place in used], *([_short(row[place]) for place in used] for row in rows)]
    widths = [max(len(row[place]) for row in cells) for place in range(len(used))]
    padded = ([cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in cells)
    return [f"  {'  '.join(row)}".rstrip() for row in padded]


def _short(text: str, longest: int = 60) -> str:
    return text if len(text) <= longest else f"{text[: longest - 3]}..."
