"""Factor matrices: initial values, scaling, and updates from sums over sites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve

from multicentre.phenotyping.kernels.hals import solve_rows
from multicentre.phenotyping.kernels.mttkrp import Floats

Factors = Mapping[str, Floats]
# Start of coordinate descent in place of zeros, and the size below which a result counts as zero.
SMALLEST = 1e-9


def draw_factors(sizes: Mapping[str, int], rank: int, seed: int | Sequence[int]) -> dict[str, Floats]:
    """Draw every entry of every mode's factor matrix from U(0, 1), then bring columns to unit length.

    Parameters
    ----------
    sizes : mapping from str to int
        Codes of every mode.
    rank : int
    seed : int or sequence of int

    Returns
    -------
    dict from str to array of shape (codes, r)

    Examples
    --------
    >>> drawn = draw_factors({"procedure": 3, "diagnosis": 4}, rank=2, seed=0)
    >>> drawn["diagnosis"].shape, bool(np.allclose(np.linalg.norm(drawn["diagnosis"], axis=0), 1))
    ((4, 2), True)
    """
    generator = np.random.default_rng(seed)
    return {mode: normalise_columns(generator.random((size, rank)))[0] for mode, size in sizes.items()}


def normalise_columns(factor: Floats) -> tuple[Floats, Floats]:
    """Return the factor with columns of unit length and their lengths; a column of zeros stays.

    Examples
    --------
    >>> unit, lengths = normalise_columns(np.array([[3.0, 0.0], [4.0, 0.0]]))
    >>> unit.tolist(), lengths.tolist()
    ([[0.6, 0.0], [0.8, 0.0]], [5.0, 0.0])
    """
    lengths = np.linalg.norm(factor, axis=0)
    return factor / np.where(lengths > 0, lengths, 1.0), lengths


def update_factor(
    products: Floats, gram: Floats, start: Floats, *, n_sweeps: int = 5, nonnegative: bool = True
) -> Floats:
    """Minimise ``1/2 tr(F gram F') - <F, products>`` over F, nonnegative or free.

    Parameters
    ----------
    products : array of shape (codes, r)
        Sum over sites of their matricised tensors times Khatri-Rao products.
    gram : array of shape (r, r)
        Elementwise product of the Gram matrices of all other factors.
    start : array of shape (codes, r)
        Start of coordinate descent.
    n_sweeps : int, default 5
        Passes over the columns.
    nonnegative : bool, default True
        Otherwise the normal equations are solved.

    Examples
    --------
    >>> update_factor(np.array([[2.0, -1.0]]), np.eye(2), np.ones((1, 2))).tolist()
    [[2.0, 0.0]]
    """
    if not nonnegative:
        return solve_free(products, gram)
    return solve_rows(products, gram, np.maximum(start, SMALLEST), n_sweeps)


def solve_free(products: Floats, gram: Floats) -> Floats:
    """Solve the normal equations ``F gram = products`` for F; the solution of least length where `gram` is singular.

    Parameters
    ----------
    products : array of shape (n, r)
    gram : array of shape (r, r)
        Symmetric, without negative eigenvalues.

    Returns
    -------
    array of shape (n, r)

    Examples
    --------
    >>> solve_free(np.array([[2.0, 2.0]]), np.diag([2.0, 4.0])).round(12).tolist()
    [[1.0, 0.5]]
    >>> solve_free(np.array([[2.0, 2.0]]), np.ones((2, 2))).round(12).tolist()
    [[1.0, 1.0]]
    """
    if np.linalg.cond(gram) * len(gram) * np.finfo(np.float64).eps < 1.0:
        try:
            return np.asarray(cho_solve(cho_factor(gram), products.T, check_finite=False).T)
        except LinAlgError:
            pass
    return np.asarray(np.linalg.lstsq(gram, products.T, rcond=None)[0].T)


def squared_error_of_update(norm_squared: float, products: Floats, factor: Floats, gram: Floats) -> float:
    """Return ``||O - X||^2`` over all cells from the inputs of the update of one factor.

    Parameters
    ----------
    norm_squared : float
        ``||O||^2``.
    products, factor, gram
        As for :func:`update_factor`, and its result.

    Examples
    --------
    >>> squared_error_of_update(5.0, np.array([[2.0, 0.0]]), np.array([[2.0, 0.0]]), np.eye(2))
    1.0
    """
    return float(norm_squared - 2 * (products * factor).sum() + ((factor @ gram) * factor).sum())


def relative_change(new: Factors, old: Factors) -> float:
    """Return ``||F_new - F_old|| / ||F_old||`` over all modes combined, for the stopping rule.

    Examples
    --------
    >>> relative_change({"a": np.array([[1.1]])}, {"a": np.array([[1.0]])})
    0.1...
    """
    moved = sum(float(((new[mode] - old[mode]) ** 2).sum()) for mode in old)
    return float(np.sqrt(moved / max(sum(float((old[mode] ** 2).sum()) for mode in old), np.finfo(float).tiny)))
