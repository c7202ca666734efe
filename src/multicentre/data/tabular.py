"""What tables of patients share: columns of numbers, the categories behind them, and names of the patients."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from multicentre.data.categories import families, levels_left, read_level
from multicentre.data.events.checking import checked_ids
from multicentre.data.identifiers import Identified
from multicentre.data.screening import warn_of_columns
from multicentre.data.table import checked_columns
from multicentre.federation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
KNOWN, MISSING = "known", "missing"


class Tabular(Identified):
    """Base of the containers with one row of numbers per patient.

    A subclass names in `_outcome_slots` its arrays with one value per patient, other than ``_X``.
    """

    __slots__ = ("_X", "_columns", "_ids", "_levels")
    _outcome_slots: ClassVar[tuple[str, ...]]
    _X: Floats
    _columns: tuple[str, ...]
    _ids: NDArray[np.str_] | None
    _levels: tuple[str, ...]

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
        """Declared levels of the categories, ``name=level``; those that are no column are references."""
        return self._levels

    @property
    def ids(self) -> NDArray[np.str_] | None:
        """Names of the patients, shape (n,), if any were given."""
        return self._ids

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Patients by level of every category, and those whose number is known of every other column; or missing."""
        sources = dict.fromkeys(sources_of(self._columns, self._levels))
        return {source: self._counts_of(source) for source in sources}

    def __len__(self) -> int:
        return len(self._X)

    def take(self, rows: ArrayLike) -> Self:
        """Return the patients at `rows`."""
        chosen = np.asarray(rows)
        taken = {name: getattr(self, name)[chosen] for name in ("_X", *self._outcome_slots)}
        n_patients = len(taken["_X"])
        if not n_patients:
            raise DataError("no patient is chosen", where="rows", hint="Give a list with at least one row.")
        if self._ids is not None:
            taken["_ids"] = checked_ids(self._ids[chosen].tolist(), n_patients)
        return self._carried_to(self._with(taken), chosen)

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
            raise DataError("no column remains", where="columns", hint="Name some of the site's columns.")
        left = tuple(self._columns[place] for place in kept)
        return self._with({"_X": self._X[:, kept], "_columns": left, "_levels": levels_left(self._levels, left)})

    def with_arrays(self, **arrays: NDArray[Any]) -> Self:
        """Return the same patients with other values in some arrays, which are not checked and become read-only.

        Parameters
        ----------
        **arrays : array
            By name: ``X``, and the others with one value per patient.
        """
        return self._with({f"_{name}": values for name, values in arrays.items()})

    def columns_below(self, least: int) -> dict[str, tuple[str, ...]]:
        """Return the columns of which fewer than `least` records have an entry, by "", the table's only view."""
        n_known = (~np.isnan(self._X)).sum(axis=0)
        below = tuple(name for name, n in zip(self._columns, n_known.tolist(), strict=True) if n < least)
        return {"": below} if below else {}

    def with_indicators(self, sources: Sequence[str]) -> Self:
        """Return the same patients with a column ``missing_name`` for each of `sources`: 1 where the entry is missing.

        Parameters
        ----------
        sources : sequence of str
            Names of columns, of categories without their levels.

        Raises
        ------
        DataError
            There is a column of that name.
        """
        added = indicators_of(sources)
        if taken := sorted(set(added) & set(self._columns)):
            raise DataError(
                f"the names of indicators must be free; taken: {', '.join(taken)}",
                where="columns",
                hint="Rename the column.",
            )
        values = add_indicators(self._X, self._columns, self._levels, sources)
        return self._with({"_X": values, "_columns": (*self._columns, *added)})

    @classmethod
    def stacked(cls, parts: Sequence[Self], ids: Sequence[str] | None) -> Self:
        """Return the patients of several sites with the same columns, one below the other, without identifiers."""
        first = parts[0].without_identifier()
        arrays = {name: np.concatenate([getattr(part, name) for part in parts]) for name in ("_X", *cls._outcome_slots)}
        return first._with({**arrays, "_ids": None if ids is None else checked_ids(ids, len(arrays["_X"]))})

    def _with(self, slots: dict[str, Any]) -> Self:
        made = copy.copy(self)
        for name, value in slots.items():
            if isinstance(value, np.ndarray):
                value = np.ascontiguousarray(value)
                value.setflags(write=False)
            setattr(made, name, value)
        return made

    def _levels_digest(self) -> str:
        """Return what levels add to a digest: nothing without categories, whose digest does not know of levels."""
        return repr(self._levels) if self._levels else ""

    def _counts_of(self, source: str) -> dict[str, int]:
        """Return patients by level, or with and without a number."""
        if source in self._columns:
            n_known = int((~np.isnan(self._X[:, self._columns.index(source)])).sum())
            return {KNOWN: n_known, MISSING: len(self._X) - n_known}
        found: dict[str, int] = {}
        for name in families(self._levels)[source]:
            values = read_level(self._X, self._columns, self._levels, name)
            if values is not None:
                found[name.partition("=")[2]] = int((values == 1.0).sum())
        own = [name.startswith(f"{source}=") for name in self._columns]
        n_missing = int(np.isnan(self._X[:, own]).any(axis=1).sum())
        n_others = len(self._X) - sum(found.values()) - n_missing
        return {**found, **({"others": n_others} if n_others else {}), MISSING: found.get(MISSING, 0) + n_missing}


def sources_of(columns: Sequence[str], levels: Sequence[str]) -> tuple[str, ...]:
    """Return for every column its name, or the name of the category of which it is a level.

    Examples
    --------
    >>> sources_of(["age", "sex=m"], ["sex=f", "sex=m"])
    ('age', 'sex')
    """
    category_of = {level: name for name, family in families(levels).items() for level in family}
    return tuple(category_of.get(name, name) for name in columns)


def flag_missing(values: Floats, columns: Sequence[str], levels: Sequence[str], sources: Sequence[str]) -> Flags:
    """Return where the entries of columns are missing, those of categories over all levels, shape (n, len(sources)).

    Examples
    --------
    >>> rows = np.array([[60.0, np.nan], [np.nan, 1.0]])
    >>> flag_missing(rows, ["age", "sex=m"], ["sex=f", "sex=m"], ["sex"]).tolist()
    [[True], [False]]
    """
    own = sources_of(columns, levels)
    flags = [np.isnan(values[:, [name == source for name in own]]).any(axis=1) for source in sources]
    return np.column_stack([np.zeros((len(values), 0), dtype=np.bool_), *flags])


def add_indicators(values: Floats, columns: Sequence[str], levels: Sequence[str], sources: Sequence[str]) -> Floats:
    """Return the columns, and one for each of `sources`: 1 where the entry is missing."""
    return np.column_stack([values, flag_missing(values, columns, levels, sources)])


def indicators_of(sources: Iterable[str]) -> tuple[str, ...]:
    """Return the names of the columns that say where an entry is missing.

    Examples
    --------
    >>> indicators_of(["age"])
    ('missing_age',)
    """
    return tuple(f"missing_{name}" for name in sources)


def _checked_levels(levels: Sequence[str], columns: tuple[str, ...]) -> tuple[str, ...]:
    strange = [
        name
        for category, family in families(levels).items()
        for name in columns
        if name.startswith(f"{category}=") and name not in family
    ]
    if strange or len(set(levels)) < len(levels):
        raise DataError(
            f"levels must differ and name all columns of a category; {len(strange)} columns are not named",
            where="levels",
            hint='Write levels=["sex=f", "sex=m"], say.',
        )
    return levels_left(levels, columns)
