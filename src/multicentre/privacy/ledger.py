"""A site's append-only record of what it released and what it refused.

Every entry holds the hash of the one before it, so that an edited, removed or inserted entry shows.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from multicentre.federation.errors import IntegrityError

GENESIS = "0" * 64
Entry = dict[str, Any]
_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


@dataclass(frozen=True)
class Head:
    """Where a ledger ends: how many entries, and the hash of the last."""

    entries: int
    hash: str


class Ledger:
    """The record of one site.

    Parameters
    ----------
    path : Path, optional
        A file of one JSON entry a line, continued where it exists. Without it the record stays in memory.

    Raises
    ------
    IntegrityError
        The file that exists is not an intact ledger.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._entries: list[Entry] = []
        self._file: IO[str] | None = None
        self._head = Head(0, GENESIS)
        if path is not None:
            if path.exists():
                self._entries = list(read_ledger(path))
                self._head = _head_of(self._entries)
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = path.open("a", encoding="utf-8", newline="\n")

    @property
    def head(self) -> Head:
        """Where the record ends now."""
        return self._head

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    def append(self, event: str, facts: Mapping[str, Any]) -> Entry:
        """Write one entry and return it; with a file, it is there before this returns."""
        entry: Entry = {
            "entry": self._head.entries + 1,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "event": event,
            **facts,
            "previous": self._head.hash,
        }
        entry["hash"] = _hash_of(entry)
        if self._file is not None:
            self._file.write(_line(entry) + "\n")
            self._file.flush()
        self._entries.append(entry)
        self._head = Head(self._head.entries + 1, entry["hash"])
        return entry

    def write(self, path: Path) -> None:
        """Write the whole record to a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(_line(entry) + "\n" for entry in self._entries), encoding="utf-8", newline="\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
            self._file = None


def read_ledger(path: Path) -> Iterator[Entry]:
    """Yield the entries of a file, each checked against the one before it.

    Raises
    ------
    IntegrityError
        An entry was changed, removed or inserted; the message names it.
    """
    previous = GENESIS
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise IntegrityError(f"the ledger cannot be read ({error.strerror})", where=str(path)) from None
    lines = raw.split(b"\n")
    if lines.pop() != b"":
        raise _broken(path, len(lines) + 1, "is cut off")
    for number, line in enumerate(lines, start=1):
        entry = _parsed(line, path, number)
        if entry.get("entry") != number or entry.get("previous") != previous:
            raise _broken(path, number, "does not follow the entry before it")
        if entry.get("hash") != _hash_of(entry) or _line(entry).encode() != line:
            raise _broken(path, number, "was changed after it was written")
        previous = entry["hash"]
        yield entry


def verify_ledger(path: Path, head: Head | None = None) -> Head:
    """Check a ledger from its first entry to its last and return where it ends.

    Parameters
    ----------
    path : Path
    head : Head, optional
        Where it is known to have ended; catches entries removed from the end.
    """
    found = _head_of(list(read_ledger(path)))
    if head is not None and found != head:
        raise IntegrityError(
            f"the ledger ends at entry {found.entries}, its record says {head.entries}",
            where=str(path),
            mend="Entries were removed from its end or added to it.",
        )
    return found


def ledger_as_csv(entries: Iterable[Entry]) -> str:
    """Return one row a released field (or refusal), for a spreadsheet."""
    columns = ["entry", "time", "event", "study", "method", "step", "protection", "field", "shape", "bytes"]
    columns += ["patients", "epsilon", "delta", "reason", "hash"]
    page = io.StringIO()
    writer = csv.DictWriter(page, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for entry in entries:
        for field in entry.get("fields") or [{}]:
            shape = " x ".join(str(side) for side in field.get("shape", []))
            writer.writerow({**entry, **field, "shape": shape})
    return page.getvalue()


def _parsed(line: bytes, path: Path, number: int) -> Entry:
    try:
        entry = json.loads(line)
    except ValueError:
        raise _broken(path, number, "cannot be read") from None
    if not isinstance(entry, dict):
        raise _broken(path, number, "cannot be read")
    return entry


def _broken(path: Path, number: int, how: str) -> IntegrityError:
    return IntegrityError(
        f"entry {number} {how}",
        where=str(path),
        mend="Compare it with a copy; what follows the entry cannot be relied on.",
    )


def _head_of(entries: list[Entry]) -> Head:
    return Head(len(entries), entries[-1]["hash"] if entries else GENESIS)


def _line(entry: Entry) -> str:
    return _ENCODER.encode(entry)


def _hash_of(entry: Entry) -> str:
    content = {key: value for key, value in entry.items() if key != "hash"}
    return hashlib.sha256(_line(content).encode()).hexdigest()
