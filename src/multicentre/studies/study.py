"""The study that all sites agreed to, as ``study.toml`` holds it."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError

from multicentre.federation.errors import ConfigurationError
from multicentre.federation.storage import check_site_name
from multicentre.privacy.policy import Policy, unknown_key
from multicentre.studies.toml import write_toml

ONE_FILE = "file"


def _from_study(value: Any, info: ValidationInfo) -> Any:
    folder = (info.context or {}).get("folder", Path())
    return (folder / value).absolute() if isinstance(value, str | Path) and str(value) else value


def _policy(value: Any, info: ValidationInfo) -> Path | Policy:
    if isinstance(value, Policy):
        return value
    if isinstance(value, Mapping):
        return _policy_of_terms(value)
    if not isinstance(value, str | Path):
        raise ValueError("a path or a table of policy terms is needed")
    return Path(_from_study(value, info))


def _policy_of_terms(terms: Mapping[str, Any]) -> Policy:
    """Return the policy; what is wrong with it is raised for pydantic, which knows whose it is."""
    try:
        return Policy.from_mapping(terms)
    except ConfigurationError as error:
        raise PydanticCustomError("policy", "unfit", {"error": error}) from None


File = Annotated[Path, BeforeValidator(_from_study)]
PolicySource = Annotated[Path | Policy, PlainValidator(_policy)]
Names = Annotated[tuple[str, ...], Field(strict=False, min_length=1)]


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class About(_Table):
    """``[study]``: what is run, under which name, and where its run folders go."""

    name: str = Field(min_length=1)
    method: str = Field(min_length=1)
    seed: int = Field(default=0, ge=0)
    output: File = Field(default=Path("runs"), validate_default=True)
    description: str = ""


class DataTable(_Table):
    """``[data]``: how the sites' files are to be read."""

    id_column: str | None = None
    label_column: str | None = None
    views: dict[str, Names] = Field(default_factory=dict)


class PrivacyTable(_Table):
    """``[privacy]``: masked sums, one policy for all sites, and policies of single sites in ``[privacy.sites]``.

    ``sites_per_patient`` says at how many sites one patient may have records.
    """

    secure_sum: bool = False
    sites_per_patient: int = Field(default=1, ge=1)
    policy: PolicySource | None = None
    sites: dict[str, PolicySource] = Field(default_factory=dict)


class RunTable(_Table):
    """``[run]``: how the rounds are run, and whether the fit is compared with pooled and single-site fits."""

    quorum: Literal["all"] | Annotated[int, Field(ge=1)] = "all"
    time_limit_s: float | None = Field(default=None, gt=0)
    strict: bool = False
    compare: bool = True
    holdout: float = Field(default=0.25, gt=0, lt=1)


class Study(_Table):
    """One analysis that all sites agreed to; made by :func:`read_study` or :meth:`from_mapping`.

    Attributes
    ----------
    about : About
        The table ``[study]``.
    parameters : dict
        Arguments of the method's estimator.
    data : DataTable
    sites : dict from str to dict from str to Path
        Files of every site by view, or one under the key ``file``. An empty table stands for data in memory.
    privacy : PrivacyTable
    run : RunTable
    """

    about: About = Field(alias="study")
    parameters: dict[str, Any] = Field(default_factory=dict)
    data: DataTable = Field(default_factory=DataTable)
    sites: dict[str, dict[str, File]] = Field(min_length=1)
    privacy: PrivacyTable = Field(default_factory=PrivacyTable)
    run: RunTable = Field(default_factory=RunTable)

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
        _check_sites(study)
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
                    "policy": _policy_source(self.privacy.policy),
                    "sites": {site: _policy_source(source) for site, source in self.privacy.sites.items()} or None,
                },
                "run": self.run.model_dump(),
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
_TABLES: dict[str, type[_Table]] = {
    "study": About,
    "data": DataTable,
    "privacy": PrivacyTable,
    "run": RunTable,
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
        raise ConfigurationError("the study cannot be read", where=str(path), mend=f"{error.strerror}.") from None
    except UnicodeDecodeError:
        raise ConfigurationError("the study is not UTF-8", where=str(path), mend="Save it as UTF-8.") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigurationError("the study is not valid TOML", where=str(path), mend=f"{error}.") from None
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
        return ConfigurationError("the key is missing", where=where, mend="Add it; docs/study-file.md lists all keys.")
    if first["type"] == "policy":
        unfit: ConfigurationError = first["ctx"]["error"]
        return ConfigurationError(unfit.what, where=f"{where}, {unfit.where}", mend=unfit.mend)
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
        return list(_TABLES[place[0]].model_fields)
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


def _check_sites(study: Study) -> None:
    for site, files in study.sites.items():
        check_site_name(site)
        if ONE_FILE in files and len(files) > 1:
            raise ConfigurationError(
                "the site has one file for all views and files of single views",
                where=f"sites.{site}",
                mend="Name either `file` or one file a view.",
            )
        if ONE_FILE in files and not study.data.views:
            raise ConfigurationError(
                "one file holds several views and nothing says which column is whose",
                where=f"sites.{site}.{ONE_FILE}",
                mend="List the columns of every view in [data.views].",
            )
    _check_views(study)
    for site in study.privacy.sites:
        if site not in study.sites:
            raise unknown_key(site, list(study.sites), "privacy.sites")
    if study.run.quorum != "all" and study.run.quorum > len(study.sites):
        raise ConfigurationError(
            f"a quorum of {study.run.quorum} cannot be met by {len(study.sites)} sites",
            where="run.quorum",
            mend='Use "all" or a number between 1 and the number of sites.',
        )
    if study.privacy.secure_sum and len(study.sites) == 1:
        raise ConfigurationError(
            "one site has nobody to mask its sums with",
            where="privacy.secure_sum",
            mend="Name another site, or leave masked sums out.",
        )


def _check_views(study: Study) -> None:
    files = [file for site in study.sites.values() for file in site]
    if not files or ONE_FILE in files:
        return
    for view in study.data.views:
        if view not in files:
            raise unknown_key(view, list(dict.fromkeys(files)), "data.views")
