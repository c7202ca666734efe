"""Tables of phenotypes against factors made by hand."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from multicentre.data.events import rollup as titles
from multicentre.errors import ConfigurationError, DataError
from multicentre.phenotyping.tables import share_of_patients, tabulate_phenotypes

CODES = {"procedure": ("p1", "p2", "p3"), "diagnosis": ("icd9cm-dx:5856", "d2")}
FACTORS = {
    "procedure": np.array([[0.0, 0.6], [0.8, 0.0], [0.6, 0.8]]),
    "diagnosis": np.array([[1.0, 0.6], [0.0, 0.8]]),
}


def table(**options):
    return tabulate_phenotypes(FACTORS, CODES, np.array([20.0, 10.0]), **options)


def test_codes_stand_in_order_of_weight_and_those_without_weight_are_left_out():
    first, second = table().phenotypes
    assert [(one.code, one.weight) for one in first.codes["procedure"]] == [("p2", 0.8), ("p3", 0.6)]
    assert [one.code for one in first.codes["diagnosis"]] == ["icd9cm-dx:5856"]
    assert [one.code for one in second.codes["procedure"]] == ["p3", "p1"]
    assert (second.number, second.weight, second.prevalence) == (2, 10.0, None)
    assert [len(codes) for one in table(n_codes=1) for codes in one.codes.values()] == [1, 1, 1, 1]


def test_codes_of_free_factors_stand_in_order_of_size_with_their_signs():
    (one,) = tabulate_phenotypes({"m": np.array([[0.1], [-0.9]])}, {"m": ("a", "b")}, np.ones(1))
    assert [(code.code, code.weight) for code in one.codes["m"]] == [("b", -0.9), ("a", 0.1)]


@given(arrays(float, (6, 3), elements=st.floats(0, 1, width=32)), st.integers(1, 8))
def test_long_frame_gives_the_factors_back(factor, n_codes):
    names = [f"c{place}" for place in range(6)]
    frame = tabulate_phenotypes({"m": factor}, {"m": names}, np.ones(3), n_codes=n_codes).to_frame()
    for (number, rank), row in frame.set_index(["phenotype", "rank"]).iterrows():
        column = factor[:, number - 1]
        assert row["weight"] == column[names.index(row["code"])] == np.sort(column)[-rank]
    kept = frame.groupby("phenotype").size().reindex([1, 2, 3], fill_value=0)
    assert kept.tolist() == np.minimum((factor != 0).sum(axis=0), n_codes).tolist()


def test_summary_has_one_row_a_phenotype():
    frame = table(prevalence=[0.25, None], titles={"p2": "Dialysis"}).summary_frame()
    assert frame.index.tolist() == [1, 2]
    assert frame.columns.tolist() == ["weight", "prevalence", "procedure", "diagnosis"]
    assert frame["procedure"].tolist() == ["Dialysis", "p3"]
    assert frame["prevalence"].iloc[0] == 0.25
    assert np.isnan(frame["prevalence"].iloc[1])


def test_empty_phenotype_has_a_row_without_codes():
    empty = tabulate_phenotypes({"m": np.zeros((2, 1))}, {"m": ("a", "b")}, np.zeros(1))
    assert empty.to_frame().empty
    assert empty.summary_frame()["m"].tolist() == [""]
    assert str(empty).splitlines()[1].split() == ["1", "0", "–"]


def test_outcome_is_shown_where_it_is_known():
    told = table().with_outcome({2: -1.5}, {2: 0.0004})
    assert told.phenotypes[0].coefficient is None
    frame = told.summary_frame()
    assert frame.loc[2, ["coefficient", "p_value"]].tolist() == [-1.5, 0.0004]
    assert np.isnan(frame.loc[1, "coefficient"])
    heading, first, *_ = str(told).splitlines()
    assert heading.split()[:5] == ["phenotype", "weight", "patients", "coefficient", "p"]
    assert first.split()[:5] == ["1", "20", "–", "–", "–"]
    assert re.search(r"2 +10 +– +-1\.5 +0\.0004 +p3", str(told))
    with pytest.raises(DataError, match="numbered from 1 to 2; got 3"):
        table().with_outcome({3: 1.0})


def test_titles_come_from_the_mapping_and_codes_stand_for_themselves():
    frame = table(titles={"p2": "Dialysis"}).to_frame().set_index("code")["title"]
    assert frame["p2"] == "Dialysis"
    assert frame["d2"] == "d2"


def test_titles_of_the_package_and_codes_without_it(monkeypatch):
    if titles.data_folder() is not None:
        first = table(titles=True).phenotypes[0].codes["diagnosis"][0]
        assert first.title == "End stage renal disease"
    monkeypatch.setattr(titles, "data_folder", lambda: None)
    titles._read_titles.cache_clear()
    try:
        frame = table(titles=True).to_frame()
    finally:
        titles._read_titles.cache_clear()
    assert frame["title"].tolist() == frame["code"].tolist()


def test_printed_lines_are_cut_and_html_is_escaped():
    long = table(titles={"p2": "<b>" + "x" * 90, "p3": "a & b"})
    lines = str(long).splitlines()
    assert len(lines) == 1 + 2 + 2
    assert "…  0.80" in lines[1]
    assert max(map(len, lines)) < 120
    page = long._repr_html_()
    assert "<b>" not in page
    assert "&lt;b&gt;" in page
    assert 'title="p3">a &amp; b</span> 0.60' in page
    assert page.count("<tr>") == 3


def test_prevalence_that_rests_on_few_is_left_out():
    assert share_of_patients(np.array([9.0, 10.0, 0.0]), 100.0, 3) == [None, 0.1, None]
    assert share_of_patients(None, 100.0, 2) == [None, None]
    assert share_of_patients(np.array([20.0]), 0.0, 1) == [None]


@pytest.mark.parametrize("number", [0, -1, 1.5, True])
def test_number_of_codes_is_checked(number):
    with pytest.raises(ConfigurationError, match="an integer of at least 1"):
        table(n_codes=number)
