"""eICU Collaborative Research Database: stays in the intensive care units of many hospitals."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from multicentre.data.events.readers.base import PatientEvents, ever, first_known, read_named, stack_events

if TYPE_CHECKING:
    import pandas as pd

_ADMISSION_DAY = "2000-01-01"
_MINUTES_A_DAY = 1440
_ICD9 = r"\d.*|V.*|E\d{3}(?:\.?\d)?"


def read_eicu(folder: str | Path) -> PatientEvents:
    """Read diagnoses and treatments of eICU.

    The database bears no dates, only minutes since the entry to the unit. Days are counted from the day of admission
    to the hospital, which is set to 2000-01-01 for every admission; admissions of one patient cannot be ordered, so
    use ``anchor="admission"`` unless patients have one each.

    A diagnosis lists codes of ICD-9-CM and ICD-10-CM side by side, separated by commas; each becomes an event of its
    own system (``icd9cm-dx``, ``icd10cm``). A code is one of ICD-9-CM when it begins with a digit, with V, or with E
    and three digits. Treatments are paths of text (``eicu-treatment``). The outcome is death in hospital in any
    admission; the site is the hospital.

    Parameters
    ----------
    folder : path
        Holds patient, diagnosis and treatment as .csv, .csv.gz or .parquet.

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
    stays = read_named(folder, "patient", [*people, "hospitalid", "hospitaldischargestatus"])
    diagnoses = read_named(folder, "diagnosis", ["patientunitstayid", "diagnosisoffset", "icd9code"])
    treatments = read_named(folder, "treatment", ["patientunitstayid", "treatmentoffset", "treatmentstring"])
    codes = _place(diagnoses.dropna(subset=["icd9code"]), stays, "diagnosisoffset")
    paths = _place(treatments, stays, "treatmentoffset").assign(system="eicu-treatment")
    events = stack_events([paths.rename(columns={"treatmentstring": "code"}), _part_codes(codes)], "eICU")
    died = stays["hospitaldischargestatus"].astype(str).str.lower() == "expired"
    return PatientEvents(events, ever(stays, "uniquepid", died), first_known(stays, "uniquepid", "hospitalid"))


def _place(table: pd.DataFrame, stays: pd.DataFrame, offset: str) -> pd.DataFrame:
    """Give events their patient, their admission and their day."""
    import pandas as pd

    stay = stays.set_index("patientunitstayid").loc[
        :, ["uniquepid", "patienthealthsystemstayid", "hospitaladmitoffset"]
    ]
    placed = table.join(stay, on="patientunitstayid")
    minutes = pd.to_numeric(placed[offset]) - pd.to_numeric(placed["hospitaladmitoffset"])
    date = pd.Timestamp(_ADMISSION_DAY) + pd.to_timedelta(minutes // _MINUTES_A_DAY, unit="D")
    named = placed.rename(columns={"uniquepid": "patient", "patienthealthsystemstayid": "admission"})
    return named.drop(columns=["patientunitstayid", "hospitaladmitoffset", offset]).assign(
        date=date.dt.strftime("%Y-%m-%d")
    )


def _part_codes(table: pd.DataFrame) -> pd.DataFrame:
    parted = table.assign(code=table["icd9code"].astype(str).str.split(",")).explode("code", ignore_index=True)
    code = parted["code"].str.strip().str.upper()
    parted = parted.assign(code=code, system="icd10cm").drop(columns="icd9code")[code != ""]
    parted.loc[parted["code"].str.fullmatch(_ICD9), "system"] = "icd9cm-dx"
    return parted
