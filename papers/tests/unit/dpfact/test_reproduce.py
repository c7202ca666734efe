"""A tiny run from end to end: its files, what a second run takes up, and what it says of what is not at hand."""

import csv
import dataclasses
import json

import pytest

from multicentre.datasets import base
from multicentre_papers.dpfact import fits, reproduce
from multicentre_papers.dpfact.plan import FULL, QUICK
from multicentre_papers.dpfact.runner import EXERCISES
from multicentre_papers.runner.paper import read_finished
from support.noise import seed_noise

pytestmark = pytest.mark.slow

TINY = dataclasses.replace(
    QUICK,
    n_patients=600,
    samples=("mimic-like", "mimic3_demo"),
    seeds=(0,),
    curve_rank=3,
    curve_epochs=2,
    max_iter=1,
    trip_rounds=2,
    rank=10,
    ranks=(10,),
    n_sites=(1, 2),
    epsilons=(16.0,),
    all_mechanisms=True,
    sparsities=(0.0, 0.06),
)


class FitCallback:
    """Keeps the names of the loops."""

    def __init__(self):
        self.names = []

    def rounds_began(self, name, n_rounds, done):
        self.names.append(name)

    def round_ended(self, name, number, metrics):
        pass

    def rounds_ended(self, name, number):
        pass

    def site_lost(self, site, reason):
        raise AssertionError(reason)


@pytest.fixture(scope="module")
def heard():
    return FitCallback()


@pytest.fixture(scope="module")
def result(tmp_path_factory, heard):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "data_folders", lambda folder=None: ())
        seed_noise(patch)
        return reproduce(output=tmp_path_factory.mktemp("dpfact"), listener=heard, plan=TINY)


def test_every_exercise_leaves_its_rows(result, heard):
    assert heard.names == [one.name for one in EXERCISES]
    for one in result.finished:
        with (result.folder / f"{one.exercise.name}.csv").open(newline="", encoding="utf-8") as file:
            assert len(list(csv.DictReader(file))) == len(one.rows) > 0


def test_the_summary_says_what_the_text_says(result):
    summary = json.loads((result.folder / "summary.json").read_text(encoding="utf-8"))
    text = (result.folder / "summary.md").read_text(encoding="utf-8")
    assert summary["complete"]
    assert summary["published"]["table_3_seconds"]["TRIP"]["MIMIC-III"] == 175.26
    for claims in summary["claims"].values():
        for claim in claims:
            assert claim["claim"] in text
    for part in (
        "## Figure 2",
        "## Tables 2, 3 and 8",
        "## Table 4",
        "## Figure 3 (b)",
        "## Tables 5 to 7",
        "## Figure 4",
    ):
        assert part in text
    for difference in summary["differences"].values():
        assert difference in text


def test_every_figure_that_is_named_is_drawn(result):
    named = {name for section in result.sections.values() for name in section.figures}
    assert {path.stem for path in result.folder.glob("*.svg")} == named
    assert {"figure-2-mimic-like-rmse", "table-4-auc", "figure-3a-auc", "figure-3b-match", "figure-4-mu-0"} <= named


def test_what_is_not_at_hand_is_left_out_with_its_reason(result):
    assert "*Left out: mimic3_demo.*" in str(result)
    (note,) = result.notes
    assert "MIMIC-III" in note


def test_the_published_algorithm_fits_entries_alone(result):
    rows = {row["method"]: row for row in result.finished[0].rows if row.get("epoch") == TINY.curve_epochs}
    literal, exact = rows["DPFact as published, no noise"], rows["DPFact, exact sums"]
    assert literal["rmse_at_entries"] < exact["rmse_at_entries"] < exact["zero"]
    assert literal["rmse"] > 10 * exact["zero"]
    assert exact["rmse"] < exact["zero"]


def test_a_run_that_was_broken_off_goes_on_where_it_stood(result, tmp_path, monkeypatch):
    summary = json.loads((result.folder / "summary.json").read_text(encoding="utf-8"))
    last = EXERCISES[-1].name
    kept = {name: rows for name, rows in summary["exercises"].items() if name != last}
    (tmp_path / "summary.json").write_text(
        json.dumps(summary | {"complete": False, "exercises": kept}), encoding="utf-8"
    )
    monkeypatch.setattr(base, "data_folders", lambda folder=None: ())
    again = FitCallback()
    taken_up = reproduce(output=tmp_path, listener=again, plan=TINY)
    assert again.names == [last]
    assert str(taken_up).split("* Files")[0] == str(result).split("* Files")[0]


def test_another_plan_or_a_complete_run_is_not_taken_up(result):
    summary = result.folder / "summary.json"
    assert read_finished(summary, TINY) == {}
    told = json.loads(summary.read_text(encoding="utf-8"))
    broken_off = result.folder / "broken-off.json"
    broken_off.write_text(json.dumps(told | {"complete": False}), encoding="utf-8")
    assert set(read_finished(broken_off, TINY)) == {one.name for one in EXERCISES}
    assert read_finished(broken_off, FULL) == {}
    assert read_finished(result.folder / "absent.json", TINY) == {}


def test_without_opendp_private_fits_are_left_out(monkeypatch):
    monkeypatch.setattr(fits, "HAS_NOISE", False)
    privacy = next(one for one in EXERCISES if one.name == "figure-3b")
    rows = privacy.run(TINY, lambda number: None)
    assert [row["skipped"] for row in rows] == [fits.NO_NOISE]
    assert privacy.show(rows, TINY).blocks == ["*Left out: private fits.*"]
