"""Boosting over sites against scikit-learn, a plain loop over pooled patients, and invariances."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import AdaBoostClassifier, AdaBoostRegressor
from sklearn.model_selection import train_test_split
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from multicentre.data.survival import SurvivalData
from multicentre.data.tabledata import TableData
from multicentre.survival.agreement.messages import Patients
from multicentre.survival.learners.tree import TreeSettings, fit_trees
from multicentre.survival.surv_boost import FedSurvBoost
from multicentre.survival.surv_boost.rounds import fit_columns
from multicentre.survival.surv_boost.site import BoostSite
from multicentre.survival.times import restricted_mean
from multicentre_papers.baselines import AdaBoostF, DistBoostF, PreWeakF
from support.boosting_sites import CORRECTED_TEXT, federate, prescribe, simulate, split, tree_of_times


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_one_site_is_scikit_learns_samme(seed):
    rng = np.random.default_rng(seed)
    X = np.round(rng.normal(size=(400, 4)), 1)
    y = (X[:, 0] + X[:, 1] ** 2 + rng.normal(size=400) > 1).astype(int) + (X[:, 2] > 0.5)
    fitted = AdaBoostF(30, min_samples_leaf=1).fit(federate({"lyon": TableData(X, y)}))
    oracle = AdaBoostClassifier(DecisionTreeClassifier(max_depth=3), n_estimators=30, random_state=seed).fit(X, y)
    assert len(fitted.votes_) == len(oracle.estimators_) == 30
    np.testing.assert_allclose(fitted.votes_, oracle.estimator_weights_, rtol=0, atol=1e-12)
    np.testing.assert_allclose(fitted.training_errors_, oracle.estimator_errors_, rtol=0, atol=1e-12)
    assert np.array_equal(fitted.predict(X), oracle.predict(X))


def uncensored(n=240):
    """Return times that columns tell in part, and scikit-learn's boosting of them."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(n, 3))
    time = 30 + 8 * X[:, 0] + 5 * np.abs(X[:, 1]) + rng.normal(size=n) * 3
    oracle = AdaBoostRegressor(DecisionTreeRegressor(max_depth=3), n_estimators=12, loss="linear", random_state=0)
    return SurvivalData(X, time, np.ones(n)), oracle.fit(X, time)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:horizon must be at most")
@pytest.mark.parametrize("secure", [False, True], ids=["unmasked", "masked"])
def test_votes_and_weights_over_four_sites_are_those_of_adaboost_r2(secure, monkeypatch):
    data, oracle = uncensored()
    horizon = float(data.time.max()) + 1.0
    grid = np.linspace(0.5, horizon, 200)
    monkeypatch.setattr("multicentre.survival.agreement.rounds.event_grid", lambda *_: grid)
    trees = [tree_of_times(tree, grid) for tree in oracle.estimators_]
    prescribe(monkeypatch, trees, 4)
    parameters = {**CORRECTED_TEXT, "loss": "rmst", "resample": False}
    fitted = FedSurvBoost("tree", n_estimators=len(trees), horizon=horizon, **parameters).fit(
        federate(split(data, 4), secure_sum=secure)
    )
    tolerance = 1e-9 if secure else 1e-12
    np.testing.assert_allclose(fitted.training_errors_, oracle.estimator_errors_[: len(trees)], rtol=0, atol=tolerance)
    np.testing.assert_allclose(fitted.votes_, oracle.estimator_weights_[: len(trees)], rtol=0, atol=tolerance)
    np.testing.assert_allclose(fitted.predict_time(data, "weighted_median"), oracle.predict(data.X), rtol=1e-12)


def plain_loop(data, agreed, n_estimators, rate, cap):
    """Boost pooled patients in a plain loop on plain weights, with the draws of the one site."""
    part, patients = BoostSite("lyon", data), Patients(data, agreed)
    own, tau = int(data.digest()[:16], 16), agreed.times[-1]
    weights, curves, votes = np.full(len(data), 1 / len(data)), [], []
    for number in range(1, n_estimators + 1):
        rng = part.generator(0, 2, number, 0, own)
        drawn = rng.multinomial(len(data), weights / weights.sum()).astype(float)
        tree = fit_trees(patients, drawn[None], TreeSettings(), rng)
        early = patients.time - restricted_mean(tree.survival(patients.rows), agreed.times)
        losses = np.where(patients.happened, np.abs(early), np.maximum(early, 0)) / tau
        error = weights @ losses / weights.sum()
        vote = rate * np.log((1 - error) / error)
        weights = weights * (error / (1 - error)) ** (rate * (1 - losses))
        weights = np.minimum(weights / weights.sum(), cap / len(data))
        curves.append(tree.survival(patients.rows))
        votes.append(vote)
    return np.array(votes), np.average(curves, axis=0, weights=votes)


def test_one_site_is_the_plain_loop_over_its_patients():
    data = simulate(200)
    fitted = FedSurvBoost(
        "tree", candidates="best", learning_rate=0.5, weight_cap=3.0, recalibrate=False, n_estimators=8
    ).fit(federate({"lyon": data}))
    votes, curves = plain_loop(data, fitted.agreed_, 8, 0.5, 3.0)
    np.testing.assert_allclose(fitted.votes_, votes, rtol=1e-12)
    np.testing.assert_allclose(fitted.predict_survival_function(data, return_array=True), curves, atol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("parameters", [{}, CORRECTED_TEXT], ids=["default", "corrected text"])
def test_the_order_of_the_sites_does_not_change_the_result(parameters):
    sites = split(simulate(), 4)
    turned = {name: sites[name] for name in reversed(sites)}
    fits = [
        FedSurvBoost("tree", n_estimators=6, n_splits=2, **parameters).fit(federate(each)) for each in (sites, turned)
    ]
    assert fits[0].chosen_ == fits[1].chosen_
    np.testing.assert_allclose(fits[0].training_errors_, fits[1].training_errors_, rtol=0, atol=1e-10)
    curves = [fit.predict_survival_function(simulate(seed=9), return_array=True) for fit in fits]
    np.testing.assert_allclose(*curves, rtol=0, atol=1e-9)


@pytest.mark.slow
def test_proportional_hazards_from_sums_are_those_of_the_pooled_patients():
    data = simulate(300)
    fits = [
        FedSurvBoost("cox", n_estimators=1, recalibrate=False).fit(federate(split(data, n), secure_sum=n > 1))
        for n in (1, 3, 5)
    ]
    found = [fit_columns(fit.session, fit.agreed_) for fit in fits]
    for other in found[1:]:
        np.testing.assert_allclose(other.coefficients, found[0].coefficients, rtol=0, atol=1e-7)
        np.testing.assert_allclose(other.baseline, found[0].baseline, rtol=0, atol=1e-7)
    linear = pytest.importorskip("sksurv.linear_model")
    agreed = fits[0].agreed_
    places = np.minimum(np.searchsorted(agreed.times, data.time), len(agreed.times) - 1)
    inside = data.time <= agreed.times[-1]
    y = np.empty(len(data), dtype=[("event", bool), ("time", float)])
    y["event"], y["time"] = (data.event == 1) & inside, np.where(inside, agreed.times[places], agreed.times[-1] + 1)
    rows = (data.X - agreed.centre) / agreed.spread
    oracle = linear.CoxPHSurvivalAnalysis(alpha=1.0, ties="breslow", tol=1e-12).fit(rows, y)
    np.testing.assert_allclose(found[0].coefficients * agreed.spread, oracle.coef_, rtol=0, atol=1e-7)


LEVELS = {AdaBoostF: 0.85, DistBoostF: 0.72, PreWeakF: 0.85}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LEVELS)
def test_digits_are_distinguished_over_four_sites(kind):
    X, y = load_digits(return_X_y=True)
    X, held_out, y, truth = train_test_split(X, y, test_size=0.25, random_state=0, stratify=y)
    order = np.random.default_rng(0).permutation(len(X))
    names = [str(digit) for digit in range(10)]
    sites = {f"site-{i}": TableData(X[order[i::4]], y[order[i::4]], classes=names) for i in range(4)}
    fitted = kind(40, min_samples_leaf=1).fit(federate(sites))
    assert fitted.score(TableData(held_out, truth, classes=names)) >= LEVELS[kind]
    alone = AdaBoostF(40, min_samples_leaf=1).fit(federate({"site-0": sites["site-0"]}))
    if kind is not DistBoostF:
        assert fitted.score(TableData(held_out, truth)) > alone.score(TableData(held_out, truth)) - 0.02
