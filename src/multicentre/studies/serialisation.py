"""Plain values, JSON and TOML of studies and results."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tomli_w

from multicentre.core.printable import escaped
from multicentre.errors import ConfigurationError


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
    return escaped(json.dumps(to_plain(value), indent=2, ensure_ascii=False, allow_nan=False, default=str)) + "\n"


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
    try:
        return escaped(tomli_w.dumps(_without_none(content)))
    except TypeError as error:
        raise ConfigurationError(
            f"values must be representable in TOML ({error})",
            where="TOML",
            hint="Use texts, numbers, dates, lists or tables.",
        ) from None


def _without_none(value: Any) -> Any:
    """Return a value without the keys whose value is None, which TOML cannot represent, and paths as texts."""
    if isinstance(value, Mapping):
        return {str(key): _without_none(one) for key, one in value.items() if one is not None}
    if isinstance(value, list | tuple):
        return [_without_none(one) for one in value]
    return str(value) if isinstance(value, Path) else value
