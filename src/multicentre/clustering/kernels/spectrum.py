"""Leading eigenvectors of a large symmetric operator: Lanczos iterations, and a search for any that they missed.

Iterations from a single vector may miss copies of an eigenvalue that occurs several times, as 1 does where a graph has
several components. A second search therefore uses the operator on the complement of the first vectors.

References
----------
R. B. Lehoucq, D. C. Sorensen, C. Yang (1998), ARPACK users' guide.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from multicentre.compilation import njit
from multicentre.core.tie_breaking import first_largest
from multicentre.errors import NotConverged

Floats = NDArray[np.float64]

Operator = Callable[[Floats], Floats]

# Rows up to which the operator is formed in full (3 MB) and decomposed without iterations, which cannot miss a vector.
DENSE = 600
# Tolerance of the iterations: well below ACCEPTED, and well above rounding errors of float64.
RESIDUAL = 1e-10
# Largest residual of a returned vector, as in the tests of the embedding.
ACCEPTED = 1e-6
# Difference of eigenvalues up to which two are treated as equal: between RESIDUAL and ACCEPTED.
SAME = 1e-8
# Tolerance of the search for a missed vector, of which only the eigenvalue is compared.
ROUGH = 1e-3


def leading_eigenvectors(apply: Operator, n: int, n_wanted: int) -> tuple[Floats, Floats]:
    """Return the eigenvectors of largest eigenvalue of a symmetric operator of norm about 1, and those eigenvalues.

    Parameters
    ----------
    apply : callable
        From a vector of shape (n,), or a block of shape (n, p), to its image. Formed in full up to n = 600.
    n : int
    n_wanted : int
        Between 1 and n.

    Returns
    -------
    vectors : array of shape (n, n_wanted)
        Orthonormal, by descending eigenvalue; the entry of largest size in each is positive.
    values : array of shape (n_wanted,)
        Descending.

    Raises
    ------
    NotConverged
        Residuals above 1e-6.

    Examples
    --------
    >>> vectors, values = leading_eigenvectors(lambda block: np.diag([1.0, 3.0, 2.0]) @ block, 3, 2)
    >>> values.round(12).tolist(), np.abs(vectors).argmax(axis=0).tolist()
    ([3.0, 2.0], [1, 2])
    """
    if n <= max(DENSE, 5 * n_wanted):
        dense = apply(np.eye(n))
        values, vectors = eigh((dense + dense.T) / 2.0, subset_by_index=(n - n_wanted, n - 1))
    else:
        values, vectors = _complete(apply, *_lanczos(apply, n, n_wanted))
    order = np.argsort(-values, kind="stable")
    values, vectors = values[order], vectors[:, order]
    signs = np.sign(vectors[first_largest(np.abs(vectors), axis=0), np.arange(n_wanted)])
    return np.ascontiguousarray(vectors * signs), values


def _complete(apply: Operator, values: Floats, vectors: Floats) -> tuple[Floats, Floats]:
    """Return the leading eigenvectors, with those of larger eigenvalue that the iterations missed."""
    for _ in range(len(values)):
        rest = _rest(apply, vectors)
        if _lanczos(rest, len(vectors), 1, ROUGH)[0][0] <= values.min() + SAME:
            break
        least = int(np.argmin(values))
        (values[least],), missed = _lanczos(rest, len(vectors), 1)
        vectors[:, least] = missed[:, 0]
    image = apply(vectors)
    residual = float(np.linalg.norm(image - vectors * values, axis=0).max())
    if not residual <= ACCEPTED:
        raise _unsettled(f"residual {residual:.1e}")
    return values, vectors


def _rest(apply: Operator, basis: Floats) -> Operator:
    """Return the operator on what is orthogonal to the columns of `basis`."""

    def without(vector: Floats) -> Floats:
        return np.asarray(vector - basis @ (basis.T @ vector))

    return lambda vector: without(apply(without(vector)))


def _lanczos(apply: Operator, n: int, n_wanted: int, tolerance: float = RESIDUAL) -> tuple[Floats, Floats]:
    operator = LinearOperator((n, n), matvec=apply, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(n)
    n_basis = min(n - 1, max(2 * n_wanted + 10, 30))
    try:
        return eigsh(
            operator, k=n_wanted, which="LA", v0=start, ncv=n_basis, tol=tolerance, rng=np.random.default_rng(1)
        )
    except ArpackError as error:
        raise _unsettled(str(error).strip()) from error


def _unsettled(why: str) -> NotConverged:
    return NotConverged(
        f"the spectral embedding must converge; the eigenvalue solver reported: {why}",
        where="n_dimensions",
        hint="Request fewer dimensions.",
    )


Integers = NDArray[np.int64]


@njit(cache=True, nogil=True)
def insert(columns: Integers, values: Floats, n_held: int, column: int, value: float) -> int:
    """Insert an entry into a list in descending order, and return the new number of entries.

    Parameters
    ----------
    columns, values : array of shape (k,)
        The list; of equal values the first one inserted comes first.
    n_held : int
        Number of its entries, from 0 to k. A full list loses its smallest entry.
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
        Number of entries per row, at least 1.
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
