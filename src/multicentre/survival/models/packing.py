"""Models as bytes with a digest, and back: what is kept in files, and how several models travel in one message.

Layout: ``MCM1``, the SHA-256 of all that follows (32 bytes), the length of the kind's name (1 byte), the name (ASCII),
and the model in the wire format of messages.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.federation.wire import decode, encode
from multicentre.survival.models.base import SurvivalModel

Bytes = NDArray[np.uint8]
Kinds = Mapping[str, type[SurvivalModel]]
MAGIC = b"MCM1"
_START = len(MAGIC) + 32
LARGEST = 2**30


def pack(model: SurvivalModel) -> bytes:
    """Return a model as bytes.

    Raises
    ------
    MessageError
        The model is not as declared, or takes more than 1 GiB.
    """
    name = type(model).__name__.encode("ascii")
    body = bytes([len(name)]) + name + encode(model)
    if len(body) > LARGEST - _START:
        raise MessageError("the model is too large", where="model", mend="Use fewer trees, or larger leaves.")
    return MAGIC + hashlib.sha256(body).digest() + body


def unpack(blob: bytes, kinds: Kinds, n_columns: int) -> SurvivalModel:
    """Read a model of one of the given kinds.

    Raises
    ------
    MessageError
        The bytes are too many, were changed, or are not a valid model of so many columns.
    """
    start = _START
    if not start < len(blob) <= LARGEST or blob[: len(MAGIC)] != MAGIC:
        raise MessageError("the bytes are not a model", where="model")
    body = blob[start:]
    if hashlib.sha256(body).digest() != blob[len(MAGIC) : start]:
        raise MessageError("the bytes were changed on the way", where="model")
    name, rest = body[1 : 1 + body[0]], body[1 + body[0] :]
    kind = kinds.get(name.decode("ascii", "replace"))
    if kind is None:
        raise MessageError("a model of an unknown kind", where="model", mend="Install the same version everywhere.")
    return decode(kind, rest).valid(n_columns)


def join(models: Iterable[SurvivalModel]) -> tuple[Bytes, NDArray[np.int64]]:
    """Return several models as one array of bytes, and the length of each."""
    blobs = [pack(model) for model in models]
    return np.frombuffer(b"".join(blobs), dtype=np.uint8), np.array([len(blob) for blob in blobs], dtype=np.int64)


def split(packed: Bytes, lengths: NDArray[np.int64], kinds: Kinds, n_columns: int) -> Sequence[SurvivalModel]:
    """Return the models that :func:`join` joined.

    Raises
    ------
    MessageError
        Lengths do not fit the bytes, or a model is not valid.
    """
    fit = (lengths >= 0) & (lengths <= len(packed))
    if not fit.all() or sum(lengths.tolist()) != len(packed):
        raise MessageError("lengths do not fit the bytes", where="models")
    ends = np.cumsum(lengths)
    return [
        unpack(packed[end - length : end].tobytes(), kinds, n_columns)
        for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)
    ]
