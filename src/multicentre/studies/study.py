"""The study that all sites agreed to, as ``study.toml`` holds it."""

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
    """One analysis that all sites agreed to; made by :func:`read_study` or :meth:`from_mapping`.

    Attributes
    ----------
    about : About
        The table ``[study]``.
    parameters : dict
        Arguments of the method's estimator.
    data : DataTable
    sites : dict from str to dict from str to Path
        Files of every site by view, or one under the key ``file``, as that with times to an event or an outcome; of
        events, the keys are ``events`` and ``outcomes``. An empty table stands for data in memory.
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
        """Make a study from the tables of ``study.toml``.

        Parameters
        ----------
        content : mapping
        folder : Path, optional
            Relative paths start here; the current folder by default.

        Raises
        ------
        ConfigurationError
            A key is unknown or missing, or a value is unfit; the message says which.

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
        """Whether sums over sites are masked; a single site has no other to mask its answers with."""
        return self.privacy.secure_sum and len(self.sites) > 1

    @property
    def policies(self) -> dict[str, Policy]:
        """The policy of every site; files are read anew, for a policy belongs to its site.

        What a policy written into the study has to keep between runs goes to ``accounts`` of the output folder.
        """
        own, shared = self.privacy.sites, _read_policy(self.privacy.policy)
        policies = {site: _read_policy(own[site]) if site in own else shared.of_site(site) for site in self.sites}
        accounts = self.about.output / "accounts" / "policy.toml"
        return {site: policy.beside(accounts.with_stem(site)) for site, policy in policies.items()}

    def sent_to(self, output: Path) -> Self:
        """Return the same study with another folder for its run folders."""
        return self.model_copy(update={"about": self.about.model_copy(update={"output": output.absolute()})})

    def to_toml(self) -> str:
        """Return the study as TOML with absolute paths, so that it means the same in any folder."""
        return write_toml(
            {
                "study": self.about.model_dump(),
                "parameters": self.parameters,
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
    """Read ``study.toml``; relative paths in it start at its folder.

    Raises
    ------
    ConfigurationError
        The file is missing or is not TOML, a key is unknown or missing, or a value is unfit.
    """
    path = Path(path)
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigurationError("the study cannot be read", where=str(path), hint=f"{error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigurationError("the study is not UTF-8", where=str(path), hint="Save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError("the study is not valid TOML", where=str(path), hint=f"{error}.") from None
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
    found = error.errors(include_input=False, include_url=False)
    first = next((one for one in found if one["type"] == "extra_forbidden"), found[0])  # a misspelt key is missing too
    place = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        return unknown_key(place[-1], _known_keys(place[:-1]), ".".join(place[:-1]) or "study")
    where = ".".join(_within(place, content))
    if first["type"] == "missing":
        return ConfigurationError("the key is missing", where=where, hint="Add it; docs/study-file.md lists all keys.")
    if first["type"] == "policy":
        unfit: ConfigurationError = first["ctx"]["error"]
        return ConfigurationError(unfit.what, where=f"{where}, {unfit.where}", hint=unfit.hint)
    return ConfigurationError(f"the value cannot be used: {_needed(place, first)}", where=where)


def _needed(place: Sequence[str], found: Mapping[str, Any]) -> str:
    """Return what a value should be, in the words of TOML rather than of Python."""
    if place[:2] == ["run", "quorum"]:
        return '"all" or a whole number of at least 1 is needed'
    if found["type"] in _NEEDED:
        return f"{_NEEDED[found['type']]} is needed"
    message = str(found["msg"]).removeprefix("Value error, ").replace("Input should be", "it should be")
    return f"{message[:1].lower()}{message[1:]}"


def _known_keys(place: list[str]) -> list[str]:
    if place:
        return list(_TABLES[".".join(place)].model_fields)
    return [field.alias or name for name, field in Study.model_fields.items()]


def _within(place: list[str], content: Any) -> list[str]:
    """Return the part of a place that names keys; pydantic adds the member of a union that it tried."""
    kept = []
    for part in place:
        if not isinstance(content, Mapping):
            break
        kept.append(part)
        content = content.get(part)
    return kept


def digest_of(study: Study) -> str:
    """Return the SHA-256 of a study's terms: method, parameters, schema, privacy, rounds and the names of its sites.

    Not part of it is what each reader has of its own: paths, policies, the folder of results, with what a simulated run
    is compared, and how long the coordinator waits for a site that is away.

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
    """Return a study's terms as plain values; :func:`digest_of` is their hash."""
    agreed = {
        "study": study.about.model_dump(exclude={"output", "description"}),
        "parameters": study.parameters,
        "data": study.data.model_dump(),
        "sites": sorted(study.sites),
        "privacy": study.privacy.model_dump(exclude={"pseudonym_key", "policy", "sites"}),
        "run": study.run.model_dump(exclude={"strict", "compare", "holdout", "patience_s"}),
        "validation": study.validation and study.validation.model_dump(),
    }
    plain: dict[str, Any] = json.loads(json.dumps(agreed, sort_keys=True, default=str))
    return plain
