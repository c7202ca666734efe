"""Self-expression of samples by landmarks: FedMSGL for numbers of samples whose table of pairs is too large.

The self-expression of equation (4) with codes on m landmarks instead of all n samples: the codes of a
sample x minimise |x - sum z_i a_i|^2 / 2 + mu |z|^2 / 2 over the simplex. A landmark does not express itself. The mean
of the codes over the views is a bipartite graph between samples and landmarks. Its spectral embedding replaces the one
of the hypergraph. Time and memory grow with n m.

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
from multicentre.core.tie_breaking import first_largest
from multicentre.errors import DataError

Floats = NDArray[np.float64]
Singles = NDArray[np.float32]
Integers = NDArray[np.int64]
# Samples per block of the solver, which bounds its memory: 2048 times the number of landmarks per array.
BLOCK = 2048
# Weights per sample in the bipartite graph: more connect weaker relations and take more memory.
N_LARGEST = 10
# Over-relaxation of the alternating direction method; values from 1.5 to 1.8 are usual (Boyd et al. 2011, 3.4.3).
RELAXATION = 1.6
# Steps between tests of the residuals: a test needs the norms of all codes, a change of stiffness an inverse.
EVERY = 5
# Ratio of the residuals above which the stiffness changes, so that it does not alternate between two values.
UNBALANCED = 4.0
# Relative size of a singular value below which its direction is rounding error: they are roots of float64 eigenvalues.
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
        Public: the same seed gives the same landmarks.

    Examples
    --------
    >>> draw_landmarks(10, 3, 0).tolist()
    [5, 6, 9]
    """
    if not 2 <= n_landmarks < n:
        raise DataError(
            f"landmarks must be at least 2 and fewer than the {n} samples; got {n_landmarks}", where="landmarks"
        )
    return np.sort(np.random.default_rng(seed).choice(n, n_landmarks, replace=False)).astype(np.int64)


def prepare_landmarks(points: Floats) -> Landmarks:
    """Return the landmarks of a view with their Gram matrix and its eigenvalues.

    Parameters
    ----------
    points : array of shape (m, d)
        Their rows of the prepared view; m at least 2.

    Examples
    --------
    >>> prepare_landmarks(np.array([[1.0, 0.0], [0.0, 2.0]])).values.tolist()
    [1.0, 4.0]
    """
    rows = np.ascontiguousarray(points, dtype=np.float64)
    if len(rows) < 2:
        raise DataError(
            f"landmarks with the view must be at least 2; got {len(rows)}", where="landmarks", hint="Draw more."
        )
    gram = rows @ rows.T
    values, vectors = eigh(gram)
    return Landmarks(rows, gram, np.maximum(values, 0.0), vectors)


def code_on_all(
    rows: Floats, landmark: Integers, landmarks: Landmarks, mu: float, *, tol: float = 5e-3, max_iterations: int = 500
) -> Singles:
    """Return the weights of all landmarks in each sample, by the alternating direction method.

    Parameters
    ----------
    rows : array of shape (b, d)
        Prepared in the same way as the landmarks; solved in blocks of 2048.
    landmark : int array of shape (b,)
        Number of the landmark that the sample is, or -1.
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
        codes[part] = _alternate(products, landmark[part], landmarks, mu, tol, max_iterations)
    return codes


def code_on_nearest(
    rows: Floats,
    landmark: Integers,
    landmarks: Landmarks,
    mu: float,
    nearest: int,
    *,
    tol: float = 1e-4,
    max_moves: int = 2000,
) -> tuple[Integers, Floats]:
    """Return the weights of the landmarks nearest to each sample; all other weights are 0.

    Parameters
    ----------
    rows, landmark, landmarks, mu
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
            products, landmarks.gram, landmark[part], nearest, mu, tol * mu, max_moves
        )
    return columns, values


def number_landmarks(places: Integers, drawn: Integers) -> Integers:
    """Return the number of the landmark that each sample is, or -1.

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
    """Return listed codes as an array of shape (b, m), zero where nothing is listed.

    Raises
    ------
    DataError
        Landmarks that do not exist or are listed twice, or shares that are negative or not finite.

    Examples
    --------
    >>> spread_codes(np.array([[2, 0], [1, -1]]), np.array([[0.75, 0.25], [1.0, 0.0]]), 3).tolist()
    [[0.25, 0.0, 0.75], [0.0, 1.0, 0.0]]
    """
    is_listed = columns >= 0
    if columns.ndim != 2 or columns.shape != values.shape or columns.max(initial=-1) >= n_landmarks:
        raise DataError(
            f"listed landmarks must be below {n_landmarks} and have one share each; got others", where="codes"
        )
    row = np.broadcast_to(np.arange(len(columns))[:, None], columns.shape)[is_listed]
    shares = values[is_listed]
    if not np.isfinite(shares).all() or (shares < 0).any():
        raise DataError("shares of landmarks must be finite and non-negative; got other values", where="codes")
    codes = csr_array((shares.astype(np.float64), (row, columns[is_listed])), shape=(len(columns), n_landmarks))
    if codes.nnz < len(shares):
        raise DataError("each landmark must be listed once per sample; got a landmark twice", where="codes")
    return np.asarray(codes.toarray())


def keep_largest(codes: NDArray[np.floating], most: int = N_LARGEST) -> csr_array:
    """Return the largest positive entries of each row; of equal ones those further left.

    Parameters
    ----------
    codes : array of shape (b, m)
        Sum or mean over the views.
    most : int, default 10

    Examples
    --------
    >>> keep_largest(np.array([[0.2, 0.5, 0.3], [0.0, 1.0, 0.0]]), 2).toarray().tolist()
    [[0.0, 0.5, 0.3], [0.0, 1.0, 0.0]]
    """
    from multicentre.clustering.kernels.spectrum import largest_of_rows

    columns, values = largest_of_rows(np.ascontiguousarray(codes), most, -len(codes))
    is_positive = columns >= 0
    start = np.concatenate([[0], np.cumsum(is_positive.sum(axis=1))])
    largest = csr_array((values[is_positive], columns[is_positive], start), shape=codes.shape)
    largest.sort_indices()
    return largest


def embed_samples(codes: csr_array, n_dimensions: int) -> tuple[Floats, Floats]:
    """Return the spectral embedding of the samples in the bipartite graph of samples and landmarks.

    The embedding consists of left singular vectors of B = Dr^-1/2 Z Dc^-1/2, with row sums Dr and column sums Dc. They
    are computed from the m x m matrix B' B.

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
            f"dimensions must be from 1 to the {m} landmarks; got {n_dimensions}", where="landmarks", hint="Draw more."
        )
    factor = normalise_incidence(codes)
    squares, right = eigh((factor.T @ factor).toarray(), subset_by_index=(m - n_dimensions, m - 1))
    singular = np.sqrt(np.maximum(squares[::-1], 0.0))
    is_positive = singular > NEGLIGIBLE
    vectors = factor @ right[:, ::-1] * np.where(is_positive, 1.0 / np.where(is_positive, singular, 1.0), 0.0)
    signs = np.where(vectors[first_largest(np.abs(vectors), axis=0), np.arange(n_dimensions)] < 0, -1.0, 1.0)
    return np.asarray(vectors * signs), np.maximum(1.0 - singular**2, 0.0)


def _alternate(
    products: Singles, landmark: Integers, landmarks: Landmarks, mu: float, tol: float, max_iterations: int
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
        previous = codes
        codes = project_rows(np.float32(rho) * relaxed, np.full((1, 1), mu + rho), landmark)
        dual = relaxed - codes
        if step % EVERY:
            continue
        primal, change = _relative(fitted - codes, codes), _relative(codes - previous, dual)
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
