"""Keys of a person that tolerate typing errors: several keys, made of parts of columns.

A key is one or more columns, each with a kind that determines which part of the value counts: all of it, its sound, its
first characters, or a part of a date. Two records agree in a key if all of its columns agree. They are records of the
same person if they agree in at least one key.

Everything here runs at the site that has the columns. Values of keys leave it only through a keyed hash.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self, get_args

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import ConfigurationError
from multicentre.privacy.identifier_normalisation import DateOrder, Kind, combine, normalise

Integers = NDArray[np.int64]
Texts = list[str | None]

# Each combination of keys is one question: 15 for four keys, and twice as many for each further key.
MAX_KEYS = 4

_SOUNDEX = {
    letter: code for code, letters in enumerate(("BFPV", "CGJKQSXZ", "DT", "L", "MN", "R"), 1) for letter in letters
}
_COLOGNE = [
    (re.compile(pattern), code)
    for pattern, code in (
        (r"[AEIJOUY]", "0"),
        (r"P(?=H)|[FVW]", "3"),
        (r"[BP]", "1"),
        (r"[DT](?=[CSZ])", "8"),
        (r"[DT]", "2"),
        (r"^C(?=[AHKLOQRUX])|(?<![SZ])(?<!^)C(?=[AHKOQUX])|[GKQ]", "4"),
        (r"(?<=[CKQ])X", "8"),
        (r"X", "48"),
        (r"L", "5"),
        (r"[MN]", "6"),
        (r"R", "7"),
        (r"[CSZ]", "8"),
    )
]


def soundex(name: str) -> str | None:
    """Return the American Soundex code of a normalised name, a letter and three digits; None without a letter.

    The rules are those of the United States National Archives ("Soundex System"): letters with the same code that are
    adjacent, or separated by H or W only, count once.

    Examples
    --------
    >>> soundex("ROBERT"), soundex("RUPERT"), soundex("ASHCRAFT"), soundex("TYMCZAK"), soundex("PFISTER")
    ('R163', 'R163', 'A261', 'T522', 'P236')
    """
    letters = [letter for letter in name if letter.isalpha()]
    if not letters:
        return None
    digits: list[int] = []
    last = _SOUNDEX.get(letters[0], 0)
    for letter in letters[1:]:
        code = _SOUNDEX.get(letter, 0)
        if code and code != last:
            digits.append(code)
        if letter not in "HW":
            last = code
    return letters[0] + "".join(map(str, [*digits, 0, 0, 0][:3]))


def cologne(name: str) -> str | None:
    """Return the Cologne phonetic code of a normalised name, for German names; None without a coded letter.

    See H. J. Postel, Die Kölner Phonetik, IBM-Nachrichten 19 (1969), 925-931.

    Examples
    --------
    >>> cologne("MULLERLUDENSCHEIDT"), cologne("BRESCHNEW"), cologne("MAIER") == cologne("MEYER")
    ('65752682', '17863', True)
    """
    letters = "".join(letter for letter in name if letter.isalpha())
    codes = "".join(_cologne_code(letters, place) for place in range(len(letters)))
    merged = re.sub(r"(.)\1+", r"\1", codes)
    return merged[:1] + merged[1:].replace("0", "") or None


def _cologne_code(letters: str, place: int) -> str:
    for pattern, code in _COLOGNE:
        if pattern.match(letters, place):
            return code
    return ""


def _first(n_characters: int) -> Callable[[str], str]:
    return lambda text: text[:n_characters]


# Kind of normalisation, and the part of the normalised value that counts.
_DERIVED: dict[str, tuple[Kind, Callable[[str], str | None]]] = {
    "soundex": ("name", soundex),
    "cologne": ("name", cologne),
    # With fewer than two characters people would agree by chance; nine are a whole name.
    **{f"prefix-{n_characters}": ("name", _first(n_characters)) for n_characters in range(2, 10)},
    "year": ("date", lambda date: date[:4]),
    "year-month": ("date", lambda date: date[:7]),
    "month-day": ("date", lambda date: date[5:]),
}
KINDS = (*get_args(Kind), *_DERIVED)


@dataclass(frozen=True)
class PersonKey:
    """Columns that must all agree, each with its kind.

    Parameters
    ----------
    columns : tuple of str
    kinds : tuple of str
        One per column: a kind of :func:`multicentre.privacy.identifier_normalisation.normalise`, or "soundex",
        "cologne", "prefix-2" to "prefix-9" (first characters of a name or identifier), "year", "year-month",
        "month-day" (parts of a date).

    Raises
    ------
    ConfigurationError
        There is no column, or a kind is unknown.

    Examples
    --------
    >>> key = PersonKey(("surname", "born"), ("soundex", "date"))
    >>> key.values({"surname": ["Meyer", "Meier", None], "born": ["1950-01-31"] * 3}.__getitem__, "iso")
    ['4:M60010:1950-01-31', '4:M60010:1950-01-31', None]
    """

    columns: tuple[str, ...]
    kinds: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.columns or len(self.columns) != len(self.kinds):
            raise ConfigurationError(
                f"a person key must have at least one column and a kind for each; got {len(self.columns)} columns and "
                f"{len(self.kinds)} kinds",
                where="person_keys",
                hint='Example: {"surname": "soundex", "birth_date": "date"}.',
            )
        if unknown := [kind for kind in self.kinds if kind not in KINDS]:
            raise ConfigurationError(
                f"kind must be one of {', '.join(KINDS)}; got {unknown[0]!r}",
                where="person_keys",
                hint="Correct the kind.",
            )

    @property
    def plain_kind(self) -> Kind:
        """Kind of a single column that counts as a whole; "combined" for all other keys."""
        [kind, *others] = self.kinds
        plain: Any = "combined" if others or kind in _DERIVED else kind
        return plain  # type: ignore[no-any-return]

    def values(self, column: Callable[[str], Sequence[str | None]], date_order: DateOrder) -> Texts:
        """Return the value of every record; None if one of the columns is missing.

        Parameters
        ----------
        column : callable
            Returns the values of a column by name.
        date_order : {"iso", "ymd", "dmy", "mdy"}
            Order of day, month and year in dates.

        Raises
        ------
        DataError
            A value is invalid.
        """
        parts = [_part(column(name), kind, date_order) for name, kind in zip(self.columns, self.kinds, strict=True)]
        return parts[0] if self.kinds == ("combined",) else combine(parts)

    def __str__(self) -> str:
        return " and ".join(f"{column} ({kind})" for column, kind in zip(self.columns, self.kinds, strict=True))


def _part(values: Sequence[str | None], kind: str, date_order: DateOrder) -> Texts:
    plain: Any = kind
    if kind not in _DERIVED:
        return normalise(values, plain, date_order=date_order)
    base, derive = _DERIVED[kind]
    return [None if text is None else derive(text) for text in normalise(values, base, date_order=date_order)]


def read_keys(keys: Sequence[str | Mapping[str, str]], kind: str) -> tuple[PersonKey, ...]:
    """Return person keys: a column's name (of kind `kind`), or a mapping from columns to kinds, for each.

    Raises
    ------
    ConfigurationError
        There are none or more than four keys, two are equal, or one is invalid.

    Examples
    --------
    >>> [str(key) for key in read_keys(["number", {"surname": "soundex", "born": "date"}], "identifier")]
    ['number (identifier)', 'surname (soundex) and born (date)']
    """
    person_keys = tuple(
        PersonKey((key,), (kind,)) if isinstance(key, str) else PersonKey(tuple(key), tuple(key.values()))
        for key in keys
    )
    if not 1 <= len(set(person_keys)) == len(person_keys) <= MAX_KEYS:
        raise ConfigurationError(
            f"person_keys must be from 1 to {MAX_KEYS} different keys; got {len(person_keys)}, of which "
            f"{len(set(person_keys))} differ",
            where="person_keys",
            hint="Use the keys that errors break least, and that different people share least.",
        )
    return person_keys


def combinations(n_keys: int) -> list[tuple[int, ...]]:
    """Return all non-empty sets of keys, in the order of their codes (key k counts 2^k).

    Examples
    --------
    >>> combinations(2)
    [(0,), (1,), (0, 1)]
    """
    return [tuple(key for key in range(n_keys) if code >> key & 1) for code in range(1, 2**n_keys)]


def join_keys(values: Sequence[Texts], keys: Sequence[int]) -> Texts:
    """Return one value per record that two records share if they agree in all of `keys`; None if a key is missing.

    Examples
    --------
    >>> join_keys([["1:A", "1:A"], ["1:B", None]], (0, 1))
    ['1:A1:B', None]
    """
    rows = zip(*(values[key] for key in keys), strict=True)
    return [None if any(part is None for part in row) else "".join(map(str, row)) for row in rows]


def group_records(values: Sequence[Texts], patients: Texts | None) -> Integers:
    """Return the person of every record, numbered by first record, shape (n,); -1 for records of unknown persons.

    Parameters
    ----------
    values : sequence of list, one per key
        Value of every record.
    patients : list of str or None, optional
        The site's own name of the patient of every record; a record without one is a separate person. By default
        records that agree in a key, or are linked by records that do, are of one person, and records without any key
        are of unknown persons.

    Examples
    --------
    >>> group_records([["a", "a", None, "b", None], ["x", "y", "y", "z", None]], None).tolist()
    [0, 0, 0, 3, -1]
    >>> group_records([["a", "b", None]], ["1", "1", "2"]).tolist()
    [0, 0, 2]
    """
    first = list(range(len(values[0])))

    def root(row: int) -> int:
        while first[row] != row:
            first[row] = first[first[row]]
            row = first[row]
        return row

    for column in values if patients is None else [patients]:
        rows: dict[str, int] = {}
        for row, value in enumerate(column):
            if value is not None:
                one, other = sorted((root(row), root(rows.setdefault(value, row))))
                first[other] = one
    is_unknown = np.zeros(len(first), dtype=np.bool_) if patients is not None else lacks_keys(values)
    return np.where(is_unknown, -1, [root(row) for row in range(len(first))]).astype(np.int64)


def lacks_keys(values: Sequence[Texts]) -> NDArray[np.bool_]:
    """Return flags of the records without any key.

    Examples
    --------
    >>> lacks_keys([["a", None], [None, None]]).tolist()
    [False, True]
    """
    return np.array([all(value is None for value in row) for row in zip(*values, strict=True)], dtype=np.bool_)


def count_agreeing_pairs(values: Sequence[Texts]) -> int:
    """Return the number of pairs of records that agree in at least one key.

    Examples
    --------
    >>> count_agreeing_pairs([["a", "a", "b"], ["x", "x", "x"]])
    3
    """
    total = 0
    for keys in combinations(len(values)):
        sizes = Counter(value for value in join_keys(values, keys) if value is not None)
        pairs = sum(size * (size - 1) // 2 for size in sizes.values())
        total += pairs if len(keys) % 2 else -pairs
    return total


@dataclass(frozen=True, eq=False)
class People:
    """Persons of a site, each represented by its first record.

    Parameters
    ----------
    values : list of list, one per key
        Value of every record.
    first, last : array of int, shape (n_persons,)
        First and last record of each person.
    """

    values: list[Texts]
    first: Integers
    last: Integers

    @classmethod
    def of(cls, values: list[Texts], patients: Texts | None) -> Self:
        """Group records into persons; see :func:`group_records`."""
        person = group_records(values, patients)
        rows = np.flatnonzero(person >= 0)
        _, first = np.unique(person[rows], return_index=True)
        _, last = np.unique(person[rows][::-1], return_index=True)
        return cls(values, rows[first], rows[::-1][last])

    @property
    def n_missing(self) -> int:
        """Number of records without any key."""
        return int(lacks_keys(self.values).sum())

    def first_values(self) -> list[Texts]:
        """Return the value of every person, by key."""
        return [[column[row] for row in self.first] for column in self.values]

    def count_values(self) -> list[int]:
        """Return the number of different values of each combination of keys."""
        values = self.first_values()
        return [len(set(join_keys(values, keys)) - {None}) for keys in combinations(len(values))]

    def count_repeated(self) -> Integers:
        """Count persons with several records whose first and last record agree, and who do not, shape (1 + K, 2).

        The first row is about agreement in any of the K keys, the others about each key.

        Examples
        --------
        >>> People.of([["a", "a", "b"], ["x", "y", "z"]], ["1", "1", "2"]).count_repeated().tolist()
        [[1, 0], [1, 0], [0, 1]]
        """
        pairs = [(one, other) for one, other in zip(self.first, self.last, strict=True) if one != other]
        agrees = np.array(
            [
                [column[one] is not None and column[one] == column[other] for one, other in pairs]
                for column in self.values
            ],
            dtype=np.bool_,
        )
        table = np.vstack([agrees.any(axis=0), agrees])
        return np.stack([table.sum(axis=1), (~table).sum(axis=1)], axis=1).astype(np.int64)
