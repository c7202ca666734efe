"""Sums over very many sites are rounded to a coarse grid: rounds end as without masks, or with a warning.

Three sites stand for very many: with fewer bits for a sum, its grid is as coarse as that of more sites.
"""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import multicentre as mc
from multicentre.privacy.secure_sum import fixed_point
from multicentre.regression import (
    FedGLM,
    FedGLMCV,
    FedLinearMixedModel,
    FedLogisticRegression,
    FedMultinomialRegression,
    FedOrdinalRegression,
)
from multicentre.survival import FedCox, FedMixedCox, FedSurvBoost

N, N_SITES = 900, 3
OPEN = mc.Policy(min_patients=0, relations="listed", exact_times=True)
# The outcome, the method, and the bits of a sum: at so many, rounding exceeds the last gains of the likelihood.
CASES = {
    "cox": ("time", FedCox(), 49),
    "cox-grid": ("time", FedCox("grid", n_times=20), 48),
    "cox-exact": ("time", FedCox("exact"), 50),
    "mixed-cox": ("time", FedMixedCox(n_times=20), 47),
    "logistic": ("class", FedLogisticRegression(), 49),
    "probit": ("class", FedGLM("binomial", link="probit"), 50),
    "gamma": ("number", FedGLM("gamma", link="log"), 50),
    "multinomial": ("classes", FedMultinomialRegression(), 50),
    "ordinal": ("classes", FedOrdinalRegression(), 47),
    "linear-mixed": ("number", FedLinearMixedModel(), 48),
    "linear-mixed-slope": ("number", FedLinearMixedModel(slopes=["x0"]), 49),
    "path": ("class", FedGLMCV("binomial", alphas=6, cv=3), 50),
    "ridge-path": ("class", FedGLMCV("binomial", alphas=4, cv=3, l1_ratio=0.0), 50),
}


@pytest.fixture
def set_bits(monkeypatch):
    def of_sums(bits):
        monkeypatch.setattr(fixed_point, "_LARGEST", 2**bits - 1)
        fixed_point._plan.cache_clear()

    yield of_sums
    fixed_point._plan.cache_clear()


def sites_of(outcome):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    predictor = X @ np.array([0.8, -0.4, 0.3, -0.2])
    if outcome == "time":
        whole = mc.datasets.simulate_survival(N, 4, 0)
    elif outcome == "class":
        whole = mc.data.TableData(X, (predictor + rng.logistic(size=N) > 0).astype(int))
    elif outcome == "classes":
        whole = mc.data.TableData(X, np.digitize(predictor + rng.logistic(size=N), [-1.0, 1.0]))
    else:
        whole = mc.data.TableData(X, np.exp(0.3 * predictor) * rng.gamma(2.0, size=N), outcome="number")
    return {f"site-{i}": whole.take(np.arange(i, N, N_SITES)) for i in range(N_SITES)}


def fitted(estimator, sites, *, masked=True):
    with mc.Federation.in_process(sites, policy=OPEN, secure_sum=masked) as federation:
        return estimator.fit(federation)


@pytest.mark.filterwarnings("ignore:the rounds ended at a change of")
@pytest.mark.parametrize("name", CASES)
def test_rounding_of_many_sites_is_no_fall_of_the_likelihood(name, set_bits):
    outcome, estimator, bits = CASES[name]
    sites = sites_of(outcome)
    exact = fitted(estimator, sites, masked=False).coef_
    set_bits(bits)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = fitted(estimator, sites)
    assert model.converged_
    assert all(each["step_size"] == 1.0 for each in model.history_ if "step_size" in each)
    np.testing.assert_allclose(model.coef_, exact, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "bits"),
    [
        ("cox", 44),
        ("cox-grid", 44),
        ("logistic", 44),
        ("probit", 44),
        ("gamma", 44),
        ("multinomial", 50),
        ("ordinal", 47),
        ("linear-mixed", 48),
    ],
)
def test_rounds_that_end_at_the_rounding_of_sums_say_so(name, bits, set_bits):
    outcome, estimator, _ = CASES[name]
    sites = sites_of(outcome)
    exact = fitted(estimator, sites, masked=False).coef_
    set_bits(bits)
    with pytest.warns(UserWarning, match="within the rounding error of masked sums"):
        model = fitted(estimator, sites)
    assert model.converged_
    assert model.n_iter_ < 10
    np.testing.assert_allclose(model.coef_, exact, atol=1e-5)


def test_rounding_does_not_end_the_search_for_a_variance(set_bits):
    whole = mc.datasets.simulate_survival(N, 4, 0)
    sites = {f"site-{i}": whole.take(np.arange(i, N, 6)) for i in range(6)}
    estimator = FedMixedCox(site_effects="gaussian", n_times=20)
    exact = fitted(estimator, sites, masked=False).variance_
    set_bits(50)
    model = fitted(estimator, sites)
    assert model.converged_
    assert model.variance_ == pytest.approx(exact, rel=0.01)


def test_boosting_keeps_its_cox_models(set_bits):
    sites, calls, scores = sites_of("time"), [], []
    for bits in (63, 52):
        set_bits(bits)
        with mc.Federation.in_process(sites, policy=OPEN) as federation:
            model = FedSurvBoost(n_estimators=2, random_state=0).fit(federation)
            calls.append(federation.traffic.calls["sum_hazards"])
        scores.append(model.predict(sites["site-0"]))
    assert calls[1] <= calls[0]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-4)


@pytest.mark.slow
def test_cox_over_500_sites_converges():
    """Before rounding was considered, these rounds ended at max_iter: the last gains were below it."""
    whole = mc.datasets.simulate_survival(20_000, 10, 0)
    sites = {f"site-{i}": whole.take(np.arange(i, 20_000, 500)) for i in range(500)}
    model = fitted(FedCox(), sites)
    assert (model.converged_, model.n_iter_) == (True, 5)
