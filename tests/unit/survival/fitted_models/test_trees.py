import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import MessageError
from multicentre.survival.fitted_models import KINDS, Trees
from multicentre.survival.fitted_models.base import pack, unpack
from multicentre.survival.learners.tree import TreeSettings, fit_trees
from support.examples import examples
from support.tree_patients import draw_data, lossless

PATIENTS = lossless(draw_data())
X = PATIENTS.rows
FOREST = fit_trees(PATIENTS, np.random.default_rng(0).random((6, 240)), TreeSettings(min_samples_leaf=10))


def i4(*values):
    return np.array(values, dtype=np.int32)


def stump(**changes):
    fields = {
        "times": np.array([1.0, 2.0]),
        "roots": i4(0),
        "shares": np.ones(1),
        "column": i4(0, -1, -1),
        "threshold": np.zeros(3),
        "left": i4(1, -1, -1),
        "right": i4(2, -1, -1),
        "leaf": i4(-1, 0, 1),
        "curves": np.array([[0.9, 0.8], [0.5, 0.1]]),
    }
    return Trees(**fields | changes)


def test_forests_are_joined_with_shares():
    first, second = FOREST.of_trees(np.array([0, 2]), np.array([3.0, 1.0])), FOREST.of_trees(i4(5), np.ones(1))
    joined = Trees.joined([first, Trees.empty(), second], np.array([2.0, 9.0, 6.0]))
    assert joined.valid(5) is joined
    np.testing.assert_allclose(joined.shares, [3 / 16, 1 / 16, 12 / 16])
    np.testing.assert_allclose(joined.survival(X), 0.25 * first.survival(X) + 0.75 * second.survival(X), atol=1e-12)
    assert Trees.joined([Trees.empty()], np.ones(1)).is_empty
    assert joined.patients == min(first.patients, second.patients)


@examples(30)
@given(st.sets(st.integers(0, 5), min_size=1))
def test_some_trees_of_a_forest_are_those_trees(chosen):
    numbers = np.array(sorted(chosen))
    few = FOREST.of_trees(numbers, np.ones(len(numbers)))
    assert few.valid(5) is few
    expected = FOREST.curves[FOREST.leaves(X)[:, numbers]]
    np.testing.assert_array_equal(few.curves[few.leaves(X)], expected)
    np.testing.assert_allclose(few.survival(X), expected.mean(axis=1), atol=1e-12)
    assert len(few.curves) == (few.leaf >= 0).sum()


def test_trees_travel_as_bytes():
    back = unpack(pack(FOREST), KINDS, 5)
    np.testing.assert_array_equal(back.survival(X), FOREST.survival(X))
    with pytest.raises(MessageError):
        unpack(pack(FOREST), KINDS, 4)


@pytest.mark.parametrize(
    "wrong",
    [
        {"left": i4(0, -1, -1)},
        {"left": i4(2, -1, -1)},
        {"left": i4(3, -1, -1)},
        {"left": i4(1, 2, -1)},
        {"right": i4(2, -1, 0)},
        {"column": i4(1, -1, -1)},
        {"column": i4(0, -2, -1)},
        {"leaf": i4(-1, 0, 2)},
        {"leaf": i4(0, 0, 1)},
        {"leaf": i4(-1, -1, 1)},
        {"roots": i4(1)},
        {"roots": i4()},
        {"shares": np.array([0.5])},
        {"shares": np.array([np.nan])},
        {"roots": i4(0, 1), "shares": np.array([2.0, -1.0])},
        {"roots": i4(0, 2), "shares": np.array([0.5, 0.5])},
        {"threshold": np.array([np.nan, 0.0, 0.0])},
        {"times": np.array([2.0, 1.0])},
        {"times": np.zeros(0), "curves": np.zeros((2, 0))},
        {"curves": np.array([[0.9, 0.8], [0.5, 0.6]])},
        {"curves": np.array([[1.1, 0.8], [0.5, 0.1]])},
        {"curves": np.array([[0.9, 0.8], [0.5, -0.1]])},
        {"curves": np.array([[0.9], [0.5]])},
    ],
)
def test_what_is_no_tree_is_refused(wrong):
    assert stump().valid(1)
    with pytest.raises(MessageError):
        stump(**wrong).valid(1)


def test_a_path_does_not_lead_into_another_tree():
    lost = {"column": i4(0, 0, -1, -1, -1, -1), "left": i4(1, 2, -1, -1, -1, -1), "right": i4(4, 5, -1, -1, -1, -1)}
    lost |= {"roots": i4(0, 3), "shares": np.full(2, 0.5), "threshold": np.zeros(6), "leaf": i4(-1, -1, 0, 1, 0, 1)}
    with pytest.raises(MessageError):
        stump(**lost).valid(1)


def test_a_model_without_columns_is_a_leaf():
    leaf = Trees(np.array([1.0]), i4(0), np.ones(1), i4(-1), np.zeros(1), i4(-1), i4(-1), i4(0), np.array([[0.5]]))
    assert leaf.valid(0).survival(np.zeros((3, 0))).tolist() == [[0.5]] * 3
    assert leaf.restricted_mean(np.zeros((1, 0))).tolist() == [1.0]
