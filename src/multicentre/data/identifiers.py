"""Identifiers of persons across sites; they never leave a site."""

from __future__ import annotations

import copy
import datetime
import hashlib
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.frames import is_frame, to_pandas
from multicentre.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

IDENTIFIER = "identifier"
# Above 2**53 a float no longer represents every integer, so digits may be lost.
_MAX_WHOLE = 2.0**53


class IdentifiersReadAsNumbers(UserWarning):
    """Identifiers were read as numbers. Leading zeros may be lost, so that they identify different persons."""


class Identifiers:
    """Columns of identifiers, one row per record. They are printed as counts and never leave a site.

    Values may repeat (several records of one patient, a birth date of several patients) and be missing (None). Site
    parts of methods have no access to them, except those that split records into folds or count duplicates.

    Parameters
    ----------
    columns : sequence, mapping of str to sequence, or pandas frame
        One column with the name "identifier", or several columns by name. Texts are unchanged, dates are converted to
        ISO 8601, and integers to their digits. Read numbers as text if they may have leading zeros.

    Raises
    ------
    DataError
        Columns differ in length, or a value is neither text, date, integer nor missing; the message counts them.

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
        is_named = isinstance(columns, Mapping)
        table: Any = columns if is_named else to_pandas(columns) if is_frame(columns) else {IDENTIFIER: columns}
        by_name = {str(name): list(table[name]) for name in table}
        self._columns = {name: _checked(values, name) for name, values in by_name.items()}
        self._numbered = tuple(name for name, values in by_name.items() if any(_is_number(value) for value in values))
        if len({len(column) for column in self._columns.values()}) != 1:
            lengths = ", ".join(str(len(column)) for column in self._columns.values())
            raise DataError(
                "there must be at least one column of identifiers, and all must have the same length; "
                f"got {lengths or 0}",
                where=IDENTIFIER,
                hint="Pass one value per record in each column.",
            )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the columns."""
        return tuple(self._columns)

    @property
    def numbered(self) -> tuple[str, ...]:
        """Names of the columns whose values were numbers; leading zeros may be lost."""
        return self._numbered

    def column_name(self, name: str) -> str:
        """Resolve a column name; "identifier" means the only column, whatever its name.

        Examples
        --------
        >>> Identifiers({"birth_date": ["1950-01-31"]}).column_name("identifier")
        'birth_date'
        """
        is_sole = name == IDENTIFIER and len(self.names) == 1
        return self.names[0] if is_sole else name

    def column(self, name: str) -> list[str | None]:
        """Return one column; "identifier" means the only column, whatever its name.

        Raises
        ------
        DataError
            The column is unknown.
        """
        name = self.column_name(name)
        if name not in self._columns:
            raise DataError(
                f"the identifier must be one of {', '.join(self.names)}; got {name!r}",
                where=IDENTIFIER,
                hint="Correct the name.",
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
        """Stack the records of several sites; return None if their columns differ or a site has no identifiers."""
        site_parts = list(parts)
        present = [part for part in site_parts if part is not None]
        if len(present) < len(site_parts) or len({part.names for part in present}) != 1:
            return None
        return cls._of({name: np.concatenate([part._columns[name] for part in present]) for name in present[0].names})

    @classmethod
    def _of(cls, columns: dict[str, NDArray[np.object_]]) -> Self:
        identifiers = object.__new__(cls)
        identifiers._columns, identifiers._numbered = columns, ()
        return identifiers

    def __len__(self) -> int:
        return len(next(iter(self._columns.values())))

    def __repr__(self) -> str:
        return f"Identifiers({len(self)} records; {', '.join(self.names)})"


class Identified:
    """Mixin for data containers whose records may have identifiers."""

    __slots__ = ("_identifier",)
    _identifier: Identifiers | None

    @property
    def identifier(self) -> Identifiers | None:
        """Identifiers of the records, or None."""
        return getattr(self, "_identifier", None)

    def with_identifier(
        self, columns: Iterable[object] | Mapping[str, Iterable[object]] | pd.DataFrame | Identifiers
    ) -> Self:
        """Return the data with identifiers attached to its records; see :class:`Identifiers`.

        Parameters
        ----------
        columns : sequence, mapping of str to sequence, pandas frame or Identifiers
            One value per record.

        Raises
        ------
        DataError
            The number of values differs from the number of records.
        """
        identifiers = columns if isinstance(columns, Identifiers) else Identifiers(columns)
        n_records = len(self)  # type: ignore[arg-type]  # a container has a length
        if len(identifiers) != n_records:
            raise DataError(
                f"identifiers must have one value per record ({n_records}); got {len(identifiers)}",
                where=IDENTIFIER,
                hint="Use None for a missing identifier.",
            )
        if identifiers.numbered:
            warnings.warn(
                f"{', '.join(identifiers.numbered)}: identifiers are numbers. If they have leading zeros at another "
                "site, one person has two identifiers. Read the column as text.",
                IdentifiersReadAsNumbers,
                stacklevel=3,
            )
        return self._with_identifiers(identifiers)

    def without_identifier(self) -> Self:
        """Return the data without identifiers, as passed to a method's site part."""
        return self if self.identifier is None else self._with_identifiers(None)

    def _with_identifiers(self, identifier: Identifiers | None) -> Self:
        data = copy.copy(self)
        data._identifier = identifier
        return data

    def _carried_to(self, other: Self, rows: ArrayLike | None = None) -> Self:
        """Return `other`, derived from this data, with the identifiers of its records."""
        identifier = self.identifier
        if identifier is None:
            return other
        return other._with_identifiers(identifier if rows is None else identifier.take(rows))

    def _identifier_digest(self) -> bytes:
        return b"" if self.identifier is None else self.identifier.digest().encode()


def _checked(values: list[object], name: str) -> NDArray[np.object_]:
    texts = np.empty(len(values), dtype=object)
    texts[:] = [_as_text(value) for value in values]
    n_unreadable = sum(text is NotImplemented for text in texts)
    if n_unreadable or not len(values):
        raise DataError(
            f"identifiers must be text, dates or integers; {n_unreadable} of {len(values)} are not",
            where=f"{IDENTIFIER} {name!r}",
            hint="Read the column as text, and use None for a missing identifier.",
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
    is_digits = abs(value) < _MAX_WHOLE and value == int(value)  # type: ignore[operator]
    return str(int(value)) if is_digits else NotImplemented
