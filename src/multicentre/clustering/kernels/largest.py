"""The largest entries of each row of a matrix, in one pass.

Ties are broken by column: of equal entries the one further left comes first. An entry that is not above zero is never
taken, nor is the diagonal where the caller asks for its exclusion; a row may thus have fewer entries than asked for,
and its list then ends with column -1 and value 0.
"""

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@njit(cache=True, nogil=True)
def insert(columns: Integers, values: Floats, n_held: int, column: int, value: float) -> int:
    """Put an entry into a list that is sorted from large to small, and return how many the list then holds.

    Parameters
    ----------
    columns, values : array of shape (k,)
        The list; of equal values the one put in first stays before the other.
    n_held : int
        How many it holds, from 0 to k; once it is full the smallest drops out.
    column : int
    value : float

    Examples
    --------
    >>> columns, values = np.array([4, 7]), np.array([3.0, 1.0])
    >>> insert(columns, values, 2, 9, 2.0), columns.tolist()
    (2, [4, 9])
    """
    most = len(values)
    if n_held == most and value <= values[most - 1]:
        return n_held
    place = min(n_held, most - 1)
    while place > 0 and values[place - 1] < value:
        values[place] = values[place - 1]
        columns[place] = columns[place - 1]
        place -= 1
    values[place] = value
    columns[place] = column
    return min(n_held + 1, most)


@njit(cache=True, nogil=True)
def largest_of_rows(matrix: Floats, most: int, first: int) -> tuple[Integers, Floats]:
    """Return the columns and the values of the largest positive entries of each row of a dense matrix.

    Parameters
    ----------
    matrix : array of shape (b, m)
        Finite numbers; rows of a matrix, or a block of them.
    most : int
        Number of entries for a row, at least 1.
    first : int
        Number of the block's first row in the whole matrix: column `first + i` of row i is the diagonal and left out.
        -b keeps every column.

    Returns
    -------
    columns : int64 array of shape (b, most)
        From the largest entry to the smallest, then -1.
    values : float64 array of shape (b, most)

    Examples
    --------
    >>> largest_of_rows(np.array([[9.0, 1.0, 2.0, 2.0], [0.0, 9.0, 0.0, 3.0]]), 2, 0)[0].tolist()
    [[2, 3], [3, -1]]
    """
    n_rows, n_columns = matrix.shape
    columns = np.full((n_rows, most), -1, np.int64)
    values = np.zeros((n_rows, most))
    for i in range(n_rows):
        n_held = 0
        for j in range(n_columns):
            if matrix[i, j] > 0.0 and j != first + i:
                n_held = insert(columns[i], values[i], n_held, j, matrix[i, j])
    return columns, values


@njit(cache=True, nogil=True)
def largest_of_lists(start: Integers, column: Integers, value: Floats, most: int) -> tuple[Integers, Floats]:
    """Return the same as `largest_of_rows`, the diagonal left out, for a square matrix in compressed sparse rows.

    Parameters
    ----------
    start : array of shape (n + 1,)
    column, value : array of shape (number of entries,)
        Columns of a row in ascending order.
    most : int

    Examples
    --------
    >>> start, column = np.array([0, 2, 3]), np.array([0, 1, 0])
    >>> largest_of_lists(start, column, np.array([5.0, 2.0, 2.0]), 1)[0].tolist()
    [[1], [0]]
    """
    n_rows = len(start) - 1
    columns = np.full((n_rows, most), -1, np.int64)
    values = np.zeros((n_rows, most))
    for i in range(n_rows):
        n_held = 0
        for entry in range(start[i], start[i + 1]):
            if value[entry] > 0.0 and column[entry] != i:
                n_held = insert(columns[i], values[i], n_held, column[entry], value[entry])
    return columns, values
