"""Tests of evaluations at a single site, whose sums cannot be masked, and of cross-validation by site."""

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, roc_auc_score

import multicentre as mc
from multicentre.errors import DisclosureRefused, LeftOutWarning
from multicentre.validation import LeaveOneSiteOut, cross_validate, evaluate_classifier, score

SITES = ("graz", "lyon", "oslo")


def tables(n=200, seed=0, events=None):
    rng = np.random.default_rng(seed)
    sites = {}
    for shift, site in enumerate(SITES):
        X = rng.normal(size=(n, 3))
        y = (rng.random(n) < 1 / (1 + np.exp(0.5 - 0.2 * shift - X @ [1.0, -0.5, 0.2]))).astype(int)
        if events is not None and site == "oslo":
            y = (np.argsort(np.argsort(-X[:, 0])) < events).astype(int)
        sites[site] = mc.data.TableData(X, y, columns=["p", "q", "r"])
    return sites


def fitted(sites):
    return mc.regression.FedLogisticRegression().fit(mc.Federation.in_process({s: sites[s] for s in SITES[:2]}))


def at_oslo(sites):
    return mc.Federation.in_process({"oslo": sites["oslo"]})


pytestmark = pytest.mark.slow  # each fits a model


def test_scores_at_one_site_are_those_of_its_records_and_bins_hold_the_minimum():
    sites = tables()
    model = fitted(sites)
    evaluation = evaluate_classifier(model, at_oslo(sites))
    y, chances = sites["oslo"].y, model.predict_proba(sites["oslo"])[:, 1]
    assert evaluation.roc_auc_ == pytest.approx(roc_auc_score(y, chances), abs=1e-9)
    assert evaluation.to_frame().loc["brier_score", "value"] == pytest.approx(brier_score_loss(y, chances), abs=1e-6)
    counts = evaluation.collected.counts[0]
    assert counts.min() >= 10
    assert counts.shape[1] > 2
    assert "merged until each held the site's minimum" in str(evaluation)
    assert evaluation.bound_roc_auc == 0.0


def test_a_calibration_at_one_site_is_that_of_a_logistic_regression_of_its_records():
    sites = tables()
    model = fitted(sites)
    frame = evaluate_classifier(model, at_oslo(sites)).to_frame()
    pooled = evaluate_classifier(
        model, mc.Federation.in_process({"oslo": sites["oslo"]}, policy=mc.Policy(min_patients=0))
    )
    for name in ("calibration_intercept", "calibration_slope"):
        assert frame.loc[name].to_numpy(float) == pytest.approx(pooled.to_frame().loc[name].to_numpy(float), abs=1e-5)


def test_a_site_with_few_events_is_refused_with_what_would_help_and_never_the_hint_to_mask():
    sites = tables(events=4)
    with pytest.raises(DisclosureRefused) as refused:
        evaluate_classifier(fitted(sites), at_oslo(sites))
    assert "at least 10 records of each class" in str(refused.value)
    assert "secure_sum" not in str(refused.value)
    with pytest.raises(DisclosureRefused) as refused:
        score(fitted(sites), at_oslo(sites), "roc_auc")
    assert "secure_sum" not in str(refused.value)
    assert "together with others" in str(refused.value)


def test_subgroups_at_one_site_are_refused():
    sites = tables()
    with pytest.raises(DisclosureRefused, match="Leave subgroups out at a single site"):
        evaluate_classifier(fitted(sites), at_oslo(sites), subgroups="p", subgroup_limits=[0.0])


def test_each_site_is_held_out_in_turn_without_a_permission_of_leakage():
    sites = tables()
    result = cross_validate(
        mc.regression.FedLogisticRegression(), mc.Federation.in_process(sites), cv=LeaveOneSiteOut(), scoring="roc_auc"
    )
    models = [
        mc.regression.FedLogisticRegression().fit(mc.Federation.in_process({s: sites[s] for s in SITES if s != out}))
        for out in SITES
    ]
    expected = [
        roc_auc_score(sites[out].y, model.predict_proba(sites[out])[:, 1])
        for out, model in zip(SITES, models, strict=True)
    ]
    assert result["test_roc_auc"] == pytest.approx(expected, abs=1e-6)
    assert "A person with records at several sites may be in both parts" in repr(result)


@pytest.mark.filterwarnings("ignore:LeaveOneSiteOut")
def test_one_small_site_does_not_delete_the_scores_of_the_others():
    sites = tables(events=4)
    with pytest.warns(LeftOutWarning, match="not scored"):
        result = cross_validate(
            mc.regression.FedLogisticRegression(),
            mc.Federation.in_process(sites),
            cv=LeaveOneSiteOut(),
            scoring="roc_auc",
        )
    assert np.isfinite(result["test_roc_auc"]).tolist() == [True, True, False]
    assert "minimum of patients" in result["left_out"][2]["oslo"]


def test_classes_and_numbers_are_scored_at_a_held_out_site():
    rng = np.random.default_rng(1)
    several, numbers = {}, {}
    for site in SITES:
        X = rng.normal(size=(150, 2))
        effect = X @ [1.0, -1.0] + rng.normal(size=150)
        several[site] = mc.data.TableData(X, np.digitize(effect, [-0.7, 0.7]), columns=["p", "q"])
        numbers[site] = mc.data.TableData(X, effect, columns=["p", "q"], outcome="number")
    cv = LeaveOneSiteOut()
    for estimator, sites, name in (
        (mc.regression.FedMultinomialRegression(), several, "roc_auc_ovr"),
        (mc.regression.FedLinearRegression(), numbers, "r2"),
    ):
        result = cross_validate(estimator, mc.Federation.in_process(sites), cv=cv, scoring=name)
        assert (result[f"test_{name}"] > 0.4).all()


def test_survival_at_one_site_is_scored_by_its_own_patients():
    sites = {site: mc.datasets.simulate_survival(200, 3, seed) for seed, site in enumerate(SITES)}
    model = mc.survival.FedCox().fit(mc.Federation.in_process({site: sites[site] for site in SITES[:2]}))
    scores = score(model, at_oslo(sites), ["concordance", "neg_ibs"])
    local = model.assess(sites["oslo"])
    assert scores.values["concordance"] == pytest.approx(local["concordance"])
    assert scores.values["neg_ibs"] == pytest.approx(-local["ibs"])
    assert set(scores.held_out["oslo"]) >= {"concordance", "concordance.error", "neg_ibs"}
    cv = LeaveOneSiteOut()
    result = cross_validate(mc.survival.FedCox(), mc.Federation.in_process(sites), cv=cv, scoring="concordance")
    assert result.held_out_sites().loc[("concordance", "random effects"), "value"] > 0.6
