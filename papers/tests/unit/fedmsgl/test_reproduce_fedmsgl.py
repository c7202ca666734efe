"""A tiny run on simulated patients: its files, its tables, and that it is taken up where it was broken off."""

import csv
import dataclasses
import json

import pytest

from multicentre.datasets import base, simulate_views
from multicentre_papers.fedmsgl import reproduce, samples
from multicentre_papers.fedmsgl.contenders import ONE_SHOT, contenders
from multicentre_papers.fedmsgl.exercises import ablation, figure2, losses, table3, tuned
from multicentre_papers.fedmsgl.plan import QUICK

pytestmark = pytest.mark.slow

TINY = dataclasses.replace(
    QUICK,
    samples=("simulated", "sonar"),
    n_runs=2,
    figure_sample="simulated",
    lambdas=(1.0, 100.0),
    betas=(0.1, 2.0),
    most_published=0,
    n_rounds=3,
    sizes=(10,),
    most_tuned=50,
)


class FitCallback:
    """Counts fits."""

    def __init__(self):
        self.ended = []

    def rounds_began(self, name, n_rounds, done):
        pass

    def round_ended(self, name, number, metrics):
        pass

    def rounds_ended(self, name, number):
        self.ended.append(name)

    def site_lost(self, site, reason):
        raise AssertionError(reason)


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    kept = (ONE_SHOT, "FedMSGL, three rounds", "SFMC", "FedMVFCM")
    few = [dataclasses.replace(one, grid=one.grid[:2]) for one in contenders() if one.name in kept]
    small = dataclasses.replace(
        samples.SAMPLES["simulated"], load=lambda: simulate_views(45, 3, (8, 8, 8), noise=0.3, random_state=1)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "data_folders", lambda folder=None: ())
        patch.setitem(samples.SAMPLES, "simulated", small)
        for module in (table3, tuned, figure2, ablation, losses):
            patch.setattr(module, "contenders", lambda: few)
        folder = tmp_path_factory.mktemp("fedmsgl")
        first = FitCallback()
        result = reproduce(output=folder, listener=first, plan=TINY)
        yield result, first, folder


def rows_of(folder, name):
    with (folder / f"{name}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_it_runs_without_files_and_says_what_is_missing(told):
    result, heard, folder = told
    assert result.complete
    assert heard.ended == ["table-3", "tuned", "figure-2", "ablation", "losses"]
    assert "Left out: sonar" in (folder / "summary.md").read_text(encoding="utf-8")
    assert any("MULTICENTRE_DATA" in note for note in result.notes)
    assert not any("has no answer" in note for note in result.notes)


def test_every_method_has_its_runs(told):
    _, _, folder = told
    found = [(row["method"], row["seed"]) for row in rows_of(folder, "table-3") if row["method"]]
    assert len(found) == len(set(found)) == 7
    assert ("SFMC", "0") in found
    assert ("SFMC", "1") not in found
    own = [float(row["acc"]) for row in rows_of(folder, "table-3") if row["method"] == ONE_SHOT]
    assert min(own) > 0.9


def test_every_panel_ablation_and_loss_has_its_rows(told):
    _, _, folder = told
    panels = [row["panel"] for row in rows_of(folder, "figure-2")]
    assert {panel: panels.count(panel) for panel in set(panels) - {"objective"}} == {
        "lambda_1, lambda_3": 4,
        "lambda_2": 2,
        "beta": 2,
    }
    assert panels.count("objective") >= 1
    assert {row["embedding"] for row in rows_of(folder, "ablation") if row["embedding"]} == {
        *ablation.EMBEDDINGS,
        ablation.WITHOUT,
    }
    found = [(row["loss"], row["level"]) for row in rows_of(folder, "losses") if row["loss"]]
    assert found.count(("records lacking", "30%")) == 2
    assert {level for loss, level in found if loss == "site missing"} == {"view_1", "view_2", "view_3"}
    assert all(row["acc"] for row in rows_of(folder, "losses") if row["loss"])


def test_the_summary_holds_printed_figures_with_their_remarks(told):
    _, _, folder = told
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    table = summary["published"]["table_3"]
    assert table["FedMSGGL"]["BBC Sport"]["acc"] == 0.9022
    assert table["FedMSGGL"]["BBC Sport"]["remark"] is None
    assert "below ACC" in table["FedMVL"]["Handwritten"]["remark"]
    assert "</svg>" in (folder / "figure-2d.svg").read_text(encoding="utf-8")


def test_an_unfinished_run_is_taken_up(told, monkeypatch):
    result, _, folder = told
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    summary["complete"] = False
    del summary["exercises"]["losses"]
    (folder / "summary.json").write_text(json.dumps(summary), encoding="utf-8")
    heard = FitCallback()
    monkeypatch.setattr(losses, "at_hand", lambda names: [])
    again = reproduce(output=folder, listener=heard, plan=TINY)
    assert heard.ended == ["losses"]
    assert again.finished[0].rows == json.loads(json.dumps(result.finished[0].rows))
