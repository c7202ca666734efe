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
from multicentre_papers.fedsurvboost.contenders import (
    BLEND,
    COX,
    HAZARD,
    RSF,
    SURF_IBS_PUBLISHED,
    SURF_PUBLISHED,
    boosted,
    contenders,
)
from multicentre_papers.fedsurvboost.exercises import as_published, leak, paired, shifted
from multicentre_papers.fedsurvboost.fits import Bench, fit
from multicentre_papers.fedsurvboost.measure import assess_as_the_authors, between
from multicentre_papers.fedsurvboost.plan import FULL, QUICK
from multicentre_papers.fedsurvboost.samples import available
from multicentre_papers.fedsurvboost.splits import as_the_authors, hold_out, inside, share_out

TINY = dataclasses.replace(
    QUICK,
    samples=("metabric", "simulated"),
    n_sites=(1, 2),
    n_paired_sites=(1, 2),
    n_splits=1,
    n_rounds=2,
    n_estimators=3,
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
    assert found == {(name, "1") for name in (COX, RSF, HAZARD, BLEND)} | {
        (boosted("tree", "default"), n) for n in ("1", "2")
    }
    for row in rows:
        assert 0.4 < float(row["concordance"]) < 1.0
        assert 0.0 < float(row["ibs"]) < 0.4


def test_the_summary_holds_the_published_figures_and_the_claims(result):
    summary = json.loads((result.folder / "summary.json").read_text(encoding="utf-8"))
    assert summary["published"]["tables_1_and_2"][4]["concordance"]["METABRIC"] == [0.646, 0.653, 0.656]
    claims = [claim["claim"] for claims in summary["claims"].values() for claim in claims]
    assert sum("metabric, 2 sites" in claim for claim in claims) == 2
    untested = [claim for claims in summary["claims"].values() for claim in claims if claim["n_repetitions"] == 0]
    assert len(untested) == len(claims), "without real data no claim is judged, and none is absent"


def measured(named, rival, n_splits=5):
    """Return rows of the named method, of a rival, and of an exact method that is better than both."""
    figures = {paired.NAMED: named, "rival": rival, COX: 0.9}
    return [
        {
            "sample": "metabric",
            "split": split,
            "sites": 1,
            "method": method,
            "concordance": figure + 0.001 * split,
            "ibs": 1 - figure,
        }
        for split in range(n_splits)
        for method, figure in figures.items()
    ]


@pytest.mark.parametrize(
    ("rival", "n_splits", "verdicts"),
    [
        (0.7029, 5, ("holds", "does NOT hold")),
        (0.7031, 5, ("does NOT hold", "does NOT hold")),
        (0.7009, 5, ("holds", "holds")),
        (0.6, 4, ("too few to judge",) * 2),
    ],
)
def test_the_claim_is_about_one_named_method_and_the_best_other_and_can_fail(rival, n_splits, verdicts):
    plan = dataclasses.replace(TINY, n_paired_sites=(1,))
    section = paired.show(measured(0.7, rival, n_splits), plan)
    claims = [claim for claim in section.claims if claim.claim.startswith("metabric")]
    assert tuple(claim.verdict for claim in claims) == verdicts
    assert all(paired.NAMED in claim.claim and "rival" in claim.figures for claim in claims)
    support = [claim for claim in section.claims if claim.claim.startswith("support")]
    assert [claim.verdict for claim in support] == ["untested"] * 2


def test_the_table_of_differences_has_standard_errors_and_wins():
    rows = measured(0.7, 0.69)
    rows[1]["concordance"] += 0.05  # the rival wins the first split
    table = paired.show(rows, dataclasses.replace(TINY, n_paired_sites=(1,))).blocks[1]
    line = next(line for line in table.splitlines() if line.startswith("| rival"))
    assert [cell.strip() for cell in line.strip("|").split("|")] == [
        "rival", "1", "+0.0000 ± 0.0100", "4 of 5", "+0.0100 ± 0.0000", "5 of 5",
    ]  # fmt: skip


def as_the_loop(method, sample, n_sites, concordance, ibs, n_seeds=5):
    place = {"sample": sample, "sites": n_sites, "method": method, "concordance": concordance, "ibs": ibs}
    return [{**place, "seed": seed} for seed in range(n_seeds)]


def test_levels_of_the_published_loop():
    cox = boosted("cox", "as_published")
    rows = [*as_the_loop(cox, "metabric", 4, 0.653, 0.156), *as_the_loop(cox, "metabric", 8, 0.640, 0.156)]
    claims = as_published.show(rows, FULL).claims
    assert [claim.verdict for claim in claims[:3]] == ["holds", "does NOT hold", "untested"]


@pytest.mark.parametrize(
    ("method", "printed"),
    [
        (boosted("tree", "as_published"), "FedSurvBoost RST"),
        (SURF_PUBLISHED, "FedSurF"),
        (SURF_IBS_PUBLISHED, "FedSurF-IBS"),
    ],
)
def test_trees_and_fedsurf_are_judged_against_the_printed_figures(method, printed):
    row = next(one for one in published.TABLES if one.method == printed)
    C, ibs = row.cell(published.METABRIC, 4)
    for shift, verdict in ((0.0, "holds"), (0.02, "does NOT hold")):
        claims = as_published.show(as_the_loop(method, "metabric", 4, C + shift, ibs), FULL).claims
        claim = next(one for one in claims if one.claim.startswith(f"metabric, {printed}:"))
        assert claim.verdict == verdict
        assert ("reason: " in claim.figures) == bool(shift)
        other = next(one for one in claims if one.claim.startswith(f"support-leaky, {printed}:"))
        assert other.verdict == "untested"


@pytest.mark.slow
@pytest.mark.parametrize("level", as_published.LEVELS, ids=lambda level: level.sample)
def test_the_published_loop_reaches_its_levels_on_real_data(level):
    """The split, the loop and the metrics of the published scripts, with one seed."""
    data = dict(available((level.sample,)))[level.sample]
    if isinstance(data, str):
        pytest.skip(data)
    training, test = as_the_authors(data)
    loop = next(one for one in contenders(FULL) if one.name == level.method)
    for n_sites in level.sites:
        figures = assess_as_the_authors(Bench(share_out(training, n_sites, 0), 0).fitted(loop), test)
        assert level.concordance[0] <= figures["concordance"] <= level.concordance[1]
        if level.ibs:
            assert level.ibs[0] <= figures["ibs"] <= level.ibs[1]


@pytest.mark.slow
def test_exact_methods_are_the_same_for_any_split_of_the_patients():
    """The tables measure them at one number of sites and show them for all."""
    data = mc.datasets.simulate_survival(300, random_state=4)
    data = data.with_identifier([f"p{row}" for row in range(300)])
    plan = dataclasses.replace(TINY, n_estimators=3)
    for contender in (one for one in contenders(plan) if one.same_for_any_split and not one.parts):
        one, many = (fit(contender, contender.settings[0], share_out(data, n, 1), 0) for n in (1, 3))
        np.testing.assert_allclose(one.predict(data), many.predict(data), rtol=1e-6, atol=1e-6)


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
