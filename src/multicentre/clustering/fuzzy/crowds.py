"""How many patients of a site stand behind each cluster's sums, and what leaves in clear where they are few."""

from __future__ import annotations

import numpy as np

from multicentre.clustering.fuzzy.maths import Floats, share_memberships

ROUNDING = 1e-9
SAME_DIRECTION = 1e-14
MOST_SHARE = 0.5


def effective_number(weights: Floats) -> Floats:
    """Return to how many equal patients each column's weights amount, ``(sum w)^2 / sum w^2``, shape (c,); 0 for none.

    References
    ----------
    L. Kish (1965), Survey Sampling, Wiley, section 11.7.

    Examples
    --------
    >>> effective_number(np.array([[1.0, 1.0, 0.0], [1.0, 1e-9, 0.0]])).round(6).tolist()
    [2.0, 1.0, 0.0]
    """
    largest = weights.max(axis=0, initial=0.0)
    shares = weights / np.where(largest > 0, largest, 1.0)
    squares = np.square(shares).sum(axis=0)
    return np.asarray(np.square(shares.sum(axis=0)) / np.where(squares > 0, squares, 1.0))


def count_behind(weights: Floats, shown: Floats) -> Floats:
    """Return to how many patients each cluster amounts in the view where they are fewest but some, shape (c,).

    Parameters
    ----------
    weights : array of shape (n, c)
    shown : array of shape (n, k)

    Examples
    --------
    >>> count_behind(np.ones((3, 1)), np.array([[1.0, 1.0], [1.0, 1.0], [1.0, 0.0]])).tolist()
    [2.0]
    """
    views = [effective_number(weights * has[:, None]) for has in shown.T if has.any()]
    return np.asarray(np.min(views, axis=0))


def weigh_many(distances: Floats, alpha: Floats, m: float, shown: Floats, *, plain: bool, least: int) -> Floats:
    """Return u^m, shape (n, c), without the clusters to which too few patients amount.

    Those patients count in the other clusters instead: left out of all sums they would be told by the difference.
    Clusters are left out one at a time, the smallest first, also until no combination of them is mostly one patient.
    One always stays.

    Parameters
    ----------
    distances : array of shape (k, n, c)
    alpha : array of shape (k,)
    m : float
    shown : array of shape (n, k)
    plain : bool
    least : int

    Returns
    -------
    array of shape (n, c)
        0 in the clusters that are left out.

    Examples
    --------
    >>> distances = np.array([[[0.1, 9.0], [0.2, 8.0], [9.0, 0.1]]])
    >>> weigh_many(distances, np.ones(1), 1.5, np.ones((3, 1)), plain=False, least=2).tolist()
    [[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    """
    kept = np.ones(distances.shape[2], dtype=bool)
    while True:
        weights = np.zeros(distances.shape[1:])
        weights[:, kept] = share_memberships(distances[:, :, kept], alpha, m, plain=plain) ** m
        behind = np.where(kept, count_behind(weights, shown), np.inf)
        if kept.sum() == 1 or (behind.min() >= least - ROUNDING and is_of_many(span(weights[None], shown))):
            return weights
        kept[behind.argmin()] = False


def have_many_moved(before: Floats, after: Floats, shown: Floats, least: int) -> bool:
    """Tell whether each cluster differs from each earlier one by as many patients, so that no difference is one's row.

    Clusters are compared whatever their place, since a coordinator may list them in another order. Two may be the same.

    Parameters
    ----------
    before, after : arrays of shape (n, c)
    shown : array of shape (n, k)
    least : int

    Examples
    --------
    >>> before, after = np.eye(2)[[0, 0, 1, 1]], np.eye(2)[[0, 1, 1, 1]]
    >>> have_many_moved(before, after, np.ones((4, 1)), 2), have_many_moved(before, before, np.ones((4, 1)), 2)
    (False, True)
    """
    for shift in range(before.shape[1]):
        moved = np.abs(after - np.roll(before, shift, axis=1))
        changed = moved.max(axis=0) > 0
        if (count_behind(moved[:, changed], shown) < least - ROUNDING).any():
            return False
    return True


def span(answers: Floats, shown: Floats) -> list[Floats]:
    """Return for each view an orthonormal basis of all weights that sums of it rested on.

    Parameters
    ----------
    answers : array of shape (t, n, c)
        The weights of each answer.
    shown : array of shape (n, k)

    Returns
    -------
    list of k arrays of shape (n, r_k)

    Examples
    --------
    >>> [basis.shape for basis in span(np.ones((2, 4, 3)), np.ones((4, 1)))]
    [(4, 1)]
    """
    bases = [np.zeros((len(shown), 0)) for _ in shown.T]
    for weights in answers:
        bases = widen(bases, weights, shown)
    return bases


def widen(bases: list[Floats], weights: Floats, shown: Floats) -> list[Floats]:
    """Return the bases of `span` with one more answer, weights of shape (n, c)."""
    return [_append(basis, weights * has[:, None]) for basis, has in zip(bases, shown.T, strict=True)]


def is_of_many(bases: list[Floats]) -> bool:
    """Tell whether no weighted sum of what left rests on one patient as much as on all others together, in squares.

    The largest share of patient i in the square of any vector of a span is its leverage, the squared length of row i of
    an orthonormal basis.

    Examples
    --------
    >>> one_moves = np.array([[[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]], [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]])
    >>> is_of_many(span(np.ones((1, 3, 2)), np.ones((3, 1)))), is_of_many(span(one_moves, np.ones((3, 1))))
    (True, False)
    """
    return all(float(np.square(basis).sum(axis=1).max(initial=0.0)) < MOST_SHARE - ROUNDING for basis in bases)


def _append(basis: Floats, columns: Floats) -> Floats:
    """Return the basis with the directions of the columns that it lacks, down to what rounding would hide."""
    rest = columns
    for _ in range(2):
        rest = rest - basis @ (basis.T @ rest)
    left, sizes, _ = np.linalg.svd(rest, full_matrices=False)
    new = left[:, sizes > SAME_DIRECTION * np.linalg.norm(columns)]
    for _ in range(2):
        new = new - basis @ (basis.T @ new)
        new = np.linalg.qr(new)[0]
    return np.concatenate([basis, new], axis=1)
