"""Encoding of patients' tables as named columns of numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from multicentre.data.categories import (
    Categories,
    Levels,
    check_references,
    declare_levels,
    families,
    have_other_levels,
    join_level,
    level_name,
    level_names,
    levels_left,
    read_level,
    read_levels,
    split_level,
)
from multicentre.data.cells import Fault, raise_faults, read_numbers
from multicentre.data.frames import is_frame, to_pandas
from multicentre.errors import DataError, SchemaMismatch, nearest_name

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
ColumnCheck: TypeAlias = "Callable[[pd.Series], object]"


@dataclass(frozen=True)
class Encoded:
    """A table encoded as numbers.

    Attributes
    ----------
    values : array of shape (n, d)
    columns : tuple of str
        Names of the columns.
    levels : tuple of str
        Declared levels of the categories, ``name=level``; levels without a column are references.
    """

    values: Floats
    columns: tuple[str, ...]
    levels: tuple[str, ...]


def rows_for(X: Any, columns: tuple[str, ...], levels: tuple[str, ...] = ()) -> Floats:
    """Return a table as numbers in the columns of a fitted model, shape (n, d).

    Parameters
    ----------
    X : array of shape (n, d), pandas frame, or data with ``X`` and ``columns``
        A frame or data may have more columns, in any order. Categories of a frame are unencoded or columns of zeros and
        ones; the column of a level that is the reference in the data is derived from the other levels.
    columns : tuple of str
    levels : tuple of str
        Levels declared in the fit, ``name=level``.

    Raises
    ------
    DataError
        Columns of the fit are missing, or a category has an undeclared level.
    SchemaMismatch
        Data lack columns of the fit, or declare other levels of a category.

    Examples
    --------
    >>> import pandas as pd
    >>> rows_for(pd.DataFrame({"sex": ["f"], "age": [61.0]}), ("age", "sex=m"), ("sex=f", "sex=m")).tolist()
    [[61.0, 0.0]]
    """
    if is_frame(X):
        return _rows_of_frame(to_pandas(X), columns, levels)
    if hasattr(X, "columns"):
        return _rows_of_data(X, columns, levels)
    values, _ = checked_columns(X, None)
    if values.shape[1] != len(columns):
        raise DataError(
            f"X must have the {len(columns)} columns of the fit; got {values.shape[1]}",
            where="X",
            hint=f"The columns of the fit begin with {', '.join(columns[:8])}.",
        )
    return values


def check_present(frame: pd.DataFrame, names: Sequence[str]) -> None:
    """Check that a table has these columns.

    Raises
    ------
    DataError
        Columns are missing or repeated.
    """
    raise_faults(column_faults(frame, names))


def column_faults(frame: pd.DataFrame, names: Sequence[str]) -> list[Fault]:
    """Return a fault for each of these columns that is missing or repeated.

    Examples
    --------
    >>> import pandas as pd
    >>> [fault.what for fault in column_faults(pd.DataFrame({"age": [61]}), ["age", "sex"])]
    ["'sex' must be a column of the table; it is missing"]
    """
    faults = []
    for name in dict.fromkeys(name for name in names if name not in frame.columns):
        blank = [column for column in frame.columns if str(column).strip() == str(name)]
        correction = f"{nearest_name([name], frame.columns)}Correct the name."
        hint = f"Remove the blanks around {blank[0]!r}." if blank else correction
        faults.append(Fault(f"{str(name)!r} must be a column of the table; it is missing", hint))
    repeated = frame.columns[frame.columns.duplicated()].unique()
    what = "column names must be unique; {!r} is repeated"
    faults += [Fault(what.format(str(name)), "Rename the repeated columns.") for name in repeated if name in names]
    return faults


def checked_columns(X: Any, columns: Sequence[str] | None) -> tuple[Floats, tuple[str, ...]]:
    """Return the numbers, shape (n, d), and the names of the columns.

    Raises
    ------
    DataError
        X is not a table of numbers, is empty or has infinite entries, or the number of unique names is wrong.

    Examples
    --------
    >>> checked_columns([[1, 2]], None)
    (array([[1., 2.]]), ('x0', 'x1'))
    """
    if is_frame(X):
        frame = to_pandas(X)
        values, names = encode_frame(frame, list(frame.columns), {})
    else:
        try:
            values = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError(
                "all entries must be numbers; at least one is not", where="X", hint="Encode categories first."
            ) from None
        names = tuple(f"x{place}" for place in range(values.shape[-1] if values.ndim == 2 else 0))
    if values.ndim != 2 or 0 in values.shape:
        raise DataError(
            f"X must have shape (n_patients, n_columns), both at least 1; got {values.shape}",
            where="X",
            hint="Pass one row per patient.",
        )
    if np.isinf(values).any():
        raise DataError("entries must be finite; some are infinite", where="X", hint="Use NaN for missing entries.")
    if columns is not None:
        names = tuple(str(name) for name in columns)
    if len(names) != values.shape[1] or len(set(names)) != len(names) or not all(names):
        raise DataError(
            f"columns must have {values.shape[1]} unique names; got {len(set(names) - {''})}",
            where="columns",
            hint="Assign a unique name to every column.",
        )
    return np.array(values, order="C"), names


def encode_table(
    frame: pd.DataFrame,
    *,
    aside: Mapping[str, ColumnCheck],
    columns: Sequence[str] | None = None,
    categories: Categories | Sequence[str] | None = None,
    references: Mapping[str, object] | None = None,
) -> Encoded:
    """Return the features of a site's table as numbers.

    Parameters
    ----------
    frame : pandas frame
    aside : mapping of str to function
        Columns that are not features, and a function that raises DataError if the column cannot be used.
    columns : sequence of str, optional
        Features; by default all columns that are not in `aside`.
    categories : mapping of str to sequence, or sequence of str, optional
        See :func:`multicentre.data.categories.declare_levels`.
    references : mapping of str to level, optional
        Levels without a column, by category.

    Raises
    ------
    DataError
        Columns are missing or cannot be used; the message names all of them.
    ConfigurationError
        A reference is not a level of a category.
    """
    chosen = [name for name in frame.columns if name not in aside] if columns is None else list(columns)
    named = [categories] if isinstance(categories, str) else categories or ()
    faults = column_faults(frame, [*aside, *chosen, *named])
    unique = _unique_columns(frame)
    faults += [fault for name, check in aside.items() if name in unique for fault in faults_of(check, frame[name])]
    usable = [name for name in chosen if name in unique]
    if not isinstance(categories, Mapping | str):
        categories = [name for name in named if name in unique]
    levels = declare_levels(frame, usable, categories)
    values, names = encode_frame(frame, usable, levels, faults)
    check_references(levels, references or {})
    dropped = {join_level(name, level_name(level)) for name, level in (references or {}).items()}
    places = [place for place, name in enumerate(names) if name not in dropped]
    remaining = tuple(names[place] for place in places)
    return Encoded(values[:, places], remaining, levels_left(level_names(levels), remaining))


def faults_of(check: ColumnCheck, column: pd.Series) -> list[Fault]:
    """Return the fault for which a check raises DataError, with the name of the column, or an empty list.

    Examples
    --------
    >>> import pandas as pd
    >>> faults_of(lambda column: raise_faults([read_numbers(column)]), pd.Series(["x"], name="age"))[0].what
    "no entry of 'age' is a number"
    """
    try:
        check(column)
    except DataError as error:
        name = repr(str(column.name))
        return [Fault(error.what if name in error.what else f"{name}: {error.what}", error.hint)]
    return []


def encode_frame(
    frame: pd.DataFrame, chosen: Sequence[str], levels: Levels, faults: Sequence[Fault] = ()
) -> tuple[Floats, tuple[str, ...]]:
    """Return chosen columns of a table as numbers; a category has a column per level.

    Raises
    ------
    DataError
        There are `faults`, a column is missing or contains entries other than numbers or declared levels; the message
        names all columns.

    Examples
    --------
    >>> import pandas as pd
    >>> encode_frame(pd.DataFrame({"sex": ["f", None]}), ["sex"], {"sex": ("f", "m")})
    (array([[ 1.,  0.],
           [nan, nan]]), ('sex=f', 'sex=m'))
    """
    blocks: list[Floats] = []
    names: list[str] = []
    faults = [*faults, *column_faults(frame, chosen)]
    unique = _unique_columns(frame)
    for name in chosen:
        if name not in unique:
            continue
        is_category = name in levels
        block = read_levels(frame[name], levels[name]) if is_category else read_numbers(frame[name])
        if isinstance(block, Fault):
            faults.append(block)
            continue
        blocks.append(block if is_category else block[:, None])
        names += level_names({name: levels[name]}) if is_category else [str(name)]
    raise_faults(faults)
    return np.hstack(blocks) if blocks else np.zeros((len(frame), 0)), tuple(names)


def _unique_columns(frame: pd.DataFrame) -> set[object]:
    return set(frame.columns[~frame.columns.duplicated(keep=False)])


def _rows_of_data(data: Any, columns: tuple[str, ...], levels: tuple[str, ...]) -> Floats:
    """Return the columns of a fit from encoded data, which may have more columns and other references."""
    declared, used = families(data.levels), set(columns)
    fitted = {category: family for category, family in families(levels).items() if used & set(family)}
    if other := [name for name, family in fitted.items() if have_other_levels(declared.get(name, ()), family)]:
        raise SchemaMismatch(
            f"X must have the levels of the categories of the fit; got different levels of {', '.join(other[:8])}",
            where="X",
            hint="Declare the same levels.",
        )
    if data.columns == columns:
        return np.asarray(data.X, dtype=np.float64)
    values = {name: read_level(data.X, data.columns, data.levels, name) for name in columns}
    if absent := [name for name, column in values.items() if column is None]:
        raise SchemaMismatch(
            f"X must have the {len(columns)} columns of the fit; it lacks {', '.join(absent[:8])}",
            where="X",
            hint=f"The columns of the data are {', '.join(data.columns[:20])}.",
        )
    empty = np.zeros((len(data.X), 0))
    return np.column_stack([empty, *(column for column in values.values() if column is not None)])


def _rows_of_frame(frame: pd.DataFrame, columns: tuple[str, ...], levels: tuple[str, ...]) -> Floats:
    """Return the columns of a fit from a frame with these columns or with their unencoded categories."""
    of_category = {name: category for category, family in families(levels).items() for name in family}
    sources = [name if name in frame.columns else of_category.get(name, name) for name in columns]
    categories = {category: family for category, family in families(levels).items() if category in sources}
    declared = {name: tuple(split_level(one)[1] for one in family) for name, family in categories.items()}
    values, names = encode_frame(frame, list(dict.fromkeys(sources)), declared)
    return np.ascontiguousarray(values[:, [names.index(name) for name in columns]])
