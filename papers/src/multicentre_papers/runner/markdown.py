"""Tables in Markdown."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

NOTHING = "–"


def markdown(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table with aligned columns, which is also readable on a terminal.

    Examples
    --------
    >>> print(markdown(["q", "WAIC"], [["4", "12"], ["10", "9"]]))
    | q  | WAIC |
    |----|------|
    | 4  | 12   |
    | 10 | 9    |
    """
    widths = [max(len(row[j]) for row in (headings, *rows)) for j in range(len(headings))]
    lines = [
        "| " + " | ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)) + " |"
        for row in (headings, *rows)
    ]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def mean_and_spread(values: Iterable[float | None], decimals: int = 3) -> str:
    """Return the mean of the present values and, for two or more, their standard deviation.

    Examples
    --------
    >>> mean_and_spread([0.7, 0.9, None], 2)
    '0.80 ± 0.14'
    >>> mean_and_spread([None])
    '–'
    """
    present = [value for value in values if value is not None and not math.isnan(value)]
    if not present:
        return NOTHING
    mean = sum(present) / len(present)
    if len(present) == 1:
        return f"{mean:.{decimals}f}"
    deviation = math.sqrt(sum((value - mean) ** 2 for value in present) / (len(present) - 1))
    return f"{mean:.{decimals}f} ± {deviation:.{decimals}f}"
