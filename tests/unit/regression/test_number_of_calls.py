"""A logistic fit asks the sites at most eight times; its last step is as exact as one after a further call."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.likelihood import newton

OPEN = mc.Policy(min_patients=0)


def patients(seed, n=1200):
    """Return patients with a common outcome, and covariates as in a clinical study."""
    rng = np.random.default_rng(seed)
    X = np.column_stack(
        [rng.normal(62, 11, n), rng.random(n) < 0.45, rng.normal(27, 4, n), rng.random(n) < 0.2, rng.normal(size=n)]
    ).astype(float)
    predictor = 0.03 * (X[:, 0] - 62) + 0.4 * X[:, 1] - 0.02 * (X[:, 2] - 27) + 0.7 * X[:, 3] - 1.0
    return mc.data.TableData(X, (rng.random(n) < 1 / (1 + np.exp(-predictor))).astype(int))


def federate(data, *, secure=False):
    sites = {f"s{i}": data.take(np.arange(i, len(data), 3)) for i in range(3)}
    return mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure)


@pytest.mark.parametrize("seed", range(6))
def test_a_logistic_fit_takes_at_most_eight_calls(seed):
    federation = federate(patients(seed))
    mc.regression.FedLogisticRegression().fit(federation)
    assert sum(federation.traffic.calls.values()) <= 8


def test_two_columns_that_nearly_agree_take_no_more_calls():
    """The first step is short in the linear predictor, however large the slopes of such columns are."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=1200)
    X = np.column_stack([x, x + 0.01 * rng.normal(size=1200)])
    predictor = x + 20 * (X[:, 1] - x)
    federation = federate(mc.data.TableData(X, (predictor + rng.logistic(size=1200) > 0).astype(int)))
    mc.regression.FedLogisticRegression().fit(federation)
    assert sum(federation.traffic.calls.values()) <= 8


@pytest.mark.parametrize("seed", range(6))
def test_masked_the_agreement_on_keys_adds_two(seed):
    data = patients(seed)
    federation = federate(data, secure=True)
    model = mc.regression.FedLogisticRegression().fit(federation)
    assert sum(federation.traffic.calls.values()) <= 10
    expected = mc.regression.FedGLM("binomial", tol=1e-12).fit(federate(data))
    assert model.coef_ == pytest.approx(expected.coef_, rel=1e-6)
    assert model.standard_errors_ == pytest.approx(expected.standard_errors_, rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_the_information_at_the_end_of_the_last_step_is_exact(seed, monkeypatch):
    data = patients(seed)
    model = mc.regression.FedLogisticRegression().fit(federate(data))
    monkeypatch.setattr(newton, "SHORT_STEP", 0.0)
    stepwise = mc.regression.FedLogisticRegression().fit(federate(data))
    assert model.n_iter_ <= stepwise.n_iter_
    assert model.coef_ == pytest.approx(stepwise.coef_, rel=1e-10, abs=1e-12)
    assert model.standard_errors_ == pytest.approx(stepwise.standard_errors_, rel=1e-8)
    assert model.deviance_ == pytest.approx(stepwise.deviance_, rel=1e-10)


@pytest.mark.slow
def test_some_fit_is_spared_its_last_call(monkeypatch):
    spared = [mc.regression.FedLogisticRegression().fit(federate(patients(seed))).n_iter_ for seed in range(6)]
    monkeypatch.setattr(newton, "SHORT_STEP", 0.0)
    stepwise = [mc.regression.FedLogisticRegression().fit(federate(patients(seed))).n_iter_ for seed in range(6)]
    assert sum(spared) < sum(stepwise)
