"""Patients by column of a table: what a run keeps of them, and how the report shows it, never a small count."""

import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.data import TableData
from multicentre.privacy.policy import Policy
from multicentre.reports.run_contents import RunMetadata
from multicentre.reports.tables import column_table, site_table
from multicentre.studies.run_metadata import hide_small, initial_metadata
from multicentre.studies.study_file import study_from_mapping

LEAST = 10


def site(n, n_missing=0, n_rare=0):
    bands = ["[0-10)", "[10-20)", "[20-30)"]
    age = np.array([*([None] * n_missing), *(["[20-30)"] * n_rare), *np.resize(bands[:2], n - n_missing - n_rare)])
    frame = pd.DataFrame(
        {"age": age, "weight": [np.nan] * n_missing + [70.0] * (n - n_missing), "ill": np.arange(n) % 2}
    )
    return TableData.from_frame(
        frame, outcome="ill", classes=["no", "yes"], categories={"age": bands}, references={"age": "[0-10)"}
    )


def facts_of(sites):
    study = study_from_mapping(
        {"study": {"name": "x", "method": "fed-xgb-classifier"}, "sites": {name: {} for name in sites}}
    )
    facts = json.loads(json.dumps(initial_metadata(study, sites, dict.fromkeys(sites, Policy(min_patients=LEAST)))))
    return RunMetadata.model_validate({**facts, "ended": facts["started"]})


def test_patients_are_counted_by_level_and_not_by_column_of_ones():
    shown = column_table(facts_of({"lyon": site(100, 20, 20), "oslo": site(60, 0, 0)}))
    assert shown.columns == ["Column", "Patients with a value", "Missing"]
    assert shown.rows == [
        ["outcome (class)", "no 80, yes 80", "0"],
        ["age", "[0-10) 60, [10-20) 60, [20-30) 20", "20"],
        ["weight", "140", "20"],
    ]


def test_small_counts_and_those_that_would_give_them_away_are_hidden():
    shown = column_table(facts_of({"lyon": site(100, 0, 4)}))
    assert shown.rows[1] == ["age", "[0-10) hidden, [10-20) 48, [20-30) hidden", "0"]
    assert column_table(facts_of({"lyon": site(100, 3)})).rows[2] == ["weight", "hidden", "hidden"]


def test_a_site_below_its_minimum_is_in_no_count():
    run = facts_of({"lyon": site(100), "oslo": site(7)})
    assert column_table(run).rows[2] == ["weight", "100", "0"]
    assert site_table(run).rows == [["lyon", "100"], ["oslo", "<10"], ["All", "≥100"]]
    assert facts_of({"oslo": site(7)}).columns == {}


@pytest.mark.parametrize("cells", [{"a": 5, "missing": 0}, {"a": None, "missing": 3}])
def test_the_report_hides_what_a_run_should_not_have_kept(cells):
    run = facts_of({"lyon": site(100)}).model_copy(update={"columns": {"x": cells}})
    assert not {"5", "3"} & {word for cell in column_table(run).rows[0] for word in cell.split()}


@given(st.lists(st.integers(0, 40), min_size=1, max_size=6))
def test_no_small_count_follows_from_the_others(counts):
    cells = {str(place): count for place, count in enumerate(counts)}
    shown = hide_small(cells, LEAST)
    hidden = [cells[name] for name, count in shown.items() if count is None]
    assert all(count is None or count == cells[name] for name, count in shown.items())
    assert all(count is None or not 0 < count < LEAST for count in shown.values())
    if hidden and sum(counts) >= LEAST:
        assert sum(hidden) >= LEAST
        assert len(hidden) > 1
    if not any(0 < count < LEAST for count in counts):
        assert not hidden
