"""Errors for all invalid keys of a TOML file at once: unknown and missing keys, and values of another type or range."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from multicentre.errors import ConfigurationError, MulticentreError, together
from multicentre.privacy.policy import unknown_key

_REQUIREMENTS = {
    "bool_type": "true or false",
    "dict_type": "a table",
    "float_type": "a number",
    "int_type": "a whole number",
    "is_instance_of": "a path in quotes",
    "model_type": "a table",
    "string_too_short": "a text of at least one character",
    "string_type": "a text in quotes",
    "tuple_type": "a list of names",
}


def invalid_keys(
    error: ValidationError, kind: type[BaseModel], content: Mapping[str, Any], *, file: str, hint: str = ""
) -> MulticentreError:
    """Return one error for all faults that pydantic reports: the first one, with the others as notes.

    Parameters
    ----------
    error : pydantic ValidationError
    kind : type
        Model of the file.
    content : mapping
        Content of the file.
    file : str
        Location of unknown tables.
    hint : str, optional
        Where all keys are documented.
    """
    faults: dict[str, ConfigurationError] = {}  # by key: pydantic reports a value once per member of a union
    suggestions: dict[tuple[int | str, ...], str] = {}
    problems = error.errors(include_input=False, include_url=False)
    for problem in sorted(problems, key=lambda one: one["type"] != "extra_forbidden"):
        place = [str(part) for part in problem["loc"]]
        table, where = problem["loc"][:-1], ".".join(_within(place, content) or place)
        if problem["type"] == "extra_forbidden":
            names = ".".join(_within(place, content)[:-1]) or file
            faults[where] = unknown_key(place[-1], _valid_keys(kind, place[:-1]), names)
            suggestions[table] = suggestions.get(table, "") + faults[where].hint
        elif problem["type"] != "missing" or repr(place[-1]) not in suggestions.get(table, ""):
            fault = _fault(problem, place, where, hint)
            hint = "" if hint and hint in fault.hint else hint  # once per file
            faults.setdefault(where, fault)
    return together(list(faults.values()))


def _fault(problem: ErrorDetails, place: Sequence[str], where: str, hint: str) -> ConfigurationError:
    """Return the error for a missing key or an invalid value."""
    if problem["type"] == "missing":
        return ConfigurationError("the key must be given; it is missing", where=where, hint=f"Add it. {hint}".strip())
    if problem["type"] == "policy":
        invalid: ConfigurationError = problem["ctx"]["error"]
        return ConfigurationError(invalid.what, where=f"{where}, {invalid.where}", hint=invalid.hint)
    return ConfigurationError(f"the value must {_requirement(place, problem)}", where=where, hint=hint)


def _requirement(place: Sequence[str], error: ErrorDetails) -> str:
    """Return the requirement on the values of a key, in terms of TOML; it completes "the value must"."""
    if place[:2] == ["run", "quorum"]:
        return 'be "all" or a whole number of at least 1'
    if error["type"] in _REQUIREMENTS:
        return f"be {_REQUIREMENTS[error['type']]}"
    message = str(error["msg"]).removeprefix("Value error, ")
    for verb in (" should ", " must "):
        if verb in message:
            return message.partition(verb)[2]
    return f"be {message[:1].lower()}{message[1:]}"


def _valid_keys(kind: type[BaseModel], place: Sequence[str]) -> list[str]:
    """Return the keys of the table at `place`."""
    for part in place:
        fields = {field.alias or name: field for name, field in kind.model_fields.items()}
        inner = fields[part].annotation if part in fields else None
        models = [one for one in (inner, *get_args(inner)) if isinstance(one, type) and issubclass(one, BaseModel)]
        kind = models[0] if models else kind
    return [field.alias or name for name, field in kind.model_fields.items()]


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
