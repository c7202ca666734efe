"""Fixed and random effects of sites are those of the pooled patients: statsmodels, lme4 and survival as oracles."""

import json
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from multicentre.regression import FedGLM, FedGLMM, FedLinearMixedModel
from multicentre.survival import FedMixedCox
from oracles.site_effects_values import COLUMNS, FAMILIES, N_SITES, draw

# Written by tests/oracles/site_effects_values.py, which names the versions of the packages.
FROZEN = json.loads(Path(__file__).with_name("site_effects_values.json").read_text())
STATSMODELS, R = FROZEN["statsmodels"], FROZEN["R"]
ROWS, SITE, OUTCOMES = draw()
OPEN = mc.Policy(min_patients=0, exact_times=True)
MASKED = pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])


def federate(make, *, secure):
    """Return a federation of the sites of a table that `make` returns for some patients."""
    sites = {f"s{number}": make(np.flatnonzero(number == SITE)) for number in range(N_SITES)}
    return mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure)


def fitted(model, outcome, *, secure=False):
    kind = {} if outcome == "binomial" else {"outcome": "number"}
    make = lambda places: mc.data.TableData(ROWS[places], OUTCOMES[outcome][places], columns=COLUMNS, **kind)  # noqa: E731
    return model.fit(federate(make, secure=secure))


def fitted_cox(model, when, *, secure=False):
    event = OUTCOMES["event"].astype(bool)
    make = lambda places: mc.data.SurvivalData(  # noqa: E731
        ROWS[places], OUTCOMES[when][places], event[places], columns=COLUMNS
    )
    return model.fit(federate(make, secure=secure))


def values_of(model):
    return np.concatenate([[model.intercept_], model.coef_])


@MASKED
@pytest.mark.parametrize("family", FAMILIES)
def test_fixed_effects_of_sites_equal_statsmodels_with_indicators(family, secure):
    model = fitted(FedGLM(family, site_effects="fixed", tol=1e-10), family, secure=secure)
    expected, rel = STATSMODELS[family], 1e-7 if secure else 1e-8
    assert model.coef_ == pytest.approx(np.array(expected["coefficients"]), rel=rel)
    assert model.standard_errors_[1:] == pytest.approx(np.array(expected["errors"]), rel=rel)
    assert model.intercept_ == pytest.approx(expected["mean_intercept"], rel=rel)
    assert model.standard_errors_[0] == pytest.approx(expected["mean_intercept_error"], rel=rel)
    for name in ("deviance", "null_deviance", "dispersion", "log_likelihood", "aic"):
        assert getattr(model, f"{name}_") == pytest.approx(expected[name], rel=rel)


@pytest.mark.parametrize("family", FAMILIES)
def test_intercepts_of_sites_equal_statsmodels(family):
    frame = fitted(FedGLM(family, site_effects="fixed", tol=1e-10), family).site_intercepts()
    assert frame["intercept"].to_numpy() == pytest.approx(np.array(STATSMODELS[family]["intercepts"]), rel=1e-8)
    errors = np.array(STATSMODELS[family]["intercept_errors"])
    assert frame["standard_error"].to_numpy() == pytest.approx(errors, rel=1e-8)


def test_robust_errors_and_marginal_effects_with_fixed_effects_equal_statsmodels():
    expected = STATSMODELS["binomial"]
    robust = fitted(FedGLM("binomial", site_effects="fixed", errors="HC0", tol=1e-10), "binomial")
    assert robust.standard_errors_[1:] == pytest.approx(np.array(expected["HC0"]), rel=1e-8)
    assert np.isnan(robust.standard_errors_[0])
    effects = fitted(FedGLM("binomial", site_effects="fixed", tol=1e-10), "binomial").marginal_effects()
    assert effects["effect"].to_numpy() == pytest.approx(np.array(expected["effects"]), rel=1e-8)
    assert effects["standard_error"].to_numpy() == pytest.approx(np.array(expected["effect_errors"]), rel=1e-7)


def check_mixed(model, expected, coefficients, errors):
    """Compare a mixed model with lme4; the tolerances of variances and effects are ten times that of errors."""
    assert values_of(model) == pytest.approx(np.array(expected["coefficients"]), rel=coefficients)
    assert model.standard_errors_ == pytest.approx(np.array(expected["errors"]), rel=errors)
    covariance = np.array(expected["variances"])
    assert model.random_covariance_.ravel() == pytest.approx(covariance, rel=10 * coefficients, abs=1e-12)
    assert model.log_likelihood_ == pytest.approx(expected["log_likelihood"][0], rel=1e-8)
    assert model.aic_ == pytest.approx(expected["aic"][0], rel=1e-8)
    assert not model.singular_


@pytest.mark.parametrize("secure", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["unmasked", "masked"])
@pytest.mark.parametrize("reml", [True, False], ids=["REML", "ML"])
@pytest.mark.parametrize("slopes", [(), ("dose",)], ids=["intercept", "slope"])
def test_linear_mixed_model_equals_lmer(slopes, reml, secure):
    name = f"lmer-{'slope-' if slopes else ''}{'REML' if reml else 'ML'}"
    model = fitted(FedLinearMixedModel(slopes, reml=reml), "gaussian", secure=secure)
    check_mixed(model, R[name], 1e-6, 1e-6)
    assert model.residual_variance_ == pytest.approx(R[name]["residual"][0], rel=1e-6)


@pytest.mark.parametrize("slopes", [(), ("dose",)], ids=["intercept", "slope"])
def test_predicted_effects_of_sites_equal_lmer(slopes):
    expected = R[f"lmer-{'slope-' if slopes else ''}REML"]
    frame, size = fitted(FedLinearMixedModel(slopes), "gaussian").site_effects(), 1 + len(slopes)
    effects = np.array(expected["effects"]).reshape(size, N_SITES).T.ravel()
    assert frame["value"].to_numpy() == pytest.approx(effects, rel=1e-5, abs=1e-6)
    assert frame["standard_error"].to_numpy() == pytest.approx(np.array(expected["effect_errors"]), rel=1e-5)


@MASKED
@pytest.mark.parametrize("reml", [True, False], ids=["REML", "ML"])
def test_sites_that_do_not_differ_are_a_singular_fit(reml, secure):
    expected = R[f"lmer-alike-{'REML' if reml else 'ML'}"]
    model = fitted(FedLinearMixedModel(reml=reml), "alike", secure=secure)
    assert expected["variances"] == [0]
    assert model.singular_
    assert model.random_covariance_.tolist() == [[0.0]]
    assert model.tests_["random_effects"].statistic == pytest.approx(0.0, abs=1e-6)
    assert values_of(model) == pytest.approx(np.array(expected["coefficients"]), rel=1e-7)
    assert model.log_likelihood_ == pytest.approx(expected["log_likelihood"][0], rel=1e-8)
    assert "Singular fit" in str(model)


GENERALISED = [
    pytest.param("binomial", (), False, id="binomial"),
    pytest.param("binomial", ("dose",), False, id="binomial-slope", marks=pytest.mark.slow),
    pytest.param("poisson", (), False, id="poisson"),
    pytest.param("poisson", ("dose",), False, id="poisson-slope", marks=pytest.mark.slow),
    *(
        pytest.param(family, slopes, True, id=f"{family}-{len(slopes)}-masked", marks=pytest.mark.slow)
        for family in ("binomial", "poisson")
        for slopes in ((), ("dose",))
    ),
]


@pytest.mark.parametrize(("family", "slopes", "secure"), GENERALISED)
def test_generalised_mixed_model_equals_glmer(family, slopes, secure):
    """Coefficients differ by less than 1e-5 of their value, as far as lme4's optimiser goes.

    The differences of lme4's deviance, from which its standard errors follow, have an error of 1e-3.
    """
    expected = R[f"glmer-{'slope-' if slopes else ''}{family}"]
    check_mixed(fitted(FedGLMM(family, slopes=slopes), family, secure=secure), expected, 1e-5, 1e-3)


def test_modes_of_sites_equal_glmer():
    frame = fitted(FedGLMM("binomial"), "binomial").site_effects()
    assert frame["value"].to_numpy() == pytest.approx(np.array(R["glmer-binomial"]["effects"]), rel=1e-4)
    assert frame["standard_error"].to_numpy() == pytest.approx(np.array(R["glmer-binomial"]["effect_errors"]), rel=1e-5)


COX_CASES = [
    pytest.param("gamma", "month", False, id="gamma-month"),
    pytest.param("fixed", "month", False, id="fixed-month"),
    pytest.param("gaussian", "month", True, id="gaussian-month-masked", marks=pytest.mark.slow),
    pytest.param("gamma", "time", True, id="gamma-time-masked", marks=pytest.mark.slow),
    pytest.param("fixed", "time", True, id="fixed-time-masked", marks=pytest.mark.slow),
    pytest.param("gaussian", "time", False, id="gaussian-time", marks=pytest.mark.slow),
]


@pytest.mark.parametrize(("site_effects", "when", "secure"), COX_CASES)
def test_cox_model_with_effects_of_sites_equals_survival(site_effects, when, secure):
    expected = R[f"{'' if site_effects == 'fixed' else 'frailty-'}{site_effects}-{when}"]
    model = fitted_cox(FedMixedCox(site_effects, times="exact"), when, secure=secure)
    assert model.coef_ == pytest.approx(np.array(expected["coefficients"][:3]), rel=1e-6)
    assert model.standard_errors_ == pytest.approx(np.array(expected["errors"][:3]), rel=1e-6)
    likelihood = expected["integrated"][0] if site_effects == "gamma" else expected["log_likelihood"][1]
    assert model.log_likelihood_ == pytest.approx(likelihood, rel=1e-7)
    effects = model.site_effects_table()["effect"].to_numpy()
    if site_effects == "fixed":
        assert effects[1:] == pytest.approx(np.array(expected["coefficients"][3:]), rel=1e-6)
        assert effects[0] == 0.0
    else:
        assert model.variance_ == pytest.approx(expected["theta"][0], rel=1e-5)
        assert effects == pytest.approx(np.array(expected["effects"]), rel=1e-4)


@pytest.mark.parametrize("site_effects", ["gamma", pytest.param("gaussian", marks=pytest.mark.slow)])
def test_no_difference_between_sites_is_a_variance_of_zero(site_effects):
    """Each site has the same patients, so that they differ less than by chance."""
    rng = np.random.default_rng(3)
    X, time = rng.normal(size=(40, 1)), np.ceil(rng.exponential(5.0, size=40))
    sites = {f"s{number}": mc.data.SurvivalData(X, time, time < 12, columns=["age"]) for number in range(3)}
    federation = mc.Federation.in_process(sites, policy=OPEN, secure_sum=False)
    model = FedMixedCox(site_effects, times="exact").fit(federation)
    pooled = mc.survival.FedCox("exact", ties="breslow").fit(federation)
    assert model.variance_ == 0.0
    assert model.coef_ == pytest.approx(pooled.coef_, rel=1e-5)
    assert model.log_likelihood_ == pytest.approx(pooled.log_likelihood_, rel=1e-5)
    if site_effects == "gamma":
        assert model.tests_["site_effects"].p_value == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("n_sites", [2, 20])
def test_fixed_effects_are_those_of_any_number_of_sites(n_sites):
    """Least squares on covariates minus the means of their site (Frisch and Waugh)."""
    rng = np.random.default_rng(n_sites)
    X, y, site = rng.normal(size=(200, 2)), rng.normal(size=200), np.arange(200) % n_sites
    sites = {
        f"s{number:02}": mc.data.TableData(X[site == number], y[site == number] + number, outcome="number")
        for number in range(n_sites)
    }
    model = FedGLM("gaussian", site_effects="fixed").fit(mc.Federation.in_process(sites, policy=OPEN, secure_sum=False))
    within = [
        values - np.array([values[site == number].mean(axis=0) for number in range(n_sites)])[site] for values in (X, y)
    ]
    expected, squares = np.linalg.lstsq(*within, rcond=None)[:2]
    assert model.coef_ == pytest.approx(expected, rel=1e-9)
    assert model.dispersion_ == pytest.approx(float(squares[0]) / (200 - 2 - n_sites), rel=1e-9)


@pytest.mark.parametrize("secure", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["unmasked", "masked"])
@pytest.mark.parametrize("n_sites", [2, 20])
def test_a_linear_mixed_model_of_any_number_of_sites_is_the_maximum_of_the_dense_likelihood(n_sites, secure):
    rng = np.random.default_rng(n_sites)
    X, site = rng.normal(size=(300, 2)), np.arange(300) % n_sites
    y = 3.0 + X[:, 0] + rng.normal(size=n_sites)[site] + rng.normal(size=300)
    sites = {
        f"s{number:02}": mc.data.TableData(X[site == number], y[site == number], outcome="number")
        for number in range(n_sites)
    }
    model = FedLinearMixedModel(reml=False).fit(mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure))
    residuals = y - model.intercept_ - X @ model.coef_

    def likelihood(between, within):
        covariance = between * (site[:, None] == site) + within * np.eye(300)
        squares = residuals @ np.linalg.solve(covariance, residuals)
        return -0.5 * (300 * np.log(2 * np.pi) + np.linalg.slogdet(covariance)[1] + squares)

    between, within = float(model.random_covariance_[0, 0]), model.residual_variance_
    largest = likelihood(between, within)
    assert largest == pytest.approx(model.log_likelihood_, rel=1e-8)
    for factors in ((1.01, 1.0), (0.99, 1.0), (1.0, 1.01), (1.0, 0.99)):
        assert likelihood(between * factors[0], within * factors[1]) < largest
