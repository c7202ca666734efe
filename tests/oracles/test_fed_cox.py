"""The federated Cox model is that of the pooled patients: scikit-survival, lifelines and closed forms as oracles."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import multicentre as mc
from multicentre.survival.cox.estimator import FedCox
from support.examples import examples

OPEN = mc.Policy(min_patients=0, exact_times=True)
# Written by tests/oracles/fed_cox_values.py, which names the packages and their versions.
FROZEN = json.loads(Path(__file__).with_name("fed_cox_values.json").read_text())
NAMES = ["a", "b", "c"]


def draw(*, ties):
    """Return the patients of fed_cox_values.py and the site of each."""
    rng = np.random.default_rng(7)
    site = rng.integers(3, size=240)
    X = rng.normal(size=(240, 3)) * [1.0, 5.0, 0.2] + [0.0, 60.0, 1.0]
    X[:, 0] = X[:, 0] > 0.3
    hazard = 0.6 * X[:, 0] + 0.05 * (X[:, 1] - 60.0) - 1.5 * (X[:, 2] - 1.0) + 0.4 * site
    time = rng.exponential(np.exp(-hazard)) ** 0.8
    end = rng.uniform(0.3, 3.0, size=240)
    followed = np.minimum(time, end)
    times = np.ceil(10 * followed) / 10 if ties else followed
    return mc.data.SurvivalData(X, times, time <= end, columns=NAMES), site


def by_site(data, site):
    return {f"site-{name}": data.take(np.flatnonzero(site == name)) for name in np.unique(site)}


def fitted(sites, *args, secure=False, **options):
    with mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure) as federation:
        return FedCox(*args, **options).fit(federation)


@pytest.fixture(params=[False, True], ids=["continuous", "tied"])
def frozen(request):
    name = "tied" if request.param else "continuous"
    return (*draw(ties=request.param), FROZEN[name], request.param)


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_exact_times_give_lifelines_pooled_fit(frozen, secure):
    data, site, known, _ = frozen
    model = fitted(by_site(data, site), "exact", secure=secure)
    np.testing.assert_allclose(model.coef_, known["coefficients"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.standard_errors_, known["errors"], rtol=1e-6)
    assert model.log_likelihood_ == pytest.approx(known["log_likelihood"], abs=1e-6)
    assert model.tests_["likelihood_ratio"].statistic == pytest.approx(known["likelihood_ratio"], abs=1e-6)


def test_breslows_ties_give_statsmodels_pooled_fit(frozen):
    data, site, known, _ = frozen
    model = fitted(by_site(data, site), "exact", ties="breslow")
    np.testing.assert_allclose(model.coef_, known["breslow"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.standard_errors_, known["breslow_errors"], rtol=1e-6)


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_baselines_of_the_sites_own_give_the_pooled_fit_with_strata(frozen, secure):
    data, site, known, _ = frozen
    model = fitted(by_site(data, site), secure=secure)
    np.testing.assert_allclose(model.coef_, known["stratified"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.coef_, known["statsmodels_stratified"], rtol=0, atol=1e-6)
    np.testing.assert_allclose(model.standard_errors_, known["stratified_errors"], rtol=1e-6)


def test_robust_errors_and_the_test_of_proportionality_are_those_of_lifelines():
    data, site = draw(ties=False)
    known = FROZEN["continuous"]
    with mc.Federation.in_process(by_site(data, site), policy=OPEN) as federation:
        model = FedCox("exact", errors="HC0").fit(federation)
        tests = {kind: model.check_proportionality(kind, test="residuals") for kind in known["proportionality"]}
    np.testing.assert_allclose(model.standard_errors_, known["robust_errors"], rtol=1e-6)
    np.testing.assert_allclose(model.model_standard_errors_, known["errors"], rtol=1e-6)
    for kind, statistics in known["proportionality"].items():
        np.testing.assert_allclose([tests[kind][name].statistic for name in NAMES], statistics, rtol=1e-5)


def test_under_a_ridge_times_are_taken_from_their_mean():
    """Schoenfeld's residuals do not sum to 0 then; the statistic by its definition, event by event."""
    data, site = draw(ties=False)
    with mc.Federation.in_process(by_site(data, site), policy=OPEN) as federation:
        model = FedCox("exact", alpha=30.0).fit(federation)
        found = model.check_proportionality("identity", test="residuals")
    times = data.time[data.event == 1]
    theta = np.exp((data.X - data.X.mean(axis=0)) @ model.coef_)
    residuals = []
    for time in times:
        mass = theta * (data.time >= time)
        residuals.append(data.X[data.time == time][0] - mass @ data.X / mass.sum())
    away = times - times.mean()
    slopes = model.covariance_ @ (away @ np.array(residuals))
    statistics = len(times) * slopes**2 / (np.diagonal(model.covariance_) * (away @ away))
    np.testing.assert_allclose([found[name].statistic for name in NAMES], statistics, rtol=1e-8)


@pytest.mark.parametrize("ties", ["breslow", "efron"])
def test_the_fit_is_that_of_scikit_survival(ties):
    linear = pytest.importorskip("sksurv.linear_model")
    data, site = draw(ties=True)
    pooled = linear.CoxPHSurvivalAnalysis(ties=ties, tol=1e-13, n_iter=200).fit(data.X, data.outcome)
    model = fitted(by_site(data, site), "exact", ties=ties)
    np.testing.assert_allclose(model.coef_, pooled.coef_, rtol=0, atol=1e-9)
    if ties == "breslow":  # scikit-survival takes Breslow's baseline with either; R's survival that of the ties
        times = model.times_
        curves = np.array([curve(times) for curve in pooled.predict_survival_function(data.X[:9])])
        np.testing.assert_allclose(model.predict_survival_function(data.X[:9], return_array=True), curves, atol=1e-9)


def test_the_ridge_is_the_alpha_of_scikit_survival_on_standardised_columns():
    linear = pytest.importorskip("sksurv.linear_model")
    data, site = draw(ties=True)
    spread = data.X.std(axis=0)
    pooled = linear.CoxPHSurvivalAnalysis(alpha=7.0, ties="efron", tol=1e-13).fit(data.X / spread, data.outcome)
    model = fitted(by_site(data, site), "exact", alpha=7.0)
    np.testing.assert_allclose(model.coef_ * spread, pooled.coef_, rtol=0, atol=1e-5)


def test_two_groups_have_the_closed_form_score_test():
    """Without columns the score statistic of a group is the log-rank test (Cox, 1972), in its own formula here."""
    data, site = draw(ties=False)
    group = data.X[:, :1]
    one = mc.data.SurvivalData(group, data.time, data.event)
    model = fitted(by_site(one, site), "exact")
    observed = expected = variance = 0.0
    for time in data.time[data.event == 1]:
        at_risk = data.time >= time
        share = group[at_risk, 0].mean()
        observed += group[data.time == time, 0].sum()
        expected += share
        variance += share * (1.0 - share)
    assert model.tests_["score"].statistic == pytest.approx((observed - expected) ** 2 / variance, abs=1e-9)


@pytest.mark.parametrize("times", ["grid", "exact"])
@given(n_sites=st.integers(1, 6), seed=st.integers(0, 10_000))
@examples(8)
def test_any_split_gives_the_same(times, n_sites, seed):
    data, _ = draw(ties=True)
    site = np.random.default_rng(seed).integers(n_sites, size=len(data))
    split, whole = fitted(by_site(data, site), times), fitted({"all": data}, times)
    np.testing.assert_allclose(split.coef_, whole.coef_, rtol=0, atol=1e-9)
    np.testing.assert_allclose(split.model_.baseline, whole.model_.baseline, rtol=1e-9)
    np.testing.assert_allclose(split.standard_errors_, whole.standard_errors_, rtol=1e-9)


@pytest.mark.filterwarnings("ignore:horizon must be at most")
def test_a_fine_grid_is_near_the_exact_fit():
    data, site = draw(ties=False)
    exact = fitted(by_site(data, site), "exact")
    errors = [
        np.abs(fitted(by_site(data, site), "grid", n_times=n_times, horizon=3.0).coef_ - exact.coef_)
        / exact.standard_errors_
        for n_times in (8, 256)
    ]
    assert errors[1].max() < 0.12 < errors[0].max()


@pytest.mark.parametrize("times", ["stratified", "exact"])
def test_one_round_is_near_the_fit_of_many(times):
    data, site = draw(ties=False)
    many, once = (fitted(by_site(data, site), times, one_round=one_round) for one_round in (False, True))
    assert (np.abs(once.coef_ - many.coef_) < 0.03 * many.standard_errors_).all()
    np.testing.assert_allclose(once.standard_errors_, many.standard_errors_, rtol=0.01)
    assert once.n_iter_ == 1
    assert set(once.tests_) == {"wald"}


def test_other_causes_end_the_follow_up():
    data, site = draw(ties=False)
    cause = np.where(data.event == 1, 1 + (np.arange(len(data)) % 2), 0)
    competing = mc.data.SurvivalData(data.X, data.time, cause, columns=NAMES)
    censored = mc.data.SurvivalData(data.X, data.time, cause == 2, columns=NAMES)
    of_cause = fitted(by_site(competing, site), "exact", cause=2)
    alone = fitted(by_site(censored, site), "exact")
    np.testing.assert_allclose(of_cause.coef_, alone.coef_, rtol=0, atol=1e-12)
    assert of_cause.n_events_ == (cause == 2).sum()
