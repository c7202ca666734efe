"""Areas under the curve from counts: bounds that hold, counts that never rest on few."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from multicentre.phenotyping.prediction.maths import ranking

SEEDS = st.integers(0, 2**20)


def scores_of(seed, n):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n) ** 3
    return np.where(rng.random(n) < 0.3, scores.round(), scores)


@given(SEEDS, st.integers(0, 60), st.integers(0, 12), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_no_count_rests_on_few_and_nobody_is_lost(seed, n, fewest, n_edges):
    edges = np.sort(np.random.default_rng(seed + 1).normal(size=n_edges))
    places = ranking.count_in_groups(scores_of(seed, n), edges, fewest)
    assert ((places == 0) | (places >= max(fewest, 1))).all()
    assert set(places.sum(axis=1)) == {float(n) if n >= max(fewest, 1) else 0.0}


@given(SEEDS, st.integers(1, 12), st.integers(1, 40))
@settings(max_examples=100, deadline=None)
def test_the_bounds_hold_over_sites(seed, fewest, n_edges):
    rng = np.random.default_rng(seed)
    edges = np.sort(rng.normal(size=n_edges))
    died = [1.0 + scores_of(seed + i, 15 + 5 * i) for i in range(3)]
    alive = [scores_of(seed + 9 + i, 12 + 20 * i) for i in range(3)]
    counts = [sum(ranking.count_in_groups(own, edges, fewest) for own in group) for group in (died, alive)]
    estimate, low, high = ranking.area_from_counts(*counts)
    scores, flags = np.concatenate([*died, *alive]), np.arange(60 + 96) < 60
    exact = roc_auc_score(flags, scores)
    assert ranking.area_under_curve(scores, flags) == pytest.approx(exact, abs=1e-12)
    assert low - 1e-12 <= exact <= high + 1e-12
    assert low - 1e-12 <= estimate <= high + 1e-12


def test_bins_with_enough_patients_are_a_plain_histogram():
    scores, edges = scores_of(0, 500), np.array([-1.0, 0.0, 1.0])
    expected = np.histogram(scores, bins=[-np.inf, *edges, np.inf])[0]
    assert (ranking.count_in_groups(scores, edges, 10)[:2] == expected).all()


def test_groups_of_several_bins_show_no_extreme_score():
    edges = np.arange(1.0, 100.0)
    low, high, _ = ranking.count_in_groups(np.arange(40.5, 60.5), edges, 10)
    assert np.flatnonzero(low).tolist() == [0, 50]
    assert np.flatnonzero(high).tolist() == [49, 99]


def test_the_split_keeps_the_share_of_both_outcomes():
    outcomes = np.repeat([0, 1], [200, 50]).astype(np.int8)
    held_out = ranking.split_by_outcome(outcomes, 0.4, np.random.default_rng(0))
    assert (held_out[:200].sum(), held_out[200:].sum()) == (80, 20)
    other = ranking.split_by_outcome(outcomes, 0.4, np.random.default_rng(1))
    assert (held_out != other).any()


def test_edges_are_quantiles_of_the_scores_law():
    coefficients = np.array([0.7, 0.8, -0.3])
    rows = np.random.default_rng(0).normal(size=(20_000, 2))
    edges = ranking.score_edges(coefficients, 10)
    shares = np.diff([0, *(np.mean(0.7 + rows @ coefficients[1:] <= edge) for edge in edges), 1])
    np.testing.assert_allclose(shares, 0.1, atol=0.01)


def test_longer_slopes_make_wider_bins_and_no_finer_ones():
    z = np.random.default_rng(0).normal(size=(200, 2))
    short, long = np.array([0.3, 0.5, -0.2]), np.array([-4.0, 500.0, -200.0])
    counts = [ranking.count_in_groups(b[0] + z @ b[1:], ranking.score_edges(b, 1000), 10) for b in (short, long)]
    assert (counts[0] == counts[1]).all()


@pytest.mark.parametrize("share", [0.0, 0.011, 0.3, 0.34])
def test_shares_are_rounded_to_tenths(share):
    outcomes = np.repeat([0, 1], [200, 50]).astype(np.int8)
    held_out = ranking.split_by_outcome(outcomes, share, np.random.default_rng(0))
    assert held_out.sum() == round(share, 1) * 250


def test_no_pairs_no_area():
    assert np.isnan(ranking.area_under_curve(np.array([1.0, 2.0]), np.array([True, True])))
