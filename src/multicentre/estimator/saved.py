"""Attributes of a fitted model that its files hold, which an estimator declares and the base class writes and reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message
from multicentre.errors import IntegrityError
from multicentre.estimator.saved_types import declared_type, matches
from multicentre.statistics.chi_square import TestResult

Arrays = Mapping[str, NDArray[Any]]
M = TypeVar("M", bound=Message)


def _unchanged(value: Any) -> Any:
    return value


@dataclass(frozen=True)
class Saved:
    """Form in which the files of a model hold an attribute.

    Parameters
    ----------
    pack : callable, optional
        Returns an array, or a value that JSON can hold, for the attribute's value; by default the value itself.
    unpack : callable, optional
        Returns the attribute's value for what `pack` returned.
    optional : bool, default False
        Whether some fitted models lack the attribute.
    in_parts : bool, default False
        Whether `pack` returns several parts by name, which the files hold as ``<attribute>.<part>``.
    """

    pack: Callable[[Any], Any] = _unchanged
    unpack: Callable[[Any], Any] = _unchanged
    optional: bool = False
    in_parts: bool = False


PLAIN = Saved()
"""An array, or a value that JSON can hold."""

SAVED_TESTS = Saved(
    lambda tests: {name: asdict(test) for name, test in tests.items()},
    lambda facts: {name: TestResult(**test) for name, test in facts.items()},
)
"""Form of tests by name."""

SavedAttributes = Mapping[str, Saved]


def saved_message(kind: type[M]) -> Saved:
    """Return the form of an attribute that is a message: one entry per field, readable without this package."""

    def pack(message: M) -> dict[str, Any]:
        parts: dict[str, Any] = {}
        for field, key, _, value in message.items():
            plain = list(value) if isinstance(value, tuple) else value
            if key:
                parts.setdefault(field, {})[key] = plain
            else:
                parts[field] = plain
        return parts

    def unpack(parts: Mapping[str, Any]) -> M:
        try:
            message = kind(**{field: _tuples(value) for field, value in parts.items()})
        except TypeError:
            raise IntegrityError(
                f"the fields must be those of {kind.__name__}; got {', '.join(sorted(parts))[:200]}", where="model"
            ) from None
        return message.checked()

    return Saved(pack, unpack, in_parts=True)


def _tuples(value: Any) -> Any:
    """Return a value with tuples in place of the lists of JSON."""
    if isinstance(value, Mapping):
        return {key: _tuples(entry) for key, entry in value.items()}
    return tuple(value) if isinstance(value, list) else value


def pack_attributes(model: object, declared: SavedAttributes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the declared attributes of a model as arrays and values that JSON can hold."""
    values: dict[str, Any] = {}
    for name, form in declared.items():
        if form.optional and name not in vars(model):
            continue
        packed = form.pack(getattr(model, name))
        values |= {f"{name}.{part}": value for part, value in packed.items()} if form.in_parts else {name: packed}
    arrays = {name: value for name, value in values.items() if isinstance(value, np.ndarray)}
    return arrays, {name: value for name, value in values.items() if name not in arrays}


def unpack_attributes(model: object, declared: SavedAttributes, arrays: Arrays, facts: Mapping[str, Any]) -> None:
    """Set the declared attributes of a model from its files.

    Raises
    ------
    IntegrityError
        The files lack an attribute that every fitted model has.
    """
    values = {**facts, **arrays}
    for name, form in declared.items():
        start = f"{name}."
        parts = {entry.removeprefix(start): value for entry, value in values.items() if entry.startswith(start)}
        if form.in_parts and parts:
            setattr(model, name, form.unpack(parts))
        elif not form.in_parts and name in values:
            setattr(model, name, form.unpack(values[name]))
        elif not form.optional:
            raise IntegrityError(f"the files must hold {name}; got none", where="model")


def check_types(model: object) -> None:
    """Raise IntegrityError unless all attributes of a restored model have the types that its class declares."""
    for name, value in vars(model).items():
        if not matches(value, declared_type(type(model), name)):
            raise IntegrityError(f"{name} must have the type of a fitted model; got another", where="model")
