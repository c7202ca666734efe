"""Missing values in boosted trees: handled as scikit-learn and pandas handle them on pooled records."""

import functools

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer

import multicentre as mc
from multicentre.engines.faults import Faults
from multicentre.errors import ConfigurationError, DataError
from multicentre_papers import baselines


def fitted(model, sites, **options):
    with mc.Federation.in_process(sites, **options) as federation:
        return model.fit(federation)


def drawn_table(n=420, seed=4, outcome="class"):
    """Return columns with gaps, and an outcome that depends on two of them and on what is missing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)).round(2)
    signal = X[:, 0] + 0.5 * X[:, 1] + rng.normal(scale=0.3, size=n)
    X[rng.random((n, 3)) < np.array([0.15, 0.08, 0.0])] = np.nan
    signal += np.isnan(X[:, 0])
    return X, (signal > 0).astype(int) if outcome == "class" else signal.round(3)


def split_table(X, y, outcome="class"):
    return {f"site-{i}": mc.data.TableData(X[i::3], y[i::3], outcome=outcome) for i in range(3)}


def as_scikit_learn_has_it(missing, X):
    """Return (rows, columns) that a pooled fit would take, with scikit-learn and pandas."""
    if missing == "complete":
        complete = pd.DataFrame(X).notna().all(axis=1).to_numpy()
        return complete, X[complete]
    imputer = SimpleImputer(strategy="mean", add_indicator=missing == "indicator")
    return np.ones(len(X), dtype=bool), imputer.fit_transform(X)


@pytest.mark.parametrize("secure_sum", [True, False])
@pytest.mark.parametrize("missing", ["complete", "mean", "indicator"])
@pytest.mark.parametrize("kind", ["classifier", "regressor"])
def test_boosted_trees_are_those_of_records_handled_by_scikit_learn(missing, kind, secure_sum):
    outcome = "class" if kind == "classifier" else "number"
    make = mc.boosting.FedXGBClassifier if kind == "classifier" else mc.boosting.FedXGBRegressor
    X, y = drawn_table(outcome=outcome)
    options = {"secure_sum": secure_sum, "policy": mc.Policy(min_patients=0)}
    model = fitted(make(8, max_depth=3, missing=missing), split_table(X, y, outcome), **options)
    rows, handled = as_scikit_learn_has_it(missing, X)
    pooled = {"all": mc.data.TableData(handled, y[rows], outcome=outcome)}
    expected = fitted(make(8, max_depth=3), pooled, secure_sum=False, policy=mc.Policy(min_patients=0))
    given = X[rows] if missing == "complete" else X
    np.testing.assert_array_equal(model.predict_margin(given), expected.predict_margin(handled))
    np.testing.assert_array_equal(model.ensemble_.value, expected.ensemble_.value)
    assert model.missing_["missing"].tolist() == pd.DataFrame(X).isna().sum().tolist()
    if missing == "complete":
        assert model.missing_values_.n_incomplete == int((~rows).sum())


def test_a_split_on_an_indicator_is_one_on_its_column():
    X, y = drawn_table()
    y = np.isnan(X[:, 0]).astype(int)
    model = fitted(mc.boosting.FedXGBClassifier(1, max_depth=1, missing="indicator"), split_table(X, y))
    assert model.feature_names_in_ == ("x0", "x1", "x2")
    assert model.feature_importances_.tolist() == [1.0, 0.0, 0.0]
    np.testing.assert_array_equal(model.predict(X), y)


def test_the_records_that_are_watched_are_handled_like_those_of_the_fit():
    X, y = drawn_table()
    held_X, held_y = drawn_table(seed=5)
    for missing in ("complete", "mean", "indicator"):
        model = mc.boosting.FedXGBClassifier(6, max_depth=2, missing=missing)
        watched = mc.Federation.in_process(split_table(held_X, held_y))
        model.fit(mc.Federation.in_process(split_table(X, y)), validation=watched)
        rows = pd.DataFrame(held_X).notna().all(axis=1).to_numpy() | (missing != "complete")
        chances = model.predict_proba(held_X[rows])[np.arange(rows.sum()), held_y[rows]]
        assert model.evals_result_["validation"]["logloss"][-1] == pytest.approx(-np.log(chances).mean(), abs=1e-6)


@pytest.mark.parametrize("missing", ["mean", "indicator"])
def test_boosting_that_broke_off_fills_gaps_again(missing, tmp_path):
    X, y = drawn_table()
    make = functools.partial(mc.boosting.FedXGBClassifier, 4, max_depth=2, missing=missing)
    expected = fitted(make(), split_table(X, y))
    with pytest.raises(KeyboardInterrupt):
        fitted(make(), split_table(X, y), folder=tmp_path, faults=Faults(interrupt_at=14))
    again = fitted(make(), split_table(X, y), folder=tmp_path)
    np.testing.assert_array_equal(again.predict_margin(X), expected.predict_margin(X))


@pytest.mark.parametrize("missing", ["complete", "mean", "indicator"])
@pytest.mark.parametrize("make", [baselines.AdaBoostF, baselines.DistBoostF, baselines.PreWeakF])
def test_voted_trees_handle_missing_values(make, missing):
    X, y = drawn_table()
    model = fitted(make(4, missing=missing), split_table(X, y))
    rows, handled = as_scikit_learn_has_it(missing, X)
    assert model.missing_["missing"].tolist() == pd.DataFrame(X).isna().sum().tolist()
    assert model.feature_names_in_ == (
        "x0",
        "x1",
        "x2",
        *(["missing_x0", "missing_x1"] if missing == "indicator" else []),
    )
    if missing == "complete":
        sites = {name: data.take(np.flatnonzero(np.isfinite(data.X).all(axis=1))) for name, data in
                 split_table(X, y).items()}  # fmt: skip
        expected = fitted(make(4), sites)
        np.testing.assert_array_equal(model.predict_proba(X[rows]), expected.predict_proba(X[rows]))
    else:
        # The means of the fit are rounded to five digits of the columns' spread.
        np.testing.assert_allclose(model._rows(X), handled, rtol=0, atol=1e-4)


@pytest.mark.parametrize("make", [mc.boosting.FedXGBClassifier, baselines.AdaBoostF])
def test_a_model_of_complete_records_predicts_for_no_other(make):
    X, y = drawn_table()
    model = fitted(make(3, missing="complete"), split_table(X, y))
    n_incomplete = int(np.isnan(X).any(axis=1).sum())
    with pytest.raises(DataError, match=rf"X must have no missing values.*{n_incomplete} of {len(X)} records"):
        model.predict(X)
    complete = ~np.isnan(X).any(axis=1)
    data = mc.data.TableData(X, y)
    with pytest.warns(UserWarning, match="left out of the score"):
        assert model.score(data) == model.score(data.take(np.flatnonzero(complete)))
    rows = np.flatnonzero(complete)
    for scored in (split_table(X[rows], y[rows]), split_table(X, y)):
        assert scores_of(model, scored)["accuracy"] == pytest.approx(model.score(data.take(rows)))


@pytest.mark.parametrize("missing", ["mean", "indicator"])
@pytest.mark.parametrize("make", [mc.boosting.FedXGBClassifier, baselines.AdaBoostF])
def test_sites_score_a_model_as_its_holder_does(make, missing):
    X, y = drawn_table()
    model = fitted(make(4, missing=missing), split_table(X, y))
    assert scores_of(model, split_table(X, y))["accuracy"] == pytest.approx(model.score(mc.data.TableData(X, y)))


def scores_of(model, sites):
    with mc.Federation.in_process(sites) as federation:
        return mc.validation.score(model, federation, ["accuracy"]).values


@pytest.mark.parametrize("make", [mc.boosting.FedXGBClassifier, baselines.AdaBoostF])
@pytest.mark.parametrize("missing", ["complete", "mean", "indicator"])
def test_a_saved_model_of_trees_predicts_the_same(make, missing, tmp_path):
    X, y = drawn_table()
    model = fitted(make(3, missing=missing), split_table(X, y))
    model.save(tmp_path)
    again = type(model).load(tmp_path)
    given = X[~np.isnan(X).any(axis=1)] if missing == "complete" else X
    np.testing.assert_array_equal(again.predict_proba(given), model.predict_proba(given))


def test_a_missing_category_has_one_indicator_and_the_mean_of_each_level():
    rng = np.random.default_rng(7)
    n = 360
    frame = pd.DataFrame({"stage": rng.choice(["I", "II", "III"], n), "age": rng.normal(60, 10, n).round()})
    frame["y"] = (rng.random(n) < frame["stage"].map({"I": 0.2, "II": 0.5, "III": 0.8})).astype(int)
    frame.loc[rng.random(n) < 0.2, "stage"] = None
    levels = {"stage": ["I", "II", "III"]}
    sites = {
        f"site-{i}": mc.data.TableData.from_frame(frame.iloc[i::3], outcome="y", categories=levels) for i in range(3)
    }
    model = fitted(mc.boosting.FedXGBClassifier(5, max_depth=3, missing="indicator"), sites)
    own = [name for name in model.feature_names_in_ if name.startswith("stage=")]
    dummies = pd.DataFrame({name: (frame["stage"] == name[6:]).astype(float) for name in own})
    dummies[frame["stage"].isna()] = np.nan
    values = pd.DataFrame({name: dummies[name] if name in own else frame[name] for name in model.feature_names_in_})
    handled = values.fillna(values.mean())
    handled["missing"] = frame["stage"].isna().astype(float)
    pooled = {"all": mc.data.TableData(handled.to_numpy(), frame["y"].to_numpy())}
    expected = fitted(mc.boosting.FedXGBClassifier(5, max_depth=3), pooled, policy=mc.Policy(min_patients=0))
    np.testing.assert_array_equal(
        model.predict_margin(frame.drop(columns="y")), expected.predict_margin(handled.to_numpy())
    )
    assert model.missing_.set_index("column")["missing"]["stage"] == frame["stage"].isna().sum()


SURVIVAL = {
    "boost": functools.partial(mc.survival.FedSurvBoost, n_estimators=2, n_times=8, n_splits=2),
    "forest": functools.partial(mc.survival.FedRSF, n_estimators=3, n_times=8, max_bins=8),
    "local forests": functools.partial(baselines.FedSurF, n_estimators=6, n_local_estimators=4, n_times=8, max_bins=8),
    "hazard": functools.partial(mc.survival.FedHazardBoost, n_estimators=4, n_times=4, max_bins=8),
}


def survival_sites(X, time, event):
    return {f"site-{i}": mc.data.SurvivalData(X[i::3], time[i::3], event[i::3]) for i in range(3)}


@pytest.mark.slow
@pytest.mark.parametrize("missing", ["complete", "mean", "indicator"])
@pytest.mark.parametrize("name", SURVIVAL)
def test_survival_trees_handle_missing_values_alike(name, missing):
    X, y = drawn_table(outcome="number")
    time, event = np.exp(1 - np.clip(y, -2, 2)), np.arange(len(X)) % 4 > 0
    model = fitted(SURVIVAL[name](missing=missing), survival_sites(X, time, event))
    rows, handled = as_scikit_learn_has_it(missing, X)
    assert model.missing_["missing"].tolist() == pd.DataFrame(X).isna().sum().tolist()
    assert model.missing_values_.n_incomplete == int(np.isnan(X).any(axis=1).sum())
    if missing != "complete":
        # The means of the fit are rounded to five digits of the columns' spread.
        np.testing.assert_allclose(model.filled(X), handled, rtol=0, atol=1e-4)
        return
    sites = survival_sites(X, time, event)
    whole = {site: data.take(np.flatnonzero(np.isfinite(data.X).all(axis=1))) for site, data in sites.items()}
    expected = fitted(SURVIVAL[name](), whole)
    np.testing.assert_array_equal(model.predict(X[rows]), expected.predict(X[rows]))


@pytest.mark.parametrize("name", SURVIVAL)
def test_survival_trees_do_not_split_on_what_is_missing_by_themselves(name):
    X, y = drawn_table(outcome="number")
    sites = survival_sites(X, np.exp(1 - np.clip(y, -2, 2)), np.arange(len(X)) % 4 > 0)
    with pytest.raises(
        ConfigurationError, match="missing must be one of 'complete', 'indicator', 'mean'; got 'native'"
    ):
        fitted(SURVIVAL[name](missing="native"), sites)
