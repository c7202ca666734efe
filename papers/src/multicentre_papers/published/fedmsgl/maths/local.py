"""A site's two steps in the historical variants of FedMSGL: equations (13), (17), (19) and (20).

Views have samples in rows; C and U keep the paper's orientation: column j expresses sample j. K = X X' over samples.

References
----------
D. Li, Z. Yang and S. Xie (2025), FedMSGL: a self-expressive hypergraph based federated multi-view learning, AAAI.
J. Sherman and W. J. Morrison (1950), Adjustment of an inverse matrix corresponding to a change in one element of a
given matrix, Annals of Mathematical Statistics 21, 124-127.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.fedmsgl.maths.preparation import factor_gram, manifold_weights

Floats = NDArray[np.float64]
Operator: TypeAlias = tuple[Floats, ...]


def scale_ranges(view: Floats) -> Floats:
    """Return each sample (row) scaled to [0, 1] over its own features; a constant sample becomes 0.

    Examples
    --------
    >>> scale_ranges(np.array([[1.0, 2.0, 5.0], [7.0, 7.0, 7.0]])).tolist()
    [[0.0, 0.25, 1.0], [0.0, 0.0, 0.0]]
    """
    low = view.min(axis=1, keepdims=True)
    width = view.max(axis=1, keepdims=True) - low
    return np.asarray((view - low) / np.where(width > 0.0, width, 1.0), dtype=np.float64)


def measure_crowding(view: Floats) -> Floats:
    """Return the diagonal of the matrix product M M, shape (n,), M the relative distances of equation (3).

    It is sum_j d_ij^2 / (s_i s_j), s the sums of distances: the same whether the rows (printed) or the columns of M
    sum to one. Duplicates of all other samples have 0.

    Examples
    --------
    >>> measure_crowding(np.array([[0.0], [1.0], [3.0]])).round(4).tolist()
    [0.5333, 0.35, 0.7167]
    """
    relative = manifold_weights(view) / max(len(view) - 1, 1)
    return np.asarray(np.einsum("ij,ji->i", relative, relative), dtype=np.float64)


def invert_ridge(view: Floats, penalty: Floats) -> Operator:
    """Return factors of (K + Diag(penalty))^-1 K with K = X X' over samples, as in equations (13) and (19).

    Parameters
    ----------
    view : array of shape (n, d)
    penalty : array of shape (n,)
        Above 0.

    Examples
    --------
    >>> (only,) = invert_ridge(np.eye(2), np.array([1.0, 3.0]))
    >>> only.round(6).tolist()
    [[0.5, 0.0], [0.0, 0.25]]
    """
    root = np.sqrt(penalty)[:, None]
    gram = factor_gram(view / root)
    left, right = gram.vectors * (gram.values / (gram.values + 1.0)) / root, (gram.vectors * root).T
    return (left, right) if 2 * left.shape[1] < len(view) else (left @ right,)


def penalise_samples(view: Floats, lambda_1: float, lambda_2: float) -> Operator:
    """Return the operator of equation (13) with diag(M^2) read as a diagonal matrix, that of the product M M.

    The stationary point of equation (12) has another diagonal for each column and no common inverse; the printed
    formula has one, and of a matrix squared the diagonal is the one of the product.

    Examples
    --------
    >>> (only,) = penalise_samples(np.eye(2), 1.0, 2.0)
    >>> only.round(3).tolist()
    [[0.25, 0.0], [0.0, 0.25]]
    """
    return invert_ridge(view, lambda_1 + lambda_2 * measure_crowding(view))


def penalise_rows(view: Floats, lambda_1: float, lambda_2: float) -> Operator:
    """Return (K + l1 I + l2 v 1')^-1 K, v the diagonal of M M: as run, a vector added to every column of the matrix.

    The inverse with the rank-one term is that without it, corrected (Sherman and Morrison 1950).

    Examples
    --------
    >>> (only,) = penalise_rows(np.eye(2), 1.0, 2.0)
    >>> only.round(3).tolist()
    [[0.333, -0.167], [-0.167, 0.333]]
    """
    ridge = invert_ridge(view, np.full(len(view), lambda_1))
    crowding = lambda_2 * measure_crowding(view)
    solved = (crowding - apply_operator(ridge, crowding)) / lambda_1
    direction = solved / (1.0 + solved.sum())
    return (ridge[0] - np.outer(direction, ridge[0].sum(axis=0)), *ridge[1:])


def update_part(operator: Operator, part: Floats, other: Floats, *, unclipped: bool) -> Floats:
    """Return C from U by equations (13) and (17), or U from C by (19) and (20), shape (n, n).

    The unconstrained solution, each row moved by the same amount, phi_i = (1 - sum_j (c_ij + u_ij)) / n, negative
    entries and the diagonal set to 0. The sum over i in the printed (17) contradicts its own subscript and is left
    out; the shift of (20) is computed in the same way from the other part's present value. Rows need not sum to one
    afterwards: nothing is projected again.

    Parameters
    ----------
    operator : tuple of arrays
        Factors of the ridge inverse times K.
    part, other : arrays of shape (n, n)
        The part's last iterate and the other part.
    unclipped : bool
        phi reads the unconstrained solution (printed), or the last iterate.

    Examples
    --------
    >>> none = np.zeros((2, 2))
    >>> update_part((0.5 * np.eye(2),), none, none, unclipped=True).tolist()
    [[0.0, 0.25], [0.25, 0.0]]
    >>> update_part((0.5 * np.eye(2),), none, none, unclipped=False).tolist()
    [[0.0, 0.5], [0.5, 0.0]]
    """
    n = len(part)
    rest = -other
    rest[np.diag_indices(n)] += 1.0
    updated = apply_operator(operator, rest)
    row_source = updated if unclipped else part
    updated = np.asarray(updated + (1.0 - row_source.sum(axis=1) - other.sum(axis=1))[:, None] / n, dtype=np.float64)
    np.maximum(updated, 0.0, out=updated)
    np.fill_diagonal(updated, 0.0)
    return updated


def apply_operator(operator: Operator, operand: Floats) -> Floats:
    """Return the product of the factors with an array of n rows.

    Examples
    --------
    >>> apply_operator((2.0 * np.eye(2), np.ones((2, 2))), np.array([1.0, 2.0])).tolist()
    [6.0, 6.0]
    """
    for factor in reversed(operator):
        operand = factor @ operand
    return operand
