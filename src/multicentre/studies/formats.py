"""Plain values, JSON and TOML of studies and results."""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from multicentre.federation.errors import ConfigurationError


def to_plain(value: Any) -> Any:
    """Convert a value to dicts, lists, texts and numbers; non-finite numbers become None.

    Examples
    --------
    >>> import numpy as np
    >>> to_plain({"mae": np.float64(0.5), "trace": np.array([1.0, np.nan])})
    {'mae': 0.5, 'trace': [1.0, None]}
    """
    if isinstance(value, Mapping):
        return {str(key): to_plain(one) for key, one in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return to_plain(value.tolist())
    if isinstance(value, list | tuple):
        return [to_plain(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def to_json(value: Any) -> str:
    """Return a value as indented JSON."""
    return json.dumps(to_plain(value), indent=2, ensure_ascii=False, allow_nan=False, default=str) + "\n"


_BARE = re.compile(r"[A-Za-z0-9_-]+")


def write_toml(content: Mapping[str, Any]) -> str:
    """Return a mapping as TOML; keys whose value is None are left out.

    Raises
    ------
    ConfigurationError
        A value cannot be represented in TOML.

    Examples
    --------
    >>> print(write_toml({"study": {"name": "ward 7", "seed": 3}, "sites": {"lyon": {"blood": "b.csv"}}}))
    [study]
    name = "ward 7"
    seed = 3
    <BLANKLINE>
    [sites.lyon]
    blood = "b.csv"
    <BLANKLINE>
    """
    return "\n".join(_tables(content, ()))


def _tables(table: Mapping[str, Any], path: tuple[str, ...]) -> list[str]:
    values = {key: value for key, value in table.items() if value is not None and not isinstance(value, Mapping)}
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    lines = [f"{_key(key)} = {_value(value, (*path, key))}" for key, value in values.items()]
    if path and (lines or not inner):
        lines = [f"[{'.'.join(_key(part) for part in path)}]", *lines]
    blocks = ["\n".join(lines) + "\n"] if lines else []
    return blocks + [block for key, value in inner.items() for block in _tables(value, (*path, key))]


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _text(key)


def _text(value: str) -> str:
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _value(value: Any, path: tuple[str, ...]) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else str(value)
    if isinstance(value, str | Path):
        return _text(str(value))
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_value(one, path) for one in value) + "]"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{_key(key)} = {_value(one, path)}" for key, one in value.items()) + "}"
    raise ConfigurationError(
        f"values must be representable in TOML; got {type(value).__name__}",
        where=".".join(path),
        hint="Use texts, numbers, dates, lists or tables.",
    )
