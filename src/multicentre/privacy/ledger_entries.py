"""Content of a ledger's entries: metadata of calls and fields, and checks of the values that are read.

The writer of a ledger can chain and sign any content. The types of the values are therefore checked when a ledger is
read, before they are used. Values under other names are accepted without a check.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any, Protocol

import numpy as np

from multicentre.core.calls import Call, Protection
from multicentre.core.requester import requester_facts

_LARGEST = 2**53  # larger integers are not exact in every JSON reader; larger floats are valid
_NUMBER_BYTES = 8  # a single number is sent as 64 bits

Kind = tuple[str, Callable[[Any], bool]]


class RecordCounts(Protocol):
    """Records and patients behind a value; None if not counted."""

    @property
    def records(self) -> int | None:
        """Number of records."""

    @property
    def patients(self) -> int | None:
        """Number of patients."""


def call_metadata(call: Call) -> dict[str, Any]:
    """Return the metadata of a call for its entries."""
    return {
        "study": call.study,
        "session": call.session,
        "call": call.sequence,
        "method": call.step.method,
        "step": call.step.name,
        "protection": call.protection,
        "sites": len(call.peers),
        "peers": call.peers,
        **(dataclasses.asdict(call.mark) if call.mark.request else {}),
        **({"addressed": "each"} if call.step.addressed == "each" else {}),
        **({"records": str(call.selection)} if call.selection else {}),
        **({"counted": True} if call.mask and call.mask.counted else {}),
        **requester_facts(),
    }


def field_metadata(field: str, value: Any, counts: RecordCounts, protection: Protection) -> dict[str, Any]:
    """Return the metadata of a released value for an entry: its size, its hash and the numbers behind it."""
    is_array = isinstance(value, np.ndarray)
    is_number = isinstance(value, int | float | np.number)
    return {
        "field": field,
        "shape": list(value.shape) if is_array else [],
        "bytes": value.nbytes if is_array else _NUMBER_BYTES if is_number else len(repr(value).encode()),
        "records": counts.records,
        "patients": counts.patients,
        # A masked value does not leave the site, and its hash would allow guesses of it to be checked.
        "sha256": None if protection == "masked" else hashlib.sha256(_raw(value)).hexdigest(),
    }


def _raw(value: Any) -> bytes | memoryview:
    return np.ascontiguousarray(value).data if isinstance(value, np.ndarray) else repr(value).encode()


def wrong_value(entry: Mapping[str, Any]) -> str:
    """Return the name and the expected type of a value of the wrong type in an entry; empty if all are correct.

    Examples
    --------
    >>> wrong_value({"event": "release", "call": 3}), wrong_value({"call": "3"})
    ('', 'call must be a count')
    """
    wrong = (
        f"{name} must be {kind}" for name, (kind, fits) in _KINDS.items() if name in entry and not fits(entry[name])
    )
    return next(wrong, "")


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_count(value: Any) -> bool:
    return type(value) is int and 0 <= value < _LARGEST


def _is_number(value: Any) -> bool:
    return _is_count(value) or isinstance(value, float)


def _is_time(value: Any) -> bool:
    """Return whether a value is a time with a time zone; times with and without one cannot be compared."""
    try:
        return datetime.fromisoformat(value).utcoffset() is not None
    except (TypeError, ValueError):
        return False


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


def _are_fields(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_field, value))


def _is_field(value: Any) -> bool:
    shape = value.get("shape", []) if isinstance(value, dict) else None
    if not isinstance(shape, list) or not all(map(_is_count, shape)):
        return False
    counts = (value.get(name) for name in ("bytes", "records", "patients"))
    texts = (value.get("field", ""), value.get("sha256") or "")
    return all(count is None or _is_count(count) for count in counts) and all(map(_is_text, texts))


def _is_noise(value: Any) -> bool:
    if not isinstance(value, dict) or value.get("mechanism") not in ("gaussian", "laplace"):
        return False
    return all(_is_number(scale) and scale > 0 for name, scale in value.items() if name != "mechanism")


def _is_requester(value: Any) -> bool:
    return isinstance(value, dict) and _is_text(value.get("name")) and _is_text(value.get("fingerprint") or "")


def _are_ends(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_end, value.values()))


def _is_end(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and _is_count(value[0]) and _is_text(value[1])


def _or_none(kind: Kind) -> Kind:
    described, fits = kind
    return f"{described} or null", lambda value: value is None or fits(value)


_TEXT: Kind = ("a text", _is_text)
_COUNT: Kind = ("a count", _is_count)
_NUMBER: Kind = ("a number of at least 0", lambda value: _is_number(value) and value >= 0)
_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("event", "study", "session", "method", "step", "protection", "addressed", "records"), _TEXT),
    **dict.fromkeys(("run", "request", "transcript", "reason", "unit", "neighbours", "previous", "key"), _TEXT),
    **dict.fromkeys(("hash", "signature"), _TEXT),
    **dict.fromkeys(("entry", "call", "sites"), _COUNT),
    **dict.fromkeys(("epsilon", "delta", "rho"), _or_none(_NUMBER)),
    "time": ("a time with its zone, in ISO 8601", _is_time),
    "counted": ("true or false", lambda value: isinstance(value, bool)),
    "peers": ("a list of names", _are_texts),
    "fields": ("a list of fields with shape and counts", _are_fields),
    "noise": ("a mechanism and its multipliers above 0", _is_noise),
    "requested_by": ("a name and a fingerprint", _is_requester),
    **dict.fromkeys(("witnessed", "shorter"), ("ends of ledgers by site", _are_ends)),
    "recorded": ("the end of a ledger", _is_end),
}
