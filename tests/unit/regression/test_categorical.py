"""Multinomial and ordinal models: exact, or refused, or visibly marked."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import multicentre as mc
from multicentre.errors import DataError, IntegrityError, MessageError, SchemaMismatch, SeparationWarning
from multicentre.regression import FedMultinomialRegression, FedOrdinalRegression
from multicentre.regression.categorical.model import CategoricalModel

OPEN = mc.Policy(min_patients=0, max_parameters_per_patient=0)
N = 300
CLASSES = ["none", "mild", "severe"]
BOTH = pytest.mark.parametrize("kind", [FedMultinomialRegression, FedOrdinalRegression])


def patients(seed=0, *, gaps=False, marker=False):
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(60, 10, N), rng.normal(size=N)])
    y = np.digitize(0.05 * (X[:, 0] - 60) + 0.7 * X[:, 1] + rng.logistic(size=N), [-0.7, 1.0])
    if gaps:
        X[rng.random(N) < 0.2, 1] = np.nan
    names = ["age", "dose"]
    if marker:
        X, names = np.column_stack([X, (y == 2).astype(float)]), [*names, "marker"]
    return mc.data.TableData(X, y, columns=names, classes=CLASSES)


def federate(data, *, secure=False):
    sites = {f"s{i}": data.take(np.arange(i, len(data), 3)) for i in range(3)}
    return mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure)


@BOTH
def test_separation_is_named_and_takes_no_other_errors(kind):
    with pytest.warns(SeparationWarning, match="marker"):
        model = kind().fit(federate(patients(marker=True)))
    assert not model.converged_
    errors = model.to_frame()["standard_error"]
    without = errors.index.get_level_values(-1).str.contains("marker")
    assert np.isnan(errors[without]).all()
    assert np.isfinite(errors[~without]).sum() >= 2
    assert model.tests_ == {}
    penalised = kind(alpha=1.0).fit(federate(patients(marker=True)))
    assert penalised.converged_
    assert np.isnan([penalised.aic_, penalised.bic_]).all()
    assert "AIC" not in str(penalised.summary())
    assert np.isnan(penalised.p_values_).all()


@BOTH
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_dependent_and_constant_covariates_are_named(kind, secure):
    data = patients()
    for column, message in ((data.X[:, 0] - 2 * data.X[:, 1], "age.*dose.*extra"), (np.full(N, 3.0), "vary.*extra")):
        extended = mc.data.TableData(
            np.column_stack([data.X, column]), data.y, columns=["age", "dose", "extra"], classes=CLASSES
        )
        with pytest.raises(DataError, match=message):
            kind().fit(federate(extended, secure=secure))


@BOTH
def test_a_class_without_patients_is_named(kind):
    data = patients()
    with pytest.raises(DataError, match="patients of every class; got none of severe"):
        kind().fit(federate(data.with_arrays(y=np.minimum(data.y, 1))))


@BOTH
def test_numbers_are_refused(kind):
    data = patients()
    numbers = mc.data.TableData(data.X, data.y.astype(float), columns=data.columns, outcome="number")
    with pytest.raises(SchemaMismatch, match="one of several classes; got a number"):
        kind().fit(federate(numbers))


@BOTH
def test_rounds_that_end_early_are_marked(kind):
    with pytest.warns(ConvergenceWarning, match="max_iter=1"):
        model = kind(max_iter=1).fit(federate(patients()))
    assert np.isnan(model.standard_errors_).all()


@BOTH
@pytest.mark.parametrize("missing", ["complete", "mean", "indicator"])
def test_missing_entries_are_handled_as_in_the_pooled_fit(kind, missing):
    data = patients(gaps=True)
    gap = np.isnan(data.X[:, 1])
    X, y, names = data.X, data.y, ["age", "dose"]
    if missing == "complete":
        X, y = X[~gap], y[~gap]
    else:
        X = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    if missing == "indicator":
        X, names = np.column_stack([X, gap]), [*names, "missing_dose"]
    expected = kind().fit(federate(mc.data.TableData(X, y, columns=names, classes=CLASSES)))
    model = kind(missing=missing).fit(federate(data))
    assert model.coef_ == pytest.approx(expected.coef_, rel=1e-7)
    assert model.standard_errors_ == pytest.approx(expected.standard_errors_, rel=1e-7)
    assert model.feature_names_in_ == tuple(names)
    if missing == "complete":
        with pytest.raises(DataError, match="missing values"):
            model.predict(data.X)
    else:
        assert model.predict_proba(data.X) == pytest.approx(expected.predict_proba(X), rel=1e-7)


@BOTH
def test_a_saved_model_predicts_the_same(kind, tmp_path):
    data = patients()
    model = kind().fit(federate(data))
    model.save(tmp_path)
    loaded = kind.load(tmp_path)
    assert np.array_equal(loaded.predict_proba(data), model.predict_proba(data))
    assert str(loaded) == str(model)
    assert loaded.tests_ == model.tests_


def test_a_model_whose_parts_do_not_fit_is_refused():
    good = FedOrdinalRegression().fit(federate(patients())).model_
    fields = {name: getattr(good, name) for name in CategoricalModel.declarations()}
    for change in (
        {"link": "log"},
        {"kind": "multinomial"},
        {"slopes": np.zeros((1, 1))},
        {"classes": ("none", "mild")},
        {"intercepts": np.array([1.0, 0.0])},
    ):
        with pytest.raises((IntegrityError, MessageError), match=r"must fit each other|side d must be"):
            CategoricalModel(**{**fields, **change}).check()


@BOTH
def test_predictions_follow_the_probabilities_and_the_table_has_ratios(kind):
    data = patients()
    model = kind().fit(federate(data))
    shares = model.predict_proba(data)
    assert shares.sum(axis=1) == pytest.approx(np.ones(N))
    assert np.array_equal(model.predict(data), np.array(CLASSES)[shares.argmax(axis=1)])
    scores = model.assess(data)
    assert scores["log_loss"] == pytest.approx(-model.log_likelihood_ / N, rel=1e-9)
    # With the intercepts of the maximum, a multinomial model predicts as many patients of a class as there are.
    if kind is FedMultinomialRegression:
        assert shares.sum(axis=0) == pytest.approx(model.class_counts_, rel=1e-7)
    frame = model.to_frame()
    ratio = "relative_risk_ratio" if kind is FedMultinomialRegression else "odds_ratio"
    slopes = frame["coefficient"].to_numpy()[-1]
    assert frame[ratio].to_numpy()[-1] == pytest.approx(np.exp(slopes))
    assert np.isnan(frame[ratio].to_numpy()[0]) == (kind is FedOrdinalRegression)


def test_a_probit_link_has_no_ratios():
    model = FedOrdinalRegression(link="probit").fit(federate(patients()))
    assert not any("ratio" in name for name in model.to_frame().columns)
    assert "coefficient" in model.answer().lower()


def test_slopes_that_differ_between_thresholds_are_marked():
    rng = np.random.default_rng(1)
    x = rng.normal(size=900)
    y = np.where(rng.random(900) < 1 / (1 + np.exp(-2 * x)), 1 + (rng.random(900) < 0.5), 0)
    data = mc.data.TableData(x[:, None], y, columns=["dose"], classes=CLASSES)
    model = FedOrdinalRegression().fit(federate(data))
    assert "only on average" in str(model)
    assert model.equal_slopes_.p_value < 0.01
    assert model.equal_slopes_.degrees_of_freedom == 1


@pytest.mark.slow
def test_the_test_of_equal_slopes_keeps_its_level():
    """Of 200 samples in which slopes are equal, about 10 are rejected at 0.05: between 2 and 21 with near certainty."""
    from multicentre.regression.categorical import maths

    rng, rejected = np.random.default_rng(7), 0
    from scipy.stats import chi2

    for _ in range(200):
        rows = rng.normal(size=(200, 2))
        rows -= rows.mean(axis=0)
        classes = np.digitize(rows @ [0.8, -0.5] + rng.logistic(size=200), [-1.0, 1.0])
        point = np.array([-1.0, 1.0, 0.8, -0.5])
        for _ in range(8):
            sums = maths.derive_ordinal("logit", rows, classes, point)
            point = point + np.linalg.solve(sums.information, sums.gradient)
        wide = maths.derive_unequal_slopes("logit", rows, classes, point)
        rejected += wide.gradient @ np.linalg.solve(wide.information, wide.gradient) > chi2.isf(0.05, 2)
    assert 2 <= rejected <= 21


@BOTH
def test_an_ordinary_fit_warns_of_nothing(kind):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kind().fit(federate(patients(), secure=True))
