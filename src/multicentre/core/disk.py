"""Space and places on this machine: free disk, temporary files and compiled kernels of a service."""

from __future__ import annotations

import errno
import logging
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path

from multicentre.core.storage import make_private_folder, write_atomically
from multicentre.errors import ConfigurationError, SiteFailed

# The messages of a round are stored before they are sent and have at most some tens of megabytes.
MIN_FREE_BYTES = 64 * 2**20
FULL_AT_SITE = "the disk of the site is full; nothing was released"
_PROBE_BYTES = 2**16  # more than a file system stores within a directory entry


def check_space(folders: Iterable[Path]) -> None:
    """Check that folders can be written, as far as they exist, and that the disk has room for a run.

    Raises
    ------
    ConfigurationError
        A folder cannot be written, or the disk is almost full.
    """
    for folder in filter(Path.exists, folders):
        probe = folder / ".probe"
        try:
            write_atomically(probe, bytes(_PROBE_BYTES), mode=0o600, durable=False)
            probe.unlink()
            free = free_bytes(folder)
        except OSError as error:
            raise cannot_write(folder, error) from None
        if free is not None and free < MIN_FREE_BYTES:
            raise cannot_write(folder, OSError(errno.ENOSPC, f"{free / 2**20:.0f} MiB are free"))


def free_bytes(folder: Path) -> int | None:
    """Return the free space for this account on the disk of a folder; None where the system does not state it."""
    if not hasattr(os, "statvfs"):
        return None
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


def is_full(error: BaseException) -> bool:
    """Return True if an error means that the disk or the account's share of it is full."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def cannot_write(path: Path, error: OSError) -> ConfigurationError:
    """Return the error for a folder or file that cannot be written, with the remedy."""
    full = is_full(error)
    needed = f"at least {MIN_FREE_BYTES // 2**20} MiB free disk space" if full else "permission to write"
    return ConfigurationError(
        f"the folder must have {needed}; got: {error.strerror}",
        where=str(path),
        hint="Free disk space." if full else "Give the folder to the account of the service, on a writable disk.",
    )


def full_at_site(site: str, error: BaseException, log: logging.Logger, folder: Path = Path()) -> SiteFailed | None:
    """Log a full disk with path and remedy, and return the error for the coordinator; None for any other error."""
    if not isinstance(error, OSError) or not is_full(error):
        return None
    log.error("%s", cannot_write(Path(error.filename or folder), error))
    return SiteFailed(FULL_AT_SITE, where=site, hint="Its steward frees disk space; then resume the run.")


def use_folder(folder: Path) -> None:
    """Use a folder for temporary files and compiled kernels if the system provides none.

    An account without a home, with a package that belongs to root and a read-only system, can write nowhere else.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        make_private_folder(folder / "tmp")
        tempfile.tempdir = os.environ["TMPDIR"] = str(folder / "tmp")
    home = Path(os.environ.get("HOME") or "/nonexistent")
    package = Path(__file__).parents[1]
    if not any(one.exists() and os.access(one, os.W_OK) for one in (home, package)):
        os.environ.setdefault("NUMBA_CACHE_DIR", str(folder / "kernels"))
