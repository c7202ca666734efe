"""Columns of a table as numbers, or what is wrong with them: how many entries and in which rows, never an entry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
# More rows or columns than a person would correct by hand make an error unreadable.
MOST_ROWS_NAMED = 5
MOST_FAULTS_NAMED = 20
POINTS = "Write decimal points (pandas: read_csv(..., decimal=','))."


@dataclass(frozen=True)
class Fault:
    """Reason why a column cannot be used.

    Parameters
    ----------
    what : str
        Names the column, counts entries and names rows; holds no entry.
    hint : str
        Remedy.
    """

    what: str
    hint: str


def raise_faults(faults: Sequence[Fault], where: str = "") -> None:
    """Raise one DataError for all faults, if there are any.

    Examples
    --------
    >>> raise_faults([Fault("'age' holds dates", "Give years."), Fault("'stage' holds dates", "Give years.")])
    Traceback (most recent call last):
    multicentre.federation.errors.DataError: 'age' holds dates; 'stage' holds dates. Give years. [MC302]
    """
    if not faults:
        return
    named = [fault.what for fault in faults[:MOST_FAULTS_NAMED]]
    if len(faults) > len(named):
        named.append(f"{len(faults) - len(named)} more columns cannot be used")
    raise DataError("; ".join(named), where=where, hint=" ".join(dict.fromkeys(fault.hint for fault in faults)))


def count_entries(
    rows: Sequence[int] | NDArray[np.integer[Any]], n_entries: int, name: object, one: str, many: str
) -> str:
    """Return how many entries of a column are something, and in which rows.

    Parameters
    ----------
    rows : sequence of int
        Rows of the entries, from 0; at least one.
    n_entries : int
        Entries of the column.
    name : object
        Name of the column.
    one, many : str
        What one entry is, and what several are.

    Examples
    --------
    >>> count_entries([5], 200, "age", "not a number", "not numbers")
    "1 of 200 entries of 'age' is not a number (row 6)"
    """
    said = f"is {one}" if len(rows) == 1 else f"are {many}"
    return f"{len(rows)} of {n_entries} entries of {name!r} {said} ({name_rows(rows)})"


def name_rows(rows: Sequence[int] | NDArray[np.integer[Any]]) -> str:
    """Return the first rows, counted from 1 without the header.

    Examples
    --------
    >>> name_rows([5]), name_rows(range(8))
    ('row 6', 'rows 1, 2, 3, 4, 5 and 3 more')
    """
    named = ", ".join(str(int(row) + 1) for row in rows[:MOST_ROWS_NAMED])
    more = len(rows) - MOST_ROWS_NAMED
    return f"row {named}" if len(rows) == 1 else f"rows {named}" + (f" and {more} more" if more > 0 else "")


def read_numbers(column: pd.Series, *, hint: str = "") -> Floats | Fault:
    """Return a column as numbers, NaN where missing, or what is wrong with it.

    Parameters
    ----------
    column : pandas Series
    hint : str, optional
        Remedy where entries are no numbers; by default that for a column of features.

    Examples
    --------
    >>> import pandas as pd
    >>> read_numbers(pd.Series([61, "?", None], name="age")).what
    "1 of 3 entries of 'age' is not a number (row 2)"
    """
    kind = getattr(column.dtype, "kind", "O")
    if kind in "mM":
        usual = "Give numbers, such as an age in years."
        return Fault(f"{column.name!r} holds dates or lengths of time", hint or usual)
    if kind == "c":
        return Fault(f"{column.name!r} holds complex numbers", "Give real and imaginary parts a column each.")
    if is_categorical(column):
        return Fault(f"{column.name!r} is a pandas categorical", "Make columns of its levels with from_frame.")
    try:
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError, OverflowError):
        return _no_numbers(column, hint)
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        what = count_entries(infinite, len(values), column.name, "infinite", "infinite")
        return Fault(what, "Leave entries empty where a value is missing.")
    return values


def is_categorical(column: pd.Series) -> bool:
    """Return whether a column is a pandas categorical.

    Examples
    --------
    >>> import pandas as pd
    >>> is_categorical(pd.Series(["f", "m"], dtype="category"))
    True
    """
    return getattr(column.dtype, "name", "") == "category"


def reads_as_number(cell: Any) -> bool:
    """Return whether Python reads a cell as a real number.

    Examples
    --------
    >>> reads_as_number("1.5"), reads_as_number("1,5")
    (True, False)
    """
    try:
        float(cell)
    except (TypeError, ValueError):
        return False
    except OverflowError:
        return True
    return True


def have_decimal_commas(cells: Iterable[object]) -> bool:
    """Return whether all cells are texts that are numbers once their comma is a point.

    Examples
    --------
    >>> have_decimal_commas(["1,5", "1.250,75"]), have_decimal_commas(["1,5", "high"])
    (True, False)
    """
    return all(isinstance(cell, str) and reads_as_number(cell.replace(".", "").replace(",", ".")) for cell in cells)


def _no_numbers(column: pd.Series, hint: str) -> Fault:
    known = np.flatnonzero(column.notna().to_numpy())
    cells = column.astype(object).tolist()
    rows = [int(row) for row in known if not reads_as_number(cells[row])]
    if have_decimal_commas(cells[row] for row in rows):
        one, many = "a number with a decimal comma", "numbers with decimal commas"
        return Fault(count_entries(rows, len(cells), column.name, one, many), POINTS)
    if len(rows) == len(known):
        usual = "Declare the levels of a category in `categories`, or leave the column out."
        return Fault(f"no entry of {column.name!r} is a number", hint or usual)
    usual = "Correct the entries, and leave them empty where a value is missing; declare a category in `categories`."
    return Fault(count_entries(rows, len(cells), column.name, "not a number", "not numbers"), hint or usual)
