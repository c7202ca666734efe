"""What somebody who can write to a ledger's folder, and has no key of the site, can do to it."""

import hashlib
import json
from pathlib import Path

from multicentre.privacy.ledger import GENESIS
from multicentre.privacy.ledger_heads import Head, signed_text


def lines_of(path: Path) -> list[dict]:
    """Return a ledger's entries as they stand in the file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_anew(path: Path, entries, signer=None) -> Head:
    """Write entries as an intact chain, each with its old signature, or with that of another key."""
    lines, previous, entry = [], GENESIS, {}
    for number, old in enumerate(entries, start=1):
        entry = {name: value for name, value in old.items() if name not in ("hash", "signature")}
        entry |= {"entry": number, "previous": previous, **({} if signer is None else {"key": signer.public.hex()})}
        previous = hashlib.sha256(_plain(entry).encode()).hexdigest()
        text = signed_text(entry.get("study", ""), number, previous)
        signature = old.get("signature") if signer is None else signer.sign(text).hex()
        entry |= {"hash": previous, **({} if signature is None else {"signature": signature})}
        lines.append(_plain(entry) + "\n")
    path.write_text("".join(lines), encoding="utf-8")
    return Head(len(lines), previous, entry.get("study", ""), entry.get("key", ""), entry.get("signature", ""))


def cut_off(path: Path, n_entries: int) -> None:
    """Remove a ledger's last entries."""
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-n_entries]))


def _plain(entry) -> str:
    return json.dumps(entry, ensure_ascii=False, separators=(",", ":"))
