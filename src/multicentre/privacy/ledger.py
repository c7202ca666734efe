"""Ledger of a site: append-only record of its releases and refusals.

Every entry contains the hash of the previous entry, so that an edited, removed or inserted entry is detected. In a
ledger with a signer, every entry is signed by the site, so that nobody else can rewrite the whole ledger.
"""

from __future__ import annotations

import csv
import hashlib
import io
import itertools
import json
import os
import threading
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multicentre.core.printable import inert
from multicentre.core.storage import (
    OWNER_ONLY,
    check_owner_writes_alone,
    make_private_folder,
    open_regular,
    read_regular,
    write_atomically,
)
from multicentre.errors import IntegrityError
from multicentre.privacy.ledger_entries import wrong_value
from multicentre.privacy.ledger_heads import GENESIS, Head, is_signed, signed_text
from multicentre.privacy.ledger_summary import summarise_entries
from multicentre.privacy.secure_sum.identity import Identity

if TYPE_CHECKING:
    import pandas as pd

Entry = dict[str, Any]
_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
_OUTSIDE_HASH = ("hash", "signature")


class Ledger:
    """Append-only record of one site.

    Parameters
    ----------
    path : Path, optional
        File with one JSON entry per line; an existing file is continued, and memory does not grow with it. Without
        it, the record stays in memory.
    durable : bool, default False
        True to synchronise an entry to the disk before :meth:`append` returns.
    signer : Identity, optional
        Signing key of the site. Without it, entries are chained but not signed.
    study : str
        Name of the study, written to every entry.
    keys : collection of str
        Further public keys, in hexadecimal digits, under which earlier entries of the file may be signed.

    Raises
    ------
    IntegrityError
        The existing file is not an intact ledger, is a symbolic link, or was signed under a different key. See
        :func:`repair_ledger` for a ledger that was truncated by a crash.
    ConfigurationError
        Users other than the owner may write to the file or its folder.

    Examples
    --------
    >>> ledger = Ledger()
    >>> first = ledger.append("refusal", {"reason": "too few patients"})
    >>> second = ledger.append("release", {"step": "fit_shared"})
    >>> second["previous"] == first["hash"], ledger.head.entries
    (True, 2)
    """

    def __init__(
        self,
        path: Path | None = None,
        *,
        durable: bool = False,
        signer: Identity | None = None,
        study: str = "",
        keys: Collection[str] = (),
    ) -> None:
        self._in_memory: list[Entry] = []  # of a record without a file
        self._unsealed: deque[tuple[datetime, str, Entry]] = deque()
        self._durable = durable
        self._path = path
        self._size = 0
        self._writing = threading.Lock()
        self._signer = signer
        self._of: Entry = {"study": study} if study else {}
        self._signed_by: Entry = {} if signer is None else {"key": signer.public.hex()}
        self._noted: Entry = {}
        if path is not None:
            make_private_folder(path.parent)
            check_owner_writes_alone(path, "ledger")
        self._head = Head(0, GENESIS)
        if path is not None and path.exists():
            entries = list(read_ledger(path))
            self._size = sum(len(_line(entry).encode()) + 1 for entry in entries)
            if signer is not None:
                _check_last_signatures(entries, {signer.public.hex(), *keys}, path)
            self._head = head_of(entries)

    @property
    def path(self) -> Path | None:
        """Path of the file; None if the record stays in memory."""
        return self._path

    @property
    def study(self) -> str:
        """Name of the study of all entries; empty if entries have different studies."""
        return str(self._of.get("study", ""))

    @property
    def is_durable(self) -> bool:
        """True if entries are synchronised to the disk."""
        return self._durable

    @property
    def key(self) -> str:
        """Public key of the signer, in hexadecimal digits; empty without a signer."""
        return str(self._signed_by.get("key", ""))

    @property
    def head(self) -> Head:
        """Current end of the ledger."""
        with self._writing:
            self._seal_all()
            return self._head

    @property
    def entries(self) -> tuple[Entry, ...]:
        """All entries, the oldest first; those of a file are read and checked again.

        Raises
        ------
        IntegrityError
            The file was changed since this ledger was opened.
        """
        with self._writing:
            self._seal_all()
            return tuple(map(_as_read, self._in_memory) if self._path is None else self._read(self._path))

    def to_frame(self) -> pd.DataFrame:
        """Return one row per step that released values or was refused.

        Columns are those of :func:`multicentre.privacy.ledger_summary.summarise_entries`.
        """
        return summarise_entries(self.entries)

    def note(self, **facts: Any) -> None:
        """Add values to the next entry; a later note replaces an earlier one of the same name."""
        with self._writing:
            self._noted.update(facts)

    def last(self, fact: str) -> Any:
        """Return a value of the last entry that has it; None if no entry has it."""
        return next((entry[fact] for entry in reversed(self.entries) if fact in entry), None)

    def append(self, event: str, facts: Mapping[str, Any]) -> Entry:
        """Write one entry and return it; it is in the file when this method returns.

        Raises
        ------
        IntegrityError
            Another process wrote to the file since this ledger was opened.
        """
        with self._writing:
            self._add(event, facts)
            return self._seal_all()[-1]

    def add(self, event: str, facts: Mapping[str, Any]) -> None:
        """Write one entry; `facts` must not be changed afterwards.

        An entry of a file is in the file when this method returns. Entries in memory are hashed and signed when the
        ledger is first read, which a simulation may never do.

        Raises
        ------
        IntegrityError
            Another process wrote to the file since this ledger was opened.
        """
        with self._writing:
            self._add(event, facts)
            if self._path is not None:
                self._seal_all()

    def _add(self, event: str, facts: Mapping[str, Any]) -> None:
        self._unsealed.append((datetime.now(UTC), event, {**facts, **self._of, **self._noted}))
        if self._path is None:
            self._noted = {}

    def _seal_all(self) -> list[Entry]:
        sealed = []
        while self._unsealed:
            sealed.append(self._seal(*self._unsealed.popleft()))
            self._noted = {}
        return sealed

    def _seal(self, time: datetime, event: str, facts: Entry) -> Entry:
        """Chain, sign, store and return one entry."""
        entry: Entry = {
            "entry": self._head.entries + 1,
            "time": time.isoformat(timespec="milliseconds"),
            "event": event,
            **self._of,
            **facts,
            "previous": self._head.hash,
            **self._signed_by,
        }
        content = _ENCODER.encode(entry)
        entry["hash"] = hashlib.sha256(content.encode()).hexdigest()
        if self._signer is not None:
            entry["signature"] = self._signer.sign(_signed_text_of(entry)).hex()
        if self._path is not None:
            outside = _ENCODER.encode({name: entry[name] for name in _OUTSIDE_HASH if name in entry})
            try:
                self._write(self._path, f"{content[:-1]},{outside[1:]}\n".encode())
            except OSError as error:
                raise IntegrityError(
                    f"the ledger cannot be written ({error.strerror}); nothing was released",
                    where=str(self._path),
                    hint="Free disk space, or make the file writable for its owner.",
                ) from None
        else:
            self._in_memory.append(entry)
        self._head = head_of([entry])
        return entry

    def write(self, path: Path) -> None:
        """Write the whole ledger to a file."""
        write_atomically(path, "".join(_line(entry) + "\n" for entry in self.entries).encode())

    def _read(self, path: Path) -> list[Entry]:
        """Return the entries of the file up to the last one of this process."""
        n_entries = self._head.entries
        entries = list(itertools.islice(read_ledger(path), n_entries)) if n_entries else []
        if head_of(entries) != self._head:
            raise IntegrityError(
                f"entry {n_entries} of the ledger must be the one that this process wrote or read; it was changed",
                where=str(path),
                hint="Compare the ledger with a copy.",
            )
        return entries

    def _write(self, path: Path, line: bytes) -> None:
        handle = open_regular(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, "ledger")
        with os.fdopen(handle, "ab", buffering=0) as file:
            if file.seek(0, os.SEEK_END) != self._size:
                raise IntegrityError(
                    "the ledger must be written by one process; another process wrote to it since it was opened",
                    where=str(path),
                    hint="Use the folder in only one federation at a time.",
                )
            if file.write(line) != len(line):
                raise IntegrityError(
                    "an entry was written only partly; nothing was released for it",
                    where=str(path),
                    hint="Free disk space, then run: multicentre ledger repair FILE.",
                )
            if self._durable:
                os.fsync(file.fileno())
            self._size += len(line)


class TornLedger(IntegrityError):
    """The last entry of a ledger was truncated by a crash; the entries before it are intact."""


def read_ledger(path: str | Path) -> Iterator[Entry]:
    """Yield the entries of a file, each checked against the previous one; signatures are not checked.

    Parameters
    ----------
    path : path
        File of the ledger.

    Yields
    ------
    dict
        Entries in order.

    Raises
    ------
    IntegrityError
        An entry was changed, removed or inserted, or contains a value of the wrong type; the message names it. Or the
        file is a symbolic link.
    """
    path = Path(path)
    *lines, torn = _raw(path).split(b"\n")
    yield from _chained(lines, path)
    if torn:
        raise TornLedger(
            f"every entry must be complete; entry {len(lines) + 1} is truncated",
            where=str(path),
            hint="After a crash, run `multicentre ledger repair FILE`, which keeps all complete entries.",
        )


def _as_read(entry: Entry) -> Entry:
    """Return an entry of the memory as it would be read from a file: all entries share one tuple of names there."""
    return entry | {"peers": list(entry["peers"])} if "peers" in entry else entry


def entries_of_all(folder: Path) -> Iterator[Entry]:
    """Yield the complete entries of all ledgers in a folder, each checked against the previous one.

    A truncated last entry is left out: its release did not leave the site.

    Raises
    ------
    IntegrityError
        An entry was changed, removed or inserted, or a file is a symbolic link.
    """
    for path in sorted(folder.glob("*.jsonl")):
        *lines, _ = _raw(path).split(b"\n")
        yield from _chained(lines, path)


def repair_ledger(path: Path, *, signer: Identity | None = None, study: str = "", keys: Collection[str] = ()) -> Head:
    """Remove a last entry that was truncated by a crash, and return the new end of the ledger.

    A release leaves a site only after its entry is complete, so no release belongs to the fragment. The fragment is
    stored next to the ledger as ``<name>.torn``, and an entry ``repaired`` with its length and hash is added. To a
    signed ledger, this entry is added only with its signer. A complete ledger is not changed.

    Parameters
    ----------
    path : Path
    signer, study, keys
        See :class:`Ledger`.

    Raises
    ------
    IntegrityError
        An entry before the last was changed, removed or inserted.
    """
    raw = _raw(path)
    *lines, torn = raw.split(b"\n")
    entries = list(_chained(lines, path))
    if not torn:
        return head_of(entries)
    write_atomically(path.with_name(f"{path.name}.torn"), torn, mode=OWNER_ONLY)
    write_atomically(path, raw[: len(raw) - len(torn)], mode=OWNER_ONLY)
    if signer is None and b'"key":"' in raw:
        return head_of(entries)
    study_name = study or str(entries[-1].get("study", "")) if entries else study
    ledger = Ledger(path, signer=signer, study=study_name, keys=keys)
    ledger.append("repaired", {"bytes": len(torn), "sha256": hashlib.sha256(torn).hexdigest()})
    return ledger.head


def _raw(path: Path) -> bytes:
    try:
        return read_regular(path, "ledger")
    except OSError as error:
        raise IntegrityError(
            f"the ledger cannot be read ({error.strerror})",
            where=str(path),
            hint="Check the path and the rights of the file.",
        ) from None


def _chained(lines: list[bytes], path: Path) -> Iterator[Entry]:
    previous = GENESIS
    for number, line in enumerate(lines, start=1):
        entry = _parsed(line, path, number)
        if entry.get("entry") != number or entry.get("previous") != previous:
            raise _broken(path, number, "must follow the previous entry; got another predecessor")
        if entry.get("hash") != _hash_of(entry) or _line(entry).encode() != line:
            raise _broken(path, number, "must match its hash; it was changed after it was written")
        if wrong := wrong_value(entry):
            raise _broken(
                path,
                number,
                f"must have valid values: {wrong}",
                hint="Ask the steward of the site how the entry was written.",
            )
        previous = entry["hash"]
        yield entry


def verify_ledger(path: Path, head: Head | None = None, *, keys: Collection[str] | None = None) -> Head:
    """Check a ledger from its first entry to its last and return its end.

    Parameters
    ----------
    path : Path
        File of the ledger.
    head : Head, optional
        Recorded end of the ledger, by which entries that were removed from the end are detected.
    keys : collection of str, optional
        Public keys of the site, in hexadecimal digits. Every entry must be signed under one of them. Without it, the
        signatures only have to match the keys in the entries, which anybody who rewrites a ledger can achieve.

    Raises
    ------
    IntegrityError
        An entry was changed, removed, inserted or signed by somebody else, or the ledger has a different end.
    """
    entries = list(read_ledger(path))
    if keys is not None or any("key" in entry for entry in entries):
        for entry in entries:
            _check_signature(entry, keys, path)
    end = head_of(entries)
    if head is not None and (end.entries, end.hash) != (head.entries, head.hash):
        raise IntegrityError(
            f"the ledger must end at entry {head.entries}, as recorded; it ends at entry {end.entries}",
            where=str(path),
            hint="Entries were removed from the end or added to it.",
        )
    return end


def ledger_as_csv(entries: Iterable[Entry]) -> str:
    """Return a CSV table for a spreadsheet, one row per released field or refusal.

    A text that a spreadsheet would read as a formula is preceded by an apostrophe, and no text has line breaks.
    """
    columns = ["entry", "time", "event", "study", "method", "step", "protection", "field", "shape", "bytes"]
    columns += ["records", "patients", "epsilon", "delta", "reason", "hash"]
    page = io.StringIO()
    writer = csv.DictWriter(page, columns, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for entry in entries:
        for field in entry.get("fields") or [{}]:
            shape = " x ".join(str(side) for side in field.get("shape", []))
            row = {**entry, **field, "shape": shape}
            writer.writerow({column: inert(row[column]) for column in columns if column in row})
    return page.getvalue()


def _parsed(line: bytes, path: Path, number: int) -> Entry:
    try:
        entry = json.loads(line.decode())
        _line(entry).encode()
    except (ValueError, RecursionError):
        raise _broken(path, number, "must be a JSON object; it cannot be parsed") from None
    if not isinstance(entry, dict):
        raise _broken(path, number, f"must be a JSON object; got {type(entry).__name__}")
    return entry


def _broken(path: Path, number: int, defect: str, hint: str = "") -> IntegrityError:
    hint = hint or "Compare the ledger with a copy. Entries after this one are unreliable."
    return IntegrityError(f"entry {number} {defect}", where=str(path), hint=hint)


def head_of(entries: Sequence[Entry]) -> Head:
    """Return the end of a ledger whose last entries are these."""
    if not entries:
        return Head(0, GENESIS)
    last = entries[-1]
    if "signature" not in last:
        return Head(last["entry"], last["hash"])
    return Head(last["entry"], last["hash"], last.get("study", ""), last["key"], last["signature"])


def _check_last_signatures(entries: Sequence[Entry], keys: Collection[str], path: Path) -> None:
    """Check that every entry names one of the keys, and the last signature of each key, which covers all before."""
    for entry, following in itertools.zip_longest(entries, entries[1:]):
        if following is None or following.get("key") != entry.get("key"):
            _check_signature(entry, keys, path)


def _check_signature(entry: Entry, keys: Collection[str] | None, path: Path) -> None:
    key, signature = entry.get("key"), entry.get("signature")
    if not isinstance(key, str) or not isinstance(signature, str):
        raise _broken(path, entry["entry"], "must have a signature; it has none", hint=_REWRITTEN)
    if keys is not None and key not in keys:
        raise _broken(path, entry["entry"], "must be signed under a key of this site; got another key", hint=_REWRITTEN)
    if not is_signed(key, signature, _signed_text_of(entry)):
        raise _broken(
            path,
            entry["entry"],
            "must have a valid signature of the key that it names; got an invalid one",
            hint=_REWRITTEN,
        )


def _signed_text_of(entry: Entry) -> bytes:
    return signed_text(entry.get("study", ""), entry["entry"], entry["hash"])


def _line(entry: Entry) -> str:
    return _ENCODER.encode(entry)


def _hash_of(entry: Entry) -> str:
    content = {key: value for key, value in entry.items() if key not in _OUTSIDE_HASH}
    return hashlib.sha256(_line(content).encode()).hexdigest()


_REWRITTEN = "Somebody other than the site wrote it, or it is the ledger of a different site. Compare it with a copy."
