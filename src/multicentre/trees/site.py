"""Trees at a site: those that a fit finished, and those that grow."""

from __future__ import annotations

from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.steps import SitePart
from multicentre.errors import ConfigurationError
from multicentre.trees.table import Level, NodeTable, is_grown_from

Integers = NDArray[np.int32]
T = TypeVar("T", bound=NodeTable)


class TreePart(SitePart):
    """Base of the site parts of boosted trees.

    In each round a site answers for one set of growing trees, and refuses any other: the difference of the sums of two
    sets could be that of few patients.
    """

    _grown: tuple[int, Any] | None = None

    def finished_trees(self) -> NodeTable:
        """Return the site's state, which contains the trees of the fit."""
        raise NotImplementedError

    def add_trees(self, new: Any) -> None:
        """Add checked trees to the site's state."""
        raise NotImplementedError

    def take_level(self, request: Level, kind: type[T], n_groups: int = 1) -> tuple[T, Integers]:
        """Store the trees of a checked request, and return the growing ones and their wanted leaves."""
        trees, n_finished = request.only(kind), len(request.roots) - n_groups
        growing = trees.slice(n_finished)
        self.take_trees(request.since, trees.slice(0, n_finished), n_groups)
        self._take_growth(len(self.finished_trees().roots) // n_groups, growing)
        return growing, request.wanted - request.roots[n_finished]

    def take_trees(self, since: int, trees: NodeTable, n_groups: int = 1) -> None:
        """Add the trees that the site lacks to its state; `trees` are all finished ones after `since` rounds."""
        stored = self.finished_trees()
        n_stored, start = len(stored.roots), since * n_groups
        if n_stored == start and not len(trees.roots):
            return
        n_again = min(n_stored - start, len(trees.roots))
        again = stored.only(type(trees)).slice(start, start + n_again)
        same = n_again == 0 or _are_equal(again, trees.slice(0, n_again))
        if n_again < 0 or not same:
            raise ConfigurationError(
                "trees must continue those of the site; got a sequence with skipped or changed trees",
                where="Finished",
                hint="Begin the fit again.",
            )
        if len(trees.roots) < n_stored - start:
            raise ConfigurationError(
                f"trees must be at least the {n_stored - start} that the site has; got {len(trees.roots)}",
                where="Finished",
                hint="Begin the fit again.",
            )
        if n_again == len(trees.roots):
            return
        new, round_number = trees.slice(n_again), n_stored // n_groups
        is_other = self._grown and self._grown[0] == round_number
        if self._grown and is_other and not is_grown_from(new.slice(0, n_groups), self._grown[1]):
            raise ConfigurationError(
                "finished trees must be those that grew; got different trees",
                where="Finished",
                hint="Begin a new fit.",
            )
        self.add_trees(new)

    def _take_growth(self, number: int, growing: NodeTable) -> None:
        """Store the growing trees of round `number`; raise ConfigurationError unless they grow from the last ones."""
        last, before = self._grown or (number, growing)
        if last > number or (last == number and not is_grown_from(growing, before)):
            raise ConfigurationError(
                "trees must grow by splits of leaves only; got changed splits",
                where="Level",
                hint="Begin a new fit.",
            )
        self._grown = number, growing


def _are_equal(one: NodeTable, other: NodeTable) -> bool:
    # Bytes are compared faster than numbers; trees that a coordinator sends again have the same bits.
    return all(getattr(one, name).tobytes() == values.tobytes() for name, values in other.fields.items())
