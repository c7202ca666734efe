"""What is printed and written of every part of a result."""

import json
import math

import pytest

from multicentre_papers.fed_mv_ppca import ReproductionResult
from multicentre_papers.fed_mv_ppca.aggregate import Row
from multicentre_papers.fed_mv_ppca.measure import Figures
from multicentre_papers.fed_mv_ppca.plan import FULL, QUICK
from multicentre_papers.fed_mv_ppca.resume import read_finished
from multicentre_papers.fed_mv_ppca.selection import Choice
from multicentre_papers.fed_mv_ppca.unmeasured import Imputed


def fitted(method, repetition=0):
    figures = Figures(0.0123, 0.02 + repetition, math.nan, 1.5, math.nan, 0.3, 4, False, 0.25)
    return Row("sd", "G", 6, method, repetition, 0, 5, figures)


@pytest.fixture
def result(tmp_path):
    return ReproductionResult(
        QUICK,
        tmp_path,
        rows=[fitted("Fed-mv-PPCA (paper)"), fitted("Fed-mv-PPCA (paper)", 1), fitted("mc-VAE")],
        choices=[Choice(0, 4, -10.0, 0.025), Choice(0, 5, -20.0, 0.01)],
        imputed=[Imputed(2, "invariant", "all centres", 0, 0, 0.1, 0.12, 0.13, 0.9)],
        notes=["one thing was left out"],
    )


def cells(text, *, of):
    (line,) = [line for line in text.splitlines() if of in line and line.startswith("|")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_lines_stand_beside_the_published_ones(result):
    line = cells(str(result), of="Fed-mv-PPCA (paper)")
    assert line[:5] == ["G", "6", "Fed-mv-PPCA (paper)", "0.0123 ± 0.0000", "0.5200 ± 0.7071"]
    assert line[5:] == ["–", "0.1312 ± 0.0113", "0.1126 ± 0.0014", "0.8538 ± 0.0354"]
    assert cells(str(result), of="mc-VAE")[4] == "0.0200"


def test_every_part_is_shown(result):
    text = str(result)
    assert cells(text, of="**5**") == ["**5**", "-20", "0.0100"]
    assert cells(text, of="all centres") == [
        *("2", "Fed-mv-PPCA (invariant)", "all centres"),
        *("0.1200", "0.1300", "0.1000", "0.9000"),
    ]
    assert "one thing was left out" in text


def test_what_is_written_can_be_read_back(result):
    result.write()
    paths = result.folder / "rows.csv", result.folder / "summary.json"
    assert str(read_finished(*paths, QUICK)) == str(result.rows)
    summary = json.loads(paths[1].read_text(encoding="utf-8"))
    assert summary["table"][0]["mean"]["accuracy"] is None
    assert summary["unmeasured"][0]["imputation_mae"] == 0.12


def test_rows_of_another_plan_or_of_a_complete_run_are_not_taken_up(result):
    result.write()
    paths = result.folder / "rows.csv", result.folder / "summary.json"
    assert read_finished(*paths, FULL) == []
    assert read_finished(paths[0], result.folder / "absent.json", QUICK) == []
    result.complete = True
    result.write()
    assert read_finished(*paths, QUICK) == []
