"""Areas under the curve are scikit-learn's where nobody is censored, and weighted where somebody is."""

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from multicentre.survival.scores.auc import area_from_counts, dynamic_auc, mean_auc, weigh_areas
from multicentre.survival.scores.brier import Censoring


def test_without_censoring_they_are_those_of_scikit_learn():
    rng = np.random.default_rng(0)
    time, event, risk = rng.random(60), np.ones(60, dtype=bool), rng.normal(size=60).round(1)
    times = np.array([0.2, 0.5, 0.9])
    found = dynamic_auc(time, event, risk, times, Censoring.estimate(time, event))
    expected = [roc_auc_score(time <= moment, risk) for moment in times]
    np.testing.assert_allclose(found, expected, atol=1e-14)


def test_risks_may_differ_from_time_to_time():
    rng = np.random.default_rng(1)
    time, event, risks = rng.random(40), rng.random(40) < 0.7, rng.random((40, 2))
    times, known = np.array([0.3, 0.6]), Censoring.estimate(time, event)
    found = dynamic_auc(time, event, risks, times, known)
    for column in range(2):
        assert found[column] == dynamic_auc(time, event, risks[:, column], times, known)[column]


def test_cases_weigh_by_the_chance_to_be_seen():
    time, event = np.array([1.0, 2.0, 9.0, 9.0]), np.array([True, True, False, False])
    known = Censoring(np.array([1.0, 2.0, 9.0]), np.array([1.0, 0.5, 0.5]))
    found = dynamic_auc(time, event, np.array([5.0, 0.0, 1.0, 2.0]), np.array([3.0]), known)
    assert found == pytest.approx([(1 * 1 + 2 * 0) / 3])


def test_there_is_none_without_cases_or_controls():
    time, event = np.array([2.0, 3.0]), np.array([True, False])
    known = Censoring.estimate(time, event)
    assert np.isnan(dynamic_auc(time, event, np.array([1.0, 0.0]), np.array([1.0, 3.0]), known)).all()


def test_bins_with_one_patient_each_lose_nothing():
    rng = np.random.default_rng(2)
    risk, case = rng.permutation(30), rng.random(30) < 0.4
    cases, controls = np.zeros(30), np.zeros(30)
    cases[risk[case]], controls[risk[~case]] = 1.0, 1.0
    assert area_from_counts(cases, controls) == pytest.approx(roc_auc_score(case, risk))
    assert np.isnan(area_from_counts(cases, np.zeros(30)))


def test_the_mean_weighs_areas_by_events():
    time, event = np.array([1.0, 2.0, 3.0, 4.0]), np.array([True, True, True, False])
    assert mean_auc(np.array([1.0, 0.4]), np.array([1.0, 3.0]), time, event) == pytest.approx(1 / 3 + 0.4 * 2 / 3)
    assert weigh_areas(np.array([np.nan, 0.4]), np.array([0.9, 0.5])) == pytest.approx(0.4)
    assert np.isnan(weigh_areas(np.array([np.nan]), np.array([0.9])))
