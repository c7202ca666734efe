"""Keys that tolerate typing errors: codes of names, parts of dates, and people who agree in one of several keys."""

from itertools import combinations as subsets

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import ConfigurationError, DataError
from multicentre.linkage.duplicates.rate import include_exclude
from multicentre.linkage.keys.person_keys import (
    People,
    PersonKey,
    cologne,
    combinations,
    count_agreeing_pairs,
    group_records,
    join_keys,
    read_keys,
    soundex,
)

COLUMNS = st.lists(st.tuples(*[st.sampled_from(["a", "b", "c", None])] * 3), min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("name", "code"),
    # The examples of the National Archives' page on Soundex, and a name with letters that count once across an H.
    [("WASHINGTON", "W252"), ("LEE", "L000"), ("GUTIERREZ", "G362"), ("JACKSON", "J250"), ("TYMCZAK", "T522"),
     ("PFISTER", "P236"), ("VANDEUSEN", "V532"), ("ASHCRAFT", "A261"), ("RUBIN", "R150"), ("17", None)],
)  # fmt: skip
def test_soundex_of_published_examples(name, code):
    assert soundex(name) == code


@pytest.mark.parametrize(
    ("name", "code"),
    # Examples of German descriptions of the procedure (Müller-Lüdenscheidt, Wikipedia, Breschnew) and of its rules.
    [("MULLERLUDENSCHEIDT", "65752682"), ("WIKIPEDIA", "3412"), ("BRESCHNEW", "17863"), ("PHILIPP", "351"),
     ("CHRISTIAN", "47826"), ("XAVER", "4837"), ("MAX", "648"), ("FUCHS", "348"), ("ACXY", "048"), ("H", None)],
)  # fmt: skip
def test_cologne_code_of_published_examples(name, code):
    assert cologne(name) == code


@pytest.mark.parametrize(
    ("kind", "values", "expected"),
    [
        ("prefix-3", ["Müller", "Li", None], ["3:MUL", "2:LI", None]),
        ("soundex", ["Meier", "n/a", "Jörg"], ["4:M600", None, "4:J620"]),
        ("year", ["31/01/1950", None, "1950"], ["4:1950", None, None]),
        ("year-month", ["31/01/1950"], ["7:1950-01"]),
        ("month-day", ["31/01/1950"], ["5:01-31"]),
        ("identifier", ["00-12a"], ["5:0012A"]),
    ],
)
def test_kinds_read_a_part_of_the_normalised_value(kind, values, expected):
    assert PersonKey(("c",), (kind,)).values(lambda name: values, "dmy") == expected


def test_a_key_of_several_columns_is_missing_if_one_is():
    key = PersonKey(("a", "b"), ("name", "date"))
    table = {"a": ["Ito", "Ito", None], "b": ["1950-01-31", "unknown", "1950-01-31"]}
    assert key.values(table.__getitem__, "iso") == ["3:ITO10:1950-01-31", None, None]
    with pytest.raises(DataError, match="two-digit year"):
        key.values({"a": ["x"], "b": ["310150"]}.__getitem__, "iso")


@pytest.mark.parametrize("keys", [[], ["a", "a"], ["a", "b", "c", "d", "e"]])
def test_unfit_numbers_of_keys(keys):
    with pytest.raises(ConfigurationError, match="person_keys must be from 1 to 4 different keys"):
        read_keys(keys, "identifier")


@pytest.mark.parametrize(
    ("keys", "message"), [([{}], "at least one column"), ([{"a": "metaphone"}], "kind must be one of identifier")]
)
def test_unfit_keys(keys, message):
    with pytest.raises(ConfigurationError, match=message):
        read_keys(keys, "identifier")


def agree(rows, one, other):
    return any(a is not None and a == b for a, b in zip(rows[one], rows[other], strict=True))


@given(COLUMNS)
def test_people_and_pairs_are_those_of_all_comparisons(rows):
    values = [list(column) for column in zip(*rows, strict=True)]
    person = list(range(len(rows)))
    pairs = [(one, other) for one, other in subsets(range(len(rows)), 2) if agree(rows, one, other)]
    for _ in rows:
        for one, other in pairs:
            person[one] = person[other] = min(person[one], person[other])
    expected = [-1 if not any(row) else person[place] for place, row in enumerate(rows)]
    assert group_records(values, None).tolist() == expected
    assert count_agreeing_pairs(values) == len(pairs)


@given(st.lists(st.sampled_from([None, "p", "q", "r"]), min_size=1, max_size=8))
def test_patients_of_the_site_decide_where_they_are_named(patients):
    values = [["same"] * len(patients)]
    person = group_records(values, patients)
    for one, other in subsets(range(len(patients)), 2):
        assert (person[one] == person[other]) == (patients[one] is not None and patients[one] == patients[other])


@given(COLUMNS)
def test_a_union_is_counted_from_intersections(rows):
    """The number of rows with at least one of three marks, from the numbers with each combination of marks."""
    marked = np.array([[entry is not None for entry in row] for row in rows])
    sizes = [int(marked[:, list(keys)].all(axis=1).sum()) for keys in combinations(3)]
    assert include_exclude(sizes) == marked.any(axis=1).sum()


def test_values_are_joined_without_ambiguity():
    assert len(set(join_keys([["1:A", "2:AB"], ["2:BC", "1:C"]], (0, 1)))) == 2


def test_a_person_is_represented_by_the_first_record():
    people = People.of([["a", "b", "a", None], ["x", "x", "y", "z"]], ["1", "1", "2", "2"])
    assert people.first_values() == [["a", "a"], ["x", "y"]]
    assert people.count_values() == [1, 2, 2]
    assert people.count_repeated().tolist() == [[1, 1], [0, 2], [1, 1]]
