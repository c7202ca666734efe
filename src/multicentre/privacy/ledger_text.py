"""Entries of a ledger as texts, for tables of ``multicentre ledger show`` and of the web application."""

from __future__ import annotations

from typing import Any

from multicentre.privacy.ledger import Entry

_FINGERPRINT = 19  # four of its ten groups; the ledger contains all of them

COLUMNS = ("entry", "time", "method", "step", "what", "numbers", "records", "patients", "left as")
REQUESTER = "asked by"


def describe_entry(entry: Entry) -> dict[str, str]:
    """Return the texts of an entry by column, and the requesting person under :data:`REQUESTER`."""
    fields = entry.get("fields", [])
    texts = (
        str(entry["entry"]),
        entry.get("time", "-"),
        entry.get("method", "-"),
        entry.get("step", "-"),
        _contents(entry),
        str(sum(_size(field) for field in fields)),
        _fewest(fields, "records"),
        _fewest(fields, "patients"),
        _left_as(entry),
    )
    return {**dict(zip(COLUMNS, texts, strict=True)), REQUESTER: _requested_by(entry)}


def _requested_by(entry: Entry) -> str:
    """Return name and short fingerprint of the person who asked."""
    requester = entry.get("requested_by")
    if requester is None:
        return "-"
    return f"{requester['name']}, {(requester['fingerprint'] or 'not signed')[:_FINGERPRINT]}"


def _left_as(entry: Entry) -> str:
    noised = f", epsilon {entry['epsilon']:.3g}" if entry.get("rho") and entry.get("epsilon") is not None else ""
    return f"{entry.get('protection', '-')}{noised}"


def _contents(entry: Entry) -> str:
    if entry.get("event") == "refusal":
        return f"REFUSED: {entry.get('reason', '-')}"
    if entry.get("event") == "failure":
        return f"FAILED: {entry.get('reason', '-')}"
    if entry.get("event") != "release":
        return str(entry.get("event", "-"))
    names = dict.fromkeys(str(field.get("field", "-")).partition("[")[0] for field in entry.get("fields", []))
    return ", ".join(names) or "acknowledgement"


def _size(field: dict[str, Any]) -> int:
    size = 1
    for side in field.get("shape", []):
        size *= side
    return size


def _fewest(fields: list[dict[str, Any]], counted: str) -> str:
    """Return the smallest number of records or patients behind a field; "-" without numbers."""
    behind = [field[counted] for field in fields if field.get(counted)]
    return str(min(behind)) if behind else "-"
