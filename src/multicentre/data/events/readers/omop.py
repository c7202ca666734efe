"""OMOP common data model: the form in which many hospitals share their records."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from multicentre.data.events.readers.base import PatientEvents, find_files, first_known, read_named, stack_events
from multicentre.federation.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas as pd


class _Table(NamedTuple):
    name: str
    date: str


_TABLES = {
    "procedure": _Table("procedure_occurrence", "procedure_date"),
    "condition": _Table("condition_occurrence", "condition_start_date"),
}


def read_omop(folder: str | Path, source_systems: Mapping[str, str] | None = None) -> PatientEvents:
    """Read conditions and procedures of the OMOP common data model, version 5.

    Codes are standard concepts by default (``omop-condition``, ``omop-procedure``), the same at every site; records
    without one (concept 0) are left out. With `source_systems` they are the hospital's own codes instead. A visit
    stands as the admission. The outcome is a record of death, where there is a table of deaths; the site is the care
    site of the person.

    Parameters
    ----------
    folder : path
        Holds person, condition_occurrence, procedure_occurrence and, where known, death, as .csv, .csv.gz or .parquet.
    source_systems : mapping from str to str, optional
        The code systems of the source values: ``{"condition": "icd10cm", "procedure": "icd10pcs"}``.

    Raises
    ------
    ConfigurationError
        `source_systems` does not name the systems of conditions and procedures.
    DataError
        A table or a column is missing, or a file is damaged.

    References
    ----------
    OHDSI, OMOP Common Data Model v5.4.
    """
    if source_systems is not None and set(source_systems) != set(_TABLES):
        raise ConfigurationError(
            "it does not name the two systems", where="source_systems", mend="Name those of condition and procedure."
        )
    people = read_named(folder, "person", ["person_id", "care_site_id"])
    events = stack_events((_read(folder, kind, source_systems) for kind in _TABLES), "OMOP")
    return PatientEvents(events, _deaths(folder, people), first_known(people, "person_id", "care_site_id"))


def _read(folder: str | Path, kind: str, source_systems: Mapping[str, str] | None) -> pd.DataFrame:
    name, date = _TABLES[kind]
    code = f"{kind}_concept_id" if source_systems is None else f"{kind}_source_value"
    names = {"person_id": "patient", date: "date", "visit_occurrence_id": "admission", code: "code"}
    keys = ["person_id", date, "visit_occurrence_id"]
    if source_systems is None:
        table = read_named(folder, name, [*keys, code])
        table = table[table[code] != "0"]
    else:
        table = read_named(folder, name, keys, code=code)
    return table.rename(columns=names).assign(system=(source_systems or {}).get(kind, f"omop-{kind}"))


def _deaths(folder: str | Path, people: pd.DataFrame) -> dict[str, int] | None:
    if not find_files(folder, lambda stem: stem == "death"):
        return None
    dead = set(read_named(folder, "death", ["person_id"])["person_id"])
    return {one: int(one in dead) for one in people["person_id"]}
