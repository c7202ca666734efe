"""A table of events, read and checked once: who, when, and which code of which mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.data.events.columns import SYSTEMS, read_codes, read_days, read_ids, standard_frame
from multicentre.data.events.windows import Windows
from multicentre.federation.errors import ConfigurationError, DataError

Places = NDArray[np.int64]


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


def read_modes(modes: object) -> dict[str, tuple[str, ...]]:
    """Return the code systems of every mode, of a mapping from modes to one or several.

    Raises
    ------
    ConfigurationError
        It is no mapping of two modes or more, a mode has no system, or two modes share one.

    Examples
    --------
    >>> read_modes({"procedure": ["icd9cm-proc", "hcpcs"], "diagnosis": "icd9cm-dx"})
    {'procedure': ('icd9cm-proc', 'hcpcs'), 'diagnosis': ('icd9cm-dx',)}
    """
    if not isinstance(modes, Mapping) or len(modes) < 2:
        raise ConfigurationError(
            "codes that occur together need two modes or more",
            where="modes",
            hint='Name procedures and diagnoses, say: {"procedure": "icd9cm-proc", "diagnosis": "icd9cm-dx"}.',
        )
    owner: dict[str, str] = {}
    read = {mode: _plain_names(mode, given) for mode, given in modes.items()}
    for mode, systems in read.items():
        if not systems:
            raise ConfigurationError("no code system is named", where=f"mode {mode!r}", hint="Name at least one.")
        for system in systems:
            if owner.setdefault(system, mode) != mode:
                raise ConfigurationError(
                    f"code system {system!r} is already that of mode {owner[system]!r}",
                    where=f"mode {mode!r}",
                    hint="Give every system to one mode.",
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
    names = {role: (columns or {}).get(role, role) for role in frame.columns}
    named = {system for systems in modes.values() for system in systems}
    code, codes = read_codes(frame, named, names)
    mode_of = _modes_of(codes, modes)
    cells, name = frame[moment], names[moment]
    when = read_ids(cells, name)[0] if moment == "admission" else read_days(cells, name)
    patient, ids = read_ids(frame["patient"], names["patient"])
    kept = mode_of[code] >= 0
    return Events(ids, patient[kept], when[kept], code[kept], codes, mode_of)


def _plain_names(mode: object, given: object) -> tuple[str, ...]:
    systems = [given] if isinstance(given, str) else given
    known = isinstance(mode, str) and isinstance(systems, Iterable)
    names = tuple(systems) if known and isinstance(systems, Iterable) else (None,)
    if not all(isinstance(name, str) for name in names):
        raise ConfigurationError(
            "a mode is a text, with one code system or a list of them",
            where=f"modes, {mode!r}",
            hint='Write {"procedure": "icd9cm-proc"}, say.',
        )
    return tuple(str(name).strip().lower() for name in names)


def _modes_of(codes: Sequence[str], modes: Mapping[str, tuple[str, ...]]) -> Places:
    present = {code.partition(":")[0] for code in codes}
    number = {system: m for m, systems in enumerate(modes.values()) for system in systems}
    for mode, systems in modes.items():
        for system in systems:
            if system not in present and system not in SYSTEMS:
                raise ConfigurationError(
                    f"{system!r} is not a code system",
                    where=f"mode {mode!r}",
                    hint=f"Known are {', '.join(SYSTEMS)}.",
                )
        if not present.intersection(systems):
            there = ", ".join(sorted(present & set(SYSTEMS)))
            raise DataError("it has no event", where=f"mode {mode!r}", hint=f"The table has events of {there}.")
    return np.array([number.get(code.partition(":")[0], -1) for code in codes], dtype=np.int64)
