import json

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError
from multicentre.estimator.figures import Table, read_figure
from multicentre.reports.figures import draw
from multicentre.validation import figures
from multicentre.validation.cross_validation import CVResult
from multicentre.validation.folds.by_site import FederatedKFold
from multicentre.validation.leakage import LeakageReport
from multicentre.validation.stratifier.suggestion import Candidate, Suggestion
from multicentre.validation.tuning import FederatedGridSearchCV


@pytest.fixture(scope="module")
def federation():
    rng = np.random.default_rng(0)
    sites = {
        name: mc.data.TableData(rng.normal(size=(90, 2)), rng.integers(0, 2, 90), classes=["well", "ill"])
        for name in ("lyon", "oslo")
    }
    return mc.Federation.in_process(sites, policy=mc.Policy(min_patients=0))


@pytest.fixture(scope="module")
def plan(federation):
    return FederatedKFold(3).plan(federation)


@pytest.fixture(scope="module")
def suggestion():
    tried = Candidate("age", True, "", 0.0, 1.1, np.nan, 0.02, 0.98, 0.004, 0.98, -0.016, -0.03, -0.002, 5)
    alone = Candidate("sodium", True, "", 0.0, 1.1, 0.99, 0.03, 0.97, np.nan, 0.97, -0.02, -np.inf, np.inf, 1)
    unfit = Candidate("sex", False, "too few different values", 0.0, np.inf, 1.0, 0.01)
    return Suggestion((tried, alone, unfit), "accuracy", 0.8, ("person",), True, 5, "boosting")


@pytest.fixture(scope="module")
def report():
    random, safe = np.array([[0.83, 0.85], [0.84, 0.84]]), np.array([[0.8, 0.82], [0.81, 0.81]])
    return LeakageReport("accuracy", random, safe, 0.0, 0.004, 0.008, "HashGroupKFold")


def result(plan, values):
    return CVResult(test_accuracy=np.array(values), fit_time=np.ones(3), plans=[plan])


def check(shown):
    for one in shown:
        plain = json.loads(json.dumps(one.to_dict(), allow_nan=False))
        assert read_figure(plain).to_dict() == plain
        if not isinstance(one, Table):
            assert "<svg" in draw(read_figure(plain))
    return shown


def test_balance_of_folds(plan):
    bars = check(figures.show_plan(plan, ["well", "ill"]))[0]
    assert list(bars.series) == ["well", "ill"]
    assert np.column_stack(list(bars.series.values())).tolist() == plan.class_table.tolist()
    assert "does not keep" in bars.caption


def test_one_class_is_called_records(federation):
    data = {name: mc.datasets.simulate_survival(90, 2, seed) for seed, name in enumerate(["lyon", "oslo"])}
    numbers = {name: mc.data.TableData(one.X, one.time, outcome="number") for name, one in data.items()}
    open_to_all = mc.Federation.in_process(numbers, policy=mc.Policy(min_patients=0))
    bars = figures.show_plan(FederatedKFold(3).plan(open_to_all))[0]
    assert list(bars.series) == ["records"]


def test_strategies_side_by_side(plan):
    results = {"hash": result(plan, [0.8, 0.82, 0.84]), "random": result(plan, [0.9, 0.9, 0.9])}
    forest = check(figures.show_strategies(results))[0]
    assert forest.reference == pytest.approx(0.82)
    assert forest.estimates == pytest.approx([0.82, 0.9])
    half = 4.302653 * 0.02 / np.sqrt(3)
    assert forest.upper == pytest.approx([0.82 + half, 0.9])
    assert figures.show_strategies(results, reference="random")[0].reference == pytest.approx(0.9)


@pytest.mark.parametrize("terms", [{"score": "beauty"}, {"reference": "nobody"}])
def test_strategies_that_are_unknown(plan, terms):
    with pytest.raises(ConfigurationError):
        figures.show_strategies({"hash": result(plan, [0.8, 0.8, 0.8])}, **terms)
    with pytest.raises(ConfigurationError):
        figures.show_strategies({})


def test_boosting_curves():
    scores = np.array([[0.7, 0.8, 0.9], [0.72, 0.82, 0.88]])
    curves = check(figures.show_boosting({"random": scores, "hash": scores - 0.1}, "accuracy", rounds=[1, 10, 50]))[0]
    assert [band.name for band in curves.bands] == ["random", "hash"]
    assert curves.bands[0].x == [1, 10, 50]
    assert curves.bands[0].y == pytest.approx(scores.mean(axis=0))
    error = scores.std(axis=0, ddof=1) / np.sqrt(2)
    assert curves.bands[0].upper == pytest.approx(scores.mean(axis=0) + error)


def test_suggestions(suggestion):
    forest, points, table = check(figures.show_suggestion(suggestion))
    assert forest.rows == ["thresholds of age", "thresholds of sodium", "hash of person"]
    assert forest.estimates == [-0.016, -0.02, 0.0]
    assert forest.lower[1] is None
    assert [cloud.group for cloud in points.clouds] == ["age", "sodium"]
    assert points.clouds[0].y == [0.98]
    assert [row[0] for row in table.rows] == ["age", "sodium", "sex"]
    assert table.rows[2][-1] == "too few different values"
    assert all(len(row) == len(table.columns) for row in table.rows)


def test_suggestions_without_a_pilot():
    unfit = Candidate("sex", False, "too few different values", 0.0, np.inf, np.nan, 0.01)
    shown = check(figures.show_suggestion(Suggestion((unfit,), "accuracy", np.nan, (), False, 5, "linear")))
    assert [type(one).__name__ for one in shown] == ["Table"]


def test_leakage(report):
    forest, table = check(figures.show_leakage(report))
    assert forest.rows[0] == "random, repeat 0"
    assert forest.estimates == pytest.approx([0.84, 0.84, 0.81, 0.81])
    assert forest.reference == pytest.approx(0.81)
    assert forest.upper[0] - forest.estimates[0] == pytest.approx(1.959964 * 0.004, rel=1e-5)
    assert table.rows[0][1] == pytest.approx(0.03)
    assert table.rows[-1] == ["alarm", "yes"]


def test_searches(federation):
    grid = {"n_estimators": [1, 2]}
    search = FederatedGridSearchCV(
        mc.boosting.FedXGBClassifier(max_depth=1, max_bins=8), grid, cv=FederatedKFold(3), allow_leakage=True
    ).fit(federation)
    table = check(figures.show_search(search))[0]
    assert table.columns[0] == "n_estimators"
    assert table.rows[0][0] == search.best_params_["n_estimators"]
    assert table.rows[0][1] == pytest.approx(search.best_score_)
