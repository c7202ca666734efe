"""Tables of results as text for a terminal, as HTML and as LaTeX, with one format of numbers for all.

The effect comes first, then its interval and its p-value, then what else fits the width. A row has three decimals, or
as many more as its interval needs.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from multicentre.core.printable import harmless

if TYPE_CHECKING:
    import pandas as pd

# Columns of a terminal, and rows that are printed of a long table.
WIDTH, MAX_ROWS = 80, 60
# Narrowest label and widest text of a cell: enough to tell names apart.
MIN_LABEL, MAX_CELL = 12, 60
# Decimals of ordinary numbers, and of those with narrow intervals.
DECIMALS, MAX_DECIMALS = 3, 6
# Numbers at or above it, such as the odds ratio of a separated covariate, are printed in powers of ten.
MAX_PLAIN = 1e7
MISSING = "-"
_EFFECTS = ("coefficient", "effect", "estimate", "value")
_P_VALUE = re.compile(r"(?:^|[ _])p(?:[ _-]value)?(?:[ _]|$)")
_GREEK = "αβγδεζηθικλμνξπρστυφχψωΓΔΘΛΞΠΣΥΦΨΩ"


def _greek_name(letter: str) -> str:
    name = unicodedata.name(letter).rpartition(" ")[2].lower().replace("lamda", "lambda")
    return name.title() if letter.isupper() else name


_LATEX: Mapping[str, str] = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "<": r"$<$",
    ">": r"$>$",
    "†": r"\dag{}",
    "‡": r"\ddag{}",
    # Letters of numbers and units that pdflatex does not know.
    "\u202f": r"\,",
    "\u2009": r"\,",
    "−": "$-$",
    **{letter: f"$^{{{plain}}}$" for letter, plain in zip("⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "-0123456789", strict=True)},
    **{letter: f"$\\{_greek_name(letter)}$" for letter in _GREEK},
    **{letter: f"$\\{name}$" for letter, name in {"→": "to", "∞": "infty", "≠": "neq", "≈": "approx"}.items()},
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "×": r"$\times$",
    "µ": r"$\mu$",
    "|": "$|$",
    "\n": " ",
}


@dataclass(frozen=True)
class PrintedTable:
    """Texts of a table in printed order.

    Attributes
    ----------
    label_heading : str
        Name of the rows' labels; empty without one.
    columns : tuple of str
    labels : tuple of str
        One per row.
    cells : tuple of tuple of str
        Texts of each row.
    n_leading : int
        Columns that are always printed: effect, limits and p-value; 0 in a table without effects.
    """

    label_heading: str
    columns: tuple[str, ...]
    labels: tuple[str, ...]
    cells: tuple[tuple[str, ...], ...]
    n_leading: int

    def to_frame(self) -> pd.DataFrame:
        """Return the texts as a frame."""
        import pandas as pd

        index = pd.Index(self.labels, name=self.label_heading or None)
        return pd.DataFrame(list(self.cells), index=index, columns=list(self.columns))


def p_cell(value: float | None, missing: str = MISSING) -> str:
    """Return a p-value for a table.

    Examples
    --------
    >>> [p_cell(p) for p in (0.0342, 1e-9, 1.0, None, float("nan"))]
    ['0.034', '<0.001', '1.000', '-', '-']
    """
    if value is None or not np.isfinite(value):
        return missing
    return "<0.001" if value < 0.001 else f"{value:.3f}"


def fixed_text(value: float, decimals: int = DECIMALS) -> str:
    """Return a number with fixed decimals; only huge numbers and tiny ones without neighbours have powers of ten.

    Examples
    --------
    >>> [fixed_text(x) for x in (0.73734, -1e-10, 1234.5, 3.2e9, float("nan"), float("inf"))]
    ['0.737', '0.000', '1234.5', '3.2e+09', '-', 'inf']
    """
    if not np.isfinite(value):
        return MISSING if np.isnan(value) else f"{value:g}"
    if abs(value) >= MAX_PLAIN:
        return f"{value:.3g}"
    text = f"{value:.{1 if abs(value) >= 1000 else decimals}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def is_p_value(name: str) -> bool:
    """Return whether a column or row of this name holds p-values.

    Examples
    --------
    >>> [is_p_value(name) for name in ("p_value", "log_rank_p", "p value", "spread", "p_value of trend")]
    [True, True, True, False, True]
    """
    return bool(_P_VALUE.search(name))


def value_text(value: object, name: str = "") -> str:
    """Return one labelled value: a text, a whole number in full, a number with at least three decimals or digits.

    Examples
    --------
    >>> value_text(120), value_text(0.0012345), value_text("oslo"), value_text(0.00001, "p_value"), value_text(2.0)
    ('120', '0.00123', 'oslo', '<0.001', '2')
    """
    if isinstance(value, float | np.floating):
        if is_p_value(name):
            return p_cell(float(value))
        number = float(value)
        return f"{number:.0f}" if number.is_integer() and abs(number) < MAX_PLAIN else _alone(number)
    text = harmless(str(value))
    return text if len(text) <= MAX_CELL else f"{text[: MAX_CELL - 1]}…"


def table_of(frame: pd.DataFrame) -> PrintedTable:
    """Return the texts of a frame of results, the effect, its limits and its p-value first."""
    chosen, leading = _order(frame)
    digits = _decimals_of_rows(frame, leading)
    names = [_name(name) for name in frame.index]
    texts = [_column(frame.iloc[:, place], name, names, digits) for place, name in chosen]
    heading = " ".join(str(name) for name in frame.index.names if name is not None)
    rows = tuple(zip(*texts, strict=True)) if texts else tuple(() for _ in names)
    return PrintedTable(harmless(heading), tuple(name for _, name in chosen), tuple(names), rows, leading)


def table_text(frame: pd.DataFrame, width: int = WIDTH, elsewhere: str = "to_frame()") -> str:
    """Return a frame of results as lines of at most `width` letters; `elsewhere` names where all of it is.

    Examples
    --------
    >>> import pandas as pd
    >>> print(table_text(pd.DataFrame({"coefficient": [0.35066], "hazard_ratio": [1.42], "lower": [1.31],
    ...                                "upper": [1.54], "p_value": [1e-23]}, index=["age"])))
         hazard_ratio  lower  upper  p_value  coefficient
    age         1.420  1.310  1.540   <0.001        0.351
    """
    table = table_of(frame)
    columns = [[name, *cells] for name, *cells in zip(table.columns, *table.cells, strict=True)]
    hidden = max(len(frame) - MAX_ROWS, 0)
    columns = [column[: MAX_ROWS + 1] for column in columns]
    widths = [max(map(len, column)) for column in columns]
    needed = sum(widths[: max(table.n_leading, 1)]) + 2 * max(table.n_leading, 1)
    labels = [cut_name(label, max(width - needed, MIN_LABEL)) for label in table.labels[:MAX_ROWS]]
    labels = [table.label_heading, *labels]
    room = width - max(map(len, labels))
    blocks = _blocks(widths, room)
    printed_blocks = blocks[:1] if table.n_leading else blocks
    texts = [_lines(labels, [columns[place] for place in block]) for block in printed_blocks]
    if left := [table.columns[place] for block in blocks[len(printed_blocks) :] for place in block]:
        texts.append(fill(f"Also in {elsewhere}: {', '.join(left)}.", width))
    more = [f"... and {hidden} more rows in {elsewhere}."] if hidden else []
    return "\n".join(["\n\n".join(texts) if not table.n_leading else "\n".join(texts), *more])


def latex_table(
    columns: Sequence[str], rows: Sequence[Sequence[str]], caption: str = "", notes: Sequence[str] = ()
) -> str:
    r"""Return a table environment of escaped texts, the first column with labels; it needs the package booktabs.

    Parameters
    ----------
    columns : sequence of str
        Headings, that of the labels included.
    rows : sequence of sequence of str
        A label that begins with blanks is indented.
    caption : str
    notes : sequence of str
        Lines below the table.

    Examples
    --------
    >>> print(latex_table(["", "p_value"], [["age_%", "<0.001"]]).splitlines()[5])
    age\_\% & $<$0.001 \\
    """
    body = "\n".join(
        (r"\quad " if row[0].startswith(" ") else "") + " & ".join(map(latex, [row[0].strip(), *row[1:]])) + r" \\"
        for row in rows
    )
    titled = f"\\caption{{{latex(caption)}}}\n" if caption else ""
    below = "".join(f"\\\\ \\footnotesize {latex(note)}\n" for note in notes)
    return (
        f"\\begin{{table}}\n{titled}\\begin{{tabular}}{{l{'r' * (len(columns) - 1)}}}\n\\toprule\n"
        f"{' & '.join(map(latex, columns))} \\\\\n\\midrule\n{body}\n\\bottomrule\n\\end{{tabular}}\n{below}"
        "\\end{table}\n"
    )


def frame_as_latex(frame: pd.DataFrame, caption: str = "", notes: Sequence[str] = ()) -> str:
    """Return a frame of results as :func:`latex_table` with the texts of the terminal."""
    table = table_of(frame)
    rows = [[label, *cells] for label, cells in zip(table.labels, table.cells, strict=True)]
    return latex_table([table.label_heading, *(name.replace("_", " ") for name in table.columns)], rows, caption, notes)


def latex(text: str) -> str:
    r"""Return a text with the characters that LaTeX interprets replaced.

    Examples
    --------
    >>> latex("<5"), latex("50 % of a_b"), latex("[0, 10)")
    ('$<$5', '50 \\% of a\\_b', '{}[0, 10)')
    """
    # A bracket or a star after the end of a row would be an argument of it.
    return ("{}" if text.lstrip()[:1] in ("[", "*") else "") + "".join(_LATEX.get(letter, letter) for letter in text)


def cut_name(name: str, width: int) -> str:
    """Return a name of at most `width` letters; both ends remain, because names of levels differ at the end.

    Examples
    --------
    >>> cut_name("diagnosis_at_admission=sepsis", 20)
    'diagnosis_…on=sepsis'
    """
    if len(name) <= width:
        return name
    end = (width - 1) // 2
    return f"{name[: width - 1 - end]}…{name[len(name) - end :]}"


def _order(frame: pd.DataFrame) -> tuple[list[tuple[int, str]], int]:
    """Return place and printed name of each column, and how many of them are effect, limits and p-value."""
    names = [_name(name) for name in frame.columns]
    everything = list(enumerate(names))
    ratio = next((name for name in names if name.endswith("ratio") and name != "standardised_ratio"), None)
    effect = ratio or next((name for name in _EFFECTS if name in names), None)
    of_effect = [f"{effect}_lower", f"{effect}_upper"]
    limits = of_effect if set(of_effect) <= set(names) else ["lower", "upper"]
    if effect is None or not set(limits) <= set(names) or len(set(names)) != len(names):
        return everything, 0
    first = [effect, *limits, *(name for name in names if is_p_value(name))]
    # Limits of the coefficient follow from those of the ratio.
    implied = {"lower", "upper"} if limits == of_effect else set()
    rest = [name for name in names if name not in {*first, *implied}]
    printed = {limits[0]: "lower", limits[1]: "upper"}
    return [(names.index(name), printed.get(name, name)) for name in [*first, *rest]], len(first)


def _decimals_of_rows(frame: pd.DataFrame, n_leading: int) -> list[int] | None:
    """Return decimals that show two digits of each interval's length; None in a table without effects."""
    if not n_leading:
        return None
    chosen, _ = _order(frame)
    lower, upper = (frame.iloc[:, chosen[place][0]].to_numpy(np.float64, na_value=np.nan) for place in (1, 2))
    with np.errstate(invalid="ignore", over="ignore"):
        return [_decimals(length, 1) for length in (upper - lower).tolist()]


def _decimals(size: float, n_digits: int) -> int:
    """Return decimals that show some digits after the first of a size, from DECIMALS to MAX_DECIMALS."""
    if not np.isfinite(size) or size <= 0:
        return DECIMALS
    return int(np.clip(n_digits - np.floor(np.log10(size)), DECIMALS, MAX_DECIMALS))


def _alone(value: float) -> str:
    """Return a number that is the largest of its column."""
    if np.isfinite(value) and 0 < abs(value) < 10.0 ** (1 - MAX_DECIMALS):
        return f"{value:.3g}"
    return fixed_text(value, _decimals(abs(value), 2))


def _column(series: pd.Series[Any], name: str, rows: Sequence[str], digits: Sequence[int] | None) -> list[str]:
    """Return the texts of a column of numbers or of other values."""
    if series.dtype.kind != "f":
        return [value_text(value, row) for value, row in zip(series.tolist(), rows, strict=True)]
    values = series.to_numpy(np.float64)
    if is_p_value(name):
        return [p_cell(value) for value in values.tolist()]
    if digits is not None:
        return [fixed_text(value, n) for value, n in zip(values.tolist(), digits, strict=True)]
    finite = values[np.isfinite(values)]
    if (finite == np.round(finite)).all():
        return [fixed_text(value, 0) if abs(value) < 1000 else value_text(value) for value in values.tolist()]
    largest = float(np.abs(finite).max())
    if largest < 10.0 ** (1 - MAX_DECIMALS):
        return [_alone(value) for value in values.tolist()]
    return [fixed_text(value, _decimals(largest, 2)) for value in values.tolist()]


def _name(name: object) -> str:
    return harmless(" ".join(map(str, name)) if isinstance(name, tuple) else str(name))


def _blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    """Return the places of columns, split so that each part fits the room."""
    blocks: list[list[int]] = [[]]
    used = 0
    for place, width in enumerate(widths):
        if blocks[-1] and used + width + 2 > room:
            blocks.append([])
            used = 0
        blocks[-1].append(place)
        used += width + 2
    return blocks


def _lines(labels: Sequence[str], columns: Sequence[Sequence[str]]) -> str:
    """Return labels at the left and columns aligned at the right."""
    widths = [max(map(len, column)) for column in columns]
    start = max(map(len, labels))
    rows = zip(labels, *columns, strict=True)
    lines = (
        label.ljust(start) + "".join(f"  {cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        for label, *cells in rows
    )
    return "\n".join(line.rstrip() for line in lines)
