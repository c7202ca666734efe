"""Symmetric matrices as vectors whose length is the Frobenius norm."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def pack_symmetric(matrix: Floats) -> Floats:
    """Return the upper triangle, entries off the diagonal times sqrt(2): the l2 norm is the Frobenius norm.

    Examples
    --------
    >>> pack_symmetric(np.array([[1.0, 2.0], [2.0, 3.0]])).round(3).tolist()
    [1.0, 2.828, 3.0]
    """
    rows, columns = np.triu_indices(len(matrix))
    return np.asarray(matrix[rows, columns] * np.where(rows == columns, 1.0, np.sqrt(2.0)))


def unpack_symmetric(packed: Floats) -> Floats:
    """Return the symmetric matrix that :func:`pack_symmetric` packed, shape (d, d).

    Examples
    --------
    >>> unpack_symmetric(pack_symmetric(np.array([[1.0, 2.0], [2.0, 3.0]]))).round(12).tolist()
    [[1.0, 2.0], [2.0, 3.0]]
    """
    side = (int(np.sqrt(8 * len(packed) + 1)) - 1) // 2
    rows, columns = np.triu_indices(side)
    matrix = np.zeros((side, side))
    matrix[rows, columns] = packed / np.where(rows == columns, 1.0, np.sqrt(2.0))
    return np.asarray(matrix + np.triu(matrix, 1).T)
