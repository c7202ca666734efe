"""Types of the attributes that files of a model hold: the annotations of the class, checked when a model is read."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

from multicentre.core.messages import Message

UNKNOWN: Any = Any


def declared_type(kind: type, name: str) -> Any:
    """Return the annotation of an attribute in a class or its bases; Any without one."""
    for base in kind.__mro__:
        annotation = vars(base).get("__annotations__", {}).get(name)
        if annotation is None:
            continue
        holder = type("Holder", (), {"__annotations__": {name: annotation}})
        try:
            return get_type_hints(holder, globalns=vars(sys.modules[base.__module__]))[name]
        except NameError:  # a name for type checkers only
            return UNKNOWN
    return UNKNOWN


def matches(value: object, hint: Any) -> bool:
    """Return whether a value has an annotated type, with the types of its entries and fields.

    Examples
    --------
    >>> matches(3, float), matches(True, float), matches({"a": 1.5}, dict[str, float]), matches("x", int | None)
    (True, False, True, False)
    """
    if hint is UNKNOWN:
        return True
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(matches(value, one) for one in arguments)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in arguments)
    if hint in (float, int):
        numbers = (int, float, np.number) if hint is float else (int, np.integer)
        return isinstance(value, numbers) and not isinstance(value, bool)
    if arguments and origin is not np.ndarray:
        return _matches_entries(value, origin, arguments)
    return _matches_class(value, origin or hint)


def _matches_entries(value: object, origin: Any, arguments: tuple[Any, ...]) -> bool:
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            matches(key, arguments[0]) and matches(entry, arguments[-1]) for key, entry in value.items()
        )
    if origin is tuple and arguments[-1] is not Ellipsis:
        return (
            isinstance(value, tuple | list)
            and len(value) == len(arguments)
            and all(matches(entry, one) for entry, one in zip(value, arguments, strict=True))
        )
    if isinstance(origin, type) and issubclass(origin, Sequence):
        return isinstance(value, tuple | list) and all(matches(entry, arguments[0]) for entry in value)
    return _matches_class(value, origin)


def _matches_class(value: object, kind: Any) -> bool:
    if kind is None or kind is NoneType:
        return value is None
    if not isinstance(kind, type):
        return True
    if not isinstance(value, kind):
        return False
    if not is_dataclass(kind) or issubclass(kind, Message):  # messages check their fields when they are created
        return True
    hints = get_type_hints(kind)
    return all(matches(getattr(value, name), hints[name]) for name in kind.__dataclass_fields__)
