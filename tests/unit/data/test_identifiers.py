"""Identifiers beside any kind of data: what they take, that they follow the records, and that they show nothing."""

import datetime
import pickle

import numpy as np
import pandas as pd
import pytest

from multicentre.data import EventTensor, Identifiers, MultiViewData, SurvivalData, TableData
from multicentre.data.concatenate import concatenate
from multicentre.data.identifiers import IdentifiersReadAsNumbers
from multicentre.errors import DataError

CONTAINERS = {
    "table": TableData([[1.0], [2.0], [3.0]], [0, 1, 1]),
    "survival": SurvivalData([[1.0], [2.0], [3.0]], [1.0, 2.0, 3.0], [0, 1, 1]),
    "views": MultiViewData({"blood": np.array([[1.0], [2.0], [3.0]])}),
    "events": EventTensor([[0, 0, 0], [1, 0, 0], [2, 0, 0]], [1.0, 2.0, 3.0], {"drug": ["a"], "code": ["b"]}),
}
all_containers = pytest.mark.parametrize("data", CONTAINERS.values(), ids=CONTAINERS)


def test_dates_texts_whole_numbers_and_what_is_missing():
    values = ["007", 7, np.int64(7), 7.0, None, np.nan, pd.NA, pd.NaT, np.datetime64("NaT", "D")]
    values += [datetime.date(1950, 1, 31), pd.Timestamp("1950-01-31 10:00"), np.datetime64("1950-01-31"), "Ægir"]
    assert Identifiers(values).column("identifier") == [
        *["007", "7", "7", "7", None, None, None, None, None],
        *["1950-01-31", "1950-01-31", "1950-01-31", "Ægir"],
    ]


@pytest.mark.parametrize("strange", [7.5, True, b"secret", ["secret"], np.inf, 2.0**60])
def test_what_cannot_be_an_identifier_is_refused_without_being_told(strange):
    with pytest.raises(DataError, match="identifiers must be text, dates or integers; 1 of 2 are not") as refused:
        Identifiers(["a", strange])
    assert "secret" not in str(refused.value)


def test_columns_are_named_and_of_one_length():
    frame = pd.DataFrame({"patient": ["a", "b"], "birth_date": pd.to_datetime(["1950-01-31", None])})
    keys = Identifiers(frame)
    assert keys.names == ("patient", "birth_date")
    assert keys.column("birth_date") == ["1950-01-31", None]
    with pytest.raises(DataError, match="the identifier must be one of patient, birth_date; got 'name'"):
        keys.column("name")
    for uneven in ({"a": ["1"], "b": ["1", "2"]}, {}, []):
        with pytest.raises(DataError):
            Identifiers(uneven)


@all_containers
def test_identifiers_follow_the_records(data):
    carrying = data.with_identifier(["x", None, "x"])
    assert type(carrying) is type(data)
    assert data.identifier is None
    assert carrying.take([2, 1]).identifier.column("identifier") == ["x", None]
    assert carrying.take(np.array([True, False, True])).identifier.column("identifier") == ["x", "x"]
    assert carrying.without_identifier().identifier is None
    assert carrying.without_identifier().digest() == data.digest()
    assert carrying.digest() != data.digest() != data.with_identifier(["x", None, "y"]).digest()
    with pytest.raises(DataError, match="identifiers must have one value per record"):
        data.with_identifier(["x", "y"])


@all_containers
def test_restricting_columns_keeps_them(data):
    name = {"TableData": "x0", "SurvivalData": "x0", "EventTensor": "drug"}.get(type(data).__name__)
    if name is None:
        name = next(iter(data.columns["blood"]))
    kept = data.with_identifier(["x", None, "x"]).keep_columns([name, "code"])
    assert kept.identifier.column("identifier") == ["x", None, "x"]


@all_containers
def test_stacking_joins_them_where_all_sites_have_the_same(data):
    one, other = data.with_identifier(["x", None, "x"]), data.with_identifier(["y", "z", "x"])
    both = concatenate({"lyon": one, "oslo": other})
    assert both.identifier.column("identifier") == ["x", None, "x", "y", "z", "x"]
    assert concatenate({"lyon": one, "oslo": data}).identifier is None
    assert concatenate({"lyon": one, "oslo": data.with_identifier({"name": ["a", "b", "c"]})}).identifier is None


@all_containers
def test_nothing_is_printed(data):
    carrying = data.with_identifier(["secret", None, "secret"])
    assert "secret" not in repr(carrying) + str(carrying) + repr(carrying.identifier)


def test_a_table_takes_them_at_once_and_a_number_to_predict():
    data = TableData([[1.0], [2.0]], [0.5, 7.0], identifier=["x", "x"], outcome="number")
    assert (data.outcome, data.classes, data.y.tolist()) == ("number", (), [0.5, 7.0])
    taken = pickle.loads(pickle.dumps(data)).take([1])
    assert (taken.outcome, taken.y.tolist(), taken.identifier.column("identifier")) == ("number", [7.0], ["x"])
    assert repr(data) == "TableData(2 records; 1 column, a number)"
    for y, options in (([0.5, np.nan], {}), ([0.5], {}), (["a", "b"], {}), ([0.5, 1.0], {"classes": ["a", "b"]})):
        with pytest.raises(DataError):
            TableData([[1.0], [2.0]], y, outcome="number", **options)
    with pytest.raises(DataError, match="outcome must be 'class', or 'number' without classes; got 'time'"):
        TableData([[1.0]], [0.5], outcome="time")


def test_numbers_are_taken_with_a_warning():
    with pytest.warns(IdentifiersReadAsNumbers, match="identifier: identifiers are numbers"):
        data = CONTAINERS["table"].with_identifier([1, 2, None])
    with pytest.warns(IdentifiersReadAsNumbers, match="^b: "):
        CONTAINERS["table"].with_identifier({"a": ["1", "2", "3"], "b": [np.nan, 2.0, 3.0]})
    assert data.take([1, 0]).identifier.column("identifier") == ["2", "1"]
    assert Identifiers(["1", None, np.nan]).numbered == ()
