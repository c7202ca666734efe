import subprocess
import sys
import unicodedata
from datetime import date
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.data import MultiViewData
from multicentre.errors import DataError
from support.strategies import multi_views

nan = np.nan


@pytest.fixture
def data():
    return MultiViewData(
        {
            "blood": np.array([[1.0, 2.0], [nan, 4.0], [nan, nan]]),
            "image": np.array([[5.0], [6.0], [7.0]]),
        },
        ids=["a", "b", "c"],
    )


def test_describes_itself_by_counts_only(data):
    assert repr(data) == "MultiViewData(3 patients; blood: 2 columns, 2 patients; image: 1 column, 3 patients)"
    assert data.views == ("blood", "image")
    assert data.columns == {"blood": ("blood_0", "blood_1"), "image": ("image_0",)}
    assert data.n_patients_by_view == {"blood": 2, "image": 3}
    assert len(data) == data.n_patients == 3
    assert data.patients_with("blood").tolist() == [True, True, False]
    assert data.has_missing_entries
    assert data.schema.sizes == {"blood": 2, "image": 1}


def test_a_patient_without_a_view_is_not_a_missing_entry():
    data = MultiViewData({"blood": np.array([[1.0, 2.0], [nan, nan], [2.0, 3.0]])})
    assert not data.has_missing_entries
    assert data.n_patients_by_view == {"blood": 2}


def test_nothing_can_be_written(data):
    source = np.array([[1.0], [2.0]])
    copied = MultiViewData({"v": source})
    source[0, 0] = 9.0
    assert copied.array("v")[0, 0] == 1.0
    for part in (data, data.take([2, 0]), data.drop(["image"])):
        with pytest.raises(ValueError, match="read-only"):
            part.array("blood")[0, 0] = 0.0
        with pytest.raises(ValueError, match="read-only"):
            part.ids[0] = "x"
    with pytest.raises(AttributeError):
        data.views = ("other",)


@pytest.mark.parametrize("library", [pd, pl])
def test_frames_keep_names_kinds_and_missing_entries(library):
    frame = library.DataFrame(
        {
            "âge": [61, 48, None],
            "fumeur": [True, None, False],
            "重さ": [70.5, None, 80.0],
            "dose": [Decimal("1.5"), None, Decimal(2)],
        }
    )
    data = MultiViewData({"clinique 🏥": frame})
    assert data.columns == {"clinique 🏥": ("âge", "fumeur", "重さ", "dose")}
    assert data.kinds == {"clinique 🏥": ("number", "boolean", "number", "number")}
    expected = [[61, 1, 70.5, 1.5], [48, nan, nan, nan], [nan, 0, 80, 2]]
    np.testing.assert_array_equal(data.array("clinique 🏥"), expected)


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        (pd.Series([1, None, 3], dtype="Int64"), "number"),
        (pd.Series([1.5, None, 3], dtype="Float32"), "number"),
        (pd.Series([True, None, False], dtype="boolean"), "boolean"),
        (pd.Series([True, None, False], dtype=object), "boolean"),
        (pd.Series([1, pd.NA, 2.5], dtype=object), "number"),
        (pd.Series([1, None, 3], dtype="int64[pyarrow]"), "number"),
    ],
)
def test_every_pandas_dtype_of_numbers_is_read(column, kind):
    data = MultiViewData({"v": pd.DataFrame({"x": column})})
    assert data.kinds["v"] == (kind,)
    assert np.isnan(data.array("v")[:, 0]).tolist() == [False, True, False]


def test_arrays_of_any_numeric_type_are_read():
    masked = np.ma.masked_array([[1, 2], [3, 4]], mask=[[False, True], [False, False]])
    data = MultiViewData(
        {
            "flags": np.array([[True], [False]]),
            "small": np.array([[1], [200]], dtype=np.uint8),
            "objects": np.array([[1, None], [2.5, True]], dtype=object),
            "masked": masked,
        }
    )
    assert data.kinds == {
        "flags": ("boolean",),
        "small": ("number",),
        "objects": ("number", "boolean"),
        "masked": ("number", "number"),
    }
    np.testing.assert_array_equal(data.array("masked"), [[1, nan], [3, 4]])


def test_names_that_look_equal_are_equal():
    decomposed = unicodedata.normalize("NFD", "Zürich")
    one = MultiViewData({decomposed: np.ones((1, 1))}, columns={decomposed: [decomposed]})
    assert one.views == ("Zürich",)
    assert one.columns == {"Zürich": ("Zürich",)}


def test_stacked_fills_absent_views(data):
    stacked = data.stacked(["image", "gene", "blood"], {"gene": 2, "blood": 2})
    expected = [[5, nan, nan, 1, 2], [6, nan, nan, nan, 4], [7, nan, nan, nan, nan]]
    np.testing.assert_array_equal(stacked, expected)


@pytest.mark.parametrize(
    ("order", "sizes", "what"),
    [
        (["gene"], None, "the view must be one of blood, image; got 'gene'"),
        (["image"], {"image": 2}, "the view must have 2 columns; got 1"),
        (["image", "image"], None, "view_order must name at least one view, each once"),
        ([], None, "view_order must name at least one view, each once"),
    ],
)
def test_stacked_refuses(data, order, sizes, what):
    with pytest.raises(DataError, match=what):
        data.stacked(order, sizes)


@given(multi_views(), st.data())
def test_taking_rows_and_stacking_commute(views, draw):
    data = MultiViewData(views)
    n = len(data)
    rows = draw.draw(st.lists(st.integers(0, n - 1), min_size=1, max_size=n, unique=True))
    np.testing.assert_array_equal(data.take(rows).stacked(data.views), data.stacked(data.views)[rows])
    back = data.take(np.arange(n)).stacked(data.views)
    np.testing.assert_array_equal(back, np.hstack(list(views.values())))


@given(multi_views(), st.sampled_from([pd, pl]))
def test_a_frame_and_its_array_are_the_same_data(views, library):
    frames = {
        view: library.DataFrame({f"c{j}": values[:, j] for j in range(values.shape[1])})
        for view, values in views.items()
    }
    from_frames, from_arrays = MultiViewData(frames), MultiViewData(views)
    assert from_frames.views == from_arrays.views
    for view in views:
        np.testing.assert_array_equal(from_frames.array(view), from_arrays.array(view))


def test_take_accepts_masks_and_keeps_empty_views(data):
    last = data.take(np.array([False, False, True]))
    assert last.ids.tolist() == ["c"]
    assert last.n_patients_by_view == {"blood": 0, "image": 1}
    assert last.schema == data.schema


@pytest.mark.parametrize(
    ("rows", "what"),
    [
        ([], "rows must be a list of at least one patient"),
        ([[0]], "rows must be a list of at least one patient"),
        ([0, 0], "rows must be unique; some are repeated"),
        ([3], "rows must be integers from 0 to 2"),
        ([-1], "rows must be integers from 0 to 2"),
        ([0.5], "rows must be integers from 0 to 2"),
        ([True, False], "a mask must have shape"),
    ],
)
def test_take_refuses(data, rows, what):
    with pytest.raises(DataError, match=what):
        data.take(rows)


def test_drop(data):
    assert data.drop("blood").views == ("image",)
    with pytest.raises(DataError, match="at least one view must remain"):
        data.drop(["blood", "image"])
    with pytest.raises(DataError, match="the view must be one of blood, image; got 'gene'"):
        data.drop(["gene"])


BAD_COLUMNS = [
    ([1.0, np.inf, -np.inf], "cells must be finite; got 2 of 3 infinite", "missing"),
    ([1.0, "unknown", None], "cells must be numbers", "Code categories"),
    (["1.5", "2", None], r"cells must be numbers; 2 of 3 are text \(rows 1, 2\)", "Convert"),
    (
        ["1,5", "1.002,5", "2"],
        r"cells must be numbers; 3 of 3 are text with a decimal comma \(rows 1, 2\)",
        "decimal points",
    ),
    (["1", "2", "n/a"], "cells must be numbers", "Code categories"),
    (pd.to_datetime(["2020-01-01"] * 3), r"cells must be numbers; 3 of 3 are not \(rows 1, 2, 3\)", "dates"),
    (pd.Categorical(["a", "b", "a"]), r"cells must be numbers; 3 of 3 are not \(rows 1, 2, 3\)", "Code categories"),
    ([1 + 2j, 3, 4], "complex", "separate columns"),
]


@pytest.mark.parametrize(("cells", "what", "hint"), BAD_COLUMNS)
def test_bad_cells_are_named_and_never_shown(cells, what, hint):
    frame = pd.DataFrame({"good": [1.0, 2.0, 3.0], "bad one": cells})
    with pytest.raises(DataError, match=what) as caught:
        MultiViewData({"blood": frame})
    assert caught.value.where == "view 'blood', column 'bad one'"
    assert hint in caught.value.hint
    assert "unknown" not in str(caught.value)


def test_bad_cells_of_polars_frames_and_arrays_are_refused():
    with pytest.raises(DataError, match=r"cells must be numbers; 1 of 2 are not \(row 2\)"):
        MultiViewData({"v": pl.DataFrame({"x": ["1", "one"]})})
    with pytest.raises(DataError, match="cells must be numbers"):
        MultiViewData({"v": pl.DataFrame({"x": [date(2020, 1, 1), date(2021, 1, 1)]})})
    with pytest.raises(DataError, match="complex"):
        MultiViewData({"v": np.ones((2, 2), dtype=complex)})
    with pytest.raises(DataError, match="cells must be numbers"):
        MultiViewData({"v": np.array([["a"], ["b"]])})
    with pytest.raises(DataError, match="entries must be numbers; got dates"):
        MultiViewData({"v": np.array([["2020-01-01"]], dtype="datetime64[ns]")})
    with pytest.raises(DataError, match="entries must be numbers; got dates"):
        MultiViewData({"v": np.array([[1]], dtype="timedelta64[ns]")})
    with pytest.raises(DataError, match="cells must be finite; got 1 of 1 infinite"):
        MultiViewData({"v": np.array([[10**400]], dtype=object)})


@pytest.mark.parametrize(
    ("views", "options", "what"),
    [
        ({}, {}, "data must have at least one view"),
        ({"": np.ones((2, 1))}, {}, "names of views must be non-empty strings"),
        (
            {"é": np.ones((2, 1)), "e\u0301": np.ones((2, 1))},
            {},
            "names of views must be unique; got two views with this name",
        ),
        ({"v": np.ones(3)}, {}, "the array must have 2 dimensions; got 1"),
        ({"v": [[1.0]]}, {}, "a view must be a pandas, polars or arrow table or a two-dimensional array; got list"),
        ({"v": np.ones((0, 2))}, {}, "a view must have at least one row; got 0"),
        ({"v": np.ones((2, 0))}, {}, "a view must have at least one column; got 0"),
        ({"v": pd.DataFrame({"x": []})}, {}, "a view must have at least one row; got 0"),
        ({"v": pl.DataFrame()}, {}, "a view must have at least one column; got 0"),
        ({"v": np.full((2, 2), nan)}, {}, "a view must have at least one entry; all entries are missing"),
        ({"v": np.ones((2, 1)), "w": np.ones((3, 1))}, {}, "views must have equal numbers of rows; got v 2, w 3"),
        (
            {"v": pd.DataFrame([[1, 2]], columns=["x", "x"])},
            {},
            "column names must be unique; got two columns with this name",
        ),
        (
            {"v": np.ones((2, 2))},
            {"columns": {"v": ["x", "x"]}},
            "column names must be unique; got two columns with this name",
        ),
        ({"v": np.ones((2, 2))}, {"columns": {"v": ["x", ""]}}, "every column must have a name; column 2 has none"),
        ({"v": np.ones((2, 2))}, {"columns": {"v": ["x"]}}, "the view must have one name per column"),
        ({"v": np.ones((2, 2))}, {"columns": {"w": ["x"]}}, "columns must name views of the data; got an unknown view"),
        (
            {"v": pd.DataFrame({"x": [1]})},
            {"columns": {"v": ["x"]}},
            "column names must be None for a frame; got names",
        ),
        ({"v": np.ones((2, 2))}, {"ids": ["a"]}, "ids must have one value per patient"),
        ({"v": np.ones((3, 2))}, {"ids": ["secret", "secret", "b"]}, "ids must be unique; 1 repeat an earlier one"),
        (
            {"v": np.ones((3, 2))},
            {"ids": ["a", None, ""]},
            "ids must be text or integers",
        ),
    ],
)
def test_construction_refuses(views, options, what):
    with pytest.raises(DataError, match=what) as caught:
        MultiViewData(views, **options)
    assert caught.value.where
    assert caught.value.hint
    assert "secret" not in str(caught.value)


def test_check_for_fit(data):
    MultiViewData({"v": np.array([[1.0, nan], [2.0, 3.0], [2.0, 5.0]])}).check_for_fit(3)
    MultiViewData({"v": np.array([[1.0, 7.0], [2.0, nan], [3.0, 7.0]])}).check_for_fit()
    with pytest.raises(DataError, match="view 'blood': at least 3 patients must have this view; got 2"):
        data.check_for_fit(3)
    MultiViewData({"blood": np.array([[1.0, 1.0], [nan, 2.0], [nan, 3.0]])}).take([1, 2]).check_for_fit()
    with pytest.raises(DataError, match="every patient must have an entry in at least one view"):
        MultiViewData({"v": np.array([[1.0], [2.0], [nan]])}).check_for_fit()


def test_a_column_may_be_empty_at_a_site():
    frame = pd.DataFrame({"iron": [1.0, 2.0, 3.0], "zinc": [None, None, None]})
    frame["anaemia"] = pd.array([None, None, None], dtype="boolean")
    data = MultiViewData({"blood": frame})
    assert np.isnan(data.array("blood")[:, 1:]).all()
    assert data.kinds["blood"] == ("number", "number", "boolean")
    with pytest.raises(DataError, match="a view must have at least one entry; all entries are missing"):
        MultiViewData({"blood": frame[["zinc"]]})


def test_columns_that_a_patient_of_the_view_lacks_are_named():
    lab = np.array([[1.0, nan, 3.0], [2.0, nan, nan], [nan, nan, nan]])
    partial = MultiViewData({"lab": lab, "ward": np.ones((3, 1))})
    assert partial.partial_columns("lab") == ("lab_1", "lab_2")
    assert partial.partial_columns("ward") == ()
    with pytest.raises(
        DataError,
        match="view 'lab', columns 'lab_1', 'lab_2': views must be complete",
    ):
        partial.check_whole_views()
    MultiViewData({"lab": lab[:, :1], "ward": np.ones((3, 1))}).check_whole_views()


def test_importing_the_room_loads_no_frame_library():
    script = "import sys, multicentre.data; print(*sorted({'pandas', 'polars', 'pyarrow', 'scipy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
