"""Results of a finished run as text: the answer and the tables of every analysis."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multicentre.core.printable import restored
from multicentre.estimator.printing import table_text

# Rows of one printed table, so that the results of an analysis fit a screen.
MAX_ROWS = 20
# Letters of a line: a Table 1 with two groups and their difference.
WIDTH = 140
_MARKS = {"refused": "REFUSED", "failed": "NO RESULT", "waiting": "NOT RUN"}


def describe_results(folder: Path, run: Mapping[str, Any]) -> str:
    """Return answers and tables of a run; analyses without a result are marked.

    Parameters
    ----------
    folder : Path
        The run folder.
    run : mapping
        Contents of its ``run.json``.
    """
    if not run.get("analyses"):
        return describe_analysis(folder, run, "")
    return "\n\n".join(_block(folder, entry) for entry in run["analyses"])


def describe_analysis(folder: Path, entry: Mapping[str, Any], place: str) -> str:
    """Return the answer of one analysis and its tables, the longest only in part.

    Parameters
    ----------
    folder : Path
        The run folder.
    entry : mapping
        Its entries of ``run.json``: ``answer``, and the names of its ``tables``.
    place : str
        Prefix of its files in the run folder.
    """
    parts = ["\n".join(entry[key] for key in ("answer", "message", "model") if entry.get(key))]
    parts += [
        _table(folder / place / "results" / f"{name}.csv", f"{place}results/{name}.csv", is_first=number == 0)
        for number, name in enumerate(entry.get("tables", ()))
        if (folder / place / "results" / f"{name}.csv").is_file()
    ]
    parts += [entry["missing"]] if place and entry.get("missing") else []
    return "\n\n".join(filter(None, parts))


def _block(folder: Path, entry: Mapping[str, Any]) -> str:
    title = f"{entry['title']} ({entry['method']})"
    heading = f"{title}\n{'=' * len(title)}"
    if mark := _MARKS.get(entry["status"]):
        return f"{heading}\n{mark}: {entry['message'] or 'the run ended before it'}"
    place = f"{entry['folder']}/"
    return f"{heading}\n{describe_analysis(folder, entry, place)}"


def _table(path: Path, shown_path: str, *, is_first: bool) -> str:
    """Return a table, as the model prints it; of a long one, only the first rows if it is the main table, else none."""
    import pandas as pd

    frame = pd.read_csv(path, keep_default_na=False, na_values=[""]).map(restored).rename(columns=restored)
    if len(frame) > MAX_ROWS and not is_first:
        return f"{path.stem}: {len(frame):,} rows in {shown_path}"
    names = frame.columns.tolist()
    if names[1:2] == ["label"]:  # a person reads labels, a program names
        frame = frame.drop(columns=names[0]).rename(columns={"label": names[0]})
    if names and not pd.api.types.is_numeric_dtype(frame[names[0]]):
        frame = frame.set_index(names[0]).rename_axis(index=None if names[0] == "name" else names[0])
    else:
        frame.index = pd.Index([""] * len(frame))
    text = table_text(frame.head(MAX_ROWS), width=WIDTH, elsewhere=shown_path)
    lines = f"{path.stem}\n{text}"
    return lines if len(frame) <= MAX_ROWS else f"{lines}\n... {len(frame):,} rows in {shown_path}"
