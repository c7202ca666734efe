"""Regression models: exact, or refused, or visibly marked."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import multicentre as mc
from multicentre.errors import (
    ConfigurationError,
    DataError,
    IntegrityError,
    MessageError,
    SchemaMismatch,
    SeparationWarning,
)
from multicentre.regression import FedGLM, FedLinearRegression, FedLogisticRegression
from multicentre.regression.linear_model import LinearModel

OPEN = mc.Policy(min_patients=0)
N = 240


def patients(seed=0, *, classes=True, gaps=False):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(60, 10, N), rng.normal(size=N), (rng.random(N) < 0.5).astype(float)])
    predictor = 0.04 * (X[:, 0] - 60) + 0.5 * X[:, 1]
    y = (rng.random(N) < 1 / (1 + np.exp(-predictor))).astype(int) if classes else 5 + predictor + rng.normal(size=N)
    if gaps:
        X[rng.random(N) < 0.2, 1] = np.nan
    kind = {} if classes else {"outcome": "number"}
    return mc.data.TableData(X, y, columns=["age", "dose", "sex"], **kind)


def federate(data, *, secure=False, policy=OPEN):
    sites = {f"s{i}": data.take(np.arange(i, len(data), 3)) for i in range(3)}
    return mc.Federation.in_process(sites, policy=policy, secure_sum=secure)


def with_column(data, values, name="extra"):
    X = np.column_stack([data.X, values])
    outcome = {"outcome": "number"} if data.outcome == "number" else {}
    return mc.data.TableData(X, data.y, columns=[*data.columns, name], **outcome)


def test_separation_is_named_and_has_no_errors():
    data = patients()
    separated = with_column(data, np.where(data.y == 1, 1.0, 0.0) + 0.01 * np.arange(N) / N, "marker")
    with pytest.warns(SeparationWarning, match="marker"):
        model = FedLogisticRegression().fit(federate(separated))
    assert not model.converged_
    assert np.isnan(model.standard_errors_).all()
    assert model.tests_ == {}
    with pytest.raises(DataError, match="must have standard errors"):
        model.predict_interval(separated.X)


def test_a_penalty_keeps_separated_coefficients_finite_without_errors():
    data = patients()
    separated = with_column(data, data.y.astype(float), "marker")
    model = FedLogisticRegression(alpha=1.0).fit(federate(separated))
    assert model.converged_
    assert np.isnan(model.p_values_).all()
    again = FedLogisticRegression(alpha=10.0).fit(federate(separated))
    assert abs(again.coef_[3]) < abs(model.coef_[3])


def test_ridge_is_that_of_scikit_learn():
    from sklearn.linear_model import Ridge

    data = patients(classes=False)
    scaled = (data.X - data.X.mean(axis=0)) / data.X.std(axis=0)
    expected = Ridge(alpha=7.0).fit(scaled, data.y).coef_ / data.X.std(axis=0)
    assert FedLinearRegression(alpha=7.0).fit(federate(data)).coef_ == pytest.approx(expected, rel=1e-8)


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_dependent_covariates_are_named(secure):
    data = patients()
    dependent = with_column(data, data.X[:, 0] - 2 * data.X[:, 1], "difference")
    with pytest.raises(DataError, match=r"age.*dose.*difference"):
        FedLogisticRegression().fit(federate(dependent, secure=secure))


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_a_constant_covariate_is_named(secure):
    with pytest.raises(DataError, match=r"(must vary|must be independent).*extra"):
        FedLogisticRegression().fit(federate(with_column(patients(), np.full(N, 3.0)), secure=secure))


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_patients_of_one_class_only_are_refused(secure):
    data = patients()
    with pytest.raises(DataError, match="patients of both classes; got only '0'"):
        FedLogisticRegression().fit(federate(data.with_arrays(y=np.zeros_like(data.y)), secure=secure))


def test_rounds_that_end_early_are_marked():
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model = FedGLM("binomial", max_iter=1).fit(federate(patients()))
    assert np.isnan(model.standard_errors_).all()


@pytest.mark.parametrize(("missing", "n_covariates"), [("complete", 3), ("mean", 3), ("indicator", 4)])
def test_missing_entries_are_handled_as_in_the_pooled_fit(missing, n_covariates):
    data = patients(classes=False, gaps=True)
    model = FedLinearRegression(missing=missing).fit(federate(data))
    X, y, gap = data.X, data.y, np.isnan(data.X[:, 1])
    if missing == "complete":
        X, y = X[~gap], y[~gap]
    else:
        X = np.where(np.isnan(X), np.nanmean(data.X, axis=0), X)
        X = np.column_stack([X, gap]) if missing == "indicator" else X
    expected = np.linalg.lstsq(np.column_stack([np.ones(len(X)), X]), y, rcond=None)[0]
    assert len(model.coef_) == n_covariates
    assert np.concatenate([[model.intercept_], model.coef_]) == pytest.approx(expected, rel=1e-8)
    assert f"{int(gap.sum())} of {N} records" in model.missing_line_
    if missing != "complete":
        assert model.predict(data.X) == pytest.approx(np.column_stack([np.ones(N), X]) @ expected, rel=1e-8)
    else:
        with pytest.raises(DataError, match="missing values"):
            model.predict(data.X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "poisson", "link": "logit"}, "link of family poisson"),
        ({"errors": "cluster"}, "cluster must name a column"),
        ({"cluster": "sex"}, "cluster must name a column"),
        ({"weights": "sex", "weight_type": "probability"}, "must be robust"),
        ({"weights": "sex", "offset": "sex"}, "different columns"),
    ],
)
def test_parameters_that_do_not_fit_are_refused_before_a_site_is_asked(options, message):
    federation = federate(patients())
    with pytest.raises(ConfigurationError, match=message):
        FedGLM(**{"family": "binomial", **options}).fit(federation)
    assert not federation.traffic.calls


def test_a_column_that_does_not_exist_is_named():
    with pytest.raises(SchemaMismatch, match="days"):
        FedGLM("binomial", offset="days").fit(federate(patients()))


@pytest.mark.parametrize(
    ("family", "outcomes", "message"),
    [("poisson", -1.0, "at least 0"), ("gamma", 0.0, "positive"), ("gaussian", 2.0, "outcomes must vary")],
)
def test_outcomes_that_do_not_fit_the_family_are_refused(family, outcomes, message):
    data = patients(classes=False)
    with pytest.raises(DataError, match=message):
        FedGLM(family).fit(federate(data.with_arrays(y=np.full(N, outcomes))))


def test_classes_need_the_binomial_family_and_numbers_another():
    with pytest.raises(SchemaMismatch, match="must be a number"):
        FedLinearRegression().fit(federate(patients()))
    with pytest.raises(SchemaMismatch, match="one of two classes"):
        FedLogisticRegression().fit(federate(patients(classes=False)))


def test_negative_weights_are_refused():
    data = with_column(patients(), np.where(np.arange(N) == 7, -1.0, 1.0), "weight")
    with pytest.raises(DataError, match="weights must be at least 0"):
        FedGLM("binomial", weights="weight").fit(federate(data))


def test_a_frequency_weight_is_a_repeated_row():
    data, counts = patients(classes=False), np.random.default_rng(3).integers(1, 4, N)
    weighted = FedLinearRegression(weights="n").fit(federate(with_column(data, counts, "n")))
    repeated = FedLinearRegression().fit(federate(data.take(np.repeat(np.arange(N), counts))))
    assert weighted.coef_ == pytest.approx(repeated.coef_, rel=1e-9)
    assert weighted.p_values_ == pytest.approx(repeated.p_values_, rel=1e-7)
    assert weighted.residual_freedom_ == repeated.residual_freedom_


def test_a_saved_model_predicts_the_same(tmp_path):
    data = patients()
    model = FedLogisticRegression().fit(federate(data))
    model.save(tmp_path)
    loaded = FedLogisticRegression.load(tmp_path)
    assert np.array_equal(loaded.predict_proba(data), model.predict_proba(data))
    assert str(loaded) == str(model)
    assert loaded.tests_ == model.tests_


def test_a_model_whose_parts_do_not_fit_is_refused():
    good = FedLogisticRegression().fit(federate(patients())).model_
    fields = {name: getattr(good, name) for name in LinearModel.declarations()}
    for change in ({"link": "log"}, {"offset": "days"}, {"coefficients": np.zeros(1)}, {"classes": ()}):
        with pytest.raises((IntegrityError, MessageError), match=r"must fit each other|side d must be"):
            LinearModel(**{**fields, **change}).check()


def test_the_printed_model_shows_ratios_size_and_missing_values():
    text = str(FedLogisticRegression().fit(federate(patients(gaps=True))))
    assert "odds_ratio" in text
    assert "family binomial, link logit" in text
    assert "records left out: missing dose" in text


def test_classes_and_probabilities_are_named():
    data = patients()
    named = mc.data.TableData(
        data.X, np.array(["alive", "dead"])[data.y], columns=data.columns, classes=["alive", "dead"]
    )
    model = FedLogisticRegression().fit(federate(named))
    assert model.classes_.tolist() == ["alive", "dead"]
    assert np.array_equal(model.predict(named) == "dead", model.predict_proba(named)[:, 1] > 0.5)
    assert set(model.assess(named)) == {"log_loss", "auc"}


def test_an_ordinary_fit_warns_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        FedLogisticRegression().fit(federate(patients(), secure=True))


@pytest.mark.parametrize(("classes", "reference"), [(True, 1.0), (False, 0.0)])
def test_a_report_shows_coefficients_and_a_forest_plot(classes, reference):
    data = patients(classes=classes)
    model = (FedLogisticRegression() if classes else FedLinearRegression()).fit(federate(data))
    table, forest = model.figures({}, {})[:2]
    assert [row[0] for row in table.rows] == ["(intercept)", *data.columns]
    assert forest.reference == reference
    expected = np.exp(model.coef_) if classes else model.coef_
    assert np.array(forest.estimates) == pytest.approx(expected, rel=1e-8)
