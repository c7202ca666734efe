"""Tables for Word and LaTeX have the rows and numbers of the report, and nothing that LaTeX would interpret."""

import importlib.util
import io
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.reports.exports import latex_document, word_document
from multicentre.reports.tables import PageTable

CELL = "63.4 [55.9, 70.8]"
WIDE = PageTable("Patients & 50 % of_all.", ["", *(f"site {place}" for place in range(9))], [["age", *[CELL] * 9]])
WIDE = PageTable(WIDE.caption, WIDE.columns, WIDE.rows, frozenset(range(1, 10)))
SMALL = PageTable("Effects.", ["variable", "p"], [["TNF-\u03b1 (µg/L)", "<0.001"], ["x_1", "3 × 10⁻⁵"]], frozenset({1}))


def test_latex_escapes_what_it_would_interpret_and_is_balanced():
    document = latex_document([WIDE, SMALL])
    for text in (r"Patients \& 50 \% of\_all.", r"TNF-$\alpha$ ($\mu$g/L)", r"$<$0.001", r"3 $\times$ 10$^{-}$$^{5}$"):
        assert text in document
    assert re.sub(r"[\x00-\x7f]", "", document) == ""
    begun, ended = (re.findall(rf"\\{word}{{(\w+)}}", document) for word in ("begin", "end"))
    assert sorted(begun) == sorted(ended)
    assert document.replace(r"\{", "").replace(r"\}", "").count("{") == document.count("}") - document.count(r"\}")


# Letters that LaTeX interprets, those that pdflatex does not know without help, and some that it knows.
LETTERS = "\\{}$&#^_~%<>[]*|\"' \n\tabé–αωΔΩ×≤≥−→∞⁻³µ\u202f"
NAMED = re.compile(r"\\\\|\\[a-zA-Z]+(\{\})?|\\[&%$#_{},]")


def arguments_of(row):
    """Return the cells of a row of LaTeX, without commands and mathematics; fail if a brace is open in a cell."""
    cells = re.split(r"(?<!\\)&", row)
    for cell in cells:
        assert len(re.findall(r"(?<!\\)\$", cell)) % 2 == 0
        assert len(re.findall(r"(?<!\\)\{", cell)) == len(re.findall(r"(?<!\\)\}", cell))
        plain = NAMED.sub("", re.sub(r"(?<!\\)\$.*?(?<!\\)\$", "", cell))
        assert not re.search(r"[\\&%$#_^~<>|]", plain)
    return cells


@given(st.lists(st.text(LETTERS, max_size=8), min_size=3, max_size=3))
def test_no_text_ends_a_cell_a_row_or_the_document(texts):
    """Nor does it begin an optional argument of the end of the row before it."""
    first, second, caption = texts
    document = latex_document([PageTable(caption, [first, "p"], [["a", "b"], [first, second]])])
    body = document.split("\\endfoot\n")[1].split("\n\\end{longtable}")[0]
    assert len(body.split(" \\\\\n")) == 2
    last = body.split(" \\\\\n")[1]
    assert last.endswith(" \\\\")
    assert not last.lstrip().startswith(("[", "*"))
    assert len(arguments_of(last.removesuffix(" \\\\"))) == 2
    (named,) = re.findall(r"\\caption\{(.*)\} \\\\\n", document)
    assert len(arguments_of(named)) == 1


def test_parts_of_a_table_keep_its_number():
    document = latex_document([WIDE, SMALL])
    n_parts = len(WIDE.parts)
    assert n_parts > 1
    assert document.count(r"\begin{longtable}") == n_parts + 1
    assert document.count(r"\addtocounter{table}{-1}") == n_parts - 1


@pytest.mark.skipif(importlib.util.find_spec("docx") is None, reason="needs the extra word")
def test_word_has_every_cell_under_the_number_of_the_report():
    from docx import Document

    document = Document(io.BytesIO(word_document([WIDE, SMALL])))
    texts = [paragraph.text for paragraph in document.paragraphs if paragraph.text]
    assert texts[0] == "Table 1. Patients & 50 % of_all."
    assert set(texts[1:-1]) == {"Table 1, continued."}
    assert texts[-1] == "Table 2. Effects."
    last = [[cell.text for cell in row.cells] for row in document.tables[-1].rows]
    assert last == [list(SMALL.columns), *map(list, SMALL.rows)]
    for table, part in zip(document.tables, [*WIDE.parts, *SMALL.parts], strict=True):
        widths = [column.width.cm for column in table.columns]
        assert sum(widths) == pytest.approx(17.4, abs=0.1)
        assert [width / widths[0] for width in widths] == pytest.approx(
            [w / part.widths[0] for w in part.widths], rel=0.01
        )
