"""The published algorithm with its errata corrected: stochastic gradient descent over the entries above zero.

It minimises ``1/2 sum over entries above zero of (x - o)^2``, for which a constant tensor is nearly best.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.phenotyping.kernels.mttkrp import SparseTensor
from multicentre_papers.entry_descent import pass_entries, require_finite_descent

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class SolverState:
    """Settings of a site's descent in one round.

    Parameters
    ----------
    n_passes : int
        The paper's ``tau``.
    step : float
        The paper's ``eta``.
    elastic_penalty : float
        The paper's ``gamma``; a row that is visited n times in a pass is pulled by ``gamma / n`` at each visit.
    shrinkage : float
        The paper's ``mu``.
    nonnegative : bool
        The paper leaves factors free.
    """

    n_passes: int
    step: float
    elastic_penalty: float
    shrinkage: float
    nonnegative: bool


def shrink_columns(memberships: Floats, threshold: float) -> Floats:
    """Shorten every column by `threshold`, to zero where it is shorter (equations 12 and 14).

    Examples
    --------
    >>> shrink_columns(np.array([[3.0, 0.1], [4.0, 0.0]]), 1.0).round(3).tolist()
    [[2.4, 0.0], [3.2, 0.0]]
    """
    lengths = np.linalg.norm(memberships, axis=0)
    return np.asarray(memberships * np.maximum(1 - threshold / np.where(lengths > 0, lengths, 1.0), 0.0))


def descend(
    tensor: SparseTensor,
    memberships: Floats,
    local: Sequence[Floats],
    targets: Sequence[Floats],
    how: SolverState,
    generator: np.random.Generator,
    *,
    count: Callable[[Floats, Sequence[Floats]], None] = lambda memberships, factors: None,
) -> tuple[Floats, list[Floats]]:
    """Run the passes of one round: equations 13, 14, 16 and 17.

    Parameters
    ----------
    tensor : SparseTensor
    memberships : array of shape (n, r)
    local, targets : sequences of arrays of shape (codes, r)
        Factors of the site, and the global ones.
    how : Descent
    generator : numpy.random.Generator
        Of the order of the entries, drawn again for every pass.
    count : callable, optional
        Called with memberships and factors before each pass, to count the patients who move them.

    Returns
    -------
    memberships, factors

    Raises
    ------
    NotConverged
        The learning rate is too large for these counts.
    """
    factors = list(local)
    for _ in range(how.n_passes):
        count(memberships, factors)
        order = generator.permutation(tensor.nnz)
        memberships, factors = pass_entries(
            tensor, order, memberships, factors, how.step, how.elastic_penalty, targets, nonnegative=how.nonnegative
        )
        require_finite_descent((memberships, *factors), "pass_entries")
        memberships = shrink_columns(memberships, how.step * how.shrinkage)
    return memberships, factors


def add_published_noise(factors: Sequence[Floats], noise_sd: float) -> list[Floats]:
    """Add the noise of the published algorithm (equation 18), which promises nothing; from the system's entropy.

    Examples
    --------
    >>> add_published_noise([np.ones((1, 2))], 0.0)[0].tolist()
    [[1.0, 1.0]]
    """
    unseeded = np.random.default_rng()
    return [factor + noise_sd * unseeded.standard_normal(factor.shape) for factor in factors]


def published_noise(
    epsilon: float, delta: float, *, n_modes: int, n_rounds: int, n_passes: int, step: float, lipschitz: float
) -> float:
    """Return the standard deviation of the published algorithm's noise: ``2 tau L eta / sqrt(2 rho)`` (Theorem 4.1).

    The theorem takes ``rho = epsilon^2 / (8 E log(1 / delta))`` for each of two factors and E epochs. Its proof does
    not hold: no L bounds the gradients, memberships and all factors move together, and a site's state outlives its
    release.

    Examples
    --------
    >>> round(published_noise(1.2139, 1e-4, n_modes=2, n_rounds=20, n_passes=2, step=0.01, lipschitz=1.0), 3)
    0.894
    """
    rho = epsilon**2 / (4 * n_modes * n_rounds * math.log(1 / delta))
    return 2 * n_passes * lipschitz * step / math.sqrt(2 * rho)


def claimed_epsilon(epsilon: float, *, planned_rounds: int, n_rounds: int) -> float:
    """Return the epsilon of the paper's formula for the rounds that were run; it grows with their root.

    Examples
    --------
    >>> claimed_epsilon(2.0, planned_rounds=40, n_rounds=10)
    1.0
    """
    return epsilon * math.sqrt(n_rounds / planned_rounds)
