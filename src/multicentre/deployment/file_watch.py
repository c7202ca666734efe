"""Detection of changed files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

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
