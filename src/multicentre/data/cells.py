"""Conversion of table columns to numbers, and descriptions of faulty columns.

A description counts the faulty entries and names their rows. It never contains an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from multicentre.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Rows: TypeAlias = "Sequence[int] | NDArray[np.integer[Any]]"
# Limits on what an error lists, so that it stays readable: rows (MAX_ROWS_NAMED), columns (MAX_FAULTS_NAMED).
MAX_ROWS_NAMED = 5
MAX_FAULTS_NAMED = 20
# Name of the index of a table from which rows were left out: the index then holds the rows of the file, from 0.
ROW_OF_FILE = "row of the file"
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


class FaultyColumns(DataError):
    """Columns of a table cannot be used.

    Attributes
    ----------
    faults : tuple of Fault
        Faults of all columns.
    """

    faults: tuple[Fault, ...] = ()


def raise_faults(faults: Sequence[Fault], where: str = "") -> None:
    """Raise one DataError for all faults; do nothing without faults.

    Examples
    --------
    >>> raise_faults([Fault("'age' contains dates", "Use years."), Fault("'stage' contains dates", "Use years.")])
    Traceback (most recent call last):
    multicentre.data.cells.FaultyColumns: 'age' contains dates; 'stage' contains dates. Use years. [MC302]
    """
    if not faults:
        return
    descriptions = [fault.what for fault in faults[:MAX_FAULTS_NAMED]]
    if len(faults) > len(descriptions):
        descriptions.append(f"{len(faults) - len(descriptions)} more columns cannot be used")
    hint = " ".join(dict.fromkeys(fault.hint for fault in faults))
    error = FaultyColumns("; ".join(descriptions), where=where, hint=hint)
    error.faults = tuple(faults)
    raise error


@contextmanager
def collected(faults: list[Fault]) -> Iterator[None]:
    """Append the faults of a DataError to a list instead of raising it."""
    try:
        yield
    except DataError as error:
        new = error.faults if isinstance(error, FaultyColumns) else [Fault(error.placed, error.hint)]
        faults += [fault for fault in new if fault not in faults]


def count_entries(rows: Rows, column: pd.Series, one: str, many: str) -> str:
    """Format the number of entries of a column that share a fault, and their rows.

    Parameters
    ----------
    rows : sequence of int
        Positions of the entries in the column, from 0; at least one.
    column : pandas Series
    one, many : str
        Description of the fault in the singular and in the plural.

    Examples
    --------
    >>> import pandas as pd
    >>> count_entries([1], pd.Series([61, "?"], name="age"), "not a number", "not numbers")
    "1 of 2 entries of 'age' is not a number (row 2)"
    """
    if column.index.name == ROW_OF_FILE:
        rows = column.index.to_numpy()[list(rows)]
    clause = f"is {one}" if len(rows) == 1 else f"are {many}"
    return f"{len(rows)} of {len(column)} entries of {column.name!r} {clause} ({name_rows(rows)})"


def name_rows(rows: Rows) -> str:
    """Format the first rows, counted from 1 without the header.

    Examples
    --------
    >>> name_rows([5]), name_rows(range(8))
    ('row 6', 'rows 1, 2, 3, 4, 5 and 3 more')
    """
    numbers = ", ".join(str(int(row) + 1) for row in rows[:MAX_ROWS_NAMED])
    more = len(rows) - MAX_ROWS_NAMED
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
        what = count_entries(infinite, column, "infinite", "infinite")
        return Fault(what, "Leave missing entries empty.")
    return values


def numbers_of(column: pd.Series, hint: str) -> Floats:
    """Return a column as numbers, NaN where missing.

    Raises
    ------
    DataError
        An entry is not a number; `hint` is the remedy.

    Examples
    --------
    >>> import pandas as pd
    >>> numbers_of(pd.Series([61, None]), "").tolist()
    [61.0, nan]
    """
    numbers = read_numbers(column, hint=hint)
    if isinstance(numbers, Fault):
        raise DataError(numbers.what, hint=numbers.hint)
    return numbers


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
        return Fault(count_entries(rows, column, one, many), POINTS)
    if len(rows) == len(filled):
        default_hint = "Declare the levels of a category in `categories`, or leave the column out."
        return Fault(f"no entry of {column.name!r} is a number", hint or default_hint)
    default_hint = "Correct the entries, leave missing entries empty, or declare a category in `categories`."
    return Fault(count_entries(rows, column, "not a number", "not numbers"), hint or default_hint)
