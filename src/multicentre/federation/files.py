"""Files whose content a party relies on: opened without following links, writable for their owner alone."""

from __future__ import annotations

import os
import shlex
import stat
from pathlib import Path

from multicentre.federation.errors import ConfigurationError, IntegrityError

OWNER_ONLY = 0o600
_FILES_HAVE_MODES = os.name == "posix"
# Windows has neither flag; there the check of the path before opening stands alone.
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NO_WAIT = getattr(os, "O_NONBLOCK", 0)  # opening a named pipe would block for ever otherwise
_BINARY = getattr(os, "O_BINARY", 0)


def open_regular(path: Path, flags: int, what: str) -> int:
    """Open a regular file and return its descriptor; links, pipes and devices are refused.

    Parameters
    ----------
    path : Path
    flags : int
        As for ``os.open``; a new file is readable and writable for its owner alone.
    what : str
        Name of the file in error messages: "ledger".

    Raises
    ------
    IntegrityError
        The path leads to something else than a regular file.
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
        The path leads to something else than a regular file.
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
    """Check that nobody but the owner can change a file or folder, or put another in its place.

    The path, if it exists, and the folder that holds it must not be writable for the group or for others. A folder
    may be writable for a group that bears its owner's name and has no other member: many systems create every folder
    of an account like that.

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
        except OSError:  # what is not there, or cannot be, shows when it is opened
            continue
        writers = stat.S_IMODE(about.st_mode) & (stat.S_IWGRP | stat.S_IWOTH)
        if writers == stat.S_IWGRP and stat.S_ISDIR(about.st_mode) and _is_private(about.st_gid, about.st_uid):
            continue
        if writers:
            kind = "folder" if stat.S_ISDIR(about.st_mode) else "file"
            raise ConfigurationError(
                f"the {kind} of the {what} must be writable for its owner alone; "
                f"got mode {stat.S_IMODE(about.st_mode):o}",
                where=str(one),
                mend=f"Run: chmod go-w {shlex.quote(str(one))}. If others may have written there, compare with a copy.",
            )


def make_private_folder(path: Path) -> None:
    """Make a folder, and the parents that it lacks, such that the owner alone can enter them."""
    for missing in [one for one in reversed([path, *path.parents]) if not one.exists()]:
        missing.mkdir(mode=0o700, exist_ok=True)
    path.mkdir(exist_ok=True)  # raises where the path is a file


def _is_private(group: int, owner: int) -> bool:
    """Return whether a group is its owner's own: the same name, and nobody else in it."""
    import grp
    import pwd

    try:
        name, about = pwd.getpwuid(owner).pw_name, grp.getgrgid(group)
    except KeyError:
        return False
    return about.gr_name == name and set(about.gr_mem) <= {name}


def _not_regular(path: Path, what: str, found: str) -> IntegrityError:
    return IntegrityError(
        f"the {what} must be a regular file or folder; got {found}",
        where=str(path),
        mend="Name the file itself. If nobody here made the link, ask who did.",
    )
