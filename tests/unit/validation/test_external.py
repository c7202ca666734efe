"""Validation of given models: published coefficients, boosters of xgboost and saved models, next to pooled oracles."""

import json

import numpy as np
import pandas as pd
import pytest
from scipy.optimize import brentq
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import brier_score_loss, mean_absolute_error, r2_score, roc_auc_score

import multicentre as mc
from multicentre.errors import ConfigurationError, DisclosureRefused, SchemaMismatch
from multicentre.studies import read_study, run_study
from multicentre.studies.run_folder import RunFolder
from multicentre.validation import (
    ClassifierValidation,
    RegressorValidation,
    model_from_mapping,
    read_model,
    write_model,
)

SCORE = {"family": "binomial", "intercept": -1.0, "coefficients": {"sex=m": 0.6, "age": 0.06}, "centre": {"age": 60.0}}
LINE = {"family": "gaussian", "intercept": 3.0, "coefficients": {"age": 0.2}}


def frame(n=900, seed=0):
    rng = np.random.default_rng(seed)
    rows = pd.DataFrame({"dose": rng.normal(size=n), "age": rng.normal(60, 10, n), "sex": rng.choice(["f", "m"], n)})
    odds = -0.5 + 0.04 * (rows.age - 60) + 0.4 * (rows.sex == "m") + 0.3 * rows.dose
    rows["dead"] = (rng.random(n) < 1 / (1 + np.exp(-odds))).astype(int)
    rows["days"] = 2 + 0.1 * rows.age + rng.normal(size=n)
    return rows


def tables(rows, outcome="dead", **options):
    kind = {"outcome": outcome, "columns": ["dose", "age", "sex"], "categories": {"sex": ["f", "m"]}}
    kind |= {"references": {"sex": "m"}}  # the model's level has no column: it is derived
    return {
        site: mc.data.TableData.from_frame(rows.iloc[start::3].reset_index(drop=True), **kind, **options)
        for start, site in enumerate(("graz", "lyon", "oslo"))
    }


@pytest.fixture(scope="module")
def rows():
    return frame()


@pytest.fixture(scope="module")
def odds(rows):
    return (-1 + 0.06 * (rows.age - 60) + 0.6 * (rows.sex == "m")).to_numpy()


@pytest.fixture(scope="module")
def validation(rows):
    model = ClassifierValidation(model_from_mapping(SCORE), subgroups="sex", by_site=True, thresholds=[0.2, 0.5])
    return model.fit(mc.Federation.in_process(tables(rows)))


def test_scores_of_published_coefficients_are_those_of_the_pooled_records(validation, rows, odds):
    chances, scores = 1 / (1 + np.exp(-odds)), validation.to_frame()["value"]
    area = roc_auc_score(rows.dead, chances)
    assert abs(scores["roc_auc"] - area) <= validation.evaluation_.bound_roc_auc < 0.01
    assert scores["brier_score"] == pytest.approx(brier_score_loss(rows.dead, chances), abs=1e-6)
    assert scores["observed_over_expected"] == pytest.approx(rows.dead.sum() / chances.sum(), abs=1e-6)


def test_the_recalibration_is_the_logistic_regression_of_the_pooled_log_odds(validation, rows, odds):
    oracle = LogisticRegression(C=np.inf, tol=1e-10, max_iter=1000).fit(odds[:, None], rows.dead)
    np.testing.assert_allclose(validation.line(), [oracle.intercept_[0], oracle.coef_[0, 0]], atol=1e-4)
    shift = brentq(lambda a: (rows.dead - 1 / (1 + np.exp(-odds - a))).sum(), -5, 5)
    assert validation.shift() == pytest.approx(shift, abs=1e-5)
    again = ClassifierValidation(validation.recalibrated()).fit(mc.Federation.in_process(tables(rows)))
    np.testing.assert_allclose(again.line(), (0, 1), atol=1e-5)
    large = ClassifierValidation(validation.recalibrated("intercept")).fit(mc.Federation.in_process(tables(rows)))
    assert large.shift() == pytest.approx(0, abs=1e-5)


def test_every_bin_of_predictions_holds_enough_records_and_thresholds_are_its_borders(validation):
    collected = validation.evaluation_.collected
    assert collected.counts[0].sum(axis=0).min() >= 10
    assert validation.evaluation_.thresholds.tolist() == pytest.approx([0.2, 0.5], abs=0.004)
    assert validation.evaluation_.operating_points().notna().all().all()


def test_a_validation_is_saved_with_its_model(validation, tmp_path):
    validation.save(tmp_path / "model")
    loaded = ClassifierValidation.load(tmp_path / "model")
    pd.testing.assert_frame_equal(loaded.to_frame(), validation.to_frame())
    pd.testing.assert_frame_equal(loaded.evaluation_.by_site(), validation.evaluation_.by_site())
    assert loaded.evaluation_.subgroup_names == ("sex=f", "sex=m")
    assert loaded.model_digest_ == validation.model_digest_
    assert loaded.recalibrated().intercept == validation.recalibrated().intercept


def test_a_recalibrated_model_is_written_and_read_again(validation, tmp_path):
    write_model(validation.recalibrated(), tmp_path / "score.json")
    again = read_model(tmp_path / "score.json")
    np.testing.assert_array_equal(again.coefficients, validation.recalibrated().coefficients)
    assert again.intercept == validation.recalibrated().intercept


def test_numbers_are_scored_and_calibrated_as_those_of_the_pooled_records(rows):
    federation = mc.Federation.in_process(number_tables(rows))
    validation = RegressorValidation(model_from_mapping(LINE), by_site=True).fit(federation)
    predicted = 3 + 0.2 * rows.age
    slope, intercept = np.polyfit(predicted, rows.days, 1)
    assert validation.scores_["r2"] == pytest.approx(r2_score(rows.days, predicted), abs=1e-5)
    assert -validation.scores_["neg_mean_absolute_error"] == pytest.approx(
        mean_absolute_error(rows.days, predicted), abs=1e-6
    )
    assert validation.line() == pytest.approx((intercept, slope), abs=1e-5)
    assert validation.shift() == pytest.approx((rows.days - predicted).mean(), abs=1e-6)
    assert set(validation.by_site_) == {"graz", "lyon", "oslo"}
    again = RegressorValidation(validation.recalibrated()).fit(federation)
    assert again.line() == pytest.approx((0, 1), abs=1e-4)


def number_tables(rows):
    return {
        site: mc.data.TableData(
            rows[["dose", "age"]].iloc[start::3], rows["days"].iloc[start::3], columns=["dose", "age"], outcome="number"
        )
        for start, site in enumerate(("graz", "lyon", "oslo"))
    }


@pytest.mark.parametrize("objective", ["binary:logistic", "reg:squarederror"])
def test_a_booster_of_xgboost_predicts_at_the_sites_as_in_xgboost(tmp_path, rows, objective):
    xgboost = pytest.importorskip("xgboost")
    X = rows[["age", "dose"]].to_numpy()
    outcome = rows["dead" if "logistic" in objective else "days"]
    booster = xgboost.train(
        {"objective": objective, "max_depth": 3, "nthread": 1},
        xgboost.DMatrix(X, label=outcome, feature_names=["age", "dose"]),
        8,
    )
    booster.save_model(tmp_path / "model.json")
    model = read_model(tmp_path / "model.json")
    predicted = booster.predict(xgboost.DMatrix(X, feature_names=["age", "dose"]))
    if model.classes:
        validation = ClassifierValidation(model).fit(mc.Federation.in_process(tables(rows)))
        assert validation.to_frame().loc["brier_score", "value"] == pytest.approx(
            brier_score_loss(outcome, predicted), abs=1e-6
        )
    else:
        validation = RegressorValidation(model).fit(mc.Federation.in_process(number_tables(rows)))
        assert validation.scores_["r2"] == pytest.approx(r2_score(outcome, predicted), abs=1e-5)


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"family": "binomial", "coefficients": {}}, "at least 1 item"),
        ({"family": "binomial", "coefficients": {"age": float("nan")}}, "finite number"),
        ({"family": "binomial", "coefficients": {"age": True}}, "valid number"),
        ({"family": "binomial", "link": "log", "coefficients": {"age": 1.0}}, "link must be one of logit"),
        ({"family": "cox", "coefficients": {"age": 1.0}}, "cumulative hazard at each of its times"),
        ({"family": "binomial", "coefficients": {"age": 1.0}, "times": [1.0]}, 'must come with the family "cox"'),
        ({"family": "binomial", "coefficients": {"age": 1.0}, "centre": {"dose": 1.0}}, "columns with a coefficient"),
        ({"learner": {}}, "must be a booster that xgboost wrote as JSON"),
        ({"learner": []}, "must be a booster that xgboost wrote as JSON"),
    ],
)
def test_a_model_that_cannot_be_used_is_refused_with_the_key(content, expected):
    with pytest.raises(ConfigurationError, match=expected):
        model_from_mapping(content)


def test_a_column_that_the_sites_lack_is_named(rows):
    model = model_from_mapping({"family": "binomial", "coefficients": {"sodium": 1.0}})
    with pytest.raises(SchemaMismatch, match=r"lacks? sodium"):
        ClassifierValidation(model).fit(mc.Federation.in_process(tables(rows)))


def test_predictions_in_one_bin_are_refused(rows):
    model = model_from_mapping({"family": "binomial", "coefficients": {"age": 0.0}})
    with pytest.raises(DisclosureRefused, match="two bins of at least 10 records"):
        ClassifierValidation(model).fit(mc.Federation.in_process(tables(rows)))


STUDY = """
[study]
name = "score"
method = "validate"

[parameters]
by_site = true

[parameters.model]
family = "binomial"
intercept = -4.6
coefficients = {age = 0.06, "sex=m" = 0.6}

[data]
one_row_per_patient = true

[data.table]
outcome = "dead"
columns = ["dose", "age", "sex"]
categories = {sex = ["f", "m"]}
references = {sex = "f"}
"""


def write_study(folder, rows, text=STUDY):
    for start, site in enumerate(("graz", "lyon", "oslo")):
        rows.iloc[start::3].to_csv(folder / f"{site}.csv", index=False)
        text += f'\n[sites.{site}]\nfile = "{site}.csv"\n'
    (folder / "study.toml").write_text(text)
    return read_study(folder / "study.toml")


def test_a_study_holds_the_model_and_its_run_has_the_card_and_the_recalibrated_model(tmp_path, rows):
    study = write_study(tmp_path, rows)
    assert study.about.method == "classifier-validation"
    run = run_study(study)
    expected = ClassifierValidation(model_from_mapping(SCORE)).fit(mc.Federation.in_process(tables(rows)))
    actual = ClassifierValidation.load(run.path / "model")
    pd.testing.assert_frame_equal(actual.to_frame(), expected.to_frame(), atol=1e-6)
    assert RunFolder.open(run.path).metadata["status"] == "finished"
    card = (run.path / "results" / "model-card.md").read_text()
    for wanted in ("age", "0.06", "Calibration slope", actual.model_digest_, "graz"):
        assert wanted in card
    assert "<html" in (run.path / "results" / "model-card.html").read_text()
    recalibrated = json.loads((run.path / "results" / "recalibrated-model.json").read_text())
    assert recalibrated["coefficients"]["age"] == pytest.approx(float(actual.recalibrated().coefficients[0]))


def survival_sites(seed=0):
    return {name: mc.datasets.simulate_survival(300, 3, seed + place) for place, name in enumerate(("a", "b", "c"))}


def test_a_published_cox_model_is_validated_by_the_names_of_its_columns(tmp_path):
    sites = survival_sites()
    names = sites["a"].columns
    hazard = {"times": [10.0, 20.0, 40.0], "cumulative_hazard": [0.2, 0.5, 1.1]}
    given = {"family": "cox", "coefficients": {names[2]: 0.3, names[0]: 0.8}, "centre": {names[0]: 0.5}, **hazard}
    federation = mc.Federation.in_process(sites)
    actual = mc.survival.SurvivalEvaluation(model_from_mapping(given)).fit(federation)
    arrays = np.array([0.8, 0.0, 0.3]), np.array([0.5, 0.0, 0.0])
    whole = mc.survival.fitted_models.CoxModel(
        np.array(hazard["times"]), *arrays, np.array(hazard["cumulative_hazard"])
    )
    expected = mc.survival.SurvivalEvaluation(whole).fit(federation)
    assert actual.concordance_ == expected.concordance_
    assert actual.ibs_ == expected.ibs_
    actual.save(tmp_path / "model")
    assert mc.survival.SurvivalEvaluation.load(tmp_path / "model").ibs_ == actual.ibs_
    absent = model_from_mapping({**given, "coefficients": {"sodium": 0.3}, "centre": {}})
    with pytest.raises(SchemaMismatch, match=r"lacks? sodium"):
        mc.survival.SurvivalEvaluation(absent).fit(federation)
