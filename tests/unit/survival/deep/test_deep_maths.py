"""The baseline's sums, and the joining of bins that few events fall into."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from multicentre.survival.deep.maths import baseline_hazard, join_bins, sum_at_risk
from multicentre.survival.times.curves import nelson_aalen
from multicentre.survival.times.grid import count_by_bin

seeds = st.integers(0, 10**6)


def draw(seed, n_times=9):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 60))
    bins = rng.integers(0, n_times + 1, n)
    return bins, (rng.random(n) < rng.random()) & (bins < n_times), int(rng.integers(0, 12))


@settings(max_examples=100, deadline=None)
@given(seeds)
def test_ratios_of_one_give_the_table_at_risk_and_nelson_aalens_curve(seed):
    bins, happened, _ = draw(seed)
    events, expected = count_by_bin(bins, happened, 9)
    at_risk = sum_at_risk(bins, np.ones(len(bins)), 9)
    np.testing.assert_array_equal(at_risk, expected)
    np.testing.assert_array_equal(baseline_hazard(events, at_risk), nelson_aalen(events, expected))


@settings(max_examples=100, deadline=None)
@given(seeds)
def test_joined_bins_rest_on_enough_and_lose_nobody(seed):
    bins, happened, least = draw(seed)
    joined = join_bins(bins, happened, 9, least)
    if least <= 1:
        np.testing.assert_array_equal(joined, bins)
        return
    enough = happened.sum() >= least
    events = np.bincount(joined[happened], minlength=10)
    leaving = np.bincount(joined, minlength=10)
    assert events[:9].sum() == happened.sum() * enough
    assert all(n == 0 or n >= least for n in events[:9])
    assert all(n == 0 or n >= least for n in leaving) or not enough
    assert ((leaving[:9] > 0) == (events[:9] > 0)).all()
    order = np.argsort(bins, kind="stable")
    assert (np.diff(joined[order]) >= 0).all()


def test_patients_after_the_last_event_stay_where_they_are_enough():
    bins, happened = np.array([1, 1, 1, 5, 6]), np.array([True, True, True, False, False])
    assert join_bins(bins, happened, 7, 2).tolist() == [1, 1, 1, 7, 7]
    assert join_bins(bins, happened, 7, 3).tolist() == [1, 1, 1, 1, 1]
