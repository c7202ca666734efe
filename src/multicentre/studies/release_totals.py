"""Totals of the releases in ledgers, added entry by entry while a run is in progress."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from multicentre.privacy.guarantee import spent_in
from multicentre.privacy.ledger import Entry

# An epsilon is stated at this delta if the ledger's entries name none.
_DELTA = 1e-5


@dataclass
class StepTotals:
    """Releases of one step over all sites.

    Attributes
    ----------
    times : dict of str to int
        Number of releases by site.
    numbers, n_bytes : int
        Released numbers and bytes.
    fewest : int, optional
        Smallest number of patients (or records, if a site cannot assign them to patients) behind a number.
    protection : str
    """

    times: dict[str, int] = field(default_factory=dict)
    numbers: int = 0
    n_bytes: int = 0
    fewest: int | None = None
    protection: str = ""


@dataclass
class ReleaseTotals:
    """Releases and refusals in the ledgers of a run.

    Attributes
    ----------
    rows : dict of str to StepTotals
        By step.
    refusals : list of (str, str, str)
        Site, step and reason.
    """

    rows: dict[str, StepTotals] = field(default_factory=dict)
    refusals: list[tuple[str, str, str]] = field(default_factory=list)
    noised: dict[str, list[Entry]] = field(default_factory=dict)
    delta: float = 0.0

    def add(self, site: str, entry: Mapping[str, Any]) -> None:
        """Add an entry of a site's ledger."""
        if entry.get("event") == "refusal":
            self.refusals.append((site, str(entry.get("step", "")), str(entry.get("reason", ""))))
        if entry.get("rho") is not None and "noise" in entry and "protection" in entry:
            self.noised.setdefault(site, []).append(dict(entry))
            self.delta = max(self.delta, entry.get("delta") or 0.0)
        if entry.get("event") == "release" and entry.get("fields"):
            row = self.rows.setdefault(str(entry.get("step", "")), StepTotals())
            row.times[site] = row.times.get(site, 0) + 1
            row.protection = str(entry.get("protection", ""))
            for one in entry["fields"]:
                _add_field(row, one)

    @property
    def n_bytes(self) -> int:
        """Bytes of all releases."""
        return sum(row.n_bytes for row in self.rows.values())

    @property
    def numbers(self) -> int:
        """Numbers in all releases."""
        return sum(row.numbers for row in self.rows.values())

    def spent(self, sites_per_patient: int) -> tuple[float, float]:
        """Return epsilon and delta of the releases so far, for the patient with the largest loss."""
        delta = self.delta or _DELTA
        return spent_in(self.noised, sites_per_patient).epsilon(delta), delta


def _add_field(row: StepTotals, one: Mapping[str, Any]) -> None:
    row.numbers += math.prod(one.get("shape", ()))
    row.n_bytes += one.get("bytes") or 0
    behind = one.get("patients") or one.get("records")
    if behind:
        row.fewest = behind if row.fewest is None else min(row.fewest, behind)
