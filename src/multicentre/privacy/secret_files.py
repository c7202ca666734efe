"""Secrets of a site: files that only their owner can read, and bytes that are never printed.

A secret file is one line, ``multicentre secret v1 <64 hex digits> <8 hex digits>``: the secret, followed by a checksum
that detects a mistyped or missing digit. No ledger, report, error or message contains a secret.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import shlex
from pathlib import Path
from typing import Any, NoReturn, Self

from multicentre.errors import ConfigurationError

# 256 bits: the length of an Ed25519 private key and of a SHA-256 digest.
SECRET_BYTES = 32
_MARK = b"multicentre secret v1"
_LINE = re.compile(re.escape(_MARK) + rb" ([0-9A-Fa-f]{64}) ([0-9A-Fa-f]{8})\s*")
_LONGEST_LINE = 200  # a secret file has 95 bytes; a longer file is not a secret file
_OTHERS = 0o077  # rights of the group and of all others
_FILES_HAVE_MODES = os.name == "posix"
# Remedy for a lost secret that several sites share.
ASK_FOR_COPY = "Ask the site that generated it for a copy, or generate a new one: multicentre secret new PATH."


class Secret:
    """Secret of 32 bytes that is not printed, cannot be pickled and is compared in constant time.

    Parameters
    ----------
    content : bytes
        32 bytes.

    Raises
    ------
    ConfigurationError
        The length of the content is not 32 bytes.

    Notes
    -----
    A copy is the same object, so that an estimator or a splitter with a secret can be cloned.

    Examples
    --------
    >>> secret = Secret(bytes(32))
    >>> secret
    Secret(…)
    >>> secret == Secret(bytes(32))
    True
    """

    __slots__ = ("_content",)

    def __init__(self, content: bytes) -> None:
        _check_length(content)
        self._content = bytes(content)

    def reveal(self) -> bytes:
        """Return the bytes. Use them only in a cipher or a hash."""
        return self._content

    def __repr__(self) -> str:
        return "Secret(…)"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._content, other._content)

    __hash__ = None  # type: ignore[assignment]

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memory: dict[int, Any]) -> Self:
        return self

    def __reduce__(self) -> NoReturn:
        raise ConfigurationError(
            "a secret cannot be pickled", hint="Read it from its file in the process that needs it."
        )

    def __getstate__(self) -> NoReturn:
        self.__reduce__()


def write_secret(path: str | Path, content: bytes) -> None:
    """Write a secret to a new file, which only its owner can read (mode 0600).

    Parameters
    ----------
    path : str or Path
        Path of the new file, in an existing folder.
    content : bytes
        32 bytes.

    Raises
    ------
    ConfigurationError
        The file exists or cannot be written, or the length of the content is not 32 bytes.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "secret.txt"
    >>> write_secret(path, bytes(32))
    >>> read_secret(path) == bytes(32)
    True
    """
    _check_length(content)
    path = Path(path)
    try:
        _create(path, b"%s %s %s\n" % (_MARK, content.hex().encode(), _checksum(content)))
    except FileExistsError:
        raise ConfigurationError(
            "the path must be that of a new file; the file exists, and secrets are not overwritten",
            where=str(path),
            hint="Name a new file, or use the secret in the existing file.",
        ) from None
    except OSError as error:
        raise ConfigurationError(f"the secret cannot be written ({error.strerror})", where=str(path)) from None


def read_secret(path: str | Path, *, hint: str = ASK_FOR_COPY) -> bytes:
    """Return the 32 bytes of a secret file.

    Parameters
    ----------
    path : str or Path
    hint : str, optional
        Remedy if the file is missing or cannot be read; by default that of a secret which several sites share.

    Raises
    ------
    ConfigurationError
        The file is missing or cannot be read, its group or others have rights to it (not checked on Windows), it is not
        a secret file, or one of its digits is wrong.

    Examples
    --------
    >>> read_secret("nowhere.txt")
    Traceback (most recent call last):
        ...
    multicentre.errors.ConfigurationError: nowhere.txt: the secret cannot be read (No such file ...
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            open_to_others = _FILES_HAVE_MODES and bool(os.fstat(file.fileno()).st_mode & _OTHERS)
            line = b"" if open_to_others else file.read(_LONGEST_LINE)
    except OSError as error:
        raise ConfigurationError(
            f"the secret cannot be read ({error.strerror})",
            where=str(path),
            hint=hint,
        ) from None
    if open_to_others:
        raise ConfigurationError(
            "only the owner of a secret file must have rights to it; others have rights",
            where=str(path),
            hint=f"Run: chmod 600 {shlex.quote(str(path))}. If others may have read it, generate a new one.",
        )
    return _parse(line, path)


def _create(path: Path, line: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(line)
            file.flush()
            os.fsync(file.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _parse(line: bytes, path: Path) -> bytes:
    parts = _LINE.fullmatch(line)
    if parts is None:
        raise ConfigurationError(
            "the file must be a secret file; it is a different file or incomplete",
            where=str(path),
            hint=f"A secret file contains one line: {_MARK.decode()}, 64 hex digits, 8 hex digits.",
        )
    content = bytes.fromhex(parts[1].decode())
    if not hmac.compare_digest(_checksum(content), parts[2].lower()):
        raise ConfigurationError(
            "the checksum of the secret must match its digits; at least one digit is wrong",
            where=str(path),
            hint="Copy the file from its source again.",
        )
    return content


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(_MARK + content).hexdigest()[:8].encode()


def _check_length(content: bytes) -> None:
    if len(content) != SECRET_BYTES:
        raise ConfigurationError(f"a secret must have {SECRET_BYTES} bytes; got {len(content)}", where="secret")
