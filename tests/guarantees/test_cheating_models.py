"""Attacks on a single site by models whose bins or scores single out a patient."""

import numpy as np
import pytest

import multicentre as mc
from multicentre.core.wire import encode
from multicentre.errors import DisclosureRefused
from multicentre.survival.fitted_models import CoxModel
from multicentre.validation import ClassifierValidation, evaluate_classifier, model_from_mapping, score
from multicentre.validation.external.site import GivenClassPart
from multicentre.validation.scoring.classes.curves import merge_bins
from multicentre.validation.scoring.judging import Scored, ScoreNames
from multicentre.validation.scoring.tables import table_model

N = 200


def site(seed=0):
    """Return a site where only the first patient has the rare level, and the federation of it."""
    rng = np.random.default_rng(seed)
    X = np.column_stack([rng.normal(size=N), np.zeros(N)])
    X[0, 1] = 1.0
    return mc.data.TableData(X, rng.integers(0, 2, N), columns=["age", "rare"])


def federation():
    return mc.Federation.in_process({"graz": site()})


def model(**coefficients):
    intercept = coefficients.pop("intercept", -1.0)
    return model_from_mapping({"family": "binomial", "intercept": intercept, "coefficients": coefficients})


def evaluated(given, at):
    return ClassifierValidation(given).fit(at).evaluation_


@pytest.mark.parametrize("share", [0.0, 1e-3])
def test_a_score_that_isolates_one_patient_is_refused_at_one_site(share):
    with pytest.raises(DisclosureRefused) as refused:
        evaluated(model(rare=9.0, age=share), federation())
    assert "secure_sum" not in str(refused.value)


def test_bins_of_a_score_that_puts_one_patient_alone_at_its_end_hold_the_minimum_of_both_classes():
    counts = evaluated(model(rare=40.0, age=0.5), federation()).collected.counts[0]
    assert counts.min() >= 10


@pytest.mark.parametrize(
    "second",
    [
        model(age=0.5, rare=3.0),
        model(age=0.5, rare=3.0, intercept=-0.9),
        model(age=0.55, rare=3.0, intercept=-0.9),
    ],
    ids=["same", "shifted", "scaled"],
)
def test_a_second_model_that_differs_for_one_patient_is_refused(second):
    """The difference of the two answers would be about that patient, also where all scores are shifted or scaled."""
    at = federation()
    evaluated(model(age=0.5), at)
    with pytest.raises(DisclosureRefused):
        evaluated(second, at)


def test_shifted_scores_give_the_same_bins():
    """Counts between fixed scores would differ by the patients in between; bins are formed by rank."""
    at = federation()
    first, second = (evaluated(model(age=0.5, intercept=at_), at).collected.counts for at_ in (-1.0, -0.97))
    assert np.array_equal(first, second)
    scores, outcome = np.random.default_rng(0).normal(size=N), np.arange(N) % 2
    bins = merge_bins(scores, outcome, 10)
    assert np.array_equal(bins, merge_bins(2 * scores + 0.01, outcome, 10))
    assert np.bincount(bins * 2 + outcome).min() >= 10


def test_another_model_of_the_same_patients_is_scored():
    at = federation()
    evaluated(model(age=0.5), at)
    rng = np.random.default_rng(3)
    other = mc.data.TableData(rng.normal(size=(N, 2)), rng.integers(0, 2, N), columns=["age", "rare"])
    fitted = mc.regression.FedLogisticRegression().fit(mc.Federation.in_process({"oslo": other}))
    assert evaluate_classifier(fitted, at).n_records == N
    assert np.isfinite(score(fitted, at, "roc_auc").values["roc_auc"])


def test_a_site_among_others_does_not_evaluate_itself_alone():
    sites = {"graz": site(), "oslo": site(1)}
    session = mc.Federation.in_process(sites, secure_sum=False).begin(GivenClassPart)
    given = table_model(model(age=0.5))
    session.ask(GivenClassPart.judge, Scored(type(given).__name__, np.frombuffer(encode(given), dtype=np.uint8)))
    with pytest.raises(DisclosureRefused, match="not alone"):
        session.ask(GivenClassPart.evaluate_alone, ScoreNames(("roc_auc",)))


def test_a_survival_model_that_predicts_the_same_for_all_but_one_patient_is_refused_at_one_site():
    """With so small a baseline hazard only the patient with the largest value has another risk than 0."""
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=N), np.r_[6.0, np.clip(rng.normal(size=N - 1), -3.0, 3.0)]])
    data = mc.data.SurvivalData(X, rng.exponential(10.0, N), rng.random(N) < 0.6, columns=["age", "rare"])
    times, at = np.linspace(1.0, 20.0, 10), mc.Federation.in_process({"graz": data})
    fair, hostile = (
        CoxModel(times, np.array([0.0, effect]), np.zeros(2), hazard)
        for effect, hazard in ((1.0, times / 15), (10.0, 1e-22 * times))
    )
    assert np.isfinite(mc.survival.SurvivalEvaluation(fair).fit(at).concordance_)
    with pytest.raises(DisclosureRefused, match="predictions that differ among as many"):
        mc.survival.SurvivalEvaluation(hostile).fit(at)
