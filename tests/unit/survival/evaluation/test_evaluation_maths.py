"""Scores from counts are those of the patients who were counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.survival.evaluation.maths import (
    at_risk,
    concordance_from_counts,
    count_cells,
    count_touched,
    interval,
    mean_weights,
    reference_scores,
)
from multicentre.survival.scores.brier import brier_scores
from multicentre.survival.scores.calibration import spread_over_bins
from multicentre.survival.scores.concordance import concordance_with_error

N_BINS, N_TIMES = 4, 5
patients = st.lists(st.tuples(st.integers(0, N_BINS - 1), st.integers(0, N_TIMES), st.booleans()), min_size=2)


@given(patients)
def test_concordance_is_that_of_the_patients_at_their_bins(drawn):
    rows, bins, event = (np.array(column) for column in zip(*drawn, strict=True))
    event &= bins < N_TIMES
    events = count_cells(rows[event], bins[event], (N_BINS, N_TIMES))
    censored = count_cells(rows[~event], bins[~event], (N_BINS, N_TIMES + 1))
    found = concordance_from_counts(events, censored)
    if np.isnan(found[0]):
        assert not any(event[i] and (bins > bins[i]).any() for i in range(len(bins)))
        return
    assert found == pytest.approx(concordance_with_error(bins.astype(float), event, -rows.astype(float)), abs=1e-9)


def test_patients_at_risk_are_those_who_leave_later():
    events, censored = np.array([[2.0, 0.0, 1.0]]), np.array([[0.0, 3.0, 0.0, 4.0]])
    assert at_risk(events, censored).tolist() == [[10.0, 8.0, 5.0]]


def test_the_reference_is_the_score_of_one_curve():
    rng = np.random.default_rng(0)
    time, event, times = rng.random(30), np.ones(30, dtype=bool), np.array([0.2, 0.7])
    curve = np.array([0.9, 0.4])
    cases = (time[:, None] <= times).sum(axis=0).astype(float)
    expected = brier_scores(np.tile(curve, (30, 1)), times, time, event, time, event)
    np.testing.assert_allclose(reference_scores(curve, cases, 30 - cases, 30.0), expected, atol=1e-15)


def test_weights_of_a_mean_are_those_of_trapezia():
    times, scores = np.array([1.0, 2.0, 4.0, 4.5]), np.array([0.1, 0.4, 0.2, 0.9])
    assert mean_weights(times) @ scores == pytest.approx(np.trapezoid(scores, times) / 3.5)


@given(st.floats(0, 1), st.floats(0, 1))
def test_a_bin_is_touched_where_something_is_spread(one, other):
    low, high = np.array([min(one, other)]), np.array([max(one, other)])
    spread = spread_over_bins(low, high, 10) > 1e-9
    assert (count_touched(low, high, 10)[spread] == 1).all()


def test_an_interval_stays_within_shares():
    assert interval(0.5, 0.1) == pytest.approx((0.304, 0.696), abs=1e-3)
    assert interval(0.99, 0.1)[1] == 1.0
    assert interval(0.01, 0.1)[0] == 0.0
