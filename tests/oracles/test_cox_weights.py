"""Cox models with offset, weights and clusters are those of R's survival package (see cox_weights.py)."""

import json
from pathlib import Path

import numpy as np
import pytest

import multicentre as mc
from multicentre.survival import FedCox
from oracles.cox_weights import COLUMNS, patients

R = json.loads((Path(__file__).parent / "cox_weights.json").read_text(encoding="utf-8"))
OPEN = mc.Policy(min_patients=0, exact_times=True)
NAMES = ["continuous", "tied"]
COVARIATES = ["a", "b", "c"]
PROBABILITY = {"weights": "p", "weight_type": "probability"}
OPTIONS = {
    "offset": {"offset": "o"},
    "frequency": {"weights": "w"},
    "probability": {**PROBABILITY, "errors": "HC0"},
    "cluster": {"errors": "cluster", "cluster": "ward"},
    "all": {"offset": "o", **PROBABILITY, "errors": "cluster", "cluster": "ward"},
}


def sites_of(name, *others):
    X, time, event, site = patients(ties=name == "tied")
    places = [COLUMNS.index(column) for column in (*COVARIATES, *others)]
    return {
        f"site-{k}": mc.data.SurvivalData(
            X[site == k][:, places], time[site == k], event[site == k], columns=[COLUMNS[place] for place in places]
        )
        for k in np.unique(site)
    }


def fitted(name, *args, secure_sum=False, **options):
    named = [options.get(key) for key in ("offset", "weights", "cluster")]
    sites = sites_of(name, *filter(None, named))
    return FedCox(*args, **options).fit(mc.Federation.in_process(sites, policy=OPEN, secure_sum=secure_sum))


@pytest.mark.parametrize("masked", [False, True], ids=["unmasked", "masked"])
@pytest.mark.parametrize("ties", ["efron", "breslow"])
@pytest.mark.parametrize("times", ["stratified", "exact"])
@pytest.mark.parametrize("kind", OPTIONS)
@pytest.mark.parametrize("name", NAMES)
def test_fits_are_those_of_coxph(name, kind, times, ties, masked):
    expected = R[name][ties]["stratified" if times == "stratified" else "shared"][kind]
    model = fitted(name, times, ties=ties, secure_sum=masked, **OPTIONS[kind])
    assert model.feature_names_in_ == ("a", "b", "c")
    tolerance = 1e-5 if masked else 1e-7
    assert model.coef_ == pytest.approx(expected["coefficients"], abs=tolerance)
    errors = expected.get("robust_errors") or expected["errors"]
    assert model.standard_errors_ == pytest.approx(errors, rel=tolerance)
    assert model.model_standard_errors_ == pytest.approx(expected["errors"], rel=tolerance)
    for transform in ("identity", "log") if times == "stratified" or name == "tied" else ("identity",):
        statistics = [test.statistic for test in model.check_proportionality(transform).values()]
        assert statistics == pytest.approx(expected[transform], rel=100 * tolerance)
    if "p" in OPTIONS[kind].values():
        assert np.isnan(model.log_likelihood_)
        assert list(model.tests_) == ["wald"]
    else:
        assert model.log_likelihood_ == pytest.approx(expected["log_likelihoods"][1], rel=tolerance)
    if kind in ("offset", "frequency"):
        gain = 2 * (expected["log_likelihoods"][1] - expected["log_likelihoods"][0])
        assert model.tests_["likelihood_ratio"].statistic == pytest.approx(gain, rel=10 * tolerance)


@pytest.mark.parametrize("name", NAMES)
def test_predictions_are_those_of_the_weighted_baseline_with_the_offset(name):
    expected = R[name]["hazards"]
    model = fitted(name, "exact", ties="breslow", offset="o", **PROBABILITY, errors="HC0")
    X, *_ = patients(ties=name == "tied")
    hazards = model.predict_cumulative_hazard_function(X[:5, :4], return_array=True)
    places = np.searchsorted(expected["time"], model.times_ * (1 + 1e-9), side="right") - 1
    np.testing.assert_allclose(hazards, np.array(expected["cumulative"])[:, places], rtol=1e-6)
