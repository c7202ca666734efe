"""Number of the wire protocol, and digests of the steps and messages that a method exchanges.

Sites and coordinator of different releases work together if these are equal. Both are part of a study's terms.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Collection, Mapping
from typing import Any

from multicentre.core.messages import Message
from multicentre.core.steps import SitePart, Step

WIRE_PROTOCOL = 7  # raised with every change of the fields of a request or reply, or of the wire format

_DIGITS = 16  # 64 bits: tells releases apart, short enough to be compared on a screen; the terms are hashed in full
_TEXTS = ("what",)  # of a declaration: shown on cards, without effect on values
_OF_PART = ("revision", "clips_persons", "counts_persons", "in_transcript", "sums_fields")
_OF_RELEASE = ("concerns_patients", "individual", "of_all_records", "without_values")


def protocol_of(steps: Mapping[type[SitePart], Collection[str]]) -> dict[str, str]:
    """Return the number of the wire protocol (key ``wire``), and a digest of the steps of each method, by its name.

    Parameters
    ----------
    steps : mapping of type to collection of str
        Names of the steps that a study uses, by site part.
    """
    digests = {part.method: _digest_of(part, names) for part, names in steps.items()}
    return {"wire": str(WIRE_PROTOCOL), **dict(sorted(digests.items()))}


def describe_differences(here: Mapping[str, str], there: Mapping[str, str]) -> str:
    """Return the names whose number or digest differs, with both values; empty if all are equal.

    Examples
    --------
    >>> describe_differences({"wire": "5", "fed-cox": "a1"}, {"wire": "5", "fed-cox": "b2"})
    'fed-cox (a1 and b2)'
    """
    names = [name for name in {**here, **there} if here.get(name) != there.get(name)]
    return ", ".join(f"{name} ({here.get(name, 'none')} and {there.get(name, 'none')})" for name in names)


def _digest_of(part: type[SitePart], names: Collection[str]) -> str:
    content = {
        "part": {name: getattr(part, name) for name in _OF_PART},
        "remembers": _fields_of(part.remembers),
        "steps": {name: _facts_of(step) for name, step in part.steps().items() if name in names},
    }
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:_DIGITS]


def _facts_of(step: Step[Any, Any, Any]) -> dict[str, Any]:
    return {
        **{name: getattr(step, name) for name in ("summed", "addressed", "refusable")},
        "request": _fields_of(step.request_type),
        "release": _fields_of(step.releases),
        "of_release": {name: getattr(step.releases, name) for name in _OF_RELEASE},
    }


def _fields_of(message: type[Message]) -> dict[str, Any]:
    """Return the declarations of a message's fields and their defaults, under the name that travels with it."""
    defaults = {
        one.name: repr(one.default) for one in dataclasses.fields(message) if one.default is not dataclasses.MISSING
    }
    declared = {
        name: {key: value for key, value in dataclasses.asdict(one).items() if key not in _TEXTS}
        for name, one in message.declarations().items()
    }
    return {message.__name__: declared, "defaults": {name: defaults[name] for name in declared if name in defaults}}
