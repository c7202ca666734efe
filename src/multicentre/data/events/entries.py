"""Entries of a tensor while it is made: codes that occur together, counted, limited and drawn."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from multicentre.data.events.table import Events
from multicentre.data.events.windows import Windows, is_whole, join, lay_out
from multicentre.federation.errors import ConfigurationError

Places = NDArray[np.int64]


@dataclass(frozen=True)
class Entries:
    """Entries of a tensor before its rows and columns are numbered.

    Parameters
    ----------
    patient : array of int, shape (entries,)
        Row in the table's sorted list of patients, ascending.
    codes : array of int, shape (entries, modes)
        Positions in the table's sorted list of codes.
    counts : array of int, shape (entries,)
        How often the patient had them together, at least 1.
    """

    patient: Places
    codes: Places
    counts: Places

    def __len__(self) -> int:
        return len(self.counts)

    def take(self, rows: Places) -> Entries:
        """Return some entries."""
        return Entries(self.patient[rows], self.codes[rows], self.counts[rows])


@dataclass(frozen=True)
class Limits:
    """What bounds the entries of a patient.

    Parameters
    ----------
    cap : int, optional
        Largest count, at least 1.
    binary : bool, default False
        Every count is 1; not beside `cap`.
    max_entries : int, optional
        Largest number of entries a patient, at least 1.
    random_state : int, default 0
        Seed of the draw that keeps them, at least 0.

    Raises
    ------
    ConfigurationError
        A number is out of range, or both `cap` and `binary` are given.
    """

    cap: int | None = None
    binary: bool = False
    max_entries: int | None = None
    random_state: int = 0

    def __post_init__(self) -> None:
        for name, lowest in (("cap", 1), ("max_entries", 1), ("random_state", 0)):
            value = getattr(self, name)
            if value is not None and not is_whole(value, lowest):
                raise ConfigurationError(
                    f"it is not a whole number of at least {lowest}", where=name, mend="Correct or leave it out."
                )
        if self.binary and self.cap is not None:
            raise ConfigurationError("binary counts have no other cap", where="cap", mend="Give one of the two.")


def count_together(events: Events, windows: Windows, allowed: NDArray[np.bool_]) -> Entries:
    """Count how often every patient had codes of all modes together.

    Parameters
    ----------
    events : Events
    windows : Windows
    allowed : array of bool, shape (codes,)
        Codes to count; windows begin at events whatever their code.

    Returns
    -------
    Entries
        Sorted by patient, then by the codes of each mode. An event that is listed twice counts once.
    """
    line = lay_out(windows, events.patient, events.when)
    mode = np.where(allowed, events.mode_of, -1)[events.code]
    sides = [_distinct(line.place[mode == m], events.code[mode == m]) for m in range(int(events.mode_of.max()) + 1)]
    place, *codes = join(sides, line.reach)
    places, first = np.unique(line.place, return_index=True)
    patient = events.patient[first][np.searchsorted(places, place)]
    return _count_rows(np.column_stack([patient, *codes]))


def limit_entries(entries: Entries, ids: NDArray[np.str_], limits: Limits) -> Entries:
    """Keep at most so many entries a patient, drawn at random, and cap their counts.

    The draw of a patient depends on the seed, the identifier and the patient's own entries alone, so that adding
    or removing another patient changes nothing: differential privacy needs that.
    """
    counts = entries.counts if limits.cap is None else np.minimum(entries.counts, limits.cap)
    entries = replace(entries, counts=np.ones_like(counts) if limits.binary else counts)
    if limits.max_entries is None:
        return entries
    n_entries = np.bincount(entries.patient, minlength=len(ids))
    start = np.cumsum(n_entries) - n_entries
    kept = np.ones(len(entries), dtype=bool)
    for row in np.flatnonzero(n_entries > limits.max_entries):
        key = np.frombuffer(hashlib.sha256(str(ids[row]).encode()).digest(), dtype=np.uint32)
        draw = np.random.default_rng([limits.random_state, *key.tolist()]).permutation(n_entries[row])
        kept[start[row] + draw[limits.max_entries :]] = False
    return entries.take(np.flatnonzero(kept))


def _distinct(place: Places, code: Places) -> tuple[Places, Places]:
    pairs = _distinct_rows(np.column_stack([place, code]))[0]
    return pairs[:, 0], pairs[:, 1]


def _count_rows(rows: Places) -> Entries:
    distinct, start = _distinct_rows(rows)
    return Entries(distinct[:, 0], distinct[:, 1:], np.diff(start, append=len(rows)))


def _distinct_rows(rows: Places) -> tuple[Places, Places]:
    """Return the distinct rows, sorted, and where each one starts among the sorted rows."""
    ordered = rows[np.lexsort(rows.T[::-1])]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    start = np.flatnonzero(new)
    return ordered[start], start
