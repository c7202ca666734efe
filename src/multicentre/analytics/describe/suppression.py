"""Suppression of small cells, and of further cells without which the small ones would follow from the margins."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import linprog

Counts = NDArray[np.int64]
Flags = NDArray[np.bool_]


def with_totals(counts: Counts) -> Counts:
    """Return a table with a last row of column totals and, for two columns or more, a last column of row totals.

    Examples
    --------
    >>> with_totals(np.array([[1, 2], [3, 4]])).tolist(), with_totals(np.array([[1], [3]])).tolist()
    ([[1, 2, 3], [3, 4, 7], [4, 6, 10]], [[1], [3], [4]])
    """
    table = np.vstack([counts, counts.sum(axis=0)])
    return np.column_stack([table, table.sum(axis=1)]) if counts.shape[1] > 1 else table


def suppressed_cells(counts: Counts, least: int) -> Flags:
    """Flag the entries of a table with totals that must not be published.

    Entries of 1 to ``least - 1`` patients are flagged. Further entries follow, the smallest first, until every flagged
    entry could be at least two different numbers, given all entries that are not flagged.

    Parameters
    ----------
    counts : array of shape (r, c)
        Patients by row and column, without totals.
    least : int
        Smallest number of patients that may be published, except 0.

    Returns
    -------
    array of bool, of the shape of :func:`with_totals`

    Examples
    --------
    >>> suppressed_cells(np.array([[3, 20], [40, 50], [30, 60]]), 5).tolist()
    [[True, True, False], [False, False, False], [True, True, False], [False, False, False]]
    >>> suppressed_cells(np.array([[3], [40], [30]]), 5).ravel().tolist()
    [True, False, True, False]
    """
    table = with_totals(counts)
    suppressed: Flags = np.asarray((table > 0) & (table < least), dtype=np.bool_)
    while (exposed := _exposed(table, suppressed)).any():
        suppressed[_partner(table, suppressed, exposed)] = True
    return suppressed


def _exposed(table: Counts, suppressed: Flags) -> Flags:
    """Flag the suppressed entries that can be one number only.

    The tables with the same published entries are the whole numbers of a polytope of flows in a network, whose corners
    are whole. An entry is therefore exposed if its smallest and its largest value over the polytope are equal.
    """
    exposed: Flags = np.zeros(suppressed.shape, dtype=np.bool_)
    rows, columns = np.nonzero(suppressed)
    if not len(rows):
        return exposed
    has_row_totals = table.shape[1] > 1
    # One equation per column and, with row totals, one per row: signed entries add up to 0.
    n_rows, n_columns = table.shape
    equations = np.zeros((n_columns + (n_rows if has_row_totals else 0), len(rows)))
    places = np.arange(len(rows))
    equations[columns, places] = np.where(rows == n_rows - 1, -1.0, 1.0)
    hidden = np.where(suppressed, table, 0)
    right = [hidden[:-1].sum(axis=0) - hidden[-1]]
    if has_row_totals:
        equations[n_columns + rows, places] = np.where(columns == n_columns - 1, -1.0, 1.0)
        right.append(hidden[:, :-1].sum(axis=1) - hidden[:, -1])
    constants = np.concatenate(right).astype(np.float64)
    for place in places.tolist():
        aim = np.zeros(len(rows))
        aim[place] = 1.0
        ends = [_extreme(sign * aim, equations, constants) * sign for sign in (1.0, -1.0)]
        exposed[rows[place], columns[place]] = ends[1] - ends[0] < 0.5
    return exposed


def _extreme(aim: NDArray[np.float64], equations: NDArray[np.float64], constants: NDArray[np.float64]) -> float:
    """Return the smallest value of a sum of entries; minus infinity if there is none."""
    solution = linprog(aim, A_eq=equations, b_eq=constants, method="highs")
    return float(solution.fun) if solution.status == 0 else -np.inf


def _partner(table: Counts, suppressed: Flags, exposed: Flags) -> tuple[int, int]:
    """Return the smallest published entry in a row and a column of exposed ones, or else in a row or a column.

    Totals, and entries of 0, follow only if nothing else is left.
    """
    in_row, in_column = exposed.any(axis=1, keepdims=True), exposed.any(axis=0, keepdims=True)
    both = in_row & in_column & ~suppressed
    near = both if both.any() else (in_row | in_column) & ~suppressed
    is_total: Flags = np.zeros(suppressed.shape, dtype=np.bool_)
    is_total[-1] = True
    if table.shape[1] > 1:
        is_total[:, -1] = True
    largest = int(table.max()) + 1
    sizes = table + largest * (table == 0) + 2 * largest * is_total
    sizes = np.where(near, sizes, 4 * largest)
    row, column = np.unravel_index(int(np.argmin(sizes)), sizes.shape)
    return int(row), int(column)
