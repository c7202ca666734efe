"""Labels of variables in the texts, figures and tables that readers see."""

import pytest

from multicentre.estimator.figures import Band, Curves, Forest, Table
from multicentre.estimator.labels import NO_LABELS, Labels

LABELS = Labels(
    {
        "map": "mean arterial pressure (mmHg)",
        "grade": "Tumour grade",
        "age": "age (years)",
        "weight": "Weight (kg)",
        "arm": "Treatment arm",
        "p": "Parity",
    },
    {"grade": ("I", "II"), "arm": ("new", "old"), "p": (0, 1)},
)


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("map", "mean arterial pressure (mmHg)"),
        ("grade=II", "Tumour grade: II"),
        ("grade = II (reference)", "Tumour grade: II (reference)"),
        ("arm new", "Treatment arm: new"),
        ("age:grade=II", "age (years):Tumour grade: II"),
        ("bs(age, 3)[1]", "bs(age (years), 3)[1]"),
        ("age, mean (SD)", "age (years), mean (SD)"),
        ("weight", "Weight (kg)"),
        ("average", "average"),
        ("age-group", "age-group"),
    ],
)
def test_names_are_replaced_as_whole_words(name, shown):
    assert LABELS.name(name) == shown
    assert NO_LABELS.name(name) == name


@pytest.mark.parametrize("text", ["grade=II", "grade = II", "grade II"])
def test_a_level_without_label_is_written_in_one_way(text):
    unlabelled = Labels({}, {"grade": ("I", "II"), "p": (0, 1)})
    assert unlabelled.name(text) == unlabelled.sentence(text) == "grade = II"
    labels = Labels({"age": "age (years)"}, unlabelled.levels)
    assert labels.name(text) == labels.sentence(text) == "grade: II"
    assert unlabelled.sentence("p 1 of all, p=1") == "p 1 of all, p = 1"
    forest = Forest(f"Hazard ratio of {text}", "", "model", "hazard ratio", [text], [1], [1], [1], 0, 1.0)
    assert unlabelled.figure(forest).rows == ["grade = II"]
    assert unlabelled.figure(forest).title == "Hazard ratio of grade = II"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Squares by weight, p = 0.031.", "Squares by weight, p = 0.031."),
        ("Odds ratio of p = 1: 2.", "Odds ratio of Parity: 1: 2."),
        ("Missing: age (45).", "Missing: age (years) (45)."),
        ("Groups of arm, by site.", "Groups of Treatment arm, by site."),
    ],
)
def test_common_words_of_a_sentence_stay(text, shown):
    assert LABELS.sentence(text) == shown


def test_the_unit_ends_a_label_in_parentheses():
    assert [LABELS.unit(name) for name in ("map", "arm", "unlabelled")] == ["mmHg", "", ""]


def test_figures_have_labels_wherever_they_name_a_variable():
    forest = Forest(
        "Hazard ratio of grade=II by site", "", "model", "hazard ratio", ["age", "arm=new"], [1], [1], [1], 0, 1.0
    )
    assert LABELS.figure(forest).title == "Hazard ratio of Tumour grade: II by site"
    assert LABELS.figure(forest).rows == ["age (years)", "Treatment arm: new"]
    bands = [Band("arm new", [0.0], [1.0], [1.0], [1.0])]
    curves = LABELS.figure(Curves("", "", "model", "time", "survival", bands, True, [0.0], {"arm new": [20]}))
    assert curves.bands[0].name == "Treatment arm: new" == next(iter(curves.at_risk))
    tests = LABELS.figure(Table("", "", "model", ["test", "p-value"], [["weight", 0.1], ["proportional, age", 0.2]]))
    assert [row[0] for row in tests.rows] == ["weight", "proportional, age (years)"]


def test_a_level_with_the_name_of_a_variable_stays_a_level():
    labels = Labels(
        {"cancer": "cancer stage", "disease": "disease class"}, {"disease": ("arf", "cancer"), "sex": ("f", "m")}
    )
    assert labels.name("disease=cancer") == labels.name("disease = cancer") == "disease class: cancer"
    assert labels.sentence("Odds ratio of disease=cancer, given cancer.") == (
        "Odds ratio of disease class: cancer, given cancer stage."
    )
    table = Table("", "", "model", ["group", "n"], [["cancer", 3], ["disease cancer", 3]])
    assert [row[0] for row in labels.figure(table).rows] == ["cancer", "disease class: cancer"]
    curves = Curves("", "", "model", "time", "survival", [Band("cancer", [0.0], [1.0], [1.0], [1.0])], True, [0.0], {})
    assert labels.figure(curves).bands[0].name == "cancer"


def test_levels_follow_a_colon_also_without_a_label_of_their_category():
    labels = Labels({"age": "age (years)"}, {"sex": ("f", "m")})
    assert labels.name("sex = f (reference)") == "sex: f (reference)"
    assert labels.sentence("Ratio of sex=m: 1.1, given age.") == "Ratio of sex: m: 1.1, given age (years)."
