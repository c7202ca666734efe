"""Conditions that select records: grammar, missing entries, and categories of encoded data."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.data import TableData
from multicentre.errors import ConfigurationError
from multicentre.formula.conditions import parse_condition, reader_of_data
from support.examples import examples

FRAME = pd.DataFrame(
    {"age": [1.0, 20, 30, np.nan], "sex": ["f", "m", "f", None], "stage": [1, 2, 3, 1], "y": [0, 1, 0, 1]}
)


@pytest.fixture
def data():
    levels = {"sex": ["f", "m"], "stage": [1, 2, 3]}
    return TableData.from_frame(FRAME, outcome="y", categories=levels, references={"sex": "f", "stage": 1})


@pytest.mark.parametrize(
    ("text", "met", "unknown"),
    [
        ("age >= 18 and sex == 'f'", [0, 0, 1, 0], [0, 0, 0, 1]),
        ("not (age >= 18 or sex == 'm')", [1, 0, 0, 0], [0, 0, 0, 1]),
        ("sex not in ['m']", [1, 0, 1, 0], [0, 0, 0, 1]),
        ("age < 0 and stage == 1", [0, 0, 0, 0], [0, 0, 0, 1]),
        ("age < 0 and stage == 2", [0, 0, 0, 0], [0, 0, 0, 0]),
        ("age > 25 or stage in (1, 2)", [1, 1, 1, 1], [0, 0, 0, 0]),
        ("`stage` >= 2", [0, 1, 1, 0], [0, 0, 0, 0]),
        ("stage != 2 and age > -1", [1, 0, 1, 0], [0, 0, 0, 1]),
    ],
)
def test_a_missing_entry_makes_a_condition_unknown_only_where_it_matters(data, text, met, unknown):
    flags = parse_condition(text).evaluate(reader_of_data(data))
    assert [one.astype(int).tolist() for one in flags] == [met, unknown]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "age",
        "age = 3",
        "1 < age",
        "age >= 18 sex",
        "age >= 'a'",
        "age in (1, 'b')",
        "not",
        "age >= 1 and",
        "__import__('os') == 0",
        "age.__class__() == 0",
        "log(age) > 1",
        "age ** 2 > 1",
        "(" * 400 + "age > 1" + ")" * 400,
        "not " * 3000 + "age > 1",
    ],
)
def test_nothing_outside_the_grammar_is_read(text):
    with pytest.raises(ConfigurationError, match="condition"):
        parse_condition(text)


@pytest.mark.parametrize("text", ["height > 1", "age == 'old'", "sex == 1"])
def test_a_condition_names_columns_of_the_data_and_their_type(data, text):
    with pytest.raises(ConfigurationError):
        parse_condition(text).evaluate(reader_of_data(data))


@examples(50)
@given(st.text(alphabet="ab1'()<>=!, \nnotidr", max_size=40))
def test_any_text_is_a_condition_or_a_named_error(text):
    try:
        condition = parse_condition(text)
    except ConfigurationError:
        return
    cells = np.zeros(3)
    met, unknown = condition.evaluate(lambda _, is_text: (cells.astype(str) if is_text else cells, np.isnan(cells)))
    assert met.shape == unknown.shape == (3,)
    assert not unknown.any()
