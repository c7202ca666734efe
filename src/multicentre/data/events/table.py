"""Validated table of events: patient, time, code and mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.data.events.columns import SYSTEMS, read_codes, read_days, read_ids, standard_frame
from multicentre.data.events.windows import Windows
from multicentre.errors import ConfigurationError, DataError

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
        Mode of every code, -1 for codes of no mode.
    """

    ids: NDArray[np.str_]
    patient: Places
    when: Places
    code: Places
    codes: Sequence[str]
    mode_of: Places


def read_modes(modes: object) -> dict[str, tuple[str, ...]]:
    """Return the code systems of every mode as tuples.

    Raises
    ------
    ConfigurationError
        `modes` is not a mapping of at least two modes, a mode has no system, or two modes have the same system.

    Examples
    --------
    >>> read_modes({"procedure": ["icd9cm-proc", "hcpcs"], "diagnosis": "icd9cm-dx"})
    {'procedure': ('icd9cm-proc', 'hcpcs'), 'diagnosis': ('icd9cm-dx',)}
    """
    if not isinstance(modes, Mapping) or len(modes) < 2:
        raise ConfigurationError(
            "modes must be a mapping of at least two modes to code systems; got "
            f"{f'{len(modes)} modes' if isinstance(modes, Mapping) else type(modes).__name__}",
            where="modes",
            hint='Example: {"procedure": "icd9cm-proc", "diagnosis": "icd9cm-dx"}.',
        )
    mode_of_system: dict[str, str] = {}
    systems_of = {mode: _plain_names(mode, value) for mode, value in modes.items()}
    for mode, systems in systems_of.items():
        if not systems:
            raise ConfigurationError(
                "a mode must have at least one code system; got 0", where=f"mode {mode!r}", hint="Name at least one."
            )
        for system in systems:
            if mode_of_system.setdefault(system, mode) != mode:
                raise ConfigurationError(
                    f"a code system must be in one mode; {system!r} is also in {mode_of_system[system]!r}",
                    where=f"mode {mode!r}",
                    hint="Assign every system to one mode.",
                )
    return systems_of


def read_events(
    events: object, modes: Mapping[str, tuple[str, ...]], columns: Mapping[str, str] | None, windows: Windows
) -> Events:
    """Read a table of events and select those of the modes' code systems.

    Raises
    ------
    ConfigurationError
        A code system of a mode is neither in `SYSTEMS` nor in the table.
    DataError
        The table is invalid (see `columns`), or a mode has no event.
    """
    time_role = "admission" if windows.anchor == "admission" else "date"
    frame = standard_frame(events, columns, ["patient", time_role, "system", "code"])
    names = {role: (columns or {}).get(role, role) for role in frame.columns}
    mode_systems = {system for systems in modes.values() for system in systems}
    code, codes = read_codes(frame, mode_systems, names)
    mode_of = _modes_of(codes, modes)
    cells, name = frame[time_role], names[time_role]
    when = read_ids(cells, name)[0] if time_role == "admission" else read_days(cells, name)
    patient, ids = read_ids(frame["patient"], names["patient"])
    has_mode = mode_of[code] >= 0
    return Events(ids, patient[has_mode], when[has_mode], code[has_mode], codes, mode_of)


def _plain_names(mode: object, value: object) -> tuple[str, ...]:
    systems = [value] if isinstance(value, str) else value
    is_valid = isinstance(mode, str) and isinstance(systems, Iterable)
    names = tuple(systems) if is_valid and isinstance(systems, Iterable) else (None,)
    if not all(isinstance(name, str) for name in names):
        raise ConfigurationError(
            f"a mode must be text, with one code system or a list of them; got {type(mode).__name__} with "
            f"{type(value).__name__}",
            where=f"modes, {mode!r}",
            hint='Example: {"procedure": "icd9cm-proc"}.',
        )
    return tuple(str(name).strip().lower() for name in names)


def _modes_of(codes: Sequence[str], modes: Mapping[str, tuple[str, ...]]) -> Places:
    present = {code.partition(":")[0] for code in codes}
    number = {system: m for m, systems in enumerate(modes.values()) for system in systems}
    for mode, systems in modes.items():
        for system in systems:
            if system not in present and system not in SYSTEMS:
                raise ConfigurationError(
                    f"code systems must be supported or in the table; got {system!r}",
                    where=f"mode {mode!r}",
                    hint=f"Supported are {', '.join(SYSTEMS)}.",
                )
        if not present.intersection(systems):
            systems_present = ", ".join(sorted(present & set(SYSTEMS)))
            raise DataError(
                "every mode must have at least one event; this mode has none",
                where=f"mode {mode!r}",
                hint=f"The table has events of {systems_present}.",
            )
    return np.array([number.get(code.partition(":")[0], -1) for code in codes], dtype=np.int64)
