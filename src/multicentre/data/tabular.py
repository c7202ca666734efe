"""Base class of tabular containers: numeric columns, levels of categories and ids of the patients."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.categories import families, levels_left
from multicentre.data.events.checking import checked_ids
from multicentre.data.flow import Flow
from multicentre.data.identifiers import Identified
from multicentre.data.screening import warn_of_columns
from multicentre.data.table import ColumnCheck, checked_columns
from multicentre.errors import DataError, name_some

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]


class Tabular(Identified):
    """Base class of the containers with one row of numbers per patient.

    A subclass lists in `_outcome_slots` its arrays with one value per patient, except ``_X``.
    """

    __slots__ = ("_X", "_columns", "_flow", "_ids", "_levels")
    _outcome_slots: ClassVar[tuple[str, ...]]
    _X: Floats
    _columns: tuple[str, ...]
    _ids: NDArray[np.str_] | None
    _levels: tuple[str, ...]
    _flow: Flow | None

    def _set_columns(
        self,
        X: ArrayLike | pd.DataFrame,
        columns: Sequence[str] | None,
        levels: Sequence[str],
        ids: Iterable[object] | None,
    ) -> None:
        self._X, self._columns = checked_columns(X, columns)
        self._levels = _checked_levels(levels, self._columns)
        self._ids = None if ids is None else checked_ids(ids, len(self._X))
        self._flow = None
        self._X.setflags(write=False)
        warn_of_columns(self._X, self._columns, self._levels)

    @property
    def X(self) -> Floats:  # noqa: N802
        """Columns, shape (n, d); NaN where missing."""
        return self._X

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the columns."""
        return self._columns

    @property
    def levels(self) -> tuple[str, ...]:
        """Declared levels of the categories, ``name=level``; levels without a column are references."""
        return self._levels

    @property
    def ids(self) -> NDArray[np.str_] | None:
        """Ids of the patients, shape (n,), or None."""
        return self._ids

    @property
    def flow(self) -> Flow | None:
        """Records from which these were selected; None if none was left out by a study."""
        return self._flow

    def with_flow(self, flow: Flow) -> Self:
        """Return the same patients with the counts of the records from which they were selected."""
        copied = copy.copy(self)
        copied._flow = flow
        return copied

    def __len__(self) -> int:
        return len(self._X)

    def take(self, rows: ArrayLike) -> Self:
        """Return the patients at `rows`."""
        chosen = np.asarray(rows)
        taken = {name: getattr(self, name)[chosen] for name in ("_X", *self._outcome_slots)}
        n_patients = len(taken["_X"])
        if not n_patients:
            raise DataError(
                "rows must be a list of at least one patient; got none",
                where="rows",
                hint="Pass a list with at least one row.",
            )
        if self._ids is not None:
            taken["_ids"] = checked_ids(self._ids[chosen].tolist(), n_patients)
        return self._carried_to(self._with(taken), chosen)

    def keep_columns(self, names: Iterable[str]) -> Self:
        """Return the data with only these columns; ``sex`` selects all columns ``sex=...``.

        Raises
        ------
        DataError
            The data have none of these columns.
        """
        allowed = set(names)
        category_of = {level: category for category, family in families(self._levels).items() for level in family}
        places = [place for place, name in enumerate(self._columns) if {name, category_of.get(name, name)} & allowed]
        if not places:
            raise DataError(
                "at least one column must remain; none does",
                where="columns",
                hint="Name at least one column of the site.",
            )
        columns = tuple(self._columns[place] for place in places)
        levels = levels_left(self._levels, columns)
        return self._with({"_X": self._X[:, places], "_columns": columns, "_levels": levels})

    def with_arrays(self, **arrays: NDArray[Any]) -> Self:
        """Return the same patients with some arrays replaced; the new arrays are not checked and become read-only.

        Parameters
        ----------
        **arrays : array
            Arrays by name: ``X``, or another array with one value per patient.
        """
        return self._with({f"_{name}": values for name, values in arrays.items()})

    def columns_below(self, least: int) -> dict[str, tuple[str, ...]]:
        """Return the columns with entries of fewer than `least` records, under the key "" (a table has no views)."""
        n_observed = (~np.isnan(self._X)).sum(axis=0)
        below = tuple(name for name, n in zip(self._columns, n_observed.tolist(), strict=True) if n < least)
        return {"": below} if below else {}

    def incomplete(self, names: Sequence[str]) -> Flags:
        """Return a mask of the patients with a missing entry, shape (n,).

        Parameters
        ----------
        names : sequence of str
            Columns and categories in which entries are required; a level stands for its category.
        """
        sources = sources_of(names, self._levels)
        return np.asarray(flag_missing(self._X, self._columns, self._levels, sources).any(axis=1))

    def with_indicators(self, sources: Sequence[str]) -> Self:
        """Return the same patients with a column ``missing_name`` for each of `sources`: 1 where the entry is missing.

        Parameters
        ----------
        sources : sequence of str
            Names of columns, and of categories without their levels.

        Raises
        ------
        DataError
            The name of an indicator is that of a column.
        """
        added = indicators_of(sources)
        if repeated := sorted(set(added) & set(self._columns)):
            raise DataError(
                f"names of indicators must differ from column names; got {', '.join(repeated)}",
                where="columns",
                hint="Rename the column.",
            )
        values = add_indicators(self._X, self._columns, self._levels, sources)
        return self._with({"_X": values, "_columns": (*self._columns, *added)})

    def with_columns(self, X: Floats, columns: Sequence[str]) -> Self:
        """Return the same patients with other numeric columns, which are not checked; categories are not declared.

        Parameters
        ----------
        X : array of shape (n, d)
        columns : sequence of str
            Names of the d columns.
        """
        return self._with({"_X": X, "_columns": tuple(columns), "_levels": ()})

    @classmethod
    def stacked(cls, parts: Sequence[Self], ids: Sequence[str] | None) -> Self:
        """Stack the patients of several sites with the same columns, without identifiers."""
        first = parts[0].without_identifier()
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ("_X", *cls._outcome_slots)}
        return first._with({**arrays, "_ids": None if ids is None else checked_ids(ids, len(arrays["_X"]))})

    def _with(self, slots: dict[str, Any]) -> Self:
        copied = copy.copy(self)
        for name, value in slots.items():
            if isinstance(value, np.ndarray):
                value = np.ascontiguousarray(value)
                value.setflags(write=False)
            setattr(copied, name, value)
        return copied

    def _levels_digest(self) -> str:
        """Return the levels for a digest; empty without categories, so that earlier digests remain valid."""
        return repr(self._levels) if self._levels else ""


def asides(identifiers: Sequence[str], id_column: str | None) -> dict[str, ColumnCheck]:
    """Return the columns that identify a patient, with their checks."""
    ids: dict[str, ColumnCheck] = dict.fromkeys(identifiers, len)
    if id_column is not None:
        ids[id_column] = lambda column: checked_ids(column.tolist(), len(column))
    return ids


def sources_of(columns: Sequence[str], levels: Sequence[str]) -> tuple[str, ...]:
    """Return the name of every column, or of its category if the column is a level.

    Examples
    --------
    >>> sources_of(["age", "sex=m"], ["sex=f", "sex=m"])
    ('age', 'sex')
    """
    category_of = {level: name for name, family in families(levels).items() for level in family}
    return tuple(category_of.get(name, name) for name in columns)


def flag_missing(values: Floats, columns: Sequence[str], levels: Sequence[str], sources: Sequence[str]) -> Flags:
    """Return a mask of missing entries by column or category, shape (n, len(sources)).

    Examples
    --------
    >>> rows = np.array([[60.0, np.nan], [np.nan, 1.0]])
    >>> flag_missing(rows, ["age", "sex=m"], ["sex=f", "sex=m"], ["sex"]).tolist()
    [[True], [False]]
    """
    column_sources = sources_of(columns, levels)
    flags = [np.isnan(values[:, [name == source for name in column_sources]]).any(axis=1) for source in sources]
    return np.column_stack([np.zeros((len(values), 0), dtype=np.bool_), *flags])


def add_indicators(values: Floats, columns: Sequence[str], levels: Sequence[str], sources: Sequence[str]) -> Floats:
    """Append one indicator column for each of `sources`: 1 where the entry is missing."""
    return np.column_stack([values, flag_missing(values, columns, levels, sources)])


def indicators_of(sources: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the indicator columns.

    Examples
    --------
    >>> indicators_of(["age"])
    ('missing_age',)
    """
    return tuple(f"missing_{name}" for name in sources)


def _checked_levels(levels: Sequence[str], columns: tuple[str, ...]) -> tuple[str, ...]:
    undeclared = [
        name
        for category, family in families(levels).items()
        for name in columns
        if name.startswith(f"{category}=") and name not in family
    ]
    if undeclared or len(set(levels)) < len(levels):
        raise DataError(
            f"levels must be unique and include all columns of a category; got {len(levels)} levels, of which "
            f"{len(set(levels))} are different{', without ' * bool(undeclared)}{name_some(undeclared)}",
            where="levels",
            hint='Example: levels=["sex=f", "sex=m"]. Rename other columns whose names start with a category and "=".',
        )
    return levels_left(levels, columns)
