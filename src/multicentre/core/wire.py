r"""Encoding of messages as bytes: a JSON header, then all arrays in one buffer. No pickle, no undeclared fields.

Layout: ``MC1\n``, the header's length (4 bytes, little endian), the header (UTF-8 JSON), padding to a multiple of 8,
then the arrays in order, little endian, C order, each padded to a multiple of 8.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Mapping
from typing import Any

import numpy as np

from multicentre.core.messages import DTYPES, Declaration, M, Message, place
from multicentre.errors import MessageError

MAGIC = b"MC1\n"
_ALIGNMENT = 8  # bytes of the largest dtype
_SAME_VERSION = "Use the same version of multicentre at the coordinator and at the sites."
_HEADER = {"type": str, "values": dict, "arrays": list}
_MAX_VALUES = 2**40  # the product of sides stays an exact size, far above any message


def encode(message: Message) -> bytes:
    """Return `message` as bytes.

    Raises
    ------
    MessageError
        The message is not as declared.
    """
    message.checked()
    values: dict[str, Any] = {}
    table: list[list[Any]] = []
    buffers: list[bytes | memoryview] = []
    for name, key, declaration, value in message.items():
        if declaration.kind == "array":
            little = np.ascontiguousarray(value, dtype=np.dtype(declaration.dtype).newbyteorder("<"))
            table.append([name, key, declaration.dtype, list(value.shape)])
            buffers += [little.reshape(-1).view(np.uint8).data, b"\0" * (_aligned(little.nbytes) - little.nbytes)]
        elif declaration.keyed:
            values.setdefault(name, {})[key] = _as_plain(value)
        else:
            values[name] = _as_plain(value)
    header = json.dumps({"type": type(message).__name__, "values": values, "arrays": table}).encode()
    start = MAGIC + struct.pack("<I", len(header)) + header
    return b"".join([_padded(start), *buffers])


def decode(kind: type[M], blob: bytes) -> M:
    """Read `blob` as a message of the given kind and check it against its declaration.

    Raises
    ------
    MessageError
        The bytes are truncated, of another kind, or contain an undeclared field.
    """
    header, start = _read_header(blob)
    if header["type"] != kind.__name__:
        raise MessageError(
            f"the message must be of type {kind.__name__}; got another", where="wire", hint=_SAME_VERSION
        )
    declarations = kind.declarations()
    fields: dict[str, Any] = {name: {} for name, declared in declarations.items() if declared.keyed}
    for name, value in header["values"].items():
        declaration = _declared(declarations, kind, name)
        fields[name] = _decode_value(declaration, value, place(kind, name))
    seen: set[tuple[str, str]] = set()
    for entry in header["arrays"]:
        name, key, values, start = _read_array(entry, declarations, kind, blob, start)
        if (name, key) in seen:
            raise MessageError("an array must be sent once; it was sent twice", where=place(kind, name, key))
        seen.add((name, key))
        if key:
            fields[name][key] = values
        else:
            fields[name] = values
    if start != len(blob):
        raise MessageError("a message must end with its last array; bytes are left over", where="wire")
    missing = [n for n, declared in declarations.items() if n not in fields and not declared.optional]
    if missing:
        raise MessageError(
            f"all declared fields must be sent; the field {missing[0]!r} is missing",
            where=kind.__name__,
            hint=_SAME_VERSION,
        )
    return kind(**fields).checked()


def size(message: Message) -> int:
    """Return the size of the values of `message` in bytes, without headers."""
    total = 0
    for _, _, _, value in message.items():
        total += value.nbytes if isinstance(value, np.ndarray) else 8
    return total


def _read_header(blob: bytes) -> tuple[dict[str, Any], int]:
    fixed = len(MAGIC) + 4
    if len(blob) < fixed or blob[: len(MAGIC)] != MAGIC:
        raise MessageError("the bytes must start with MC1; they are not a message of this format", where="wire")
    (length,) = struct.unpack_from("<I", blob, len(MAGIC))
    if fixed + length > len(blob):
        raise MessageError("the message must be complete; it is truncated", where="wire")
    try:
        header = json.loads(blob[fixed : fixed + length].decode(), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError):
        raise MessageError("the header must be a JSON object without repeated keys; it is not", where="wire") from None
    if not isinstance(header, dict) or {name: type(value) for name, value in header.items()} != _HEADER:
        raise MessageError("the header must hold type, values and arrays; it holds others", where="wire")
    return header, _aligned(fixed + length)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a key is repeated")
    return mapping


def _read_array(
    entry: Any, declarations: Mapping[str, Declaration], kind: type[Message], blob: bytes, start: int
) -> tuple[str, str, Any, int]:
    name, key, dtype, shape = _array_entry(entry)
    declaration = _declared(declarations, kind, name)
    fits = declaration.kind == "array" and declaration.dtype == dtype and bool(key) == declaration.keyed
    if not fits or len(shape) != len(declaration.shape):
        raise MessageError(
            "an array must have the declared dtype and number of sides; got others", where=place(kind, name, key)
        )
    n_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    if start + n_bytes > len(blob):
        raise MessageError("the message must be complete; it is truncated", where=place(kind, name, key))
    little = np.frombuffer(blob, dtype=np.dtype(dtype).newbyteorder("<"), count=math.prod(shape), offset=start)
    if dtype == "b1" and np.any(little.view(np.uint8) > 1):
        raise MessageError("a flag must be 0 or 1; got another value", where=place(kind, name, key))
    values = little.reshape(shape).astype(np.dtype(dtype), copy=False)
    return name, key, values, _aligned(start + n_bytes)


def _array_entry(entry: Any) -> tuple[str, str, str, tuple[int, ...]]:
    if not isinstance(entry, list) or len(entry) != 4:
        raise MessageError("the array table must list name, key, dtype and shape; it does not", where="wire")
    name, key, dtype, shape = entry
    sides_fit = isinstance(shape, list) and all(type(side) is int and side >= 0 for side in shape)
    sides_fit = sides_fit and math.prod(max(side, 1) for side in shape) < _MAX_VALUES
    if not (isinstance(name, str) and isinstance(key, str) and dtype in DTYPES and sides_fit):
        raise MessageError("the array table must list name, key, dtype and shape; it does not", where="wire")
    return name, key, dtype, tuple(shape)


def _declared(declarations: Mapping[str, Declaration], kind: type[Message], name: str) -> Declaration:
    if name not in declarations:
        raise MessageError(
            "only declared fields may be sent; got another field", where=kind.__name__, hint=_SAME_VERSION
        )
    return declarations[name]


def _decode_value(declaration: Declaration, value: Any, where: str) -> Any:
    if declaration.kind == "array":
        raise MessageError("an array must be in the array table; got it among the values", where=where)
    if declaration.keyed:
        if not isinstance(value, dict):
            raise MessageError(f"the field must be a mapping from names; got {type(value).__name__}", where=where)
        return {key: _decode_scalar(declaration, entry) for key, entry in value.items()}
    return _decode_scalar(declaration, value)


def _decode_scalar(declaration: Declaration, value: Any) -> Any:
    if declaration.kind == "texts" and isinstance(value, list):
        return tuple(value)
    return value


def _as_plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return list(value)
    if isinstance(value, np.floating):
        return float(value)
    return value.item() if isinstance(value, np.generic) else value


def _aligned(length: int) -> int:
    return -(-length // _ALIGNMENT) * _ALIGNMENT


def _padded(chunk: bytes) -> bytes:
    return chunk + b"\0" * (_aligned(len(chunk)) - len(chunk))
