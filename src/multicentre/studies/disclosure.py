"""What left each site of a run, summed up from the ledgers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from multicentre.privacy.ledger import Entry, Ledger


def summarise_ledgers(ledgers: Mapping[str, Ledger]) -> dict[str, Any]:
    """Return releases by site, step and field, refusals, and where each ledger ends.

    Parameters
    ----------
    ledgers : mapping from str to Ledger
        Ledger by site.

    Returns
    -------
    dict
        ``released`` (times, values and bytes in all, fewest records and patients behind a value, protection; no number
        of patients where nobody can tell which records are of one patient), ``refused`` and
        ``ledgers`` (entries and hash of the last).
    """
    return {
        "released": [row for site, ledger in ledgers.items() for row in _released(site, ledger.entries)],
        "refused": [
            {"site": site, "step": entry["step"], "reason": entry["reason"]}
            for site, ledger in ledgers.items()
            for entry in ledger.entries
            if entry["event"] == "refusal"
        ],
        "ledgers": {
            site: {"entries": ledger.head.entries, "hash": ledger.head.hash} for site, ledger in ledgers.items()
        },
    }


def concerns_patients(entry: Entry) -> bool:
    """Return whether a ledger's entry records something computed from patients, or that it was refused."""
    return entry["event"] == "refusal" or any(_counts(field)[0] is not None for field in entry.get("fields", ()))


def _released(site: str, entries: Iterable[Entry]) -> list[dict[str, Any]]:
    rows: dict[tuple[str, str, str], dict[str, Any]] = {}
    for entry in entries:
        for field in entry.get("fields", ()):
            key = (entry["step"], field["field"], entry["protection"])
            fresh = {"site": site, "step": key[0], "field": key[1], "times": 0, "numbers": 0, "bytes": 0}
            row = rows.setdefault(key, {**fresh, "records_min": None, "patients_min": None, "protection": key[2]})
            row["times"] += 1
            row["numbers"] += math.prod(field["shape"])
            row["bytes"] += field["bytes"]
            for counted, behind in zip(("records_min", "patients_min"), _counts(field), strict=True):
                row[counted] = _fewest(row[counted], behind)
    return list(rows.values())


def _counts(field: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return records and patients behind a field; ledgers of earlier versions hold one number for both."""
    return field.get("records", field["patients"]), field["patients"]


def _fewest(so_far: int | None, count: int | None) -> int | None:
    """Return the smaller positive count; nobody stands behind the zeros of a view that the site lacks."""
    if not count:
        return so_far
    return count if so_far is None else min(so_far, count)
