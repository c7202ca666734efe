"""Tables of ``study.toml``: types and defaults of all keys."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, PlainValidator, ValidationInfo
from pydantic_core import PydanticCustomError

from multicentre.core.run_terms import RefusingSites
from multicentre.data.events.windows import Anchor
from multicentre.engines.remote.engine import PATIENCE_S
from multicentre.errors import ConfigurationError
from multicentre.privacy.identifier_normalisation import DateOrder
from multicentre.privacy.identifier_normalisation import Kind as IdentifierKind
from multicentre.privacy.patient_counts import Counted
from multicentre.privacy.policy import Policy

# Keys of a site's files: one file for all views, for survival data or for a table; and the two files of events.
ONE_FILE = "file"
EVENTS_FILE = "events"
OUTCOMES_FILE = "outcomes"


def _from_study(value: Any, info: ValidationInfo) -> Any:
    folder = (info.context or {}).get("folder", Path())
    return (folder / value).absolute() if isinstance(value, str | Path) and str(value) else value


def _policy(value: Any, info: ValidationInfo) -> Path | Policy:
    if isinstance(value, Policy):
        return value
    if isinstance(value, Mapping):
        return _policy_of_terms(value)
    if not isinstance(value, str | Path):
        raise ValueError("a path or a table of policy terms")
    return Path(_from_study(value, info))


def _policy_of_terms(terms: Mapping[str, Any]) -> Policy:
    """Return the policy; errors are raised for pydantic, which adds the location."""
    try:
        return Policy.from_mapping(terms)
    except ConfigurationError as error:
        raise PydanticCustomError("policy", "invalid", {"error": error}) from None


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _of_one_type(levels: tuple[str | int, ...]) -> tuple[str | int, ...]:
    if len({type(level) for level in levels}) > 1 or len(set(levels)) < len(levels):
        raise ValueError("a list of unique levels, all texts or all whole numbers")
    return levels


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a text of one line")
    return text


def _two_or_more(modes: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    if len(modes) < 2:
        raise ValueError("a table of at least two modes")
    return modes


File = Annotated[Path, BeforeValidator(_from_study)]
PolicySource = Annotated[Path | Policy, PlainValidator(_policy)]
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]
NameOrNames = Annotated[Names, BeforeValidator(_as_list)]
Levels = Annotated[tuple[Name | int, ...], Field(strict=False, min_length=1), AfterValidator(_of_one_type)]
Label = Annotated[str, Field(min_length=1, max_length=120), AfterValidator(_one_line)]
Modes = Annotated[dict[str, NameOrNames], AfterValidator(_two_or_more)]


class Table(BaseModel):
    """Base class of tables; unknown keys and other types are rejected."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class About(Table):
    """``[study]``: name, method, seed and output folder of the study; no method if it has several analyses.

    ``exposure`` is the variable whose effect answers the question, and ``outcome`` the event or outcome of interest.
    ``by_site`` names the variables whose estimates by site a study of a single analysis releases.
    """

    name: str = Field(min_length=1)
    method: str = Field(default="", min_length=1)
    seed: int = Field(default=0, ge=0)
    output: File = Field(default=Path("runs"), validate_default=True)
    description: str = ""
    exposure: Name | None = None
    outcome: Name | None = None
    by_site: tuple[Name, ...] = Field(default=(), strict=False)


class EventsTable(Table):
    """``[data.events]``: code systems of each mode, windows of co-occurrence, and names of columns.

    The keys are those of :meth:`EventTensor.from_events`; each of its columns is named by its role.
    """

    modes: Modes
    window_days: int = Field(default=30, ge=1)
    anchor: Anchor = "first_event"
    patient: Name = "patient"
    date: Name = "date"
    system: Name = "system"
    code: Name = "code"
    admission: Name = "admission"

    @property
    def columns(self) -> dict[str, str]:
        """Column name of each role that the anchor requires; the time is a date or an admission."""
        time_role = "admission" if self.anchor == "admission" else "date"
        return {role: getattr(self, role) for role in ("patient", time_role, "system", "code")}


class SurvivalTable(Table):
    """``[data.survival]``: columns of times and events, and levels of categories.

    The keys are those of :meth:`SurvivalData.from_frame`; ``references`` names levels without a column.
    """

    time: Name = "time"
    event: Name = "event"
    unit: str = ""
    columns: Names | None = None
    categories: dict[str, Levels] = Field(default_factory=dict)
    references: dict[str, Name | int] = Field(default_factory=dict)


class OutcomeTable(Table):
    """``[data.table]``: column to predict, its type, and levels of categories.

    The keys are those of :meth:`TableData.from_frame`; ``references`` names levels without a column.
    """

    outcome: Name = "outcome"
    kind: Literal["class", "number"] = "class"
    classes: Levels | None = None
    columns: Names | None = None
    categories: dict[str, Levels] = Field(default_factory=dict)
    references: dict[str, Name | int] = Field(default_factory=dict)


class DataTable(Table):
    """``[data]``: format of the sites' files, and identification of the patient of a row.

    ``one_row_per_patient`` states that all rows of a site are of different patients, if no column identifies them.
    ``labels`` are the names of variables in reports, with units in parentheses; they are not part of the terms.
    ``where`` and ``complete`` select the records of all analyses; see :mod:`multicentre.studies.cohort`.
    """

    id_column: str | None = None
    label_column: str | None = None
    views: dict[str, Names] = Field(default_factory=dict)
    events: EventsTable | None = None
    survival: SurvivalTable | None = None
    table: OutcomeTable | None = None
    identifiers: Names | None = None
    one_row_per_patient: bool = False
    labels: dict[str, Label] = Field(default_factory=dict)
    where: Name | None = None
    complete: Literal["all"] | Names | None = None

    @property
    def selects(self) -> bool:
        """True if the study leaves records out before its analyses."""
        return self.where is not None or self.complete is not None

    @property
    def counted(self) -> Counted:
        """Unit that sites can count: patients, or records if the patients of the records are unknown."""
        identified = self.id_column or self.identifiers or self.one_row_per_patient or self.events
        return "patients" if identified else "records"


class PrivacyTable(Table):
    """``[privacy]``: masked sums, one policy for all sites, and policies of single sites in ``[privacy.sites]``.

    ``sites_per_patient`` is the maximum number of sites with records of one patient; ``pseudonym_key`` is the file of
    the key for folds from identifiers.
    """

    secure_sum: bool = True
    sites_per_patient: int = Field(default=1, ge=1)
    pseudonym_key: File | None = None
    policy: PolicySource | None = None
    sites: dict[str, PolicySource] = Field(default_factory=dict)


class ValidationTable(Table):
    """``[validation]``: cross-validation of the method in addition to its fit.

    Parameters are those of the splitters of :mod:`multicentre.validation`; ``date_orders`` are by site.
    """

    folds: int = Field(default=5, ge=2, le=100)
    strategy: Literal["hash", "covariate", "site", "random"] = "hash"
    person_key: Name | None = None
    kind: IdentifierKind = "identifier"
    date_orders: dict[str, DateOrder] = Field(default_factory=dict)
    patient_key: Name | None = None
    covariate: Name | None = None
    scheme: Literal["threshold", "binned-hash", "hash"] = "threshold"
    repeats: int = Field(default=1, ge=1, le=100)
    scores: Names | None = None
    by_site: bool = True
    allow_leakage: bool = False
    drop_shared: bool = False


class AnalysisTable(Table):
    """``[[analysis]]``: one of several analyses of a study, all over the same data.

    ``where`` selects the records of this analysis; ``subgroups`` are categories by whose levels it is repeated.
    ``title`` and ``question`` are shown in the report and to the sites that approve them. ``by_site``
    names the variables whose estimates by site are released.
    """

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,59}$")
    method: Name
    title: str = ""
    question: str = ""
    by_site: tuple[Name, ...] = Field(default=(), strict=False)
    where: Name | None = None
    subgroups: Names | None = None
    parameters: dict[str, Any] = Field(default_factory=dict)
    validation: ValidationTable | None = None


class RunTable(Table):
    """``[run]``: settings of the rounds and of the comparison with pooled and single-site fits."""

    quorum: Literal["all"] | Annotated[int, Field(ge=1)] = "all"
    time_limit_s: float | None = Field(default=None, gt=0)
    patience_s: float = Field(default=PATIENCE_S, ge=0)
    refusing_sites: RefusingSites = "stop"
    strict: bool = False
    compare: bool = True
    holdout: float = Field(default=0.25, gt=0, lt=1)
