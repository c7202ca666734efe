"""From a table of events to the counts of codes that occur together."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from multicentre.data.events.columns import read_codes, read_days, read_ids, standard_frame
from multicentre.data.events.systems import SYSTEMS
from multicentre.data.events.windows import Windows, join, lay_out
from multicentre.federation.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    import pandas as pd

Places = NDArray[np.int64]
_LOG = logging.getLogger("multicentre.data.events")


@dataclass(frozen=True)
class Events:
    """Events of the systems of some modes.

    Parameters
    ----------
    ids : array of str, shape (patients,)
        Identifiers of the table's patients, sorted.
    patient : array of int, shape (events,)
        Row of the patient of every event.
    when : array of int, shape (events,)
        Day since 1970-01-01, or number of the admission.
    code : array of int, shape (events,)
        Position in `codes`.
    codes : sequence of str
        Distinct codes, sorted.
    mode_of : array of int, shape (codes,)
        The mode of every code, -1 where none asks for it.
    """

    ids: NDArray[np.str_]
    patient: Places
    when: Places
    code: Places
    codes: Sequence[str]
    mode_of: Places


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


def read_modes(modes: Mapping[str, str | Sequence[str]]) -> dict[str, tuple[str, ...]]:
    """Return the code systems of every mode.

    Raises
    ------
    ConfigurationError
        There are fewer than two modes, a mode has no system, or two modes share one.

    Examples
    --------
    >>> read_modes({"procedure": ["icd9cm-proc", "hcpcs"], "diagnosis": "icd9cm-dx"})
    {'procedure': ('icd9cm-proc', 'hcpcs'), 'diagnosis': ('icd9cm-dx',)}
    """
    if len(modes) < 2:
        raise ConfigurationError(
            "codes that occur together need two modes or more",
            where="modes",
            mend="Name procedures and diagnoses, say.",
        )
    owner: dict[str, str] = {}
    read = {mode: (given,) if isinstance(given, str) else tuple(given) for mode, given in modes.items()}
    for mode, systems in read.items():
        if not systems:
            raise ConfigurationError("no code system is named", where=f"mode {mode!r}", mend="Name at least one.")
        for system in systems:
            if owner.setdefault(system, mode) != mode:
                raise ConfigurationError(
                    f"code system {system!r} is already that of mode {owner[system]!r}",
                    where=f"mode {mode!r}",
                    mend="Give every system to one mode.",
                )
    return read


def read_events(
    events: object, modes: Mapping[str, tuple[str, ...]], columns: Mapping[str, str] | None, windows: Windows
) -> Events:
    """Read a table of events and keep those of the modes' code systems.

    Raises
    ------
    ConfigurationError
        A mode names a code system that neither the package nor the table knows.
    DataError
        The table cannot be used (see `columns`), or a mode has no event.
    """
    moment = "admission" if windows.anchor == "admission" else "date"
    frame = standard_frame(events, columns, ["patient", moment, "system", "code"])
    named = {system for systems in modes.values() for system in systems}
    code, codes = read_codes(frame, named)
    mode_of = _modes_of(codes, modes)
    when = read_ids(frame[moment], moment)[0] if moment == "admission" else read_days(frame[moment], moment)
    patient, ids = read_ids(frame["patient"], "patient")
    kept = mode_of[code] >= 0
    return Events(ids, patient[kept], when[kept], code[kept], codes, mode_of)


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


def limit_entries(entries: Entries, ids: NDArray[np.str_], most: int, random_state: int) -> Entries:
    """Keep at most so many entries a patient, drawn at random.

    The draw of a patient depends on `random_state`, the identifier and the patient's own entries alone, so that adding
    or removing another patient changes nothing: differential privacy needs that.
    """
    n_entries = np.bincount(entries.patient, minlength=len(ids))
    start = np.cumsum(n_entries) - n_entries
    kept = np.ones(len(entries), dtype=bool)
    for row in np.flatnonzero(n_entries > most):
        key = np.frombuffer(hashlib.sha256(str(ids[row]).encode()).digest(), dtype=np.uint32)
        draw = np.random.default_rng([random_state, *key.tolist()]).permutation(n_entries[row])
        kept[start[row] + draw[most:]] = False
    return entries.take(np.flatnonzero(kept))


def cap_counts(entries: Entries, most: int) -> Entries:
    """Return the entries with counts above `most` set to it."""
    return replace(entries, counts=np.minimum(entries.counts, most))


@dataclass(frozen=True)
class TensorParts:
    """What an `EventTensor` is made of, under the names of its parameters."""

    coordinates: Places
    counts: Places
    codes: dict[str, tuple[str, ...]]
    ids: list[str]
    outcomes: list[int] | None


def assemble(
    entries: Entries,
    events: Events,
    modes: Sequence[str],
    vocabulary: Mapping[str, Sequence[str]] | None,
    keep_empty: bool,
    outcomes: Mapping[object, int] | pd.Series | None,
) -> TensorParts:
    """Number the patients and codes of entries.

    Raises
    ------
    DataError
        No patient remains, or patients have no outcome.
    """
    rows = np.arange(len(events.ids)) if keep_empty else np.unique(entries.patient)
    if len(rows) == 0:
        raise DataError(
            "no patient has codes of every mode together",
            where="events",
            mend="Check the modes, or lengthen the windows.",
        )
    if len(rows) < len(events.ids):
        n_left_out = len(events.ids) - len(rows)
        _LOG.info("%d of %d patients have no codes of every mode together: left out", n_left_out, len(events.ids))
    columns, codes = _number_codes(entries, events.codes, modes, vocabulary)
    ids = events.ids[rows].tolist()
    known = None if outcomes is None else _outcomes_of(ids, outcomes)
    return TensorParts(
        np.column_stack([np.searchsorted(rows, entries.patient), *columns]), entries.counts, codes, ids, known
    )


def allowed_codes(events: Events, modes: Sequence[str], vocabulary: Mapping[str, Sequence[str]] | None) -> NDArray[np.bool_]:
    """Return which of the table's codes a vocabulary lists, all without one.

    Raises
    ------
    DataError
        The vocabulary is one of other modes.
    """
    if vocabulary is None:
        return np.ones(len(events.codes), dtype=bool)
    if set(vocabulary) != set(modes):
        raise DataError(
            f"the vocabulary is one of {', '.join(vocabulary)}, the modes are {', '.join(modes)}",
            where="vocabulary",
            mend="List the codes of every mode.",
        )
    listed = [set(vocabulary[mode]) for mode in modes]
    pairs = zip(events.codes, events.mode_of.tolist(), strict=True)
    return np.array([m >= 0 and code in listed[m] for code, m in pairs], dtype=bool)


def _modes_of(codes: Sequence[str], modes: Mapping[str, tuple[str, ...]]) -> Places:
    present = {code.partition(":")[0] for code in codes}
    number = {system: m for m, systems in enumerate(modes.values()) for system in systems}
    for mode, systems in modes.items():
        for system in systems:
            if system not in present and system not in SYSTEMS:
                raise ConfigurationError(
                    f"{system!r} is not a code system",
                    where=f"mode {mode!r}",
                    mend=f"Known are {', '.join(SYSTEMS)}.",
                )
        if not present.intersection(systems):
            there = ", ".join(sorted(present & set(SYSTEMS)))
            raise DataError("it has no event", where=f"mode {mode!r}", mend=f"The table has events of {there}.")
    return np.array([number.get(code.partition(":")[0], -1) for code in codes], dtype=np.int64)


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


def _number_codes(
    entries: Entries, codes: Sequence[str], modes: Sequence[str], vocabulary: Mapping[str, Sequence[str]] | None
) -> tuple[list[Places], dict[str, tuple[str, ...]]]:
    columns, listed = [], {}
    for m, mode in enumerate(modes):
        own, column = np.unique(entries.codes[:, m], return_inverse=True)
        names = tuple(codes[k] for k in own)
        listed[mode] = names if vocabulary is None else tuple(vocabulary[mode])
        place = {name: position for position, name in enumerate(listed[mode])}
        columns.append(np.array([place[name] for name in names], dtype=np.int64)[column])
    return columns, listed


def _outcomes_of(ids: Sequence[str], outcomes: Mapping[object, int] | pd.Series) -> list[int]:
    by_id = {str(one): value for one, value in outcomes.items()}
    n_unknown = sum(one not in by_id for one in ids)
    if n_unknown:
        raise DataError(
            f"{n_unknown} of {len(ids)} patients have none",
            where="outcomes",
            mend="Give every patient of the events one, or leave those patients' events out.",
        )
    return [by_id[one] for one in ids]
