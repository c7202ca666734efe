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

GREEK = ("alpha", "beta", "gamma", "delta", "epsilon", "kappa", "lambda", "mu", "sigma", "chi")
_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {letter: f"\\{letter}" for letter in "&%$#_{}"} | {"<": r"$<$", ">": r"$>$", "†": r"\dag{}", "‡": r"\ddag{}"}
# Letters of numbers and units that pdflatex does not know.
_LATEX |= {
    "\u202f": r"\,",
    "\u2009": r"\,",
    "−": "$-$",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "×": r"$\times$",
    "µ": r"$\mu$",
}
_LATEX |= {letter: f"$^{{{plain}}}$" for letter, plain in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True)}
_LATEX |= {letter: f"$\\{name}$" for letter, name in zip("αβγδεκλμσχ", GREEK, strict=True)}


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
        head = " & ".join(["", *map(latex, self.columns)])
        body = "\n".join(
            " & ".join([(r"\quad " if is_below else "") + latex(label), *map(latex, cells)]) + r" \\"
            for label, is_below, cells in self.lines()
        )
        notes = "".join(f"\\\\ \\footnotesize {latex(note)}\n" for note in self.notes)
        return (
            f"\\begin{{table}}\n\\caption{{{latex(self.caption)}}}\n\\begin{{tabular}}{{l{'r' * len(self.columns)}}}\n"
            f"\\toprule\n{head} \\\\\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n{notes}\\end{{table}}\n"
        )

    def to_csv(self) -> str:
        """Return a header and a line per row, with commas."""
        file = io.StringIO()
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["", *map(inert, self.columns)])
        writer.writerows(map(inert, [row.label, *row.cells]) for row in self.rows)
        return file.getvalue()


_INDENTED = ' style="padding-left: 1.5em; font-weight: normal"'


def latex(text: str) -> str:
    r"""Return a text with the characters that LaTeX interprets replaced.

    Examples
    --------
    >>> latex("<5"), latex("50 % of a_b")
    ('$<$5', '50 \\% of a\\_b')
    """
    return "".join(_LATEX.get(letter, letter) for letter in text)
