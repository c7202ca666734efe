"""Results of a finished run as text: the answer and the tables of every analysis."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from multicentre.cli.console import align
from multicentre.estimator.printing import p_cell

# Rows of one printed table, so that the results of an analysis fit a screen.
MOST_ROWS = 20
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
    """Return a table; of a long one, only the first rows if it is the main table, else none."""
    with path.open(encoding="utf-8", newline="") as file:
        head, *rows = csv.reader(file)
    if head[1:2] == ["label"]:  # a person reads labels, a program names
        head, rows = ["name", *head[2:]], [row[1:] for row in rows]
    if len(rows) > MOST_ROWS and not is_first:
        return f"{path.stem}: {len(rows):,} rows in {shown_path}"
    columns = [_column(name, [row[place] for row in rows[:MOST_ROWS]]) for place, name in enumerate(head)]
    lines = align([list(row) for row in zip(*columns, strict=True)])
    return lines if len(rows) <= MOST_ROWS else f"{lines}\n... {len(rows):,} rows in {shown_path}"


def _column(name: str, cells: Sequence[str]) -> list[str]:
    """Return a column with its heading; numbers have four significant digits, and are aligned at the right.

    >>> _column("p_value", ["0.00001", "0.25", ""])
    ['p value', ' <0.001', '  0.250', '      -']
    """
    heading = "" if name == "name" else name.replace("_", " ")
    numbers = [_number(cell) for cell in cells]
    if any(number is None and cell for number, cell in zip(numbers, cells, strict=True)):
        return [heading, *cells]
    texts = ["-" if number is None else _text(number, is_p=name.startswith("p_value")) for number in numbers]
    width = max(map(len, [heading, *texts]))
    return [heading.rjust(width), *(text.rjust(width) for text in texts)]


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _text(number: float, *, is_p: bool) -> str:
    if is_p:
        return p_cell(number)
    return f"{number:,.0f}" if number.is_integer() and abs(number) < 1e15 else f"{number:.4g}"
