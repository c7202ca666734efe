"""Self-expression of samples by each other: the exact form of equation (4) of FedMSGL.

For Z = C + U, the split of least penalty in equation (4) is elementwise, and the problem reduces to

    min_Z  1/2 ||X - X Z||^2 + 1/2 sum_ij w_ij z_ij^2,   w = a l3 / (a + l3),   a_ij = l1 + l2 m_ij^2,

with each column of Z in the simplex and a zero diagonal. The columns are independent; each is a row of `codes` here.

References
----------
D. Li, Z. Yang and S. Xie (2025), FedMSGL: a self-expressive hypergraph based federated multi-view learning, AAAI.
S. Boyd et al. (2011), Distributed optimization and statistical learning via the alternating direction method of
multipliers, Foundations and Trends in Machine Learning 3, section 3.4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.clustering.fedmsgl.maths.preparation import GramFactor

Floats = NDArray[np.float64]
Reals = NDArray[Any]

# Over-relaxation of the alternating direction method; values from 1.5 to 1.8 are usual (Boyd et al. 2011, 3.4.3).
RELAXATION = 1.8
# First stiffness, relative to the geometric mean of the largest eigenvalue and the penalty. It is adapted afterwards.
STIFFNESS = 1.0
# Steps between adaptations of the stiffness. Rarer ones keep a poor stiffness longer; frequent ones slow convergence.
EVERY = 25


@dataclass(frozen=True)
class Penalty:
    """Cost of an entry z: the minimum of curvature / 2 c^2 - pull c + u^2 / (2 softness) over z = c + u, c, u >= 0.

    Parameters
    ----------
    curvature : array of shape (n, n) or (1, 1)
        Above 0; row j for the codes of sample j.
    pull : array of shape (n, n) or (1, 1)
        At least 0.
    softness : float
        0 where there is no u.
    """

    curvature: Floats
    pull: Floats
    softness: float = 0.0


@dataclass(frozen=True)
class Expression:
    """Samples expressed by each other.

    Parameters
    ----------
    codes : array of shape (n, n)
        Row j mixes sample j from the others: at least 0, sum 1, 0 at j.
    n_iterations : int
        Largest number of steps of a sample.
    n_open : int
        Samples that had not converged within the allowed steps.
    """

    codes: Reals
    n_iterations: int
    n_open: int


@dataclass(frozen=True)
class Effort:
    """Limits of the solver.

    Parameters
    ----------
    tol : float, default 0.005
        Relative primal and dual residual at which a sample has converged.
    max_iterations : int, default 500
    single : bool, default True
        32-bit numbers, which are good for a tolerance down to about 1e-5.
    block : int, default 512
        Samples that are solved together: memory next to the codes is 2 n block numbers.
    """

    tol: float = 5e-3
    max_iterations: int = 500
    single: bool = True
    block: int = 512


def spread_evenly(n: int, dtype: Any = np.float64) -> Reals:
    """Return codes with equal weights for all other samples.

    Examples
    --------
    >>> spread_evenly(3)
    array([[0. , 0.5, 0.5],
           [0.5, 0. , 0.5],
           [0.5, 0.5, 0. ]])
    """
    codes = np.full((n, n), 1.0 / (n - 1), dtype)
    np.fill_diagonal(codes, 0.0)
    return codes


def _first_stiffness(factor: GramFactor, penalty: Penalty) -> float:
    typical = 1.0 / (1.0 / float(np.mean(penalty.curvature)) + penalty.softness)
    return max(STIFFNESS * float(np.sqrt(typical * factor.values.max(initial=0.0))), typical)


class _Block:
    """The samples of one block that are still open, in the order of their memory."""

    def __init__(self, values: Reals, vectors: Reals, codes: Reals, size: int, rho: float) -> None:
        n, r = vectors.shape
        self.values, self.vectors, self.codes, self.rho = values, vectors, codes, rho
        self.shadow, self.product = np.empty((size, n), codes.dtype), np.empty((size, n), codes.dtype)
        self.inner = np.empty((size, r), codes.dtype)

    def open(self, first: int) -> None:
        """Start the block at sample `first`, with the dual that its codes imply."""
        rows = np.arange(first, min(first + len(self.shadow), len(self.codes)))
        self.rows, self.stiffness = rows, np.full(len(rows), self.rho)
        self.multiplier = np.full(len(rows), np.inf)
        shadow = self.shadow[: len(rows)]
        shadow[:] = self.codes[rows]
        self._multiply(self.values / self.codes.dtype.type(self.rho))
        shadow -= self.product[: len(rows)]

    def _multiply(self, gains: Reals) -> None:
        """Set product = (V_j - shadow V) diag(gains) V'."""
        n_open = len(self.rows)
        inner = np.matmul(self.shadow[:n_open], self.vectors, out=self.inner[:n_open])
        np.subtract(self.vectors[self.rows], inner, out=inner)
        inner *= gains
        np.matmul(inner, self.vectors.T, out=self.product[:n_open])

    def step(self, penalty: Penalty, tol: float, *, adapt: bool) -> None:
        """Move all open samples by one step and close those that have converged."""
        from multicentre.clustering.kernels.splitting import step_rows

        stiffness = self.stiffness.astype(self.codes.dtype)[:, None]
        self._multiply(self.values / (self.values + stiffness))
        mix = np.array([RELAXATION - 1.0, RELAXATION, 2.0 - RELAXATION], self.codes.dtype)
        n_open = step_rows(
            self.codes, self.shadow, self.product, self.rows, self.stiffness, self.multiplier,
            penalty.curvature, penalty.pull, penalty.softness, mix, tol, adapt,
        )  # fmt: skip
        self.rows, self.stiffness, self.multiplier = (
            self.rows[:n_open],
            self.stiffness[:n_open],
            self.multiplier[:n_open],
        )


def alternate(factor: GramFactor, penalty: Penalty, effort: Effort, start: Reals | None = None) -> Expression:
    """Solve the penalised self-expression by over-relaxed alternating directions, separately for each sample.

    Parameters
    ----------
    factor : GramFactor
        Of n >= 2 samples.
    penalty : Penalty
    effort : Effort
    start : array of shape (n, n), optional
        Codes to start from; evenly spread ones otherwise.

    Examples
    --------
    >>> from multicentre.clustering.fedmsgl.maths.preparation import factor_gram
    >>> factor = factor_gram(np.array([[1.0], [0.9], [-1.0]]))
    >>> alternate(factor, Penalty(np.full((1, 1), 0.5), np.zeros((1, 1))), Effort(1e-9, single=False)).codes.round(3)
    array([[0.   , 0.933, 0.067],
           [0.86 , 0.   , 0.14 ],
           [0.307, 0.693, 0.   ]])
    """
    n = len(factor.vectors)
    dtype: Any = np.float32 if effort.single else np.float64
    codes = spread_evenly(n, dtype) if start is None else np.array(start, dtype)
    values, vectors = factor.values.astype(dtype), factor.vectors.astype(dtype)
    block = _Block(values, vectors, codes, min(effort.block, n), _first_stiffness(factor, penalty))
    most, n_open = 0, 0
    for first in range(0, n, effort.block):
        block.open(first)
        for step in range(1, effort.max_iterations + 1):
            block.step(penalty, effort.tol, adapt=step % EVERY == 0)
            if not len(block.rows):
                break
        most, n_open = max(most, step), n_open + len(block.rows)
    return Expression(codes, most, n_open)


def express(
    factor: GramFactor,
    weights: float | Floats,
    *,
    tol: float = 5e-3,
    max_iterations: int = 500,
    single: bool = True,
    block: int = 512,
    start: Reals | None = None,
) -> Expression:
    """Return the codes that solve the reduced problem of equation (4), see the module.

    Parameters
    ----------
    factor : GramFactor
        Of n >= 2 samples.
    weights : float or array of shape (n, n)
        w > 0; row j for the codes of sample j.
    tol, max_iterations, single, block
        See `Effort`.
    start : array of shape (n, n), optional
        Codes to start from.

    Examples
    --------
    >>> from multicentre.clustering.fedmsgl.maths.preparation import factor_gram
    >>> found = express(factor_gram(np.array([[1.0], [0.9], [-1.0]])), 0.5, tol=1e-9, single=False)
    >>> found.codes.round(3)
    array([[0.   , 0.933, 0.067],
           [0.86 , 0.   , 0.14 ],
           [0.307, 0.693, 0.   ]])
    """
    curvature = np.array(weights, dtype=np.float64, ndmin=2)
    effort = Effort(tol, max_iterations, single, block)
    return alternate(factor, Penalty(curvature, np.zeros((1, 1))), effort, start)


def reduce_weights(a: float | Floats, lambda_3: float) -> float | Floats:
    """Return w = a l3 / (a + l3), the weights of the problem in Z = C + U.

    Examples
    --------
    >>> reduce_weights(10.0, 10.0)
    5.0
    """
    return a * lambda_3 / (a + lambda_3)


def split(Z: Reals, a: float | Floats, lambda_3: float) -> tuple[Reals, Reals]:
    """Return the consistent part C = Z l3 / (a + l3) and the view-specific part U = Z a / (a + l3).

    Parameters
    ----------
    Z : array of shape (n, n)
    a : float or array of shape (n, n)
        a_ij = lambda_1 + lambda_2 m_ij^2, in the layout of Z.
    lambda_3 : float

    Examples
    --------
    >>> split(np.array([[0.0, 1.0], [1.0, 0.0]]), 10.0, 30.0)[1]
    array([[0. , 0.25],
           [0.25, 0. ]])
    """
    C = (Z * (lambda_3 / (a + lambda_3))).astype(Z.dtype, copy=False)
    return C, Z - C


def list_largest(codes: Reals, top: int) -> tuple[NDArray[np.int32], NDArray[np.float32]]:
    """Return the largest positive entries of each row without the diagonal, in descending order.

    Parameters
    ----------
    codes : array of shape (n, n)
    top : int
        At least 1.

    Returns
    -------
    index : int32 array of shape (n, min(top, n - 1))
        Columns; of equal entries the one further left comes first; -1 where a row has fewer positive entries.
    value : float32 array of the same shape
        0 where a row has fewer positive entries.

    Examples
    --------
    >>> list_largest(np.array([[9.0, 2.0, 2.0], [1.0, 9.0, 0.0], [3.0, 4.0, 0.0]]), 2)
    (array([[ 1,  2],
           [ 0, -1],
           [ 1,  0]], dtype=int32), array([[2., 2.],
           [1., 0.],
           [4., 3.]], dtype=float32))
    """
    from multicentre.clustering.kernels.spectrum import largest_of_rows

    index, value = largest_of_rows(codes, min(top, len(codes) - 1), 0)
    return index.astype(np.int32), value.astype(np.float32)


def keep_largest(codes: Reals, top: int) -> Reals:
    """Return the codes with zero for all but the `top` largest entries of each row.

    Examples
    --------
    >>> keep_largest(np.array([[0.0, 0.3, 0.7], [0.5, 0.0, 0.5], [0.9, 0.1, 0.0]]), 1)
    array([[0. , 0. , 0.7],
           [0.5, 0. , 0. ],
           [0.9, 0. , 0. ]])
    """
    index, _ = list_largest(codes, top)
    largest = np.zeros_like(codes)
    rows, places = np.nonzero(index >= 0)
    columns = index[rows, places]
    largest[rows, columns] = codes[rows, columns]
    return largest
