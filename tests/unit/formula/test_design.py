"""Columns of a design: values, derivatives and refusals."""

from dataclasses import replace

import numpy as np
import pytest

from multicentre.core.wire import decode, encode
from multicentre.errors import DataError, MessageError
from multicentre.formula.agreement import make_design
from multicentre.formula.columns import Table, build_columns, check_values, differentiate_columns
from multicentre.formula.design import BuiltFactor, Design, Step
from multicentre.formula.grammar import parse_formula

RANDOM = np.random.default_rng(0)
LEVELS = ("stage=I", "stage=II", "stage=III")
STAGE = RANDOM.integers(3, size=40)
TABLE = Table(
    np.column_stack([RANDOM.normal(60, 9, 40), RANDOM.lognormal(size=40), STAGE == 1, STAGE == 2]),
    ("age", "dose", "stage=II", "stage=III"),
    LEVELS,
)
FORMULAS = [
    "age * dose + stage",
    "ns(age, knots=[55, 60], boundary=[45, 75]):stage + log(dose)",
    "bs(log1p(dose), knots=[0.5], boundary=[0, 3]) + sqrt(dose) + power(age, -1):dose",
    "cr(age, knots=[60], boundary=[50, 70]) + log2(dose) + log10(dose) + scale(age, 60, 10):power(dose, 2)",
]


def design_of(formula):
    return make_design(parse_formula(formula), TABLE)


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("column", [0, 1])
def test_derivatives_are_those_of_small_differences(formula, column):
    design, h = design_of(formula), 1e-6
    ends = []
    for sign in (1.0, -1.0):
        moved = TABLE.X.copy()
        moved[:, column] += sign * h
        ends.append(build_columns(design, replace(TABLE, X=moved)))
    slope = differentiate_columns(design, TABLE, TABLE.columns[column])
    assert slope == pytest.approx((ends[0] - ends[1]) / (2 * h), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("formula", FORMULAS)
def test_a_design_survives_the_wire(formula):
    design = design_of(formula)
    received = decode(Design, encode(design)).check()
    assert received.column_names == design.column_names
    assert np.array_equal(build_columns(received, TABLE), build_columns(design, TABLE))


def test_missing_entries_stay_missing():
    X = TABLE.X.copy()
    X[0, 0] = X[1, 2] = X[1, 3] = np.nan
    values = build_columns(design_of("age + stage + age:stage"), replace(TABLE, X=X))
    assert np.isnan(values[0]).tolist() == [True, False, False, True, True]
    assert np.isnan(values[1]).tolist() == [False, True, True, True, True]
    assert not np.isnan(values[2:]).any()


@pytest.mark.parametrize(
    ("formula", "value", "message"),
    [
        ("log(dose)", 0.0, r"defined for all values; those of log\(dose\) are not"),
        ("log1p(dose)", -1.0, "those of log1p"),
        ("sqrt(dose)", -0.5, "those of sqrt"),
        ("power(dose, 0.5)", -0.5, "those of power"),
        ("power(dose, -1)", 0.0, "those of power"),
    ],
)
def test_values_outside_the_domain_are_refused_without_a_count(formula, value, message):
    X = TABLE.X.copy()
    X[3, 1] = value
    table, design = replace(TABLE, X=X), design_of(formula)
    with pytest.raises(DataError, match=message):
        check_values(design, table)
    X[4:7, 1] = value
    with pytest.raises(DataError) as first:
        check_values(design, table)
    with pytest.raises(DataError) as second:
        check_values(design, replace(table, X=np.repeat(X, 3, axis=0)))
    assert str(first.value) == str(second.value)
    assert np.isnan(build_columns(design, table)[3]).all()


def test_a_level_that_the_formula_does_not_name_is_refused():
    design = make_design(parse_formula("C(dose, levels=[1, 2])"), TABLE)
    table = replace(TABLE, X=np.column_stack([TABLE.X[:, 0], np.resize([1.0, 2.0, 3.0], 40), TABLE.X[:, 2:]]))
    with pytest.raises(DataError, match="those of C"):
        check_values(design, table)


def late(outer, inner, numbers, last=()):
    """Return a design with two functions, the inner one first."""
    factor = BuiltFactor("age", "age", (Step(inner, numbers), Step(outer, last)))
    return Design.of([factor], [(0,)])


def message(**changed):
    return replace(design_of("age + log(dose) + stage + ns(age, knots=[60], boundary=[50, 70])"), **changed)


@pytest.mark.parametrize(
    "design",
    [
        message(functions=("exec", "ns")),
        message(functions=("exp", "ns")),
        Design.of([], [(0,)]),
        late("log", "centre", (1.0,)),
        late("power", "centre", (1.0,), (0.5,)),
        late("power", "power", (3.0,), (2.0,)),
        message(function_numbers=np.array([60.0, 50.0, 70.0])),
        message(function_numbers=np.array([50.0, 70.0, np.nan])),
        message(function_numbers_end=np.array([1, 3])),
        message(functions_end=np.array([0, 5, 1, 2])),
        message(category_levels_end=np.array([0, 0, 2, 2])),
        message(category_levels=("I", "I", "III")),
        message(terms=np.array([0, 1, 2, 9])),
        message(terms=np.array([0, 1, 2, -1])),
        message(terms=np.array([0, 0, 2, 3])),
        message(terms_end=np.array([1, 2, 2, 4])),
        message(names=("age",)),
        message(has_offset=True),
    ],
)
def test_a_design_that_is_not_of_the_list_is_refused(design):
    with pytest.raises(MessageError):
        design.check()


def test_levels_of_numbers_that_are_texts_are_refused():
    design = make_design(parse_formula("C(dose, levels=[1, 2])"), TABLE)
    with pytest.raises(MessageError, match="must be numbers; got texts"):
        build_columns(replace(design, category_levels=("low", "high")), TABLE)


def test_a_column_of_numbers_has_few_levels_only():
    design = Design.of([BuiltFactor("dose", "dose", (), tuple(map(str, range(60))), True)], [(0,)])
    with pytest.raises(MessageError, match="at most 50 levels"):
        build_columns(design, TABLE)
