"""The baseline's sums, and how no hazard ratio outweighs all others."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from multicentre.survival.deep.maths import baseline_hazard, cut_risks, join_by_risk, sum_at_risk
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


def effective(ratios):
    return ratios.sum() ** 2 / (ratios @ ratios)


@settings(max_examples=100, deadline=None)
@given(seeds)
def test_joined_bins_rest_on_enough_in_effect_and_keep_their_order(seed):
    bins, _, least = draw(seed)
    ratios = np.exp(np.random.default_rng(seed).normal(size=len(bins)))
    joined = join_by_risk(bins, ratios, 9, least)
    if least <= 1:
        np.testing.assert_array_equal(joined, bins)
        return
    if effective(ratios) < least:
        assert (joined == 9).all()
    else:
        assert all(effective(ratios[joined == place]) >= least - 1e-6 for place in np.unique(joined))
        assert (joined[bins < 9] >= bins[bins < 9]).all() or (joined[bins == 9] < 9).any()
    order = np.argsort(bins, kind="stable")
    assert (np.diff(joined[order]) >= 0).all()


def test_where_all_are_enough_by_themselves_nothing_is_joined():
    bins = np.repeat([0, 3, 9], 4)
    np.testing.assert_array_equal(join_by_risk(bins, np.full(12, 7.0), 9, 4), bins)


def test_patients_beyond_the_horizon_leave_with_the_last_where_they_are_too_few():
    bins, ones = np.array([1, 1, 1, 5, 6]), np.ones(5)
    assert join_by_risk(bins, ones, 7, 2).tolist() == [1, 1, 1, 6, 6]
    assert join_by_risk(np.array([1, 1, 1, 7]), ones[:4], 7, 2).tolist() == [1, 1, 1, 1]
    assert join_by_risk(np.array([1, 1, 7, 7]), ones[:4], 7, 2).tolist() == [1, 1, 7, 7]


@settings(max_examples=100, deadline=None)
@given(seeds, st.floats(0.1, 2000.0))
def test_cut_risks_are_so_many_in_effect_and_those_within_stay(seed, scale):
    rng = np.random.default_rng(seed)
    risk, least = scale * rng.normal(size=int(rng.integers(5, 60))), 5
    cut = cut_risks(risk, least)
    for sign in (1.0, -1.0):
        assert effective(np.exp(sign * cut - (sign * cut).max())) >= least * (1 - 1e-6)
    within = (risk > cut.min()) & (risk < cut.max())
    np.testing.assert_array_equal(cut[within], risk[within])
    np.testing.assert_array_equal(cut_risks(risk, 1), risk)


def test_mild_risks_are_not_cut():
    risk = np.linspace(-0.5, 0.5, 40)
    np.testing.assert_array_equal(cut_risks(risk, 10), risk)
    assert not len(cut_risks(np.zeros(0), 10))
