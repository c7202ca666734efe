"""Conversion of one view (pandas frame, polars frame or array) to column names, kinds and a float array.

Frames of polars and arrow become pandas frames first, see :mod:`multicentre.data.frames`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multicentre.data.cells import POINTS, Fault, have_decimal_commas, name_rows, raise_faults, reads_as_number
from multicentre.data.frames import is_frame, to_pandas
from multicentre.data.schema import Kind
from multicentre.errors import DataError

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
Column = tuple[Kind, Floats]
# An error names at most this many columns and counts the rest, so that a message stays readable.
MAX_NAMED = 5


@dataclass(frozen=True)
class Block:
    """One view of n patients.

    Parameters
    ----------
    names : tuple of str
        Column names.
    kinds : tuple of {"number", "boolean"}
        Kind of every column.
    values : array, shape (n, d_k)
        Entries, NaN where missing; read-only.
    """

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    values: Floats

    def __post_init__(self) -> None:
        self.values.setflags(write=False)

    def take(self, rows: NDArray[np.int64]) -> Block:
        """Return the block of these rows."""
        return Block(self.names, self.kinds, self.values[rows])

    def keep(self, names: set[str]) -> Block:
        """Return the block with only the columns of these names."""
        positions = [j for j, name in enumerate(self.names) if name in names]
        return Block(
            tuple(self.names[j] for j in positions),
            tuple(self.kinds[j] for j in positions),
            np.ascontiguousarray(self.values[:, positions]),
        )

    def spread(self, rows: NDArray[np.int64], n_patients: int) -> Block:
        """Return a block of `n_patients` rows with these entries at `rows`; all other rows are missing."""
        values = np.full((n_patients, len(self.names)), np.nan)
        values[rows] = self.values
        return Block(self.names, self.kinds, values)


def read_block(view: str, source: object, names: Sequence[str] | None = None) -> Block:
    """Read one view and check its columns and entries.

    Parameters
    ----------
    view : str
        Name of the view, for errors.
    source : pandas, polars or arrow table, or array of shape (n, d_k)
    names : sequence of str, optional
        Column names of an array; ``<view>_<j>`` by default.

    Raises
    ------
    DataError
        The view has no rows, columns or entries; a column is named twice; or cells are not finite numbers.
    """
    if isinstance(source, Block):
        return source
    if is_frame(source):
        if names is not None:
            raise DataError(
                "column names must be None for a frame; got names",
                where=place(view),
                hint="Leave the names out. A frame has column names.",
            )
        block = _read_frame(view, to_pandas(source))
    elif isinstance(source, np.ndarray):
        block = _read_array(view, source, names)
    else:
        raise DataError(
            f"a view must be a pandas, polars or arrow table or a two-dimensional array; got {type(source).__name__}",
            where=place(view),
            hint="Convert the view to one of these.",
        )
    _check_entries(view, block)
    return block


def place(view: str, *columns: str) -> str:
    """Format a view, or some of its columns, for an error message.

    Examples
    --------
    >>> place("blood", "iron", "zinc")
    "view 'blood', columns 'iron', 'zinc'"
    """
    names = ", ".join(repr(column) for column in columns[:MAX_NAMED])
    more = f" and {len(columns) - MAX_NAMED} more" if len(columns) > MAX_NAMED else ""
    return f"view {view!r}" + (f", column{'s' if len(columns) > 1 else ''} {names}{more}" if columns else "")


def plain_name(name: object) -> str:
    """Return a name as text in composed Unicode, so that equal-looking names of two sites are equal."""
    return unicodedata.normalize("NFC", str(name))


def _read_frame(view: str, frame: pd.DataFrame) -> Block:
    names = _checked_names(view, frame.columns)
    _check_size(view, len(frame), len(names))
    columns = _read_all(lambda j: _read_pandas(frame, j, place(view, names[j])), len(names))
    return Block(names, tuple(kind for kind, _ in columns), np.column_stack([values for _, values in columns]))


def _read_all(read: Callable[[int], Column], n_columns: int) -> list[Column]:
    """Read all columns; raise one error for all columns that cannot be used."""
    columns: list[Column] = []
    errors: list[DataError] = []
    for j in range(n_columns):
        try:
            columns.append(read(j))
        except DataError as error:
            errors.append(error)
    if len(errors) == 1:
        raise errors[0]
    raise_faults([Fault(error.placed, error.hint) for error in errors])
    return columns


def _read_pandas(frame: pd.DataFrame, j: int, where: str) -> Column:
    import pandas as pd

    series = frame.iloc[:, j]
    if pd.api.types.is_complex_dtype(series.dtype):
        raise _complex(where)
    if pd.api.types.is_numeric_dtype(series.dtype):
        kind: Kind = "boolean" if pd.api.types.is_bool_dtype(series.dtype) else "number"
        return kind, series.to_numpy(dtype=np.float64, na_value=np.nan)
    missing = series.isna()
    return _read_cells([None if is_missing else cell for cell, is_missing in zip(series, missing, strict=True)], where)


def _read_array(view: str, array: NDArray[np.generic], names: Sequence[str] | None) -> Block:
    if array.ndim != 2:
        raise DataError(
            f"the array must have 2 dimensions; got {array.ndim}",
            where=place(view),
            hint="Pass one row per patient: shape (n, d).",
        )
    n, d = array.shape
    column_names = [f"{view}_{j}" for j in range(d)] if names is None else names
    if len(column_names) != d:
        raise DataError(
            f"the view must have one name per column ({d}); got {len(column_names)}",
            where=place(view),
            hint="Name each column once.",
        )
    checked = _checked_names(view, column_names)
    _check_size(view, n, d)
    if isinstance(array, np.ma.MaskedArray):
        array = np.where(np.ma.getmaskarray(array), np.nan, np.ma.getdata(array))
    if array.dtype.kind == "c":
        raise _complex(place(view))
    if array.dtype.kind in "biuf":
        kind: Kind = "boolean" if array.dtype.kind == "b" else "number"
        return Block(checked, (kind,) * d, np.array(array, dtype=np.float64))
    if array.dtype.kind in "mM":
        raise DataError(
            "entries must be numbers; got dates", where=place(view), hint="Convert them to days since a reference date."
        )
    columns = _read_all(lambda j: _read_cells(array[:, j].tolist(), place(view, checked[j])), d)
    return Block(checked, tuple(kind for kind, _ in columns), np.column_stack([values for _, values in columns]))


def _read_cells(cells: Sequence[object], where: str) -> Column:
    """Read a column of Python objects, `None` where missing."""
    present = [cell for cell in cells if cell is not None]
    if any(isinstance(cell, complex | np.complexfloating) for cell in present):
        raise _complex(where)
    unreadable = {
        row: cell
        for row, cell in enumerate(cells)
        if cell is not None and not isinstance(cell, Real | Decimal | np.bool_)
    }
    if unreadable:
        raise _not_numeric(unreadable, len(cells), where)
    kind: Kind = "boolean" if present and all(isinstance(cell, bool | np.bool_) for cell in present) else "number"
    return kind, np.array([np.nan if cell is None else _as_float(cell) for cell in cells])


def _as_float(cell: Any) -> float:
    try:
        return float(cell)
    except OverflowError:
        return np.inf


def _not_numeric(unreadable: Mapping[int, object], n_cells: int, where: str) -> DataError:
    """Return the error for non-numeric cells, given by row."""
    rows = [row for row, cell in unreadable.items() if not (isinstance(cell, str) and reads_as_number(cell))]
    if not rows:
        what = f"cells must be numbers; {len(unreadable)} of {n_cells} are text ({name_rows(list(unreadable))})"
        return DataError(what, where=where, hint="Convert the column to numbers first.")
    if have_decimal_commas(unreadable[row] for row in rows) and all(
        isinstance(cell, str) for cell in unreadable.values()
    ):
        what = (
            f"cells must be numbers; {len(unreadable)} of {n_cells} are text with a decimal comma ({name_rows(rows)})"
        )
        return DataError(what, where=where, hint=POINTS)
    return DataError(
        f"cells must be numbers; {len(rows)} of {n_cells} are not ({name_rows(rows)})",
        where=where,
        hint="Code categories and dates as numbers, leave missing entries empty, or leave the column out.",
    )


def _complex(where: str) -> DataError:
    return DataError(
        "entries must be real; got complex numbers",
        where=where,
        hint="Store real and imaginary parts in separate columns.",
    )


def _checked_names(view: str, names: Iterable[object]) -> tuple[str, ...]:
    plain = tuple(map(plain_name, names))
    if "" in plain:
        raise DataError(
            f"every column must have a name; column {plain.index('') + 1} has none",
            where=place(view),
            hint="Name every column.",
        )
    previous_names: set[str] = set()
    for name in plain:
        if name in previous_names:
            raise DataError(
                "column names must be unique; got two columns with this name",
                where=place(view, name),
                hint="Rename or remove one of them.",
            )
        previous_names.add(name)
    return plain


def _check_size(view: str, n_rows: int, n_columns: int) -> None:
    if n_columns == 0:
        raise DataError(
            "a view must have at least one column; got 0", where=place(view), hint="Leave the view out of this site."
        )
    if n_rows == 0:
        raise DataError(
            "a view must have at least one row; got 0", where=place(view), hint="Leave the view out of this site."
        )


def _check_entries(view: str, block: Block) -> None:
    infinite = np.isinf(block.values).sum(axis=0)
    for j in np.flatnonzero(infinite)[:1]:
        raise DataError(
            f"cells must be finite; got {infinite[j]} of {len(block.values)} infinite",
            where=place(view, block.names[j]),
            hint="Mark entries that were not measured as missing.",
        )
    if np.isnan(block.values).all():
        raise DataError(
            "a view must have at least one entry; all entries are missing",
            where=place(view),
            hint="Leave the view out of this site.",
        )
