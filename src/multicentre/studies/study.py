"""Study file ``study.toml``: reading, validation and digest of the terms that all sites agree to."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pydantic import Field, ValidationError

from multicentre.federation.errors import ConfigurationError
from multicentre.privacy.policy import Policy, unknown_key
from multicentre.studies.checks import check_study
from multicentre.studies.formats import write_toml
from multicentre.studies.models import find_models, replace_models
from multicentre.studies.tables import (
    About,
    DataTable,
    EventsTable,
    File,
    OutcomeTable,
    PrivacyTable,
    RunTable,
    SurvivalTable,
    Table,
    ValidationTable,
)


class Study(Table):
    """One analysis that all sites agree to; created by :func:`read_study` or :meth:`from_mapping`.

    Attributes
    ----------
    about : About
        The table ``[study]``.
    parameters : dict
        Arguments of the method's estimator; fitted models as :class:`~multicentre.studies.models.SavedModelPath`.
    data : DataTable
    sites : dict from str to dict from str to Path
        Files of every site by view, or one file under the key ``file`` (also for survival data and tables). For events,
        the keys are ``events`` and ``outcomes``. An empty table means data in memory.
    privacy : PrivacyTable
    run : RunTable
    validation : ValidationTable, optional
    """

    about: About = Field(alias="study")
    parameters: dict[str, Any] = Field(default_factory=dict)
    data: DataTable = Field(default_factory=DataTable)
    sites: dict[str, dict[str, File]] = Field(min_length=1)
    privacy: PrivacyTable = Field(default_factory=PrivacyTable)
    run: RunTable = Field(default_factory=RunTable)
    validation: ValidationTable | None = None

    @classmethod
    def from_mapping(cls, content: Mapping[str, Any], *, folder: Path | None = None) -> Self:
        """Create a study from the tables of ``study.toml``.

        Parameters
        ----------
        content : mapping
        folder : Path, optional
            Base of relative paths; the current folder by default.

        Raises
        ------
        ConfigurationError
            A key is unknown or missing, or a value is invalid; the message names it.

        Examples
        --------
        >>> study = Study.from_mapping({"study": {"name": "pilot", "method": "fed-mv-ppca"}, "sites": {"lyon": {}}})
        >>> study.name, study.run.quorum
        ('pilot', 'all')
        """
        try:
            study = cls.model_validate(dict(content), context={"folder": folder or Path()})
        except ValidationError as error:
            raise _translated(error, content) from None
        parameters = find_models(study.method, study.parameters, folder or Path())
        study = study.model_copy(update={"parameters": parameters})
        check_study(study)
        return study

    @property
    def name(self) -> str:
        """Name of the study."""
        return self.about.name

    @property
    def method(self) -> str:
        """Name of the method."""
        return self.about.method

    @property
    def masked(self) -> bool:
        """True if sums over sites are masked, which requires at least two sites."""
        return self.privacy.secure_sum and len(self.sites) > 1

    @property
    def policies(self) -> dict[str, Policy]:
        """Policy of every site; files are read at each access, as a policy belongs to its site.

        Accounts of policies that are part of the study are stored in ``accounts`` of the output folder.
        """
        sources, shared = self.privacy.sites, _read_policy(self.privacy.policy)
        policies = {
            site: _read_policy(sources[site]) if site in sources else shared.of_site(site) for site in self.sites
        }
        accounts = self.about.output / "accounts" / "policy.toml"
        return {site: policy.relative_to(accounts.with_stem(site)) for site, policy in policies.items()}

    def sent_to(self, output: Path) -> Self:
        """Return the same study with another folder for its run folders."""
        return self.model_copy(update={"about": self.about.model_copy(update={"output": output.absolute()})})

    def to_toml(self) -> str:
        """Return the study as TOML with absolute paths, independent of the folder."""
        return write_toml(
            {
                "study": self.about.model_dump(),
                "parameters": replace_models(self.parameters, lambda model: model.path),
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
            }
        )


_NEEDED = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "float_type": "a number",
    "int_type": "a whole number",
    "is_instance_of": "a path in quotes",
    "model_type": "a table",
    "string_type": "a text in quotes",
    "tuple_type": "a list of names",
}

_TABLES: dict[str, type[Table]] = {
    "study": About,
    "data": DataTable,
    "data.events": EventsTable,
    "data.survival": SurvivalTable,
    "data.table": OutcomeTable,
    "privacy": PrivacyTable,
    "run": RunTable,
    "validation": ValidationTable,
}


def read_study(path: str | Path) -> Study:
    """Read ``study.toml``; relative paths are relative to its folder.

    Raises
    ------
    ConfigurationError
        The file is missing or is not TOML, a key is unknown or missing, or a value is invalid.
    """
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError("failed to read the study", where=str(path), hint=f"{error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigurationError(
            "the study must be encoded as UTF-8", where=str(path), hint="Save it as UTF-8."
        ) from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError("the study must be valid TOML", where=str(path), hint=f"{error}.") from None
    try:
        return Study.from_mapping(content, folder=path.parent)
    except ConfigurationError as error:
        raise error.at(str(path)) from None


def _read_policy(source: Path | Policy | None) -> Policy:
    if source is None:
        return Policy()
    return source if isinstance(source, Policy) else Policy.read(source)


def _policy_source(source: Path | Policy | None) -> Any:
    return dataclasses.asdict(source) if isinstance(source, Policy) else source


def _translated(error: ValidationError, content: Mapping[str, Any]) -> ConfigurationError:
    errors = error.errors(include_input=False, include_url=False)
    # An unknown key comes first: a misspelt key is also reported as missing.
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    place = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        return unknown_key(place[-1], _known_keys(place[:-1]), ".".join(place[:-1]) or "study")
    where = ".".join(_within(place, content))
    if first["type"] == "missing":
        return ConfigurationError(
            "the key must be given; it is missing", where=where, hint="Add it; docs/study-file.md lists all keys."
        )
    if first["type"] == "policy":
        invalid: ConfigurationError = first["ctx"]["error"]
        return ConfigurationError(invalid.what, where=f"{where}, {invalid.where}", hint=invalid.hint)
    return ConfigurationError(
        f"the value must {_needed(place, first)}", where=where, hint="See docs/study-file.md for all keys."
    )


def _needed(place: Sequence[str], error: Mapping[str, Any]) -> str:
    """Return the requirement on the values of a key, in terms of TOML; it completes "the value must"."""
    if place[:2] == ["run", "quorum"]:
        return 'be "all" or a whole number of at least 1'
    if error["type"] in _NEEDED:
        return f"be {_NEEDED[error['type']]}"
    message = str(error["msg"]).removeprefix("Value error, ")
    _, should, requirement = message.partition(" should ")
    return requirement if should else f"be {message[:1].lower()}{message[1:]}"


def _known_keys(place: list[str]) -> list[str]:
    if place:
        return list(_TABLES[".".join(place)].model_fields)
    return [field.alias or name for name, field in Study.model_fields.items()]


def _within(place: list[str], content: Any) -> list[str]:
    """Return the part of a location that consists of keys; pydantic appends the member of a union."""
    keys = []
    for part in place:
        if not isinstance(content, Mapping):
            break
        keys.append(part)
        content = content.get(part)
    return keys


def digest_of(study: Study) -> str:
    """Return the SHA-256 of a study's terms: method, parameters, schema, privacy, rounds and the names of its sites.

    Excluded are settings that differ between readers: paths, policies, the folder of results, the comparison of a
    simulated run, and the time that the coordinator waits for an absent site. A fitted model among the parameters is
    included by the SHA-256 of its files.

    Examples
    --------
    >>> about, data = {"name": "pilot", "method": "fed-cox"}, {"survival": {"columns": ["age"]}}
    >>> said = {"study": about, "data": data, "sites": {"lyon": {"file": "lyon.csv"}}}
    >>> there = {**said, "sites": {"lyon": {"file": "elsewhere/table.csv"}}}
    >>> digest_of(Study.from_mapping(said)) == digest_of(Study.from_mapping(there))
    True
    >>> digest_of(Study.from_mapping({**said, "parameters": {"ties": "breslow"}})) == digest_of(
    ...     Study.from_mapping(said)
    ... )
    False
    """
    return hashlib.sha256(json.dumps(agreed_in(study), sort_keys=True).encode()).hexdigest()


def agreed_in(study: Study) -> dict[str, Any]:
    """Return a study's terms as plain values; :func:`digest_of` is their hash.

    Raises
    ------
    IntegrityError
        The files of a model among the parameters are missing or damaged.
    """
    agreed = {
        "study": study.about.model_dump(exclude={"output", "description"}),
        "parameters": replace_models(study.parameters, lambda model: {"sha256": model.sha256}),
        "data": study.data.model_dump(),
        "sites": sorted(study.sites),
        "privacy": study.privacy.model_dump(exclude={"pseudonym_key", "policy", "sites"}),
        "run": study.run.model_dump(exclude={"strict", "compare", "holdout", "patience_s"}),
        "validation": study.validation and study.validation.model_dump(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(agreed, sort_keys=True, default=str))
    return plain
