"""MIMIC-III: admissions to the intensive care units of one hospital."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from multicentre.data.events.readers.base import PatientEvents, ever, first_known, read_named, stack_events

if TYPE_CHECKING:
    import pandas as pd

_TABLES = {"procedures_icd": "icd9cm-proc", "diagnoses_icd": "icd9cm-dx"}


def read_mimic3(folder: str | Path) -> PatientEvents:
    """Read ICD-9-CM diagnoses and procedures of MIMIC-III.

    Codes of MIMIC-III bear no date: their date is the day of the admission (``admittime``). The outcome is death in
    hospital in any admission; the site is the first care unit of a patient's first stay in intensive care.

    Parameters
    ----------
    folder : path
        Holds ADMISSIONS, DIAGNOSES_ICD, PROCEDURES_ICD and ICUSTAYS as .csv, .csv.gz or .parquet; upper or lower case.

    Raises
    ------
    DataError
        A table or a column is missing, or a file is damaged.

    References
    ----------
    A. E. W. Johnson et al. (2016), MIMIC-III, a freely accessible critical care database, Scientific Data 3, 160035.
    """
    admissions = read_named(folder, "admissions", ["subject_id", "hadm_id", "admittime", "hospital_expire_flag"])
    stays = read_named(folder, "icustays", ["subject_id", "intime", "first_careunit"])
    date_of = admissions.set_index("hadm_id")["admittime"]
    events = stack_events((_read(folder, name, date_of) for name in _TABLES), "MIMIC-III")
    died = admissions["hospital_expire_flag"].astype(str) == "1"
    sites = first_known(stays.sort_values("intime", kind="stable"), "subject_id", "first_careunit")
    return PatientEvents(events, ever(admissions, "subject_id", died), sites)


def _read(folder: str | Path, name: str, date_of: pd.Series) -> pd.DataFrame:
    table = read_named(folder, name, ["subject_id", "hadm_id"], code="icd9_code")
    table = table.rename(columns={"subject_id": "patient", "hadm_id": "admission", "icd9_code": "code"})
    return table.assign(date=table["admission"].map(date_of), system=_TABLES[name])
