import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError
from multicentre.validation.folds.by_site import FederatedKFold, draw_folds
from multicentre.validation.folds.covariate import CovariateFoldKFold
from multicentre.validation.folds.hashed import HashGroupKFold, RepeatedHashGroupKFold
from multicentre.validation.leakage import LeakageReport, alarm_threshold, leakage_report, null_spread
from multicentre.validation.stratifier.suggestion import Candidate

OPEN = mc.Policy(min_patients=0)
HASHED = HashGroupKFold(3, person_key="person")
BIASED = Candidate("x5", True, "", 0.0, 1.0, np.nan, 0.1, 0.94, 0.01, 0.94, -0.05, -0.07, -0.03, 3)


def federate(n_records, n_duplicates, seed=0):
    sites = mc.datasets.simulate_duplicated(n_records, n_duplicates, 3, random_state=seed).sites
    return mc.Federation.in_process(sites, policy=OPEN)


def boosting():
    return mc.boosting.FedXGBClassifier(25, max_depth=3, learning_rate=0.6, max_bins=16)


@pytest.fixture(scope="module")
def with_duplicates():
    return leakage_report(boosting(), federate(300, 250), cv=HASHED, scoring="accuracy", duplicates="45 %")


@pytest.mark.slow
def test_duplicates_raise_the_alarm(with_duplicates):
    assert with_duplicates.alarm
    assert with_duplicates.optimism > 2 * with_duplicates.spread
    assert with_duplicates.random.shape == with_duplicates.safe.shape == (2, 3)
    assert "several sites" in with_duplicates.message
    assert "45 %" in with_duplicates.message
    assert "ALARM" in repr(with_duplicates)


@pytest.mark.slow
def test_without_duplicates_there_is_no_alarm():
    report = leakage_report(boosting(), federate(500, 0), cv=HASHED, scoring="accuracy")
    assert not report.alarm
    assert "does not prove that there are no duplicates" in report.message


@pytest.mark.slow
def test_repeats_differ(with_duplicates):
    for scores in (with_duplicates.random, with_duplicates.safe):
        assert not np.array_equal(scores[0], scores[1])
    frame = with_duplicates.to_frame()
    assert frame.groupby("strategy").accuracy.mean()["random"] == pytest.approx(with_duplicates.random.mean())
    assert len(frame) == 4


def test_the_optimism_is_the_difference_of_means(with_duplicates):
    report = with_duplicates
    assert report.optimism == pytest.approx(report.random.mean() - report.safe.mean())
    low, high = report.interval
    assert (low + high) / 2 == pytest.approx(report.optimism)
    assert report.threshold == pytest.approx(2.366 * report.spread, rel=1e-3)


def test_a_threshold_of_one_s_own(with_duplicates):
    terms = {name: getattr(with_duplicates, name) for name in ("score", "random", "safe", "pessimism", "spread")}
    assert not LeakageReport(**terms, threshold=0.9, strategy="HashGroupKFold").alarm


@pytest.mark.parametrize("cv", [FederatedKFold(3), RepeatedHashGroupKFold(3, person_key="person")])
def test_other_folds_are_refused(cv):
    with pytest.raises(ConfigurationError, match=r"HashGroupKFold"):
        leakage_report(boosting(), federate(60, 0), cv=cv)


def test_one_repeat_is_refused():
    with pytest.raises(ConfigurationError, match="n_repeats must be an integer of at least 2"):
        leakage_report(boosting(), federate(60, 0), cv=HASHED, n_repeats=1)


def test_pessimism_of_thresholds_is_no_leakage():
    cut = CovariateFoldKFold(3, covariate="x5")
    with pytest.raises(
        ConfigurationError, match="pilot must be a Candidate if folds are cut by thresholds, whose scores"
    ):
        leakage_report(boosting(), federate(60, 0), cv=cut)
    untried = Candidate("x5", True, "", 0.0, 1.0, np.nan, 0.1)
    with pytest.raises(ConfigurationError, match="x5"):
        leakage_report(boosting(), federate(60, 0), cv=cut, pilot=untried)


@pytest.mark.slow
def test_the_pilot_s_bias_is_taken_off():
    federation = federate(400, 0)
    cut = CovariateFoldKFold(3, covariate="x5")
    report = leakage_report(boosting(), federation, cv=cut, scoring="accuracy", pilot=BIASED)
    assert report.safe.shape == (1, 3)
    assert report.optimism == pytest.approx(report.random.mean() - report.safe.mean() - 0.05)
    assert report.spread > 0.01
    assert "subtraction of the predicted bias" in report.message


def simulate_scores(rng, n_sims, n_splits=5):
    """Return scores of repeats whose folds vary more than independent of each other, as those of one data set do."""
    folds = rng.normal(0.8, 0.01, (n_sims, 2, 2, n_splits))
    mean = folds.mean(axis=-1, keepdims=True)
    return folds - mean + 0.8 + 0.6 * (mean - 0.8)


def test_chance_raises_the_alarm_seldom():
    scores = simulate_scores(np.random.default_rng(0), 2000)
    ratios = np.array([(r.mean() - h.mean()) / null_spread(r, h) for r, h in scores])
    assert np.mean(ratios > alarm_threshold(1.0, 8)) < 0.0228
    assert 0.75 < ratios.std() < 0.9


def test_more_repeats_narrow_it_down():
    rng = np.random.default_rng(1)
    few, many = (
        np.mean([null_spread(*rng.normal(0.8, 0.01, (2, n_repeats, 5))) for _ in range(50)]) for n_repeats in (2, 20)
    )
    assert many == pytest.approx(few * np.sqrt(2 / 20), rel=0.15)


def test_repeats_that_differ_widen_it():
    rng = np.random.default_rng(2)
    alike = rng.normal(0.8, 0.01, (2, 2, 5))
    apart = alike + np.array([0.0, 0.05])[None, :, None]
    assert null_spread(*apart) > 2 * null_spread(*alike)


@pytest.mark.slow
def test_the_alarm_at_the_size_of_the_published_simulation():
    """12,000 records, three data sets of each; ``multicentre reproduce stratified-cv`` draws ten."""
    xgboost = pytest.importorskip("xgboost")
    terms = {"max_depth": 3, "eta": 0.6, "objective": "binary:logistic", "nthread": 1, "tree_method": "hist"}

    def scores(X, y, folds):
        for fold in range(5):
            train, test = folds != fold, folds == fold
            model = xgboost.train(terms, xgboost.DMatrix(X[train], y[train]), 200)
            yield np.mean((model.predict(xgboost.DMatrix(X[test])) > 0.5) == y[test])

    def alarm(n_records, n_duplicates, seed):
        sites = mc.datasets.simulate_duplicated(n_records, n_duplicates, random_state=seed).sites.values()
        X, y = np.vstack([data.X for data in sites]), np.concatenate([data.y for data in sites])
        people = np.concatenate([data.identifier.column("person") for data in sites])
        drawn = [draw_folds(np.arange(len(y)), 5, np.random.default_rng([seed, place])) for place in range(2)]
        hashed = [_places(HashGroupKFold(5, repeat=place), X, y, people) for place in range(2)]
        random, safe = (np.array([list(scores(X, y, folds)) for folds in made]) for made in (drawn, hashed))
        threshold = alarm_threshold(null_spread(random, safe), 8)
        report = LeakageReport("accuracy", random, safe, 0.0, threshold / 2.37, threshold, "HashGroupKFold")
        return report.alarm, report.threshold

    without = [alarm(12_000, 0, seed) for seed in range(3)]
    with_some = [alarm(10_000, 2_000, seed) for seed in range(3)]
    assert sum(raised for raised, _ in without) == 0
    assert sum(raised for raised, _ in with_some) == 3
    assert 0.004 < np.mean([threshold for _, threshold in without]) < 0.008


def _places(splitter, X, y, people):
    folds = np.full(len(y), -1)
    for fold, (_, test) in enumerate(splitter.split(X, y, people)):
        folds[test] = fold
    return folds
