"""Samples expressed by a few of them, the landmarks: FedMSGL for more samples than have a table of pairs.

The self-expression of equation (4) with codes on m landmarks instead of all n samples: a sample x is made up of
landmarks by min_z |x - sum z_i a_i|^2 / 2 + mu |z|^2 / 2 over the simplex, without itself where it is one. The mean of
the codes over the views is a bipartite graph between samples and landmarks, and its spectral embedding takes the
place of the hypergraph's. Time and memory grow with n m.

References
----------
W. Liu, J. He, S.-F. Chang (2010), Large graph construction for scalable semi-supervised learning, ICML. D. Cai, X. Chen
(2015), Large scale spectral clustering via landmark-based sparse representation, IEEE Transactions on Cybernetics 45,
1669-1680.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse import csr_array

from multicentre.clustering.hypergraph import normalise_incidence
from multicentre.federation.errors import DataError
from multicentre.federation.tie_breaking import first_largest

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Integers = NDArray[np.int64]
BLOCK = 2048
KEPT = 10
RELAXATION = 1.6
EVERY = 5
UNBALANCED = 4.0
NEGLIGIBLE = 1e-7


@dataclass(frozen=True, eq=False)
class Landmarks:
    """The landmarks of one view, and the eigenvalues of their Gram matrix.

    Parameters
    ----------
    points : array of shape (m, d)
    gram : array of shape (m, m)
        K = V diag(e) V'.
    values : array of shape (m,)
        e.
    vectors : array of shape (m, m)
        V.
    """

    points: Floats
    gram: Floats
    values: Floats
    vectors: Floats


def draw_landmarks(n: int, n_landmarks: int, seed: int) -> Integers:
    """Return the places of landmarks, drawn at random without looking at any sample, in ascending order.

    Parameters
    ----------
    n : int
        Samples.
    n_landmarks : int
        Between 2 and n - 1.
    seed : int
        Public: whoever knows it can draw the same.

    Examples
    --------
    >>> draw_landmarks(10, 3, 0).tolist()
    [5, 6, 9]
    """
    if not 2 <= n_landmarks < n:
        raise DataError(f"{n} samples have no {n_landmarks} landmarks", where="landmarks", hint="At least 2, below n.")
    return np.sort(np.random.default_rng(seed).choice(n, n_landmarks, replace=False)).astype(np.int64)


def prepare_landmarks(points: Floats) -> Landmarks:
    """Return the landmarks of a view with what all samples need of them.

    Parameters
    ----------
    points : array of shape (m, d)
        Their rows of the prepared view; m at least 2.

    Examples
    --------
    >>> prepare_landmarks(np.array([[1.0, 0.0], [0.0, 2.0]])).values.tolist()
    [1.0, 4.0]
    """
    held = np.ascontiguousarray(points, dtype=np.float64)
    if len(held) < 2:
        raise DataError("fewer than 2 landmarks have the view", where="landmarks", hint="Draw more.")
    gram = held @ held.T
    values, vectors = eigh(gram)
    return Landmarks(held, gram, np.maximum(values, 0.0), vectors)


def code_on_all(
    rows: Floats, own: Integers, landmarks: Landmarks, mu: float, *, tol: float = 5e-3, max_iterations: int = 500
) -> Singles:
    """Return how much of each sample every landmark makes up, by the alternating direction method.

    Parameters
    ----------
    rows : array of shape (b, d)
        Prepared as the landmarks were. Taken by blocks of 2048.
    own : int array of shape (b,)
        Which landmark the sample is, -1 if none.
    landmarks : Landmarks
    mu : float
        Above 0; large values mix more landmarks.
    tol : float, default 0.005
        Relative primal and dual residual at which a block has settled.
    max_iterations : int, default 500

    Returns
    -------
    float32 array of shape (b, m)
        Rows at least 0, sum 1.

    Examples
    --------
    >>> landmarks = prepare_landmarks(np.array([[0.0], [1.0]]))
    >>> code_on_all(np.array([[0.25]]), np.array([-1]), landmarks, 0.5, tol=1e-6).round(3).tolist()
    [[0.625, 0.375]]
    """
    codes = np.empty((len(rows), len(landmarks.gram)), np.float32)
    for first in range(0, len(rows), BLOCK):
        part = slice(first, first + BLOCK)
        products = (rows[part] @ landmarks.points.T).astype(np.float32)
        codes[part] = _alternate(products, own[part], landmarks, mu, tol, max_iterations)
    return codes


def code_on_nearest(
    rows: Floats,
    own: Integers,
    landmarks: Landmarks,
    mu: float,
    nearest: int,
    *,
    tol: float = 1e-4,
    max_moves: int = 2000,
) -> tuple[Integers, Floats]:
    """Return the same where each sample is made up of the landmarks nearest to it alone.

    Parameters
    ----------
    rows, own, landmarks, mu
        As in `code_on_all`.
    nearest : int
        k.
    tol : float, default 1e-4
        Difference of gradients at which a sample has settled, as a share of mu.
    max_moves : int, default 2000

    Returns
    -------
    columns : int64 array of shape (b, k)
        Numbers of the landmarks; -1 where a view has fewer of them.
    values : float64 array of shape (b, k)
        Rows at least 0, sum 1.

    Examples
    --------
    >>> landmarks = prepare_landmarks(np.array([[0.0], [1.0], [5.0]]))
    >>> columns, values = code_on_nearest(np.array([[0.25]]), np.array([-1]), landmarks, 0.5, 2)
    >>> columns.tolist(), values.round(3).tolist()
    ([[0, 1]], [[0.625, 0.375]])
    """
    from multicentre.clustering.kernels import splitting as anchors

    columns, values = np.empty((len(rows), nearest), np.int64), np.empty((len(rows), nearest))
    for first in range(0, len(rows), BLOCK):
        part = slice(first, first + BLOCK)
        products = rows[part] @ landmarks.points.T
        columns[part], values[part] = anchors.code_on_nearest(
            products, landmarks.gram, own[part], nearest, mu, tol * mu, max_moves
        )
    return columns, values


def number_landmarks(places: Integers, drawn: Integers) -> Integers:
    """Return which landmark each sample is, -1 for those that are none.

    Parameters
    ----------
    places : array of shape (b,)
        Places of the samples in the common order.
    drawn : array of shape (m,)
        Places of the landmarks, ascending.

    Examples
    --------
    >>> number_landmarks(np.array([5, 2, 9]), np.array([2, 9])).tolist()
    [-1, 0, 1]
    """
    at = np.minimum(np.searchsorted(drawn, places), len(drawn) - 1)
    return np.where(drawn[at] == places, at, -1).astype(np.int64)


def spread_codes(columns: Integers, values: Floats, n_landmarks: int) -> Floats:
    """Return listed codes as an array of shape (b, m), nought where nothing is listed.

    Raises
    ------
    DataError
        Landmarks that do not exist or are listed twice, or shares that are negative or not finite.

    Examples
    --------
    >>> spread_codes(np.array([[2, 0], [1, -1]]), np.array([[0.75, 0.25], [1.0, 0.0]]), 3).tolist()
    [[0.25, 0.0, 0.75], [0.0, 1.0, 0.0]]
    """
    known = columns >= 0
    if columns.ndim != 2 or columns.shape != values.shape or columns.max(initial=-1) >= n_landmarks:
        raise DataError("listed landmarks do not fit the shares or do not exist", where="codes")
    row = np.broadcast_to(np.arange(len(columns))[:, None], columns.shape)[known]
    listed = values[known]
    if not np.isfinite(listed).all() or (listed < 0).any():
        raise DataError("shares of landmarks are finite and not negative", where="codes")
    codes = csr_array((listed.astype(np.float64), (row, columns[known])), shape=(len(columns), n_landmarks))
    if codes.nnz < len(listed):
        raise DataError("a landmark is listed twice for a sample", where="codes")
    return np.asarray(codes.toarray())


def keep_largest(codes: NDArray[np.floating], kept: int = KEPT) -> csr_array:
    """Return the largest positive entries of each row; of equal ones those further left.

    Parameters
    ----------
    codes : array of shape (b, m)
        Sum or mean over the views.
    kept : int, default 10

    Examples
    --------
    >>> keep_largest(np.array([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]]), 2).toarray().tolist()
    [[0.0, 0.5, 0.3], [0.0, 1.0, 0.0]]
    """
    from multicentre.clustering.kernels.spectrum import largest_of_rows

    columns, values = largest_of_rows(np.ascontiguousarray(codes), kept, -len(codes))
    known = columns >= 0
    start = np.concatenate([[0], np.cumsum(known.sum(axis=1))])
    listed = csr_array((values[known], columns[known], start), shape=codes.shape)
    listed.sort_indices()
    return listed


def embed_samples(codes: csr_array, n_dimensions: int) -> tuple[Floats, Floats]:
    """Return the spectral embedding of the samples in the bipartite graph of samples and landmarks.

    Left singular vectors of B = Dr^-1/2 Z Dc^-1/2, by way of the m x m matrix B' B; Dr and Dc are row and column sums.

    Parameters
    ----------
    codes : csr_array of shape (n, m)
        Z, not negative. A sample without any code gets a row of zeros.
    n_dimensions : int
        c, at most m.

    Returns
    -------
    vectors : array of shape (n, c)
        By ascending eigenvalue, orthonormal; a dimension that the codes do not have is a column of zeros.
    eigenvalues : array of shape (c,)
        1 minus the squared singular values, ascending.

    Examples
    --------
    >>> embed_samples(csr_array(np.kron(np.eye(2), np.ones((3, 2)))), 2)[1].round(6).tolist()
    [0.0, 0.0]
    """
    m = codes.shape[1]
    if not 1 <= n_dimensions <= m:
        raise DataError(
            f"{m} landmarks have no {n_dimensions} dimensions", where="landmarks", hint="Draw more of them."
        )
    factor = normalise_incidence(codes)
    squares, right = eigh((factor.T @ factor).toarray(), subset_by_index=(m - n_dimensions, m - 1))
    singular = np.sqrt(np.maximum(squares[::-1], 0.0))
    known = singular > NEGLIGIBLE
    vectors = factor @ right[:, ::-1] * np.where(known, 1.0 / np.where(known, singular, 1.0), 0.0)
    signs = np.where(vectors[first_largest(np.abs(vectors), axis=0), np.arange(n_dimensions)] < 0, -1.0, 1.0)
    return np.asarray(vectors * signs), np.maximum(1.0 - singular**2, 0.0)


def _alternate(
    products: Singles, own: Integers, landmarks: Landmarks, mu: float, tol: float, max_iterations: int
) -> Singles:
    """Alternate between the fit, and the ridge over the simplex, with a stiffness that balances both residuals."""
    from multicentre.clustering.kernels.simplex import project_rows

    typical = landmarks.values[landmarks.values > NEGLIGIBLE * landmarks.values[-1]]
    rho = max(0.3 * float(np.median(typical)) if typical.size else 0.0, mu)
    inverse = _invert(landmarks, rho)
    codes = np.full(products.shape, 1.0 / products.shape[1], np.float32)
    dual = np.zeros_like(codes)
    for step in range(1, max_iterations + 1):
        fitted = (products + np.float32(rho) * (codes - dual)) @ inverse
        relaxed = RELAXATION * fitted + (1.0 - RELAXATION) * codes + dual
        before = codes
        codes = project_rows(np.float32(rho) * relaxed, np.full((1, 1), mu + rho), own)
        dual = relaxed - codes
        if step % EVERY:
            continue
        primal, change = _relative(fitted - codes, codes), _relative(codes - before, dual)
        if max(primal, change) < tol:
            break
        factor = 2.0 if primal > UNBALANCED * change else 0.5 if change > UNBALANCED * primal else 1.0
        if factor != 1.0:
            rho, dual = rho * factor, dual / np.float32(factor)
            inverse = _invert(landmarks, rho)
    return codes


def _invert(landmarks: Landmarks, rho: float) -> Singles:
    """Return (K + rho I)^-1."""
    return np.asarray((landmarks.vectors / (landmarks.values + rho)) @ landmarks.vectors.T, dtype=np.float32)


def _relative(difference: Singles, size: Singles) -> float:
    return float(np.linalg.norm(difference)) / max(float(np.linalg.norm(size)), 1e-30)
