"""Formulas are read by a strict grammar: the usual algebra of terms, and no expressions."""

import numpy as np
import pytest

from multicentre.errors import ConfigurationError, SchemaMismatch
from multicentre.formula.agreement import make_design
from multicentre.formula.columns import Table
from multicentre.formula.grammar import parse_formula

TABLE = Table(np.zeros((1, 5)), ("age", "bmi", "rooms", "stage=II", "sex=m"), ("stage=I", "stage=II", "sex=f", "sex=m"))


def terms(formula):
    return [":".join(factor.name for factor in term) for term in parse_formula(formula).terms]


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("a + b", ["a", "b"]),
        ("a * b", ["a", "b", "a:b"]),
        ("a*b*c - a:b:c", ["a", "b", "c", "a:b", "a:c", "b:c"]),
        ("(a + b + c)**2", ["a", "b", "c", "a:b", "a:c", "b:c"]),
        ("(a + b):c", ["a:c", "b:c"]),
        ("a:b + a + b:a", ["a", "a:b"]),
        ("a*b - a", ["b", "a:b"]),
        ("I(a^2) + power( a ,2 )", ["power(a, 2)"]),
        ("`blood pressure` + Q('heart rate')", ["blood pressure", "heart rate"]),
        ("centre(a, 60):center(b, -1)", ["centre(a, 60):center(b, -1)"]),
    ],
)
def test_algebra_of_terms(formula, expected):
    assert terms(formula) == expected


@pytest.mark.parametrize(
    ("formula", "intercept"), [("a", True), ("a - 1", False), ("0 + a", False), ("1 + a", True), ("a - 0", True)]
)
def test_intercept(formula, intercept):
    assert parse_formula(formula).intercept is intercept


def test_outcome_and_offset():
    parsed = parse_formula("y ~ a + offset(log(days))")
    assert (parsed.outcome, parsed.offset.name, parsed.columns) == ("y", "log(days)", ("a", "days"))


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("a +", "expected a column or a function; got the end"),
        ("y ~ ", "expected a column"),
        ("log(y) ~ a", "outcome must be one name"),
        ("y ~ a ~ b", "sign between terms"),
        ("a b", "sign between terms"),
        ("a**2", "only a group of terms"),
        ("(a + b)**9", "only a group of terms"),
        ("foo(a)", "function must be one of log"),
        ("exp(a)", "function must be one of log"),
        ("np.log(a)", "function must be one of log"),
        ("__import__('os')", "function must be one of"),
        ("(lambda: 1)()", "sign between terms|expected"),
        ("a; import os", "names, numbers, texts and signs; got ';'"),
        ("I(a + b)", "power of a column"),
        ("log(a, 3)", "parameters of log after the column must be none"),
        ("ns(a, df=3, df=4)", "each once"),
        ("ns(a, degree=2)", "parameters of ns"),
        ("ns(a, df=log(3))", "must be a number, a text or a list"),
        ("log(ns(a, df=3))", "C and splines must be the outer function"),
        ("offset(a) + offset(b) + c", "at most one offset"),
        ("offset(ns(a, df=3)) + c", "at most one offset"),
        ("a:b:c:d", "1 to 3 factors; got one of 4"),
        ("1", "got no term"),
        ("a - a", "got no term"),
        ("3 + a", "must be 0 or 1"),
        ("a" * 30_000, "at most 20000 characters"),
    ],
)
def test_other_texts_are_refused(formula, message):
    with pytest.raises(ConfigurationError, match=message):
        parse_formula(formula)


@pytest.mark.parametrize(
    ("formula", "columns"),
    [
        ("stage * sex", ["stage=II", "sex=m", "stage=II:sex=m"]),
        ("stage:sex", ["sex=m", "stage=II:sex=f", "stage=II:sex=m"]),
        ("stage - 1", ["stage=I", "stage=II"]),
        ("age + age:sex", ["age", "age:sex=m"]),
        ("age:sex", ["age:sex=f", "age:sex=m"]),
        ("C(stage, ref='II')", ["stage=I"]),
        ("C(rooms, levels=[1, 2, 3], ref=2)", ["rooms=1", "rooms=3"]),
        (
            "ns(age, knots=[5], boundary=[0, 9])",
            ["ns(age, knots=[5], boundary=[0, 9])[1]"] * 1 + ["ns(age, knots=[5], boundary=[0, 9])[2]"],
        ),
        ("`stage=II` + age", ["stage=II", "age"]),
    ],
)
def test_columns_of_a_design(formula, columns):
    """Codings of categories are those of patsy."""
    assert list(make_design(parse_formula(formula), TABLE).column_names) == columns


@pytest.mark.parametrize(
    ("formula", "error", "message"),
    [
        ("weight", SchemaMismatch, "got weight.*begin with age, bmi, rooms, stage, sex"),
        ("agee + rooms", SchemaMismatch, "got agee. Did you mean 'age'?"),
        ("log(stage)", ConfigurationError, "stage is a category"),
        ("C(age)", ConfigurationError, "levels of a column of numbers must be stated"),
        ("C(stage, ref='IV')", ConfigurationError, "one of at least 2 different levels, I, II; got IV"),
        ("C(stage, levels=['I', 'X'])", ConfigurationError, "levels must be those of the data: I, II"),
        ("power(age, 9)", ConfigurationError, "exponents of at most 3"),
        ("centre(age)", ConfigurationError, "must be a number"),
        ("scale(age, 60, 0)", ConfigurationError, "positive deviations"),
        ("ns(age)", ConfigurationError, "df of ns must be a whole number"),
        ("ns(age, df=1.5)", ConfigurationError, "df of ns must be a whole number"),
        ("ns(age, df=3, knots=[1], boundary=[0, 2])", ConfigurationError, "df must be the number of knots plus 1"),
        ("ns(age, knots=[3, 1], boundary=[0, 9])", ConfigurationError, "increasing knots"),
        ("bs(age, degree=7, knots=[3], boundary=[0, 9])", ConfigurationError, "bs must have"),
        ("ns(age, df=4)", ConfigurationError, "must be stated without sites"),
        ("power(age, 3):bmi", ConfigurationError, "powers of a term must add up to at most 3"),
        ("log(centre(age, 60))", ConfigurationError, "logarithms and roots first"),
        ("power(power(age, 2), 3)", ConfigurationError, "powers up to 3"),
        ("stage + C(stage)", ConfigurationError, "several give stage=II"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(formula, error, message):
    with pytest.raises(error, match=message):
        make_design(parse_formula(formula), TABLE)
