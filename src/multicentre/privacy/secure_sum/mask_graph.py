"""Graph of the sites that mask against each other, for sums that need every site.

Up to 50 sites, every site masks against every other. Among more sites, each one picks some others at random and signs
its picks together with its key. Two sites mask against each other if at least one of them picked the other. The time
per site then grows with the logarithm of the number of sites (Bell et al., CCS 2020).

The coordinator and colluding sites can remove the masks between a colluding site and any other. They read the sum over
the honest sites, and no part of it, as long as the masks between honest sites form a connected graph. The picks of
honest sites are independent, uniform, and drawn at the sites. Neither the coordinator nor the picks of colluding sites
affect them. The probability that the graph of the honest sites is not connected is therefore at most the sum, over all
groups of honest sites, of the probability that no pick leads from the group to the other honest sites or back. The
number of picks is the smallest for which this bound is 2**-40, if a third of the sites collude, or more where the
sites state a larger number.

The bound is about one agreement and about colluding sites that are chosen without knowledge of the picks. A coordinator
that starts m agreements has m attempts.
"""

from __future__ import annotations

import functools
import math
import secrets

import numpy as np
from numpy.typing import NDArray

COMPLETE_UP_TO = 50
"""Largest number of sites that all mask against each other."""

SECURITY_BITS = 40
"""A part of a sum is readable with a probability of at most 2**-40, the usual bound of such protocols."""


def assumed_colluding(n_sites: int, n_colluding: int) -> int:
    """Return the number of colluding sites for which picks are drawn: a third of the sites, or more if so stated."""
    return max(n_sites // 3, n_colluding)


@functools.lru_cache(maxsize=64)
def n_picks(n_sites: int, n_colluding: int = 0) -> int:
    """Return the number of sites that each site picks; 0 if every site masks against every other.

    Parameters
    ----------
    n_sites : int
    n_colluding : int, default 0
        Stated number of sites that may collude with the coordinator; at least a third is assumed.

    Examples
    --------
    >>> [n_picks(n) for n in (50, 100, 200, 1000)]
    [0, 16, 18, 20]
    """
    colluding = assumed_colluding(n_sites, n_colluding)
    # The coordinator states the number of colluding sites. For fewer than two honest sites, the bound holds without any
    # mask, but the stated sites need not collude: any of them could then be cut off.
    if n_sites <= COMPLETE_UP_TO or n_sites - colluding < 2:
        return 0
    for picks in range(1, n_sites // 2):
        if security_bits(n_sites, picks, colluding) >= SECURITY_BITS:
            return picks
    return 0


def security_bits(n_sites: int, picks: int, n_colluding: int) -> float:
    """Return b such that colluding sites can read a part of a sum with a probability of at most 2**-b.

    Parameters
    ----------
    n_sites : int
    picks : int
        Number of sites that each site picks.
    n_colluding : int
        Number of sites that collude with the coordinator.

    Examples
    --------
    >>> security_bits(200, 18, 66) > 40
    True
    """
    honest = n_sites - n_colluding
    if honest < 2:
        return math.inf
    sizes = np.arange(1, honest // 2 + 1)  # of the smaller of the two groups without a mask between them
    log_factorials = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n_sites + 1)))])

    def log_binomial(n: NDArray[np.int64], k: NDArray[np.int64] | int) -> NDArray[np.float64]:
        """Return the logarithm of the number of choices of k among n, minus infinity if k exceeds n."""
        rest = np.maximum(n - k, 0)
        return np.where(n >= k, log_factorials[n] - log_factorials[k] - log_factorials[rest], -np.inf)

    all_picks = log_binomial(np.array([n_sites - 1]), picks)
    of_group = log_binomial(n_sites - 1 - (honest - sizes), picks) - all_picks
    of_others = log_binomial(n_sites - 1 - sizes, picks) - all_picks
    groups = log_binomial(np.full(len(sizes), honest), sizes)
    groups -= np.where(2 * sizes == honest, math.log(2.0), 0.0)  # two halves are one pair of groups
    terms = groups + sizes * of_group + (honest - sizes) * of_others
    return float(-np.logaddexp.reduce(terms) / math.log(2.0))


def draw_picks(n_sites: int, position: int, picks: int) -> NDArray[np.int32]:
    """Return the positions of the sites that one site picks, from the operating system's random numbers.

    Examples
    --------
    >>> 3 in draw_picks(100, 3, 16), len(set(draw_picks(100, 3, 16).tolist()))
    (False, 16)
    """
    drawn = sorted(secrets.SystemRandom().sample(range(n_sites - 1), picks))
    return np.array([place + (place >= position) for place in drawn], dtype=np.int32)


def neighbours(all_picks: NDArray[np.int32], position: int) -> list[int]:
    """Return the positions of the sites that one site masks against, in ascending order.

    Parameters
    ----------
    all_picks : ndarray of int32, shape (n_sites, n_picks)
        Picks of each site. A site that names itself, or a place beyond the sites, has no mask there.
    position : int

    Examples
    --------
    >>> neighbours(np.array([[1], [2], [1]], dtype=np.int32), 1)
    [0, 2]
    """
    picked_by = np.flatnonzero((all_picks == position).any(axis=1)).tolist()
    chosen = {*all_picks[position].tolist(), *picked_by} - {position}
    return sorted(place for place in chosen if 0 <= place < len(all_picks))
