"""Tables of nodes: the form in which trees are sent, grown and stored.

Nodes are listed tree by tree. The children of a tree's j-th split, in the order of its nodes, are its nodes 1 + 2 j and
2 + 2 j, so that the columns of the splits determine the shape of a tree.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from multicentre.core.messages import Message, array, count
from multicentre.errors import MessageError

Integers = NDArray[np.int32]
Sums = NDArray[np.int64]
# Largest depth of boosted trees: the last request is then for at most 2**11 leaves, which bounds the size of an answer.
MAX_DEPTH = 12
# Largest number of nodes: a bound of the memory that a model takes.
MAX_NODES = 2**24
# Fields that determine where a record goes.
SPLIT = ("column", "cut", "default_left")
K = TypeVar("K", bound=Message)


@dataclass(frozen=True)
class NodeTable(Message):
    """Trees one after the other, on bins; a subclass adds fields with one entry per node."""

    max_depth: ClassVar[int] = MAX_DEPTH
    roots: Integers = array("first node of every tree", ("t",), dtype="i4")
    column: Integers = array("column of a node's split, -1 at a leaf", ("m",), dtype="i4")
    cut: Integers = array("last bin of the left side", ("m",), dtype="i4")

    @classmethod
    @cache
    def none(cls) -> Self:
        """Return no trees."""
        declared = cls.declarations().items()
        return cls(**{name: np.zeros([0] * len(each.shape), dtype=each.dtype) for name, each in declared})

    @classmethod
    def leaves(cls, n_trees: int, **fields: Any) -> Self:
        """Return trees without splits; fields that are not given are 0."""
        empty = cls.none().fields
        zeros = {name: np.zeros((n_trees, *each.shape[1:]), dtype=each.dtype) for name, each in empty.items()}
        roots = {"roots": np.arange(n_trees, dtype=np.int32), "column": np.full(n_trees, -1, dtype=np.int32)}
        return cls(**{**zeros, **roots, **fields})

    @cached_property
    def left(self) -> Integers:
        """Left child of every node, -1 at a leaf; the right child follows it."""
        return find_children(self.roots, self.column, self.max_depth)

    @property
    def right(self) -> Integers:
        """Right child of every node, -1 at a leaf."""
        return np.where(self.left < 0, np.int32(-1), self.left + np.int32(1)).astype(np.int32)

    @property
    def fields(self) -> dict[str, Any]:
        """Arrays of the trees, by field."""
        return self.fields_for(type(self))

    def fields_for(self, kind: type[Message]) -> dict[str, Any]:
        """Return the fields that a kind of message has too."""
        return {name: getattr(self, name) for name in self.declarations() if name in kind.declarations()}

    def only(self, kind: type[K]) -> K:
        """Return the trees without the fields that a kind of trees lacks."""
        return kind(**self.fields_for(kind))

    def slice(self, start: int, stop: int | None = None) -> Self:
        """Return the trees from `start` to before `stop`, as arrays that may be written.

        Kernels are compiled once more for arrays that may not, such as those of a message that was decoded.
        """
        n_trees = len(self.roots)
        stop = n_trees if stop is None else min(stop, n_trees)
        if start >= stop:
            return self.none()
        root, end = self.roots[start], self.roots[stop] if stop < n_trees else len(self.column)
        nodes = {name: values[root:end].copy() for name, values in self._nodes.items()}
        return type(self)(roots=self.roots[start:stop] - root, **nodes)

    def followed_by(self, other: Self) -> Self:
        """Return these trees and others after them."""
        if not len(self.roots):
            return other
        roots = np.concatenate([self.roots, other.roots + np.int32(len(self.column))])
        nodes = {name: np.concatenate([values, getattr(other, name)]) for name, values in self._nodes.items()}
        return type(self)(roots=roots, **nodes)

    def split(self, leaves: Integers, at: Mapping[str, Any], below: Mapping[str, Any]) -> tuple[Self, Integers]:
        """Split leaves of the deepest level, in increasing order, and return the trees and the 2 s children.

        `at` are values of the split nodes, s per field, and `below` those of the children; others are 0.
        """
        ends = np.append(self.roots[1:], len(self.column))
        places = np.repeat(ends[np.searchsorted(self.roots, leaves, side="right") - 1], 2)
        children = (places + np.arange(len(places))).astype(np.int32)
        is_old = np.ones(len(self.column) + len(children), dtype=np.bool_)
        is_old[children] = False
        new, nodes = {"column": np.int32(-1), **below}, {}
        for name, values in self._nodes.items():
            changed = values.copy()
            if name in at:
                changed[leaves] = at[name]
            nodes[name] = np.zeros((len(is_old), *values.shape[1:]), dtype=values.dtype)
            nodes[name][is_old] = changed
            if name in new:
                nodes[name][children] = new[name]
        roots = self.roots + 2 * np.searchsorted(leaves, self.roots).astype(np.int32)
        return type(self)(roots=roots, **nodes), children

    @property
    def _nodes(self) -> dict[str, NDArray[Any]]:
        """Fields with one entry per node."""
        return {name: getattr(self, name) for name, each in self.declarations().items() if each.shape[:1] == ("m",)}


@dataclass(frozen=True)
class Level(NodeTable):
    """Trees finished after the first `since` rounds, followed by the growing ones, and the leaves to sum."""

    since: int = count("rounds that the site already has")
    wanted: Integers = array("leaves whose sums are wanted", ("s",), dtype="i4")

    @classmethod
    def of(cls, since: int, finished: NodeTable, growing: NodeTable, wanted: Integers, **options: Any) -> Self:
        """Return the request; `wanted` are nodes of the growing trees."""
        both = finished.followed_by(growing)
        leaves = np.asarray(wanted, dtype=np.int32) + np.int32(len(finished.column))
        return cls(**both.fields_for(cls), since=since, wanted=leaves, **options)


def find_children(roots: Integers, column: Integers, max_depth: int = MAX_DEPTH) -> Integers:
    """Return the left child of each node, -1 at a leaf; raise MessageError unless nodes are trees of at most a depth.

    Examples
    --------
    >>> find_children(np.array([0, 3], dtype=np.int32), np.array([5, -1, -1, -1], dtype=np.int32)).tolist()
    [1, -1, -1, -1]
    """
    from multicentre.trees.kernels.shape import place_children

    if len(column) > MAX_NODES:
        raise MessageError(f"trees must have at most {MAX_NODES} nodes; got {len(column)}", where="roots")
    left, depth = place_children(roots, column)
    if depth < 0:
        raise MessageError("nodes must form trees, in the order of their splits; got a different order", where="column")
    if depth > max_depth:
        raise MessageError(
            f"trees must have a depth of at most {max_depth}; got a deeper one", where="column", hint="Lower max_depth."
        )
    return left


def check_splits(trees: NodeTable, n_cuts: Sums, *, lowest: int = 0) -> None:
    """Raise MessageError unless nodes form trees, and each cut is one of its column's: `lowest` to `n_cuts` - 1."""
    from multicentre.trees.kernels.shape import find_wrong_split

    wrong = find_wrong_split(trees.column, trees.cut, lowest, n_cuts)
    if wrong == 1:
        raise MessageError(
            f"columns of splits must be from 0 to {len(n_cuts) - 1}; got a column outside", where="column"
        )
    if wrong == 2:
        raise MessageError("cuts of splits must be bins of their column; got a bin outside", where="cut")
    trees.left  # noqa: B018 - raises MessageError unless the nodes are trees


def check_leaves(trees: NodeTable, wanted: Integers, start: int = 0) -> None:
    """Raise MessageError unless there are wanted nodes, and all are different leaves from node `start` on."""
    inside = len(wanted) > 0 and start <= wanted.min() and wanted.max() < len(trees.column)
    if not inside or (trees.column[wanted] >= 0).any() or np.bincount(wanted).max() > 1:
        raise MessageError("wanted must be different leaves of the growing trees; got other nodes", where="wanted")


def is_grown_from(trees: NodeTable, before: NodeTable) -> bool:
    """Return whether trees follow from earlier ones by splits of leaves only.

    Examples
    --------
    >>> i4 = lambda *v: np.array(v, dtype=np.int32)
    >>> leaf, stump = NodeTable(i4(0), i4(-1), i4(0)), NodeTable(i4(0), i4(2, -1, -1), i4(1, 0, 0))
    >>> is_grown_from(stump, leaf), is_grown_from(leaf, stump)
    (True, False)
    """
    if len(trees.roots) != len(before.roots):
        return False
    ends, earlier = ([*each.roots.tolist()[1:], len(each.column)] for each in (trees, before))
    pairs = [(getattr(trees, name), values) for name in SPLIT if (values := getattr(before, name, None)) is not None]
    for root, end, start, stop in zip(trees.roots.tolist(), ends, before.roots.tolist(), earlier, strict=True):
        # A later split of a leaf before the last split node would renumber the children of that node.
        n_fixed = int(np.flatnonzero(before.column[start:stop] >= 0).max(initial=-1)) + 1
        same = (
            one[root : root + n_fixed].tobytes() == other[start : start + n_fixed].tobytes() for one, other in pairs
        )
        if end - root < stop - start or not all(same):
            return False
    return True
