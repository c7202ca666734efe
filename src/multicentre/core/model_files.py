"""Files of a fitted model: ``model.json`` describes it and declares its arrays, ``model.npz`` holds them.

The description holds the version of the format and of the package, dtype and shape of every array, and one SHA-256 over
itself and the arrays' file. The digest detects damage. It does not authenticate: anyone who can write the files can
write a matching digest. All content is therefore checked against the declarations before it is used: sizes before a
file is read; names, dtypes and shapes before an array is created. Only declared arrays are read.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import zipfile
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from multicentre.core.printable import escaped
from multicentre.core.storage import write_atomically
from multicentre.errors import IntegrityError

FORMAT = 1
"""Version of the format; increased when an older reader cannot read new files."""

DESCRIPTION, ARRAYS = "model.json", "model.npz"
MAX_DESCRIPTION = 2**26
"""Largest ``model.json`` in bytes (64 MiB); parsed, the text takes about ten times as much memory."""

_MAX_HEADER = 10_000  # bytes of an array's header; NumPy's own limit
_LONGEST_NAME = 1_000  # letters of an array's name: views and columns may be part of it
_LONGEST_VERSION = 64  # letters of a version in an error message
_MAX_SIDES = 8  # no fitted model has arrays with more dimensions
_ANYTHING = "biuf"  # booleans, whole and real numbers: dtypes without references to other objects
_ABSENT = type(None)
_DESCRIBED: Mapping[str, tuple[type, ...]] = {
    "format": (int,),
    "version": (str,),
    "estimator": (str,),
    "parameters": (dict,),
    "facts": (dict,),
    "history": (list,),
    "left_out": (dict,),
    "privacy": (dict, _ABSENT),
    "arrays": (dict,),
    "sha256": (str,),
}
_OPTIONAL: Mapping[str, tuple[type, ...]] = {"missing": (dict,), "lost": (dict,)}
_RESTORE = "Restore the folder from a copy, or fit the model again."
_RESAVE = "Save the model again with this version."
_UPGRADE = "Install the newer version of multicentre, or save the model again with this one."


class SavedModel(NamedTuple):
    """Content of a model's files.

    Attributes
    ----------
    description : dict
        Content of ``model.json``.
    arrays : dict of str to array
    """

    description: dict[str, Any]
    arrays: dict[str, NDArray[Any]]


def write_model(folder: Path, description: Mapping[str, Any], arrays: Mapping[str, Any], version: str) -> None:
    """Write the two files of a model.

    Parameters
    ----------
    folder : Path
    description : mapping
        Everything but format, version, arrays and digest.
    arrays : mapping of str to array
    version : str
        Version of the package.

    Raises
    ------
    IntegrityError
        The description is larger than :func:`read_model` accepts, or an array has an unsupported dtype.
    """
    values = {name: np.asarray(value) for name, value in arrays.items()}
    for name, value in values.items():
        if value.dtype.kind not in _ANYTHING:
            raise IntegrityError(f"the array must hold numbers; got {value.dtype}", where=name)
    buffer = io.BytesIO()
    np.savez(buffer, **dict[str, Any](values))
    packed = buffer.getvalue()
    declared = {name: {"dtype": value.dtype.str, "shape": list(value.shape)} for name, value in values.items()}
    whole = {"format": FORMAT, "version": version, **description, "arrays": declared}
    plain = json.loads(json.dumps(whole, default=_as_plain))
    text = escaped(json.dumps({**plain, "sha256": digest_of(plain, packed)}, indent=2, ensure_ascii=False)).encode()
    if len(text) > MAX_DESCRIPTION:
        raise IntegrityError(
            f"{DESCRIPTION} must be at most {MAX_DESCRIPTION:,} bytes; got {len(text):,}", where=str(folder)
        )
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(folder / ARRAYS, packed)
    write_atomically(folder / DESCRIPTION, text)


def read_model(folder: Path, version: str) -> SavedModel:
    """Read the two files of a model and check them against their digest and declarations.

    Parameters
    ----------
    folder : Path
    version : str
        Version of this package, named in the error if a newer version wrote the files.

    Raises
    ------
    IntegrityError
        A file is missing, too large, damaged, of another format, or contains undeclared content.
    """
    description, packed = _read_checked(folder, version)
    del description["sha256"]
    try:
        arrays = _read_arrays(folder, description["arrays"], packed)
    except IntegrityError:
        raise
    except Exception as error:  # zipfile and NumPy raise about ten classes of errors for bytes that are not an archive
        _unreadable(folder, ARRAYS, error)
    return SavedModel(description, arrays)


def read_digest(folder: Path, version: str) -> str:
    """Return the SHA-256 of a model's files, after checking that they match it.

    Parameters
    ----------
    folder : Path
    version : str
        Version of this package, named in the error if a newer version wrote the files.

    Raises
    ------
    IntegrityError
        A file is missing, too large, damaged or of another format.
    """
    return str(_read_checked(folder, version)[0]["sha256"])


def _read_checked(folder: Path, version: str) -> tuple[dict[str, Any], bytes]:
    """Return the description and the bytes of the arrays' file, which match the digest in the description."""
    description = _read_description(folder, version)
    packed = _read(folder, ARRAYS)
    if digest_of(description, packed) != description["sha256"]:
        _refuse(folder, "the files must match the digest that was written with them; it differs")
    return description, packed


def digest_of(description: Mapping[str, Any], packed: bytes) -> str:
    """Return the SHA-256 over a description, without its digest, and the bytes of the arrays' file."""
    bare = {name: value for name, value in description.items() if name != "sha256"}
    text = json.dumps(bare, sort_keys=True, separators=(",", ":")).encode()
    return hashlib.sha256(len(text).to_bytes(8, "little") + text + packed).hexdigest()


def check_finite(arrays: Mapping[str, NDArray[Any]], may_be_missing: Collection[str], where: str) -> None:
    """Raise IntegrityError if an array holds NaN or infinity and its name is not among those that may.

    Examples
    --------
    >>> check_finite({"p_values_": np.array([np.nan])}, {"p_values_"}, "model")
    >>> check_finite({"weights": np.array([np.nan])}, {"p_values_"}, "model")
    Traceback (most recent call last):
    multicentre.errors.IntegrityError: model: the array weights must be finite; it is not...
    """
    for name, values in arrays.items():
        if values.dtype.kind == "f" and name not in may_be_missing and not np.isfinite(values).all():
            raise IntegrityError(f"the array {name} must be finite; it is not", where=where, hint=_RESTORE)


def _read_description(folder: Path, version: str) -> dict[str, Any]:
    text = _read(folder, DESCRIPTION, MAX_DESCRIPTION)
    try:
        described = json.loads(text.decode(), object_pairs_hook=_without_repeats)
    except (ValueError, RecursionError) as error:
        _unreadable(folder, DESCRIPTION, error)
    if not isinstance(described, dict):
        _refuse(folder, f"{DESCRIPTION} must be an object; got {type(described).__name__}")
    _check_format(folder, described, version)
    for name, kinds in {**_DESCRIBED, **_OPTIONAL}.items():
        if (name in described or name in _DESCRIBED) and type(described.get(name, ...)) not in kinds:
            _refuse(folder, f"{name} in {DESCRIPTION} must be {_named(kinds)}; it is missing or something else")
    if undeclared := set(described) - set(_DESCRIBED) - set(_OPTIONAL):
        _refuse(folder, f"{DESCRIPTION} must hold what is declared; it also holds {_quote(min(undeclared))}")
    for name, declared in described["arrays"].items():
        if len(name) > _LONGEST_NAME or not _is_declaration(declared):
            _refuse(folder, f"the array {_quote(name)} must be declared with dtype and shape")
    return described


def _check_format(folder: Path, described: Mapping[str, Any], version: str) -> None:
    """Check the version of the format, before any other content is read."""
    format_, written_by = described.get("format"), described.get("version")
    if format_ is None:
        _refuse(folder, f"the model must have format {FORMAT}; it has none, as before multicentre {version}", _RESAVE)
    if type(format_) is not int or type(written_by) is not str or len(written_by) > _LONGEST_VERSION:
        _refuse(folder, f"format and version in {DESCRIPTION} must be a whole number and a text")
    if format_ != FORMAT:
        what = f"the model has format {format_}, written by multicentre {_quote(written_by)}"
        _refuse(folder, f"{what}; this is multicentre {version}, which reads format {FORMAT}", _UPGRADE)


def _is_declaration(declared: Any) -> bool:
    if not isinstance(declared, dict) or set(declared) != {"dtype", "shape"}:
        return False
    dtype, shape = declared["dtype"], declared["shape"]
    is_shape = isinstance(shape, list) and len(shape) <= _MAX_SIDES and all(type(n) is int and n >= 0 for n in shape)
    if not is_shape or type(dtype) is not str or len(dtype) != 3:
        return False
    return dtype[0] in "<|" and dtype[1] in _ANYTHING and dtype[2] in "1248"


def _read_arrays(folder: Path, declared: Mapping[str, Any], packed: bytes) -> dict[str, NDArray[Any]]:
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        members = {member.filename: member for member in archive.infolist()}
        if len(members) != len(archive.infolist()) or set(members) != {f"{name}.npy" for name in declared}:
            _refuse(folder, f"{ARRAYS} must hold the declared arrays, each once; it holds others")
        # Uncompressed members take no more memory than the file.
        stored = [
            one.compress_type == zipfile.ZIP_STORED and one.file_size == one.compress_size for one in members.values()
        ]
        if not all(stored) or sum(one.file_size for one in members.values()) > len(packed):
            _refuse(folder, f"{ARRAYS} must not be compressed; it is larger than its file")
        for name, one in declared.items():
            _check_size(folder, name, one, members[f"{name}.npy"].file_size)
        return {name: _array(folder, name, one, archive.read(f"{name}.npy")) for name, one in declared.items()}


def _check_size(folder: Path, name: str, declared: Mapping[str, Any], size: int) -> None:
    n_bytes = math.prod(declared["shape"]) * np.dtype(declared["dtype"]).itemsize
    if not n_bytes < size <= n_bytes + _MAX_HEADER:
        _refuse(folder, f"the array {_quote(name)} must have {n_bytes:,} bytes as declared; it has another size")


def _array(folder: Path, name: str, declared: Mapping[str, Any], content: bytes) -> NDArray[Any]:
    stream = io.BytesIO(content)
    version = npy.read_magic(stream)
    read: Callable[..., tuple[Any, ...]] = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
    shape, fortran_order, dtype = read(stream, max_header_size=_MAX_HEADER)
    if list(shape) != declared["shape"] or dtype.str != declared["dtype"]:
        _refuse(folder, f"the array {_quote(name)} must have the declared dtype and shape; it has others")
    values = np.frombuffer(content, dtype=dtype, count=math.prod(shape), offset=stream.tell())
    if stream.tell() + values.nbytes != len(content):
        _refuse(folder, f"the array {_quote(name)} must end with its last value; bytes follow")
    if dtype.kind == "b" and values.view(np.uint8).max(initial=0) > 1:
        _refuse(folder, f"the flags of {_quote(name)} must be true or false; one is neither")
    return values.reshape(shape, order="F" if fortran_order else "C").copy(order="K")


def _read(folder: Path, name: str, largest: int | None = None) -> bytes:
    try:
        size = (folder / name).stat().st_size
        if largest is not None and size > largest:
            _refuse(folder, f"{name} must be at most {largest:,} bytes; got {size:,}")
        with (folder / name).open("rb") as file:
            return file.read(size)
    except OSError as error:
        _unreadable(folder, name, error)


def _unreadable(folder: Path, name: str, error: BaseException) -> NoReturn:
    raise IntegrityError(
        f"the model cannot be read ({name}, {type(error).__name__})", where=str(folder), hint=_RESTORE
    ) from None


def _refuse(folder: Path, what: str, hint: str = _RESTORE) -> NoReturn:
    raise IntegrityError(what, where=str(folder), hint=hint)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    mapping = dict(pairs)
    if len(mapping) != len(pairs):
        raise ValueError("a key is repeated")
    return mapping


def _named(kinds: tuple[type, ...]) -> str:
    names = {dict: "an object", list: "a list", str: "a text", int: "a whole number", _ABSENT: "null"}
    return " or ".join(names[kind] for kind in kinds)


def _quote(text: str) -> str:
    """Return the start of a text in quotes, without control characters."""
    return repr(text[:40])  # short enough for one line of an error


def _as_plain(value: Any) -> Any:
    """Return a NumPy number or array as a JSON value."""
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"Cannot serialise {type(value).__name__} to JSON.")
