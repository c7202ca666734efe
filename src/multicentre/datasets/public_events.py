"""Loaders of public event data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.data import EventTensor
from multicentre.datasets.base import read_archive
from multicentre.datasets.labelled import LabelledEvents
from multicentre.datasets.sources import SOURCES, Source

_SYNPUF_SYSTEMS = {"HCPCS": "hcpcs", "ICD9P": "icd9cm-proc"}


def load_mimic3_demo(folder: str | Path | None = None) -> LabelledEvents:
    """Load procedures and diagnoses of the MIMIC-III demo.

    100 patients of intensive care with 164 procedures and 541 diagnoses (ICD-9-CM); 88 of them have an entry. Entries
    count pairs of codes in admissions at most 30 days apart. The site is the patient's first care unit (``MICU``,
    ``SICU``, ``CCU``, ``TSICU``, ``CSRU``), the outcome death in hospital in any admission (40 patients). All patients
    of the demo died in the end: its mortality says nothing of other patients.

    Parameters
    ----------
    folder : path, optional
        Data folder to look in before ``MULTICENTRE_DATA`` and the cache.

    Raises
    ------
    DataError
        The data are not at hand; the message says how to get them.
    IntegrityError
        The file's contents are not those expected.

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

    500 synthetic beneficiaries, 412 of them with an entry, 2260 procedures (HCPCS and ICD-9-CM) and 5936 diagnoses
    (ICD-9-CM, first five characters). Entries count pairs of codes in claims of 2008 and 2009 at most 30 days apart.
    The site is the state's SSA code (51 states), the outcome death by the end of 2009 (14 beneficiaries, too few for a
    model of it). Schema and coding are real; associations between codes are weak, for CMS broke them on purpose.

    Parameters
    ----------
    folder : path, optional
        Data folder to look in before ``MULTICENTRE_DATA`` and the cache.

    Raises
    ------
    DataError
        The data are not at hand; the message says how to get them.
    IntegrityError
        The file's contents are not those expected.

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
