"""Patients with times to an event: what is taken, what is refused, and that no message shows a value."""

import traceback

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.data import SurvivalData
from multicentre.data.survival import checked_events, checked_times
from multicentre.data.table import checked_columns, encode_frame
from multicentre.errors import DataError

SECRET = 7654321.0


def patients(n=6, **kwargs):
    values = np.random.default_rng(0).normal(size=(n, 2))
    values[0, 1] = np.nan
    given_ = {"ids": range(n), "columns": ["age", "sex=f"], "unit": "days"} | kwargs
    return SurvivalData(values, np.arange(n) + 0.5, np.arange(n) % 3, **given_)


def frame():
    return pd.DataFrame(
        {
            "age": [61, 70, 55],
            "sex": ["f", "m", None],
            "stage": pd.array([1, None, 2], dtype="Int64"),
            "t": [12.0, 30.0, 0.0],
            "died": [True, False, True],
            "who": ["007", "7", "x"],
        }
    )


LEVELS = {"sex": ["m", "f"], "stage": [1, 2]}


def test_arrays_are_kept_as_numbers_that_nobody_can_change():
    data = patients()
    assert data.columns == ("age", "sex=f")
    assert data.parts == {"an event": int(data.event.astype(bool).sum())}
    assert data.event.tolist() == [0, 1, 2, 0, 1, 2]
    assert data.outcome["event"].tolist() == [False, True, False, False, True, False]
    assert data.outcome["time"].tolist() == data.time.tolist()
    assert repr(data) == "SurvivalData(6 patients, 4 events; 2 columns)"
    for array in (data.X, data.time, data.event):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def test_the_caller_s_arrays_stay_the_caller_s():
    X, time, event = np.ones((2, 1)), np.ones(2), np.ones(2, dtype=int)
    data = SurvivalData(X, time, event)
    X[:], time[:], event[:] = 9.0, 9.0, 0
    assert data.X.tolist() == [[1.0], [1.0]]
    assert data.time.tolist() == [1.0, 1.0]
    assert data.event.tolist() == [1, 1]


def test_columns_of_a_frame_become_numbers_and_levels():
    data = SurvivalData.from_frame(frame(), time="t", event="died", categories=LEVELS, id_column="who", unit="days")
    assert data.columns == ("age", "sex=m", "sex=f", "stage=1", "stage=2")
    gap = [np.nan, np.nan]
    np.testing.assert_array_equal(data.X, [[61, 0, 1, 1, 0], [70, 1, 0, *gap], [55, *gap, 0, 1]])
    assert data.ids.tolist() == ["007", "7", "x"]
    assert (data.unit, data.event.tolist(), data.time.tolist()) == ("days", [1, 0, 1], [12.0, 30.0, 0.0])


@pytest.mark.parametrize("dtype", ["object", "string", "category"])
def test_levels_are_found_whatever_type_holds_the_texts(dtype):
    column = pd.DataFrame({"sex": pd.Series(["f", None, "m"], dtype=dtype)})
    values, names = encode_frame(column, ["sex"], {"sex": ("f", "m")})
    np.testing.assert_array_equal(values, [[1.0, 0.0], [np.nan, np.nan], [0.0, 1.0]])
    assert names == ("sex=f", "sex=m")


def test_columns_and_their_order_are_those_asked_for():
    data = SurvivalData.from_frame(frame(), time="t", event="died", columns=["stage", "age"])
    assert data.columns == ("stage", "age")
    assert np.isnan(data.X[1, 0])


@pytest.mark.parametrize(
    ("change", "where", "what"),
    [
        (
            {"categories": {"sex": ["f"], "stage": [1]}},
            "",
            "1 of 3 entries of 'sex' is a level that was not declared (row 2); 1 of 3 entries of 'stage' is",
        ),
        ({"categories": {"stage": [1, 2]}}, "", "no entry of 'sex' is a number"),
        ({"columns": ["age", "weight"]}, "", "'weight' must be a column of the table; it is missing"),
        ({"categories": {"weight": ["low"]}}, "", "'weight' must be a column of the table; it is missing"),
        ({"time": "months"}, "", "'months' must be a column of the table; it is missing"),
        ({"id_column": "patient"}, "", "'patient' must be a column of the table; it is missing"),
    ],
)
def test_a_frame_that_does_not_fit_is_refused_by_name(change, where, what):
    with pytest.raises(DataError) as caught:
        SurvivalData.from_frame(frame().drop(columns="who"), **{"time": "t", "event": "died"} | change)
    assert caught.value.where == where
    assert what in caught.value.what


@pytest.mark.parametrize(
    ("time", "told"),
    [
        ([1.0, -SECRET, 2.0], "times must be finite and non-negative; 0 of 3 are missing or infinite, 1 negative"),
        (
            [np.nan, -SECRET, np.inf],
            "times must be finite and non-negative; 2 of 3 are missing or infinite, 1 negative",
        ),
        ([SECRET, 1.0], "time must have shape"),
        ([SECRET, "x7654321", 1.0], "1 of 3 entries of 'time' is not a number (row 2)"),
    ],
)
def test_times_that_are_none_are_counted_and_not_shown(time, told):
    with pytest.raises(DataError) as caught:
        checked_times(time, 3)
    assert told in str(caught.value)
    assert caught.value.where == "time"
    assert "7654321" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("unfit", [np.nan, -1, 0.5, 101, np.inf])
def test_events_that_are_none_are_counted(unfit):
    with pytest.raises(DataError, match="events must be integers from 0 to 100; 1 of 3 are not"):
        checked_events([1, unfit, 0], 3)
    assert checked_events([100, 0, True], 3).tolist() == [100, 0, 1]


@pytest.mark.parametrize(
    ("X", "columns", "what"),
    [
        ([[1.0, np.inf]], None, "infinite"),
        ([["a", 1.0]], None, "all entries must be numbers"),
        ([1.0, 2.0], None, "X must have shape"),
        (np.zeros((0, 2)), None, "X must have shape"),
        (np.zeros((2, 0)), None, "X must have shape"),
        ([[1.0, 2.0]], ["age"], "columns must have 2 unique names; got 1"),
        ([[1.0, 2.0]], ["age", "age"], "columns must have 2 unique names; got 1"),
        ([[1.0, 2.0]], ["age", ""], "columns must have 2 unique names; got 1"),
    ],
)
def test_columns_that_are_no_table_are_refused(X, columns, what):
    with pytest.raises(DataError, match=what):
        checked_columns(X, columns)


def test_nobody_and_repeated_identifiers_are_refused():
    with pytest.raises(DataError):
        SurvivalData(np.zeros((0, 1)), [], [])
    with pytest.raises(DataError, match="ids must be unique and non-empty; 5 are repeated, 0 are empty"):
        patients(ids=["a"] * 6)


def test_no_event_and_a_constant_column_are_data_like_others():
    data = SurvivalData(np.ones((3, 1)), [1.0, 2.0, 2.0], [0, 0, 0])
    assert repr(data) == "SurvivalData(3 patients, 0 events; 1 column)"


@given(st.lists(st.integers(0, 5), min_size=1, max_size=8))
def test_taking_patients_takes_all_that_is_theirs(rows):
    data = patients(ids=None)
    some = data.take(rows)
    np.testing.assert_array_equal(some.X, data.X[rows])
    assert some.time.tolist() == data.time[rows].tolist()
    assert some.event.tolist() == data.event[rows].tolist()
    assert (some.columns, some.unit, some.ids) == (data.columns, "days", None)


def test_a_policy_names_columns_or_whole_categories():
    data = patients(columns=["sex=m", "sex=f"], levels=("sex=m", "sex=f"))
    assert data.keep_columns(["sex"]).columns == ("sex=m", "sex=f")
    kept = data.keep_columns(["sex=f", "unknown"])
    assert kept.columns == ("sex=f",)
    np.testing.assert_array_equal(kept.X, data.X[:, 1:])
    assert kept.ids.tolist() == data.ids.tolist()
    with pytest.raises(DataError, match="at least one column must remain"):
        data.keep_columns(["age"])


@pytest.mark.parametrize(
    "change",
    [{"ids": None}, {"ids": range(1, 7)}, {"unit": "months"}, {"columns": ["age", "sex=m"]}],
    ids=["no ids", "ids", "unit", "columns"],
)
def test_the_digest_knows_data_by_all_that_they_hold(change):
    assert patients().digest() == patients().digest()
    assert patients(**change).digest() != patients().digest()
    data = patients()
    later = SurvivalData(data.X, data.time + 1.0, data.event, data.ids, columns=data.columns, unit="days")
    other = SurvivalData(data.X, data.time, data.event > 0, data.ids, columns=data.columns, unit="days")
    assert len({data.digest(), later.digest(), other.digest()}) == 3


def test_dates_are_no_numbers():
    frame = pd.DataFrame({"born": pd.to_datetime(["1950-01-01", None]), "t": [1.0, 2.0], "died": [1, 0]})
    with pytest.raises(DataError, match="'born' contains dates or durations"):
        SurvivalData.from_frame(frame, time="t", event="died")
    lengths = pd.DataFrame({"age": [1.0, 2.0], "t": pd.to_timedelta([1, 2], unit="D"), "died": [1, 0]})
    with pytest.raises(DataError, match="'t' contains dates or durations"):
        SurvivalData.from_frame(lengths, time="t", event="died")
