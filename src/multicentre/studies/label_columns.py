"""Columns of a site's view files that belong to no view: groups for figures, and identifiers of persons."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from multicentre.data import read_table
from multicentre.errors import DataError

Key = str | int


@dataclass(frozen=True)
class LabelColumns:
    """Columns of texts that belong to no view.

    Parameters
    ----------
    headers : mapping from Path to tuple of str
        All columns of every file.
    texts : mapping from str to mapping of str or int to str
        By column, the text of each patient with an entry: by identifier, or by row if files have no identifiers.
    differing : mapping from str to int
        By column, number of patients with different entries in two files; the first entry is used.
    """

    headers: Mapping[Path, tuple[str, ...]]
    texts: Mapping[str, Mapping[Key, str]]
    differing: Mapping[str, int]

    def has(self, column: str) -> bool:
        """Return whether one of the files has a column."""
        return any(column in header for header in self.headers.values())

    def groups(self, patients: Sequence[Key], column: str) -> tuple[str, ...]:
        """Return the group of every patient, by a column that a file has.

        Raises
        ------
        DataError
            A patient has no entry in the column.
        """
        text_of = self.texts[column]
        n_without = sum(patient not in text_of for patient in patients)
        if n_without:
            raise DataError(
                f"every patient must have a label; {n_without} patients have none",
                where=f"column {column!r}",
                hint="Give every patient a label in one of the site's files, or leave label_column out.",
            )
        return tuple(text_of[patient] for patient in patients)

    def identifiers(self, patients: Sequence[Key], columns: Sequence[str]) -> dict[str, list[str | None]]:
        """Return the identifiers of every patient by column, None for missing ones.

        Raises
        ------
        DataError
            No file has one of the columns, or a patient has different identifiers in two files.
        """
        for column in columns:
            if not self.has(column):
                raise DataError(
                    "one of the site's files must have this column of identifiers; none has",
                    where=f"column {column!r}",
                    hint="Correct its name, add it to one of the files, or leave it out of data.identifiers.",
                )
            if self.differing[column]:
                raise DataError(
                    f"a patient must have the same identifier in all files; {self.differing[column]} patients do not",
                    where=f"column {column!r}",
                    hint="Correct one of them, or keep the column in one file.",
                )
        return {column: [self.texts[column].get(patient) for patient in patients] for column in columns}


def read_label_columns(files: Mapping[str, Path], id_column: str | None, columns: Sequence[str]) -> LabelColumns:
    r"""Read columns of texts from the files of a site's views.

    Parameters
    ----------
    files : mapping from str to Path
        File of every view.
    id_column : str, optional
        Column that identifies patients; without it, all files must list the same patients in the same order.
    columns : sequence of str
        Columns to read; a file need not have all of them.

    Raises
    ------
    DataError
        A file cannot be read.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "blood.csv"
    ...     _ = file.write_text("patient,sodium,born\n7,139,1950-01-31\n8,141,\n")
    ...     read_label_columns({"blood": file}, "patient", ["born"]).identifiers(["7", "8"], ["born"])
    {'born': ['1950-01-31', None]}
    """
    headers: dict[Path, tuple[str, ...]] = {}
    texts: dict[str, dict[Key, str]] = {column: {} for column in columns}
    differing: dict[str, set[Key]] = {column: set() for column in columns}
    for path in dict.fromkeys(files.values()):
        table = read_table(path, list(columns) if id_column is None else [id_column, *columns])
        headers[path] = tuple(str(column) for column in table.columns)
        keys: Sequence[Key] = (
            range(len(table)) if id_column not in headers[path] else [str(one) for one in table[id_column]]
        )
        for column in set(columns) & set(headers[path]):
            cells = zip(keys, table[column], table[column].notna(), strict=True)
            entries = {key: str(text) for key, text, is_filled in cells if is_filled}
            differing[column] |= {key for key, text in entries.items() if texts[column].get(key, text) != text}
            texts[column] = entries | texts[column]
    return LabelColumns(headers, texts, {column: len(patients) for column, patients in differing.items()})
