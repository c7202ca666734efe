"""Whether files are still those that were read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Self

Mark = tuple[int, int, int] | None


@dataclass(frozen=True)
class Seen:
    """Files as they stood at one moment.

    Parameters
    ----------
    files : tuple of Path
    marks : tuple
        Of each file the number, the time of its last change in nanoseconds and the size in bytes; None without a file.

    Examples
    --------
    >>> Seen.of([Path("nowhere.csv")]).stands
    True
    """

    files: tuple[Path, ...]
    marks: tuple[Mark, ...]

    @classmethod
    def of(cls, files: Iterable[Path]) -> Self:
        """Return these files as they stand now."""
        files = tuple(files)
        return cls(files, tuple(map(_mark, files)))

    @property
    def stands(self) -> bool:
        """Whether none was changed, replaced, added or removed since."""
        return tuple(map(_mark, self.files)) == self.marks


def _mark(file: Path) -> Mark:
    try:
        about = file.stat()
    except OSError:
        return None
    return about.st_ino, about.st_mtime_ns, about.st_size
