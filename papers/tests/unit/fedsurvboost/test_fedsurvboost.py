"""A tiny run on simulated patients: its files, its tables, and the claims that it makes of figures."""

import csv
import dataclasses
import json

import numpy as np
import pytest

import multicentre as mc
from multicentre.datasets import base
from multicentre.survival.fitted_models import CoxModel
from multicentre.survival.scores.brier import integrated_brier_score
from multicentre_papers.fedsurvboost import published, reproduce
from multicentre_papers.fedsurvboost.contenders import BLEND, COX, HAZARD, RSF, boosted, contenders
from multicentre_papers.fedsurvboost.exercises import as_published, leak, paired, shifted
from multicentre_papers.fedsurvboost.fits import Bench
from multicentre_papers.fedsurvboost.measure import assess_as_the_authors, between
from multicentre_papers.fedsurvboost.plan import FULL, QUICK
from multicentre_papers.fedsurvboost.splits import as_the_authors, hold_out, inside, share_out

TINY = dataclasses.replace(
    QUICK, samples=("metabric", "simulated"), n_sites=(1, 2), n_splits=1, n_rounds=2, n_estimators=3, n_shifted_splits=1
)


class FitCallback:
    """Counts cells."""

    def __init__(self):
        self.last = {}

    def rounds_began(self, name, n_rounds, done):
        self.last[name] = (n_rounds, 0)

    def round_ended(self, name, number, metrics):
        self.last[name] = (self.last[name][0], number)

    def rounds_ended(self, name, number):
        pass

    def site_lost(self, site, reason):
        raise AssertionError(reason)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    few = [one for one in contenders(TINY) if one.name in (COX, RSF, HAZARD, BLEND, boosted("tree", "default"))]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "data_folders", lambda folder=None: ())
        for module in (paired, as_published, shifted, leak):
            patch.setattr(module, "contenders", lambda plan: few)
        patch.setattr(shifted, "KINDS", {"at random": shifted.KINDS["at random"]})
        yield reproduce(output=tmp_path_factory.mktemp("fedsurvboost"), listener=FitCallback(), plan=TINY)


@pytest.mark.slow
def test_it_runs_without_the_real_data_and_says_what_is_missing(result):
    text = (result.folder / "summary.md").read_text(encoding="utf-8")
    assert result.complete
    assert "Left out: metabric" in text
    assert any("MULTICENTRE_DATA" in note for note in result.notes)


def test_every_method_has_its_row(result):
    with (result.folder / "paired.csv").open(newline="", encoding="utf-8") as file:
        rows = [row for row in csv.DictReader(file) if row["method"]]
    found = {(row["method"], row["sites"]) for row in rows}
    assert found == {(name, "2") for name in (COX, RSF, HAZARD, BLEND)} | {
        (boosted("tree", "default"), n) for n in ("1", "2")
    }
    for row in rows:
        assert 0.4 < float(row["concordance"]) < 1.0
        assert 0.0 < float(row["ibs"]) < 0.4


def test_the_summary_holds_the_published_figures_and_the_claims(result):
    told = json.loads((result.folder / "summary.json").read_text(encoding="utf-8"))
    assert told["published"]["tables_1_and_2"][4]["concordance"]["METABRIC"] == [0.646, 0.653, 0.656]
    claims = [claim["claim"] for claims in told["claims"].values() for claim in claims]
    assert sum("simulated, 2 sites" in claim for claim in claims) == 2


def test_a_claim_is_reached_within_the_tolerance_only():
    def rows(rival):
        return [
            {"sample": "s", "sites": 1, "method": COX, "concordance": 0.700, "ibs": 0.17},
            {"sample": "s", "sites": 1, "method": "other", "concordance": rival, "ibs": 0.18},
        ]

    plan = dataclasses.replace(TINY, n_sites=(1,))
    for rival, reached in ((0.7029, True), (0.7031, False)):
        claims = paired.show(rows(rival), plan).claims
        assert [claim.reached for claim in claims] == [reached, True]


def test_levels_of_the_published_loop():
    rows = [
        {"sample": "metabric", "sites": n, "method": boosted("cox", "as_published"), "concordance": c, "ibs": 0.156}
        for n, c in ((4, 0.653), (8, 0.640))
    ]
    claims = as_published.show(rows, FULL).claims
    assert [claim.reached for claim in claims] == [True, False]


def test_printed_cells():
    row = next(one for one in published.TABLES if one.method == "FedSurvBoost PyCox")
    assert row.cell(published.SUPPORT, 4) == (0.875, 0.119)
    assert row.cell(published.METABRIC, 1) == (0.650, 0.165)


def test_splits_share_no_patient_and_keep_the_share_of_events():
    data = mc.datasets.simulate_survival(400, random_state=1)
    for kept, held in (hold_out(data, 0), as_the_authors(data)):
        assert len(kept) + len(held) == 400
        assert len(held) == 80
        rows = np.vstack([kept.X, held.X])
        assert len(np.unique(rows, axis=0)) == 400
    kept, held = hold_out(data, 0)
    assert abs(kept.event.mean() - held.event.mean()) < 0.01
    sites = share_out(kept, 3, 0)
    assert sum(len(site) for site in sites.values()) == 320
    split = inside(sites, 0)
    assert len(split.test) + sum(len(site) for site in split.sites.values()) == 320


def test_settings_are_chosen_on_training_patients_alone():
    data = mc.datasets.simulate_survival(300, random_state=2)
    kept, held = hold_out(data, 0)
    hazard = next(one for one in contenders(TINY) if one.name == HAZARD)
    bench = Bench({"all": kept}, 0)
    chosen = bench.chosen(hazard)
    assert chosen in hazard.settings
    assert bench.fitted(hazard).get_params()["max_depth"] == chosen["max_depth"]
    assert set(bench.judge(hazard, held)) == {"concordance", "ibs"}


def test_curves_of_the_authors_score_are_straight_between_times():
    model = CoxModel(np.array([2.0, 4.0]), np.zeros(1), np.zeros(1), np.log([2.0, 4.0]))
    found = between(model, np.zeros((1, 1)), np.array([0.0, 1.0, 2.0, 3.0, 4.0, 5.0]))
    np.testing.assert_allclose(found, [[1.0, 0.75, 0.5, 0.375, 0.25, 0.25]])


def test_the_authors_score_takes_the_censoring_of_the_test_patients():
    data = mc.datasets.simulate_survival(200, random_state=3)
    with mc.Federation.in_process({"all": data}, policy=mc.Policy(min_patients=0)) as federation:
        fitted = mc.survival.FedCox("grid").fit(federation)
    test = mc.datasets.simulate_survival(100, random_state=4)
    times = np.unique(test.time)[:-1]
    curves = between(fitted.model_, test.X, times)
    happened = test.event == 1
    expected = integrated_brier_score(curves, times, test.time, happened, test.time, happened)
    assert assess_as_the_authors(fitted, test)["ibs"] == pytest.approx(expected, abs=1e-12)


def test_columns_of_the_leak_are_named():
    data = mc.data.SurvivalData(np.eye(3), np.ones(3), np.ones(3), columns=["age", "sfdm2=a", "slos"])
    assert leak.columns_without(data, leak.WITHOUT[leak.CLEAN]) == ["age"]
    assert leak.columns_of(data, leak.ONLY["only sfdm2"]) == ["sfdm2=a"]
