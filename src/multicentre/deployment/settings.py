"""Settings in TOML with typed keys; the message for an unknown key suggests the nearest one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from multicentre.core.parsing import read_toml
from multicentre.errors import ConfigurationError
from multicentre.privacy.policy import unknown_key
from multicentre.studies.tables import Table

T = TypeVar("T", bound=Table)

_REQUIREMENTS = {
    "bool_type": "true or false is needed",
    "dict_type": "a table is needed",
    "int_type": "a whole number is needed",
    "is_instance_of": "a path in quotes is needed",
    "model_type": "a table is needed",
    "string_too_short": "a text of at least one character is needed",
    "string_type": "a text in quotes is needed",
}


def read_settings(kind: type[T], path: Path, description: str) -> T:
    """Return settings from a file; relative paths in it start at its folder.

    Parameters
    ----------
    kind : type
        A table of tables.
    path : Path
    description : str
        Name of the file in messages.

    Raises
    ------
    ConfigurationError
        The file cannot be read, a key is unknown or missing, or a value is invalid.
    """
    content = read_toml(path, description)
    try:
        return kind.model_validate(content, context={"folder": path.parent})
    except ValidationError as error:
        raise _configuration_error(error, kind, content).at(str(path)) from None


def _configuration_error(error: ValidationError, kind: type[Table], content: Mapping[str, Any]) -> ConfigurationError:
    problems = error.errors(include_input=False, include_url=False)
    first = next(
        (one for one in problems if one["type"] == "extra_forbidden"), problems[0]
    )  # a misspelt key is also reported as missing
    place = [str(part) for part in first["loc"]]
    if first["type"] == "extra_forbidden":
        return unknown_key(place[-1], _valid_keys(kind, place[:-1]), ".".join(place[:-1]) or "the file")
    where = ".".join(_within(place, content) or place)
    if first["type"] == "missing":
        return ConfigurationError("the key is required; it is missing", where=".".join(place), hint="Add it.")
    if first["type"] == "policy":
        unfit: ConfigurationError = first["ctx"]["error"]
        return ConfigurationError(unfit.what, where=f"{where}, {unfit.where}", hint=unfit.hint)
    reason = str(first["msg"]).removeprefix("Value error, ")
    needed = _REQUIREMENTS.get(first["type"], f"{reason[:1].lower()}{reason[1:]}")
    return ConfigurationError(f"the value cannot be used: {needed}", where=where)


def _valid_keys(kind: type[BaseModel], place: list[str]) -> list[str]:
    """Return the keys of the table at `place`."""
    for part in place:
        inner = kind.model_fields[part].annotation if part in kind.model_fields else None
        models = [one for one in (inner, *get_args(inner)) if isinstance(one, type) and issubclass(one, BaseModel)]
        kind = models[0] if models else kind
    return list(kind.model_fields)


def _within(place: list[str], content: Any) -> list[str]:
    path = []
    for part in place:
        if not isinstance(content, Mapping):
            break
        path.append(part)
        content = content.get(part)
    return path
