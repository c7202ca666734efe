"""Categories as columns: how levels are declared, what a missing one becomes, and that the declaration travels."""

import pickle

import numpy as np
import pandas as pd
import pytest

from multicentre.data import SurvivalData, TableData
from multicentre.data.categories import level_name
from multicentre.data.concatenate import check_together, concatenate
from multicentre.data.records import add_record, amplify_record
from multicentre.data.table import rows_for
from multicentre.errors import ConfigurationError, DataError, SchemaMismatch

nan = np.nan
FRAME = pd.DataFrame(
    {
        "age": [61, 70, 55, 48],
        "stage": ["I", "III", None, "II"],
        "code": [2.0, 1.0, nan, 1.0],
        "t": [12.0, 30.0, 5.0, 9.0],
        "died": [1, 0, 1, 0],
    }
)
STAGES = {"stage": ["I", "II", "III"]}


def survival(frame=FRAME, **how):
    return SurvivalData.from_frame(frame, time="t", event="died", **{"columns": ["age", "stage"], **how})


def table(frame=FRAME, **how):
    return TableData.from_frame(frame, outcome="died", **{"columns": ["age", "stage"], **how})


both = pytest.mark.parametrize("read", [survival, table], ids=["survival", "table"])


@both
def test_a_reference_has_no_column_and_a_missing_level_is_missing_in_all(read):
    data = read(categories=STAGES, references={"stage": "I"})
    assert data.columns == ("age", "stage=II", "stage=III")
    assert data.levels == ("stage=I", "stage=II", "stage=III")
    np.testing.assert_array_equal(data.X, [[61, 0, 0], [70, 0, 1], [55, nan, nan], [48, 1, 0]])


@both
def test_columns_that_are_given_as_numbers_stay_as_they_are(read):
    frame = FRAME.assign(**{"stage=II": [0, 0, 0, 1]})
    data = read(frame, columns=["age", "stage=II"])
    assert data.levels == ()
    assert data.X[:, 1].tolist() == [0, 0, 0, 1]


@both
def test_levels_of_the_table_are_taken_with_a_warning(read):
    with pytest.warns(UserWarning, match="stage: the levels are taken from this table"):
        data = read(categories=["stage"])
    assert data.levels == ("stage=I", "stage=II", "stage=III")


@both
def test_a_pandas_categorical_declares_itself(read):
    frame = FRAME.assign(stage=pd.Categorical(FRAME["stage"], ["III", "II", "I", "0"]))
    data = read(frame, references={"stage": "0"})
    assert data.levels == ("stage=III", "stage=II", "stage=I", "stage=0")
    assert data.columns == ("age", "stage=III", "stage=II", "stage=I")
    assert read(frame, categories=["stage"]).levels == data.levels
    assert read(frame, categories=STAGES).levels == ("stage=I", "stage=II", "stage=III")
    numbered = FRAME.assign(stage=pd.Categorical([2, 1, 1, 2]))
    assert read(numbered).columns == ("age", "stage=1", "stage=2")


def test_a_categorical_is_no_column_of_numbers():
    with pytest.raises(DataError, match="'stage' is a pandas categorical"):
        SurvivalData(pd.DataFrame({"stage": pd.Categorical([1, 2])}), [1.0, 2.0], [1, 0])


@pytest.mark.parametrize("levels", [[1, 2], [1.0, 2.0], ["1", "2"], np.array([1, 2])])
@pytest.mark.parametrize("dtype", ["float64", "Int64", "object"])
def test_whole_numbers_are_one_level_however_they_are_typed(levels, dtype):
    column = pd.Series([2, 1, None, 1], dtype=dtype)
    data = survival(FRAME.assign(code=column), columns=["code"], categories={"code": levels})
    assert data.columns == ("code=1", "code=2")
    np.testing.assert_array_equal(data.X, [[0, 1], [1, 0], [nan, nan], [1, 0]])


def test_texts_of_digits_are_levels_of_their_own():
    assert level_name("01") != level_name(1)
    assert [level_name(level) for level in (np.inf, 1.5, True, np.float32(3))] == ["inf", "1.5", "True", "3"]


@both
@pytest.mark.parametrize(
    ("how", "kind", "said"),
    [
        ({"categories": {"stage": ["I", "II"]}}, DataError, r"1 of 4 entries of 'stage' is a level .* \(row 2\)"),
        ({"categories": {"stage": "I"}}, DataError, "levels must be a list"),
        (
            {"categories": "stage"},
            DataError,
            "categories must be a mapping of columns to levels or a list of columns; got str",
        ),
        (
            {"categories": {"stage": []}},
            DataError,
            "levels must be at least one, all different; got 0, of which 0 are different",
        ),
        (
            {"categories": {"stage": ["I", "I"]}},
            DataError,
            "levels must be at least one, all different; got 2, of which 1 are different",
        ),
        ({"categories": {"stage": ["I", None]}}, DataError, "levels must not include a missing entry"),
        ({"categories": {"code": [1, 2, nan]}}, DataError, "levels must not include a missing entry"),
        ({"categories": ["grade"]}, DataError, "'grade' must be a column of the table; it is missing"),
        (
            {"categories": STAGES, "references": {"grade": "I"}},
            ConfigurationError,
            "references must name categories; got 'grade'",
        ),
        ({"categories": STAGES, "references": {"stage": "IV"}}, ConfigurationError, "must be a level of 'stage'"),
    ],
    ids=str,
)
def test_what_is_no_declaration_is_refused(read, how, kind, said):
    with pytest.raises(kind, match=said):
        read(**how)


def test_a_name_with_the_mark_of_levels_cannot_be_a_category():
    with pytest.raises(DataError, match="levels must be a list, and the name of a category must not contain '='"):
        survival(FRAME.rename(columns={"stage": "stage="}), columns=["stage="], categories={"stage=": ["I"]})


@both
def test_the_declaration_stays_with_the_patients(read):
    data = read(categories=STAGES, references={"stage": "I"})
    record = amplify_record(data, 1, 2.0)
    for made in (data.take([3, 0]), pickle.loads(pickle.dumps(data)), record, add_record(data, record)):
        assert (made.columns, made.levels) == (data.columns, data.levels)
    other = read(categories=STAGES, references={"stage": "III"}).keep_columns(["age", "stage=II"])
    same_columns = data.keep_columns(["age", "stage=II"])
    assert other.digest() != data.digest()
    assert same_columns.levels == data.levels
    assert data.keep_columns(["age"]).levels == ()
    assert concatenate({"lyon": data, "oslo": data}).levels == data.levels


@both
def test_sites_whose_references_differ_are_refused_although_their_columns_are_the_same(read):
    frame = FRAME.assign(stage=["A", "B", "B", "A"])
    lyon = read(frame, categories={"stage": ["A", "B"]}, references={"stage": "A"})
    oslo = read(frame.replace("A", "C"), categories={"stage": ["C", "B"]}, references={"stage": "C"})
    assert lyon.columns == oslo.columns
    with pytest.raises(
        SchemaMismatch, match="levels must be those of lyon, in the same order; got differences in stage=A, stage=C"
    ):
        check_together({"lyon": lyon, "oslo": oslo})


def test_arrays_may_come_with_levels_too():
    X = [[0.0], [1.0]]
    data = SurvivalData(X, [1.0, 2.0], [1, 0], columns=["sex=m"], levels=["sex=f", "sex=m"])
    assert data.levels == ("sex=f", "sex=m")
    for levels in (["sex=f"], ["sex=m", "sex=m"]):
        with pytest.raises(DataError, match="levels must be unique and include all columns"):
            SurvivalData(X, [1.0, 2.0], [1, 0], columns=["sex=m"], levels=levels)


class TestRowsForAModel:
    COLUMNS, LEVELS = ("age", "stage=II", "stage=III"), ("stage=I", "stage=II", "stage=III")

    def rows(self, X):
        return rows_for(X, self.COLUMNS, self.LEVELS)

    @both
    def test_a_frame_like_that_of_the_fit_gives_the_rows_of_the_fit(self, read):
        data = read(categories=STAGES, references={"stage": "I"})
        for frame in (FRAME, FRAME[["stage", "age"]], FRAME.assign(stage=FRAME["stage"].astype("category"))):
            np.testing.assert_array_equal(self.rows(frame), data.X)
        np.testing.assert_array_equal(self.rows(data), data.X)

    def test_the_reference_alone_is_no_unknown_level(self):
        assert self.rows(pd.DataFrame({"age": [50], "stage": ["I"]})).tolist() == [[50, 0, 0]]

    def test_columns_of_zeros_and_ones_are_taken_as_they_are(self):
        frame = pd.DataFrame({"stage=III": [1], "age": [50], "stage=II": [0]})
        assert self.rows(frame).tolist() == [[50, 0, 1]]
        assert self.rows([[50, 0, 1]]).tolist() == [[50, 0, 1]]

    @pytest.mark.parametrize(
        ("X", "said"),
        [
            (pd.DataFrame({"age": [50], "stage": ["IV"]}), r"'stage' is a level that was not declared \(row 1\)"),
            (
                pd.DataFrame({"age": ["old"], "stage": ["IV"]}),
                "'stage' is a level .*no entry of 'age'|no entry of 'age'",
            ),
            (pd.DataFrame({"age": [50]}), "'stage' must be a column of the table; it is missing"),
            (
                pd.DataFrame({"age": [50], "stages": ["I"]}),
                "'stage' must be a column of the table; it is missing. Did you mean 'stages'?",
            ),
            (pd.DataFrame({"stage": ["I"]}), "'age' must be a column of the table; it is missing"),
            ([[50, 0]], "3 columns of the fit; got 2"),
        ],
        ids=["level", "both", "category", "near", "number", "array"],
    )
    def test_what_does_not_fit_is_refused(self, X, said):
        with pytest.raises(DataError, match=said):
            self.rows(X)

    def test_data_with_another_reference_are_refused(self):
        other = SurvivalData(
            [[50, 0, 1]], [1.0], [1], columns=self.COLUMNS, levels=["stage=0", "stage=II", "stage=III"]
        )
        with pytest.raises(
            DataError, match="X must have the levels of the categories of the fit; got different levels"
        ):
            self.rows(other)

    def test_data_are_read_by_name_whatever_their_reference_and_other_columns(self):
        levels = ["ward=a", "ward=b", "stage=III", "stage=I", "stage=II"]  # in another order, too
        X = [[1, 0, 1, 50], [0, 0, 0, 60], [1, 1, 0, 70]]
        other = SurvivalData(
            X, [1.0, 2.0, 3.0], [1, 1, 1], columns=["ward=b", "stage=I", "stage=II", "age"], levels=levels
        )
        names = ("age", "stage=II", "stage=III")
        assert rows_for(other, names, ("stage=I", "stage=II", "stage=III")).tolist() == [
            [50, 1, 0],
            [60, 0, 1],
            [70, 0, 0],
        ]
        with pytest.raises(SchemaMismatch, match="X must have the 1 columns of the fit; it lacks dose"):
            rows_for(other, ("dose",))
