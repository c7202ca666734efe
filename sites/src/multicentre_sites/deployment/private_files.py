"""Protection of the coordinator's keys and database from other accounts."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from multicentre.core.storage import write_atomically
from multicentre.errors import ConfigurationError
from multicentre_sites.deployment.coordinator_folder import SETTINGS, Consortium

_OTHERS = 0o077  # all permissions of group and others
_OTHERS_WRITE = 0o022  # write permission of group and others
_UMASK = 0o077  # no permissions for group and others
_DATABASE = "superlink.db"


def database(consortium: Consortium) -> Path:
    """Return the path of the SuperLink's database, with which it continues after a restart."""
    return consortium.state / _DATABASE


def check_secrets(consortium: Consortium) -> None:
    """Check that no other account has rights to keys, database and their folders, or may write to settings and lists.

    Raises
    ------
    ConfigurationError
        A key is missing, belongs to another account, or others have rights to it; or others may write to the
        coordinator's folder, its settings, the register or the list of analysts.
    """
    for folder in (consortium.pki, consortium.release_key.parent, consortium.state, consortium.home):
        _check_private(folder, "700")
    tls_key = consortium.settings.tls.key
    keys = [consortium.superlink_ca_key, consortium.superlink_key, consortium.release_key, consortium.superexec_secret]
    # An external certificate may be where the administrator's proxy reads it.
    keys += [tls_key] if tls_key.is_relative_to(consortium.folder) else []
    for secret in [*keys, *sorted(consortium.state.glob(f"{_DATABASE}*"))]:
        _check_private(secret, "600")
    for path in (consortium.folder, consortium.folder / SETTINGS, consortium.register, consortium.analysts):
        _check_unwritable(path)


@contextmanager
def nothing_for_others() -> Iterator[None]:
    """Within the block, create files without permissions for other accounts, also in child processes."""
    before = os.umask(_UMASK)
    try:
        yield
    finally:
        os.umask(before)


def _check_private(path: Path, mode: str) -> None:
    try:
        status = path.stat()
    except OSError as error:
        raise ConfigurationError(
            f"a key cannot be read ({error.strerror})", where=str(path), hint="Restore it from a copy."
        ) from None
    if os.name != "posix":
        return
    if stat.S_IMODE(status.st_mode) & _OTHERS:
        raise ConfigurationError(
            f"a key must have mode {mode}, for its owner only; got rights for others "
            f"({stat.S_IMODE(status.st_mode):o})",
            where=str(path),
            hint=f"Run: chmod {mode} {shlex.quote(str(path))}. If others may have read a key, make a new consortium.",
        )
    if status.st_uid != os.geteuid():
        raise ConfigurationError(
            f"a key must belong to the account of the coordinator's service (number {os.geteuid()}); this one "
            f"belongs to number {status.st_uid}",
            where=str(path),
            hint="Start the service under the account that the folder belongs to.",
        )


def _check_unwritable(path: Path) -> None:
    if os.name == "posix" and path.exists() and stat.S_IMODE(path.stat().st_mode) & _OTHERS_WRITE:
        raise ConfigurationError(
            "files that decide about keys and analysts must be writable by its owner only; others may write to it",
            where=str(path),
            hint=f"Run: chmod go-w {shlex.quote(str(path))}, and check whether it was changed.",
        )


FileState = tuple[int, int, int] | None


@dataclass(frozen=True)
class FileSnapshot:
    """State of files at one moment.

    Parameters
    ----------
    files : tuple of Path
    states : tuple
        Inode number, modification time in nanoseconds and size in bytes of each file; None if there is no file.

    Examples
    --------
    >>> FileSnapshot.of([Path("nowhere.csv")]).unchanged
    True
    """

    files: tuple[Path, ...]
    states: tuple[FileState, ...]

    @classmethod
    def of(cls, files: Iterable[Path]) -> Self:
        """Return the current state of these files."""
        files = tuple(files)
        return cls(files, tuple(map(_state, files)))

    @property
    def unchanged(self) -> bool:
        """True if no file was changed, replaced, added or removed since."""
        return tuple(map(_state, self.files)) == self.states


def _state(file: Path) -> FileState:
    try:
        status = file.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns, status.st_size


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner can read, without a moment of wider permissions."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(path, content, mode=0o600)
