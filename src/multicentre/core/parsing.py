"""Parsers of TOML and JSON texts from other people: damaged and deeply nested texts raise ValueError alone."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

from multicentre.errors import ConfigurationError

LARGEST = 4 * 2**20  # bytes; settings, studies and rosters have some kilobytes
_TOO_DEEP = "Values are nested too deep"
# Levels of tables and lists in a file; ours have fewer than 20. Later steps, and Python, take some hundreds.
MAX_LEVELS = 100
# A dotted key of more parts, for which the parser of TOML takes quadratic time.
_PART = r"""(?:[A-Za-z0-9_-]+|"[^"\n]*"|'[^'\n]*')"""
_LONG_KEY = re.compile(rf"""(?<![A-Za-z0-9_"'-]){_PART}(?:[ \t]*\.[ \t]*{_PART}){{{MAX_LEVELS}}}""")


def load_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises
    ------
    ValueError
        The text is not JSON in UTF-8, or is nested too deep.
    """
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError(_TOO_DEEP) from None
    if _is_too_deep(content):
        raise ValueError(_TOO_DEEP)
    return content


def load_toml(content: str | bytes) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Raises
    ------
    ValueError
        The text is not TOML in UTF-8, or is nested too deep.
    """
    text = content if isinstance(content, str) else content.decode()
    if _LONG_KEY.search(text):
        raise tomllib.TOMLDecodeError(_TOO_DEEP)
    try:
        tables = tomllib.loads(text)
    except RecursionError:
        raise tomllib.TOMLDecodeError(_TOO_DEEP) from None
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:  # of a number with thousands of digits
        raise tomllib.TOMLDecodeError("A number has too many digits") from None
    if _is_too_deep(tables):
        raise tomllib.TOMLDecodeError(_TOO_DEEP)
    return tables


def _is_too_deep(content: Any) -> bool:
    level: list[Any] = [content] if isinstance(content, dict | list) else []
    for _ in range(MAX_LEVELS):
        level = [one for each in level for one in (each.values() if isinstance(each, dict) else each)]
        level = [each for each in level if isinstance(each, dict | list)]
    return bool(level)


def parse_toml(content: str | bytes, description: str, where: str) -> dict[str, Any]:
    """Return the tables of a TOML text.

    Parameters
    ----------
    content : str or bytes
    description : str
        Name of the text in messages.
    where : str
        Path of the file.

    Raises
    ------
    ConfigurationError
        The text is too long, is not TOML in UTF-8, or is nested too deep.
    """
    if len(content) > LARGEST:
        size = len(content) / 2**20
        raise ConfigurationError(
            f"{description} must have at most {LARGEST // 2**20} MiB; got {size:.0f} MiB", where=where
        )
    try:
        return load_toml(content)
    except UnicodeDecodeError:
        what, hint = f"{description} must be UTF-8; got another encoding", "Save it as UTF-8."
    except tomllib.TOMLDecodeError as error:
        what, hint = f"{description} must be valid TOML; got another text", f"{error}."
    raise ConfigurationError(what, where=where, hint=hint)


def read_toml(path: Path, description: str) -> dict[str, Any]:
    """Return the tables of a small file.

    Parameters
    ----------
    path : Path
    description : str
        Name of the file in messages.

    Raises
    ------
    ConfigurationError
        The file is missing, too large, or not TOML in UTF-8.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{description} cannot be read", where=str(path), hint=f"{error.strerror}.") from None
    return parse_toml(content, description, str(path))
