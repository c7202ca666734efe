"""Reading of the study file ``study.toml``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from multicentre.core.parsing import read_toml
from multicentre.errors import ConfigurationError
from multicentre.privacy.policy import unknown_key
from multicentre.studies.checks import check_study
from multicentre.studies.saved_models import find_models
from multicentre.studies.study import Study
from multicentre.studies.tables import (
    About,
    AnalysisTable,
    DataTable,
    EventsTable,
    OutcomeTable,
    PrivacyTable,
    RunTable,
    SurvivalTable,
    Table,
    ValidationTable,
)

# Name of the validation of a given model in study files, and the method of each kind of outcome.
VALIDATE = "validate"
VALIDATORS = {
    "survival": "survival-evaluation",
    "class": "classifier-validation",
    "number": "regressor-validation",
}
_REQUIREMENTS = {
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
    "analysis": AnalysisTable,
    "analysis.validation": ValidationTable,
}


def read_study(path: str | Path) -> Study:
    """Read ``study.toml``; relative paths are relative to its folder.

    Raises
    ------
    ConfigurationError
        The file is missing or is not TOML, a key is unknown or missing, or a value is invalid.
    """
    path = Path(path)
    content = read_toml(path, "the study")
    try:
        return study_from_mapping(content, folder=path.parent)
    except ConfigurationError as error:
        raise error.at(str(path)) from None


def study_from_mapping(content: Mapping[str, Any], *, folder: Path | None = None) -> Study:
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
    >>> study = study_from_mapping({"study": {"name": "pilot", "method": "fed-mv-ppca"}, "sites": {"lyon": {}}})
    >>> study.name, study.run.quorum
    ('pilot', 'all')
    """
    try:
        study = Study.model_validate(dict(content), context={"folder": folder or Path()})
    except ValidationError as error:
        raise _configuration_error(error, content) from None
    base, data = folder or Path(), study.data
    about = study.about.model_copy(update={"method": _method_of(study.about.method, data)})
    parameters = find_models(about.method, study.parameters, base)
    named = (one.model_copy(update={"method": _method_of(one.method, data)}) for one in study.analyses)
    analyses = tuple(_with_models(each, base) for each in named)
    study = study.model_copy(update={"about": about, "parameters": parameters, "analyses": analyses})
    check_study(study)
    return study.with_exposure_first()


def _method_of(method: str, data: DataTable) -> str:
    """Return the registered method; "validate" is that of the study's kind of outcome.

    Raises
    ------
    ConfigurationError
        The study has no outcome, or outcomes of two kinds.
    """
    if method != VALIDATE:
        return method
    kinds = {"survival": data.survival is not None, "class": False, "number": False}
    if data.table is not None:
        kinds[data.table.kind] = True
    methods = [VALIDATORS[kind] for kind, is_declared in kinds.items() if is_declared]
    if len(methods) != 1:
        raise ConfigurationError(
            f'method "{VALIDATE}" must have one kind of outcome in the study; got {len(methods)}',
            where="method",
            hint=f"Name the method itself: {', '.join(VALIDATORS.values())}.",
        )
    return methods[0]


def _with_models(analysis: AnalysisTable, folder: Path) -> AnalysisTable:
    try:
        parameters = find_models(analysis.method, analysis.parameters, folder)
    except ConfigurationError as error:
        raise error.at(f"analysis {analysis.name}") from None
    return analysis.model_copy(update={"parameters": parameters})


def _configuration_error(error: ValidationError, content: Mapping[str, Any]) -> ConfigurationError:
    errors = error.errors(include_input=False, include_url=False)
    # An unknown key comes first: a misspelt key is also reported as missing.
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    place = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        return unknown_key(place[-1], _valid_keys(place[:-1]), ".".join(place[:-1]) or "study")
    where = ".".join(_within(place, content))
    if first["type"] == "missing":
        return ConfigurationError(
            "the key must be given; it is missing", where=where, hint="Add it. All keys: multicentre docs study-file"
        )
    if first["type"] == "policy":
        invalid: ConfigurationError = first["ctx"]["error"]
        return ConfigurationError(invalid.what, where=f"{where}, {invalid.where}", hint=invalid.hint)
    return ConfigurationError(
        f"the value must {_requirement(place, first)}", where=where, hint="All keys: multicentre docs study-file"
    )


def _requirement(place: Sequence[str], error: Mapping[str, Any]) -> str:
    """Return the requirement on the values of a key, in terms of TOML; it completes "the value must"."""
    if place[:2] == ["run", "quorum"]:
        return 'be "all" or a whole number of at least 1'
    if error["type"] in _REQUIREMENTS:
        return f"be {_REQUIREMENTS[error['type']]}"
    message = str(error["msg"]).removeprefix("Value error, ")
    _, should, requirement = message.partition(" should ")
    return requirement if should else f"be {message[:1].lower()}{message[1:]}"


def _valid_keys(place: list[str]) -> list[str]:
    if place:
        keys = [part for part in place if not part.isdigit()]  # a block of several has a number
        return list(_TABLES[".".join(keys)].model_fields)
    return [field.alias or name for name, field in Study.model_fields.items()]


def _within(place: list[str], content: Any) -> list[str]:
    """Return the part of a location that consists of keys; pydantic appends the member of a union."""
    keys = []
    for part in place:
        if isinstance(content, list) and part.isdigit() and int(part) < len(content):
            keys.append(f"{int(part) + 1}")  # blocks are counted from 1
            content = content[int(part)]
            continue
        if not isinstance(content, Mapping):
            break
        keys.append(part)
        content = content.get(part)
    return keys
