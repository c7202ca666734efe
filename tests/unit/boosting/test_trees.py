"""A stranger's ensemble is checked before it is applied."""

from dataclasses import replace

import numpy as np
import pytest

from multicentre.boosting import Ensemble
from multicentre.core.wire import decode, encode
from multicentre.errors import DataError, MessageError


def i4(*values):
    return np.array(values, dtype=np.int32)


def f4(*values):
    return np.array(values, dtype=np.float32)


def stump(**changes):
    sides = np.array([1, 0, 0], dtype=np.uint8)
    whole = Ensemble(
        "binary:logistic", ("age", "sex"), ("no", "yes"), f4(0.5), i4(0), i4(0), i4(1, -1, -1), f4(0.5, 0, 0), sides,
        f4(0, -1, 2), f4(3, 0, 0), f4(9, 4, 5), f4(0, -1, 2),
    )  # fmt: skip
    return replace(whole, **changes)


def test_values_below_the_threshold_go_left_and_missing_ones_where_they_should():
    X = [[0, 0.49], [0, 0.5], [0, np.nan]]
    assert stump().check().predict_margin(X).ravel().tolist() == [-0.5, 2.5, -0.5]


def test_it_travels():
    again = decode(Ensemble, encode(stump())).check(("age", "sex"))
    assert again.predict_margin([[1, 1]]).tolist() == [[2.5]]


@pytest.mark.parametrize(
    "changes",
    [
        {"objective": "survival:cox"},
        {"objective": "reg:squarederror"},
        {"classes": ("no", "yes", "perhaps")},
        {"classes": ()},
        {"base": f4(0.5, 0.5)},
        {"base": f4(np.nan)},
        {"group": i4(1)},
        {"group": i4(-1)},
        {"group": i4(0, 0)},
        {"roots": i4(1)},
        {"roots": i4(0, 2)},
        {"column": i4(2, -1, -1)},
        {"column": i4(1, -2, -1)},
        {"column": i4(1, 1, -1)},
        {"column": i4(-1, -1, -1)},
        {"threshold": f4(np.nan, 0, 0)},
        {"value": f4(0, np.inf, 0)},
        {"value": np.zeros(3)},
        {"value": f4(0, 0)},
    ],
    ids=repr,
)
def test_what_is_out_of_range_is_refused(changes):
    with pytest.raises(MessageError):
        stump(**changes).check()


def test_a_tree_that_is_too_deep_is_refused():
    column = i4(*[each for _ in range(13) for each in (0, -1)], -1)
    column = i4(0, *[each for _ in range(12) for each in (-1, 0)], -1, -1)
    nodes = f4(*np.zeros(len(column)))
    deep = stump(
        column=column, threshold=nodes, value=nodes, gain=nodes, cover=nodes, weight=nodes,
        default_left=nodes.astype(np.uint8),
    )  # fmt: skip
    with pytest.raises(MessageError, match="a depth of at most 12"):
        deep.check()


def test_other_columns_are_refused():
    with pytest.raises(MessageError, match="columns must be the 2 of the fit"):
        stump().check(("sex", "age"))
    with pytest.raises(DataError, match="2 columns"):
        stump().predict_margin([[1.0]])
    with pytest.raises(DataError, match="single precision"):
        stump().predict_margin([[1.0, 1e39]])
