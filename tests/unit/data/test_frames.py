"""Tables of polars and arrow become the data of the equal pandas frame."""

import datetime

import numpy as np
import pandas as pd
import pytest

from multicentre.data import EventTensor, Identifiers, MultiViewData, SurvivalData, TableData
from multicentre.data.frames import is_frame, to_pandas
from multicentre.data.table import rows_for
from multicentre.errors import DataError

pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")
SEX = ["f", "m", None, "f", "m"]
COLUMNS = {
    "age": [61.5, None, 55.0, 48.0, 70.0],
    "count": [1, None, 3, 4, 5],
    "smokes": [True, None, False, True, False],
    "sex": SEX,
    "days": [1, 2, 3, 4, 5],
    "died": [1, 0, 1, 0, 1],
    "name": ["a", "b", "c", "d", "e"],
}
PANDAS = pd.DataFrame(COLUMNS).assign(
    smokes=pd.array(COLUMNS["smokes"], dtype="boolean"), sex=pd.Categorical(SEX, ["f", "m", "x"])
)
POLARS = pl.DataFrame(COLUMNS).with_columns(pl.col("sex").cast(pl.Enum(["f", "m", "x"])))
ARROW = pa.table(COLUMNS).set_column(3, "sex", pa.DictionaryArray.from_arrays([0, 1, None, 0, 1], ["f", "m", "x"]))
OTHERS = {"eager": POLARS, "lazy": POLARS.lazy(), "arrow": ARROW, "batch": ARROW.to_batches()[0]}
MULTI = {pl.DataFrame: pl.DataFrame, pl.LazyFrame: pl.LazyFrame, pa.Table: pa.table, pa.RecordBatch: pa.table}
each = pytest.mark.parametrize("other", OTHERS.values(), ids=OTHERS)
FEATURES = ["age", "count", "smokes", "sex"]


@each
def test_tables_and_survival_equal_those_of_pandas(other):
    how = {"columns": FEATURES, "references": {"sex": "f"}, "identifiers": ["name"]}
    right, ours = (TableData.from_frame(one, outcome="died", **how) for one in (PANDAS, other))
    assert (ours.columns, ours.levels, ours.digest()) == (right.columns, right.levels, right.digest())
    assert ours.levels == ("sex=f", "sex=m", "sex=x")
    right, ours = (SurvivalData.from_frame(one, time="days", event="died", **how) for one in (PANDAS, other))
    assert (ours.columns, ours.digest()) == (right.columns, right.digest())
    numbers = [TableData(to_pandas(one)[["age", "count"]], [0, 1, 0, 1, 0]).digest() for one in (PANDAS, other)]
    assert numbers[0] == numbers[1]


@each
def test_rows_of_a_prediction_equal_those_of_pandas(other):
    columns, levels = ("age", "sex=m", "sex=x"), ("sex=f", "sex=m", "sex=x")
    np.testing.assert_array_equal(rows_for(other, columns, levels), rows_for(PANDAS, columns, levels))


@each
def test_views_and_identifiers_equal_those_of_pandas(other):
    numbers = ["age", "count", "smokes"]
    taken = other.to_pandas()[numbers] if isinstance(other, pa.RecordBatch) else other.select(numbers)
    right, ours = MultiViewData({"blood": PANDAS[numbers]}), MultiViewData({"blood": taken})
    assert (ours.columns, ours.digest()) == (right.columns, right.digest())
    assert Identifiers(MULTI[type(other)]({"name": [*"abcde"], "born": [1950, None, 3, 4, 5]})).column("born") == [
        "1950",
        None,
        "3",
        "4",
        "5",
    ]


def test_boolean_columns_keep_their_kind_without_entries():
    for values in ([True, None], [True, False]):
        frame = pl.DataFrame({"flag": values, "x": [1.0, 2.0]})
        assert MultiViewData({"a": frame}).kinds == {"a": ("boolean", "number")}


@each
def test_events_equal_those_of_pandas(other):
    columns = {
        "patient": ["p", "q", "p"],
        "date": [datetime.date(2020, 1, day) for day in (1, 2, 3)],
        "system": ["icd9cm-dx", "icd9cm-dx", "ndc"],
        "code": ["4280", "486", "0002"],
    }
    made = MULTI[type(other)](columns)
    right, ours = (
        EventTensor.from_events(one, modes={"dx": "icd9cm-dx", "drug": "ndc"}) for one in (pd.DataFrame(columns), made)
    )
    assert ours.digest() == right.digest()


def test_series_and_arrays_are_no_tables():
    for one in (POLARS["age"], PANDAS["age"], ARROW["age"], np.zeros((2, 2)), [1, 2], {"a": [1]}):
        assert not is_frame(one)
    with pytest.raises(DataError, match="frame must be a pandas, polars or arrow table; got builtins list"):
        TableData.from_frame([1, 2], outcome="died")


def test_whole_numbers_beyond_the_digits_of_floats_stay_exact():
    frame = to_pandas(pl.DataFrame({"key": [2**60 + 1, None]}))
    assert frame["key"].tolist() == [2**60 + 1, None]
