"""The coordinator's secrets: keys and the database, for the account of its service and for no other."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from multicentre.deployment.consortium import SETTINGS, Consortium
from multicentre.federation.errors import ConfigurationError

_OTHERS = 0o077
_OTHERS_WRITE = 0o022
_UMASK = 0o077
_DATABASE = "superlink.db"


def database(consortium: Consortium) -> Path:
    """Return the file that lets the SuperLink go on where it was after a restart."""
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
    keys = [consortium.own_ca_key, consortium.own_key, consortium.release_key, consortium.superexec_secret]
    # A certificate from elsewhere may lie where the administrator's own proxy reads it.
    keys += [tls_key] if tls_key.is_relative_to(consortium.folder) else []
    for secret in [*keys, *sorted(consortium.state.glob(f"{_DATABASE}*"))]:
        _check_private(secret, "600")
    for path in (consortium.folder, consortium.folder / SETTINGS, consortium.register, consortium.analysts):
        _check_unwritable(path)


@contextmanager
def nothing_for_others() -> Iterator[None]:
    """Give other accounts no rights to files that this process and its children make within the block."""
    before = os.umask(_UMASK)
    try:
        yield
    finally:
        os.umask(before)


def _check_private(path: Path, mode: str) -> None:
    try:
        about = path.stat()
    except OSError as error:
        raise ConfigurationError(
            f"a key cannot be read ({error.strerror})", where=str(path), hint="Restore it from a copy."
        ) from None
    if os.name != "posix":
        return
    if stat.S_IMODE(about.st_mode) & _OTHERS:
        raise ConfigurationError(
            f"a key must have mode {mode}, for its owner alone; others have rights to this one "
            f"({stat.S_IMODE(about.st_mode):o})",
            where=str(path),
            hint=f"Run: chmod {mode} {shlex.quote(str(path))}. If others may have read a key, make a new consortium.",
        )
    if about.st_uid != os.geteuid():
        raise ConfigurationError(
            f"a key must belong to the account of the coordinator's service (number {os.geteuid()}); this one "
            f"belongs to number {about.st_uid}",
            where=str(path),
            hint="Start the service under the account that the folder belongs to.",
        )


def _check_unwritable(path: Path) -> None:
    if os.name == "posix" and path.exists() and stat.S_IMODE(path.stat().st_mode) & _OTHERS_WRITE:
        raise ConfigurationError(
            "what decides about keys and analysts must be writable for its owner alone; others may write to this",
            where=str(path),
            hint=f"Run: chmod go-w {shlex.quote(str(path))}, and look whether it was changed.",
        )
