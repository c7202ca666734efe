"""Start from co-occurrences of codes: a nonnegative factorisation of the pairwise marginals.

Every patient's tensor is brought to length 1 and summed over all modes but two; ``W_mn``, of shape (codes of m, codes
of n), is the sum over patients. With phenotypes that share codes little, ``W_mn`` is close to ``F_m diag(l_mn) F_n'``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from multicentre.core.tie_breaking import first_least
from multicentre.phenotyping.kernels.factors import normalise_columns
from multicentre.phenotyping.kernels.hals import solve_rows
from multicentre.phenotyping.kernels.mttkrp import SparseTensor
from multicentre.phenotyping.kernels.patients import count_pairs

Floats = NDArray[np.float64]
Blocks = Callable[[int, int, Floats], Floats]
# Iterations of the factorisation. They run at the coordinator, without requests to the sites.
N_ITERATIONS = 100
# Iterations after which starts are compared and only the best one continues. Of simulated and real codes, the order of
# the starts' errors hardly changed later.
N_TRIAL_ITERATIONS = 10
# Decrease of the error per iteration at which the factorisation ends, relative to the explained sum of squares: small,
# as a private fit has no further rounds that improve the factors.
MIN_DECREASE = 1e-5
# Extra directions of the randomised subspace iteration: more capture the leading eigenvectors better and cost messages.
OVERSAMPLING = 10
# Least weight of a component relative to the largest. At 0 the next update would leave the component at zero for good.
MIN_SCALE = 1e-3


Marginals = dict[tuple[int, int], csr_array]


def fewest_in_pair(tensor: SparseTensor) -> int:
    """Return the smallest number of patients with a pair of codes; all patients if no patient has a pair.

    Examples
    --------
    >>> fewest_in_pair(SparseTensor([[0, 0, 1], [1, 0, 1], [2, 1, 1]], [2.0, 5.0, 1.0], (3, 2, 2)))
    1
    """
    return min(int(counts.data.min(initial=tensor.shape[0])) for counts in count_pairs(tensor).values())


def flatten_marginals(marginals: Marginals) -> Floats:
    """Return all pairs one after the other, row by row, shape (p,).

    Examples
    --------
    >>> from multicentre.phenotyping.kernels.patients import cooccurrence
    >>> flatten_marginals(cooccurrence(SparseTensor([[0, 0, 1]], [2.0], (1, 2, 2)))).round(6).tolist()
    [0.0, 1.0, 0.0, 0.0]
    """
    return np.concatenate([block.toarray().ravel() for block in marginals.values()])


def multiply_marginals(marginals: Marginals, sizes: Sequence[int], directions: Floats) -> Floats:
    """Return the symmetric matrix of pairwise marginals times directions, shape (c, p).

    Examples
    --------
    >>> from multicentre.phenotyping.kernels.patients import cooccurrence
    >>> marginals = cooccurrence(SparseTensor([[0, 0, 1]], [2.0], (1, 2, 2)))
    >>> multiply_marginals(marginals, (2, 2), np.eye(4)).round(6)[0].tolist()
    [0.0, 0.0, 0.0, 1.0]
    """
    block_of_modes = {(m - 1, n - 1): block for (m, n), block in marginals.items()}
    return multiply_blocks(
        lambda m, n, part: np.asarray(block_of_modes[m, n] @ part if m < n else block_of_modes[n, m].T @ part),
        sizes,
        directions,
    )


def split_marginals(flat: Floats, sizes: Sequence[int]) -> Blocks:
    """Return the product of a block of the pairwise marginals with a matrix as a function, from all pairs in sequence.

    Parameters
    ----------
    flat : array of shape (p,)
        ``W_mn`` for all pairs m < n, row by row.
    sizes : sequence of int
        Codes of every mode.

    Returns
    -------
    callable
        (m, n, F) to ``W_mn F``.

    Examples
    --------
    >>> blocks = split_marginals(np.arange(6.0), [2, 3])
    >>> blocks(1, 0, np.array([[1.0], [1.0]])).ravel().tolist()
    [3.0, 5.0, 7.0]
    """
    pairs = list(itertools.combinations(range(len(sizes)), 2))
    borders = np.cumsum([sizes[m] * sizes[n] for m, n in pairs])[:-1]
    block_of_modes = {
        pair: part.reshape(sizes[pair[0]], sizes[pair[1]])
        for pair, part in zip(pairs, np.split(flat, borders), strict=True)
    }
    return lambda m, n, factor: np.asarray(block_of_modes[m, n] @ factor if m < n else block_of_modes[n, m].T @ factor)


def compress_marginals(basis: Floats, products: Floats, sizes: Sequence[int]) -> Blocks:
    """Return the same from a basis of the range of the symmetric matrix S of all blocks, and S times the basis.

    Parameters
    ----------
    basis : array of shape (c, p)
        Orthonormal columns, modes one below the other.
    products : array of shape (c, p)
    sizes : sequence of int
    """
    borders = np.cumsum(sizes)[:-1]
    core = basis.T @ products
    parts = np.split(basis, borders)
    return lambda m, n, factor: np.asarray(parts[m] @ (core @ (parts[n].T @ factor)))


def start_from_blocks(
    blocks: Blocks, sizes: Mapping[str, int], rank: int, seed: int, *, n_starts: int = 5, tol: float = MIN_DECREASE
) -> dict[str, Floats]:
    """Factorise the pairwise marginals into one nonnegative factor per mode, columns of unit length.

    Block coordinate descent from the leading eigenvectors' larger one-signed parts, and from random factors. All starts
    run for a few iterations; the one with the lowest error is continued. The sites receive no request, so more starts
    cost only time.

    Parameters
    ----------
    blocks : callable
        From :func:`split_marginals` or :func:`compress_marginals`.
    sizes : mapping from str to int
    rank : int
    seed : int
        Of the random factors.
    n_starts : int, default 5
    tol : float, default 1e-5
        Decrease of the error per iteration at which the factorisation ends, relative to the explained sum of squares.

    Returns
    -------
    dict from str to array of shape (codes, r)
    """
    widths, generator = list(sizes.values()), np.random.default_rng(seed)
    starts = [_one_signed(_leading(blocks, widths, rank), widths, generator)]
    starts += [[normalise_columns(generator.random((size, rank)))[0] for size in widths] for _ in range(n_starts - 1)]
    trials = [_descend(blocks, start, N_TRIAL_ITERATIONS if n_starts > 1 else 0, tol) for start in starts]
    best = int(first_least([error for _, error in trials]))
    return dict(zip(sizes, _descend(blocks, trials[best][0], N_ITERATIONS, tol)[0], strict=True))


def _descend(blocks: Blocks, factors: list[Floats], n_iterations: int, tol: float) -> tuple[list[Floats], float]:
    """Return factors after block coordinate descent, and their squared error but for a constant."""
    modes = range(len(factors))
    pairs = list(itertools.combinations(modes, 2))
    products = {(m, n): blocks(m, n, factors[n]) for m in modes for n in modes if m != n}
    scales = {pair: _scale(products[pair], pair, factors) for pair in pairs}
    error = np.inf
    for _ in range(n_iterations):
        for m in modes:
            factors[m] = _update(products, m, factors, scales)
            products |= {(n, m): blocks(n, m, factors[m]) for n in modes if n != m}
            scales |= {pair: _scale(products[pair], pair, factors) for pair in pairs if m in pair}
        before, error = error, sum(_error(products[pair], pair, factors, scales[pair]) for pair in pairs)
        if before - error <= tol * abs(error):
            break
    return factors, error


def _error(products: Floats, pair: tuple[int, int], factors: Sequence[Floats], scale: Floats) -> float:
    m, n = pair
    gram = (factors[m].T @ factors[m]) * (factors[n].T @ factors[n])
    return float(scale @ gram @ scale - 2 * scale @ np.einsum("cr,cr->r", factors[m], products))


def _update(
    products: Mapping[tuple[int, int], Floats],
    m: int,
    factors: Sequence[Floats],
    scales: Mapping[tuple[int, int], Floats],
) -> Floats:
    rank = factors[m].shape[1]
    total, gram = np.zeros_like(factors[m]), np.zeros((rank, rank))
    for n, other in enumerate(factors):
        if n != m:
            scale = scales[min(m, n), max(m, n)]
            total += products[m, n] * scale
            gram += (other.T @ other) * np.outer(scale, scale)
    solved, lengths = normalise_columns(solve_rows(total, gram, factors[m], 2))
    return np.where(lengths > 0, solved, factors[m])


def _scale(products: Floats, pair: tuple[int, int], factors: Sequence[Floats]) -> Floats:
    """Return the nonnegative weights of the components that fit one block best, shape (r,).

    None is zero, since the next update of its factors would leave it at zero.
    """
    m, n = pair
    explained = np.einsum("cr,cr->r", factors[m], products)
    gram = (factors[m].T @ factors[m]) * (factors[n].T @ factors[n])
    start = np.maximum(explained / np.diagonal(gram), 0.0)[None]
    scale = np.asarray(solve_rows(explained[None], gram, start, 20)[0])
    return np.asarray(np.maximum(scale, MIN_SCALE * float(scale.max())))


def _leading(blocks: Blocks, sizes: Sequence[int], rank: int) -> Floats:
    """Return eigenvectors of the symmetric matrix of all blocks that have the largest eigenvalues, shape (c, r)."""
    generator = np.random.default_rng(0)
    width = min(rank + OVERSAMPLING, sum(sizes))
    basis = np.linalg.qr(generator.standard_normal((sum(sizes), width)))[0]
    for _ in range(8):
        basis = np.linalg.qr(multiply_blocks(blocks, sizes, multiply_blocks(blocks, sizes, basis)))[0]
    values, vectors = np.linalg.eigh(basis.T @ multiply_blocks(blocks, sizes, basis))
    leading = np.argsort(-values, kind="stable")[:rank]
    return np.asarray(basis @ vectors[:, leading])


def multiply_blocks(blocks: Blocks, sizes: Sequence[int], directions: Floats) -> Floats:
    """Return the symmetric matrix of all blocks times directions, shape (c, p)."""
    parts = np.split(directions, np.cumsum(sizes)[:-1])
    rows = [
        sum((blocks(m, n, part) for n, part in enumerate(parts) if n != m), np.zeros((size, directions.shape[1])))
        for m, size in enumerate(sizes)
    ]
    return np.vstack(rows)


def _one_signed(vectors: Floats, sizes: Sequence[int], generator: np.random.Generator) -> list[Floats]:
    """Return each eigenvector's positive or negative part, whichever is longer in the shorter of its modes."""
    borders = np.cumsum(sizes)[:-1]
    up, down = (np.split(np.maximum(sign * vectors, 0.0), borders) for sign in (1.0, -1.0))
    strength = [np.prod([np.linalg.norm(part, axis=0) for part in side], axis=0) for side in (up, down)]
    chosen = [np.where(strength[0] >= strength[1], plus, minus) for plus, minus in zip(up, down, strict=True)]
    filled = [part + generator.uniform(0.0, 0.01 * part.mean() + 1e-6, part.shape) for part in chosen]
    return [normalise_columns(part)[0] for part in filled]
