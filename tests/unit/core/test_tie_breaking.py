import numpy as np
import pytest

from multicentre.core.tie_breaking import TIE, first_largest, first_least, is_less

INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(
    ("scores", "first"),
    [
        ([2.0, 1.0, 3.0], 1),
        ([1.0 + 5e-10, 1.0, 2.0], 0),  # tied, and the first is taken
        ([1.0 + 2e-9, 1.0, 2.0], 1),
        ([-1.0, -1.0 - 2e-9], 1),
        ([-1.0, -1.0 - 5e-10], 0),
        ([1e-12, 0.0], 1),  # no score is near 0 by its own magnitude
        ([NAN, INF, 5.0], 2),
        ([NAN, INF], 0),
        ([0.0], 0),
    ],
)
def test_the_first_of_those_that_differ_by_rounding_is_taken(scores, first):
    assert first_least(scores) == first
    assert first_largest(-np.array(scores)) == first


def test_the_size_of_the_terms_decides_where_scores_cancel():
    assert first_least([1e-10, 0.0], size=1.0) == 0
    assert first_least([1e-10, 0.0], size=0.01) == 1
    assert first_largest([0.0, 1e-10], size=1.0) == 0
    assert first_largest([0.0, 1e-10]) == 1
    assert first_least([100.0 + 5e-8, 100.0], size=1e-3) == 0  # the magnitude is larger than the size


@pytest.mark.parametrize("dtype", ["u1", "i8", "f4", "b1"])
def test_scores_of_any_type_are_compared_as_real_numbers(dtype):
    """The negative of an unsigned number would wrap around."""
    scores = np.array([1, 0, 1], dtype=dtype)
    assert first_least(scores) == 1
    assert first_largest(scores) == 0
    assert first_largest(np.array([0, 1, 1], dtype=dtype)) == 1
    assert first_largest([0, 1, 2]) == 2
    assert first_least([2, 1, 1]) == 1


def test_an_axis_is_chosen_along():
    scores = np.array([[3.0, 1.0], [2.0, 5.0], [2.0, 1.0]])
    assert first_least(scores).tolist() == [1, 0, 1]
    assert first_least(scores, axis=0).tolist() == [1, 0]
    assert first_largest(scores, axis=0).tolist() == [0, 1]


@pytest.mark.parametrize(
    ("score", "other", "less"),
    [
        (1.0, 2.0, True),
        (2.0, 1.0, False),
        (1.0 - 0.5 * TIE, 1.0, False),
        (1.0 - TIE, 1.0, False),
        (1.0 - 2 * TIE, 1.0, True),
        (-1.0 - 0.5 * TIE, -1.0, False),
        (-1.0 - 2 * TIE, -1.0, True),
        (1.0, INF, True),
        (INF, INF, False),
        (-INF, 0.0, True),
        (1.0, -INF, False),
        (NAN, 1.0, False),
    ],
)
def test_less_means_by_more_than_rounding(score, other, less):
    assert is_less(score, other) is less
