"""Options of federated XGBoost give what they give in xgboost: weights, constraints, first margins, draws."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import multicentre as mc
from multicentre.boosting import FedXGBClassifier, FedXGBRegressor
from multicentre.boosting.maths import Columns
from multicentre.boosting.records import draw_records, record_keys
from oracles.test_fed_xgb import PAPER, assert_same_trees, draw, federate, outcomes, quantile_cuts, to_bins, trees_of

xgboost = pytest.importorskip("xgboost")

NAMES = [f"x{number}" for number in range(6)]
CLASSES = ("binary:logistic", "multi:softprob")
OBJECTIVES = (*CLASSES, "reg:squarederror", "count:poisson", "reg:gamma", "reg:tweedie")


def each_of(objectives, fast):
    """Parametrise a test by objectives, of which the others than `fast` are slow."""
    marks = {True: [], False: [pytest.mark.slow]}
    return pytest.mark.parametrize("objective", [pytest.param(each, marks=marks[each in fast]) for each in objectives])


def records(objective, n=900, seed=3):
    """Return covariates, outcomes and weights of which some are 0."""
    X, log_odds, rng = draw(n, seed, missing=True)
    if objective in ("reg:gamma", "reg:tweedie"):
        y = rng.gamma(2.0, np.exp(log_odds / 3))
        y = y * rng.poisson(1.0, n) if objective == "reg:tweedie" else y
    else:
        y = outcomes(log_odds, rng, objective)
    weights = rng.gamma(1.0, 2.0, n).astype(np.float32)
    weights[:30] = 0.0
    return X, y, weights, rng


def make(objective, n_rounds, **parameters):
    if objective in CLASSES:
        return FedXGBClassifier(n_rounds, **parameters)
    return FedXGBRegressor(n_rounds, objective=objective, **parameters)


def first_score(ensemble):
    """Return the first margin as a mean, as xgboost wants it."""
    base = float(ensemble.base[0])
    if ensemble.objective == "binary:logistic":
        return 1 / (1 + np.exp(-base))
    return np.exp(base) if ensemble.objective in ("count:poisson", "reg:gamma", "reg:tweedie") else base


def pooled(X, y, cuts, ensemble, n_rounds, parameters, losses=None, **facts):
    """Return xgboost's own model of the pooled records in the bins."""
    options = {"objective": ensemble.objective, "tree_method": "hist", "max_bin": 2048, "nthread": 1}
    options["base_score"] = first_score(ensemble)
    if ensemble.objective == "multi:softprob":
        options["num_class"] = len(ensemble.classes)
    rows = xgboost.DMatrix(to_bins(X, cuts), label=y, **facts)
    evals = [(rows, "training")] if losses is not None else []
    options |= parameters
    return xgboost.train(options, rows, n_rounds, evals=evals, evals_result=losses, verbose_eval=False)


@each_of(OBJECTIVES, ("binary:logistic", "reg:gamma"))
def test_weighted_records_give_the_trees_and_losses_of_weighted_pooled_records(objective):
    X, y, weights, _ = records(objective)
    cuts, parameters = quantile_cuts(X), {"max_depth": 3, "learning_rate": 0.3}
    federation = federate(np.column_stack([X, weights]), y, 3, objective in CLASSES, [*NAMES, "weight"])
    model = make(objective, 10, cuts=cuts, sample_weight="weight", **parameters).fit(federation)
    losses = {}
    booster = pooled(X, y, cuts, model.ensemble_, 10, parameters, losses, weight=weights)
    assert_same_trees(model.ensemble_, cuts, booster)
    (found,), (expected,) = model.evals_result_["training"].values(), losses["training"].values()
    np.testing.assert_allclose(found, expected, rtol=1e-6)
    assert set(model.evals_result_["training"]) == {next(iter(losses["training"])).partition("@")[0]}
    if objective != "multi:softprob":
        assert first_score(model.ensemble_) == pytest.approx(np.average(y, weights=weights), rel=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1e-6, 500.0])
def test_the_scale_of_the_weights_does_not_matter(scale):
    X, y, weights, _ = records("binary:logistic")
    fits = []
    for factor in (1.0, scale):
        federation = federate(np.column_stack([X, weights * factor]), y, columns=[*NAMES, "weight"])
        penalties = {"reg_lambda": factor, "min_child_weight": 4 * factor, "gamma": 0.0}
        fits.append(FedXGBClassifier(6, max_depth=3, sample_weight="weight", **penalties).fit(federation))
    gaps = np.abs(fits[0].predict_margin(X) - fits[1].predict_margin(X))
    assert np.quantile(gaps, 0.98) < 1e-4


@pytest.mark.slow
def test_a_large_weight_of_the_second_class_stays_in_range():
    X, y, *_ = records("binary:logistic", 3000)
    cuts, parameters = quantile_cuts(X), {"max_depth": 3, "learning_rate": 0.3, "scale_pos_weight": 9000.0}
    model = FedXGBClassifier(4, cuts=cuts, **parameters).fit(federate(X, y, 1))
    booster = pooled(X, y, cuts, model.ensemble_, 4, parameters)
    np.testing.assert_allclose(
        model.predict_margin(X)[:, 0], booster.predict(xgboost.DMatrix(to_bins(X, cuts)), output_margin=True), rtol=1e-4
    )


@pytest.mark.slow
@pytest.mark.parametrize("objective", ["reg:gamma", "reg:tweedie"])
def test_positive_numbers_with_missing_values(objective):
    X, y, *_ = records(objective)
    cuts, parameters = quantile_cuts(X), {"max_depth": 4, "learning_rate": 0.2}
    power = {"tweedie_variance_power": 1.3} if objective == "reg:tweedie" else {}
    model = make(objective, 15, cuts=cuts, **parameters, **power).fit(federate(X, y, 3, classes=False))
    booster = pooled(X, y, cuts, model.ensemble_, 15, {**parameters, **power})
    assert_same_trees(model.ensemble_, cuts, booster)
    np.testing.assert_allclose(model.predict(X), booster.predict(xgboost.DMatrix(to_bins(X, cuts))), rtol=1e-5)
    rows = xgboost.DMatrix(X, feature_names=NAMES)
    np.testing.assert_allclose(model.get_booster().predict(rows), model.predict(X), rtol=1e-5)


@each_of(OBJECTIVES[:4], ("count:poisson",))
@pytest.mark.parametrize("max_depth", [2, 6])
def test_monotone_constraints_are_those_of_xgboost(objective, max_depth):
    X, y, *_ = records(objective, 1200)
    cuts, parameters = quantile_cuts(X), {"max_depth": max_depth, "learning_rate": 0.4}
    directions = {"x0": 1, "x1": -1, "x2": 0, "x4": 1}
    federation = federate(X, y, 3, objective in CLASSES)
    model = make(objective, 8, cuts=cuts, monotone_constraints=directions, **parameters).fit(federation)
    constraints = tuple(directions.get(name, 0) for name in NAMES)
    booster = pooled(X, y, cuts, model.ensemble_, 8, {**parameters, "monotone_constraints": constraints})
    assert_same_trees(model.ensemble_, cuts, booster)
    if objective != "multi:softprob":
        low, high = np.nan_to_num(X), np.nan_to_num(X)
        high[:, 0], high[:, 1] = high[:, 0] + 0.7, high[:, 1] - 0.7
        assert (model.predict_margin(high) >= model.predict_margin(low)).all()


@pytest.mark.parametrize("groups", [[["x0", "x1"], ["x1", "x2", "x3"]], [["x0"], ["x1"]]])
def test_interaction_constraints_are_those_of_xgboost(groups):
    X, y, *_ = records("binary:logistic", 1200)
    cuts, parameters = quantile_cuts(X), {"max_depth": 5, "learning_rate": 0.4}
    model = FedXGBClassifier(8, cuts=cuts, interaction_constraints=groups, **parameters).fit(federate(X, y))
    numbers = str([[NAMES.index(name) for name in group] for group in groups])
    booster = pooled(X, y, cuts, model.ensemble_, 8, {**parameters, "interaction_constraints": numbers})
    assert_same_trees(model.ensemble_, cuts, booster)


@each_of(OBJECTIVES[:4], ("multi:softprob",))
def test_first_margins_of_the_records_are_those_of_xgboost(objective):
    X, y, _, rng = records(objective)
    n_margins = 3 if objective == "multi:softprob" else 1
    margins = rng.normal(size=(len(X), n_margins)).astype(np.float32)
    cuts, parameters = quantile_cuts(X), {"max_depth": 3, "learning_rate": 0.3}
    columns = [*NAMES, *(f"margin{number}" for number in range(n_margins))]
    data = mc.data.TableData(
        np.column_stack([X, margins]), y, columns=columns, outcome="class" if objective in CLASSES else "number"
    )
    federation = federate(data.X, y, 3, objective in CLASSES, columns)
    names = columns[6:] if n_margins > 1 else "margin0"
    model = make(objective, 8, cuts=cuts, base_margin=names, **parameters).fit(federation)
    assert not model.ensemble_.base.any()
    booster = pooled(X, y, cuts, model.ensemble_, 8, parameters, base_margin=margins)
    assert_same_trees(model.ensemble_, cuts, booster)
    rows = xgboost.DMatrix(to_bins(X, cuts), base_margin=margins)
    expected = booster.predict(rows, output_margin=True).reshape(len(X), -1)
    np.testing.assert_allclose(model.predict_margin(X, base_margin=margins), expected, rtol=1e-5, atol=2e-6)
    np.testing.assert_array_equal(model.predict_margin(data), model.predict_margin(X, base_margin=margins))
    rows = xgboost.DMatrix(X, base_margin=margins, feature_names=NAMES)
    exported = model.get_booster().predict(rows, output_margin=True).reshape(len(X), -1)
    np.testing.assert_allclose(exported, expected, rtol=1e-5, atol=2e-6)


def test_a_round_grows_the_tree_of_xgboost_on_the_records_that_it_draws():
    X, y, weights, _ = records("binary:logistic")
    cuts, parameters = quantile_cuts(X), {"max_depth": 4, "learning_rate": 0.5}
    federation = federate(np.column_stack([X, weights]), y, 3, columns=[*NAMES, "weight"])
    options = {"subsample": 0.6, "random_state": 11, "base_score": 0.5, "sample_weight": "weight"}
    model = FedXGBClassifier(5, cuts=cuts, **options, **parameters).fit(federation)
    X32, y32, zeros = X.astype(np.float32), y.astype(np.float32), np.zeros((len(y), 1), dtype=np.float32)
    keys = record_keys(np.column_stack([X32, y32, weights, zeros]))
    margins, binned = zeros[:, 0], to_bins(X, cuts)
    trees = []
    for number in range(5):
        drawn = draw_records(keys, 11, number, 0.6)
        assert abs(drawn.mean() - 0.6) < 0.06
        rows = xgboost.DMatrix(binned[drawn], label=y[drawn], weight=weights[drawn], base_margin=margins[drawn])
        told = {"objective": "binary:logistic", "max_bin": 2048, "nthread": 1, **parameters}
        booster = xgboost.train(told, rows, 1)
        trees += trees_of(booster)
        rows = xgboost.DMatrix(binned, base_margin=margins)
        margins = booster.predict(rows, output_margin=True)
    np.testing.assert_allclose(model.predict_margin(X)[:, 0], margins, rtol=1e-5, atol=2e-6)
    assert [len(tree["split_indices"]) for tree in trees] == np.diff(
        [*model.ensemble_.roots, len(model.ensemble_.column)]
    ).tolist()


def test_a_tree_is_that_of_xgboost_on_the_columns_that_it_draws():
    X, y, *_ = records("binary:logistic")
    cuts, parameters = quantile_cuts(X), {"max_depth": 4, "learning_rate": 0.5}
    model = FedXGBClassifier(6, cuts=cuts, colsample_bytree=0.5, random_state=4, base_score=0.5, **parameters)
    model.fit(federate(X, y))
    margins, binned = np.zeros(len(y), dtype=np.float32), to_bins(X, cuts)
    drawn_sets = set()
    for number in range(6):
        drawn = Columns(6, 0.5, 1.0, 1.0, 4, ()).permitted(number, 0, 0, frozenset())
        assert drawn.sum() == 3
        drawn_sets.add(tuple(drawn.tolist()))
        only = np.where(drawn, binned, 0.0)
        rows = xgboost.DMatrix(only, label=y, base_margin=margins)
        booster = xgboost.train({"objective": "binary:logistic", "max_bin": 2048, "nthread": 1, **parameters}, rows, 1)
        margins = booster.predict(rows, output_margin=True)
    assert len(drawn_sets) > 1
    np.testing.assert_allclose(model.predict_margin(X)[:, 0], margins, rtol=1e-5, atol=2e-6)


@pytest.mark.slow
@pytest.mark.parametrize("weighted", [False, True])
def test_the_area_under_the_curve_is_that_of_the_pooled_validation_records(weighted):
    X, y, weights, _ = records("binary:logistic", 1500)
    columns, table = [*NAMES, "weight"], np.column_stack([X, weights])
    parameters = {"max_depth": 2, "learning_rate": 0.3, "eval_metric": "auc", "n_iter_no_change": 5}
    if weighted:
        parameters["sample_weight"] = "weight"
    else:
        columns, table = NAMES, X
    model = FedXGBClassifier(60, cuts=quantile_cuts(X), **parameters)
    watched = federate(table[900:], y[900:], 2, columns=columns)
    model.fit(federate(table[:900], y[:900], 3, columns=columns), validation=watched)
    found, errors = model.evals_result_["validation"]["auc"], model.evals_result_["validation"]["auc_error"]
    assert len(found) == model.best_iteration_ + 6 < 60
    margins = model.predict_margin(X[900:])[:, 0]
    expected = roc_auc_score(y[900:], margins, sample_weight=weights[900:] if weighted else None)
    assert found[model.best_iteration_] == max(found)
    # Records in the same leaves are tied and share a cell; others are in different cells.
    assert found[model.best_iteration_] == pytest.approx(expected, abs=1e-8)
    assert 0 < errors[model.best_iteration_] < 0.05


def test_continued_rounds_are_those_of_one_fit_and_of_xgboost():
    X, y, weights, _ = records("binary:logistic")
    table, columns = np.column_stack([X, weights]), [*NAMES, "weight"]
    options = {"max_bins": 32, "subsample": 0.7, "colsample_bynode": 0.7, "sample_weight": "weight", **PAPER}
    whole = FedXGBClassifier(9, **options).fit(federate(table, y, columns=columns))
    first = FedXGBClassifier(4, **options).fit(federate(table, y, columns=columns))
    both = FedXGBClassifier(5, **options).fit(federate(table, y, 2, columns=columns), xgb_model=first)
    for name in ("column", "threshold", "default_left", "value", "gain", "cover", "base"):
        assert getattr(whole.ensemble_, name).tobytes() == getattr(both.ensemble_, name).tobytes(), name
    assert (both.n_initial_rounds_, both.best_iteration_, whole.best_iteration_) == (4, 8, 8)
    assert whole.evals_result_["training"]["logloss"][4:] == both.evals_result_["training"]["logloss"]
    cuts = quantile_cuts(X)
    first = FedXGBClassifier(4, cuts=cuts, **PAPER).fit(federate(X, y))
    both = FedXGBClassifier(5, cuts=cuts, max_depth=2).fit(federate(X, y), xgb_model=first)
    booster = pooled(X, y, cuts, first.ensemble_, 4, PAPER)
    rows = xgboost.DMatrix(to_bins(X, cuts), label=y)
    told = {"objective": "binary:logistic", "max_bin": 2048, "nthread": 1, "max_depth": 2, "learning_rate": 0.3}
    assert_same_trees(both.ensemble_, cuts, xgboost.train(told, rows, 5, xgb_model=booster))


def test_a_saved_model_of_xgboost_has_the_names_of_the_columns(tmp_path):
    X, y, *_ = records("multi:softprob")
    columns = ["age", "dose [mg]", "x<y", "d", "e", "f"]
    model = FedXGBClassifier(5).fit(federate(X, y, columns=columns))
    model.save_model(tmp_path / "model.json")
    booster = xgboost.Booster(model_file=tmp_path / "model.json")
    assert booster.feature_names == ["age", "dose (mg)", "xlty", "d", "e", "f"]
    rows = xgboost.DMatrix(X, feature_names=booster.feature_names)
    np.testing.assert_allclose(booster.predict(rows), model.predict_proba(X), atol=1e-6)
    np.testing.assert_array_equal(booster.predict(rows, pred_leaf=True), model.apply(X))


@pytest.mark.parametrize("distribution", ["normal", "logistic", "extreme"])
@pytest.mark.parametrize("scale", [1.0, pytest.param(0.4, marks=pytest.mark.slow)])
def test_times_to_an_event_are_those_of_xgboost(distribution, scale):
    X, log_odds, rng = draw(900, 6, missing=True)
    weights = rng.gamma(1.0, 2.0, 900).astype(np.float32)
    time, end = np.exp(log_odds / 2 + rng.normal(size=900)), rng.exponential(4.0, 900)
    event, observed = time <= end, np.minimum(time, end)
    cuts, parameters = quantile_cuts(X), {"max_depth": 3, "learning_rate": 0.3}
    options = {"aft_loss_distribution": distribution, "aft_loss_distribution_scale": scale}
    table = np.column_stack([X, weights, event])
    model = make("survival:aft", 12, cuts=cuts, sample_weight="weight", event="event", **options, **parameters)
    model.fit(federate(table, observed, 3, False, [*NAMES, "weight", "event"]))
    losses = {}
    bounds = {"label_lower_bound": observed, "label_upper_bound": np.where(event, observed, np.inf)}
    options |= {"objective": "survival:aft", "base_score": float(np.exp(model.ensemble_.base[0]))}
    rows = xgboost.DMatrix(to_bins(X, cuts), weight=weights, **bounds)
    told = {**options, **parameters, "max_bin": 2048, "nthread": 1}
    evals = {"evals": [(rows, "training")], "evals_result": losses, "verbose_eval": False}
    booster = xgboost.train(told, rows, 12, **evals)
    assert_same_trees(model.ensemble_, cuts, booster)
    np.testing.assert_allclose(model.predict(X), booster.predict(rows), rtol=1e-4)
    rows = xgboost.DMatrix(X, feature_names=NAMES)
    np.testing.assert_allclose(model.get_booster().predict(rows), model.predict(X), rtol=1e-5)
    if scale == 1.0:  # xgboost's metric has a scale of 1, whatever that of the objective
        np.testing.assert_allclose(model.evals_result_["training"]["aft-nloglik"], losses["training"]["aft-nloglik"])
