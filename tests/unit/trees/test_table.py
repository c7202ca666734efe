"""Tables of nodes: splits, parts, and the checks of what a coordinator sends."""

import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.core.messages import array
from multicentre.errors import MessageError
from multicentre.trees.table import NodeTable, check_leaves, check_splits, is_grown_from
from support.examples import examples


@dataclass(frozen=True)
class Labelled(NodeTable):
    label: np.ndarray = array("label of a node", ("m", 2), dtype="i4")


def i4(*values):
    return np.array(values, dtype=np.int32)


def grow(decisions, n_trees=2):
    """Split leaves of several trees level by level, and return all tables on the way."""
    tables = [Labelled.leaves(n_trees, label=np.zeros((n_trees, 2), dtype=np.int32))]
    number, deepest = 1, range(n_trees)
    for splits in decisions:
        table = tables[-1]
        leaves = [leaf for leaf, is_split in zip(deepest, splits, strict=False) if is_split]
        labels = np.repeat(np.arange(number, number + 2 * len(leaves))[:, None], 2, axis=1)
        table, deepest = table.split(i4(*leaves), {"column": 3, "cut": 1}, {"label": labels})
        assert table.label[deepest].tolist() == labels.tolist()
        tables.append(table)
        number += 2 * len(leaves)
    return tables


decisions = st.lists(st.lists(st.booleans(), max_size=6), max_size=4)


@examples(50)
@given(decisions)
def test_split_leaves_have_their_children_in_the_order_of_splits(decisions):
    tables = grow(decisions)
    for before, after in itertools.pairwise(tables):
        assert is_grown_from(after, before)
        assert is_grown_from(before, after) == (len(after.column) == len(before.column))
    last = tables[-1]
    check_splits(last, np.array([2, 2, 2, 2]))
    inner = np.flatnonzero(last.column >= 0)
    assert len(last.column) == 2 + 2 * len(inner)
    assert (last.left[inner] > inner).all()
    assert (last.cut[inner] == 1).all()


@examples(50)
@given(decisions, decisions)
def test_trees_in_sequence_are_taken_apart_again(one, other):
    first, second = grow(one)[-1], grow(other, 3)[-1]
    both = first.followed_by(second)
    for part, expected in ((both.slice(0, 2), first), (both.slice(2), second), (both.slice(9), Labelled.none())):
        for name, values in expected.fields.items():
            assert np.array_equal(getattr(part, name), values), name


STUMP = NodeTable(i4(0), i4(0, -1, -1), i4(1, 0, 0))


@pytest.mark.parametrize(
    "wrong",
    [
        NodeTable(i4(0), i4(2, -1, -1), i4(1, 0, 0)),
        NodeTable(i4(0), i4(-2, -1, -1), i4(1, 0, 0)),
        NodeTable(i4(0), i4(0, -1, -1), i4(3, 0, 0)),
        NodeTable(i4(0), i4(0, -1, -1), i4(-1, 0, 0)),
        NodeTable(i4(0), i4(0, -1), i4(1, 0)),
    ],
)
def test_other_columns_cuts_and_shapes_are_refused(wrong):
    check_splits(STUMP, np.array([3, 3]))
    with pytest.raises(MessageError):
        check_splits(wrong, np.array([3, 3]))


@pytest.mark.parametrize("wanted", [(), (0,), (1, 1), (3,), (-1,)])
def test_nodes_that_are_no_leaves_are_refused(wanted):
    check_leaves(STUMP, i4(2, 1), 1)
    with pytest.raises(MessageError, match="different leaves"):
        check_leaves(STUMP, i4(*wanted))
