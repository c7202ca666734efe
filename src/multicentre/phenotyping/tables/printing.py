"""Phenotypes as a table for a terminal, and as one for a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from multicentre.phenotyping.tables.phenotype import CodeWeight, Phenotype

PRINTED_CODES = 5
PRINTED_WIDTH = 44
UNKNOWN = "–"


def as_text(phenotypes: Sequence[Phenotype], told: Sequence[str] = ()) -> str:
    """Return a table for a terminal: some lines a phenotype, one for each of its leading codes.

    Parameters
    ----------
    phenotypes : sequence of Phenotype
    told : sequence of {"coefficient", "p_value"}, default ()
        What is shown of a model of an outcome.

    Examples
    --------
    >>> print(as_text([Phenotype(1, 12.5, 0.25, {"diagnosis": (CodeWeight("d1", "Anaemia", 0.8),)})]))
    phenotype  weight  patients  diagnosis
    1          12.5    25.0 %    Anaemia  0.80
    """
    blocks = [_headings(phenotypes, told), *(row for one in phenotypes for row in _lines(one, told))]
    widths = [max(map(len, column)) for column in zip(*blocks, strict=True)]
    lines = ("  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)) for row in blocks)
    return "\n".join(line.rstrip() for line in lines)


def as_html(phenotypes: Sequence[Phenotype], told: Sequence[str] = ()) -> str:
    """Return a table in HTML with one row a phenotype; a code appears where its title is pointed at.

    Parameters
    ----------
    phenotypes : sequence of Phenotype
    told : sequence of {"coefficient", "p_value"}, default ()
        What is shown of a model of an outcome.

    Examples
    --------
    >>> as_html([Phenotype(1, 12.5, None, {})])[-54:]
    '<td>1</td><td>12.5</td><td>–</td></tr></tbody></table>'
    """
    headings = "".join(f"<th>{escape(name)}</th>" for name in _headings(phenotypes, told))
    rows = "".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in (*_numbers(one, told), *_html_codes(one))) + "</tr>"
        for one in phenotypes
    )
    return f"<table><thead><tr>{headings}</tr></thead><tbody>{rows}</tbody></table>"


def _headings(phenotypes: Sequence[Phenotype], told: Sequence[str]) -> list[str]:
    modes = phenotypes[0].codes if phenotypes else ()
    return ["phenotype", "weight", "patients", *(name.replace("_", " ") for name in told), *modes]


def _lines(one: Phenotype, told: Sequence[str]) -> list[list[str]]:
    columns = [[_printed_code(entry) for entry in codes[:PRINTED_CODES]] for codes in one.codes.values()]
    numbers = _numbers(one, told)
    height = max([1, *map(len, columns)])
    return [
        [
            *(numbers if row == 0 else [""] * len(numbers)),
            *(column[row] if row < len(column) else "" for column in columns),
        ]
        for row in range(height)
    ]


def _numbers(one: Phenotype, told: Sequence[str]) -> list[str]:
    share = UNKNOWN if one.prevalence is None else f"{100 * one.prevalence:.1f} %"
    outcome = [UNKNOWN if getattr(one, name) is None else f"{getattr(one, name):.3g}" for name in told]
    return [str(one.number), f"{one.weight:.4g}", share, *outcome]


def _printed_code(entry: CodeWeight) -> str:
    number = f"  {entry.weight:.2f}"
    room = PRINTED_WIDTH - len(number)
    title = entry.title if len(entry.title) <= room else entry.title[: room - 1] + "…"
    return title + number


def _html_codes(one: Phenotype) -> list[str]:
    return [
        "<br>".join(
            f'<span title="{escape(entry.code)}">{escape(entry.title)}</span> {entry.weight:.2f}' for entry in entries
        )
        for entries in one.codes.values()
    ]
