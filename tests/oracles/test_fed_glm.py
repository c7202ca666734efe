"""Federated generalised linear models are those of the pooled patients: statsmodels and R as oracles."""

import json
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from multicentre.regression import FedGLM, FedLinearRegression, FedLogisticRegression, FedPoissonRegression
from oracles.fed_glm_values import FAMILIES, draw

# Written by tests/oracles/fed_glm_values.py, which names the versions of the packages.
FROZEN = json.loads(Path(__file__).with_name("fed_glm_values.json").read_text())
NAMES = ["age", "creatinine", "sex", "log_years", "count", "ward"]
COLUMNS, OUTCOMES = draw()
OPEN = mc.Policy(min_patients=0)


def table(family, used):
    """Return the patients with the covariates and the further columns that a fit uses."""
    places = [0, 1, 2, *(NAMES.index(name) for name in used)]
    names = [NAMES[place] for place in places]
    kind = {"classes": ["no", "yes"], "outcome": "class"} if family == "binomial" else {"outcome": "number"}
    outcome = OUTCOMES[family] if family != "binomial" else np.array(["no", "yes"])[OUTCOMES[family]]
    return mc.data.TableData(COLUMNS[:, places], outcome, columns=names, **kind)


def sites_of(data, n_sites):
    site = COLUMNS[:, 5].astype(int) % n_sites
    return {f"site-{i}": data.take(np.flatnonzero(site == i)) for i in range(n_sites)}


def fitted(model, *, n_sites=3, secure=False):
    used = [name for name in (model.offset, model.weights, model.cluster) if name]
    sites = sites_of(table(model.family, used), n_sites)
    return model.fit(mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure))


def check(model, expected, rel):
    values = np.concatenate([[model.intercept_], model.coef_])
    assert values == pytest.approx(np.array(expected["coefficients"]), rel=rel)
    assert model.standard_errors_ == pytest.approx(np.array(expected["errors"]), rel=rel)
    assert model.deviance_ == pytest.approx(expected["deviance"], rel=rel)
    assert model.dispersion_ == pytest.approx(expected["dispersion"], rel=rel)
    if (model.family, model.link) == ("gaussian", "log"):
        expected = expected | {"log_likelihood": FROZEN["R"]["gaussian-log likelihood"]}
    assert model.log_likelihood_ == pytest.approx(expected["log_likelihood"], rel=rel)
    assert model.null_deviance_ == pytest.approx(expected["null_deviance"], rel=rel)


@pytest.mark.parametrize(("family", "link"), [(family, link) for family, links in FAMILIES.items() for link in links])
def test_each_family_and_link_equals_statsmodels(family, link):
    model = fitted(FedGLM(family, link=link, tol=1e-10))
    check(model, FROZEN[f"{family}-{link}"], 1e-8)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("errors", ["HC0", "HC1", "cluster"])
def test_robust_errors_are_those_of_sandwich(family, errors):
    cluster = "ward" if errors == "cluster" else None
    model = fitted(FedGLM(family, errors=errors, cluster=cluster, tol=1e-10))
    assert model.standard_errors_ == pytest.approx(np.array(FROZEN["R"][f"{family}-{errors}"]), rel=1e-8)


@pytest.mark.parametrize("family", FAMILIES)
def test_frequency_weights_equal_statsmodels(family):
    check(fitted(FedGLM(family, weights="count", tol=1e-10)), FROZEN[f"{family}-weights"], 1e-8)


def test_offset_equals_statsmodels():
    check(fitted(FedGLM("poisson", offset="log_years", tol=1e-10)), FROZEN["poisson-offset"], 1e-8)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("n_sites", [3, 10])
def test_masked_sums_lose_less_than_a_millionth(family, n_sites):
    check(fitted(FedGLM(family), n_sites=n_sites, secure=True), FROZEN[f"{family}-{FAMILIES[family][0]}"], 1e-6)


@pytest.mark.parametrize("family", FAMILIES)
def test_any_split_gives_the_same_fit(family):
    one, ten = (fitted(FedGLM(family, tol=1e-10), n_sites=n) for n in (1, 10))
    assert ten.coef_ == pytest.approx(one.coef_, rel=1e-10)
    assert ten.standard_errors_ == pytest.approx(one.standard_errors_, rel=1e-10)


def test_a_logistic_fit_of_these_patients_needs_at_most_eight_calls():
    model = fitted(FedGLM("binomial"))
    assert sum(model.session.traffic.calls.values()) <= 8


def test_probability_weights_are_weighted_scores():
    model = fitted(FedGLM("binomial", weights="count", weight_type="probability", errors="HC0", tol=1e-10))
    rows, weights = np.column_stack([np.ones(len(COLUMNS)), COLUMNS[:, :3]]), COLUMNS[:, 4]
    share = 1.0 / (1.0 + np.exp(-rows @ np.concatenate([[model.intercept_], model.coef_])))
    scores = rows * (weights * (OUTCOMES["binomial"] - share))[:, None]
    assert np.abs(scores.sum(axis=0)).max() < 1e-5
    bread = np.linalg.inv(rows.T @ (rows * (weights * share * (1 - share))[:, None]))
    assert model.covariance_ == pytest.approx(bread @ scores.T @ scores @ bread, rel=1e-7)
    assert np.isnan(model.log_likelihood_)


def test_marginal_effects_equal_statsmodels():
    frame = fitted(FedGLM("binomial", tol=1e-10)).marginal_effects()
    assert frame["effect"].to_numpy() == pytest.approx(np.array(FROZEN["margins"]["effects"]), rel=1e-8)
    assert frame["standard_error"].to_numpy() == pytest.approx(np.array(FROZEN["margins"]["errors"]), rel=1e-6)


def test_intervals_of_predictions_equal_statsmodels():
    model = fitted(FedGLM("poisson", tol=1e-10))
    mean, *ends = np.array(FROZEN["predicted"]).T
    assert model.predict(COLUMNS[:5, :3]) == pytest.approx(mean, rel=1e-8)
    assert model.predict_interval(COLUMNS[:5, :3]) == pytest.approx(np.column_stack(ends), rel=1e-7)


def test_linear_regression_has_the_t_tests_and_intervals_of_least_squares():
    sites = sites_of(table("gaussian", []), 3)
    model = FedLinearRegression().fit(mc.Federation.in_process(sites, policy=OPEN, secure_sum=False))
    expected = FROZEN["least-squares"]
    assert model.p_values_ == pytest.approx(np.array(expected["p_values"]), rel=1e-7)
    assert model.intervals_ == pytest.approx(np.array(expected["intervals"]), rel=1e-7)
    new = model.predict_interval(COLUMNS[:5, :3], kind="patient")
    assert new == pytest.approx(np.array(expected["new"]), rel=1e-7)


@pytest.mark.parametrize(
    ("named", "general"),
    [(FedLogisticRegression(), FedGLM("binomial")), (FedPoissonRegression(), FedGLM("poisson"))],
    ids=["logistic", "poisson"],
)
def test_named_models_are_the_general_one(named, general):
    assert np.array_equal(fitted(named).coef_, fitted(general).coef_)
