"""Decision curves without censoring are counts of true and false positives."""

import numpy as np
import pytest

from multicentre.survival.scores.brier import Censoring
from multicentre.survival.scores.calibration import benefit_of_treating_all, net_benefit

THRESHOLDS = np.array([0.1, 0.3, 0.6])


def test_without_censoring_they_are_counts():
    rng = np.random.default_rng(0)
    time, event, risk = rng.random(50), np.ones(50, dtype=bool), rng.random(50)
    found = net_benefit(risk, time, event, 0.4, THRESHOLDS, Censoring.estimate(time, event))
    for benefit, threshold in zip(found, THRESHOLDS, strict=True):
        treated, case = risk > threshold, time <= 0.4
        expected = (treated & case).mean() - (treated & ~case).mean() * threshold / (1 - threshold)
        assert benefit == pytest.approx(expected)


def test_the_weights_make_up_for_censoring():
    rng = np.random.default_rng(1)
    risk = rng.random(40_000)
    time, leaving = rng.exponential(1 / (0.2 + risk)), rng.exponential(1.5, len(risk))
    seen, event = np.minimum(time, leaving), time <= leaving
    whole = net_benefit(risk, time, np.ones_like(event), 1.0, THRESHOLDS, Censoring.estimate(time, time > 0))
    found = net_benefit(risk, seen, event, 1.0, THRESHOLDS, Censoring.estimate(seen, event))
    np.testing.assert_allclose(found, whole, atol=0.015)


def test_treating_all_is_treating_those_above_no_threshold():
    cases, controls = np.array([1.0, 2.0, 0.0, 3.0]), np.array([4.0, 0.0, 1.0, 0.0])
    expected = (6 - 5 * THRESHOLDS / (1 - THRESHOLDS)) / 11
    np.testing.assert_allclose(benefit_of_treating_all(cases, controls, THRESHOLDS, 11.0), expected)
