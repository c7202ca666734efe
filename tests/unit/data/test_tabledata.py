"""A table of numbers and classes: what goes in, what is refused, and that errors tell no value."""

import numpy as np
import pandas as pd
import pytest

from multicentre.data.tabledata import TableData
from multicentre.errors import DataError

X = [[1.0, np.nan], [2.0, 3.0], [4.0, 5.0]]


def test_numbers_and_names_make_the_same_table():
    numbered = TableData(X, [0, 2, 1], classes=["a", "b", "c"])
    named = TableData(X, ["a", "c", "b"], classes=["a", "b", "c"])
    assert numbered.y.tolist() == named.y.tolist() == [0, 2, 1]
    assert numbered.digest() == named.digest()
    assert TableData(X, [0, 2, 1]).classes == ("0", "1", "2")
    assert TableData(X, [False, True, False]).classes == ("0", "1")
    assert TableData(X, [0, 0, 0]).classes == ("0", "1")


def test_a_frame_keeps_its_names():
    frame = pd.DataFrame(X, columns=["age", "stage=2"])
    data = TableData(frame, [0, 1, 1], ids=["p1", "p2", "p3"], levels=("stage=1", "stage=2"))
    assert data.parts == {}
    assert data.keep_columns(["stage"]).columns == ("stage=2",)
    with pytest.raises(DataError, match="at least one column must remain"):
        data.keep_columns(["weight"])


def test_taking_rows_keeps_identifiers_and_classes():
    data = TableData(X, [0, 1, 2], ids=["p1", "p2", "p3"], classes=["a", "b", "c"]).take([2, 0])
    assert data.ids.tolist() == ["p3", "p1"]
    assert (data.y.tolist(), data.classes, len(data)) == ([2, 0], ("a", "b", "c"), 2)


def test_arrays_cannot_be_changed_and_the_digest_knows_every_part():
    data = TableData(X, [0, 1, 1])
    with pytest.raises(ValueError, match="read-only"):
        data.y[0] = 1
    others = [TableData(X, [1, 1, 1]), TableData(X, [0, 1, 1], ["a", "a", None]), TableData(np.ones((3, 2)), [0, 1, 1])]
    assert len({data.digest(), *(other.digest() for other in others)}) == 4


@pytest.mark.parametrize(
    ("y", "classes", "said"),
    [
        ([0, 1], None, "shape"),
        ([0, 1, -1], None, "1 of 3"),
        ([0, 1, 0.5], None, "1 of 3"),
        ([0, np.nan, np.inf], None, "2 of 3"),
        ([0, 1, 1000], None, "1 of 3"),
        ([0, 1, 2], ["a", "b"], "1 of 3"),
        (["a", "b", "secret"], ["a", "b"], "1 of 3"),
        (["a", "b", "a"], None, "classes must be declared if y is text; got None"),
        ([0, 1, 1], ["a"], "got 1 unique"),
        ([0, 1, 1], ["a", "a"], "got 1 unique"),
        ([0, 1, 1], ["a", ""], "classes must be 2 to 1000 unique names; got 1 unique of 2"),
    ],
)
def test_unfit_classes_are_refused_without_telling_a_value(y, classes, said):
    with pytest.raises(DataError, match=said) as refused:
        TableData(X, y, classes=classes)
    assert "secret" not in str(refused.value)
