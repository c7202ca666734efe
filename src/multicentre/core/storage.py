"""Atomic file writes and checkpoint storage."""

from __future__ import annotations

import hashlib
import os
import shlex
import sqlite3
import stat
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from multicentre.errors import ConfigurationError, IntegrityError, StateGone

OWNER_ONLY = 0o600  # read and write for the owner; none for group and others

_FILES_HAVE_MODES = os.name == "posix"

# Windows has neither flag; there only the check of the path before opening applies.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)

_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # opening a named pipe would block for ever otherwise

_BINARY = getattr(os, "O_BINARY", 0)


def open_regular(path: Path, flags: int, what: str) -> int:
    """Open a regular file and return its descriptor; links, pipes and devices are refused.

    Parameters
    ----------
    path : Path
    flags : int
        As for ``os.open``; a new file is readable and writable by its owner only.
    what : str
        Name of the file in error messages: "ledger".

    Raises
    ------
    IntegrityError
        The path does not lead to a regular file.
    OSError
        The file cannot be opened.
    """
    check_no_link(path, what)
    try:
        handle = os.open(path, flags | _NO_LINK | _NO_WAIT | _BINARY, OWNER_ONLY)
    except OSError:
        check_no_link(path, what)  # the link appeared since the first check
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise _not_regular(path, what, "a pipe, a device or a folder")
    return handle


def read_regular(path: Path, what: str) -> bytes:
    """Return the content of a regular file; links are refused.

    Raises
    ------
    IntegrityError
        The path does not lead to a regular file.
    OSError
        The file cannot be read.
    """
    with os.fdopen(open_regular(path, os.O_RDONLY, what), "rb") as file:
        return file.read()


def check_no_link(path: Path, what: str) -> None:
    """Raise IntegrityError if the path itself (not one of its parents) is a symbolic link."""
    if path.is_symlink():
        raise _not_regular(path, what, "a symbolic link")


def check_owner_writes_alone(path: Path, what: str) -> None:
    """Check that only the owner can change or replace a file or folder.

    The path, if it exists, and its parent folder must not be writable for the group or for others. A folder may be
    writable for a group with its owner's name and no other member: many systems create the folders of an account with
    these permissions.

    Raises
    ------
    IntegrityError
        The path is a symbolic link.
    ConfigurationError
        Others may write. Modes are not checked on Windows.
    """
    check_no_link(path, what)
    for one in (path, path.parent) if _FILES_HAVE_MODES else ():
        try:
            about = one.stat()
        except OSError:  # a missing file is reported where it is opened
            continue
        writers = stat.S_IMODE(about.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
        if writers == stat.S_IWGRP and stat.S_ISDIR(about.st_mode) and _is_private(about.st_gid, about.st_uid):
            continue
        if writers:
            kind = "folder" if stat.S_ISDIR(about.st_mode) else "file"
            raise ConfigurationError(
                f"the {kind} of the {what} must be writable by its owner only; "
                f"got mode {stat.S_IMODE(about.st_mode):o}",
                where=str(one),
                hint=f"Run: chmod go-w {shlex.quote(str(one))}. If others may have written there, compare with a copy.",
            )


def make_private_folder(path: Path) -> None:
    """Create a folder and its missing parents with access for the owner alone."""
    for missing in [one for one in reversed([path, *path.parents]) if not one.exists()]:
        missing.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(exist_ok=True)  # raises if the path is a file


def _is_private(group: int, owner: int) -> bool:
    """Return whether a group has its owner's name and no other member."""
    import grp
    import pwd

    try:
        name, about = pwd.getpwuid(owner).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return about.gr_name == name and set(about.gr_mem) <= {name}


def _not_regular(path: Path, what: str, actual: str) -> IntegrityError:
    return IntegrityError(
        f"the {what} must be a regular file or folder; got {actual}",
        where=str(path),
        hint="Use the path of the file itself. Find out who created the link, if there is one.",
    )


def write_atomically(path: Path, content: bytes, *, mode: int = 0o644, durable: bool = True) -> None:
    """Write `content` to `path` so that a crash leaves the old file or the new one, never a partial one.

    The temporary file is in the same folder and has a new random name. A link at `path` is replaced, not followed.

    Parameters
    ----------
    path : Path
    content : bytes
    mode : int
        Permissions of the file.
    durable : bool, default True
        Flush the content to disk before the old file is replaced. Otherwise a power cut may leave an empty file.
    """
    temporary = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        temporary.chmod(mode)
        temporary.replace(path)
    except BaseException as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.errno is not None:  # otherwise the text would be lost
            error.filename = str(path)  # a full disk names none, and the temporary name says nothing
        raise


_RESERVED = {"", "CON", "PRN", "AUX", "NUL", *(f"{port}{i}" for port in ("COM", "LPT") for i in range(1, 10))}


def check_site_name(name: object) -> None:
    """Raise ConfigurationError unless a site's name can be that of a folder.

    Examples
    --------
    >>> check_site_name("São Paulo")
    """
    plain = isinstance(name, str) and name.isprintable() and not set(name) & set('/\\|<>:"?*')
    if not plain or str(name).endswith((".", " ")) or str(name).partition(".")[0].upper() in _RESERVED:
        raise ConfigurationError(
            "a site's name must be printable, free of / \\ | < > : \" ? *, and no reserved name of a system",
            where=repr(name),
            hint="Choose another name; it becomes the name of a folder.",
        )


class FolderInUse(ConfigurationError):
    """Another process works in the folder."""


@contextmanager
def held(lock: Path, patience_s: float = 0.0) -> Iterator[None]:
    """Lock a file against other processes; the system releases it when this process ends in any way.

    Raises
    ------
    FolderInUse
        Another process holds it, and still does after `patience_s` seconds.
    ConfigurationError
        The file system does not allow a lock.
    IntegrityError
        The lock file is a symbolic link.
    """
    check_no_link(lock, "lock")
    with ExitStack() as stack:
        try:
            connection = stack.enter_context(closing(sqlite3.connect(lock, timeout=patience_s, isolation_level=None)))
            connection.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise FolderInUse(
                    "only one process at a time may work in a folder; another process is at work here",
                    where=str(lock.parent),
                    hint="Wait until it has ended.",
                ) from None
            raise ConfigurationError(
                f"the folder must allow a lock; the lock cannot be taken ({error})",
                where=str(lock),
                hint="Check that the disk is not full, the folder is writable, and the file system supports locks.",
            ) from None
        yield


def is_held(lock: Path) -> bool:
    """Return whether a process holds a lock; an absent or unreadable lock is held by none."""
    try:
        with closing(sqlite3.connect(f"{lock.absolute().as_uri()}?mode=ro", uri=True, timeout=0)) as connection:
            connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
    except sqlite3.Error as error:
        return "locked" in str(error)
    return False


class Store:
    """Storage of numbered states in a folder; holds the last two of each name.

    Parameters
    ----------
    folder : Path
        Created when the first state is stored.

    Notes
    -----
    Two states are stored because sites and coordinator cannot write at the same instant: after a crash between the two
    writes, the earlier round is still available at both. A file contains the SHA-256 of the state, then the state; only
    its owner may read it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def keep(self, name: str, number: int, state: bytes) -> None:
        """Store `state` under a name and a number."""
        write_atomically(self._path(name, number), hashlib.sha256(state).digest() + state, mode=0o600)
        for old in self.numbers(name)[:-2]:
            self._path(name, old).unlink(missing_ok=True)

    def read(self, name: str, number: int) -> bytes:
        """Return the state of a name and a number.

        Raises
        ------
        StateGone
            It was never stored, or was deleted.
        IntegrityError
            It was changed after it was stored.
        """
        path = self._path(name, number)
        if not path.exists():
            raise StateGone(
                f"the state after round {number} must be in the folder; it is not there",
                where=name,
                hint="Start the run again from the beginning, or restore the file from a copy.",
            )
        content = path.read_bytes()
        digest, state = content[:32], content[32:]  # SHA-256 has 32 bytes
        if hashlib.sha256(state).digest() != digest:
            raise IntegrityError(
                f"the state after round {number} must have its stored digest; it was changed after it was written",
                where=str(path),
                hint="Start the run again from the beginning, or restore the file from a copy.",
            )
        return state

    def numbers(self, name: str) -> list[int]:
        """Return the numbers stored under a name, in rising order."""
        start, end = f"{_safe(name)}.", ".state"
        try:
            # A glob would compile and cache an expression for each name.
            files = [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return []
        middles = (file[len(start) : -len(end)] for file in files if file.startswith(start) and file.endswith(end))
        return sorted(int(middle) for middle in middles if middle.isdecimal())

    def _path(self, name: str, number: int) -> Path:
        return self._folder / f"{_safe(name)}.{number:06d}.state"


def _safe(name: str) -> str:
    return "".join(letter if letter.isalnum() or letter in "-_" else "_" for letter in name)
