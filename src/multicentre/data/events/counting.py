"""From a table of events to the parts of a tensor of counts."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from multicentre.data.events.checking import checked_codes
from multicentre.data.events.columns import id_text
from multicentre.data.events.entries import Entries, Limits, count_together, limit_entries
from multicentre.data.events.table import Events, read_events, read_modes
from multicentre.data.events.windows import Windows
from multicentre.federation.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    import pandas as pd

Places = NDArray[np.int64]
_LOG = logging.getLogger("multicentre.data.events")


@dataclass(frozen=True)
class TensorParts:
    """What an `EventTensor` is made of, under the names of its parameters."""

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
    """Count codes that occur together; see `EventTensor.from_events` for parameters and errors."""
    systems = read_modes(modes)
    listed = None if vocabulary is None else _checked_vocabulary(vocabulary, list(systems))
    known = None if outcomes is None else _read_outcomes(outcomes)
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
        None if known is None else _outcomes_of(ids, known),
    )


def _check_patients(n_kept: int, n_patients: int) -> None:
    if n_kept == 0:
        raise DataError(
            "no patient has codes of every mode together",
            where="events",
            mend="Check the modes, or lengthen the windows.",
        )
    if n_kept < n_patients:
        n_left_out = n_patients - n_kept
        _LOG.info("%d of %d patients have no codes of every mode together: left out", n_left_out, n_patients)


def _checked_vocabulary(vocabulary: object, modes: Sequence[str]) -> dict[str, tuple[str, ...]]:
    if not isinstance(vocabulary, Mapping):
        raise ConfigurationError("it is no mapping", where="vocabulary", mend="List the codes of every mode.")
    if set(vocabulary) != set(modes):
        raise DataError(
            f"the vocabulary is one of {', '.join(map(str, vocabulary))}, the modes are {', '.join(modes)}",
            where="vocabulary",
            mend="List the codes of every mode.",
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
        own, column = np.unique(entries.codes[:, m], return_inverse=True)
        names = tuple(codes[k] for k in own)
        listed[mode] = names if vocabulary is None else tuple(vocabulary[mode])
        place = {name: position for position, name in enumerate(listed[mode])}
        columns.append(np.array([place[name] for name in names], dtype=np.int64)[column])
    return columns, listed


def _read_outcomes(outcomes: Mapping[object, int] | pd.Series) -> dict[str, int]:
    if not hasattr(outcomes, "items"):
        raise ConfigurationError(
            f"{type(outcomes).__name__} does not say whose they are",
            where="outcomes",
            mend="Give a mapping from patient to 0 or 1, or a pandas Series with patients as its index.",
        )
    by_id: dict[str, int] = {}
    unlike = set()
    for one, value in outcomes.items():
        name = id_text(one)
        if name in by_id and by_id[name] != value:
            unlike.add(name)
        by_id[name] = value
    if unlike:
        raise DataError(
            f"{len(unlike)} patients have two that differ", where="outcomes", mend="Give every patient one outcome."
        )
    return by_id


def _outcomes_of(ids: Sequence[str], by_id: Mapping[str, int]) -> list[int]:
    n_unknown = sum(one not in by_id for one in ids)
    if n_unknown:
        raise DataError(
            f"{n_unknown} of {len(ids)} patients have none",
            where="outcomes",
            mend="Give every patient of the events one, or leave those patients' events out.",
        )
    return [by_id[one] for one in ids]
