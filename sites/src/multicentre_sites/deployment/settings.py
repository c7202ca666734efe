"""Settings in TOML with typed keys; the message for an unknown key suggests the nearest one."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from multicentre.core.parsing import read_toml
from multicentre.studies.invalid_keys import invalid_keys
from multicentre.studies.tables import Table

T = TypeVar("T", bound=Table)


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
        raise invalid_keys(error, kind, content, file="the file").at(str(path)) from None
