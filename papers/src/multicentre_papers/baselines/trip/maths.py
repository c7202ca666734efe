"""Updates of TRIP as functions of arrays (Kim, Sun, Yu and Jiang, KDD 2017).

The augmented Lagrangian of a site with tensor O, local factors F_n, consensus Z_n, multipliers H_n and penalty w is
``||O - [[A, F_1, ...]]||^2 + sum over n of <H_n, Z_n - F_n> + w/2 ||Z_n - F_n||^2``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from multicentre.phenotyping.kernels.hals import hadamard_gram
from multicentre.phenotyping.kernels.mttkrp import Floats, SparseTensor, mttkrp
from multicentre.phenotyping.kernels.patients import fit_memberships

# Upper limit of the penalty, which otherwise grows without bound over the rounds.
MAX_PENALTY = 1e10


@dataclass(frozen=True)
class Local:
    """Local part of the solution at one site.

    Parameters
    ----------
    memberships : array of shape (n, r)
        ``A_t``.
    factors : sequence of arrays of shape (codes, r)
        ``B^t`` and so on, one per mode.
    multipliers : sequence of arrays of shape (codes, r)
        ``H^t``, one per mode.
    """

    memberships: Floats
    factors: Sequence[Floats]
    multipliers: Sequence[Floats]


@dataclass(frozen=True)
class Settings:
    """Settings that stay fixed during a fit.

    Parameters
    ----------
    distinct : float
        Weight of ``||F'F - I||^2`` in the first mode, ``lambda_q``; 0 switches it off.
    nonnegative : bool
        Fit memberships within A >= 0.
    n_sweeps : int
        Coordinate descent sweeps for non-negative memberships.
    """

    distinct: float
    nonnegative: bool
    n_sweeps: int


def penalty_of_round(first: float, growth: float, number: int) -> float:
    """Return the penalty ``w`` of a round, counted from 1; it grows by a factor per round, up to 1e10.

    Examples
    --------
    >>> penalty_of_round(2.0, 1.1, 1), round(penalty_of_round(2.0, 1.1, 3), 6)
    (2.0, 2.42)
    """
    log = np.log(first) + (number - 1) * np.log(growth)
    return float(MAX_PENALTY if log >= np.log(MAX_PENALTY) else first * growth ** (number - 1))


def solve_distinct(right: Floats, gram: Floats, frozen: Floats, weight: float) -> Floats:
    """Solve the Sylvester equation ``F gram + weight P P' F = right`` for a tall, narrow ``P``.

    Within the span of P's left singular vectors both sides are diagonalised; outside it F is ``right gram^-1``.

    Parameters
    ----------
    right : array of shape (codes, r)
    gram : array of shape (r, r)
        Symmetric, positive definite.
    frozen : array of shape (codes, r)
        ``P``.
    weight : float

    Returns
    -------
    array of shape (codes, r)

    Examples
    --------
    >>> solve_distinct(np.array([[6.0], [4.0]]), np.array([[2.0]]), np.array([[1.0], [0.0]]), 1.0).round(12).tolist()
    [[2.0], [2.0]]
    """
    left, lengths, _ = np.linalg.svd(frozen, full_matrices=False)
    values, vectors = np.linalg.eigh(gram)
    rotated = right @ vectors
    inside = left.T @ rotated
    outside = (rotated - left @ inside) / values
    return np.asarray((outside + left @ (inside / (values + weight * lengths[:, None] ** 2))) @ vectors.T)


def update_site(
    tensor: SparseTensor, local: Local, consensus: Sequence[Floats], penalty: float, settings: Settings
) -> Local:
    """Update a site's memberships, then the factor and the multiplier of each mode, near the consensus.

    ``A = M_0 Gamma_0^-1``, then for each mode ``F_n = (2 M_n + w Z_n + H_n)(2 Gamma_n + w I)^-1`` and
    ``H_n += w (Z_n - F_n)``. Each update uses the latest values of the others. With `settings.distinct` the first mode
    adds ``lambda_q ||P'F - I||^2``, where P is the site's factor of the previous round.

    Parameters
    ----------
    tensor : SparseTensor
    local : Local
    consensus : sequence of arrays of shape (codes, r)
        ``Z_n``, one per mode.
    penalty : float
        ``w``.
    settings : Settings

    Returns
    -------
    Local

    Examples
    --------
    >>> tensor, one = SparseTensor([[0, 0, 0]], [2.0], (1, 1, 1)), np.ones((1, 1))
    >>> local = update_site(tensor, Local(one, [one, one], [0 * one, 0 * one]), [one, one], 4.0, Settings(0.0, True, 1))
    >>> local.memberships.tolist(), [factor.tolist() for factor in local.factors]
    ([[2.0]], [[[1.0]], [[1.0]]])
    """
    factors = list(local.factors)
    memberships = fit_memberships(
        tensor, factors, local.memberships, n_sweeps=settings.n_sweeps, nonnegative=settings.nonnegative
    )
    identity = np.eye(memberships.shape[1])
    multipliers = []
    for n, (target, multiplier) in enumerate(zip(consensus, local.multipliers, strict=True)):
        everything = [memberships, *factors]
        gram = 2 * hadamard_gram(everything, skip=n + 1) + penalty * identity
        right = 2 * mttkrp(tensor, everything, n + 1) + penalty * target + multiplier
        if n == 0 and settings.distinct:
            frozen = factors[0]
            factors[0] = solve_distinct(right + 2 * settings.distinct * frozen, gram, frozen, 2 * settings.distinct)
        else:
            factors[n] = np.ascontiguousarray(np.linalg.solve(gram, right.T).T)
        multipliers.append(multiplier + penalty * (target - factors[n]))
    return Local(memberships, factors, multipliers)


def agree_on_factors(
    factors: Mapping[str, Floats],
    multipliers: Mapping[str, Floats],
    n_sites: int,
    penalty: float,
    *,
    nonnegative: bool,
) -> dict[str, Floats]:
    """Return the consensus ``Z = mean(F^t) - mean(H^t) / w`` of every mode, projected onto Z >= 0 if `nonnegative`.

    The projection is exact: given factors and multipliers, the cells of the consensus are independent.

    Parameters
    ----------
    factors, multipliers : mapping from str to array of shape (codes, r)
        Sums over sites.
    n_sites : int
    penalty : float
    nonnegative : bool

    Examples
    --------
    >>> sums = {"diagnosis": np.array([[4.0, 2.0]])}, {"diagnosis": np.array([[2.0, 6.0]])}
    >>> agree_on_factors(*sums, n_sites=2, penalty=1.0, nonnegative=True)["diagnosis"].tolist()
    [[1.0, 0.0]]
    """
    free = {mode: (factors[mode] - multipliers[mode] / penalty) / n_sites for mode in factors}
    return {mode: np.maximum(factor, 0.0) for mode, factor in free.items()} if nonnegative else free
