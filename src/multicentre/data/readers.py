"""Readers of tables and views from CSV, TSV (plain or gzip) and Parquet files."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import numpy as np
from numpy.typing import NDArray

from multicentre.data.blocks import Block, place, read_block
from multicentre.data.multiview import MultiViewData
from multicentre.errors import ConfigurationError, DataError, MissingExtra, nearest_name

if TYPE_CHECKING:
    import pandas as pd

_SEPARATORS = {".csv": ",", ".csv.gz": ",", ".tsv": "\t", ".tsv.gz": "\t"}
# First bytes of other kinds of files: description and remedy.
_STARTS = {
    b"PK\x03\x04": ("an Excel workbook (.xlsx) or a zip archive", "Export the sheet as CSV (UTF-8)"),
    b"\xd0\xcf\x11\xe0": ("an Excel workbook (.xls)", "Export the sheet as CSV (UTF-8)"),
    b"\x1f\x8b": ("compressed with gzip", "Let its name end in .gz"),
    b"PAR1": ("Parquet", "Let its name end in .parquet"),
}
_WORDS = {";": "semicolons", "\t": "tabs", "|": "bars", ",": "commas"}


def read_table(path: str | Path, text_columns: Sequence[str] = ()) -> pd.DataFrame:
    """Read one table from a file.

    Columns of numbers are read as numbers, columns of true and false as truth values. All other columns are text, so
    codes are unchanged. List columns of digits that are codes (identifiers, postcodes) in `text_columns`. Empty cells
    and the usual marks of pandas (``NA``, ``nan``, ``null``) are missing.

    Parameters
    ----------
    path : str or path
        A file that ends in ``.csv``, ``.csv.gz``, ``.tsv``, ``.tsv.gz`` (UTF-8, decimal points) or ``.parquet``.
    text_columns : sequence of str
        Columns to read as text regardless of their content.

    Raises
    ------
    DataError
        The file is missing, empty or damaged, its kind is unknown or does not match its name, its rows differ in
        length, or its header has an empty or repeated name or blanks around a name.
    MissingExtra
        The file is Parquet and pyarrow is not installed.
    """
    file = Path(path)
    if file.is_dir():
        raise DataError("path must be a file; got a folder", where=str(path), hint="Name a file in the folder.")
    if not file.is_file():
        raise DataError("path must be an existing file; got none at this path", where=str(path), hint="Check the path.")
    suffix = _suffix(file)
    if file.stat().st_size == 0:
        raise DataError("the file is empty", where=str(path), hint="Export the table again.")
    _check_start(file, suffix)
    frame = _read_parquet(file) if suffix == ".parquet" else _read_delimited(file, _SEPARATORS[suffix], text_columns)
    _check_header([str(name) for name in frame.columns], file)
    if len(frame) == 0:
        raise DataError("the table must have at least one row; got 0", where=str(path), hint="Export the table again.")
    text = {name: str for name in text_columns if name in frame.columns and frame[name].notna().all()}
    return frame.astype(text) if text else frame  # astype copies every column, also without a type


def read_multiview(
    files: Mapping[str, str | Path],
    id_column: str | None = None,
    columns: Mapping[str, Sequence[str]] | None = None,
) -> MultiViewData:
    """Read the views of one site from files.

    With `id_column`, rows of different files are joined if their identifiers are equal as text. Patients are sorted by
    first appearance, and a patient who is not in a file lacks its views. Without `id_column`, all files must have the
    same patients in the same order. One file may contain several views if `columns` assigns its columns to them.

    Parameters
    ----------
    files : mapping from str to path
        File of every view.
    id_column : str, optional
        Column of patients' identifiers, in every file.
    columns : mapping from str to sequence of str, optional
        Columns of a view; by default all columns of its file except the identifier.

    Raises
    ------
    DataError
        A file or a view cannot be used; see `read_table` and `MultiViewData`.
    ConfigurationError
        `columns` names a view without a file, or is missing although two views share a file.
    """
    chosen = dict(columns or {})
    _check_request(files, chosen)
    text = [] if id_column is None else [id_column]
    tables = {path: read_table(path, text) for path in dict.fromkeys(map(Path, files.values()))}
    ids_by_file = (
        {} if id_column is None else {path: _read_ids(path, table, id_column) for path, table in tables.items()}
    )
    blocks = {
        view: _read_view(view, Path(path), tables[Path(path)], chosen.get(view), text) for view, path in files.items()
    }
    if id_column is None:
        return MultiViewData(blocks)
    row_of = {one: row for row, one in enumerate(dict.fromkeys(one for ids in ids_by_file.values() for one in ids))}
    rows_by_file = {path: _rows(ids, row_of) for path, ids in ids_by_file.items()}
    joined = {view: block.spread(rows_by_file[Path(files[view])], len(row_of)) for view, block in blocks.items()}
    return MultiViewData(joined, ids=row_of)


def _suffix(file: Path) -> str:
    name = file.name.lower()
    for suffix in (*_SEPARATORS, ".parquet"):
        if name.endswith(suffix):
            return suffix
    suffixes = ", ".join([*_SEPARATORS, ".parquet"])
    raise DataError(
        f"the file name must end in one of {suffixes}; got {file.suffix!r}",
        where=str(file),
        hint="Export the table to one of these formats.",
    )


def _check_start(file: Path, suffix: str) -> None:
    """Raise DataError if the first bytes do not match the file name."""
    with file.open("rb") as stream:
        first = stream.read(4)
    for start, (kind, hint) in _STARTS.items():
        is_expected = (start == b"PAR1" and suffix == ".parquet") or (start == b"\x1f\x8b" and suffix.endswith(".gz"))
        if first.startswith(start) and not is_expected:
            raise DataError(f"the content must match the file name; got {kind}", where=str(file), hint=f"{hint}.")


def _read_parquet(file: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        return pd.read_parquet(file, engine="pyarrow")
    except ImportError as error:
        raise MissingExtra(
            "reading Parquet requires pyarrow",
            where=str(file),
            hint="Install multicentre[parquet], or export to CSV.",
        ) from error
    except (OSError, ValueError, KeyError) as error:
        raise _damaged(file) from error


def _read_delimited(file: Path, separator: str, text_columns: Sequence[str]) -> pd.DataFrame:
    import pandas as pd

    try:
        header = _checked_rows(file, separator)
        _check_header(header, file)
        text = {name: str for name in text_columns if name in header}
        return pd.read_csv(file, sep=separator, dtype=text, low_memory=False)
    except UnicodeDecodeError as error:
        raise DataError(
            "the text must be encoded as UTF-8; got other bytes", where=str(file), hint="Save the file as UTF-8."
        ) from error
    except (OSError, EOFError, zlib.error, csv.Error, pd.errors.ParserError) as error:
        raise _damaged(file) from error


def _checked_rows(file: Path, separator: str) -> list[str]:
    """Return the header after checking that all rows have its length (pandas pads short rows without a warning)."""
    with _open(file) as stream:
        rows = _filled_rows(csv.reader(stream, delimiter=separator, strict=True))
        line, header = next(rows, (0, []))
        if not header:
            raise DataError("the file is empty", where=str(file), hint="Export the table again.")
        _check_separator(header, separator, file)
        for line, row in rows:
            if len(row) != len(header):
                raise DataError(
                    f"every line must have {len(header)} fields, as the header; line {line} has {len(row)}",
                    where=str(file),
                    hint="Quote fields that contain the separator, and export the table again.",
                )
    return header


def _check_separator(header: Sequence[str], separator: str, file: Path) -> None:
    if len(header) > 1:
        return
    for mark, word in _WORDS.items():
        if mark != separator and mark in header[0]:
            hint = f"Export with {_WORDS[separator]} between the fields and decimal points."
            expected = _WORDS[separator]
            raise DataError(f"fields must be separated by {expected}; got {word}", where=str(file), hint=hint)


def _filled_rows(reader: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    for row in reader:
        if row:
            yield reader.line_num, row  # type: ignore[attr-defined]


def _open(file: Path) -> TextIO:
    if file.name.lower().endswith(".gz"):
        return gzip.open(file, "rt", encoding="utf-8-sig", newline="")
    return file.open(encoding="utf-8-sig", newline="")


def _check_header(names: Sequence[str], file: Path) -> None:
    places: dict[str, int] = {}
    for j, name in enumerate(names):
        if not name.strip():
            raise DataError(
                f"every column must have a name; column {j + 1} has none",
                where=str(file),
                hint="Name every column; from R, write the file without row names.",
            )
        if name != name.strip():
            raise DataError(
                f"column names must not begin or end with a blank; column {j + 1}, {name!r}, does",
                where=str(file),
                hint="Remove the blank from the header.",
            )
        if places.setdefault(name, j) != j:
            raise DataError(
                f"column names must be unique; columns {places[name] + 1} and {j + 1} are both {name!r}",
                where=str(file),
                hint="Rename or remove one of them.",
            )


def _damaged(file: Path) -> DataError:
    return DataError("the file is damaged or incomplete", where=str(file), hint="Copy or export it again.")


def _check_request(files: Mapping[str, str | Path], columns: Mapping[str, Sequence[str]]) -> None:
    for view in columns:
        if view not in files:
            raise ConfigurationError(
                "columns must name views with a file; this view has none",
                where=place(view),
                hint="Add its file to files.",
            )
    paths = [Path(path) for path in files.values()]
    for view, path in files.items():
        if paths.count(Path(path)) > 1 and view not in columns:
            raise ConfigurationError(
                f"columns must list the columns of views that share a file; got none for this view of {path}",
                where=place(view),
                hint="Add the view and its columns to columns.",
            )


def _read_view(view: str, path: Path, table: pd.DataFrame, columns: Sequence[str] | None, ids: Sequence[str]) -> Block:
    selected = [name for name in table.columns if name not in ids] if columns is None else list(columns)
    for name in selected:
        if name not in table.columns:
            raise DataError(
                "the column must be in the file; it is missing",
                where=f"{path}, {place(view, name)}",
                hint=f"{nearest_name([name], table.columns)}Correct the name.",
            )
    try:
        return read_block(view, table[selected])
    except DataError as error:
        raise error.at(str(path)) from None


def _read_ids(path: Path, table: pd.DataFrame, id_column: str) -> list[str]:
    if id_column not in table.columns:
        raise DataError(
            f"the file must have the id column {id_column!r}; it is missing", where=str(path), hint="Add or rename it."
        )
    n_missing = int(table[id_column].isna().sum())
    if n_missing:
        raise DataError(
            f"every row must have an id; {n_missing} rows have no {id_column!r}",
            where=str(path),
            hint="Add an id to every row.",
        )
    n_repeated = int(table[id_column].duplicated().sum())
    if n_repeated:
        raise DataError(
            f"ids must be unique; {n_repeated} rows repeat an earlier {id_column!r}",
            where=str(path),
            hint="Keep one row per patient.",
        )
    return [str(one) for one in table[id_column]]


def _rows(ids: Sequence[str], row_of: Mapping[str, int]) -> NDArray[np.int64]:
    return np.array([row_of[one] for one in ids], dtype=np.int64)
