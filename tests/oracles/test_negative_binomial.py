"""Negative binomial regression is that of the pooled patients: MASS, sandwich and numerical derivatives."""

import json
import warnings
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import DispersionWarning
from multicentre.regression import FedGLM, FedPoissonRegression
from multicentre.regression.negative_binomial import derive_counts
from oracles.negative_binomial_values import COLUMNS, draw

# Written by tests/oracles/negative_binomial_values.py, which names the versions of the packages.
FROZEN = json.loads(Path(__file__).with_name("negative_binomial_values.json").read_text())
X, VISITS = draw()
OPEN = mc.Policy(min_patients=0)
OPTIONS = {"plain": {}, "offset": {"offset": "log_years"}, "weights": {"weights": "count"}}


def fitted(model, *, n_sites=3, secure=False, outcome=VISITS):
    used = [name for name in (model.offset, model.weights, model.cluster) if name]
    places = [0, 1, 2, *(COLUMNS.index(name) for name in used)]
    data = mc.data.TableData(X[:, places], outcome, columns=[COLUMNS[place] for place in places], outcome="number")
    site = X[:, 5].astype(int) % n_sites
    sites = {f"site-{i}": data.take(np.flatnonzero(site == i)) for i in range(n_sites)}
    return model.fit(mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure))


def check(model, expected, rel):
    assert np.append(model.intercept_, model.coef_) == pytest.approx(np.array(expected["coefficients"]), rel=rel)
    assert model.standard_errors_ == pytest.approx(np.array(expected["errors"]), rel=rel)
    assert model.theta_ == pytest.approx(expected["theta"], rel=rel)
    # The derivative by theta is the square of alpha times that by alpha.
    assert model.overdispersion_error_ * model.theta_**2 == pytest.approx(expected["theta_error"], rel=rel)
    for name in ("deviance", "null_deviance", "log_likelihood", "aic"):
        assert getattr(model, f"{name}_") == pytest.approx(expected[name], rel=rel)
    gain = 2.0 * (expected["log_likelihood"] - expected["null_log_likelihood"])
    assert model.tests_["likelihood_ratio"].statistic == pytest.approx(gain, rel=10 * rel)


@pytest.mark.parametrize("name", OPTIONS)
@pytest.mark.parametrize("n_sites", [1, 3, pytest.param(10, marks=pytest.mark.slow)])
def test_fits_equal_glm_nb_for_any_split(name, n_sites):
    check(fitted(FedGLM("negative_binomial", **OPTIONS[name]), n_sites=n_sites), FROZEN[name], 1e-7)


@pytest.mark.parametrize("name", OPTIONS)
def test_masked_sums_lose_less_than_a_millionth(name):
    check(fitted(FedGLM("negative_binomial", **OPTIONS[name]), secure=True), FROZEN[name], 1e-6)


@pytest.mark.parametrize("errors", ["HC0", "HC1", "cluster"])
def test_robust_errors_are_those_of_sandwich(errors):
    cluster = {"cluster": "ward"} if errors == "cluster" else {}
    model = fitted(FedGLM("negative_binomial", errors=errors, **cluster))
    assert model.standard_errors_ == pytest.approx(np.array(FROZEN[errors]), rel=1e-7)
    assert set(model.tests_) == {"wald"}


def test_a_poisson_fit_states_the_dispersion_and_its_remedy():
    model = fitted(FedPoissonRegression())
    assert model.pearson_dispersion_ == pytest.approx(FROZEN["pearson"], rel=1e-7)
    assert 'family="negative_binomial"' in str(model)
    assert 'family="negative_binomial"' not in str(fitted(FedPoissonRegression(errors="HC1")))


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_counts_without_overdispersion_are_marked_and_have_the_fit_of_poisson(secure):
    rng = np.random.default_rng(3)
    binomial = rng.binomial(6, 1 / (1 + np.exp(-0.02 * (X[:, 0] - 60.0)))).astype(float)
    with pytest.warns(DispersionWarning, match="theta is infinite"):
        model = fitted(FedGLM("negative_binomial"), secure=secure, outcome=binomial)
    expected = fitted(FedPoissonRegression(), outcome=binomial)
    rel = 1e-6 if secure else 1e-8
    assert model.overdispersion_ == 0
    assert np.isinf(model.theta_)
    assert np.isnan(model.overdispersion_error_)
    assert model.coef_ == pytest.approx(expected.coef_, rel=rel)
    assert model.standard_errors_ == pytest.approx(expected.standard_errors_, rel=rel)
    assert model.deviance_ == pytest.approx(expected.deviance_, rel=rel)
    assert model.log_likelihood_ == pytest.approx(expected.log_likelihood_, rel=rel)
    assert "no overdispersion" in str(model)


def test_ordinary_counts_warn_of_nothing():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(FedGLM("negative_binomial"), secure=True)


@pytest.mark.parametrize("alpha", [0.0, 1e-9, 1e-4, 0.004, 0.3, 5.0])
def test_derivatives_are_those_of_the_log_likelihood(alpha):
    """Also at the border of the series, and one-sided at 0; the log-likelihood itself is scipy's."""
    from scipy.stats import nbinom, poisson

    rng = np.random.default_rng(0)
    rows = np.column_stack([np.ones(60), rng.normal(size=60)])
    outcome, weights, point = rng.poisson(4, 60).astype(float), rng.random(60), np.array([1.0, 0.3])

    def sums(coefficients, overdispersion):
        return derive_counts(rows, outcome, rows @ coefficients, weights, overdispersion, 1.0)

    found, mean = sums(point, alpha), np.exp(rows @ point)
    law = poisson.logpmf(outcome, mean) if alpha == 0 else nbinom.logpmf(outcome, 1 / alpha, 1 / (1 + alpha * mean))
    assert found.log_likelihood == pytest.approx(weights @ law, rel=1e-6 if 0 < alpha < 1e-6 else 1e-10)
    step = 1e-5 * np.eye(2)
    sides = [(sums(point + one, alpha), sums(point - one, alpha)) for one in step]
    differences = [(above.log_likelihood - below.log_likelihood) / 2e-5 for above, below in sides]
    assert found.gradient == pytest.approx(differences, abs=1e-6)
    observed = [-(above.gradient - below.gradient) / 2e-5 for above, below in sides]
    assert found.observed == pytest.approx(np.array(observed), abs=1e-6)
    mixed = [-(above.slope - below.slope) / 2e-5 for above, below in sides]
    assert found.mixed == pytest.approx(mixed, abs=1e-5)
    reach = max(alpha, 1e-3) * 1e-4
    low, high = sums(point, max(alpha - reach, 0.0)), sums(point, alpha + reach)
    width = alpha + reach - max(alpha - reach, 0.0)
    assert found.slope == pytest.approx((high.log_likelihood - low.log_likelihood) / width, rel=1e-3)
    assert found.curvature == pytest.approx(-(high.slope - low.slope) / width, rel=1e-3)


def test_the_estimates_agree_with_the_truth():
    """Of 4,000 patients, the estimate of theta = 1.5 and of the slopes are within four standard errors."""
    rng = np.random.default_rng(8)
    columns = rng.normal(size=(4000, 2))
    outcome = rng.poisson(np.exp(1 + columns @ [0.5, -0.3]) * rng.gamma(1.5, 1 / 1.5, 4000)).astype(float)
    data = mc.data.TableData(columns, outcome, outcome="number")
    sites = {f"s{i}": data.take(np.arange(i, 4000, 4)) for i in range(4)}
    model = FedGLM("negative_binomial").fit(mc.Federation.in_process(sites))
    assert (abs(model.coef_ - [0.5, -0.3]) < 4 * model.standard_errors_[1:]).all()
    assert abs(model.overdispersion_ - 1 / 1.5) < 4 * model.overdispersion_error_
