"""Reading and validation of event columns: patients, days, admissions, and codes with their code system."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from numbers import Integral
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.data.frames import is_frame, to_pandas
from multicentre.errors import ConfigurationError, DataError

if TYPE_CHECKING:
    import pandas as pd

SYSTEMS = {
    "icd9cm-dx": "ICD-9-CM diagnoses",
    "icd9cm-proc": "ICD-9-CM procedures",
    "icd10": "ICD-10 diagnoses (WHO)",
    "icd10cm": "ICD-10-CM diagnoses",
    "icd10pcs": "ICD-10-PCS procedures",
    "hcpcs": "HCPCS procedures and supplies, CPT among them",
    "ccs-dx": "CCS single-level categories of diagnoses",
    "ccsr-dx": "CCSR categories of diagnoses",
    "atc": "ATC classes of drugs",
    "ndc": "NDC drug products",
    "rxnorm": "RxNorm drugs",
    "snomed": "SNOMED CT concepts",
    "eicu-treatment": "treatments of the eICU database, as paths of text",
    "omop-condition": "OMOP standard concepts of conditions",
    "omop-procedure": "OMOP standard concepts of procedures",
}


# Characters of an ICD-9-CM code before its dot: three of a diagnosis (two after V), two of a procedure.
_CHARACTERS_OF_CATEGORY = {"icd9cm-dx": 3, "icd9cm-proc": 2}
_DOTTED = re.compile(r"(V?)(\d+)\.(.*)")


def plain_code(system: str, code: str) -> str:
    """Return a code in canonical form: upper case, ICD codes without dots and blanks.

    Leading zeros are significant: procedure ``0040`` and diagnosis ``040`` differ from ``40``. The dot of an ICD-9-CM
    code shows how many zeros are lost, so they are restored: diagnosis ``31.1`` is ``0311``.

    Examples
    --------
    >>> plain_code("icd9cm-dx", " 428.0")
    '4280'
    >>> plain_code("icd9cm-dx", "31.1"), plain_code("icd9cm-proc", "3.95"), plain_code("icd9cm-dx", "V5.1")
    ('0311', '0395', 'V051')
    >>> plain_code("icd10cm", "e11.9 ")
    'E119'
    >>> plain_code("eicu-treatment", "renal | dialysis")
    'RENAL | DIALYSIS'
    """
    words = code.upper().split()
    if not system.startswith("icd"):
        return " ".join(words)
    joined = "".join(words)
    dotted = _DOTTED.fullmatch(joined)
    if dotted and system in _CHARACTERS_OF_CATEGORY:
        letter, category, rest = dotted.groups()
        joined = letter + category.zfill(_CHARACTERS_OF_CATEGORY[system] - len(letter)) + rest
    return joined.replace(".", "")


Places = NDArray[np.int64]

ROLES = ("patient", "date", "system", "code", "admission")

_ISO_DAY = re.compile(
    r"(\d{4})(-?)(\d{2})\2(\d{2})(?:[T ]\d{2}:?\d{2}(?::?\d{2}(?:\.\d+)?)?\s*(?:Z|UTC|[+-]\d{2}(?::?\d{2})?)?)?"
)


class CodesReadAsNumbers(UserWarning):
    """Codes were read as integers. Leading zeros may be lost, so that they become different codes."""


def standard_frame(events: object, columns: Mapping[str, str] | None, needed: Iterable[str]) -> pd.DataFrame:
    """Return the columns of a table of events, renamed to their roles, with unchanged cells.

    Parameters
    ----------
    events : pandas frame, polars frame (also lazy), arrow table or mapping from str to sequence
        One row per event.
    columns : mapping from role to str, optional
        Column name by role; by default the name of the role.
    needed : iterable of str
        Required roles; the others are optional.

    Raises
    ------
    ConfigurationError
        `columns` contains an unknown role.
    DataError
        `events` is not a table, a column is missing or contains lists, columns differ in length, or there is no row.

    Examples
    --------
    >>> rows = {"id": [7, 7], "date": ["2020-01-01"] * 2, "system": ["icd9cm-dx"] * 2, "code": ["4280", "486"]}
    >>> list(standard_frame(rows, {"patient": "id"}, ["patient", "code"]))
    ['patient', 'date', 'system', 'code']
    """
    import pandas as pd

    name_of = _checked_names(columns or {})
    cells_of = _reader_of(events)
    required = set(needed)
    series = {}
    for role, name in name_of.items():
        cells = cells_of(name)
        if cells is not None:
            series[role] = _check_cells(cells, name)
        elif role in required or role in (columns or {}):
            raise DataError(
                "the column must be in the table; it is missing",
                where=f"column {name!r}",
                hint="Set its name in columns.",
            )
    lengths = {len(cells) for cells in series.values()}
    if len(lengths) > 1:
        raise DataError(
            f"columns must have equal lengths; got {', '.join(map(str, sorted(lengths)))}",
            where="events",
            hint="Pass one cell per event in each column.",
        )
    if lengths == {0}:
        raise DataError("the table must have at least one event; got 0", where="events", hint="Pass at least one row.")
    return pd.DataFrame(series)


def read_ids(column: pd.Series, name: str) -> tuple[Places, NDArray[np.str_]]:
    """Return the position of every cell in the sorted list of distinct identifiers, and that list as texts.

    Integers that were read as decimal numbers (``7.0``) are converted to integers.

    Raises
    ------
    DataError
        Cells are missing or empty; the message counts them.

    Examples
    --------
    >>> import pandas as pd
    >>> place, ids = read_ids(pd.Series(["b", "a", "b"]), "patient")
    >>> place.tolist(), ids.tolist()
    ([1, 0, 1], ['a', 'b'])
    """
    index, texts = _distinct_texts(column, name, id_text)
    ids, place = np.unique(np.array(texts, dtype=np.str_), return_inverse=True)
    return place[index], ids


def read_days(column: pd.Series, name: str) -> Places:
    """Return the calendar days of dates, counted from 1970-01-01.

    Times of day and time zones are ignored: the day as written is the local day of the event.

    Parameters
    ----------
    column : pandas Series
        Dates or times, with or without a zone, or texts in ISO 8601 (``2020-01-31``, ``20200131``,
        ``2020-01-31T08:00:00+01:00``); integers such as 20200131 are read as texts.
    name : str
        Name of the column, for errors.

    Raises
    ------
    DataError
        Cells are missing or in a different format; the message counts them.

    Examples
    --------
    >>> import pandas as pd
    >>> read_days(pd.Series(["1970-01-02", "19700103", "1970-01-31T23:30:00-05:00"]), "date").tolist()
    [1, 2, 30]
    """
    import pandas as pd

    if pd.api.types.is_datetime64_any_dtype(column):
        days = column.dt.tz_localize(None)
    else:
        index, cells = pd.factorize(column, use_na_sentinel=True)
        days = _parse_days([_date_text(cell) for cell in cells]).reindex(index).reset_index(drop=True)
    n_unreadable = int(days.isna().sum())
    if n_unreadable:
        raise DataError(
            f"dates must be in ISO 8601; {n_unreadable} of {len(column)} are missing or in a different format",
            where=f"column {name!r}",
            hint="Use dates such as 2020-01-31, with or without a time of day.",
        )
    return np.asarray(days, dtype="datetime64[D]").astype(np.int64)


def read_codes(
    frame: pd.DataFrame, extra_systems: Iterable[str] = (), names: Mapping[str, str] = MappingProxyType({})
) -> tuple[Places, list[str]]:
    """Return the position of every event's code in the sorted list of distinct codes, and that list.

    Codes have the form ``<system>:<code>``, so that diagnosis ``4019`` and procedure ``4019`` are distinct.

    Parameters
    ----------
    frame : pandas DataFrame
        Columns ``system`` and ``code``.
    extra_systems : iterable of str
        Code systems in addition to `SYSTEMS`, in lower case.
    names : mapping from str to str, optional
        Column names in the table, for errors.

    Raises
    ------
    DataError
        Systems or codes are missing, a system is unknown, or codes were read as decimal numbers.

    Warns
    -----
    CodesReadAsNumbers
        Codes were read as integers.

    Examples
    --------
    >>> import pandas as pd
    >>> read_codes(pd.DataFrame({"system": ["icd9cm-proc", "icd9cm-dx"], "code": ["40.19", "401.9"]}))[1]
    ['icd9cm-dx:4019', 'icd9cm-proc:4019']
    """
    system, code = (names.get(role, role) for role in ("system", "code"))
    in_system, systems = _distinct_texts(frame["system"], system, lambda cell: str(cell).strip().lower())
    _check_systems(in_system, systems, {*SYSTEMS, *extra_systems}, system)
    _check_types(frame["code"], code)
    with_code, codes = _distinct_texts(frame["code"], code, lambda cell: str(cell).strip())
    pairs, pair_of = np.unique(in_system * len(codes) + with_code, return_inverse=True)
    system_of = [systems[pair // len(codes)] for pair in pairs]
    plain = [plain_code(one, codes[pair % len(codes)]) for one, pair in zip(system_of, pairs, strict=True)]
    _check_filled(code, int(np.isin(pair_of, [k for k, text in enumerate(plain) if not text]).sum()), len(frame))
    labels = [f"{one}:{text}" for one, text in zip(system_of, plain, strict=True)]
    distinct = sorted(set(labels))
    place = {label: position for position, label in enumerate(distinct)}
    return np.array([place[label] for label in labels], dtype=np.int64)[pair_of], distinct


def _checked_names(columns: Mapping[str, str]) -> dict[str, str]:
    if not isinstance(columns, Mapping):
        raise ConfigurationError(
            f"columns must be a mapping; got {type(columns).__name__}",
            where="columns",
            hint='Example: {"patient": "subject_id"}.',
        )
    unknown = [role for role in columns if role not in ROLES]
    if unknown:
        raise ConfigurationError(
            f"roles must be among {_listed(ROLES)}; got {unknown[0]!r}", where="columns", hint="Correct the role."
        )
    return {role: columns.get(role, role) for role in ROLES}


def _check_cells(cells: pd.Series, name: str) -> pd.Series:
    n_lists = sum(not isinstance(cell, Hashable) for cell in cells) if cells.dtype == object else 0
    if n_lists:
        raise DataError(
            f"cells must be single values; {n_lists} of {len(cells)} are lists",
            where=f"column {name!r}",
            hint="Use one row per event.",
        )
    return cells


def _reader_of(events: object) -> Callable[[str], pd.Series | None]:
    import pandas as pd

    if is_frame(events):
        frame = to_pandas(events)
        return lambda name: frame[name].reset_index(drop=True) if name in frame.columns else None
    if isinstance(events, Mapping):
        return lambda name: pd.Series(events[name]).reset_index(drop=True) if name in events else None
    raise DataError(
        f"events must be a pandas, polars or arrow table or a mapping of columns; got {type(events).__name__}",
        where="events",
        hint="Convert the table to one of these.",
    )


def _distinct_texts(column: pd.Series, name: str, text_of: Callable[[Any], str]) -> tuple[Places, list[str]]:
    """Return the position of every cell in a list of texts; texts may repeat if cells of different types are equal."""
    import pandas as pd

    index, cells = pd.factorize(column, use_na_sentinel=True)
    texts = [text_of(cell) for cell in cells]
    empty = [place for place, text in enumerate(texts) if not text]
    _check_filled(name, int(np.isin(index, [-1, *empty]).sum()), len(column))
    return index.astype(np.int64), texts


def _check_filled(name: str, n_missing: int, n_events: int) -> None:
    if n_missing:
        raise DataError(
            f"every event must have a value; {n_missing} of {n_events} events have none",
            where=f"column {name!r}",
            hint="Complete these events or leave them out.",
        )


def id_text(cell: Any) -> str:
    """Return an identifier as text, ``7.0`` as ``7``."""
    whole = isinstance(cell, float | np.floating) and float(cell).is_integer()
    return str(int(cell)) if whole else str(cell).strip()


def _date_text(cell: Any) -> str:
    return id_text(cell.isoformat() if hasattr(cell, "isoformat") else cell)


def _parse_days(texts: Sequence[str]) -> pd.Series:
    import pandas as pd

    matches = map(_ISO_DAY.fullmatch, texts)
    return pd.to_datetime(
        pd.Series([day and f"{day[1]}-{day[3]}-{day[4]}" for day in matches], dtype=object),
        format="%Y-%m-%d",
        errors="coerce",
    )


def _check_types(codes: pd.Series, name: str) -> None:
    """Raise DataError if codes are decimal numbers; warn if they are integers."""
    kinds = {type(cell) for cell in codes.dropna().unique().tolist()} - {str}
    if any(not issubclass(kind, Integral) or issubclass(kind, bool) for kind in kinds):
        raise DataError(
            "codes must be text; got decimal numbers",
            where=f"column {name!r}",
            hint="Read the column as text: as a number, 428.0 can mean 428 or 4280.",
        )
    if kinds:
        warnings.warn(
            f"column {name!r}: codes were read as integers; leading zeros may be lost. Read the column as text.",
            CodesReadAsNumbers,
            stacklevel=3,
        )


def _check_systems(in_system: Places, systems: Sequence[str], supported: set[str], name: str) -> None:
    unsupported = [place for place, system in enumerate(systems) if system not in supported]
    if unsupported:
        n_events = int(np.isin(in_system, unsupported).sum())
        raise DataError(
            f"code systems must be supported or named in modes; {n_events} of {len(in_system)} events have another one",
            where=f"column {name!r}",
            hint=f"Supported are {_listed(sorted(supported))}. Name others in modes.",
        )


def _listed(words: Iterable[str]) -> str:
    return ", ".join(words)
