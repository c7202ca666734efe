"""Local fitting near the global factors: the site's part of elastic averaging."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from multicentre.phenotyping.kernels.factors import SMALLEST, normalise_columns
from multicentre.phenotyping.kernels.hals import solve_rows
from multicentre.phenotyping.kernels.inner import hadamard_gram
from multicentre.phenotyping.kernels.memberships import fit_memberships
from multicentre.phenotyping.kernels.mttkrp import mttkrp
from multicentre.phenotyping.kernels.sparse import SparseTensor

Floats = NDArray[np.float64]


def fit_near(
    tensor: SparseTensor,
    centre: Sequence[Floats],
    memberships: Floats,
    *,
    n_passes: int,
    pull: float,
    n_sweeps: int,
    sparsity: float,
    count: Callable[[Floats, Sequence[Floats], int], None] = lambda memberships, factors, axis: None,
) -> tuple[Floats, list[Floats]]:
    """Fit memberships and local factors that are drawn to the global ones (equations 8 and 15).

    Each pass fits the memberships, then each factor by ``min 1/2 ||O - X||^2 + w/2 ||B - B hat||^2`` with ``w`` the
    elastic strength times the mean diagonal entry of the curvature.

    Parameters
    ----------
    tensor : SparseTensor
    centre : sequence of arrays of shape (codes, r)
        Global factors; the local ones start from them in every round.
    memberships : array of shape (n, r)
    n_passes : int
        The paper's ``tau``.
    pull : float
        ``g``; the paper's gamma in units of the curvature.
    n_sweeps : int
    sparsity : float
    count : callable, optional
        Called with memberships, factors and mode before each factor is fitted, to count the patients behind it.

    Returns
    -------
    memberships : array of shape (n, r)
    factors : list of arrays of shape (codes, r)
        Columns of unit length; their lengths have gone into the memberships.
    """
    rank = memberships.shape[1]
    local = list(centre)
    for _ in range(n_passes):
        memberships = fit_memberships(tensor, local, memberships, n_sweeps=n_sweeps, sparsity=sparsity)
        for axis, target in enumerate(centre):
            count(memberships, local, axis + 1)
            others = [factor for place, factor in enumerate(local) if place != axis]
            gram = hadamard_gram([memberships, *others])
            weight = pull * float(np.trace(gram)) / rank
            products = mttkrp(tensor, [memberships, *local], axis + 1) + weight * target
            solved = solve_rows(products, gram + weight * np.eye(rank), np.maximum(local[axis], SMALLEST), n_sweeps)
            local[axis], lengths = normalise_columns(solved)
            memberships = memberships * lengths
    return memberships, local
