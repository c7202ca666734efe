"""Records with columns of numbers, and a class or a number to predict."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.events.checking import checked_ids
from multicentre.data.identifiers import Identified
from multicentre.data.table import check_present, checked_columns, encode_frame
from multicentre.federation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
MOST_CLASSES = 1000


class TableData(Identified):
    """Columns of numbers of one site's records, and the class or the number to predict of each.

    Parameters
    ----------
    X : array of shape (n, d) or pandas frame
        Numbers; NaN for missing.
    y : array of shape (n,)
        Class of each record: a whole number from 0, or one of `classes`. With ``outcome="number"``, any finite number.
    identifier : sequence, mapping of str to sequence, or pandas frame, optional
        Identifiers of the people whom the records are about, which may repeat and be missing; see
        :class:`multicentre.data.Identifiers`. They never leave the site.
    columns : sequence of str, optional
        Names of the columns; a frame's own, or x0, x1, ... otherwise.
    classes : sequence of str, optional
        Names of the classes, at least two, the same in one order at all sites. By default "0", "1", ... up to the
        largest in `y`.
    outcome : {"class", "number"}, default "class"
        What `y` is.
    ids : sequence, optional
        A name of its own for every record, by which a site's memory of cohorts knows it; never leaves.

    Raises
    ------
    DataError
        An outcome is missing, or a class unknown or no whole number from 0; lengths differ, or there is no record. The
        message says how many, never which.

    Notes
    -----
    A policy's minimum of patients counts records here. Where patients have several, raise it accordingly.

    Examples
    --------
    >>> data = TableData([[5.1, 0.2], [6.3, 1.8]], ["setosa", "virginica"], classes=["setosa", "virginica"])
    >>> data
    TableData(2 records; 2 columns, 2 classes)
    >>> data.y.tolist(), data.columns
    ([0, 1], ('x0', 'x1'))
    """

    __slots__ = ("_X", "_classes", "_columns", "_ids", "_y")

    def __init__(
        self,
        X: ArrayLike | pd.DataFrame,
        y: ArrayLike,
        identifier: Iterable[object] | Mapping[str, Iterable[object]] | pd.DataFrame | None = None,
        *,
        columns: Sequence[str] | None = None,
        classes: Sequence[str] | None = None,
        outcome: Literal["class", "number"] = "class",
        ids: Iterable[object] | None = None,
    ) -> None:
        self._X, self._columns = checked_columns(X, columns)
        n_records = len(self._X)
        self._y, self._classes = _checked_outcome(y, n_records, classes, outcome)
        self._ids = None if ids is None else checked_ids(ids, n_records)
        if identifier is not None:
            self._identifier = self.with_identifier(identifier).identifier
        for own in (self._X, self._y):
            own.setflags(write=False)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        outcome: str,
        kind: Literal["class", "number"] = "class",
        classes: Sequence[str] | None = None,
        columns: Sequence[str] | None = None,
        categories: Mapping[str, Sequence[object]] | None = None,
        identifiers: Sequence[str] = (),
        id_column: str | None = None,
    ) -> Self:
        """Take the columns of a table; each level of a category becomes a column ``name=level`` of zeros and ones.

        Parameters
        ----------
        frame : pandas frame
            One row a record.
        outcome : str
            Name of the column to predict.
        kind : {"class", "number"}, default "class"
            What it holds.
        classes : sequence of str, optional
            Names of the classes, the same at all sites; needed where they are texts.
        columns : sequence of str, optional
            Those to predict from; all others by default.
        categories : mapping of str to sequence, optional
            Levels of every column that holds categories, the same at all sites. A missing one has zeros throughout.
        identifiers : sequence of str
            Columns that say whom a record is about; they never leave the site and are not predicted from.
        id_column : str, optional
            Column of names of the records.

        Raises
        ------
        DataError
            A column is absent, holds texts without declared levels, or a level that was not declared.

        Examples
        --------
        >>> import pandas as pd
        >>> frame = pd.DataFrame({"age": [61, 70], "sex": ["f", "m"], "born": ["1950-01-31", None], "ill": [1, 0]})
        >>> data = TableData.from_frame(frame, outcome="ill", categories={"sex": ["f", "m"]}, identifiers=["born"])
        >>> data.columns, data.identifier
        (('age', 'sex=f', 'sex=m'), Identifiers(2 records; born))
        """
        left_out = [outcome, *identifiers, *([] if id_column is None else [id_column])]
        check_present(frame, left_out)
        chosen = [name for name in frame.columns if name not in left_out] if columns is None else list(columns)
        values, names = encode_frame(frame, chosen, categories or {})
        return cls(
            values,
            frame[outcome].to_numpy(),
            frame[list(identifiers)] if identifiers else None,
            columns=names,
            classes=classes,
            outcome=kind,
            ids=None if id_column is None else frame[id_column].tolist(),
        )

    @property
    def X(self) -> Floats:  # noqa: N802
        """Columns, shape (n, d); NaN where missing."""
        return self._X

    @property
    def y(self) -> NDArray[Any]:
        """Class of each record, a place in `classes`, or its number, shape (n,)."""
        return self._y

    @property
    def outcome(self) -> Literal["class", "number"]:
        """What `y` is."""
        return "class" if self._classes else "number"

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes; none where numbers are to be predicted."""
        return self._classes

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self._columns

    @property
    def ids(self) -> NDArray[np.str_] | None:
        """Names of the records, shape (n,), if any were given."""
        return self._ids

    @property
    def parts(self) -> dict[str, int]:
        """Number of records with an entry, by column."""
        return dict(zip(self._columns, (~np.isnan(self._X)).sum(axis=0).tolist(), strict=True))

    def take(self, rows: ArrayLike) -> Self:
        """Return the records at `rows`; all classes stay."""
        chosen = np.asarray(rows)
        ids = None if self._ids is None else self._ids[chosen].tolist()
        return self._carried_to(self._made(self._X[chosen], self._y[chosen], self._columns, ids), chosen)

    def keep_columns(self, names: Iterable[str]) -> Self:
        """Return the data with only the columns that a policy names; ``sex`` stands for all of ``sex=...``.

        Raises
        ------
        DataError
            None of the columns is named.
        """
        allowed = set(names)
        kept = [place for place, name in enumerate(self._columns) if {name, name.partition("=")[0]} & allowed]
        if not kept:
            raise DataError("no column remains", where="columns", mend="Name some of the site's columns.")
        ids = None if self._ids is None else self._ids.tolist()
        chosen = [self._columns[place] for place in kept]
        return self._carried_to(self._made(self._X[:, kept], self._y, chosen, ids))

    def digest(self) -> str:
        """Return the SHA-256 of columns, classes and identifiers, by which a resumed run knows its data."""
        ids = None if self._ids is None else self._ids.tolist()
        digest = hashlib.sha256(repr((self._columns, self._classes, ids)).encode() + self._identifier_digest())
        for array in (self._X, self._y):
            digest.update(np.ascontiguousarray(array).tobytes())
        return digest.hexdigest()

    def __len__(self) -> int:
        return len(self._y)

    def __repr__(self) -> str:
        sizes = ((len(self), "record"), (len(self._columns), "column"))
        records, columns = (f"{number} {noun}{'' if number == 1 else 's'}" for number, noun in sizes)
        return f"TableData({records}; {columns}, {f'{len(self._classes)} classes' if self._classes else 'a number'})"

    def _made(self, X: Floats, y: NDArray[Any], columns: Sequence[str], ids: list[str] | None) -> Self:
        return type(self)(X, y, columns=columns, classes=self._classes or None, outcome=self.outcome, ids=ids)


def _checked_outcome(
    y: ArrayLike, n_records: int, classes: Sequence[str] | None, outcome: str
) -> tuple[NDArray[Any], tuple[str, ...]]:
    if outcome == "class":
        return checked_classes(y, n_records, classes)
    if outcome != "number" or classes is not None:
        raise DataError(
            "an outcome is a class, or a number without classes", where="outcome", mend='Say "class" or "number".'
        )
    try:
        numbers = np.array(y, dtype=np.float64)
    except (TypeError, ValueError):
        raise DataError("not all outcomes are numbers", where="y", mend='Leave outcome="number" out.') from None
    n_missing = int((~np.isfinite(numbers)).sum())
    if numbers.shape != (n_records,) or n_missing:
        raise DataError(
            f"{n_records} numbers are needed; given are {numbers.shape}, {n_missing} missing or infinite",
            where="y",
            mend="Leave out records whose outcome is not known.",
        )
    return numbers, ()


def checked_classes(
    y: ArrayLike, n_patients: int, classes: Sequence[str] | None
) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the place of every patient's class, and the classes' names.

    Raises
    ------
    DataError
        There are too many or too few, or some are missing, unknown or no whole number from 0.

    Examples
    --------
    >>> checked_classes(["b", "a"], 2, ["a", "b"])
    (array([1, 0]), ('a', 'b'))
    >>> checked_classes([0, 2], 2, None)
    (array([0, 2]), ('0', '1', '2'))
    """
    given = np.asarray(y)
    if given.shape != (n_patients,):
        raise DataError(
            f"shape ({n_patients},) is needed, {given.shape} was given", where="y", mend="Give every patient a class."
        )
    names = None if classes is None else _checked_names(classes)
    places = _numbered(given) if given.dtype.kind in "biuf" else _looked_up(given, names)
    most = MOST_CLASSES if names is None else len(names)
    unknown = int((places >= most).sum())
    if unknown:
        raise DataError(
            f"{unknown} of {n_patients} patients have a class beyond the {most} that there may be",
            where="y",
            mend="Declare all classes, the same at every site.",
        )
    if names is None:
        names = tuple(str(place) for place in range(max(2, int(places.max()) + 1)))
    return places, names


def _checked_names(classes: Sequence[str]) -> tuple[str, ...]:
    names = tuple(str(name) for name in classes)
    if not 2 <= len(set(names)) == len(names) <= MOST_CLASSES or not all(names):
        raise DataError(
            f"{len(set(names) - {''})} different classes are named",
            where="classes",
            mend=f"Name from 2 to {MOST_CLASSES} classes, each once.",
        )
    return names


def _numbered(given: NDArray[np.generic]) -> NDArray[np.int64]:
    values = given.astype(np.float64)
    with np.errstate(invalid="ignore"):
        unfit = ~((values >= 0) & (values == np.round(values)) & (values < 2**31))
    if unfit.any():
        raise DataError(
            f"{int(unfit.sum())} of {len(values)} classes are missing or no whole number from 0",
            where="y",
            mend="Number the classes from 0, or name them in `classes`.",
        )
    return values.astype(np.int64)


def _looked_up(given: NDArray[np.generic], names: tuple[str, ...] | None) -> NDArray[np.int64]:
    if names is None:
        raise DataError("the classes are texts", where="y", mend="Name them all in `classes`, alike at every site.")
    places = {name: place for place, name in enumerate(names)}
    found = np.array([places.get(str(name), -1) for name in given.tolist()], dtype=np.int64)
    if (found < 0).any():
        raise DataError(
            f"{int((found < 0).sum())} of {len(found)} patients have a class that was not declared",
            where="y",
            mend="Agree on the classes between all sites, and declare all of them.",
        )
    return found
