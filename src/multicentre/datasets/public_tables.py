"""Loaders of public tables of records with a class or a number to predict."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from multicentre.data import EventTensor
from multicentre.data.tabledata import TableData
from multicentre.datasets.base import read_archive, read_frame
from multicentre.datasets.labelled import LabelledEvents
from multicentre.datasets.partitions import split_by_label
from multicentre.datasets.sources import SOURCES, Source
from multicentre.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas as pd


Version = Literal["fed_heart", "full"]

_EDUCATION = (
    "Less than a high school diploma",
    "High school graduates, no college",
    "Some college or associate degree",
    "Bachelor's degree only",
    "Advanced degree",
)
_HEART_COLUMNS = (
    *("age", "sex", "cp", "trestbps", "chol", "fbs", "restecg", "thalach", "exang", "oldpeak", "slope", "ca", "thal"),
)
_RARELY_RECORDED = ("slope", "ca", "thal")
_HEART_LEVELS = {"cp": (2, 3, 4), "restecg": (1, 2)}
_NEVER_ZERO = ("trestbps", "chol")
_HEART_CLASSES = ("absent", "present")


def load_record_linkage(folder: str | Path | None = None) -> TableData:
    """Load 500 simulated records of 350 people, some with errors, with the blood pressure as outcome.

    51 people have several records, 201 in total. Records of one person differ by errors in names, dates of birth and
    columns, and many also in the outcome. Columns are ``sex=M``, four levels of education (the first is left out),
    ``income`` in thousands of dollars and ``birth_year``. No value is missing. Identifiers are ``person`` (the true
    person), ``first_name``, ``last_name`` and ``birth_date`` (as recorded, in ISO 8601, and not always a valid date).

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.

    References
    ----------
    A. Kaplan, B. Betancourt, R. Steorts (2022), A practical approach to proper inference with linked data, The American
    Statistician 76(4), 384-393.

    Examples
    --------
    >>> load_record_linkage()  # doctest: +SKIP
    TableData(500 records; 7 columns, a number)
    """
    frame = read_frame(SOURCES["record_linkage"], folder)
    columns = {"sex=M": frame["sex"] == "M"}
    columns |= {f"education={level}": frame["education"] == level for level in _EDUCATION[1:]}
    columns |= {"income": frame["income"], "birth_year": frame["by"]}
    identifier = {
        "person": frame["entity_id"].astype(str).tolist(),
        "first_name": frame["fname"].tolist(),
        "last_name": frame["lname"].tolist(),
        "birth_date": _dates(frame),
    }
    X = np.column_stack([np.asarray(column, dtype=np.float64) for column in columns.values()])
    return TableData(
        X, frame["bp"], identifier, columns=list(columns), outcome="number", ids=frame["row"].astype(str).tolist()
    )


def load_heart4(folder: str | Path | None = None, *, version: Version = "fed_heart") -> dict[str, TableData]:
    """Load the heart disease data of four hospitals. The classes are narrowing of a coronary artery by half, or not.

    A serum cholesterol or blood pressure of 0 is a missing measurement (all 123 patients in Switzerland, 49 in the VA
    centre) and is NaN here.

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.
    version : {"fed_heart", "full"}, default "fed_heart"
        "fed_heart" is FLamby's Fed-Heart-Disease: 740 patients and 13 columns. The columns slope, ca and thal, and
        patients with missing values, are left out. Chest pain and electrocardiogram have a column for every level
        except the first. "full" is all 920 patients with the 13 columns as coded, NaN where missing.

    Returns
    -------
    dict from str to TableData
        ``cleveland``, ``hungarian``, ``switzerland`` and ``va``, with the classes absent and present.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.
    ConfigurationError
        `version` is invalid.

    References
    ----------
    R. Detrano et al. (1989), International application of a new probability algorithm for the diagnosis of coronary
    artery disease, American Journal of Cardiology 64(5), 304-310. J. Ogier du Terrail et al. (2022), FLamby: datasets
    and benchmarks for cross-silo federated learning in realistic healthcare settings, NeurIPS 35.

    Examples
    --------
    >>> {name: len(site) for name, site in load_heart4().items()}  # doctest: +SKIP
    {'cleveland': 303, 'hungarian': 261, 'switzerland': 46, 'va': 130}
    """
    if version not in ("fed_heart", "full"):
        raise ConfigurationError(
            f"version must be 'fed_heart' or 'full'; got {version!r}", where="load_heart4", hint="Correct the name."
        )
    frame = read_frame(SOURCES["heart4"], folder)
    names_read = [name for name in _HEART_COLUMNS if version == "full" or name not in _RARELY_RECORDED]
    if version == "fed_heart":
        frame = frame[frame[names_read].notna().all(axis=1)]
    values = {name: np.array(frame[name], dtype=np.float64) for name in names_read}
    for name in _NEVER_ZERO:
        values[name][values[name] == 0] = np.nan
    columns = values if version == "full" else _by_level(values)
    names = [f"{centre}/{row}" for centre, row in zip(frame["center"], frame["row"], strict=True)]
    data = TableData(
        np.column_stack(list(columns.values())),
        np.asarray(frame["disease"]),
        columns=list(columns),
        classes=_HEART_CLASSES,
        ids=names,
    )
    return split_by_label(data, frame["center"].tolist())


def _by_level(values: dict[str, NDArray[np.float64]]) -> dict[str, NDArray[np.float64]]:
    """Return the columns; those with levels are replaced by a binary column for every level except the first."""
    columns: dict[str, NDArray[np.float64]] = {}
    for name, column in values.items():
        levels = {f"{name}={level}": (column == level).astype(np.float64) for level in _HEART_LEVELS.get(name, ())}
        columns |= levels or {name: column}
    return columns


def _dates(frame: pd.DataFrame) -> list[str]:
    parts = frame[["by", "bm", "bd"]].astype(int).itertuples(index=False)
    return [f"{year:04d}-{month:02d}-{day:02d}" for year, month, day in parts]


_SYNPUF_SYSTEMS = {"HCPCS": "hcpcs", "ICD9P": "icd9cm-proc"}


def load_mimic3_demo(folder: str | Path | None = None) -> LabelledEvents:
    """Load procedures and diagnoses of the MIMIC-III demo.

    There are 100 patients of intensive care, 88 of them with an entry, 164 procedures and 541 diagnoses (ICD-9-CM).
    Entries count pairs of codes in admissions at most 30 days apart. The site is the patient's first care unit
    (``MICU``, ``SICU``, ``CCU``, ``TSICU``, ``CSRU``). The outcome is death in hospital in any admission (40 patients).
    All patients of the demo died later, so its mortality does not generalise to other patients.

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.

    References
    ----------
    A. Johnson, T. Pollard, R. Mark (2019), MIMIC-III Clinical Database Demo (version 1.4), PhysioNet,
    doi 10.13026/C2HM2Q.

    Examples
    --------
    >>> load_mimic3_demo().tensor.codes["diagnosis"][:2]  # doctest: +SKIP
    ('icd9cm-dx:00845', 'icd9cm-dx:0380')
    """
    source = SOURCES["mimic3_demo"]
    arrays = read_archive(source, folder)
    return _labelled(source, arrays, [f"icd9cm-proc:{code}" for code in arrays["procedure_codes"]])


def load_synpuf500(folder: str | Path | None = None) -> LabelledEvents:
    """Load procedures and diagnoses of 500 beneficiaries of CMS DE-SynPUF.

    There are 500 synthetic beneficiaries, 412 of them with an entry, 2260 procedures (HCPCS and ICD-9-CM) and 5936
    diagnoses (ICD-9-CM, first five characters). Entries count pairs of codes in claims of 2008 and 2009 at most 30 days
    apart. The site is the SSA code of the state (51 states). The outcome is death by the end of 2009 (14 beneficiaries,
    too few for a model). Schema and coding are real, but associations between codes are weak, because CMS removed them
    on purpose.

    Parameters
    ----------
    folder : path, optional
        Data folder that is searched before ``MULTICENTRE_DATA`` and the cache.

    Raises
    ------
    DataError
        The data are missing; the hint explains how to get them.
    IntegrityError
        The file does not have the recorded contents.

    References
    ----------
    Centers for Medicare & Medicaid Services, CMS 2008-2010 Data Entrepreneurs' Synthetic Public Use File, sample 2, as
    distributed by the R package claimsdb.

    Examples
    --------
    >>> load_synpuf500().tensor.codes["procedure"][0]  # doctest: +SKIP
    'hcpcs:0005F'
    """
    source = SOURCES["synpuf500"]
    arrays = read_archive(source, folder)
    return _labelled(source, arrays, [_namespaced(str(code)) for code in arrays["procedure_codes"]])


def _namespaced(code: str) -> str:
    system, bare = code.split(":")
    return f"{_SYNPUF_SYSTEMS[system]}:{bare}"


def _labelled(source: Source, arrays: dict[str, NDArray[Any]], procedures: list[str]) -> LabelledEvents:
    tensor = EventTensor(
        np.column_stack([arrays[axis] for axis in ("patient", "procedure", "diagnosis")]),
        arrays["count"],
        {"procedure": procedures, "diagnosis": [f"icd9cm-dx:{code}" for code in arrays["diagnosis_codes"]]},
        n_patients=int(arrays["shape"][0]),
        ids=arrays["patient_ids"],
        outcomes=arrays["label"],
    )
    return LabelledEvents(tensor, arrays["site"], source.name, source.description, source.licence)
