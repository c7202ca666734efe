"""Penalised fits and paths are those of scikit-learn and of R's glmnet on the pooled patients."""

import json
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import ElasticNet, LassoCV, LogisticRegression

import multicentre as mc
from multicentre.errors import ConfigurationError
from multicentre.regression import FedGLM, FedGLMCV, FedMultinomialRegression, FedOrdinalRegression
from multicentre.regression.categorical.likelihoods import likelihood_of
from multicentre.regression.path.folds import divide
from multicentre.survival import FedCox
from oracles.penalty_values import LAMBDAS, N_PATIENTS, SHARES, draw

# Written by tests/oracles/penalty_values.py, which names the versions.
FROZEN = json.loads(Path(__file__).with_name("penalty_values.json").read_text())
X, OUTCOMES = draw()
SPREAD = X.std(axis=0)
SCALED = (X - X.mean(axis=0)) / SPREAD
OPEN = mc.Policy(min_patients=0)


def sites_of(family, n_sites=3):
    kind = {} if family == "binomial" else {"outcome": "number"}
    data = mc.data.TableData(X, OUTCOMES[family], **kind)
    return {f"s{i}": data.take(np.arange(i, N_PATIENTS, n_sites)) for i in range(n_sites)}


def fitted(model, *, n_sites=3, secure=False):
    return model.fit(mc.Federation.in_process(sites_of(model.family, n_sites), policy=OPEN, secure_sum=secure))


def values(model):
    return np.concatenate([[model.intercept_], model.coef_])


@pytest.mark.parametrize("share", SHARES)
@pytest.mark.parametrize("family", ["gaussian", "binomial", pytest.param("poisson", marks=pytest.mark.slow)])
def test_fits_equal_glmnet(family, share):
    """A penalty is the number of patients times glmnet's lambda."""
    alphas = [N_PATIENTS * value for value in LAMBDAS]
    expected = np.array(FROZEN[f"{family} {share:g}"])
    path = fitted(FedGLMCV(family, l1_ratio=share, alphas=alphas))
    assert np.column_stack([path.intercept_path_, path.coef_path_]) == pytest.approx(expected, rel=1e-6, abs=1e-7)
    assert ((path.coef_path_ == 0) == (expected[:, 1:] == 0)).all()
    one = fitted(FedGLM(family, alpha=alphas[1], l1_ratio=share, tol=1e-10))
    assert values(one) == pytest.approx(expected[1], rel=1e-6, abs=1e-7)
    assert np.isnan(one.standard_errors_).all()


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_a_gaussian_fit_equals_scikit_learn(share):
    model = fitted(FedGLM(alpha=60.0, l1_ratio=share))
    expected = ElasticNet(alpha=60.0 / N_PATIENTS, l1_ratio=share, tol=1e-14).fit(SCALED, OUTCOMES["gaussian"])
    assert model.coef_ * SPREAD == pytest.approx(expected.coef_, rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_a_logistic_fit_equals_scikit_learn(secure):
    expected = LogisticRegression(C=1 / 12.0, l1_ratio=0.6, solver="saga", tol=1e-12, max_iter=100_000)
    expected.fit(SCALED, OUTCOMES["binomial"])
    model = fitted(FedGLM("binomial", alpha=12.0, l1_ratio=0.6), secure=secure, n_sites=8)
    assert model.coef_ * SPREAD == pytest.approx(expected.coef_[0], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("kind", ["multinomial", "ordinal"])
def test_a_fit_of_two_classes_equals_scikit_learn(kind):
    expected = LogisticRegression(C=1 / 12.0, l1_ratio=0.6, solver="saga", tol=1e-12, max_iter=100_000)
    expected.fit(SCALED, OUTCOMES["binomial"])
    estimator = {"multinomial": FedMultinomialRegression, "ordinal": FedOrdinalRegression}[kind]
    model = estimator(alpha=12.0, l1_ratio=0.6).fit(
        mc.Federation.in_process(sites_of("binomial"), policy=OPEN, secure_sum=False)
    )
    assert np.ravel(model.coef_) * SPREAD == pytest.approx(expected.coef_[0], rel=1e-6, abs=1e-9)
    assert np.isnan(model.standard_errors_).all()


@pytest.mark.parametrize(("kind", "link"), [("multinomial", "logit"), ("ordinal", "logit"), ("ordinal", "probit")])
@pytest.mark.parametrize("share", [1.0, 0.3])
def test_fits_of_several_classes_have_the_derivatives_of_the_penalty(kind, link, share):
    """Where a slope is not 0 the derivatives of likelihood and penalty are equal; elsewhere the lasso is larger."""
    rng = np.random.default_rng(5)
    y, alpha = np.digitize(OUTCOMES["gaussian"] + rng.logistic(size=N_PATIENTS), [-1.0, 0.5, 2.0]), 25.0
    data = mc.data.TableData(X, y)
    sites = {f"s{i}": data.take(np.arange(i, N_PATIENTS, 3)) for i in range(3)}
    options = {"link": link} if kind == "ordinal" else {}
    estimator = {"multinomial": FedMultinomialRegression, "ordinal": FedOrdinalRegression}[kind]
    federation = mc.Federation.in_process(sites, policy=OPEN, secure_sum=False)
    model = estimator(alpha=alpha, l1_ratio=share, tol=1e-11, **options).fit(federation)
    likelihood, k = likelihood_of(kind, link), 3
    slopes = model.model_.slopes * SPREAD
    shift = likelihood.sign if kind == "ordinal" else 1.0
    intercepts = model.model_.intercepts + shift * (model.model_.slopes @ X.mean(axis=0))
    sums = likelihood.derive(SCALED, y, likelihood.join(intercepts, slopes))
    by_intercept, by_slope = likelihood.split(sums.gradient, k)
    assert np.abs(by_intercept).max() < 1e-5
    ridge, lasso, moves = alpha * (1 - share), alpha * share, slopes != 0
    assert 0 < moves.sum() < moves.size
    assert by_slope[moves] == pytest.approx(ridge * slopes[moves] + lasso * np.sign(slopes[moves]), abs=1e-5)
    assert (np.abs(by_slope[~moves]) <= lasso).all()


def cox_sites(whole, n_sites):
    return {f"s{i}": whole.take(np.arange(i, len(whole), n_sites)) for i in range(n_sites)}


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_a_cox_fit_equals_scikit_survival(share):
    models = pytest.importorskip("sksurv.linear_model", reason="scikit-survival is not installed")
    whole = mc.datasets.simulate_survival(600, 6, 3)
    scaled = (whole.X - whole.X.mean(axis=0)) / whole.X.std(axis=0)
    outcome = np.array(list(zip(whole.event > 0, whole.time, strict=True)), dtype=[("event", "?"), ("time", "f8")])
    path = models.CoxnetSurvivalAnalysis(alphas=[0.08], l1_ratio=share, tol=1e-14, max_iter=1_000_000)
    expected = path.fit(scaled, outcome).coef_[:, 0]
    federation = mc.Federation.in_process(cox_sites(whole, 3), policy=mc.Policy(min_patients=0, exact_times=True))
    model = FedCox("exact", ties="breslow", alpha=0.08 * 600, l1_ratio=share).fit(federation)
    assert 0 < (expected == 0).sum() < 6
    assert model.coef_ * whole.X.std(axis=0) == pytest.approx(expected, abs=2e-6)
    assert ((model.coef_ == 0) == (expected == 0)).all()
    assert np.isnan(model.standard_errors_).all()
    assert model.tests_ == {}


@pytest.mark.parametrize("times", ["stratified", "grid"])
def test_a_cox_fit_has_the_derivatives_of_the_penalty(times):
    whole = mc.datasets.simulate_survival(600, 6, 3)
    sites, alpha, share = cox_sites(whole, 3), 40.0, 0.7
    with mc.Federation.in_process(sites, policy=OPEN) as federation:
        model = FedCox(times, alpha=alpha, l1_ratio=share).fit(federation)
        slopes = model.coef_ * model.agreed_.spread
    gradient, moves = model._reached.totals.gradient, slopes != 0
    assert 0 < moves.sum() < 6
    expected = alpha * ((1 - share) * slopes + share * np.sign(slopes))
    assert gradient[moves] == pytest.approx(expected[moves], abs=1e-4)
    assert (np.abs(gradient[~moves]) <= alpha * share).all()
    assert np.isfinite(model.predict(sites["s0"])).all()


@pytest.mark.parametrize("options", [{"one_round": True}, {"errors": "HC0"}])
def test_a_lasso_of_a_cox_model_refuses_what_it_cannot_have(options):
    sites = cox_sites(mc.datasets.simulate_survival(300, 3, 0), 3)
    with mc.Federation.in_process(sites, policy=OPEN) as federation:
        with pytest.raises(ConfigurationError, match="one_round=False"):
            FedCox(alpha=5.0, l1_ratio=0.5, **options).fit(federation)
        model = FedCox(alpha=5.0, l1_ratio=0.5).fit(federation)
        for request in (model.by_site, model.check_proportionality):
            with pytest.raises(ConfigurationError, match="without a lasso"):
                request()


def folds_of(sites, n_folds, seed):
    """Return the fold of each patient, as the sites divide them."""
    parts = []
    for data in sites.values():
        strata = data.y if data.outcome == "class" else np.zeros(len(data), dtype=np.int64)
        key = sha256(f"{data.digest()}:{n_folds}:{seed}".encode()).digest()
        parts.append(divide(n_folds, strata, None, key))
    return np.concatenate(parts), np.concatenate([np.arange(i, N_PATIENTS, len(sites)) for i in range(len(sites))])


def test_the_choice_of_a_gaussian_penalty_is_that_of_scikit_learn():
    model = fitted(FedGLMCV(cv=4, seed=3))
    folds, rows = folds_of(sites_of("gaussian"), 4, 3)
    splits = [(np.flatnonzero(folds != fold), np.flatnonzero(folds == fold)) for fold in range(4)]
    expected = LassoCV(alphas=model.alphas_ / N_PATIENTS, cv=splits, tol=1e-12, max_iter=100_000)
    expected.fit(SCALED[rows], OUTCOMES["gaussian"][rows])
    assert model.fold_deviance_ == pytest.approx(expected.mse_path_, rel=1e-8)
    assert model.alpha_ / N_PATIENTS == pytest.approx(expected.alpha_, rel=1e-12)
    assert model.coef_ * SPREAD == pytest.approx(expected.coef_, rel=1e-7, abs=1e-10)
    grid = LassoCV(alphas=100, cv=splits).fit(SCALED[rows], OUTCOMES["gaussian"][rows]).alphas_
    assert model.alphas_ / N_PATIENTS == pytest.approx(grid, rel=1e-10)


@pytest.mark.parametrize("secure", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["unmasked", "masked"])
def test_deviances_of_logistic_folds_are_those_of_scikit_learn(secure):
    model = fitted(FedGLMCV("binomial", alphas=[40.0, 8.0, 1.0], l1_ratio=0.5, cv=3, rule="1se"), secure=secure)
    folds, rows = folds_of(sites_of("binomial"), 3, 0)
    columns, outcome = SCALED[rows], OUTCOMES["binomial"][rows]
    for place, alpha in enumerate([40.0, 8.0, 1.0]):
        for fold in range(3):
            inside = folds != fold
            other = LogisticRegression(
                C=1 / (alpha * inside.mean()), l1_ratio=0.5, solver="saga", tol=1e-12, max_iter=100_000
            ).fit(columns[inside], outcome[inside])
            shares = other.predict_proba(columns[~inside])[np.arange((~inside).sum()), outcome[~inside]]
            assert model.fold_deviance_[place, fold] == pytest.approx(-2 * np.log(shares).mean(), rel=1e-6)
    sizes = np.bincount(folds)
    mean = model.fold_deviance_ @ sizes / N_PATIENTS
    error = np.sqrt(np.square(model.fold_deviance_ - mean[:, None]) @ sizes / N_PATIENTS / 2)
    best = int(np.argmin(mean))
    within = [40.0, 8.0, 1.0][int(np.argmax(mean <= mean[best] + error[best]))]
    assert (model.alpha_1se_, model.alpha_) == (within, within)


def test_a_path_of_many_penalties_needs_few_calls():
    model = fitted(FedGLMCV("binomial", alphas=10))
    assert len(model.alphas_) == 10
    assert sum(model.session.traffic.calls.values()) <= 16
