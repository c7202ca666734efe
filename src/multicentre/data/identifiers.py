"""Who a record is about, across sites: identifiers that a site keeps to itself."""

from __future__ import annotations

import copy
import datetime
import hashlib
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.table import is_frame
from multicentre.federation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

IDENTIFIER = "identifier"
_LARGEST_WHOLE = 2.0**53


class IdentifiersReadAsNumbers(UserWarning):
    """Identifiers arrived as numbers: zeros in front may be lost, which makes them other persons."""


class Identifiers:
    """Columns of identifiers, one row a record; they print as counts and never leave a site.

    Values may repeat (several records of one patient, one birth date of several) and be missing (None). Parts of
    methods do not get to see them; only those that divide records into folds or count duplicates do.

    Parameters
    ----------
    columns : sequence, mapping of str to sequence, or pandas frame
        One column, called "identifier", or several by name. Texts stay as they are, dates become ISO 8601, whole
        numbers their digits. Read numbers as text where they may begin with zeros.

    Raises
    ------
    DataError
        Columns differ in length, or a value is neither text, date, whole number nor missing; the message says how many.

    Examples
    --------
    >>> keys = Identifiers({"patient": ["a", "a", "b"], "birth_date": [None, "1950-01-31", "1971-12-01"]})
    >>> keys
    Identifiers(3 records; patient, birth_date)
    >>> keys.take([2, 0]).column("birth_date")
    ['1971-12-01', None]
    """

    __slots__ = ("_columns", "_numbered")

    def __init__(self, columns: Iterable[object] | Mapping[str, Iterable[object]] | pd.DataFrame) -> None:
        named: Any = columns if isinstance(columns, Mapping) or is_frame(columns) else {IDENTIFIER: columns}
        given = {str(name): list(named[name]) for name in named}
        self._columns = {name: _checked(values, name) for name, values in given.items()}
        self._numbered = tuple(name for name, values in given.items() if any(_is_number(value) for value in values))
        if len({len(column) for column in self._columns.values()}) != 1:
            raise DataError(
                "the columns differ in length, or there is none", where=IDENTIFIER, hint="Give one value a record."
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._columns)

    @property
    def numbered(self) -> tuple[str, ...]:
        """Names of the columns that were given as numbers, whose zeros in front may be lost."""
        return self._numbered

    def meant(self, name: str) -> str:
        """Return the name of the column that a name stands for: "identifier", of which there is none, for a sole one.

        Examples
        --------
        >>> Identifiers({"birth_date": ["1950-01-31"]}).meant("identifier")
        'birth_date'
        """
        is_sole = name == IDENTIFIER and len(self.names) == 1
        return self.names[0] if is_sole else name

    def column(self, name: str) -> list[str | None]:
        """Return one column; "identifier" stands for a sole column of any name.

        Raises
        ------
        DataError
            There is no such column.
        """
        name = self.meant(name)
        if name not in self._columns:
            raise DataError(
                f"no identifier is called {name!r}", where=IDENTIFIER, hint=f"There are {', '.join(self.names)}."
            )
        return list(self._columns[name])

    def take(self, rows: ArrayLike) -> Self:
        """Return the records at `rows`."""
        chosen = np.asarray(rows)
        return self._of({name: column[chosen] for name, column in self._columns.items()})

    def digest(self) -> str:
        """Return the SHA-256 of all columns."""
        return hashlib.sha256(
            repr([(name, column.tolist()) for name, column in self._columns.items()]).encode()
        ).hexdigest()

    @classmethod
    def stacked(cls, parts: Iterable[Identifiers | None]) -> Self | None:
        """Return the records of several sites, None where their columns differ or one has none."""
        known = list(parts)
        some = [part for part in known if part is not None]
        if len(some) < len(known) or len({part.names for part in some}) != 1:
            return None
        return cls._of({name: np.concatenate([part._columns[name] for part in some]) for name in some[0].names})

    @classmethod
    def _of(cls, columns: dict[str, NDArray[np.object_]]) -> Self:
        made = object.__new__(cls)
        made._columns, made._numbered = columns, ()
        return made

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __repr__(self) -> str:
        return f"Identifiers({len(self)} records; {', '.join(self.names)})"


class Identified:
    """What data containers share: identifiers beside their records."""

    __slots__ = ("_identifier",)
    _identifier: Identifiers | None

    @property
    def identifier(self) -> Identifiers | None:
        """Identifiers of the records, if any were given."""
        return getattr(self, "_identifier", None)

    def with_identifier(
        self, columns: Iterable[object] | Mapping[str, Iterable[object]] | pd.DataFrame | Identifiers
    ) -> Self:
        """Return the data with identifiers beside its records, see :class:`Identifiers`.

        Parameters
        ----------
        columns : sequence, mapping of str to sequence, pandas frame or Identifiers
            One value a record.

        Raises
        ------
        DataError
            They are not one a record.
        """
        given = columns if isinstance(columns, Identifiers) else Identifiers(columns)
        n_records = len(self)  # type: ignore[arg-type]  # a container has a length
        if len(given) != n_records:
            raise DataError(
                f"{len(given)} identifiers for {n_records} records", where=IDENTIFIER, hint="Give one value a record."
            )
        if given.numbered:
            warnings.warn(
                f"{', '.join(given.numbered)}: identifiers given as numbers. Where another site has zeros in front, "
                "one person has two: read the column as text.",
                IdentifiersReadAsNumbers,
                stacklevel=3,
            )
        return self._carrying(given)

    def without_identifier(self) -> Self:
        """Return the data as a method's site part gets to see it."""
        return self if self.identifier is None else self._carrying(None)

    def _carrying(self, identifier: Identifiers | None) -> Self:
        carrying = copy.copy(self)
        carrying._identifier = identifier
        return carrying

    def _carried_to(self, other: Self, rows: ArrayLike | None = None) -> Self:
        """Return `other`, made of this data, with the identifiers of its records."""
        known = self.identifier
        return other if known is None else other._carrying(known if rows is None else known.take(rows))

    def _identifier_digest(self) -> bytes:
        return b"" if self.identifier is None else self.identifier.digest().encode()


def _checked(values: list[object], name: str) -> NDArray[np.object_]:
    texts = np.empty(len(values), dtype=object)
    texts[:] = [_as_text(value) for value in values]
    n_strange = sum(text is NotImplemented for text in texts)
    if n_strange or not len(values):
        raise DataError(
            f"{n_strange} of {len(values)} values are neither text, date nor whole number",
            where=f"{IDENTIFIER} {name!r}",
            hint="Read the column as text; write None for what is missing.",
        )
    texts.setflags(write=False)
    return texts


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.integer | np.floating) and value == value


def _as_text(value: Any) -> Any:
    if isinstance(value, str):
        return str(value)
    if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
        return None
    if isinstance(value, np.datetime64):
        value = value.astype("datetime64[D]").item()
    if isinstance(value, datetime.date):
        return value.isoformat()[:10]
    if isinstance(value, bool | np.bool_) or not isinstance(value, int | float | np.integer | np.floating):
        return NotImplemented
    is_digits = abs(value) < _LARGEST_WHOLE and value == int(value)  # type: ignore[operator]
    return str(int(value)) if is_digits else NotImplemented
