"""Areas under the curve from counts, between bounds that hold."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from multicentre.phenotyping.outcome import maths as ranking

SEEDS = st.integers(0, 2**20)


def scores_of(seed, n):
    rng = np.random.default_rng(seed)
    scores = rng.normal(size=n) ** 3
    return np.where(rng.random(n) < 0.3, scores.round(), scores)


@given(SEEDS, st.integers(1, 40))
def test_the_bounds_hold_and_lie_as_far_apart_as_the_share_of_pairs_within_a_bin(seed, n_edges):
    rng = np.random.default_rng(seed)
    edges, flags = np.sort(rng.normal(size=n_edges)), np.arange(156) < 60
    scores = scores_of(seed, 156) + flags
    bins = np.searchsorted(edges, scores, side="right")
    died, alive = (np.bincount(bins[of], minlength=n_edges + 1).astype(float) for of in (flags, ~flags))
    estimate, low, high = ranking.area_from_counts(died, alive)
    exact = roc_auc_score(flags, scores)
    assert ranking.area_under_curve(scores, flags) == pytest.approx(exact, abs=1e-12)
    assert low - 1e-12 <= exact <= high + 1e-12
    assert estimate == pytest.approx(roc_auc_score(flags, bins), abs=1e-12)
    assert high - low == pytest.approx((bins[flags][:, None] == bins[~flags]).mean(), abs=1e-12)
    assert estimate - low == pytest.approx(high - estimate, abs=1e-12)


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
    bins = [np.searchsorted(ranking.score_edges(b, 1000), b[0] + z @ b[1:]) for b in (short, long)]
    assert (bins[0] == bins[1]).all()


@pytest.mark.parametrize("share", [0.0, 0.011, 0.3, 0.34])
def test_shares_are_rounded_to_tenths(share):
    outcomes = np.repeat([0, 1], [200, 50]).astype(np.int8)
    held_out = ranking.split_by_outcome(outcomes, share, np.random.default_rng(0))
    assert held_out.sum() == round(share, 1) * 250


def test_no_pairs_no_area():
    assert np.isnan(ranking.area_under_curve(np.array([1.0, 2.0]), np.array([True, True])))
