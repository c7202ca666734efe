"""Negative binomial regression: exact, or refused, or visibly marked."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, DataError, MessageError, SeparationWarning
from multicentre.regression import FedGLM, messages
from multicentre.regression.site import RegressionSite

OPEN = mc.Policy(min_patients=0)
N = 300


def patients(outcome=None, *, marker=None):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 2))
    if outcome is None:
        outcome = rng.poisson(np.exp(0.7 + 0.4 * X[:, 0]) * rng.gamma(1.0, 1.0, N)).astype(float)
    names = ["age", "dose"]
    if marker is not None:
        X, names = np.column_stack([X, marker(outcome)]), [*names, "marker"]
    return mc.data.TableData(X, outcome, columns=names, outcome="number")


def federate(data, *, secure=False):
    sites = {f"s{i}": data.take(np.arange(i, len(data), 3)) for i in range(3)}
    return mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure)


@pytest.mark.parametrize("family", ["multinomial", "ordinal"])
def test_a_family_of_several_classes_names_its_class(family):
    with pytest.raises(ConfigurationError, match=f"Fed{family.capitalize()}Regression"):
        FedGLM(family).fit(federate(patients()))


@pytest.mark.parametrize("value", [-1.0, 0.5, 2.0**23])
def test_outcomes_that_are_no_counts_are_refused(value):
    outcome = np.where(np.arange(N) == 4, value, 1.0)
    with pytest.raises(DataError, match=r"whole numbers from 0 to 4,194,304; some are not"):
        FedGLM("negative_binomial").fit(federate(patients(outcome)))


def test_counts_of_0_only_are_refused():
    with pytest.raises(DataError, match="at least one outcome must be above 0"):
        FedGLM("negative_binomial").fit(federate(patients(np.zeros(N))))


def test_intercepts_of_sites_are_refused_before_a_site_is_asked():
    federation = federate(patients())
    with pytest.raises(ConfigurationError, match="must be without site_effects"):
        FedGLM("negative_binomial", site_effects="fixed").fit(federation)
    assert not federation.traffic.calls


def test_separation_is_named_and_a_penalty_keeps_coefficients_finite():
    data = patients(marker=lambda outcome: (outcome == 0).astype(float))
    with pytest.warns(SeparationWarning, match="marker"):
        model = FedGLM("negative_binomial").fit(federate(data))
    assert not model.converged_
    assert np.isnan(model.standard_errors_).tolist() == [False] * (len(model.standard_errors_) - 1) + [True]
    penalised = FedGLM("negative_binomial", alpha=1.0).fit(federate(data))
    assert penalised.converged_
    assert np.isnan(penalised.standard_errors_).all()
    assert penalised.tests_ == {}


def test_the_score_test_is_near_the_others_and_ratios_are_shown():
    model = FedGLM("negative_binomial").fit(federate(patients()))
    statistics = [model.tests_[name].statistic for name in ("wald", "likelihood_ratio", "score")]
    assert max(statistics) < 1.3 * min(statistics)
    assert model.to_frame()["ratio"].to_numpy() == pytest.approx(np.exp([model.intercept_, *model.coef_]))


def test_marginal_effects_and_intervals_follow_the_delta_method():
    data = patients()
    model = FedGLM("negative_binomial").fit(federate(data))
    mean = model.predict(data)
    effects = model.marginal_effects()
    assert effects["effect"].to_numpy() == pytest.approx(model.coef_ * mean.mean(), rel=1e-8)
    step = 1e-6
    rows = np.column_stack([np.ones(N), data.X])

    def effect(values):
        return values[1:] * np.exp(rows @ values).mean()

    values = np.array([model.intercept_, *model.coef_])
    jacobian = np.column_stack([(effect(values + one) - effect(values - one)) / (2 * step) for one in step * np.eye(3)])
    errors = np.sqrt(np.diagonal(jacobian @ model.covariance_ @ jacobian.T))
    assert effects["standard_error"].to_numpy() == pytest.approx(errors, rel=1e-5)


def test_a_saved_model_predicts_the_same(tmp_path):
    data = patients()
    model = FedGLM("negative_binomial").fit(federate(data))
    model.save(tmp_path)
    loaded = FedGLM.load(tmp_path)
    assert np.array_equal(loaded.predict(data), model.predict(data))
    assert str(loaded) == str(model)
    assert loaded.theta_ == model.theta_
    assert loaded.assess(data) == model.assess(data)


def test_a_request_cannot_turn_another_family_into_a_negative_binomial_one():
    session = federate(patients()).begin(RegressionSite)
    model = ("poisson", "log", "", "", "", True)
    with pytest.raises(MessageError, match="0 for other families"):
        session.sum(
            RegressionSite.sum_derivatives,
            messages.At(*model, np.zeros(2), 1.0, np.ones(2), 1.0, np.zeros(3), overdispersion=1.0),
        )
    with pytest.raises(MessageError, match="must be negative_binomial"):
        session.sum(
            RegressionSite.sum_count_derivatives,
            messages.AtCounts(*model, np.zeros(2), 1.0, np.ones(2), 1.0, np.zeros(3), 1.0),
        )
