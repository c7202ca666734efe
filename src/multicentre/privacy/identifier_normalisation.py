"""Normalisation of identifiers, so that the same person has the same text at every site.

Results must be identical at all sites, byte by byte. The rules therefore have a version, `NORMALISATION`, which is part
of the purpose of every pseudonym. Any change of a rule is a new version, and pseudonyms of two versions never agree.

Missing values, placeholders and invalid values become None. Ambiguous values raise an error. Errors never contain a
value.
"""

from __future__ import annotations

import datetime
import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Literal, get_args

import numpy as np

from multicentre.errors import ConfigurationError, DataError

NORMALISATION = "v1"

Kind = Literal["identifier", "name", "date", "nhs-number", "nir", "combined"]
DateOrder = Literal["iso", "dmy", "mdy", "ymd"]

_WITHOUT_DECOMPOSITION = str.maketrans(
    {"ẞ": "SS", "Æ": "AE", "Œ": "OE", "Ø": "O", "Ł": "L", "Đ": "D", "Ð": "D", "Þ": "TH"}
    | {"Ħ": "H", "Ŧ": "T", "Ŋ": "N", "Ə": "E"}
)
_PLACEHOLDERS = (
    {"UNKNOWN", "UNK", "NOTKNOWN", "NOTAVAILABLE", "MISSING", "NA", "NAN", "NONE", "NULL"}
    | {"INCONNU", "INCONNUE", "UNBEKANNT", "ONBEKEND", "SCONOSCIUTO", "SCONOSCIUTA"}
    | {"DESCONOCIDO", "DESCONOCIDA", "DESCONHECIDO", "DESCONHECIDA"}
)
_SHORTEST_FILLER = {"name": 3, "identifier": 4}
_PLACEHOLDER_DATES = frozenset(["1899-12-30", "1899-12-31", "1900-01-01", "1901-01-01", "1904-01-01"])
# Years that a date of birth, admission or appointment of a living patient can have; others are typing errors.
_FIRST_YEAR, _LAST_YEAR = 1850, 2199

_TIME = r"(?:[T ]\d{1,2}:\d{2}.*)?"
_YEAR, _MONTH, _DAY = r"(?P<year>\d{4})", r"(?P<month>\d{1,2})", r"(?P<day>\d{1,2})"
_SEPARATOR = r"(?P<separator>[-/. ])"
_SPELLINGS = {
    order: re.compile(
        rf"(?:{first}{separator}{second}(?P=separator){third}|(?P<compact>\d{{8}})){_TIME}", re.ASCII | re.DOTALL
    )
    for order, first, separator, second, third in (
        ("iso", _YEAR, "(?P<separator>-)", _MONTH, _DAY),
        ("ymd", _YEAR, _SEPARATOR, _MONTH, _DAY),
        ("dmy", _DAY, _SEPARATOR, _MONTH, _YEAR),
        ("mdy", _MONTH, _SEPARATOR, _DAY, _YEAR),
    )
}
_COMPACT = {"iso": (0, 4, 6), "ymd": (0, 4, 6), "dmy": (4, 2, 0), "mdy": (4, 0, 2)}
_SHORT_YEAR = re.compile(rf"(?:\d{{1,2}}([-/. ])\d{{1,2}}\1\d{{1,2}}|\d{{6}}){_TIME}", re.ASCII | re.DOTALL)
_NIR = re.compile(r"[1-478]\d{4}(?:\d{2}|2[AB])\d{6}(\d{2})?")
_NORMALISED = re.compile(r"[A-Z0-9-]+")
_COMBINED = re.compile(r"(?:\d+:[A-Z0-9-]+)+")


def normalise_name(value: Any) -> str | None:
    """Return a name as capital letters without accents, or None if it is missing.

    The rules are applied in this order:

    1. Compatibility decomposition (NFKD), without combining marks: ü is U, not UE.
    2. Upper case. Letters that do not decompose are transcribed: ß SS, æ AE, ø O, ł L, đ D, þ TH.
    3. All characters other than A to Z and 0 to 9 are removed.

    Parameters
    ----------
    value : str, or a missing value
        None, NaN, NaT and ``pandas.NA`` are missing. A text is missing if it is empty, a placeholder (UNKNOWN, N/A,
        NONE), consists of three or more equal characters, or has a letter of a different script.

    Raises
    ------
    DataError
        The value is not text.

    Examples
    --------
    >>> normalise_name("Strauß-O'Connor"), normalise_name("Ångström"), normalise_name("n/a")
    ('STRAUSSOCONNOR', 'ANGSTROM', None)
    """
    return _plain(value, _SHORTEST_FILLER["name"])


def normalise_identifier(value: Any) -> str | None:
    """Return an identifier as capital letters and digits, with leading zeros, or None if it is missing.

    The rules are those of `normalise_name`, except that four or more equal characters are a placeholder (0000, 9999).

    Raises
    ------
    DataError
        The value is not text. Numbers are not accepted, because their leading zeros may be lost.

    Examples
    --------
    >>> normalise_identifier(" 00-12a "), normalise_identifier("0000")
    ('0012A', None)
    """
    return _plain(value, _SHORTEST_FILLER["identifier"])


def normalise_date(value: Any, order: DateOrder = "iso") -> str | None:
    """Return a date as ISO 8601 (``1950-01-31``), or None if it is missing, not a date or a placeholder.

    Parameters
    ----------
    value : date, datetime, pandas.Timestamp, numpy.datetime64, str, or a missing value
        The time of day is ignored. Placeholders are 1899-12-30, 1899-12-31, 1900-01-01, 1901-01-01, 1904-01-01 and all
        dates before 1850 or after 2199.
    order : {"iso", "ymd", "dmy", "mdy"}, default "iso"
        Order of year, month and day in texts. The separators are hyphens for "iso", and one of ``- / .`` or a space for
        the others. Eight digits without a separator are accepted too. The order is never guessed: with "mdy",
        31/01/1950 is missing.

    Raises
    ------
    DataError
        The year has two digits, the date has six digits, or the value is neither a date nor text.
    ConfigurationError
        The order is unknown.

    Examples
    --------
    >>> normalise_date("2.1.1950", "dmy"), normalise_date("1950-02-30"), normalise_date("1900-01-01")
    ('1950-01-02', None, None)
    """
    if order not in _SPELLINGS:
        raise ConfigurationError(
            f"date_order must be one of {', '.join(_SPELLINGS)}; got {order!r}",
            where="date_order",
            hint="Correct the order.",
        )
    if _is_missing(value):
        return None
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[D]").item()
    if isinstance(value, datetime.date):
        return _valid_date(value.year, value.month, value.day)
    if not isinstance(value, str):
        raise DataError(
            f"a date must be a date or text; got {type(value).__name__}", hint="Read the column as dates or as text."
        )
    return _read_date(unicodedata.normalize("NFKC", value).strip(), order)


def normalise_nhs_number(value: Any) -> str | None:
    """Return the ten digits of an NHS number (England, Wales), or None if it is missing or its check digit is wrong.

    The check digit is computed modulo 11 with weights 10 to 2 (NHS Data Dictionary, "NHS number").

    Raises
    ------
    DataError
        The value is not text.

    Examples
    --------
    >>> normalise_nhs_number("943 476 5919"), normalise_nhs_number("943 476 5918")
    ('9434765919', None)
    """
    text = normalise_identifier(value)
    if text is None or len(text) != 10 or not text.isdigit():
        return None
    remainder = sum(weight * int(digit) for weight, digit in zip(range(10, 1, -1), text, strict=False)) % 11
    return text if (11 - remainder) % 11 == int(text[9]) else None


def normalise_nir(value: Any) -> str | None:
    """Return the thirteen characters of a French NIR without its key, or None if it is missing or invalid.

    The key is 97 minus the number modulo 97, where 2A (Corsica) counts as 19 and 2B as 18 (Insee, "NIR"). A number
    without a key is accepted if it has the right format.

    Raises
    ------
    DataError
        The value is not text.

    Examples
    --------
    >>> normalise_nir("2 55 08 14 168 025 38"), normalise_nir("2 55 08 14 168 025 39")
    ('2550814168025', None)
    """
    text = normalise_identifier(value)
    match = None if text is None else _NIR.fullmatch(text)
    if text is None or match is None:
        return None
    department = {"2A": "19", "2B": "18"}.get(text[5:7], text[5:7])
    key = 97 - int(text[:5] + department + text[7:13]) % 97
    return text[:13] if match[1] is None or int(match[1]) == key else None


def normalise(values: Iterable[Any], kind: Kind, *, date_order: DateOrder = "iso") -> list[str | None]:
    """Return a normalised column of identifiers of one kind; None where missing.

    Parameters
    ----------
    values : iterable
        One value per record.
    kind : {"identifier", "name", "date", "nhs-number", "nir", "combined"}
        Kind of the identifiers, which determines the rules. "combined" accepts results of `combine` and does not change
        them.
    date_order : {"iso", "ymd", "dmy", "mdy"}, default "iso"
        Order of year, month and day in the dates of this site that are text.

    Raises
    ------
    ConfigurationError
        The kind or the order is unknown.
    DataError
        The values are not a column, or a value is invalid. The error contains its position, from 1, and not the value.

    Examples
    --------
    >>> normalise(["31/01/1950", None], "date", date_order="dmy")
    ['1950-01-31', None]
    """
    if kind not in get_args(Kind):
        raise ConfigurationError(
            f"kind must be one of {', '.join(get_args(Kind))}; got {kind!r}", where="kind", hint="Correct the kind."
        )
    if isinstance(values, str | bytes) or getattr(values, "ndim", 1) != 1:
        raise DataError(
            f"values must be one column; got {_described(values)}", where=kind, hint="Pass one value per record."
        )
    rule = _rule(kind, date_order)
    texts: list[str | None] = []
    for value in values:
        try:
            texts.append(rule(value))
        except DataError as refused:
            raise refused.at(f"{kind}, value {len(texts) + 1}") from None
    return texts


def combine(columns: Sequence[Sequence[str | None]]) -> list[str | None]:
    """Join normalised columns into one value per record; the value is missing if any part is.

    Each part is preceded by its length, so that different rows of parts never give the same text. A combination changes
    if any part changes. For folds, use one stable column instead.

    Raises
    ------
    DataError
        There is no column, the columns differ in length, or a part is not normalised.

    Examples
    --------
    >>> combine([normalise(["Müller", "Ito"], "name"), normalise(["1950-01-31", None], "date")])
    ['6:MULLER10:1950-01-31', None]
    """
    if len({len(column) for column in columns}) != 1:
        raise DataError(
            f"there must be at least one column, and all must have the same length; got {len(columns)} columns with "
            f"lengths {', '.join(str(len(column)) for column in columns)}",
            where="combine",
            hint="Pass one value per record in each column.",
        )
    return [_joined(parts) for parts in zip(*columns, strict=True)]


def _joined(parts: tuple[Any, ...]) -> str | None:
    present = [part for part in parts if part is not None]
    if not all(isinstance(part, str) and _NORMALISED.fullmatch(part) for part in present):
        raise DataError(
            "all parts must be normalised; at least one is not",
            where="combine",
            hint="Call normalise on every column first.",
        )
    return "".join(f"{len(part)}:{part}" for part in present) if len(present) == len(parts) else None


def _described(values: Any) -> str:
    return f"{values.ndim} dimensions" if hasattr(values, "ndim") else type(values).__name__


def _rule(kind: Kind, date_order: DateOrder) -> Callable[[Any], str | None]:
    rules: dict[Kind, Callable[[Any], str | None]] = {
        "identifier": normalise_identifier,
        "name": normalise_name,
        "date": partial(normalise_date, order=date_order),
        "nhs-number": normalise_nhs_number,
        "nir": normalise_nir,
        "combined": _check_combined,
    }
    return rules[kind]


def _check_combined(value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and _COMBINED.fullmatch(value)):
        raise DataError(
            "a combined identifier must be a result of combine; got a different value",
            hint="Pass the result of combine unchanged.",
        )
    return value


def _is_missing(value: Any) -> bool:
    if value is None or type(value).__name__ == "NAType":
        return True
    return isinstance(value, float | np.floating | datetime.date | np.datetime64) and bool(value != value)


def _plain(value: Any, shortest_filler: int) -> str | None:
    if not isinstance(value, str):
        if _is_missing(value):
            return None
        raise DataError(
            f"an identifier must be text; got {type(value).__name__}",
            hint="Read the column as text, which keeps leading zeros.",
        )
    text = _letters_and_digits(value)
    is_filler = len(text) >= shortest_filler and len(set(text)) == 1
    return None if not text or is_filler or text in _PLACEHOLDERS else text


def _letters_and_digits(text: str) -> str:
    """Return the letters A to Z and digits of a text; empty if the text has a letter of a different alphabet."""
    if text.isascii():
        capitals = text.upper()
        return capitals if capitals.isalnum() else "".join(filter(str.isalnum, capitals))
    text = unicodedata.normalize("NFKD", text).upper().translate(_WITHOUT_DECOMPOSITION)
    if any(letter.isalnum() and unicodedata.category(letter) != "Lm" for letter in text if not letter.isascii()):
        return ""
    return text if text.isascii() and text.isalnum() else "".join(c for c in text if c.isascii() and c.isalnum())


def _read_date(text: str, order: DateOrder) -> str | None:
    if _SHORT_YEAR.fullmatch(text):
        raise DataError(
            "a date must have a four-digit year; got a two-digit year", hint="Write years with four digits at the site."
        )
    match = _SPELLINGS[order].fullmatch(text)
    if match is None:
        return None
    if (digits := match["compact"]) is not None:
        year, month, day = _COMPACT[order]
        return _valid_date(int(digits[year : year + 4]), int(digits[month : month + 2]), int(digits[day : day + 2]))
    return _valid_date(int(match["year"]), int(match["month"]), int(match["day"]))


def _valid_date(year: int, month: int, day: int) -> str | None:
    try:
        text = datetime.date(year, month, day).isoformat()
    except ValueError:
        return None
    return None if text in _PLACEHOLDER_DATES or not _FIRST_YEAR <= year <= _LAST_YEAR else text
