"""The example of README's first paper: three hospitals' files, one study of five analyses, one report."""

import re
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from multicentre.studies import read_study, run_study

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "examples/first_paper"

# Warnings name the incomplete patients that the comparison leaves out.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::UserWarning")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("first-paper")
    subprocess.run([sys.executable, str(EXAMPLE / "make_data.py"), str(folder)], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def run(folder):
    return run_study(read_study(folder / "study.toml"))


def test_the_answer_in_the_readme_is_that_of_the_run(run):
    sentence = re.search(r"^Hazard ratio of arm=new.*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    answers = [analysis["answer"] for analysis in run.metadata["analyses"]]
    assert sentence is not None
    assert sentence[0] in answers


def test_every_analysis_has_results_and_the_study_one_report(run):
    assert [one["status"] for one in run.metadata["analyses"]] == ["finished"] * 5
    tables = {path.stem for path in run.path.glob("analyses/*/results/*.csv")}
    assert {"table-1", "survival-at-times", "hazard-ratios", "coefficients"} <= tables
    survival = pd.read_csv(run.path / "analyses/survival/results/survival-at-times.csv")
    assert sorted(survival["time"].unique()) == [12, 24, 36]
