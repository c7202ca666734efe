"""A site's append-only record of what it released and what it refused.

Every entry holds the hash of the one before it, so that an edited, removed or inserted entry shows.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import os
import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from multicentre.federation.errors import IntegrityError
from multicentre.federation.storage import write_atomically

GENESIS = "0" * 64
_FOR_THE_OWNER = 0o600
Entry = dict[str, Any]
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


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
    durable : bool, default False
        An entry is on the disk, not only with the system, before :meth:`append` returns.

    Raises
    ------
    IntegrityError
        The file that exists is not an intact ledger; see :func:`mend_ledger` for one that a crash cut off.

    Examples
    --------
    >>> ledger = Ledger()
    >>> first = ledger.append("refusal", {"reason": "too few patients"})
    >>> second = ledger.append("release", {"step": "fit_shared"})
    >>> second["previous"] == first["hash"], ledger.head.entries
    (True, 2)
    """

    def __init__(self, path: Path | None = None, *, durable: bool = False) -> None:
        self._entries: list[Entry] = []
        self._durable = durable
        self._path = path
        self._size = 0
        self._writing = threading.Lock()
        if path is not None and path.exists():
            self._entries = list(read_ledger(path))
            self._size = sum(len(_line(entry).encode()) + 1 for entry in self._entries)
        elif path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        self._head = _head_of(self._entries)

    @property
    def head(self) -> Head:
        """Where the record ends now."""
        return self._head

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, oldest first."""
        return tuple(self._entries)

    def append(self, event: str, facts: Mapping[str, Any]) -> Entry:
        """Write one entry and return it; with a file, it is there before this returns.

        Raises
        ------
        IntegrityError
            Somebody else wrote to the file since this record was opened.
        """
        with self._writing:
            entry: Entry = {
                "entry": self._head.entries + 1,
                "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
                "event": event,
                **facts,
                "previous": self._head.hash,
            }
            content = _ENCODER.encode(entry)
            entry["hash"] = hashlib.sha256(content.encode()).hexdigest()
            if self._path is not None:
                try:
                    self._write(self._path, f'{content[:-1]},"hash":"{entry["hash"]}"}}\n'.encode())
                except OSError as error:
                    raise IntegrityError(
                        f"the ledger cannot be written ({error.strerror}), and nothing was released",
                        where=str(self._path),
                        mend="Free disk space, or make the file writable for its owner.",
                    ) from None
            self._entries.append(entry)
            self._head = Head(self._head.entries + 1, entry["hash"])
        return entry

    def write(self, path: Path) -> None:
        """Write the whole record to a file."""
        write_atomically(path, "".join(_line(entry) + "\n" for entry in self._entries).encode())

    def _write(self, path: Path, line: bytes) -> None:
        handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, _FOR_THE_OWNER)
        with os.fdopen(handle, "ab", buffering=0) as file:
            if file.tell() != self._size:
                raise IntegrityError(
                    "the ledger was written to by somebody else since it was opened",
                    where=str(path),
                    mend="Let one federation at a time use the folder.",
                )
            if file.write(line) != len(line):
                raise IntegrityError(
                    "an entry could not be written whole, and nothing was released for it",
                    where=str(path),
                    mend="Free disk space, then run: multicentre ledger mend FILE.",
                )
            if self._durable:
                os.fsync(file.fileno())
            self._size += len(line)


def read_ledger(path: Path) -> Iterator[Entry]:
    """Yield the entries of a file, each checked against the one before it.

    Raises
    ------
    IntegrityError
        An entry was changed, removed or inserted; the message names it.
    """
    *lines, torn = _raw(path).split(b"\n")
    yield from _chained(lines, path)
    if torn:
        raise _broken(
            path,
            len(lines) + 1,
            "is cut off",
            mend="After a crash, `multicentre ledger mend FILE` sets the piece aside and keeps all entries before it.",
        )


def mend_ledger(path: Path) -> Head:
    """Set aside a last entry that a crash cut off, and return where the ledger ends then.

    A release leaves a site after its entry is whole, so the piece stands for nothing that left. It is kept beside the
    ledger as ``<name>.torn``, and the ledger gets an entry ``mended`` with its length and hash. A ledger that is
    whole is left as it is.

    Raises
    ------
    IntegrityError
        An entry before the last was changed, removed or inserted.
    """
    raw = _raw(path)
    *lines, torn = raw.split(b"\n")
    entries = list(_chained(lines, path))
    if not torn:
        return _head_of(entries)
    write_atomically(path.with_name(f"{path.name}.torn"), torn, mode=_FOR_THE_OWNER)
    write_atomically(path, raw[: len(raw) - len(torn)], mode=_FOR_THE_OWNER)
    ledger = Ledger(path)
    ledger.append("mended", {"bytes": len(torn), "sha256": hashlib.sha256(torn).hexdigest()})
    return ledger.head


def _raw(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise IntegrityError(f"the ledger cannot be read ({error.strerror})", where=str(path)) from None


def _chained(lines: list[bytes], path: Path) -> Iterator[Entry]:
    previous = GENESIS
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
    columns += ["records", "patients", "epsilon", "delta", "reason", "hash"]
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
        entry = json.loads(line.decode())
        _line(entry).encode()
    except (ValueError, RecursionError):
        raise _broken(path, number, "cannot be read") from None
    if not isinstance(entry, dict):
        raise _broken(path, number, "cannot be read")
    return entry


def _broken(path: Path, number: int, how: str, mend: str = "") -> IntegrityError:
    mend = mend or "Compare it with a copy; what follows the entry cannot be relied on."
    return IntegrityError(f"entry {number} {how}", where=str(path), mend=mend)


def _head_of(entries: list[Entry]) -> Head:
    return Head(len(entries), entries[-1]["hash"] if entries else GENESIS)


def _line(entry: Entry) -> str:
    return _ENCODER.encode(entry)


def _hash_of(entry: Entry) -> str:
    content = {key: value for key, value in entry.items() if key != "hash"}
    return hashlib.sha256(_line(content).encode()).hexdigest()
