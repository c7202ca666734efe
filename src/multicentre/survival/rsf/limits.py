"""What a site holds against an ask before it counts anything."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import MessageError
from multicentre.survival.rsf import messages as sent

MOST_WORDS = 2**24
MOST_TREES = 10_000
MOST_NODES = 2**22
WORD = 52


def check_sampling(ask: sent.Sampling, n_times: int) -> None:
    """Raise MessageError unless the numbers of trees and of groups of times, and the seed, are in range."""
    if not (0 < ask.n_trees <= MOST_TREES and 0 < ask.n_groups <= n_times and ask.seed >= 0):
        raise MessageError("the number of trees or of groups, or the seed, is out of range", where="Sampling")
    check_words(ask.n_trees * (2 * ask.n_groups + 3))


def check_standing(ask: sent.Standing, n_bins: NDArray[np.int64]) -> None:
    """Raise MessageError unless nodes make trees of these columns, and what is wanted are leaves, each once."""
    if not len(ask.tree) or (ask.tree < 0).any() or (ask.tree >= MOST_TREES).any() or ask.seed < 0:
        raise MessageError("there is no such tree or seed", where="Standing.tree")
    _check_trees(ask, n_bins)
    wanted = ask.wanted
    inside = len(wanted) > 0 and (wanted >= 0).all() and (wanted < len(ask.column)).all()
    if not inside or len(np.unique(wanted)) != len(wanted) or (ask.column[wanted] >= 0).any():
        raise MessageError("what is wanted are not leaves of the trees", where="Standing.wanted")


def check_level(ask: sent.Level, n_bins: NDArray[np.int64], n_times: int) -> None:
    """Raise MessageError unless the trees are in order, and columns, groups of times and bits in range."""
    check_standing(ask, n_bins)
    tried = ask.tried
    if not tried.shape[1] or (tried < 0).any() or (tried >= len(n_bins)).any():
        raise MessageError("there is no such column", where="Level.tried")
    if (ask.bits < 1).any() or (ask.bits > WORD).any() or not 0 < ask.n_groups <= n_times:
        raise MessageError("a count does not fit a word, or there are no such groups", where="Level.bits")


def check_words(n_words: int) -> None:
    """Raise MessageError for an ask whose answer would be more than 128 MiB."""
    if n_words > MOST_WORDS:
        raise MessageError("the answer would be too long", where="Level", mend="Ask for fewer nodes at a time.")


def _check_trees(ask: sent.Standing, n_bins: NDArray[np.int64]) -> None:
    from multicentre.survival.kernels.hazard_rows import is_tree

    ends = np.append(ask.root[1:], len(ask.column))
    if not 0 < len(ask.column) <= MOST_NODES or not len(ask.root):
        raise MessageError("there are no nodes, or too many", where="Standing.column")
    if ask.root[0] != 0 or (ends <= ask.root).any():
        raise MessageError("the trees do not follow each other", where="Standing.root")
    for start, stop in zip(ask.root.tolist(), ends.tolist(), strict=True):
        own = slice(start, stop)
        if not is_tree(ask.column[own], ask.cut[own], ask.left[own], ask.right[own], n_bins):
            raise MessageError("the nodes do not make a tree of these columns and bins", where="Standing")
