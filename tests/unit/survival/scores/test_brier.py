"""Brier scores: closed forms without censoring, and what happens at the edges of follow-up."""

import numpy as np
import pytest

from multicentre.errors import DataError
from multicentre.survival.scores.brier import (
    Censoring,
    average_over_time,
    brier_scores,
    brier_times,
    integrated_brier_score,
    scaled_brier,
)

ALL = np.ones(30, dtype=bool)


def test_without_censoring_it_is_the_mean_squared_error():
    rng = np.random.default_rng(0)
    time, curves, times = rng.random(30), rng.random((30, 4)), np.array([0.2, 0.4, 0.6, 0.8])
    expected = ((time[:, None] > times) - curves) ** 2
    found = brier_scores(curves, times, time, ALL, time, ALL)
    np.testing.assert_allclose(found, expected.mean(axis=0), rtol=0, atol=1e-15)
    mean = integrated_brier_score(curves, times, time, ALL, time, ALL)
    assert mean == pytest.approx(np.trapezoid(found, times) / 0.6)


def test_the_weights_make_up_for_censoring():
    rng = np.random.default_rng(1)
    time, leaving = rng.exponential(1.0, 40_000), rng.exponential(2.0, 40_000)
    seen, event = np.minimum(time, leaving), time <= leaving
    times = np.array([0.5, 1.0, 1.5])
    curves = np.tile([0.7, 0.4, 0.1], (len(time), 1))
    truth = (np.exp(-times) - curves[0]) ** 2 + np.exp(-times) * (1 - np.exp(-times))
    np.testing.assert_allclose(brier_scores(curves, times, seen, event, seen, event), truth, atol=0.01)


def test_a_patient_followed_for_longer_than_the_training_ends_there():
    times, training, before = np.array([1.0, 2.0]), np.array([1.5, 2.5, 3.0]), np.array([True, False, True])
    curves = np.array([[0.9, 0.6], [0.8, 0.3]])
    late = brier_scores(curves, times, np.array([1.5, 9.0]), np.array([True, True]), training, before)
    cut = brier_scores(curves, times, np.array([1.5, 3.0]), np.array([True, False]), training, before)
    np.testing.assert_array_equal(late, cut)


def test_an_event_after_the_last_training_patient_is_not_known():
    known = Censoring.estimate(np.array([1.0, 3.0]), np.array([True, True]))
    time, event = known.cut(np.array([2.0, 3.0, 4.0]), np.array([True, True, True]))
    assert time.tolist() == [2.0, 3.0, 3.0]
    assert event.tolist() == [True, True, False]


def test_where_nobody_could_have_been_seen_nothing_counts():
    known = Censoring.estimate(np.array([1.0, 2.0]), np.array([True, False]))
    assert known.at(np.array([0.5, 1.0, 2.0])).tolist() == [1.0, 1.0, 0.0]
    assert known.weights(np.array([1.0, 2.0])).tolist() == [1.0, 0.0]


def test_events_come_before_censorings_of_the_same_time():
    known = Censoring.estimate(np.array([1.0, 1.0, 2.0]), np.array([True, False, True]))
    assert known.at(np.array([1.0])).tolist() == [0.5]


@pytest.mark.parametrize(
    ("training", "before", "horizon", "end"),
    [
        ([5.0, 9.0], [True, True], 8.0, 4.0),
        ([2.0, 3.0], [True, True], 8.0, 3.0),
        ([2.0, 3.0], [True, False], 8.0, 2.0),
        ([5.0, 9.0], [True, True], 2.5, 2.5),
    ],
    ids=["test patients end it", "training ends with an event", "training ends without", "the horizon ends it"],
)
def test_times_lie_within_the_follow_up_in_common(training, before, horizon, end):
    times = brier_times(np.array([1.0, 4.0, 7.0]), np.array(training), np.array(before), horizon)
    assert (len(times), times[0], times[-1]) == (100, 1.0, end)
    assert np.diff(times) == pytest.approx((end - 1.0) / 99)


@pytest.mark.parametrize(
    ("time", "training", "before"),
    [([2.0, 2.0], [5.0], [True]), ([1.0, 2.0], [0.5], [True]), ([1.0, 2.0, 3.0], [2.0, 2.0], [False, False])],
)
def test_there_may_be_no_such_times(time, training, before):
    assert len(brier_times(np.array(time), np.array(training), np.array(before), 9.0)) == 0


def test_a_mean_over_time_needs_two_times():
    with pytest.raises(DataError, match="two times"):
        average_over_time(np.array([0.1]), np.array([1.0]))


def test_prediction_accuracy_is_a_share():
    assert scaled_brier(0.2, 0.2) == 0.0
    assert scaled_brier(0.0, 0.2) == 1.0
    assert scaled_brier(0.3, 0.2) == pytest.approx(-0.5)
    assert np.isnan(scaled_brier(0.1, 0.0))
