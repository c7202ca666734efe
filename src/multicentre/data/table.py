"""Columns of numbers with names, from arrays or tables; categories become columns of zeros and ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]


def is_frame(given: object) -> bool:
    """Tell whether this is a table with named columns.

    Examples
    --------
    >>> is_frame(np.zeros((2, 2)))
    False
    """
    return hasattr(given, "columns") and hasattr(given, "to_numpy")


def rows_for(X: Any, columns: tuple[str, ...]) -> Floats:
    """Return the numbers of a table in the columns that a model was fitted to, shape (n, d).

    Parameters
    ----------
    X : array of shape (n, d), pandas frame, or data with ``X`` and ``columns``
        A frame may have more columns, in any order.
    columns : tuple of str

    Raises
    ------
    DataError
        The columns are not those.

    Examples
    --------
    >>> import pandas as pd
    >>> rows_for(pd.DataFrame({"sex": [0.0], "age": [61.0]}), ("age", "sex")).tolist()
    [[61.0, 0.0]]
    """
    if is_frame(X) and set(columns) <= set(X.columns):
        values, names = checked_columns(X[list(columns)], None)
    elif not is_frame(X) and hasattr(X, "columns"):
        values, names = X.X, X.columns
    else:
        values, names = checked_columns(X, None)
        names = columns if values.shape[1] == len(columns) and not is_frame(X) else names
    if names != columns:
        raise DataError(
            f"{len(names)} columns are given; the fit had {len(columns)}",
            where="X",
            mend=f"Give, in this order, {', '.join(columns[:8])}.",
        )
    return values


def check_present(frame: pd.DataFrame, names: Sequence[str]) -> None:
    """Check that a table has these columns.

    Raises
    ------
    DataError
        Some are absent.
    """
    absent = [name for name in names if name not in frame.columns]
    if absent:
        raise DataError(f"there is no such column: {', '.join(absent)}", where="frame", mend="Correct the name.")


def checked_columns(X: Any, columns: Sequence[str] | None) -> tuple[Floats, tuple[str, ...]]:
    """Return the numbers, shape (n, d), and the names of the columns.

    Raises
    ------
    DataError
        X is no table of numbers, is empty, holds an infinity, or names are repeated or too few.

    Examples
    --------
    >>> checked_columns([[1, 2]], None)
    (array([[1., 2.]]), ('x0', 'x1'))
    """
    if is_frame(X):
        values, names = encode_frame(X, list(X.columns), {})
    else:
        try:
            values = np.asarray(X, dtype=np.float64)
        except (TypeError, ValueError):
            raise DataError("not all entries are numbers", where="X", mend="Encode categories first.") from None
        names = tuple(f"x{place}" for place in range(values.shape[-1] if values.ndim == 2 else 0))
    if values.ndim != 2 or 0 in values.shape:
        raise DataError(
            f"patients by columns are needed, shape {values.shape} was given", where="X", mend="Give one row a patient."
        )
    if np.isinf(values).any():
        raise DataError("some entries are infinite", where="X", mend="Write NaN for what is missing.")
    if columns is not None:
        names = tuple(str(name) for name in columns)
    if len(names) != values.shape[1] or len(set(names)) != len(names) or not all(names):
        raise DataError(
            f"{len(set(names) - {''})} different names are given for {values.shape[1]} columns",
            where="columns",
            mend="Give every column a name of its own.",
        )
    return np.array(values, order="C"), names


def encode_frame(
    frame: pd.DataFrame, chosen: Sequence[str], categories: Mapping[str, Sequence[object]]
) -> tuple[Floats, tuple[str, ...]]:
    """Return chosen columns of a table as numbers; a category has a column a level.

    Raises
    ------
    DataError
        A column is absent or holds texts without declared levels, or a level that was not declared.

    Examples
    --------
    >>> import pandas as pd
    >>> encode_frame(pd.DataFrame({"sex": ["f", None]}), ["sex"], {"sex": ["f", "m"]})
    (array([[1., 0.],
           [0., 0.]]), ('sex=f', 'sex=m'))
    """
    absent = [name for name in [*chosen, *categories] if name not in frame.columns]
    if absent:
        raise DataError(f"there is no such column: {', '.join(map(str, absent))}", where="X", mend="Correct the name.")
    blocks: list[Floats] = []
    names: list[str] = []
    for name in chosen:
        column = frame[name]
        if name in categories:
            blocks += [_indicators(column, categories[name])]
            names += [f"{name}={level}" for level in categories[name]]
        else:
            blocks += [_as_numbers(column)[:, None]]
            names += [str(name)]
    return np.hstack(blocks) if blocks else np.zeros((len(frame), 0)), tuple(names)


def _indicators(column: pd.Series, levels: Sequence[object]) -> Floats:
    unknown = int((column.notna() & ~column.isin(list(levels))).sum())
    if unknown:
        raise DataError(
            f"{unknown} patients have a category that was not declared",
            where=f"column {column.name!r}",
            mend="Agree on the levels of the column between all sites, and declare all of them.",
        )
    return np.column_stack([column.isin([level]).to_numpy(dtype=np.float64) for level in levels])


def _as_numbers(column: pd.Series) -> Floats:
    if getattr(column.dtype, "kind", "O") in "mM":
        raise DataError(
            "the column holds dates or lengths of time",
            where=f"column {column.name!r}",
            mend="Give numbers, such as an age in years.",
        )
    try:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError):
        raise DataError(
            "the column holds texts",
            where=f"column {column.name!r}",
            mend="Declare its levels in `categories`, or leave it out.",
        ) from None
