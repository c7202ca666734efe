"""Tables of the report for papers: one Word document and one LaTeX document, with the numbers of the report."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from multicentre.core.printable import harmless
from multicentre.core.storage import write_atomically
from multicentre.estimator.printing import latex
from multicentre.reports.tables import PageTable

WORD, LATEX = "results/tables.docx", "results/tables.tex"
# Size of the text of tables in points, as in journals.
POINTS = 8
# Width of a line of a page of 21 cm.
LINE_CM = 17.4
_PREAMBLE = r"""% Compile twice with pdflatex; with lualatex where names have letters that are neither Latin nor Greek.
\documentclass[a4paper]{article}
\usepackage[utf8]{inputenc}
\usepackage{booktabs,longtable,array}
\usepackage[margin=2cm]{geometry}
\setlength{\tabcolsep}{3pt}
\setlength{\LTleft}{0pt}
\setlength{\LTcapwidth}{\linewidth}
\begin{document}
\footnotesize
"""


def can_write_word() -> bool:
    """Return whether the extra ``word`` is installed."""
    return importlib.util.find_spec("docx") is not None


def write_tables(folder: Path, tables: Sequence[PageTable]) -> None:
    """Write the tables of a report, numbered from 1, as LaTeX and, with the extra ``word``, for Word."""
    write_atomically(folder / LATEX, latex_document(tables).encode())
    if can_write_word():
        write_atomically(folder / WORD, word_document(tables))


def latex_document(tables: Sequence[PageTable]) -> str:
    """Return a LaTeX document with every table; it needs the packages booktabs and longtable."""
    parts = [_latex_part(part, number) for table in tables for number, part in enumerate(table.parts)]
    return harmless_lines(_PREAMBLE + "\n".join(parts) + "\\end{document}\n")


def harmless_lines(text: str) -> str:
    """Return a text whose lines change neither a cursor nor the direction of writing."""
    return "".join(f"{harmless(line)}\n" for line in text.splitlines())


def _latex_part(part: PageTable, number: int) -> str:
    """Return one part of a table; a later part repeats the table's number."""
    head = " & ".join(rf"\textbf{{{latex(name)}}}" for name in part.columns)
    rows = []
    for place, row in enumerate(part.rows):
        if place in part.groups:
            rows.append(rf"\multicolumn{{{len(part.columns)}}}{{l}}{{\textbf{{{latex(part.groups[place][0])}}}}} \\")
        rows.append(" & ".join(map(latex, row)) + r" \\")
    again = "\\addtocounter{table}{-1}\n" if number else ""
    caption = "(continued)" if number else latex(part.caption)
    return (
        f"{again}\\begin{{longtable}}{{{_column_types(part)}}}\n\\caption{{{caption}}} \\\\\n\\toprule\n{head} \\\\\n"
        "\\midrule\n\\endfirsthead\n\\toprule\n"
        f"{head} \\\\\n\\midrule\n\\endhead\n\\bottomrule\n\\endfoot\n" + "\n".join(rows) + "\n\\end{longtable}\n"
    )


def _column_types(part: PageTable) -> str:
    """Return the types of columns: numbers on one line, texts in the shares of the line that they have on the page."""
    widths = part.widths
    shares = [0.94 * width / max(sum(widths), 1.0) for width in widths]
    return "".join(
        "r" if place in part.numeric else rf">{{\raggedright\arraybackslash}}p{{{share:.3f}\linewidth}}"
        for place, share in enumerate(shares)
    )


def word_document(tables: Sequence[PageTable]) -> bytes:
    """Return a Word document with every table, in the three lines of a journal's table."""
    from docx import Document
    from docx.shared import Cm, Pt

    document = Document()
    section = document.sections[0]
    section.page_width, section.page_height = Cm(21.0), Cm(29.7)
    section.left_margin = section.right_margin = Cm((21.0 - LINE_CM) / 2)
    document.styles["Normal"].font.name = "Arial"
    document.styles["Normal"].font.size = Pt(POINTS)
    for number, table in enumerate(tables, start=1):
        for place, part in enumerate(table.parts):
            _add_to_word(document, part, f"Table {number}{', continued' if place else ''}.", is_first=not place)
    file = io.BytesIO()
    document.save(file)
    return file.getvalue()


def _add_to_word(document: Any, part: PageTable, number: str, *, is_first: bool) -> None:
    from docx.shared import Cm

    caption = document.add_paragraph()
    caption.paragraph_format.keep_with_next = True
    caption.add_run(number).bold = True
    if is_first:
        caption.add_run(f" {harmless(part.caption)}")
    rows: list[tuple[Sequence[str], bool]] = [(part.columns, True)]
    for place, row in enumerate(part.rows):
        if place in part.groups:
            rows.append(([part.groups[place][0], *[""] * (len(part.columns) - 1)], True))
        rows.append((row, False))
    table = document.add_table(rows=len(rows), cols=len(part.columns))
    for line, (cells, is_bold) in zip(table.rows, rows, strict=True):
        for place, (cell, text) in enumerate(zip(line.cells, cells, strict=True)):
            _write_cell(cell, harmless(text), is_bold=is_bold, is_number=place in part.numeric)
    _rule(table.rows[0], "top", "bottom")
    _rule(table.rows[-1], "bottom")
    _repeat(table.rows[0])
    # Shares of the line as on the page; equal columns would break the names of rows.
    for column, width in zip(table.columns, part.widths, strict=True):
        column.width = Cm(LINE_CM * width / sum(part.widths))
    document.add_paragraph()


def _write_cell(cell: Any, text: str, *, is_bold: bool, is_number: bool) -> None:
    from docx.enum.text import WD_ALIGN_PARAGRAPH
    from docx.shared import Pt

    paragraph = cell.paragraphs[0]
    paragraph.paragraph_format.space_after = Pt(1)
    paragraph.add_run(text).bold = is_bold
    if is_number:
        paragraph.alignment = WD_ALIGN_PARAGRAPH.RIGHT


def _rule(row: Any, *edges: str) -> None:
    """Draw lines at the edges of a row."""
    from docx.oxml import OxmlElement
    from docx.oxml.ns import qn

    for cell in row.cells:
        borders = OxmlElement("w:tcBorders")
        for edge in edges:
            line = OxmlElement(f"w:{edge}")
            for key, value in (("val", "single"), ("sz", "8"), ("space", "0"), ("color", "000000")):
                line.set(qn(f"w:{key}"), value)
            borders.append(line)
        cell._tc.get_or_add_tcPr().append(borders)


def _repeat(row: Any) -> None:
    """Repeat a row as the heading on every page."""
    from docx.oxml import OxmlElement

    row._tr.get_or_add_trPr().append(OxmlElement("w:tblHeader"))
