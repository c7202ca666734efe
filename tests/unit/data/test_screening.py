"""Input that people have: what is wrong with a table is said with its rows, and what looks wrong is warned of."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest

import multicentre as mc
from multicentre.data import DataWarning, MultiViewData, SurvivalData, TableData
from multicentre.data.screening import find_codes
from multicentre.errors import DataError

AGES = np.arange(30.0, 80.0)


def patients(**columns):
    n = len(next(iter(columns.values())))
    return pd.DataFrame({**columns, "t": np.arange(n) + 1.0, "died": np.arange(n) % 2})


def read(frame, **how):
    return SurvivalData.from_frame(frame, time="t", event="died", **how)


def refused(frame, **how):
    with pytest.raises(DataError) as caught:
        read(frame, **how)
    return caught.value


def test_one_entry_that_is_no_number_is_named_by_its_row():
    entries = [*map(str, range(200))]
    entries[5] = "secret"
    error = refused(patients(age=entries))
    assert error.what == "1 of 200 entries of 'age' is not a number (row 6)"
    assert "secret" not in str(error)


def test_many_rows_are_counted():
    entries = ["?" if row % 2 else str(row) for row in range(40)]
    assert (
        refused(patients(age=entries)).what
        == "20 of 40 entries of 'age' are not numbers (rows 2, 4, 6, 8, 10 and 15 more)"
    )


def test_all_columns_that_cannot_be_used_are_named_at_once():
    frame = patients(age=["61", "?"], stage=["I", "II"], born=pd.to_datetime(["1950-01-01"] * 2), sex=["f", "x"])
    frame["t"] = ["1", "secret"]
    error = refused(frame, categories={"sex": ["f", "m"]})
    assert error.what.split("; ") == [
        "1 of 2 entries of 't' is not a number (row 2)",
        "1 of 2 entries of 'age' is not a number (row 2)",
        "no entry of 'stage' is a number",
        "'born' contains dates or durations",
        "1 of 2 entries of 'sex' is a level that was not declared (row 2)",
    ]
    assert "secret" not in str(error)


def test_an_error_about_hundreds_of_columns_can_be_read():
    error = refused(patients(**{f"c{number}": ["a", "b"] for number in range(300)}))
    assert error.what.count("; ") == 20
    assert error.what.endswith("280 more columns cannot be used")


@pytest.mark.parametrize("entry", ["61,5", "1.061,5"])
def test_decimal_commas_are_named_with_what_would_read_them(entry):
    error = refused(patients(weight=["70", entry, "80"]))
    assert error.what == "1 of 3 entries of 'weight' is a number with a decimal comma (row 2)"
    assert "decimal=','" in error.hint


@pytest.mark.parametrize(
    ("column", "said"),
    [([1.0, np.inf], r"1 of 2 entries of 'x' is infinite \(row 2\)"), ([1j, 2j], "'x' contains complex numbers")],
)
def test_what_is_no_real_number_is_refused(column, said):
    assert re.search(said, refused(patients(x=column)).what)


def test_a_number_to_predict_is_named_too():
    frame = pd.DataFrame({"age": [1.0, 2.0], "y": ["3", "high"]})
    with pytest.raises(DataError, match=r"1 of 2 entries of 'y' is not a number \(row 2\)"):
        TableData.from_frame(frame, outcome="y", kind="number")


def test_a_blank_in_the_name_of_a_column_is_named():
    error = refused(patients(**{" age": [1.0, 2.0]}), columns=["age"])
    assert (error.what, error.hint) == (
        "'age' must be a column of the table; it is missing",
        "Remove the blanks around ' age'.",
    )


def test_a_name_that_stands_for_two_columns_is_refused():
    frame = pd.concat([patients(age=[1.0, 2.0]), pd.DataFrame({"age": [3.0, 4.0]})], axis=1)
    assert refused(frame).what == "column names must be unique; 'age' is repeated"


def test_another_object_says_what_a_table_may_be():
    with pytest.raises(DataError, match="frame must be a pandas, polars or arrow table; got builtins list"):
        read([1.0, 2.0])


def test_views_name_all_columns_and_their_rows():
    view = pd.DataFrame({"a": [1.0, "x"], "b": [2.0, 3.0], "c": ["1,5", "2,5"]})
    with pytest.raises(DataError) as caught:
        MultiViewData({"v": view})
    assert caught.value.what == (
        "view 'v', column 'a': cells must be numbers; 1 of 2 are not (row 2); "
        "view 'v', column 'c': cells must be numbers; 2 of 2 are text with a decimal comma (rows 1, 2)"
    )


def test_a_column_without_an_entry_is_warned_of_and_taken():
    frame = patients(age=[1.0, 2.0], weight=[np.nan, np.nan], stage=[None, None])
    with pytest.warns(DataWarning, match="^weight, stage: all entries of this site are missing"):
        data = read(frame, categories={"stage": ["I", "II"]})
    assert data.columns == ("age", "weight", "stage=I", "stage=II")


@pytest.mark.parametrize("code", [-9, -99, -999, -9999, 999, 9999, 99999])
def test_codes_for_missing_numbers_are_warned_of(code):
    values = np.append(AGES, [code] * 3)
    assert find_codes(values) == [(code, 3)]
    with pytest.warns(DataWarning, match=f"3 of 53 entries of 'age' are {code}, far from all other values"):
        read(patients(age=values))


@pytest.mark.parametrize(
    "values",
    [
        np.append(AGES, [999.0, 999.0]),
        np.append(AGES, [98.0, 99.0, 99.0, 99.0]),
        np.append(AGES, [777.0] * 5),
        np.append(10 * AGES, [999.0] * 3),
        np.append(AGES - 60, [-9.0] * 3),
        np.full(50, 999.0),
        np.repeat([0.0, 1.0], 20),
        np.full(20, np.nan),
    ],
    ids=["twice", "in range", "no convention", "near", "among negatives", "nothing else", "flags", "empty"],
)
def test_what_may_well_be_a_number_is_no_code(values):
    assert find_codes(values) == []


def test_columns_of_levels_and_times_without_codes_are_silent():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(patients(age=AGES, code=np.arange(50) % 2 * 99), categories={"code": [0, 99]})


def test_a_code_among_the_times_is_warned_of():
    frame = patients(age=AGES).assign(t=np.append(np.arange(47.0), [9999.0] * 3))
    with pytest.warns(DataWarning, match="3 of 50 entries of 'time' are 9999"):
        read(frame)


def test_events_that_are_one_and_two_as_in_r_are_warned_of():
    X, time = np.zeros((4, 1)), np.ones(4)
    with pytest.warns(DataWarning, match="1 is read as the event, 2 as a competing event.*subtract 1"):
        data = SurvivalData(X, time, [1, 2, 2, 1])
    assert data.event.tolist() == [1, 2, 2, 1]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for event in ([0, 1, 2, 1], [1, 1, 1, 1], [0, 0, 0, 0], [2, 2, 2, 2]):
            SurvivalData(X, time, event)
        data.take([0, 1])
        mc.datasets.simulate_survival(40, competing=True, censoring=0.0)


def test_a_warning_points_to_the_line_that_gave_the_data():
    with pytest.warns(DataWarning) as caught:
        read(patients(age=[np.nan, np.nan]))
    assert caught[0].filename == __file__
