"""A tiny run of the reproduction: its files, and the orderings that must hold."""

import csv
import dataclasses
import json

import pytest

from multicentre.datasets import base
from multicentre_papers.fed_mv_ppca import methods, reproduce
from multicentre_papers.fed_mv_ppca.aggregate import find
from multicentre_papers.fed_mv_ppca.plan import QUICK, Cell

pytestmark = pytest.mark.slow

TINY = dataclasses.replace(
    QUICK,
    cells=(Cell("IID", 1), Cell("IID", 3), Cell("K", 3)),
    samples=("sd",),
    n_repetitions=1,
    n_rounds=10,
    autoencoder_rounds=3,
    selection_candidates=(4, 5),
)


class FitCallback:
    """Counts fits."""

    def __init__(self):
        self.promised, self.made = 0, 0

    def rounds_began(self, name, n_rounds, done):
        self.promised += n_rounds

    def round_ended(self, name, number, metrics):
        pass

    def rounds_ended(self, name, number):
        self.made += number

    def site_lost(self, site, reason):
        raise AssertionError(reason)


@pytest.fixture(scope="module")
def heard():
    return FitCallback()


@pytest.fixture(scope="module")
def result(tmp_path_factory, heard):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "data_folders", lambda folder=None: ())
        return reproduce(output=tmp_path_factory.mktemp("reproduction"), listener=heard, plan=TINY)


def mae(result, **place):
    (line,) = find(result.lines, **place)
    return line.mean["mae_test"]


def test_every_promised_fit_is_made(result, heard):
    assert heard.promised == heard.made == len(result.rows) + len(result.choices)


def test_the_files_hold_what_the_result_holds(result):
    with (result.folder / "rows.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["mae_test"]) for row in rows] == [row.figures.mae_test for row in result.rows]
    summary = json.loads((result.folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["complete"]
    assert len(summary["table"]) == len(result.lines)
    assert {row["data"] for row in summary["published"]} == {"ADNI, 311 patients"}
    text = (result.folder / "tables.md").read_text(encoding="utf-8")
    assert "another data set" in text
    assert "0.1113 ± 0.0012" in text
    assert sorted(path.name for path in result.folder.iterdir()) == [
        "rows.csv",
        "selection.csv",
        "summary.json",
        "tables.md",
    ]


def test_what_is_left_out_is_said(result):
    text = str(result)
    assert (methods.NO_MISSING_VIEWS if methods.has_torch() else methods.NO_TORCH) in text
    assert "Breast cancer of TCGA is left out" in text
    assert not [row for row in result.rows if row.scenario == "K" and row.method in methods.RIVALS]


def test_three_centres_are_as_good_as_one(result):
    for method in methods.PPCA:
        alone = mae(result, method=method, scenario="IID", n_sites=1)
        assert mae(result, method=method, scenario="IID", n_sites=3) < 1.1 * alone
        assert alone < 0.0105


def test_the_invariant_mode_reaches_the_pooled_fit(result):
    near = next(one for one in result.verdicts["sd"] if "pooled fit" in one.claim)
    assert near.reached, near


def test_waic_prefers_the_true_dimension_to_one_less(result):
    assert next(iter(result.verdicts["selection"])).reached


@pytest.mark.skipif(not methods.has_torch(), reason="torch is not installed")
def test_fed_mv_ppca_beats_auto_encoders_of_a_small_budget(result):
    for method in methods.RIVALS:
        assert mae(result, method=methods.PAPER, scenario="IID", n_sites=3) < mae(
            result, method=method, scenario="IID", n_sites=3
        )


def test_a_run_that_was_broken_off_goes_on_where_it_stood(result, tmp_path, monkeypatch):
    summary = json.loads((result.folder / "summary.json").read_text(encoding="utf-8"))
    (tmp_path / "summary.json").write_text(json.dumps(summary | {"complete": False}), encoding="utf-8")
    kept = (result.folder / "rows.csv").read_text(encoding="utf-8").splitlines()
    first_cell = [line for line in kept if not line.startswith(("sd,K", "sd,IID,3"))]
    (tmp_path / "rows.csv").write_text("\n".join(first_cell) + "\n", encoding="utf-8")
    monkeypatch.setattr(base, "data_folders", lambda folder=None: ())
    again = FitCallback()
    taken_up = reproduce(output=tmp_path, listener=again, plan=TINY)
    assert again.made == len(result.rows) + len(result.choices) - (len(first_cell) - 1)
    assert [row.figures.mae_test for row in taken_up.rows] == pytest.approx(
        [row.figures.mae_test for row in result.rows], rel=1e-9
    )
