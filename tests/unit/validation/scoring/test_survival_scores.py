"""Scores of survival models are those of an evaluation over the same records."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.errors import ConfigurationError, DisclosureRefused
from multicentre.validation.scoring.scores import find_evaluator, names_of, score


def sites(n=150, first=0):
    return {f"site-{seed}": mc.datasets.simulate_survival(n, 3, seed) for seed in range(first, first + 3)}


@pytest.fixture(scope="module")
def model():
    return mc.survival.FedCox("grid", n_times=16).fit(mc.Federation.in_process(sites()))


def test_scores_are_those_of_an_evaluation_and_greater_is_better(model):
    federation = mc.Federation.in_process(sites(first=5))
    found = score(model, federation, ["neg_ibs", "concordance", "mean_auc"])
    judged = mc.survival.SurvivalEvaluation(model).fit(federation)
    assert found.values == {
        "neg_ibs": -judged.ibs_,
        "concordance": judged.concordance_,
        "mean_auc": judged.mean_auc_,
    }
    assert found.n_records == 450


def test_concordance_is_near_that_of_the_pooled_records_and_own_ones_are_exact(model):
    held = sites(first=5)
    federation = mc.Federation.in_process(held)
    found = score(model, federation, ["concordance", "concordance_within_sites"], by_site=True)
    X, time, event = (np.concatenate([getattr(one, part) for one in held.values()]) for part in ("X", "time", "event"))
    for site, data in held.items():
        assert found.by_site[site]["concordance"] == pytest.approx(model.score(data), abs=1e-12)
    pooled = mc.data.SurvivalData(X, time, event)
    assert found.values["concordance"] == pytest.approx(model.score(pooled), abs=2e-3)
    assert abs(found.values["concordance"] - found.values["concordance_within_sites"]) < 0.05


def test_unmasked_scores_are_refused_and_say_what_would_do(model):
    federation = mc.Federation.in_process(sites(first=5), secure_sum=False)
    for name in ("concordance_within_sites", "concordance", "neg_ibs"):
        with pytest.raises(DisclosureRefused, match="secure_sum=True"):
            score(model, federation, name)


def test_a_site_with_few_events_tells_nothing_of_its_own(model):
    held = sites(first=5)
    held["site-5"] = held["site-5"].take(np.arange(12))
    found = score(model, mc.Federation.in_process(held), "concordance", by_site=True)
    assert np.isnan(found.by_site["site-5"]["concordance"])
    assert np.isfinite(found.by_site["site-6"]["concordance"])


def test_names_are_checked():
    evaluator = find_evaluator(mc.survival.FedCox())
    assert names_of(evaluator, None) == ("concordance", "neg_ibs")
    assert names_of(evaluator, ["neg_ibs", "neg_ibs"]) == ("neg_ibs",)
    for wrong in ("accuracy", [], ["concordance", "r2"]):
        with pytest.raises(ConfigurationError, match="scoring must be one of"):
            names_of(evaluator, wrong)


def test_what_predicts_nothing_is_not_scored():
    with pytest.raises(ConfigurationError, match="got KaplanMeier"):
        find_evaluator(mc.survival.KaplanMeier())
