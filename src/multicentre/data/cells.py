"""Conversion of table columns to numbers, and descriptions of faulty columns.

A description counts the faulty entries and names their rows. It never contains an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
# Limits on what an error lists, so that it stays readable: rows (MOST_ROWS_NAMED), columns (MOST_FAULTS_NAMED).
MOST_ROWS_NAMED = 5
MOST_FAULTS_NAMED = 20
POINTS = "Use decimal points (pandas: read_csv(..., decimal=','))."


@dataclass(frozen=True)
class Fault:
    """Reason why a column cannot be used.

    Parameters
    ----------
    what : str
        Description with the name of the column, a number of entries and their rows; contains no entry.
    hint : str
        Remedy.
    """

    what: str
    hint: str


def raise_faults(faults: Sequence[Fault], where: str = "") -> None:
    """Raise one DataError for all faults; do nothing without faults.

    Examples
    --------
    >>> raise_faults([Fault("'age' contains dates", "Use years."), Fault("'stage' contains dates", "Use years.")])
    Traceback (most recent call last):
    multicentre.errors.DataError: 'age' contains dates; 'stage' contains dates. Use years. [MC302]
    """
    if not faults:
        return
    descriptions = [fault.what for fault in faults[:MOST_FAULTS_NAMED]]
    if len(faults) > len(descriptions):
        descriptions.append(f"{len(faults) - len(descriptions)} more columns cannot be used")
    raise DataError("; ".join(descriptions), where=where, hint=" ".join(dict.fromkeys(fault.hint for fault in faults)))


def count_entries(
    rows: Sequence[int] | NDArray[np.integer[Any]], n_entries: int, name: object, one: str, many: str
) -> str:
    """Format the number of entries of a column that share a fault, and their rows.

    Parameters
    ----------
    rows : sequence of int
        Rows of the entries, from 0; at least one.
    n_entries : int
        Number of entries of the column.
    name : object
        Name of the column.
    one, many : str
        Description of the fault in the singular and in the plural.

    Examples
    --------
    >>> count_entries([5], 200, "age", "not a number", "not numbers")
    "1 of 200 entries of 'age' is not a number (row 6)"
    """
    clause = f"is {one}" if len(rows) == 1 else f"are {many}"
    return f"{len(rows)} of {n_entries} entries of {name!r} {clause} ({name_rows(rows)})"


def name_rows(rows: Sequence[int] | NDArray[np.integer[Any]]) -> str:
    """Format the first rows, counted from 1 without the header.

    Examples
    --------
    >>> name_rows([5]), name_rows(range(8))
    ('row 6', 'rows 1, 2, 3, 4, 5 and 3 more')
    """
    numbers = ", ".join(str(int(row) + 1) for row in rows[:MOST_ROWS_NAMED])
    more = len(rows) - MOST_ROWS_NAMED
    return f"row {numbers}" if len(rows) == 1 else f"rows {numbers}" + (f" and {more} more" if more > 0 else "")


def read_numbers(column: pd.Series, *, hint: str = "") -> Floats | Fault:
    """Return a column as numbers, NaN where missing, or the fault that prevents it.

    Parameters
    ----------
    column : pandas Series
    hint : str, optional
        Remedy for non-numeric entries; by default the remedy for a feature column.

    Examples
    --------
    >>> import pandas as pd
    >>> read_numbers(pd.Series([61, "?", None], name="age")).what
    "1 of 3 entries of 'age' is not a number (row 2)"
    """
    kind = getattr(column.dtype, "kind", "O")
    if kind in "mM":
        default_hint = "Convert them to numbers, such as an age in years."
        return Fault(f"{column.name!r} contains dates or durations", hint or default_hint)
    if kind == "c":
        return Fault(f"{column.name!r} contains complex numbers", "Store real and imaginary parts in separate columns.")
    if is_categorical(column):
        return Fault(f"{column.name!r} is a pandas categorical", "Encode it with from_frame: one column per level.")
    try:
        values = column.to_numpy(dtype=np.float64, na_value=np.nan)
    except (TypeError, ValueError, OverflowError):
        return _no_numbers(column, hint)
    infinite = np.flatnonzero(np.isinf(values))
    if len(infinite):
        what = count_entries(infinite, len(values), column.name, "infinite", "infinite")
        return Fault(what, "Leave missing entries empty.")
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
    """Return whether Python converts a cell to a real number.

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
    """Return whether all cells are texts that are numbers with a decimal comma.

    Examples
    --------
    >>> have_decimal_commas(["1,5", "1.250,75"]), have_decimal_commas(["1,5", "high"])
    (True, False)
    """
    return all(isinstance(cell, str) and reads_as_number(cell.replace(".", "").replace(",", ".")) for cell in cells)


def _no_numbers(column: pd.Series, hint: str) -> Fault:
    filled = np.flatnonzero(column.notna().to_numpy())
    cells = column.astype(object).tolist()
    rows = [int(row) for row in filled if not reads_as_number(cells[row])]
    if have_decimal_commas(cells[row] for row in rows):
        one, many = "a number with a decimal comma", "numbers with decimal commas"
        return Fault(count_entries(rows, len(cells), column.name, one, many), POINTS)
    if len(rows) == len(filled):
        default_hint = "Declare the levels of a category in `categories`, or leave the column out."
        return Fault(f"no entry of {column.name!r} is a number", hint or default_hint)
    default_hint = "Correct the entries, leave missing entries empty, or declare a category in `categories`."
    return Fault(count_entries(rows, len(cells), column.name, "not a number", "not numbers"), hint or default_hint)
