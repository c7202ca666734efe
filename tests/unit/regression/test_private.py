"""Private regression: what a user may ask, what is marked, and what is left of a fit."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, NoiseWarning, SchemaMismatch
from multicentre.regression import FedGLM, FedLinearRegression, FedLogisticRegression

BOUNDS = {"age": (20.0, 100.0), "smoker": (0.0, 1.0)}
pytestmark = pytest.mark.usefixtures("seeded_noise")


def patients(family="gaussian", n=6000, *, gaps=False):
    rng = np.random.default_rng(1)
    X = np.column_stack([np.clip(rng.normal(60, 10, n), 21, 99), rng.integers(0, 2, n)])
    mean = 0.5 * (X[:, 0] - 60) - 4 * X[:, 1]
    if family == "binomial":
        y = (rng.random(n) < 1 / (1 + np.exp(1 - 0.1 * mean))).astype(int)
        return mc.data.TableData(X, y, columns=list(BOUNDS), classes=["alive", "dead"])
    y = np.clip(120 + mean + 8 * rng.normal(size=n), 61, 199)
    if gaps:
        X[::3, 0] = np.nan
    return mc.data.TableData(X, y, columns=list(BOUNDS), outcome="number")


def federate(data, *, secure=True):
    sites = {f"s{i}": data.take(np.arange(i, len(data), 3)) for i in range(3)}
    # Beyond epsilon 3, noise takes no longer the place of a minimum of patients.
    return mc.Federation.in_process(sites, secure_sum=secure, policy=mc.Policy(min_patients=0))


def private(family="gaussian", epsilon=3.0, **options):
    ends = {} if family == "binomial" else {"outcome_bounds": (60.0, 200.0)}
    return FedGLM(family, **{"epsilon": epsilon, "bounds": BOUNDS, **ends, **options})


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_without_noise_to_speak_of_it_is_the_pooled_fit(family):
    data = patients(family)
    model = private(family, epsilon=1e10).fit(federate(data))
    expected = (FedLinearRegression if family == "gaussian" else FedLogisticRegression)().fit(federate(data))
    # Rows are rounded to 2**-15 of their length; a logistic fit ends after three rounds.
    assert model.coef_ == pytest.approx(expected.coef_, rel=1e-3)
    assert model.intercept_ == pytest.approx(expected.intercept_, rel=1e-3)
    assert model.standard_errors_ == pytest.approx(expected.standard_errors_, rel=0.01)
    assert model.n_patients_ == 6000
    assert model.cut_share_ == pytest.approx(0.0, abs=1e-6)
    assert model.tests_["wald"].statistic == pytest.approx(expected.tests_["wald"].statistic, rel=0.02)
    assert (model.noise_errors_ < 0.01 * model.standard_errors_).all()


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_a_noisy_fit_is_marked_and_its_errors_include_the_noise(family, secure):
    data = patients(family)
    model = private(family).fit(federate(data, secure=secure))
    expected = (FedLinearRegression if family == "gaussian" else FedLogisticRegression)().fit(federate(data))
    assert (abs(model.coef_ - expected.coef_) < 5 * model.standard_errors_[1:]).all()
    assert (model.standard_errors_ > expected.standard_errors_).all()
    assert (model.noise_errors_ < model.standard_errors_).all()
    text = str(model)
    assert "Differentially private (epsilon 3, delta 1e-05)" in text
    assert "standard errors include the noise" in text
    assert "deviance" not in text
    assert model.answer().endswith("noisy, for epsilon 3.")
    assert np.isnan([model.deviance_, model.aic_, model.log_likelihood_]).all()
    assert set(model.tests_) == {"wald"}
    assert model.privacy_.epsilon == pytest.approx(3.0, rel=1e-6)


def test_noise_that_hides_the_result_is_marked():
    with pytest.warns(NoiseWarning, match="coefficients mean nothing"):
        model = private(epsilon=0.01).fit(federate(patients()))
    assert not model.converged_
    assert np.isnan(model.standard_errors_).all()
    assert model.tests_ == {}
    assert "the noise hides the result" in " ".join(str(model).split())


def test_values_beyond_bounds_are_cut_and_counted():
    narrow = {"age": (50.0, 70.0), "smoker": (0.0, 1.0)}
    with pytest.warns(NoiseWarning, match="% of patients have a value beyond a bound"):
        model = private(bounds=narrow, epsilon=100.0).fit(federate(patients()))
    data = patients()
    share = ((data.X[:, 0] < 50) | (data.X[:, 0] > 70)).mean()
    assert model.cut_share_ == pytest.approx(share, abs=0.01)


def test_incomplete_records_are_left_out_and_not_counted():
    data = patients(gaps=True)
    model = private(epsilon=1e10).fit(federate(data))
    complete = data.take(np.flatnonzero(~np.isnan(data.X).any(axis=1)))
    assert model.coef_ == pytest.approx(FedLinearRegression().fit(federate(complete)).coef_, rel=1e-3)
    assert "their number is not released" in model.missing_line_


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"family": "poisson"}, "must be of gaussian"),
        ({"family": "binomial", "link": "probit"}, "must be of gaussian"),
        ({"alpha": 1.0}, "alpha must be 0.0 with epsilon"),
        ({"missing": "mean"}, "missing must be 'complete' with epsilon"),
        ({"errors": "HC1"}, "errors must be 'model' with epsilon"),
        ({"weights": "n"}, "weights must be None with epsilon"),
        ({"bounds": None}, "must have bounds of all covariates"),
        ({"outcome_bounds": None}, "must have bounds of all covariates"),
        ({"family": "binomial"}, "must have bounds of all covariates"),
        ({"bounds": {"age": (3.0, 2.0)}}, "the lower first"),
        ({"outcome_bounds": (0.0, np.inf)}, "the lower first"),
    ],
)
def test_parameters_that_do_not_fit_are_refused_before_a_site_is_asked(options, message):
    federation = federate(patients(n=60))
    chosen = {"epsilon": 1.0, "bounds": BOUNDS, "outcome_bounds": (0.0, 1.0), **options}
    with pytest.raises(ConfigurationError, match=message):
        FedGLM(**chosen).fit(federation)
    assert not federation.traffic.calls


def test_bounds_of_other_columns_are_named():
    with pytest.raises(ConfigurationError, match="these differ: dose, smoker"):
        private(bounds={"age": (0.0, 1.0), "dose": (0.0, 1.0)}).fit(federate(patients(n=60)))


def test_another_kind_of_outcome_is_refused():
    with pytest.raises(SchemaMismatch, match="one of two classes for family binomial"):
        private().fit(federate(patients("binomial", n=60)))


@pytest.mark.parametrize("family", ["gaussian", "binomial"])
def test_a_saved_model_keeps_its_promise_and_predicts_the_same(family, tmp_path):
    data = patients(family)
    model = private(family).fit(federate(data))
    model.save(tmp_path)
    loaded = FedGLM.load(tmp_path)
    assert np.array_equal(loaded.predict(data), model.predict(data))
    assert repr(loaded.summary()) == repr(model.summary())
    assert loaded.privacy_.epsilon == model.privacy_.epsilon


def test_a_fit_without_epsilon_has_no_noise():
    model = FedLinearRegression().fit(federate(patients()))
    assert np.array_equal(model.noise_errors_, np.zeros(3))
    assert np.isnan(model.cut_share_)
    assert model.privacy_ is None
