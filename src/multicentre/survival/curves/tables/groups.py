"""Groups of patients by a column, or by a category with columns ``name=level``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.data.categories import families, read_level, split_level
from multicentre.errors import ConfigurationError, DataError, nearest_name

Floats = NDArray[np.float64]
# Largest number of groups of a table.
MAX_GROUPS = 32
EVERYONE = "all"


@dataclass(frozen=True)
class Grouping:
    """Groups by name, and the column and value that define each; without columns all patients are one group.

    A reference level without a column is listed by its name, ``name=level``.

    Examples
    --------
    >>> find_groups("stage", None, ("age", "stage=II"), ("stage=I", "stage=II"))
    Grouping(labels=('I', 'II'), columns=('stage=I', 'stage=II'), levels=(1.0, 1.0))
    """

    labels: tuple[str, ...]
    columns: tuple[str, ...]
    levels: tuple[float, ...]


def find_groups(
    group: str | None, levels: Sequence[float] | None, columns: Sequence[str], declared: Sequence[str] = ()
) -> Grouping:
    """Return the groups of a column or category.

    Parameters
    ----------
    group : str, optional
        A column, or the name of a category whose levels are columns ``name=level``; None for one group of all.
    levels : sequence of float, optional
        Values of the column that define groups, 0 and 1 by default.
    columns : sequence of str
        Columns that the sites agreed on.
    declared : sequence of str
        Levels of categories, ``name=level``. One level of a category may have no column.

    Raises
    ------
    ConfigurationError
        The column is missing, there are too many groups, or several levels have no column.

    Examples
    --------
    >>> find_groups("sex", None, ("age", "sex"))
    Grouping(labels=('0', '1'), columns=('sex', 'sex'), levels=(0.0, 1.0))
    >>> find_groups(None, None, ("age",)).labels
    ('all',)
    """
    if group is None:
        return Grouping((EVERYONE,), (), ())
    if group in columns:
        values = tuple(float(level) for level in ((0.0, 1.0) if levels is None else levels))
        grouping = Grouping(tuple(f"{value:g}" for value in values), (group,) * len(values), values)
    else:
        family = families(declared).get(group) or tuple(name for name in columns if split_level(name)[0] == group)
        _check_one_reference(group, family, columns)
        grouping = Grouping(tuple(split_level(name)[1] for name in family), family, (1.0,) * len(family))
    if not grouping.columns:
        valid_names = [*columns, *families(declared)]
        raise ConfigurationError(
            f"group must be a column or category of the data; got {group!r}",
            where=f"group {group!r}",
            hint=f"{nearest_name([group], valid_names)}Name one of {', '.join(valid_names)[:200]}.",
        )
    check_groups(grouping.columns, np.array(grouping.levels))
    return grouping


def check_groups(columns: Sequence[str], levels: Floats) -> None:
    """Raise ConfigurationError unless the groups are few and different, and each has a level."""
    pairs = list(zip(columns, levels.tolist(), strict=False))
    if len(columns) != len(levels) or len(set(pairs)) != len(pairs):
        raise ConfigurationError(
            f"levels must be different, one per column; got {len(set(pairs))} different ones for {len(columns)} "
            "columns",
            where="levels",
            hint="List each level once.",
        )
    if len(pairs) > MAX_GROUPS:
        raise ConfigurationError(
            f"group must have at most {MAX_GROUPS} levels; got {len(pairs)}",
            where="group",
            hint="Use a column with fewer levels.",
        )


def find_members(
    X: Floats, names: Sequence[str], columns: Sequence[str], levels: Floats, declared: Sequence[str] = ()
) -> NDArray[np.int64]:
    """Return the group of every patient, shape (n,); -1 if it is missing.

    Parameters
    ----------
    X : array of shape (n, d)
    names : sequence of str
        Names of the columns.
    columns : sequence of str
        Column of every group; empty for one group of all.
    levels : array of shape (g,)
        Value of the column in the group.
    declared : sequence of str
        Levels of categories, ``name=level``.

    Raises
    ------
    ConfigurationError
        A column is missing, or there are too many groups.
    DataError
        A patient belongs to two groups, or the only column holds a value that defines no group.

    Examples
    --------
    >>> find_members(np.array([[0.0], [1.0], [np.nan]]), ["sex"], ["sex", "sex"], np.array([0.0, 1.0])).tolist()
    [0, 1, -1]
    """
    check_groups(columns, levels)
    if not columns:
        return np.zeros(len(X), dtype=np.int64)
    values = np.column_stack([_values_of(X, names, declared, column) for column in columns])
    is_member = values == levels
    of_none = ~np.isnan(values).any(axis=1) & ~is_member.any(axis=1)
    if len(set(columns)) == 1 and of_none.any():
        raise DataError(
            f"each patient must belong to one group; {columns[0]!r} is a column of numbers, not a category, and some "
            "patients have a number of no group",
            where=f"column {columns[0]!r}",
            hint="List all values in levels= (0 and 1 by default). To group by ranges of a number, add a category with "
            "a level per range to the data.",
        )
    if (is_member.sum(axis=1) > 1).any():
        raise DataError(
            "each patient must belong to one group; got some patients in two",
            where=f"column {columns[0]!r}",
            hint="Declare the levels of the category, so that each patient has one of them.",
        )
    return np.where(is_member.any(axis=1), is_member.argmax(axis=1), -1).astype(np.int64)


def _values_of(X: Floats, names: Sequence[str], declared: Sequence[str], column: str) -> Floats:
    values = read_level(X, names, declared, column)
    if values is None:
        raise ConfigurationError(
            f"group must be a column or category of the data; got {column!r}",
            where=f"group {column!r}",
            hint="Correct the name.",
        )
    return values


def _check_one_reference(group: str, family: Sequence[str], columns: Sequence[str]) -> None:
    without = [name for name in family if name not in columns]
    if len(without) > 1:
        raise ConfigurationError(
            f"at most one level may have no column; got {len(without)}: {', '.join(without[:5])}",
            where=f"group {group!r}",
            hint="Use all levels but one reference, in the data and in every policy.",
        )
