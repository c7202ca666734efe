"""Removal of folders from texts of a run, so that a report names files but no place on a machine."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# An absolute path of a whole value (its folders may contain spaces), and one inside a sentence (ended by a space).
_VALUE = re.compile(r"(?:[A-Za-z]:[\\/]|\\\\|/)(?:[^\n\\/]+[\\/]+)+")
_QUOTED = re.compile(r"""(["'])(?:[A-Za-z]:[\\/]+|\\\\\\\\|/)(?:[^"'\n\\/]+[\\/]+)+""")
_IN_SENTENCE = re.compile(r"(?<![\w.:/\\<>-])(?:[A-Za-z]:[\\/]|/)(?:[^\s\"'\\/]+[\\/]+)+")


def without_folders(text: str) -> str:
    """Return a text with every absolute path shortened to its last part.

    Examples
    --------
    >>> without_folders("/home/ana/data/lyon.csv: a column is missing")
    'lyon.csv: a column is missing'
    >>> without_folders("deaths/year, https://example.org/a/b")
    'deaths/year, https://example.org/a/b'
    """
    return _IN_SENTENCE.sub("", text)


def value_without_folders(value: Any) -> Any:
    """Return a value of a study with every absolute path in its texts shortened to its last part.

    Examples
    --------
    >>> value_without_folders({"file": "/home/ana/my data/lyon.csv", "unit": "/min", "at": [12, 36]})
    {'file': 'lyon.csv', 'unit': '/min', 'at': [12, 36]}
    """
    if isinstance(value, Mapping):
        return {name: value_without_folders(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [value_without_folders(part) for part in value]
    if not isinstance(value, str):
        return value
    return _VALUE.sub("", value, count=1) if _VALUE.match(value) else without_folders(value)


def toml_without_folders(text: str) -> str:
    """Return the text of a TOML file with every quoted absolute path shortened to its last part.

    Examples
    --------
    >>> toml_without_folders('output = "/home/ana/runs"')
    'output = "runs"'
    """
    return _QUOTED.sub(r"\1", text)
