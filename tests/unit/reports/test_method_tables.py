"""Tables of methods in a journal's layout, with rows for reference levels."""

import pytest

from multicentre.estimator.figures import Bars, Forest, Table
from multicentre.reports.curves import split_prefix
from multicentre.reports.method_tables import method_table
from multicentre.reports.references import with_references

COLUMNS = ["column", "hazard ratio", "lower", "upper", "p-value", "coefficient", "standard error"]
STUDY = {
    "data": {
        "survival": {
            "categories": {"grade": ["I", "II", "III"], "sex": ["f", "m"], "arm": [0, 1]},
            "references": {"grade": "II", "sex": "m", "arm": 0},
        }
    }
}


def ratios(*names):
    rows = [[name, 1.5, 1.25, 1.8, 0.0004, 0.405, 0.1] for name in names]
    return Table("Hazard ratios", "Per unit.", "model", COLUMNS, rows)


def forest(*names, n_pooled=0):
    numbers = ([2.0] * len(names), [1.0] * len(names), [4.0] * len(names))
    return Forest("Ratios", "", "model", "hazard ratio", list(names), *numbers, n_pooled, 1.0)


def names_of(figure):
    return [row[0] for row in figure.rows] if isinstance(figure, Table) else figure.rows


def test_limits_join_their_estimate_and_p_values_have_three_decimals():
    shown = method_table(ratios("age"))
    assert shown.columns == ["column", "hazard ratio (interval)", "p-value", "coefficient", "standard error"]
    assert shown.rows == [["age", "1.500 (1.250 to 1.800)", "<0.001", "0.4050", "0.1000"]]
    assert shown.numeric == {1, 2, 3, 4}


def test_estimates_without_limits_stand_alone():
    table = ratios("age", "dose")
    table.rows[1][2:5] = [None, None, None]
    assert method_table(table).rows[1][1:3] == ["1.500", "–"]


def test_limits_belong_to_the_estimate_and_not_to_its_error():
    columns = ["term", "coefficient", "standard error", "lower", "upper", "odds ratio", "odds ratio lower"]
    rows = [["age", 0.5, 0.1, 0.3, 0.7, 1.65, 1.35, 2.01]]
    shown = method_table(Table("T", "", "model", [*columns, "odds ratio upper"], rows))
    assert shown.columns == ["term", "coefficient (interval)", "standard error", "odds ratio (interval)"]
    assert shown.rows == [["age", "0.5000 (0.3000 to 0.7000)", "0.1000", "1.650 (1.350 to 2.010)"]]


def test_limits_without_an_estimate_before_them_are_columns():
    shown = method_table(Table("Limits", "", "model", ["lower", "upper"], [["a", 1.0]]))
    assert shown.columns == ["lower", "upper"]


@pytest.mark.parametrize(
    ("cells", "is_numeric"),
    [
        (["62.5 (15.6)", "<5", "-", ""], True),
        (["1,344 (1,087 to 1,406)", "not reached"], True),
        (["0.1 %", "12.0 %"], True),
        (["low", "3"], False),
        (["", ""], False),
    ],
)
def test_texts_of_numbers_are_set_flush_right(cells, is_numeric):
    shown = method_table(Table("T", "", "model", ["", "overall"], [["n", cell] for cell in cells]))
    assert shown.numeric == ({1} if is_numeric else frozenset())


def test_a_number_in_the_title_is_not_repeated():
    assert method_table(Table("Table 1", "Counts.", "model", ["", "n"], [])).caption == "Counts."


@pytest.mark.parametrize("figure", [ratios, forest])
def test_reference_levels_have_a_row_in_the_order_of_the_study(figure):
    shown = with_references(figure("age", "grade=I", "grade=III", "sex=f", "arm=1", "dose"), STUDY)
    assert names_of(shown) == [
        *("age", "grade = I", "grade = II (reference)", "grade = III"),
        *("sex = f", "sex = m (reference)", "arm = 0 (reference)", "arm = 1", "dose"),
    ]


def test_the_reference_is_at_one_for_ratios_and_at_nought_for_coefficients():
    row = with_references(ratios("sex=f"), STUDY).rows[1]
    assert row == ["sex = m (reference)", 1.0, None, None, "", 0.0, ""]
    shown = with_references(forest("sex=f"), STUDY)
    assert (shown.estimates[1], shown.lower[1], shown.upper[1]) == (1.0, None, None)
    assert method_table(with_references(ratios("sex=f"), STUDY)).rows[1][1:] == ["1.000", "", "0.0000", ""]


@pytest.mark.parametrize(
    "figure",
    [
        forest("sex=f", n_pooled=1),
        Table("Missing values", "", "data", ["column", "missing"], [["sex=f", 3]]),
        Bars("Importance", "", "model", "share", ["sex=f"], {"share": [0.5]}, {}),
    ],
)
def test_other_figures_are_left_as_they_are(figure):
    assert with_references(figure, STUDY) is figure


def test_classes_of_an_outcome_have_no_common_reference_row():
    assert names_of(with_references(ratios("sex=f (b)", "sex=f (c)"), STUDY)) == ["sex = f (b)", "sex = f (c)"]


def test_a_study_without_references_adds_no_rows():
    assert names_of(with_references(ratios("age", "sex=f"), {})) == ["age", "sex = f"]
    assert names_of(with_references(forest(), STUDY)) == []


def test_names_of_curves_are_split_only_where_all_share_a_column():
    assert split_prefix(["arm 0", "arm 1"]) == ("arm", ["0", "1"])
    assert split_prefix(["arm 0", "all"]) == ("", ["arm 0", "all"])
    assert split_prefix(["arm 0"]) == ("", ["arm 0"])
