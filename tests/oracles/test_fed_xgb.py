"""Federated XGBoost beside xgboost itself: the same trees as hist on the pooled records in the same bins."""

import json
import subprocess
import sys

import numpy as np
import pytest
from packaging.version import Version

import multicentre as mc
from multicentre.boosting import FedXGBClassifier, FedXGBRegressor
from multicentre.boosting.agreement import find_cuts
from multicentre.boosting.site import BoostingSite
from multicentre.core.rounds import Listener

xgboost = pytest.importorskip("xgboost")

EXACT = mc.Policy(min_patients=0)
N_COLUMNS = 6
PAPER = {"max_depth": 3, "learning_rate": 0.6}


def draw(n, seed=0, missing=False):
    """Return covariates with a column of two values and one of few, and log odds; large values are missing more."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, N_COLUMNS))
    log_odds = X[:, 0] + X[:, 1] * X[:, 2] + (X[:, 3] > 0) * X[:, 4] ** 2 - 1
    X[:, 4], X[:, 5] = np.round(X[:, 4], 1), X[:, 5] > 0.5
    if missing:
        X[rng.random(X.shape) < 0.1 * (1 + np.sign(X))] = np.nan
    return X, log_odds, rng


def outcomes(log_odds, rng, objective):
    if objective == "binary:logistic":
        return (rng.random(len(log_odds)) < 1 / (1 + np.exp(-log_odds))).astype(int)
    if objective == "multi:softprob":
        return np.digitize(log_odds + rng.normal(size=len(log_odds)), [-1.5, 0.5])
    return rng.poisson(np.exp(log_odds / 3)) if objective == "count:poisson" else 130 + 7 * log_odds


def federate(X, y, n_sites=3, classes=True, columns=None, **options):
    data = mc.data.TableData(X, y, outcome="class" if classes else "number", columns=columns)
    sites = {f"site-{i}": data.take(np.arange(i, len(y), n_sites)) for i in range(n_sites)}
    return mc.Federation.in_process(sites, **{"policy": EXACT, "listener": Listener(), **options})


def quantile_cuts(X, n_bins=32):
    cuts = []
    for values in X.astype(np.float32).T:
        known = np.unique(values[~np.isnan(values)])
        found = np.quantile(known, np.arange(1, n_bins) / n_bins) if len(known) > n_bins else known[1:]
        cuts.append(np.unique(found.astype(np.float32)).tolist())
    return cuts


def found_cuts(federation, model, max_bins=128):
    """Return the cuts of a fit by column."""
    session = federation.begin(BoostingSite)
    found, n_cuts = find_cuts(session, N_COLUMNS, max_bins, None, digits=model.value_digits_)
    return [own.tolist() for own in np.split(found, np.cumsum(n_cuts)[:-1])]


def to_bins(X, cuts):
    binned = np.full(X.shape, np.nan)
    for column, own in enumerate(cuts):
        values = X[:, column].astype(np.float32)
        known = ~np.isnan(values)
        binned[known, column] = np.searchsorted(np.float32(own), values[known], side="right")
    return binned


def train_pooled(X, y, cuts, model, n_rounds, **parameters):
    """Return xgboost's own model of the pooled records in the bins."""
    ensemble = model.ensemble_
    start = float(ensemble.base[0])
    score = {
        "binary:logistic": np.float32(np.mean(y)),
        "count:poisson": np.float32(np.mean(y)),
    }.get(ensemble.objective, np.float32(start))
    told = {"objective": ensemble.objective, "base_score": float(score), "tree_method": "hist", "max_bin": 2048}
    if len(ensemble.base) > 1:
        told["num_class"] = len(ensemble.base)
    rows = xgboost.DMatrix(to_bins(X, cuts), label=y)
    return xgboost.train({**told, "nthread": 1, **parameters}, rows, n_rounds), rows


def trees_of(booster):
    return json.loads(bytes(booster.save_raw("json")))["learner"]["gradient_booster"]["model"]["trees"]


def assert_same_trees(ensemble, cuts, booster):
    """Compare columns, cuts, sides of missing values and leaves of all trees."""
    theirs = trees_of(booster)
    ends = [*ensemble.roots.tolist(), len(ensemble.column)]
    assert len(theirs) == len(ensemble.roots)
    for number, tree in enumerate(theirs):
        nodes = slice(ends[number], ends[number + 1])
        column = ensemble.column[nodes]
        inner = column >= 0
        conditions = np.array(tree["split_conditions"])
        np.testing.assert_array_equal(column, np.where(np.array(tree["left_children"]) < 0, -1, tree["split_indices"]))
        threshold = ensemble.threshold[nodes][inner]
        places = [
            np.searchsorted(np.float32(cuts[c]), t, "right") for c, t in zip(column[inner], threshold, strict=True)
        ]
        most = [len(cuts[c]) for c in column[inner]]
        none_below = np.where(threshold < -3e38, 0, np.where(threshold > 3e38, np.add(most, 1), places))
        np.testing.assert_array_equal(none_below, np.clip(conditions[inner], 0, np.add(most, 1)))
        np.testing.assert_array_equal(ensemble.default_left[nodes], tree["default_left"])
        np.testing.assert_allclose(ensemble.value[nodes][~inner], conditions[~inner], rtol=2e-5, atol=2e-7)


def fit_pair(make, n_rounds, objective, missing, n=1500, seed=0, **parameters):
    X, log_odds, rng = draw(n, seed, missing)
    y = outcomes(log_odds, rng, objective)
    cuts = quantile_cuts(X)
    classes = objective in ("binary:logistic", "multi:softprob")
    model = make(n_rounds, cuts=cuts, **parameters).fit(federate(X, y, classes=classes))
    booster, rows = train_pooled(X, y, cuts, model, n_rounds, **parameters)
    return model, booster, rows, X, cuts


@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True])
def test_trees_are_those_of_the_pooled_records(missing):
    model, booster, rows, X, cuts = fit_pair(FedXGBClassifier, 50, "binary:logistic", missing, **PAPER)
    assert_same_trees(model.ensemble_, cuts, booster)
    assert np.abs(booster.predict(rows) - model.predict_proba(X)[:, 1]).max() < 1e-6
    inner = model.ensemble_.column >= 0
    assert model.ensemble_.default_left[inner].any() == missing


@pytest.mark.slow
@pytest.mark.parametrize("missing", [False, True])
def test_two_hundred_trees_are_those_of_the_pooled_records(missing):
    X, log_odds, rng = draw(4000, 3, missing)
    y = outcomes(log_odds, rng, "binary:logistic")
    with federate(X, y, 5) as federation:
        model = FedXGBClassifier(200, max_bins=128, **PAPER).fit(federation)
        cuts = found_cuts(federation, model)
    booster, rows = train_pooled(X, y, cuts, model, 200, **PAPER)
    assert_same_trees(model.ensemble_, cuts, booster)
    assert np.abs(booster.predict(rows) - model.predict_proba(X)[:, 1]).max() < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize(
    "parameters",
    [
        {"max_depth": 6},
        {"gamma": 1.5, "max_depth": 4},
        {"reg_alpha": 0.7, "reg_lambda": 0.0},
        {"min_child_weight": 15.0, "max_depth": 5},
        {"min_child_weight": 0.0},
        {"scale_pos_weight": 3.0},
    ],
    ids=lambda each: "-".join(each),
)
def test_parameters_mean_what_they_mean_in_xgboost(parameters):
    told = {**PAPER, **parameters}
    model, booster, *_, cuts = fit_pair(FedXGBClassifier, 12, "binary:logistic", True, **told)
    assert_same_trees(model.ensemble_, cuts, booster)


@pytest.mark.parametrize("missing", [False, True])
def test_three_classes(missing):
    model, booster, rows, X, cuts = fit_pair(FedXGBClassifier, 10, "multi:softprob", missing, **PAPER)
    assert_same_trees(model.ensemble_, cuts, booster)
    np.testing.assert_allclose(booster.predict(rows), model.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("objective", ["reg:squarederror", "count:poisson"])
@pytest.mark.parametrize("parameters", [{}, {"reg_alpha": 2.0}], ids=["plain", "reg_alpha"])
def test_numbers_and_counts(objective, parameters):
    told = {"max_depth": 3, "learning_rate": 0.3, **parameters}
    if parameters and objective == "count:poisson" and Version(xgboost.__version__) >= Version("3.3"):
        pytest.skip("later versions weigh reg_alpha otherwise where steps have a limit")

    def make(n_rounds, **given):
        return FedXGBRegressor(n_rounds, objective=objective, **given)

    model, booster, rows, X, cuts = fit_pair(make, 25, objective, True, **told)
    assert_same_trees(model.ensemble_, cuts, booster)
    np.testing.assert_allclose(booster.predict(rows), model.predict(X), rtol=1e-5)


def draw_rare(n, seed):
    """Return columns of few values, some of them in one record each, and log odds."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [
            np.round(rng.standard_t(2, n), 1).clip(-8, 8),
            np.round(60 + 12 * rng.normal(size=n)),
            rng.poisson(1.5, n),
            np.round(rng.lognormal(0, 1, n) * 4) / 4,
            rng.integers(0, 2, n),
            0.99 + rng.integers(0, 40, n) * 1e-6,
        ]
    )
    return X, 0.6 * X[:, 0] + (X[:, 1] - 60) / 12 + 0.3 * X[:, 2] - 0.2 * X[:, 3] - 0.5, rng


def separated(values, cuts):
    """Return the values of a column that have a cut between them and the next one, as flags."""
    known = np.unique(values[~np.isnan(values)].astype(np.float32))
    return np.diff(np.searchsorted(np.float32(cuts), known, "right")) > 0


@pytest.mark.parametrize("policy", [EXACT, None], ids=["without a minimum", "with a minimum"])
def test_any_two_values_of_a_column_of_few_are_separated_however_rare(policy):
    X, log_odds, rng = draw_rare(3000, 7)
    y = outcomes(log_odds, rng, "binary:logistic")
    most = max(len(np.unique(column.astype(np.float32))) for column in X.T)
    rarest = [np.unique(column, return_counts=True)[1].min() for column in X.T]
    assert 100 < most <= 160
    assert sum(number == 1 for number in rarest) >= 3
    with federate(X, y, policy=policy) as federation:
        model = FedXGBClassifier(2, max_bins=160, max_depth=3).fit(federation)
        cuts = found_cuts(federation, model, 160)
    for column in range(5):
        assert separated(X[:, column], cuts[column]).all()
    # The last column has values closer than a 65,536th, which a policy with a minimum does not let be told apart.
    assert separated(X[:, 5], cuts[5]).all() == (model.value_digits_ == 36) == (policy is EXACT)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_all_trees_are_those_of_pooled_hist_on_the_raw_values_of_columns_of_few(seed):
    X, log_odds, rng = draw_rare(3000, seed)
    y = outcomes(log_odds, rng, "binary:logistic")
    with federate(X, y, policy=None) as federation:
        model = FedXGBClassifier(20, max_bins=256, **PAPER).fit(federation)
        cuts = found_cuts(federation, model, 256)
    booster, _ = train_pooled(X, y, cuts, model, 20, **PAPER)
    assert_same_trees(model.ensemble_, cuts, booster)
    raw = X.copy()
    raw[:, 5] = to_bins(X, cuts)[:, 5]
    score = float(np.float32(np.mean(y)))
    options = {"objective": "binary:logistic", "base_score": score, "max_bin": 512, "nthread": 1, **PAPER}
    pooled = xgboost.train(options, xgboost.DMatrix(raw, label=y), 20)
    np.testing.assert_allclose(pooled.predict(xgboost.DMatrix(raw)), model.predict_proba(X)[:, 1], atol=1e-6)


@pytest.mark.slow
def test_found_cuts_are_enough_for_identical_trees():
    X, log_odds, rng = draw(1500, 1, missing=True)
    y = outcomes(log_odds, rng, "binary:logistic")
    with federate(X, y) as federation:
        model = FedXGBClassifier(20, max_bins=64, **PAPER).fit(federation)
        cuts = found_cuts(federation, model, 64)
    assert cuts[5] == [0.5]
    assert not np.isin(np.float32(cuts[0]), X[:, 0].astype(np.float32)).any()
    assert separated(X[:, 4], cuts[4]).all()
    booster, _ = train_pooled(X, y, cuts, model, 20, **PAPER)
    assert_same_trees(model.ensemble_, cuts, booster)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["binary:logistic", "multi:softprob", "reg:squarederror", "count:poisson"])
def test_an_exported_booster_predicts_the_same_on_raw_values(objective, tmp_path):
    X, log_odds, rng = draw(900, 2, missing=True)
    y = outcomes(log_odds, rng, objective)
    classes = objective in ("binary:logistic", "multi:softprob")
    made = FedXGBClassifier(15) if classes else FedXGBRegressor(15, objective=objective)
    model = made.fit(federate(X, y, classes=classes))
    booster = model.booster_
    booster.save_model(tmp_path / "model.json")
    again = xgboost.Booster(model_file=tmp_path / "model.json")
    new = draw(20_000, 9, missing=True)[0]
    rows = xgboost.DMatrix(new, feature_names=list(model.feature_names_in_))
    margins = again.predict(rows, output_margin=True)
    np.testing.assert_allclose(margins, model.predict_margin(new).reshape(margins.shape), rtol=1e-6, atol=2e-6)
    leaves = booster.predict(rows, pred_leaf=True)
    np.testing.assert_array_equal(leaves.reshape(len(new), -1), model.apply(new))
    if objective == "binary:logistic":
        contributions = booster.predict(rows.slice(np.arange(500)), pred_contribs=True)
        np.testing.assert_allclose(contributions.sum(axis=1), margins[:500], atol=1e-4)


@pytest.mark.slow
def test_importances_are_those_of_the_booster():
    X, log_odds, rng = draw(900, 2, missing=True)
    model = FedXGBClassifier(15).fit(federate(X, outcomes(log_odds, rng, "binary:logistic")))
    for kind in ("gain", "weight", "cover", "total_gain", "total_cover"):
        score = model.booster_.get_score(importance_type=kind)
        theirs = [score.get(name, 0.0) for name in model.feature_names_in_]
        np.testing.assert_allclose(model.importances(kind), theirs, rtol=2e-6)
    np.testing.assert_allclose(model.feature_importances_.sum(), 1.0)


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["binary:logistic", "multi:softprob", "reg:squarederror", "count:poisson"])
def test_watched_losses_and_the_kept_rounds_are_those_of_xgboost(objective):
    X, log_odds, rng = draw(1200, 4)
    y = outcomes(log_odds, rng, objective)
    cuts, classes = quantile_cuts(X), objective in ("binary:logistic", "multi:softprob")
    told = {"max_depth": 3, "learning_rate": 0.6}
    extra = {} if classes else {"objective": objective}
    make = FedXGBClassifier if classes else FedXGBRegressor
    model = make(60, cuts=cuts, n_iter_no_change=4, **extra, **told)
    watched = federate(X[800:], y[800:], 2, classes)
    model.fit(federate(X[:800], y[:800], 3, classes), validation=watched)
    bins = [xgboost.DMatrix(to_bins(X[part], cuts), label=y[part]) for part in (slice(800), slice(800, None))]
    losses = {}
    start = float(np.float32(np.mean(y[:800]))) if objective != "multi:softprob" else 0.5
    groups = {"num_class": 3} if objective == "multi:softprob" else {}
    booster = xgboost.train(
        {"objective": objective, "base_score": start, "max_bin": 2048, "nthread": 1, **groups, **told},
        bins[0],
        60,
        evals=[(bins[0], "training"), (bins[1], "validation")],
        early_stopping_rounds=4,
        evals_result=losses,
        verbose_eval=False,
    )
    assert model.best_iteration_ == booster.best_iteration < len(model.history_) - 1
    assert len(model.ensemble_.roots) == (booster.best_iteration + 1) * len(model.ensemble_.base)
    for name, found in model.evals_result_.items():
        (metric,) = found
        np.testing.assert_allclose(found[metric], losses[name][metric], rtol=1e-5)


WORKER = """
import json, sys
import numpy as np, xgboost
told, rank = json.loads(sys.argv[1]), int(sys.argv[2])
with xgboost.collective.CommunicatorContext(**told["rabit"]):
    part = np.load(told["folder"] + f"/part-{rank}.npz")
    rows = xgboost.DMatrix(part["X"], label=part["y"])
    booster = xgboost.train(told["parameters"], rows, told["rounds"])
    if xgboost.collective.get_rank() == 0:
        booster.save_model(told["folder"] + "/model.json")
"""


@pytest.mark.slow
def test_trees_are_those_of_xgboost_distributed_over_two_processes(tmp_path):
    tracker_module = pytest.importorskip("xgboost.tracker")
    X, log_odds, rng = draw(1500, 5, missing=True)
    y = outcomes(log_odds, rng, "binary:logistic")
    cuts = quantile_cuts(X)
    model = FedXGBClassifier(50, cuts=cuts, **PAPER).fit(federate(X, y, 2))
    binned = to_bins(X, cuts)
    for rank in range(2):
        np.savez(tmp_path / f"part-{rank}.npz", X=binned[rank::2], y=y[rank::2])
    tracker = tracker_module.RabitTracker(n_workers=2, host_ip="127.0.0.1")
    tracker.start()
    score = float(np.float32(y.mean()))
    parameters = {"objective": "binary:logistic", "base_score": score, "max_bin": 2048, "nthread": 1, **PAPER}
    told = {"rabit": tracker.worker_args(), "folder": str(tmp_path), "parameters": parameters, "rounds": 50}
    commands = [[sys.executable, "-c", WORKER, json.dumps(told), str(rank)] for rank in range(2)]
    workers = [subprocess.Popen(command) for command in commands]
    try:
        assert [worker.wait(timeout=120) for worker in workers] == [0, 0]
    finally:
        for worker in workers:
            worker.kill()
    assert_same_trees(model.ensemble_, cuts, xgboost.Booster(model_file=tmp_path / "model.json"))
