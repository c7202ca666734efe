"""A study: the contents of ``study.toml``, and its estimator."""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from pydantic import Field, PrivateAttr

from multicentre.core.published_counts import MIN_PUBLISHED
from multicentre.errors import ConfigurationError, MissingExtra, MulticentreError, collected, together
from multicentre.estimator.labels import Labels
from multicentre.estimator.registry import METHODS
from multicentre.privacy.policy import Policy, simulated_policy, unknown_key
from multicentre.studies.saved_models import ModelParameter, replace_models
from multicentre.studies.serialisation import write_toml
from multicentre.studies.tables import (
    About,
    AnalysisTable,
    DataTable,
    File,
    OutcomeTable,
    PrivacyTable,
    RunTable,
    SurvivalTable,
    Table,
    ValidationTable,
)

if TYPE_CHECKING:
    from multicentre.estimator.base import FederatedEstimator


class Study(Table):
    """Analyses that all sites agree to; created by :func:`~multicentre.studies.study_file.read_study`.

    Attributes
    ----------
    about : About
        The table ``[study]``.
    parameters : dict
        Arguments of the method's estimator; fitted models as :class:`~multicentre.studies.saved_models.ModelParameter`.
    data : DataTable
    sites : dict from str to dict from str to Path
        Files of every site by view, or one file under the key ``file`` (also for survival data and tables). For events,
        the keys are ``events`` and ``outcomes``. An empty table means data in memory.
    privacy : PrivacyTable
    run : RunTable
    validation : ValidationTable, optional
    analyses : tuple of AnalysisTable
        The blocks ``[[analysis]]``; empty if the study is a single analysis, which ``[study]`` and ``[parameters]``
        describe.
    """

    about: About = Field(alias="study")
    parameters: dict[str, Any] = Field(default_factory=dict)
    data: DataTable = Field(default_factory=DataTable)
    sites: dict[str, dict[str, File]] = Field(min_length=1)
    privacy: PrivacyTable = Field(default_factory=PrivacyTable)
    run: RunTable = Field(default_factory=RunTable)
    validation: ValidationTable | None = None
    analyses: tuple[AnalysisTable, ...] = Field(default=(), alias="analysis", strict=False)
    _subgroups: tuple[str, ...] = PrivateAttr(())

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.about.name

    @property
    def labels(self) -> Labels:
        """Labels and units of the variables."""
        return Labels.of_study(self.data.model_dump())

    @property
    def method(self) -> str:
        """Name of the method; of several analyses, the names of all methods."""
        return ", ".join(dict.fromkeys(part.about.method for part in self.split().values()))

    def split(self) -> dict[str, Study]:
        """Return a study of a single analysis for each analysis, by name; of a single analysis, itself under ""."""
        if not self.analyses:
            return {"": self}
        return {each.name: self._of(each) for each in self.analyses}

    def _of(self, analysis: AnalysisTable) -> Study:
        about = self.about.model_copy(update={"method": analysis.method, "by_site": analysis.by_site})
        changes = {"about": about, "parameters": analysis.parameters, "validation": analysis.validation, "analyses": ()}
        part = self.model_copy(update=changes)
        part._subgroups = analysis.subgroups or ()
        return part

    @property
    def subgroups(self) -> tuple[str, ...]:
        """Categories by whose levels the single analysis is repeated."""
        return self._subgroups

    def with_exposure_first(self) -> Self:
        """Return the study with its exposure as the first column, so that all tables and answers begin with it."""
        changes = {}
        for kind in ("survival", "table"):
            table: SurvivalTable | OutcomeTable | None = getattr(self.data, kind)
            if table is not None and table.columns and self.about.exposure in table.columns:
                columns = sorted(table.columns, key=lambda name: name != self.about.exposure)
                changes[kind] = table.model_copy(update={"columns": tuple(columns)})
        return self.model_copy(update={"data": self.data.model_copy(update=changes)})

    @property
    def least_published(self) -> int:
        """Smallest count that results state: the largest ``min_cell`` of its tables of patients, 5 by default."""
        stated = [part.parameters["min_cell"] for part in self.split().values() if "min_cell" in part.parameters]
        return max(stated, default=MIN_PUBLISHED)

    @property
    def is_vertical(self) -> bool:
        """True if the sites hold different views of the same patients, as the method requires."""
        from multicentre.estimator.base import find_estimator

        # A method that is unknown or not installed completely is refused when its estimator is made.
        if self.about.method in METHODS:
            with contextlib.suppress(MissingExtra):
                return find_estimator(self.about.method).aligned_by is not None
        return False

    @property
    def masked(self) -> bool:
        """True if sums over sites are masked, which requires at least two sites."""
        return self.privacy.secure_sum and len(self.sites) > 1

    @property
    def policies(self) -> dict[str, Policy]:
        """Policy of every site; files are read at each access, as a policy belongs to its site.

        Accounts of policies that are part of the study are stored in ``accounts`` of the output folder. Without a
        policy, sites have that of a new site as far as the study permits, with a memory of cohorts for one run.
        """
        sources, shared = self.privacy.sites, self.privacy.policy
        if shared is None and not sources:
            return dict.fromkeys(self.sites, simulated_policy(len(self.sites)))
        policies = {
            site: _read_policy(sources[site]) if site in sources else _read_policy(shared).of_site(site)
            for site in self.sites
        }
        accounts = self.about.output / "accounts" / "policy.toml"
        return {site: policy.relative_to(accounts.with_stem(site)) for site, policy in policies.items()}

    @property
    def min_difference(self) -> int:
        """Smallest `min_difference` of the policies, for records with ids or without, as in this study."""
        have_ids = bool(self.data.id_column or self.data.identifiers or self.data.events)
        return min(policy.difference_of(have_ids=have_ids) for policy in self.policies.values())

    def with_output(self, output: Path) -> Self:
        """Return the same study with another folder for its run folders."""
        return self.model_copy(update={"about": self.about.model_copy(update={"output": output.absolute()})})

    def with_models(self) -> Self:
        """Return the same study holding its models, for readers without their files.

        Raises
        ------
        MulticentreError
            A model cannot be read, or is of a kind that a study cannot hold.
        """
        return self._with_models(lambda one: replace(one, path=None, stated="", content=one.packed()))

    def without_files(self) -> Self:
        """Return the same study for a site, which reads no model file that the study names."""
        return self._with_models(ModelParameter.without_file)

    def _with_models(self, change: Callable[[ModelParameter], ModelParameter]) -> Self:
        analyses = tuple(
            one.model_copy(update={"parameters": replace_models(one.parameters, change)}) for one in self.analyses
        )
        return self.model_copy(update={"parameters": replace_models(self.parameters, change), "analyses": analyses})

    def to_toml(self) -> str:
        """Return the study as TOML with absolute paths, independent of the folder."""
        about = self.about.model_dump()
        return write_toml(
            {
                "study": about if about["method"] else {**about, "method": None},
                "parameters": _without_models(self.parameters) if not self.analyses else None,
                "data": self.data.model_dump(),
                "sites": self.sites,
                "privacy": {
                    "secure_sum": self.privacy.secure_sum,
                    "sites_per_patient": self.privacy.sites_per_patient,
                    "pseudonym_key": self.privacy.pseudonym_key,
                    "policy": _policy_source(self.privacy.policy),
                    "sites": {site: _policy_source(source) for site, source in self.privacy.sites.items()} or None,
                },
                "run": self.run.model_dump(),
                "validation": self.validation and self.validation.model_dump(),
                "analysis": [
                    {**analysis.model_dump(), "parameters": _without_models(analysis.parameters)}
                    for analysis in self.analyses
                ]
                or None,
            }
        )


def _without_models(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return parameters with the values of given models as TOML holds them."""
    return replace_models(parameters, ModelParameter.plain)


def _read_policy(source: Path | Policy | None) -> Policy:
    if source is None:
        return Policy()
    return source if isinstance(source, Policy) else Policy.read(source)


def _policy_source(source: Path | Policy | None) -> Any:
    return dataclasses.asdict(source) if isinstance(source, Policy) else source


def make_estimator(study: Study) -> FederatedEstimator:
    """Return the unfitted estimator of a study of a single analysis; see :meth:`Study.split`.

    The study's seed becomes ``random_state``, and the first of its identifiers ``person_key``, unless ``[parameters]``
    says otherwise. Models among the parameters are loaded.

    Raises
    ------
    ConfigurationError
        The method or one of its parameters is unknown, or a parameter is out of range.
    IntegrityError
        The files of a model are missing, damaged or changed.
    """
    from multicentre.estimator.base import find_estimator

    if study.analyses:
        raise ConfigurationError(
            f"the study must be a single analysis here; it has {len(study.analyses)}",
            where="analysis",
            hint="Make a study of one of them, with [study] method and [parameters].",
        )
    kind = find_estimator(study.method)
    if study.about.by_site:
        from multicentre.studies.by_site import check_by_site

        check_by_site(kind)
    parameter_names = [name for name in inspect.signature(kind).parameters if name != "kwargs"]
    if unknown := [name for name in study.parameters if name not in parameter_names]:
        error = unknown_key(unknown, parameter_names, f"parameters of {study.method}")
        error.hint += "".join(f" {name}: {kind.lacks[name]}." for name in unknown if name in kind.lacks)
        raise error
    usual: dict[str, Any] = {"random_state": study.about.seed, "person_key": (study.data.identifiers or [None])[0]}
    usual = {name: value for name, value in usual.items() if name in parameter_names and value is not None}
    parameters = replace_models(study.parameters, ModelParameter.load)
    try:
        estimator = kind(**{**usual, **parameters})
        estimator.exposure, estimator.least_published = study.about.exposure, study.least_published
        estimator.in_subgroups = bool(study.subgroups)
    except TypeError as error:
        raise ConfigurationError(
            f"parameters must fit the estimator ({error})", where="parameters", hint="See the method's documentation."
        ) from None
    estimator._check_parameters()  # of all analyses, before the first one runs
    return estimator


def make_estimators(study: Study) -> dict[str, FederatedEstimator]:
    """Return the unfitted estimator of each analysis of a study, by the name of its block; see :func:`make_estimator`.

    Errors name the block.
    """
    estimators, faults = {}, list[MulticentreError]()
    for name, part in study.split().items():
        with collected(faults, f"analysis {name}" if name else ""):
            estimators[name] = make_estimator(part)
            estimators[name].least_published = study.least_published
    if faults:
        raise together(faults)
    return estimators
