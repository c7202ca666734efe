"""DE-SynPUF: synthetic claims of Medicare beneficiaries, published by CMS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from multicentre.data.events.readers.base import (
    PatientEvents,
    ever,
    find_files,
    first_known,
    need_columns,
    read_columns,
    stack_events,
)
from multicentre.federation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

_SYSTEMS = {"icd9_dgns_cd_": "icd9cm-dx", "icd9_prcdr_cd_": "icd9cm-proc", "hcpcs_cd_": "hcpcs"}
_KEYS = {"desynpuf_id": "patient", "clm_id": "admission", "clm_from_dt": "date"}


def read_synpuf(folder: str | Path) -> PatientEvents:
    """Read diagnoses and procedures of inpatient, outpatient and carrier claims of DE-SynPUF.

    An event bears the first day of its claim (``CLM_FROM_DT``). Diagnoses are those of the claim (``ICD9_DGNS_CD_*``),
    without the admitting diagnosis and those of single lines; procedures are ``ICD9_PRCDR_CD_*`` and ``HCPCS_CD_*``.
    A claim stands as the admission. The outcome is a date of death in any year; the site is the state.

    Parameters
    ----------
    folder : path
        Holds the files of CMS (``DE1_0_2008_Beneficiary_Summary_File_Sample_1.csv`` and so on), or others whose names
        say ``bene``, ``inpatient``, ``outpatient`` or ``carrier``, as .csv, .csv.gz or .parquet.

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
            "there are no claims", where=str(folder), mend="Put inpatient, outpatient or carrier claims there."
        )
    events = stack_events((part for file in claims for part in _read_claims(file)), "DE-SynPUF")
    died = ever(people, "desynpuf_id", people["bene_death_dt"].notna())
    return PatientEvents(events, died, first_known(people, "desynpuf_id", "sp_state_code"))


def _read_people(folder: str | Path) -> pd.DataFrame:
    import pandas as pd

    columns = ["desynpuf_id", "bene_death_dt", "sp_state_code"]
    files = find_files(folder, lambda stem: "bene" in stem)
    if not files:
        raise DataError("there is no beneficiary file", where=str(folder), mend="Put the beneficiary summary there.")
    tables = [need_columns(read_columns(file, lambda name: name in columns), columns, file) for file in files]
    return pd.concat(tables, ignore_index=True)


def _read_claims(file: Path) -> Iterator[pd.DataFrame]:
    claims = read_columns(file, lambda name: name in _KEYS or name.startswith(tuple(_SYSTEMS)))
    keys = need_columns(claims, _KEYS, file)[list(_KEYS)].rename(columns=_KEYS)
    for name in claims.columns:
        for prefix, system in _SYSTEMS.items():
            if name.startswith(prefix):
                given = claims[name].notna()
                yield keys[given].assign(system=system, code=claims.loc[given, name])
