"""Typed messages: frozen dataclasses whose fields declare shape, type, unit and meaning.

Only messages travel between the coordinator and a site. Their declarations are used in three places: the checks of a
message, its encoding (:mod:`multicentre.core.wire`), and the disclosure card that a steward reads.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

import numpy as np

from multicentre.errors import MessageError

Kind = Literal["array", "number", "count", "flag", "text", "texts"]
Norm = Literal["l1", "l2"]
Shape = tuple[str | int, ...]

_DECLARATION = "multicentre"
_SCALARS: dict[str, tuple[type, ...]] = {
    "number": (float, int, np.floating, np.integer),
    "count": (int, np.integer),
    "flag": (bool, np.bool_),
    "text": (str,),
}
_INTEGERS = range(-(2**63), 2**63)  # int64, the widest integer of the wire format
_MAX_COUNT = 2.0**40  # about 10^12: no site has more patients or records
_SMALLEST = 2.0**-500  # squares and reciprocals of bounds and sensitivities stay finite
# Fixed sizes that every platform has; float16 and int16 would lose digits or overflow in sums.
DTYPES = ("f8", "f4", "i8", "i4", "u8", "u1", "b1")
_NUMPY_DTYPES = {name: np.dtype(name) for name in DTYPES}


@dataclass(frozen=True)
class Declaration:
    """Declaration of one field of a message.

    Parameters
    ----------
    kind : {"array", "number", "count", "flag", "text", "texts"}
    what : str
        Human-readable description shown on the disclosure card.
    shape : tuple of str or int
        For arrays: a letter stands for a length that must be the same in all arrays of the message.
    dtype : str
        For arrays: one of ``f8 f4 i8 i4 u8 u1 b1``.
    unit : str
        Unit of the values.
    keyed : bool
        The field is a mapping from names (for example views) to values of this kind; letters may then differ by name.
    optional : bool
        The field may be ``None``.
    finite : bool
        NaN and infinity are refused.
    bound : float, optional
        Largest magnitude of one site's value, above 0. Every field of a summed release has one: it determines the scale
        of masked sums, and a site with a value beyond it refuses.
    sensitivity : float, optional
        Largest change of the field at one site, over all names together, when one patient is added or removed; above
        0. Without it the field cannot leave under differential privacy.
    norm : {"l2", "l1"}
        Norm of `sensitivity`.
    public : bool
        The value does not depend on any patient's record, for example a column's name. It gets no noise.
    counts : bool
        The field is a table of patients: each entry is the number of patients in one cell. If the sites' policies have
        a minimum (``min_patients_in_total``), a total with a smaller cell is refused.
    permission : str
        Term of a site's policy that lets the field leave: the name of a switch that must be on, or
        ``<name>=<level>`` of a setting with levels.
    signed : bool
        A count that may be below 0 (a number in fixed point, an exponent).
    """

    kind: Kind
    what: str
    shape: Shape = ()
    dtype: str = "f8"
    unit: str = ""
    keyed: bool = False
    optional: bool = False
    finite: bool = True
    bound: float | None = None
    sensitivity: float | None = None
    norm: Norm = "l2"
    public: bool = False
    counts: bool = False
    permission: str = ""
    signed: bool = False

    @property
    def is_whole(self) -> bool:
        """True if values are whole numbers."""
        return self.kind == "count" or (self.kind == "array" and np.dtype(self.dtype).kind in "iu")

    @property
    def dimensions(self) -> str:
        """Kind and shape, as a disclosure card shows them."""
        if self.kind != "array":
            return self.kind
        inner = " x ".join(str(side) for side in self.shape)
        return f"{inner} array"


@dataclass(frozen=True)
class Length:
    """Meaning of a letter in the shapes of a method's fields.

    Parameters
    ----------
    what : str
        Human-readable description shown on the disclosure card.
    parameter : str
        Parameter of the estimator that fixes the length, empty if none does.

    Examples
    --------
    >>> Length("phenotypes", "rank").number({"rank": 20}), Length("phenotypes", "rank").number({})
    ('20', '')
    """

    what: str
    parameter: str = ""

    def number(self, parameters: Mapping[str, Any]) -> str:
        """Return the length as text where the parameters fix it, empty otherwise."""
        value = parameters.get(self.parameter)
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


Lengths = Mapping[str, str | Length]


def lengths_of(part: type[Any]) -> dict[str, Length]:
    """Return the meaning of every letter that a site part and its bases define; a subclass goes before its bases."""
    letters: dict[str, Length] = {}
    for kind in reversed(part.__mro__):
        for letter, meaning in vars(kind).get("lengths", {}).items():
            letters[letter] = Length(meaning) if isinstance(meaning, str) else meaning
    return letters


def array(
    what: str,
    shape: Shape,
    *,
    dtype: str = "f8",
    unit: str = "",
    optional: bool = False,
    finite: bool = True,
    bound: float | None = None,
    sensitivity: float | None = None,
    norm: Norm = "l2",
    counts: bool = False,
    permission: str = "",
) -> Any:
    """Declare an array field of the given shape."""
    return _declare(
        Declaration(
            "array",
            what,
            shape,
            dtype,
            unit,
            optional=optional,
            finite=finite,
            bound=bound,
            sensitivity=sensitivity,
            norm=norm,
            counts=counts,
            permission=permission,
        )
    )


def arrays(
    what: str,
    shape: Shape,
    *,
    dtype: str = "f8",
    unit: str = "",
    finite: bool = True,
    bound: float | None = None,
    permission: str = "",
) -> Any:
    """Declare a mapping from names to arrays of the given shape."""
    return _declare(
        Declaration("array", what, shape, dtype, unit, keyed=True, finite=finite, bound=bound, permission=permission)
    )


def number(
    what: str,
    *,
    unit: str = "",
    finite: bool = True,
    optional: bool = False,
    bound: float | None = None,
    sensitivity: float | None = None,
    permission: str = "",
    default: float | None = None,
) -> Any:
    """Declare a real number; a field with a default is keyword-only."""
    declaration = Declaration(
        "number",
        what,
        unit=unit,
        finite=finite,
        optional=optional,
        bound=bound,
        sensitivity=sensitivity,
        norm="l1",
        permission=permission,
    )
    if default is not None:
        return dataclasses.field(default=default, kw_only=True, metadata={_DECLARATION: declaration})
    return _declare(declaration)


def count(
    what: str,
    *,
    unit: str = "",
    keyed: bool = False,
    bound: float = _MAX_COUNT,
    sensitivity: float | None = None,
    signed: bool = False,
    default: int | None = None,
) -> Any:
    """Declare a whole number; unless `signed`, answers must not be negative. With names it gets no noise.

    A field with a default is keyword-only.
    """
    if keyed and sensitivity is not None:
        raise MessageError("a field with names must have no sensitivity; got one", where=what, hint="Send an array.")
    declaration = Declaration(
        "count", what, unit=unit, keyed=keyed, bound=bound, sensitivity=sensitivity, norm="l1", signed=signed
    )
    if default is not None:
        return dataclasses.field(default=default, kw_only=True, metadata={_DECLARATION: declaration})
    return _declare(declaration)


def flag(what: str, *, default: bool | None = None) -> Any:
    """Declare a Boolean; a field with a default is keyword-only."""
    declaration = Declaration("flag", what)
    if default is not None:
        return dataclasses.field(default=default, kw_only=True, metadata={_DECLARATION: declaration})
    return _declare(declaration)


def text(what: str) -> Any:
    """Declare a string."""
    return _declare(Declaration("text", what))


def texts(what: str, *, keyed: bool = False, public: bool = False, default: tuple[str, ...] | None = None) -> Any:
    """Declare a tuple of strings, or a mapping from names to such tuples; a field with a default is keyword-only."""
    declaration = Declaration("texts", what, keyed=keyed, public=public)
    if default is not None:
        return dataclasses.field(default=default, kw_only=True, metadata={_DECLARATION: declaration})
    return _declare(declaration)


def _declare(declaration: Declaration) -> Any:
    if declaration.dtype not in DTYPES:
        raise MessageError(
            f"dtype must be one of {', '.join(DTYPES)}; got {declaration.dtype!r}", where=declaration.what
        )
    for name in ("bound", "sensitivity"):
        value = getattr(declaration, name)
        if value is not None and not _SMALLEST <= value <= 1 / _SMALLEST:
            raise MessageError(
                f"{name} must be from 2^-500 to 2^500; got {value}",
                where=declaration.what,
                hint="Declare the field in another unit.",
            )
    if declaration.sensitivity is not None and np.dtype(declaration.dtype).kind in "ub":
        raise MessageError(
            f"a field with a sensitivity must have a signed dtype, as noise may be negative; got {declaration.dtype}",
            where=declaration.what,
            hint="Declare i8 or f8.",
        )
    if declaration.optional:
        return dataclasses.field(default=None, metadata={_DECLARATION: declaration})
    return dataclasses.field(metadata={_DECLARATION: declaration})


@dataclass(frozen=True)
class Message:
    """Base class of everything that travels."""

    @classmethod
    def declarations(cls) -> Mapping[str, Declaration]:
        """Return the declarations of all fields that travel, by name."""
        return _DECLARATIONS.get(cls) or _declarations(cls)

    def items(self) -> list[tuple[str, str, Declaration, Any]]:
        """Return (field, key, declaration, value) for every value but None; the key is "" for fields without names."""
        values: list[tuple[str, str, Declaration, Any]] = []
        for name, declaration in (_DECLARATIONS.get(type(self)) or _declarations(type(self))).items():
            value = getattr(self, name)
            if value is None:
                continue
            if declaration.keyed:
                values += [(name, key, declaration, entry) for key, entry in value.items()]
            else:
                values.append((name, "", declaration, value))
        return values

    def checked(self) -> Self:
        """Return the message if it is as declared.

        Raises
        ------
        MessageError
            A field is missing, of another type, shape or dtype, or not finite.
        """
        lengths: dict[str, int] = {}
        for name, declaration in (_DECLARATIONS.get(type(self)) or _declarations(type(self))).items():
            value = getattr(self, name)
            if value is None and not declaration.optional:
                raise MessageError("a required field must have a value; got None", where=place(type(self), name))
            if declaration.keyed:
                _check_names(value, place(type(self), name))
                for key, entry in value.items():
                    _check_value(declaration, entry, {}, (type(self), name, key))
            elif value is not None:
                _check_value(declaration, value, lengths, (type(self), name))
        return self


class ModelMessage(Message):
    """Message that sends a model to the sites; the terms of a study may fix the model by its digest."""

    @property
    def model_digest(self) -> str:
        """SHA-256 of the model, without what else the message holds."""
        raise NotImplementedError


def digest_of_model(kind: str, packed: bytes) -> str:
    """Return the SHA-256 of a model: the name of its kind, and its arrays in the wire format.

    Examples
    --------
    >>> digest_of_model("CoxModel", b"")[:8]
    '36e88513'
    """
    return hashlib.sha256(kind.encode() + b"\0" + packed).hexdigest()


M = TypeVar("M", bound=Message)
# Class, field and, within a field that is keyed by name, key of a value; made into a text only for an error.
Where = tuple[type[Message], str] | tuple[type[Message], str, str]


@dataclass(frozen=True)
class Nothing(Message):
    """A message without content."""


_DECLARATIONS: dict[type[Message], Mapping[str, Declaration]] = {}


def _declarations(kind: type[Message]) -> Mapping[str, Declaration]:
    declared = _DECLARATIONS.get(kind)
    if declared is None:
        declared = _DECLARATIONS[kind] = {
            field.name: field.metadata[_DECLARATION]
            for field in dataclasses.fields(kind)
            if _DECLARATION in field.metadata
        }
    return declared


def place(kind: type[Message], name: str, key: str = "") -> str:
    """Return the name of a field as errors, cards and ledgers show it."""
    return f"{kind.__name__}.{name}[{key}]" if key else f"{kind.__name__}.{name}"


def _check_names(value: Any, where: str) -> None:
    if not isinstance(value, Mapping):
        raise MessageError(f"the field must be a mapping from names; got {type(value).__name__}", where=where)
    if not all(_is_text(key) and key for key in value):
        raise MessageError("names must be strings of at least one letter; got another", where=where)


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _check_value(declaration: Declaration, value: Any, lengths: dict[str, int], where: Where) -> None:
    if declaration.kind == "array":
        _check_array(declaration, value, lengths, where)
    elif declaration.kind == "texts":
        if not (isinstance(value, tuple) and all(_is_text(entry) for entry in value)):
            raise MessageError(f"the field must be a tuple of strings; got {type(value).__name__}", where=place(*where))
    else:
        _check_scalar(declaration, value, where)


def _check_scalar(declaration: Declaration, value: Any, where: Where) -> None:
    allowed = _SCALARS[declaration.kind]
    if not isinstance(value, allowed) or (isinstance(value, bool) and declaration.kind != "flag"):
        raise MessageError(f"the field must be a {declaration.kind}; got {type(value).__name__}", where=place(*where))
    if declaration.kind == "text" and not _is_text(value):
        raise MessageError("a text must be valid Unicode; got a lone surrogate", where=place(*where))
    if isinstance(value, (int, np.integer)) and int(value) not in _INTEGERS:
        raise MessageError("a whole number must fit 64 bits; it is beyond 64 bits", where=place(*where))
    if declaration.kind == "number" and declaration.finite and not math.isfinite(value):  # type: ignore[arg-type]
        raise MessageError("values must be finite; got NaN or infinity", where=place(*where))


def _check_array(declaration: Declaration, value: Any, lengths: dict[str, int], where: Where) -> None:
    if type(value) is not np.ndarray or value.dtype != _NUMPY_DTYPES[declaration.dtype]:
        received = value.dtype.str if type(value) is np.ndarray else type(value).__name__
        raise MessageError(
            f"the field must be an array of dtype {declaration.dtype}; got {received}", where=place(*where)
        )
    if value.ndim != len(declaration.shape):
        raise MessageError(f"shape must be {declaration.shape}; got {value.shape}", where=place(*where))
    for side, length in zip(declaration.shape, value.shape, strict=True):
        expected = side if isinstance(side, int) else lengths.setdefault(side, length)
        if length != expected:
            raise MessageError(f"side {side} must be {expected}; got shape {value.shape}", where=place(*where))
    if declaration.finite and value.dtype.kind == "f" and not np.isfinite(value).all():
        raise MessageError("values must be finite; got NaN or infinity", where=place(*where))
