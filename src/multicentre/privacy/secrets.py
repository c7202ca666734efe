"""A site's secrets: files that only their owner reads, and bytes that never print.

A secret file is one line, ``multicentre secret v1 <64 hex digits> <8 hex digits>``: the secret, then a checksum by
which a digit that was mistyped or lost is found. It stays with the sites: no ledger, report, error or message holds
one.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import shlex
from pathlib import Path
from typing import Any, NoReturn, Self

from multicentre.federation.errors import ConfigurationError

SECRET_BYTES = 32
_MARK = b"multicentre secret v1"
_LINE = re.compile(re.escape(_MARK) + rb" ([0-9A-Fa-f]{64}) ([0-9A-Fa-f]{8})\s*")
_LONGEST_LINE = 200
_OTHERS = 0o077
_FILES_HAVE_MODES = os.name == "posix"


class Secret:
    """Thirty-two bytes that do not print, cannot be pickled and are compared in constant time.

    Parameters
    ----------
    content : bytes
        32 bytes.

    Raises
    ------
    ConfigurationError
        There are not 32 bytes.

    Notes
    -----
    A copy is the same object, so that an estimator or a splitter that holds a secret can be cloned.

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
        """Return the bytes, for a cipher or a hash and for nothing else."""
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
        raise ConfigurationError("a secret cannot be pickled", mend="Read it from its file where it is needed.")

    def __getstate__(self) -> NoReturn:
        self.__reduce__()


def write_secret(path: str | Path, content: bytes) -> None:
    """Write a secret to a new file that only its owner can read, from the first instant on (mode 0600).

    Parameters
    ----------
    path : str or Path
        Must not exist; its folder must.
    content : bytes
        32 bytes.

    Raises
    ------
    ConfigurationError
        The file exists or cannot be written, or there are not 32 bytes.

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
            "the file exists, and a secret is never overwritten",
            where=str(path),
            mend="Name a new file, or keep the secret that is there.",
        ) from None
    except OSError as error:
        raise ConfigurationError(f"the secret cannot be written ({error.strerror})", where=str(path)) from None


def read_secret(path: str | Path) -> bytes:
    """Return the 32 bytes of a secret file.

    Raises
    ------
    ConfigurationError
        The file is missing or cannot be read, its group or others have rights to it (not checked on Windows), it is
        no secret file, or a digit of it is wrong.

    Examples
    --------
    >>> read_secret("nowhere.txt")
    Traceback (most recent call last):
        ...
    multicentre.federation.errors.ConfigurationError: nowhere.txt: the secret cannot be read (No such file ...
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
            mend="Ask the site that made it for a copy, or make a new one: multicentre secret new PATH.",
        ) from None
    if open_to_others:
        raise ConfigurationError(
            "others than the file's owner have rights to this secret",
            where=str(path),
            mend=f"Run: chmod 600 {shlex.quote(str(path))}. If others may have read it, make a new one.",
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
    found = _LINE.fullmatch(line)
    if found is None:
        raise ConfigurationError(
            "this is not a secret file, or a part of it is missing",
            where=str(path),
            mend=f"It holds one line: {_MARK.decode()}, 64 hex digits, 8 hex digits.",
        )
    content = bytes.fromhex(found[1].decode())
    if not hmac.compare_digest(_checksum(content), found[2].lower()):
        raise ConfigurationError(
            "the checksum does not fit: a digit was changed",
            where=str(path),
            mend="Copy the file anew from its source.",
        )
    return content


def _checksum(content: bytes) -> bytes:
    return hashlib.sha256(_MARK + content).hexdigest()[:8].encode()


def _check_length(content: bytes) -> None:
    if len(content) != SECRET_BYTES:
        raise ConfigurationError(f"a secret has {SECRET_BYTES} bytes", where="secret")
