"""Base class of survival models, and their conversion to bytes."""

from __future__ import annotations

import hashlib
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import array, place
from multicentre.core.steps import Release
from multicentre.core.wire import decode, encode
from multicentre.errors import MessageError
from multicentre.survival.times import restricted_mean

Floats = NDArray[np.float64]

# Largest number of times of a model's grid.
MAX_MODEL_TIMES = 4096

# Largest magnitude of a time and of a value of a column.
MAX_TIME = 1e12
# Largest magnitude of centres and scales of columns, far beyond the values of any recorded unit.
MAX_VALUE = 1e12


@dataclass(frozen=True)
class SurvivalModel(Release):
    """Function from a patient's columns to a survival curve on a grid.

    A model is a message: it consists of arrays, which are checked on arrival, and contains no code. Sites may release
    models, and the coordinator may send models to be evaluated. A model without times represents a failed fit.

    Parameters
    ----------
    times : array of shape (K,)
        Times of the grid; the last is the horizon.
    """

    times: Floats = array("times of the grid", ("K",), bound=MAX_TIME)

    @classmethod
    def empty(cls) -> Self:
        """Return an empty model, which represents a failed fit."""
        fields: dict[str, Any] = {}
        for name, declared in cls.declarations().items():
            shape = tuple(0 for _ in declared.shape)
            fields[name] = np.zeros(shape, dtype=declared.dtype) if declared.kind == "array" else 0
        return cls(**fields, patients=0)

    @property
    def is_empty(self) -> bool:
        """True for an empty model."""
        return len(self.times) == 0

    @abstractmethod
    def survival(self, X: Floats) -> Floats:
        """Return survival curves on the grid, shape (n, K), for columns without missing entries, shape (n, d)."""

    def select(self, X: Floats, columns: Sequence[str], levels: Sequence[str]) -> Floats:
        """Return the columns that the model needs from those of the data, shape (n, d); here all of them."""
        return X

    def complete_rows(self, X: Floats, fill: Floats, columns: Sequence[str], levels: Sequence[str]) -> Floats:
        """Return the columns that the model needs without missing entries, which are those of `fill`, shape (n, d)."""
        return self.select(np.where(np.isnan(X), fill, X), columns, levels)

    def restricted_mean(self, X: Floats) -> Floats:
        """Return each patient's mean time survived up to the horizon, shape (n,)."""
        return restricted_mean(self.survival(X), self.times)

    @abstractmethod
    def check_meaning(self, n_columns: int) -> None:
        """Raise MessageError unless the arrays form a model of `n_columns` columns."""

    def valid(self, n_columns: int) -> Self:
        """Check the fields, the grid and the arrays of the model, and return it.

        Raises
        ------
        MessageError
            A check failed. Arrays must not be used before.
        """
        self.checked()
        self._check_bounds()
        times = self.times
        if not 0 < len(times) <= MAX_MODEL_TIMES or times[0] < 0 or (np.diff(times) <= 0).any() or times[-1] > MAX_TIME:
            raise MessageError(
                f"times must be 1 to {MAX_MODEL_TIMES} increasing numbers from 0 to {MAX_TIME:g}; got others",
                where=type(self).__name__,
            )
        self.check_meaning(n_columns)
        return self

    def _check_bounds(self) -> None:
        for name, key, declared, value in self.items():
            bound, values = declared.bound, np.asarray(value)
            if bound is not None and values.size and not -bound <= values.min().item() <= values.max().item() <= bound:
                raise MessageError(
                    f"values must be at most {bound:g} in magnitude; got larger ones",
                    where=place(type(self), name, key),
                )


Bytes = NDArray[np.uint8]

Kinds = Mapping[str, type[SurvivalModel]]

# First bytes of a packed model, followed by the SHA-256 digest of the rest.
MAGIC = b"MCM1"

_START = len(MAGIC) + 32

# Largest size of a packed model: 1 GiB.
LARGEST = 2**30


def pack(model: SurvivalModel) -> bytes:
    """Convert a model to bytes.

    Raises
    ------
    MessageError
        A field is invalid, or the model exceeds 1 GiB.
    """
    name = type(model).__name__.encode("ascii")
    body = bytes([len(name)]) + name + encode(model)
    if len(body) > LARGEST - _START:
        raise MessageError(
            f"the model must have at most {LARGEST:,} bytes; got {len(body) + _START:,}",
            where="model",
            hint="Use fewer trees, or larger leaves.",
        )
    return MAGIC + hashlib.sha256(body).digest() + body


def unpack(blob: bytes, kinds: Kinds, n_columns: int | None = None) -> SurvivalModel:
    """Read a model of one of the given kinds from bytes; without `n_columns`, its arrays are still to be validated.

    Raises
    ------
    MessageError
        There are too many bytes, they were changed, or they do not form a valid model of `n_columns` columns.
    """
    start = _START
    if not start < len(blob) <= LARGEST or blob[: len(MAGIC)] != MAGIC:
        raise MessageError("the bytes must be a packed model; got others", where="model")
    body = blob[start:]
    if hashlib.sha256(body).digest() != blob[len(MAGIC) : start]:
        raise MessageError("the bytes must have the digest of the packed model; got another", where="model")
    name, rest = body[1 : 1 + body[0]], body[1 + body[0] :]
    kind = kinds.get(name.decode("ascii", "replace"))
    if kind is None:
        raise MessageError(
            f"the model must be one of {', '.join(kinds)}; got an unknown kind",
            where="model",
            hint="Install the same version everywhere.",
        )
    model = decode(kind, rest)
    return model.checked() if n_columns is None else model.valid(n_columns)


def join(models: Iterable[SurvivalModel]) -> tuple[Bytes, NDArray[np.int64]]:
    """Pack several models into one array of bytes, and return it with the length of each."""
    blobs = [pack(model) for model in models]
    return np.frombuffer(b"".join(blobs), dtype=np.uint8), np.array([len(blob) for blob in blobs], dtype=np.int64)


def split(packed: Bytes, lengths: NDArray[np.int64], kinds: Kinds, n_columns: int) -> Sequence[SurvivalModel]:
    """Unpack the models that were packed by :func:`join`.

    Raises
    ------
    MessageError
        Lengths do not match the bytes, or a model is not valid.
    """
    fit = (lengths >= 0) & (lengths <= len(packed))
    if not fit.all() or sum(lengths.tolist()) != len(packed):
        raise MessageError(f"lengths must be non-negative with the sum {len(packed)}; got others", where="models")
    ends = np.cumsum(lengths)
    return [
        unpack(packed[end - length : end].tobytes(), kinds, n_columns)
        for end, length in zip(ends.tolist(), lengths.tolist(), strict=True)
    ]
