"""What every survival model can do, whichever method fitted it, and whoever holds it."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.federation.messages import array, place
from multicentre.federation.steps import Release
from multicentre.federation.wire import decode, encode
from multicentre.survival.times import restricted_mean

Floats = NDArray[np.float64]

MOST_TIMES = 4096

LATEST = 1e12


@dataclass(frozen=True)
class SurvivalModel(Release):
    """A function from a patient's columns to a survival curve on a grid.

    It is a message: arrays that are checked when they arrive, and no code. Sites may release one, and the coordinator
    sends one back to be judged. A model without times is the answer of a site that could not fit one.

    Parameters
    ----------
    times : array of shape (K,)
        The grid; its last time is the horizon.
    """

    times: Floats = array("times of the grid", ("K",), bound=LATEST)

    @classmethod
    def empty(cls) -> Self:
        """Return what stands for no model: the answer of a site that could not fit one."""
        fields: dict[str, Any] = {}
        for name, declared in cls.declarations().items():
            shape = tuple(0 for _ in declared.shape)
            fields[name] = np.zeros(shape, dtype=declared.dtype) if declared.kind == "array" else 0
        return cls(**fields, patients=0)

    @property
    def is_empty(self) -> bool:
        """Whether there is no model."""
        return len(self.times) == 0

    @abstractmethod
    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K), of patients' columns without gaps, shape (n, d)."""

    def restricted_mean(self, X: Floats) -> Floats:
        """Return each patient's mean time survived up to the horizon, shape (n,)."""
        return restricted_mean(self.survival(X), self.times)

    @abstractmethod
    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless the arrays make a model of so many columns."""

    def valid(self, n_columns: int) -> Self:
        """Return the model if it is as declared, its grid is one, and its arrays make a model.

        Raises
        ------
        MessageError
            They do not. No array is trusted before.
        """
        self.checked()
        self._check_bounds()
        times = self.times
        if not 0 < len(times) <= MOST_TIMES or times[0] < 0 or (np.diff(times) <= 0).any() or times[-1] > LATEST:
            raise MessageError("the grid's times do not increase", where=type(self).__name__)
        self.check_meaning(n_columns)
        return self

    def _check_bounds(self) -> None:
        for name, key, declared, value in self.items():
            bound, values = declared.bound, np.asarray(value)
            if bound is not None and values.size and not -bound <= values.min().item() <= values.max().item() <= bound:
                raise MessageError("a value is out of range", where=place(type(self), name, key))


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
        raise MessageError("the model is too large", where="model", hint="Use fewer trees, or larger leaves.")
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
        raise MessageError("a model of an unknown kind", where="model", hint="Install the same version everywhere.")
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
