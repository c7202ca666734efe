"""The same search on records that lie in one place."""

from __future__ import annotations

import numpy as np

from multicentre.statistics.quantiles.maths import Floats, count_in_cells, encode_doubles, split_cells
from multicentre.statistics.quantiles.search import Search, Terms

FINEST = 24


def pooled_thresholds(
    values: Floats, *, n_parts: int, bits: int = 4, tol: float = 0.01, min_cell: int = 0, finest: int = FINEST
) -> list[Floats]:
    """Return what :func:`find_thresholds` finds over sites that together hold these records and count exactly.

    Parameters
    ----------
    values : array of shape (n, m)
        NaN where missing.
    n_parts, bits, tol, min_cell
        As there.
    finest : int, default 24
        As of the site part.

    Examples
    --------
    >>> [found.tolist() for found in pooled_thresholds(np.array([[1.0], [1.0], [2.0], [np.nan]]), n_parts=2)]
    [[1.2]]
    """
    codes = [np.sort(encode_doubles(column[~np.isnan(column)])) for column in values.T]
    search = Search(Terms(len(codes), n_parts, bits, finest, tol, min_cell, every_value=False))
    while len(search.column):
        starts = split_cells(search.prefix, search.level, bits)
        cells = zip(search.column.tolist(), starts, strict=True)
        counts = [count_in_cells(codes[column], cell[None], search.level, bits) for column, cell in cells]
        search.take(np.concatenate(counts))
    return search.thresholds()
