"""Calibration: groups by hand, and what a true model shows."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.survival.scores.calibration import (
    calibrate_groups,
    calibration_from_counts,
    compare_with_even,
    d_calibration,
    spread_over_bins,
)


def test_the_observed_risk_is_kaplan_meiers():
    time = np.array([1.0, 2.0, 3.0, 4.0, 5.0])
    event = np.array([True, False, True, True, False])
    found = calibrate_groups(np.full(5, 0.3), time, event, 3.5, np.zeros(0))
    assert found.observed == pytest.approx([1 - 4 / 5 * 2 / 3])
    assert found.predicted == pytest.approx([0.3])
    assert found.error == pytest.approx(1 - 8 / 15 - 0.3)


def test_the_interval_is_greenwoods_on_the_log_log_scale():
    found = calibration_from_counts(
        np.array([10.0]), np.array([4.0]), np.array([[2.0, 1.0]]), np.array([[10.0, 6.0]]), level=0.95
    )
    survival, variance = 0.8 * 5 / 6, 2 / (10 * 8) + 1 / (6 * 5)
    reach = 1.959963984540054 * np.sqrt(variance) / np.log(survival)
    bounds = sorted(1 - survival ** np.exp([reach, -reach]))
    assert [found.lower[0], found.upper[0]] == pytest.approx(bounds)


def test_a_group_without_patients_has_no_risk():
    found = calibrate_groups(np.full(4, 0.9), np.arange(4.0), np.ones(4, dtype=bool), 2.0, np.array([0.5]))
    assert found.n_patients.tolist() == [0.0, 4.0]
    assert np.isnan([found.observed[0], found.predicted[0], found.lower[0]]).all()
    assert np.isfinite(found.error)


def test_a_true_model_is_calibrated_and_a_false_one_is_not():
    rng = np.random.default_rng(0)
    rate = np.exp(rng.normal(size=5000))
    time, leaving = rng.exponential(1 / rate), rng.exponential(2.0, 5000)
    seen, event = np.minimum(time, leaving), time <= leaving
    predicted = 1 - np.exp(-rate * 0.5)
    edges = np.quantile(predicted, np.arange(1, 5) / 5)
    found = calibrate_groups(predicted, seen, event, 0.5, edges)
    assert ((found.lower < found.predicted) & (found.predicted < found.upper)).all()
    assert found.error < 0.03 < calibrate_groups(predicted**2, seen, event, 0.5, edges**2).error
    at_event = np.exp(-rate * seen)
    assert d_calibration(np.where(event, at_event, 0.0), at_event).p_value > 0.01
    late = at_event**0.7
    assert d_calibration(np.where(event, late, 0.0), late).p_value < 1e-6


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), min_size=1, max_size=20), st.integers(1, 12))
def test_spreading_keeps_every_patient(drawn, n_bins):
    low, high = np.sort(np.array(drawn), axis=1).T
    counts = spread_over_bins(low, high, n_bins)
    assert counts.min() >= 0
    assert counts.sum() == pytest.approx(len(drawn))


def test_a_censored_patient_is_spread_over_where_the_event_may_be():
    np.testing.assert_allclose(spread_over_bins(np.zeros(1), np.array([0.5]), 4), [0.5, 0.5, 0.0, 0.0])


def test_no_patients_are_even():
    assert compare_with_even(np.zeros(3)).p_value == 1.0
