"""Printed results of runs: tables, long tables, p-values, and analyses without a result."""

import json

import pandas as pd
import pytest

from multicentre.cli.results import MAX_ROWS, describe_results
from multicentre.studies.result_files import to_csv


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "results").mkdir()
    return tmp_path


def write(folder, name, frame):
    (folder / "results" / f"{name}.csv").write_text(to_csv(frame))


def test_the_answer_comes_first_and_columns_are_aligned(folder):
    frame = pd.DataFrame({"hazard_ratio": [1.2345678, 0.5], "p_value": [0.0000123, 0.25]}, index=["age", "dose"])
    write(folder, "hazard-ratios", frame)
    printed = describe_results(folder, {"answer": "Hazard ratio of age: 1.23.", "tables": ["hazard-ratios"]})
    assert printed.splitlines() == [
        "Hazard ratio of age: 1.23.",
        "",
        "hazard-ratios",
        "      hazard_ratio  p_value",
        "age          1.235   <0.001",
        "dose         0.500    0.250",
    ]


def test_long_tables_are_cut_and_further_ones_only_named(folder):
    long = pd.DataFrame({"time": range(MAX_ROWS + 5)})
    write(folder, "first", long)
    write(folder, "second", long)
    lines = describe_results(folder, {"answer": "", "tables": ["first", "second"]}).splitlines()
    assert lines[MAX_ROWS + 2] == f"... {MAX_ROWS + 5} rows in results/first.csv"
    assert lines[-1] == f"second: {MAX_ROWS + 5} rows in results/second.csv"


def test_missing_numbers_are_dashes_and_texts_stay(folder):
    write(folder, "groups", pd.DataFrame({"group": ["a", "b"], "events": [12.0, float("nan")]}))
    lines = describe_results(folder, {"answer": "", "tables": ["groups"]}).splitlines()
    assert lines == ["groups", "group  events", "a          12", "b           -"]


@pytest.mark.parametrize(("status", "mark"), [("refused", "REFUSED: no"), ("failed", "NO RESULT: no")])
def test_an_analysis_without_a_result_is_marked(folder, status, mark):
    entry = {"name": "a", "title": "A", "method": "m", "folder": "analyses/a", "status": status, "message": "no"}
    assert describe_results(folder, {"analyses": [entry]}).splitlines() == ["A (m)", "=====", mark]


def test_a_run_of_an_earlier_version_has_no_block(folder):
    assert describe_results(folder, json.loads("{}")) == ""


def test_negative_means_and_names_are_printed_without_the_apostrophe_of_the_file(folder):
    write(folder, "table-1", pd.DataFrame({"overall": ["-0.1 (1.0)", "12 (3.0)"]}, index=["=x, mean (SD)", "age"]))
    assert "'-0.1 (1.0)" in (folder / "results" / "table-1.csv").read_text()
    printed = describe_results(folder, {"answer": "", "tables": ["table-1"]})
    assert "'" not in printed
    assert "=x, mean (SD)  -0.1 (1.0)" in printed
