"""The published algorithm, errata mended: stochastic gradient descent over the entries above zero.

It minimises ``1/2 sum over entries above zero of (x - o)^2``, for which a constant tensor is nearly best: zeros are
never looked at. It is here to be compared with.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import NotConverged
from multicentre.phenotyping.kernels.psgd import pass_entries
from multicentre.phenotyping.kernels.sparse import SparseTensor

Floats = NDArray[np.float64]
LARGEST = 1e8


@dataclass(frozen=True)
class Descent:
    """How a site descends in one round.

    Parameters
    ----------
    n_passes : int
        The paper's ``tau``.
    step : float
        The paper's ``eta``.
    pull : float
        The paper's ``gamma``; a row that is visited n times in a pass is pulled by ``gamma / n`` at each visit.
    shrinkage : float
        The paper's ``mu``.
    nonnegative : bool
        The paper leaves factors free.
    """

    n_passes: int
    step: float
    pull: float
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
    how: Descent,
    generator: np.random.Generator,
) -> tuple[Floats, list[Floats]]:
    """Run the passes of one round: equations 13, 14, 16 and 17.

    Parameters
    ----------
    tensor : SparseTensor
    memberships : array of shape (n, r)
    local, targets : sequences of arrays of shape (codes, r)
        The site's own factors, and the global ones.
    how : Descent
    generator : numpy.random.Generator
        Of the order of the entries, drawn anew for every pass.

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
        order = generator.permutation(tensor.nnz)
        memberships, factors = pass_entries(
            tensor, order, memberships, factors, how.step, how.pull, targets, nonnegative=how.nonnegative
        )
        if not all(np.abs(part).max(initial=0.0) < LARGEST for part in (memberships, *factors)):
            raise NotConverged(
                "stochastic gradient descent diverged", where="pass_entries", mend="Lower learning_rate tenfold."
            )
        memberships = shrink_columns(memberships, how.step * how.shrinkage)
    return memberships, factors


def draw_scaled(sizes: Mapping[str, int], rank: int, mean: float, seed: int) -> tuple[dict[str, Floats], float]:
    """Draw factors from U(0, c) such that the mean prediction is the mean entry, and return c.

    Parameters
    ----------
    sizes : mapping from str to int
        Codes of every mode.
    rank : int
    mean : float
        Mean of the entries above zero.
    seed : int

    Examples
    --------
    >>> drawn, scale = draw_scaled({"a": 2, "b": 3}, rank=4, mean=0.5, seed=0)
    >>> scale
    1.0
    """
    n_modes = len(sizes) + 1
    scale = float((mean / (rank * 0.5**n_modes)) ** (1 / n_modes))
    generator = np.random.default_rng(seed)
    return {mode: scale * generator.random((size, rank)) for mode, size in sizes.items()}, scale
