"""Table 1 as HTML, LaTeX and CSV in the layout of a journal.

The table is small and has no numbers to format, so that it is written here: the writers of pandas have no headings over
levels, no footnotes and no escapes of marks such as "<5" in both formats.
"""

from __future__ import annotations

import csv
import html
import io
from collections.abc import Sequence
from dataclasses import dataclass

from multicentre.analytics.describe.table_one import Row
from multicentre.core.printable import inert
from multicentre.estimator.printing import latex_table


@dataclass(frozen=True)
class Layout:
    """Printed table.

    Parameters
    ----------
    caption : str
    columns : sequence of str
        Names of the columns of cells.
    rows : sequence of Row
    notes : sequence of str
        Footnotes.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Row]
    notes: Sequence[str]

    def lines(self) -> list[tuple[str, bool, list[str]]]:
        """Return label, whether it is below a heading, and cells of each printed line."""
        lines: list[tuple[str, bool, list[str]]] = []
        heading = ""
        for row in self.rows:
            if row.kind != "n (%)":
                name = row.label
                is_below = row.kind == "missing" and row.variable == heading
                lines.append(("missing" if is_below else name, is_below, row.cells))
                continue
            cells = list(row.cells)
            if row.variable != heading:
                # Tests belong to the variable, not to its first level.
                n_tests = 2 if "p" in self.columns else 0
                tests = cells[len(cells) - n_tests :] if n_tests else []
                cells = cells[: len(cells) - n_tests] + [""] * n_tests
                lines.append((f"{row.variable}, n (%)", False, [""] * (len(cells) - n_tests) + tests))
                heading = row.variable
            lines.append((row.level, True, cells))
        return lines

    def to_html(self) -> str:
        """Return a table element with caption, header, body and footnotes."""
        head = "".join(f'<th scope="col">{html.escape(name)}</th>' for name in ("", *self.columns))
        body = "\n".join(
            f'<tr><th scope="row"{_INDENTED if is_below else ""}>{html.escape(label)}</th>'
            + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells)
            + "</tr>"
            for label, is_below, cells in self.lines()
        )
        notes = "<br>".join(html.escape(note) for note in self.notes)
        foot = f'<tfoot><tr><td colspan="{len(self.columns) + 1}">{notes}</td></tr></tfoot>' if notes else ""
        return (
            f'<table class="table-1">\n<caption>{html.escape(self.caption)}</caption>\n<thead><tr>{head}</tr></thead>\n'
            f"<tbody>\n{body}\n</tbody>\n{foot}</table>\n"
        )

    def to_latex(self) -> str:
        """Return a table environment; it needs the package booktabs."""
        rows = [[f"{'  ' if is_below else ''}{label}", *cells] for label, is_below, cells in self.lines()]
        return latex_table(["", *self.columns], rows, self.caption, self.notes)

    def to_csv(self) -> str:
        """Return a header and a line per row, with commas."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["", *map(inert, self.columns)])
        writer.writerows(map(inert, [row.label, *row.cells]) for row in self.rows)
        return file.getvalue()


_INDENTED = ' style="padding-left: 1.5em; font-weight: normal"'
