"""Fits over a federation: split and order of records change no bit; parameters, files, frames and losses."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import multicentre as mc
from multicentre.boosting import FedXGBClassifier, FedXGBRegressor
from multicentre.boosting.agreement import Magnitude
from multicentre.boosting.messages import LOWEST_EXPONENT, MAX_SUM, N_EXPONENTS, Level
from multicentre.core.rounds import Listener
from multicentre.engines.faults import Faults
from multicentre.errors import (
    ConfigurationError,
    DataError,
    DisclosureRefused,
    IntegrityError,
    MessageError,
    MissingExtra,
    SchemaMismatch,
)
from support.saved_models import store

EXACT = mc.Policy(min_patients=0)
SMALL = {"max_depth": 3, "max_bins": 16}
rng = np.random.default_rng(0)
X = rng.normal(size=(400, 3))
X[rng.random(X.shape) < 0.1] = np.nan
MEAN = np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 1]) ** 2
Y = (MEAN + 0.5 * rng.normal(size=400) > 1).astype(int)
DATA = mc.data.TableData(X, Y, columns=["age", "score", "dose"], classes=["well", "ill"])
COUNTS = mc.data.TableData(X, rng.poisson(np.exp(MEAN / 3)), outcome="number")


def federate(data=DATA, n_sites=3, places=None, policy=EXACT, **options):
    order = np.arange(len(data)) if places is None else places
    sites = {f"site-{i}": data.take(order[i::n_sites]) for i in range(n_sites)}
    return mc.Federation.in_process(sites, policy=policy, listener=Listener(), **options)


def assert_same(one, other):
    for name in ("column", "threshold", "default_left", "value", "gain", "cover", "base"):
        assert getattr(one.ensemble_, name).tobytes() == getattr(other.ensemble_, name).tobytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("make", [FedXGBClassifier, FedXGBRegressor])
def test_split_and_order_of_the_records_change_no_bit(make):
    data = DATA if make is FedXGBClassifier else COUNTS
    model = make(8, **SMALL).fit(federate(data, 1))
    mixed = np.random.default_rng(1).permutation(400)
    assert_same(model, make(8, **SMALL).fit(federate(data, 5, mixed, secure_sum=False)))
    assert_same(model, make(8, **SMALL).fit(federate(data, 4, mixed)))


@pytest.mark.slow
def test_it_learns_and_describes():
    model = FedXGBClassifier(30, **SMALL).fit(federate())
    assert model.score(DATA) > 0.9
    assert model.classes_.tolist() == ["well", "ill"]
    assert set(model.predict(X[:50])) == {"well", "ill"}
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0)
    ill = model.decision_function(X) > 0
    assert (model.predict(DATA) == np.where(ill, "ill", "well")).all()
    assert model.feature_importances_.argmin() == 2
    assert set(model.assess(DATA)) == {"accuracy", "log_loss", "auc"}
    assert len(model.figures({}, {})) == 2
    losses = model.evals_result_["training"]["logloss"]
    assert len(losses) == 30
    assert (np.diff(losses) < 0).all()
    assert losses[-1] == pytest.approx(model.assess(DATA)["log_loss"], rel=1e-6)


@pytest.mark.slow
def test_counts_and_numbers():
    for objective in ("count:poisson", "reg:squarederror"):
        model = FedXGBRegressor(20, objective=objective, **SMALL).fit(federate(COUNTS))
        assert model.assess(COUNTS)["r2"] == model.score(COUNTS) > 0.3
        assert (model.predict(X) > -1).all()
        assert np.exp(model.ensemble_.base[0]) == pytest.approx(COUNTS.y.mean(), rel=1e-6) or objective[0] == "r"


@pytest.mark.slow
@pytest.mark.parametrize("scale", [2.0**-4, 2.0**50])
def test_the_unit_of_the_outcomes_does_not_matter(scale):
    data = mc.data.TableData(X, MEAN * scale, outcome="number")
    same = mc.data.TableData(X, MEAN, outcome="number")
    fits = [FedXGBRegressor(10, **SMALL).fit(federate(each)) for each in (data, same)]
    np.testing.assert_allclose(fits[0].predict(X) / scale, fits[1].predict(X), atol=1e-4)


def test_columns_of_a_frame_are_found_by_name_and_others_refused():
    model = FedXGBClassifier(5, **SMALL).fit(federate())
    frame = pd.DataFrame(X[:, ::-1], columns=["dose", "score", "age"])
    np.testing.assert_array_equal(model.predict_proba(frame), model.predict_proba(DATA))
    with pytest.raises(DataError, match="3 columns of the fit; got 2"):
        model.predict(X[:, :2])
    with pytest.raises(DataError, match="'dose' must be a column of the table"):
        model.predict(frame.rename(columns={"dose": "weight"}))


def test_a_saved_model_is_the_same(tmp_path):
    model = FedXGBClassifier(5, cuts=[[0.0], [-1.0, 1.0], []], **SMALL).fit(federate())
    model.save(tmp_path)
    again = FedXGBClassifier.load(tmp_path)
    assert_same(model, again)
    assert (again.best_iteration_, again.evals_result_) == (model.best_iteration_, model.evals_result_)
    assert set(again.ensemble_.threshold[again.ensemble_.column >= 0].tolist()) <= {0.0, -1.0, 1.0, *_LIMITS}
    with np.load(tmp_path / "model.npz") as members:
        arrays = dict(members)
    stored = model.ensemble_
    for name, damaged in (
        ("ensemble_.column", (stored.column + 9).astype(np.int32)),
        ("ensemble_.base", np.full_like(stored.base, 1e31)),
        ("ensemble_.value", stored.value[:-1]),
        ("ensemble_.other", stored.value),
    ):
        store(tmp_path, {**arrays, name: damaged})
        with pytest.raises(IntegrityError):
            FedXGBClassifier.load(tmp_path)


_LIMITS = [float(limit) for limit in np.array([-1, 1], dtype=np.float32) * np.finfo(np.float32).max]


@pytest.mark.slow
def test_early_stopping_keeps_the_rounds_up_to_the_best(tmp_path):
    train, held = DATA.take(np.arange(250)), DATA.take(np.arange(250, 400))
    model = FedXGBClassifier(100, n_iter_no_change=3, **SMALL)
    model.fit(federate(train), validation=federate(held, 2))
    losses = model.evals_result_["validation"]["logloss"]
    assert len(losses) == model.best_iteration_ + 4 < 100
    assert model.assess(held)["log_loss"] == pytest.approx(min(losses), rel=1e-6)
    assert len(model.ensemble_.roots) == model.best_iteration_ + 1
    with pytest.raises(KeyboardInterrupt):
        model.fit(federate(train, folder=tmp_path, faults=Faults(interrupt_at=30)), validation=federate(held, 2))
    again = clone(model).fit(federate(train, folder=tmp_path), validation=federate(held, 2))
    assert_same(model.fit(federate(train), validation=federate(held, 2)), again)
    assert again.evals_result_ == model.evals_result_


def test_watched_records_without_early_stopping_change_nothing():
    watched = FedXGBClassifier(6, **SMALL).fit(federate(), validation=federate(DATA.take(np.arange(90))))
    assert_same(watched, FedXGBClassifier(6, **SMALL).fit(federate()))
    assert len(watched.evals_result_["validation"]["logloss"]) == 6


def test_no_leaf_holds_fewer_records_than_wanted():
    model = FedXGBClassifier(10, max_depth=6, min_samples_leaf=40).fit(federate())
    assert min(np.bincount(each)[np.unique(each)].min() for each in model.apply(X).T) >= 40


def alike(smallest):
    """Return records in groups of the same columns and class, the smallest of a given size at its site."""
    groups = np.array([[a, b, y] for a in (0.0, 1.0) for b in (0.0, 1.0) for y in (0, 1)])
    place = np.repeat(np.arange(8), [40, smallest, 15, 30, 12, 25, 10, 60])
    return mc.data.TableData(groups[place, :2], groups[place, 2].astype(int))


def unmasked_fit(smallest, policy):
    sites = {"one": alike(30), "two": alike(smallest)}
    model = FedXGBClassifier(6, cuts=[[0.5], [0.5]], max_depth=2)
    return model.fit(mc.Federation.in_process(sites, policy=policy, secure_sum=False))


def test_unmasked_sums_of_as_many_as_the_policy_wants_give_the_masked_fit_and_of_fewer_none():
    exact = FedXGBClassifier(6, cuts=[[0.5], [0.5]], max_depth=2)
    exact.fit(mc.Federation.in_process({"one": alike(30), "two": alike(10)}))
    assert (exact.ensemble_.column >= 0).any()
    assert_same(exact, unmasked_fit(10, mc.Policy(min_patients=10)))
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        unmasked_fit(9, mc.Policy(min_patients=10))


@pytest.mark.parametrize("make", [FedXGBClassifier, FedXGBRegressor])
def test_an_unmasked_fit_that_would_part_few_records_is_refused_before_any_round(make):
    federation = federate(DATA if make is FedXGBClassifier else COUNTS, policy=None, secure_sum=False)
    base = {"base_score": 0.5} if make is FedXGBClassifier else {}
    with pytest.raises(DisclosureRefused, match="secure_sum=True"):
        make(50, cuts=[[0.0], [0.0], [0.0]], **base).fit(federation)
    told = [entry for ledger in federation.ledgers.values() for entry in ledger.entries if entry["event"] == "release"]
    assert "sum_gradients" not in {entry["step"] for entry in told}


@pytest.mark.slow
def test_masks_change_no_bit_under_any_policy():
    exact = FedXGBClassifier(20, **SMALL).fit(federate(secure_sum=False))
    assert_same(exact, FedXGBClassifier(20, **SMALL).fit(federate()))
    grid = {"cuts": [[-1.0, 0.0, 1.0]] * 3, **SMALL}
    exact = FedXGBClassifier(20, **grid).fit(federate(secure_sum=False))
    guarded = FedXGBClassifier(20, **grid).fit(federate(policy=None))
    assert_same(exact, guarded)
    assert (exact.value_digits_, guarded.value_digits_) == (36, 28)


def test_bytes_are_told():
    model = FedXGBClassifier(4, cuts=[[0.0], [0.0], [0.0]], max_depth=1).fit(federate(secure_sum=False))
    cells = 3 * (2 + 1)
    closing = 16
    n_sites = len(model.session.sites)
    received = model.traffic_.bytes_from_sites
    assert received["sum_gradients"] == 4 * n_sites * 8 * (2 * cells + 2)
    assert received["sum_losses"] == n_sites * closing


def test_a_finished_round_is_sent_once(monkeypatch):
    sent, of = [], Level.of
    monkeypatch.setattr(Level, "of", lambda *trees, **flags: sent.append(trees[:2]) or of(*trees, **flags))
    FedXGBClassifier(3, **SMALL).fit(federate())
    assert [(since, len(finished.roots)) for since, finished in sent] == [
        *[(0, 0)] * 3,
        *[(0, 1), (1, 0), (1, 0)],
        *[(1, 1), (2, 0), (2, 0)],
    ]


@pytest.mark.parametrize(
    "changes",
    [
        {"n_estimators": 0},
        {"n_estimators": True},
        {"max_depth": 13},
        {"learning_rate": 0.0},
        {"learning_rate": float("nan")},
        {"reg_lambda": -1.0},
        {"max_bins": 1},
        {"scale_pos_weight": 0.0},
        {"base_score": "half"},
        {"base_score": 1.0},
        {"n_iter_no_change": 5},
        {"cuts": [[0.0], [0.0]]},
        {"cuts": np.zeros((3, 1))},
    ],
    ids=repr,
)
def test_parameters_out_of_range_are_refused(changes):
    with pytest.raises(ConfigurationError):
        FedXGBClassifier(2).set_params(**changes).fit(federate())


def test_what_does_not_fit_together_is_refused():
    with pytest.raises(SchemaMismatch):
        FedXGBClassifier(2).fit(federate(COUNTS))
    with pytest.raises(SchemaMismatch):
        FedXGBRegressor(2).fit(federate())
    with pytest.raises(ConfigurationError, match="objective"):
        FedXGBRegressor(2, objective="survival:cox").fit(federate(COUNTS))
    with pytest.raises(ConfigurationError, match="validation must be a Federation; got TableData"):
        FedXGBClassifier(2).fit(federate(), validation=DATA)
    three = mc.data.TableData(X, Y + (X[:, 2] > 0))
    with pytest.raises(ConfigurationError, match=r"scale_pos_weight must be 1 with more than two classes; got 2\.0"):
        FedXGBClassifier(2, scale_pos_weight=2.0).fit(federate(three))
    with pytest.raises(DataError, match="one class"):
        FedXGBClassifier(2).fit(federate(mc.data.TableData(X, np.zeros(400, dtype=int))))
    with pytest.raises(DataError, match="must be above 0; got 0"):
        FedXGBRegressor(2, objective="count:poisson").fit(
            federate(mc.data.TableData(X, np.zeros(400), outcome="number"))
        )
    classes = ["ill", "well"]
    for columns, said in ((DATA.columns, "b: classes must be the same"), (None, "b: columns must be those of a")):
        sites = {"a": DATA, "b": mc.data.TableData(X, Y, columns=columns, classes=classes)}
        with pytest.raises(SchemaMismatch, match=said):
            FedXGBClassifier(2).fit(mc.Federation.in_process(sites, policy=EXACT))
    with pytest.raises(DisclosureRefused):
        FedXGBClassifier(2).fit(federate(policy=mc.Policy(min_patients=500)))


def test_classes_that_one_site_lacks_are_known_from_the_others():
    three = mc.data.TableData(X, Y + (X[:, 2] > 0), classes=["a", "b", "c"])
    sites = {"one": three, "two": mc.data.TableData(X, Y, classes=["a", "b"])}
    model = FedXGBClassifier(3, **SMALL).fit(mc.Federation.in_process(sites, policy=EXACT))
    assert model.predict_proba(X).shape == (400, 3)
    assert len(model.ensemble_.roots) == 9


def test_without_xgboost_only_the_booster_is_missing(monkeypatch):
    model = FedXGBClassifier(2, **SMALL).fit(federate())
    monkeypatch.setitem(sys.modules, "xgboost", None)
    assert model.predict(X).shape == (400,)
    with pytest.raises(MissingExtra, match="boost"):
        model.get_booster()


def test_neither_numba_nor_xgboost_is_imported_with_the_package():
    code = "import sys, multicentre as mc; mc.boosting; assert not {'numba', 'xgboost'} & set(sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("options", [{"policy": EXACT, "secure_sum": False}, {}])
def test_outcomes_with_a_heavy_tail_are_summed_in_full(options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 2))
    y = np.where(rng.random(600) < 0.05, 1e9 * (2 + X[:, 1]), 10 * X[:, 0])
    data = mc.data.TableData(X, y, outcome="number")
    sites = {f"site-{place}": data.take(np.arange(place, 600, 3)) for place in range(3)}
    with mc.Federation.in_process(sites, **options) as federation:
        model = mc.boosting.FedXGBRegressor(1, learning_rate=1e-6, max_bins=8).fit(federation, validation=federation)
    assert model.predict(X).mean() == pytest.approx(y.mean(), rel=1e-5)
    assert model.evals_result_["validation"]["rmse"][-1] == pytest.approx(y.std(), rel=1e-3)


@pytest.mark.parametrize("n_records", [600, 10**5, 10**7])
@pytest.mark.parametrize("steps_up", [0, 8, 30])
def test_no_number_of_large_outcomes_is_too_many_to_add(n_records, steps_up):
    counts = np.zeros(N_EXPONENTS, dtype=np.int64)
    counts[40] = n_records - n_records // 11
    counts[40 + steps_up] += n_records // 11
    outcomes = Magnitude.of(counts)
    unit, squared = outcomes.unit(n_records), outcomes.times(outcomes).unit(n_records)
    largest = 40 + steps_up + LOWEST_EXPONENT
    assert n_records * 2.0 ** (largest - unit) <= MAX_SUM / 4
    assert n_records * 2.0 ** (2 * largest - squared) <= MAX_SUM / 4


OPTIONS = {
    "subsample": 0.6,
    "colsample_bylevel": 0.7,
    "colsample_bynode": 0.7,
    "monotone_constraints": {"age": 1},
    "interaction_constraints": [["age", "score"], ["dose"]],
    "random_state": 5,
}
ROLES = mc.data.TableData(
    np.column_stack([X, rng.gamma(2.0, 1.0, 400), 0.3 * MEAN]),
    Y,
    columns=["age", "score", "dose", "weight", "margin"],
    classes=["well", "ill"],
)


@pytest.mark.parametrize("masked", [True, False])
def test_split_and_order_of_the_records_change_no_bit_of_a_fit_with_all_options(masked):
    options = {**OPTIONS, "sample_weight": "weight", "base_margin": "margin", **SMALL}
    model = FedXGBClassifier(6, **options).fit(federate(ROLES, 1))
    mixed = np.random.default_rng(1).permutation(400)
    assert_same(model, FedXGBClassifier(6, **options).fit(federate(ROLES, 4, mixed, secure_sum=masked)))


@pytest.mark.parametrize("changed", [{"random_state": 6}, {"subsample": 1.0}, {"colsample_bynode": 1.0}], ids=repr)
def test_draws_change_the_trees(changed):
    options = {**OPTIONS, **SMALL}
    one, other = (FedXGBClassifier(6, **each).fit(federate(n_sites=2)) for each in (options, {**options, **changed}))
    assert one.ensemble_.value.tobytes() != other.ensemble_.value.tobytes()


def test_equal_records_are_drawn_separately():
    same = mc.data.TableData(np.repeat(X[:2], 200, axis=0), np.repeat([0, 1], 200))
    leaf = FedXGBClassifier(1, max_depth=1, subsample=0.5, reg_lambda=0.0, cuts=[[X[0, 0] / 2 + X[1, 0] / 2], [], []])
    model = leaf.fit(federate(same, 2))
    assert 150 < model.ensemble_.cover[0] * 4 < 250


@pytest.mark.slow
def test_an_interrupted_fit_with_options_is_resumed(tmp_path):
    options = {**OPTIONS, "sample_weight": "weight", "base_margin": "margin", "eval_metric": "auc", **SMALL}
    train, held = ROLES.take(np.arange(250)), ROLES.take(np.arange(250, 400))
    model = FedXGBClassifier(12, n_iter_no_change=12, **options)
    with pytest.raises(KeyboardInterrupt):
        model.fit(federate(train, folder=tmp_path, faults=Faults(interrupt_at=25)), validation=federate(held, 2))
    again = clone(model).fit(federate(train, folder=tmp_path), validation=federate(held, 2))
    assert_same(model.fit(federate(train), validation=federate(held, 2)), again)
    assert again.evals_result_ == model.evals_result_


def test_first_margins_of_predictions_are_columns_or_given():
    model = FedXGBClassifier(3, base_margin="margin", sample_weight="weight", **SMALL).fit(federate(ROLES))
    assert model.feature_names_in_ == ("age", "score", "dose")
    frame = pd.DataFrame(ROLES.X, columns=list(ROLES.columns))
    np.testing.assert_array_equal(model.predict_proba(frame), model.predict_proba(ROLES))
    np.testing.assert_array_equal(model.predict_margin(X, ROLES.X[:, 4]), model.predict_margin(ROLES))
    assert model.assess(ROLES)["auc"] > 0.7
    with pytest.raises(DataError, match="first margins must be given, as the fit read them from margin"):
        model.predict(X)
    for wrong in (np.zeros(3), np.full(400, np.nan)):
        with pytest.raises(DataError, match="base_margin must be 1 numbers for each of 400 records"):
            model.predict_margin(X, wrong)


def test_models_with_weights_and_first_margins_are_scored_at_the_sites():
    people = [str(place) for place in range(400)]
    data = mc.data.TableData(ROLES.X, Y, people, columns=ROLES.columns, classes=ROLES.classes)
    options = {"base_margin": "margin", "sample_weight": "weight", **SMALL}
    model = FedXGBClassifier(4, **options).fit(federate(data))
    np.testing.assert_array_equal(model.ensemble_.predict_table(ROLES.X), model.predict_margin(ROLES))
    assert model.ensemble_.table == ROLES.columns
    scores = mc.validation.cross_val_score(FedXGBClassifier(4, **options), federate(data), cv=2)
    assert (scores > 0.8).all()
    with pytest.raises(MessageError, match="a table must have all features"):
        replace(model.ensemble_, table=("age", "score", "dose")).check()


def test_a_model_with_options_is_saved(tmp_path):
    data = ROLES.keep_columns(["age", "score", "dose", "margin"])
    model = FedXGBClassifier(3, base_margin="margin", **OPTIONS, **SMALL).fit(federate(data))
    model.save(tmp_path)
    again = FedXGBClassifier.load(tmp_path)
    assert_same(model, again)
    assert (again.n_initial_rounds_, again.value_digits_, again.ensemble_.margins) == (0, 36, ("margin",))
    np.testing.assert_array_equal(model.predict_margin(ROLES), again.predict_margin(ROLES))


@pytest.mark.parametrize("missing", ["complete", "mean", "indicator"])
def test_roles_and_missing_values(missing):
    options = {"sample_weight": "weight", "interaction_constraints": [["age", "dose"], ["score"]], **SMALL}
    data = ROLES.keep_columns(["age", "score", "dose", "weight"])
    model = FedXGBClassifier(4, missing=missing, **options).fit(federate(data))
    used = ~np.isnan(X).any(axis=1) if missing == "complete" else np.ones(400, dtype=bool)
    chances = model.predict_proba(X[used])[np.arange(used.sum()), Y[used]]
    last = model.evals_result_["training"]["logloss"][-1]
    assert last == pytest.approx(np.average(-np.log(chances), weights=ROLES.X[used, 3]), rel=1e-5)
    gaps = data.X.copy()
    gaps[3, 3] = np.nan
    lacking = mc.data.TableData(gaps, Y, columns=data.columns, classes=data.classes)
    if missing == "complete":
        fit = FedXGBClassifier(1, missing=missing, **options).fit(federate(lacking))
        assert fit.missing_values_.n_incomplete == (np.isnan(gaps).any(axis=1)).sum()
    else:
        with pytest.raises(DataError, match="columns that are not features must have no missing entries"):
            FedXGBClassifier(1, missing=missing, **options).fit(federate(lacking))


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"subsample": 0.0}, "subsample"),
        ({"colsample_bynode": 1.5}, "colsample_bynode"),
        ({"monotone_constraints": {"age": 2}}, "monotone_constraints"),
        ({"monotone_constraints": {"weight": 1}}, "got 'weight'"),
        ({"interaction_constraints": [["age"], []]}, "interaction_constraints"),
        ({"interaction_constraints": [["height"]]}, "got 'height'"),
        ({"sample_weight": "height"}, "got height"),
        ({"sample_weight": "age", "base_margin": "age"}, "got age, age"),
        ({"eval_metric": "auc"}, "validation must be a Federation"),
        ({"eval_metric": "map"}, "eval_metric"),
        ({"random_state": -1}, "random_state"),
    ],
    ids=repr,
)
def test_options_out_of_range_are_refused(changes, said):
    with pytest.raises(ConfigurationError, match=said):
        FedXGBClassifier(1).set_params(**changes).fit(federate())


def test_outcomes_out_of_the_range_of_an_objective_are_refused():
    for objective, lowest, said in (("reg:gamma", 0.0, "above 0"), ("reg:tweedie", -1.0, "at least 0")):
        y = 2.0 + X[:, 0] ** 2
        y[np.isnan(y)] = lowest
        with pytest.raises(DataError, match=f"outcomes must be {said} for {objective}"):
            FedXGBRegressor(1, objective=objective).fit(federate(mc.data.TableData(X, y, outcome="number")))


def test_only_the_same_model_is_continued():
    data = ROLES.keep_columns(["age", "score", "dose", "margin"])
    first = FedXGBClassifier(2, **SMALL).fit(federate())
    for changes, said in (({"missing": "mean"}, "missing must be"), ({"base_margin": "margin"}, "xgb_model must have")):
        with pytest.raises(ConfigurationError, match=said):
            FedXGBClassifier(2, **changes, **SMALL).fit(federate(data), xgb_model=first)
    with pytest.raises(ConfigurationError, match="xgb_model must have the objective"):
        FedXGBRegressor(2, **SMALL).fit(federate(COUNTS), xgb_model=first)


def test_early_stopping_of_a_continued_fit_counts_all_rounds():
    train, held = DATA.take(np.arange(250)), DATA.take(np.arange(250, 400))
    first = FedXGBClassifier(3, **SMALL).fit(federate(train))
    model = FedXGBClassifier(60, n_iter_no_change=3, **SMALL)
    model.fit(federate(train), validation=federate(held, 2), xgb_model=first)
    losses = model.evals_result_["validation"]["logloss"]
    assert model.best_iteration_ == 3 + int(np.argmin(losses))
    assert len(model.ensemble_.roots) == model.best_iteration_ + 1
    assert model.summary().loc["logloss, validation", "value"] == min(losses)
    assert model.assess(held)["log_loss"] == pytest.approx(min(losses), rel=1e-6)
    assert len(model.figures({}, {})) == 2


@pytest.mark.parametrize("policy", [EXACT, None], ids=["without a minimum", "with a minimum"])
def test_sites_and_predictions_put_a_value_next_to_a_cut_on_the_same_side(policy):
    """Values are closer than the cells of the search: a cut rounded below its cell would move a whole cell."""
    made = np.random.default_rng(2)
    values = 0.99 + made.integers(0, 3000, 2000) * 1e-7
    data = mc.data.TableData(values[:, None], (made.random(2000) < (values - 0.99) / 3e-4).astype(int))
    model = FedXGBClassifier(3, max_depth=5, max_bins=64, reg_lambda=0.0).fit(federate(data, policy=policy))
    assert len(np.unique(model.ensemble_.threshold)) > 4
    assert model.evals_result_["training"]["logloss"][-1] == pytest.approx(model.assess(data)["log_loss"], rel=1e-6)


TIMES = mc.data.TableData(
    np.column_stack([X, np.arange(400) % 3 > 0]),
    np.exp(MEAN / 2),
    columns=["age", "score", "dose", "event"],
    outcome="number",
)


def test_times_to_an_event_have_no_error_of_numbers():
    model = FedXGBRegressor(4, objective="survival:aft", event="event", **SMALL).fit(federate(TIMES))
    assert (model.predict(TIMES) > 0).all()
    assert (np.diff(model.evals_result_["training"]["aft-nloglik"]) < 0).all()
    for score in (model.score, model.assess):
        with pytest.raises(ConfigurationError, match="rmse and r2 require known outcomes"):
            score(TIMES)
    people = mc.data.TableData(
        TIMES.X, TIMES.y, [str(place) for place in range(400)], columns=TIMES.columns, outcome="number"
    )
    with pytest.raises(ConfigurationError, match="require known outcomes"):
        mc.validation.cross_val_score(clone(model), federate(people), cv=2)


def test_events_are_zeros_and_ones_of_times():
    with pytest.raises(ConfigurationError, match='event must be None unless objective is "survival:aft"'):
        FedXGBRegressor(1, event="event").fit(federate(TIMES))
    for column, said in ((2.0, "events must be 0 or 1"), (1.0, "outcomes must be above 0 for survival:aft")):
        values = TIMES.X.copy()
        values[:, 3] = column
        y = np.maximum(TIMES.y - 1.0, 0.0)
        data = mc.data.TableData(values, y, columns=TIMES.columns, outcome="number")
        with pytest.raises(DataError, match=said):
            FedXGBRegressor(1, objective="survival:aft", event="event").fit(federate(data))
