"""Counting of co-occurring codes in a table of events."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from multicentre.data.events.checking import checked_codes
from multicentre.data.events.columns import id_text
from multicentre.data.events.table import Events, read_events, read_modes
from multicentre.data.events.windows import Windows, is_integer_from, join, lay_out
from multicentre.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    import pandas as pd

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
        Number of co-occurrences of the codes in this patient, at least 1.
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
    """Limits on the entries of a patient.

    Parameters
    ----------
    cap : int, optional
        Largest count, at least 1.
    binary : bool, default False
        Set every count to 1; excludes `cap`.
    max_entries : int, optional
        Maximum number of entries per patient, at least 1.
    random_state : int, default 0
        Seed of the draw of these entries, at least 0.

    Raises
    ------
    ConfigurationError
        A number is out of range, or both `cap` and `binary` are set.
    """

    cap: int | None = None
    binary: bool = False
    max_entries: int | None = None
    random_state: int = 0

    def __post_init__(self) -> None:
        for name, lowest in (("cap", 1), ("max_entries", 1), ("random_state", 0)):
            value = getattr(self, name)
            if value is not None and not is_integer_from(value, lowest):
                raise ConfigurationError(
                    f"{name} must be an integer of at least {lowest}; got {value!r}",
                    where=name,
                    hint="Correct it, or leave it out.",
                )
        if self.binary and self.cap is not None:
            raise ConfigurationError(
                f"cap must be None if binary is set; got {self.cap}", where="cap", hint="Set one of the two."
            )


def count_together(events: Events, windows: Windows, allowed: NDArray[np.bool_]) -> Entries:
    """Count the co-occurrences of codes of all modes in every patient.

    Parameters
    ----------
    events : Events
    windows : Windows
    allowed : array of bool, shape (codes,)
        Codes to count; windows begin at events of any code.

    Returns
    -------
    Entries
        Sorted by patient, then by the codes of each mode. Repeated events count once.
    """
    line = lay_out(windows, events.patient, events.when)
    mode = np.where(allowed, events.mode_of, -1)[events.code]
    sides = [_distinct(line.place[mode == m], events.code[mode == m]) for m in range(int(events.mode_of.max()) + 1)]
    place, *codes = join(sides, line.reach)
    places, first = np.unique(line.place, return_index=True)
    patient = events.patient[first][np.searchsorted(places, place)]
    return _count_rows(np.column_stack([patient, *codes]))


def limit_entries(entries: Entries, ids: NDArray[np.str_], limits: Limits) -> Entries:
    """Draw at most ``limits.max_entries`` entries per patient at random, and cap their counts.

    The draw of a patient depends only on the seed, the identifier and the patient's entries. Adding or removing another
    patient does not change it, as required for differential privacy.
    """
    counts = entries.counts if limits.cap is None else np.minimum(entries.counts, limits.cap)
    entries = replace(entries, counts=np.ones_like(counts) if limits.binary else counts)
    if limits.max_entries is None:
        return entries
    n_entries = np.bincount(entries.patient, minlength=len(ids))
    start = np.cumsum(n_entries) - n_entries
    is_drawn = np.ones(len(entries), dtype=bool)
    for row in np.flatnonzero(n_entries > limits.max_entries):
        key = np.frombuffer(hashlib.sha256(str(ids[row]).encode()).digest(), dtype=np.uint32)
        draw = np.random.default_rng([limits.random_state, *key.tolist()]).permutation(n_entries[row])
        is_drawn[start[row] + draw[limits.max_entries :]] = False
    return entries.take(np.flatnonzero(is_drawn))


def _distinct(place: Places, code: Places) -> tuple[Places, Places]:
    pairs = _distinct_rows(np.column_stack([place, code]))[0]
    return pairs[:, 0], pairs[:, 1]


def _count_rows(rows: Places) -> Entries:
    distinct, start = _distinct_rows(rows)
    return Entries(distinct[:, 0], distinct[:, 1:], np.diff(start, append=len(rows)))


def _distinct_rows(rows: Places) -> tuple[Places, Places]:
    """Return the distinct rows, sorted, and the start of each one among the sorted rows."""
    ordered = rows[np.lexsort(rows.T[::-1])]
    new = np.ones(len(rows), dtype=bool)
    new[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    start = np.flatnonzero(new)
    return ordered[start], start


_LOG = logging.getLogger("multicentre.data.events")


@dataclass(frozen=True)
class TensorParts:
    """Arguments of `EventTensor`, by parameter name."""

    coordinates: Places
    counts: Places
    codes: dict[str, tuple[str, ...]]
    ids: list[str]
    outcomes: list[int] | None


def count_events(
    events: object,
    modes: Mapping[str, str | Sequence[str]],
    windows: Windows,
    *,
    columns: Mapping[str, str] | None,
    vocabulary: Mapping[str, Sequence[str]] | None,
    limits: Limits,
    outcomes: Mapping[object, int] | pd.Series | None,
    keep_empty: bool,
) -> TensorParts:
    """Count co-occurring codes; see `EventTensor.from_events` for parameters and errors."""
    systems = read_modes(modes)
    listed = None if vocabulary is None else _checked_vocabulary(vocabulary, list(systems))
    outcome_by_id = None if outcomes is None else _read_outcomes(outcomes)
    table = read_events(events, systems, columns, windows)
    allowed = _allowed_codes(table, list(systems), listed)
    entries = limit_entries(count_together(table, windows, allowed), table.ids, limits)
    rows = np.arange(len(table.ids)) if keep_empty else np.unique(entries.patient)
    _check_patients(len(rows), len(table.ids))
    places, codes = _number_codes(entries, table.codes, list(systems), listed)
    ids = table.ids[rows].tolist()
    return TensorParts(
        np.column_stack([np.searchsorted(rows, entries.patient), *places]),
        entries.counts,
        codes,
        ids,
        None if outcome_by_id is None else _outcomes_of(ids, outcome_by_id),
    )


def _check_patients(n_with_entry: int, n_patients: int) -> None:
    if n_with_entry == 0:
        raise DataError(
            "at least one patient must have codes of every mode in one window; none has",
            where="events",
            hint="Check the modes, or lengthen the windows.",
        )
    if n_with_entry < n_patients:
        n_left_out = n_patients - n_with_entry
        _LOG.info("Left out %d of %d patients without codes of every mode in one window", n_left_out, n_patients)


def _checked_vocabulary(vocabulary: object, modes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    if not isinstance(vocabulary, Mapping):
        raise ConfigurationError(
            f"vocabulary must be a mapping; got {type(vocabulary).__name__}",
            where="vocabulary",
            hint="List the codes of every mode.",
        )
    if set(vocabulary) != set(modes):
        raise DataError(
            f"vocabulary must have the modes {', '.join(modes)}; got {', '.join(map(str, vocabulary))}",
            where="vocabulary",
            hint="List the codes of every mode.",
        )
    try:
        return checked_codes(vocabulary)
    except DataError as error:
        raise error.at("vocabulary") from None


def _allowed_codes(
    events: Events, modes: Sequence[str], vocabulary: Mapping[str, Sequence[str]] | None
) -> NDArray[np.bool_]:
    if vocabulary is None:
        return np.ones(len(events.codes), dtype=bool)
    listed = [set(vocabulary[mode]) for mode in modes]
    pairs = zip(events.codes, events.mode_of.tolist(), strict=True)
    return np.array([m >= 0 and code in listed[m] for code, m in pairs], dtype=bool)


def _number_codes(
    entries: Entries, codes: Sequence[str], modes: Sequence[str], vocabulary: Mapping[str, Sequence[str]] | None
) -> tuple[list[Places], dict[str, tuple[str, ...]]]:
    columns, listed = [], {}
    for m, mode in enumerate(modes):
        distinct, column = np.unique(entries.codes[:, m], return_inverse=True)
        names = tuple(codes[k] for k in distinct)
        listed[mode] = names if vocabulary is None else tuple(vocabulary[mode])
        place = {name: position for position, name in enumerate(listed[mode])}
        columns.append(np.array([place[name] for name in names], dtype=np.int64)[column])
    return columns, listed


def _read_outcomes(outcomes: Mapping[object, int] | pd.Series) -> dict[str, int]:
    if not hasattr(outcomes, "items"):
        raise ConfigurationError(
            f"outcomes must be a mapping from patient to 0 or 1, or a pandas Series; got {type(outcomes).__name__}",
            where="outcomes",
            hint="A Series has the patients as its index.",
        )
    by_id: dict[str, int] = {}
    ambiguous = set()
    for one, value in outcomes.items():
        name = id_text(one)
        if name in by_id and by_id[name] != value:
            ambiguous.add(name)
        by_id[name] = value
    if ambiguous:
        raise DataError(
            f"every patient must have one outcome; {len(ambiguous)} have two different ones",
            where="outcomes",
            hint="Assign one outcome to every patient.",
        )
    return by_id


def _outcomes_of(ids: Sequence[str], by_id: Mapping[str, int]) -> list[int]:
    n_without = sum(one not in by_id for one in ids)
    if n_without:
        raise DataError(
            f"every patient must have an outcome; {n_without} of {len(ids)} have none",
            where="outcomes",
            hint="Add their outcomes, or leave the events of these patients out.",
        )
    return [by_id[one] for one in ids]
