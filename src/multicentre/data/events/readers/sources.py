"""Readers of public layouts of coded events: eICU, MIMIC-III, OMOP and SynPUF."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from multicentre.data.events.readers.base import (
    PatientEvents,
    count_several,
    ever,
    find_files,
    first_present,
    need_columns,
    read_columns,
    read_columns_of,
    stack_events,
)
from multicentre.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    import pandas as pd

_ADMISSION_DAY = "2000-01-01"  # arbitrary: eICU has no dates

# 24 hours of 60 minutes; eICU states times in minutes.
_MINUTES_PER_DAY = 1440

# An ICD-9-CM code begins with a digit, with V, or with E and three digits.
_ICD9 = r"\d.*|V.*|E\d{3}(?:\.?\d)?"


def read_eicu(folder: str | Path) -> PatientEvents:
    """Read diagnoses and treatments of eICU.

    The database has no dates, only minutes since the entry to the unit. Days are counted from the day of admission
    to the hospital, which is set to 2000-01-01 for every admission. Admissions of one patient cannot be ordered, so
    use ``anchor="admission"`` unless every patient has one admission.

    A diagnosis lists codes of ICD-9-CM and ICD-10-CM, separated by commas. Each becomes an event of its system
    (``icd9cm-dx``, ``icd10cm``). A code is assigned to ICD-9-CM if it begins with a digit, with V, or with E and three
    digits. Treatments are paths of text (``eicu-treatment``). The outcome is death in hospital in any admission; the
    site is the hospital of the patient's first stay, and the site of an event that of its stay.

    Parameters
    ----------
    folder : path
        Folder with patient, diagnosis and treatment as .csv, .csv.gz or .parquet.

    Raises
    ------
    DataError
        A table or a column is missing, or a file is damaged.

    References
    ----------
    T. J. Pollard et al. (2018), The eICU Collaborative Research Database, a freely available multi-center database for
    critical care research, Scientific Data 5, 180178.
    """
    people = ["uniquepid", "patientunitstayid", "patienthealthsystemstayid", "hospitaladmitoffset"]
    stays = read_columns_of(folder, "patient", [*people, "hospitalid", "hospitaldischargestatus"])
    diagnoses = read_columns_of(folder, "diagnosis", ["patientunitstayid", "diagnosisoffset", "icd9code"])
    treatments = read_columns_of(folder, "treatment", ["patientunitstayid", "treatmentoffset", "treatmentstring"])
    codes = _place(diagnoses.dropna(subset=["icd9code"]), stays, "diagnosisoffset")
    paths = _place(treatments, stays, "treatmentoffset").assign(system="eicu-treatment")
    events = stack_events([paths.rename(columns={"treatmentstring": "code"}), _part_codes(codes)], "eICU")
    died = stays["hospitaldischargestatus"].astype(str).str.lower() == "expired"
    sites = first_present(stays, "uniquepid", "hospitalid"), count_several(stays, "uniquepid", "hospitalid")
    return PatientEvents(events, ever(stays, "uniquepid", died), *sites)


def _place(table: pd.DataFrame, stays: pd.DataFrame, offset: str) -> pd.DataFrame:
    """Add patient, admission and day to events."""
    import pandas as pd

    stay = stays.set_index("patientunitstayid").loc[
        :, ["uniquepid", "patienthealthsystemstayid", "hospitaladmitoffset", "hospitalid"]
    ]
    placed = table.join(stay, on="patientunitstayid")
    minutes = pd.to_numeric(placed[offset]) - pd.to_numeric(placed["hospitaladmitoffset"])
    date = pd.Timestamp(_ADMISSION_DAY) + pd.to_timedelta(minutes // _MINUTES_PER_DAY, unit="D")
    names = {"uniquepid": "patient", "patienthealthsystemstayid": "admission", "hospitalid": "site"}
    renamed = placed.rename(columns=names)
    return renamed.drop(columns=["patientunitstayid", "hospitaladmitoffset", offset]).assign(
        date=date.dt.strftime("%Y-%m-%d")
    )


def _part_codes(table: pd.DataFrame) -> pd.DataFrame:
    single_codes = table.assign(code=table["icd9code"].astype(str).str.split(",")).explode("code", ignore_index=True)
    code = single_codes["code"].str.strip().str.upper()
    single_codes = single_codes.assign(code=code, system="icd10cm").drop(columns="icd9code")[code != ""]
    single_codes.loc[single_codes["code"].str.fullmatch(_ICD9), "system"] = "icd9cm-dx"
    return single_codes


_TABLES = {"procedures_icd": "icd9cm-proc", "diagnoses_icd": "icd9cm-dx"}


def read_mimic3(folder: str | Path) -> PatientEvents:
    """Read ICD-9-CM diagnoses and procedures of MIMIC-III.

    Codes of MIMIC-III have no date; the day of the admission (``admittime``) is used. The outcome is death in
    hospital in any admission; the site is the first care unit of a patient's first stay in intensive care, and the site
    of an event that of the first stay of its admission.

    Parameters
    ----------
    folder : path
        Folder with ADMISSIONS, DIAGNOSES_ICD, PROCEDURES_ICD and ICUSTAYS as .csv, .csv.gz or .parquet; upper or lower
        case.

    Raises
    ------
    DataError
        A table or a column is missing, or a file is damaged.

    References
    ----------
    A. E. W. Johnson et al. (2016), MIMIC-III, a freely accessible critical care database, Scientific Data 3, 160035.
    """
    admissions = read_columns_of(folder, "admissions", ["subject_id", "hadm_id", "admittime", "hospital_expire_flag"])
    stays = read_columns_of(folder, "icustays", ["subject_id", "hadm_id", "intime", "first_careunit"])
    date_of = admissions.set_index("hadm_id")["admittime"]
    events = stack_events((_read(folder, name, date_of) for name in _TABLES), "MIMIC-III")
    died = admissions["hospital_expire_flag"].astype(str) == "1"
    stays = stays.sort_values("intime", kind="stable")
    first_stays = stays.drop_duplicates("hadm_id")
    events["site"] = events["admission"].map(first_present(first_stays, "hadm_id", "first_careunit"))
    sites = (
        first_present(stays, "subject_id", "first_careunit"),
        count_several(first_stays, "subject_id", "first_careunit"),
    )
    return PatientEvents(events, ever(admissions, "subject_id", died), *sites)


def _read(folder: str | Path, name: str, date_of: pd.Series) -> pd.DataFrame:
    table = read_columns_of(folder, name, ["subject_id", "hadm_id"], code="icd9_code")
    table = table.rename(columns={"subject_id": "patient", "hadm_id": "admission", "icd9_code": "code"})
    return table.assign(date=table["admission"].map(date_of), system=_TABLES[name])


class _Table(NamedTuple):
    name: str
    date: str


_TABLES_OMOP = {
    "procedure": _Table("procedure_occurrence", "procedure_date"),
    "condition": _Table("condition_occurrence", "condition_start_date"),
}


def read_omop(folder: str | Path, source_systems: Mapping[str, str] | None = None) -> PatientEvents:
    """Read conditions and procedures of the OMOP common data model, version 5.

    By default, codes are standard concepts (``omop-condition``, ``omop-procedure``), the same at every site; records
    without one (concept 0) are left out. With `source_systems`, codes are the hospital's source values. A visit is
    used as the admission. The outcome is a record of death, if there is a table of deaths; the site is the care site
    of the person. Many exports leave it empty; `by_site` then raises an error.

    Parameters
    ----------
    folder : path
        Folder with person, condition_occurrence, procedure_occurrence and optionally death, as .csv, .csv.gz or
        .parquet.
    source_systems : mapping from str to str, optional
        Code systems of the source values: ``{"condition": "icd10cm", "procedure": "icd10pcs"}``.

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
    if source_systems is not None and set(source_systems) != set(_TABLES_OMOP):
        raise ConfigurationError(
            f"source_systems must have keys {' and '.join(_TABLES_OMOP)}; got {', '.join(map(str, source_systems))}",
            where="source_systems",
            hint='Example: {"condition": "icd10cm", "procedure": "icd10pcs"}.',
        )
    people = read_columns_of(folder, "person", ["person_id", "care_site_id"])
    events = stack_events((_read_omop(folder, kind, source_systems) for kind in _TABLES_OMOP), "OMOP")
    return PatientEvents(events, _deaths(folder, people), first_present(people, "person_id", "care_site_id"))


def _read_omop(folder: str | Path, kind: str, source_systems: Mapping[str, str] | None) -> pd.DataFrame:
    name, date = _TABLES_OMOP[kind]
    code = f"{kind}_concept_id" if source_systems is None else f"{kind}_source_value"
    names = {"person_id": "patient", date: "date", "visit_occurrence_id": "admission", code: "code"}
    keys = ["person_id", date, "visit_occurrence_id"]
    if source_systems is None:
        table = read_columns_of(folder, name, [*keys, code])
        table = table[table[code] != "0"]
    else:
        table = read_columns_of(folder, name, keys, code=code)
    return table.rename(columns=names).assign(system=(source_systems or {}).get(kind, f"omop-{kind}"))


def _deaths(folder: str | Path, people: pd.DataFrame) -> dict[str, int] | None:
    if not find_files(folder, lambda stem: stem == "death"):
        return None
    dead = set(read_columns_of(folder, "death", ["person_id"])["person_id"])
    return {one: int(one in dead) for one in people["person_id"]}


_SYSTEMS = {"icd9_dgns_cd_": "icd9cm-dx", "icd9_prcdr_cd_": "icd9cm-proc", "hcpcs_cd_": "hcpcs"}

_KEYS = {"desynpuf_id": "patient", "clm_id": "admission", "clm_from_dt": "date"}


def read_synpuf(folder: str | Path) -> PatientEvents:
    """Read diagnoses and procedures of inpatient, outpatient and carrier claims of DE-SynPUF.

    The date of an event is the first day of its claim (``CLM_FROM_DT``). Diagnoses are those of the claim
    (``ICD9_DGNS_CD_*``), without the admitting diagnosis and those of single lines; procedures are
    ``ICD9_PRCDR_CD_*`` and ``HCPCS_CD_*``. A claim is used as the admission. The outcome is a date of death in any
    year; the site is the state in the first year. Claims do not name a state.

    Parameters
    ----------
    folder : path
        Folder with the files of CMS (``DE1_0_2008_Beneficiary_Summary_File_Sample_1.csv`` and so on), or other files
        whose names contain ``bene``, ``inpatient``, ``outpatient`` or ``carrier``, as .csv, .csv.gz or .parquet.

    Raises
    ------
    DataError
        There is no beneficiary file or no claims, a column is missing, or a file is damaged.

    References
    ----------
    Centers for Medicare and Medicaid Services, CMS 2008-2010 Data Entrepreneurs' Synthetic Public Use File.
    """
    people = _read_people(folder)
    claims = find_files(folder, lambda stem: any(kind in stem for kind in ("inpatient", "outpatient", "carrier")))
    if not claims:
        raise DataError(
            "the folder must contain claims; got none",
            where=str(folder),
            hint="Add inpatient, outpatient or carrier claims.",
        )
    events = stack_events((part for file in claims for part in _read_claims(file)), "DE-SynPUF")
    died = ever(people, "desynpuf_id", people["bene_death_dt"].notna())
    sites = first_present(people, "desynpuf_id", "sp_state_code"), count_several(people, "desynpuf_id", "sp_state_code")
    return PatientEvents(events, died, *sites)


def _read_people(folder: str | Path) -> pd.DataFrame:
    import pandas as pd

    columns = ["desynpuf_id", "bene_death_dt", "sp_state_code"]
    files = find_files(folder, lambda stem: "bene" in stem)
    if not files:
        raise DataError(
            "the folder must contain a beneficiary file; got none",
            where=str(folder),
            hint="Add the beneficiary summary.",
        )
    tables = [need_columns(read_columns(file, lambda name: name in columns), columns, file) for file in files]
    return pd.concat(tables, ignore_index=True)


def _read_claims(file: Path) -> Iterator[pd.DataFrame]:
    claims = read_columns(file, lambda name: name in _KEYS or name.startswith(tuple(_SYSTEMS)))
    keys = need_columns(claims, _KEYS, file)[list(_KEYS)].rename(columns=_KEYS)
    for name in claims.columns:
        for prefix, system in _SYSTEMS.items():
            if name.startswith(prefix):
                is_filled = claims[name].notna()
                yield keys[is_filled].assign(system=system, code=claims.loc[is_filled, name])
