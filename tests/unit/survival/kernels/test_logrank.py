import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.survival.kernels.logrank import best_cut, leaf_curve, score_patients
from multicentre.survival.times import count_by_bin, kaplan_meier
from support.examples import examples


def logrank(left, bins, happened, weights, n_times):
    """The two-sample log-rank statistic, written as in textbooks."""
    observed, variance = 0.0, 0.0
    for time in range(n_times):
        at_risk, died = bins >= time, happened & (bins == time)
        y, d = weights[at_risk].sum(), weights[died].sum()
        y1, d1 = weights[at_risk & left].sum(), weights[died & left].sum()
        if d > 0:
            observed += d1 - y1 * d / y
            variance += y1 * (y - y1) * d * (y - d) / (y**2 * (y - 1)) if y > 1 else 0.0
    return observed**2 / variance if variance > 1e-9 else 0.0


@st.composite
def nodes(draw):
    n, n_times, n_bins = draw(st.integers(4, 30)), draw(st.integers(1, 6)), draw(st.integers(2, 6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    bins = rng.integers(0, n_times + 1, n)
    happened = (rng.random(n) < 0.6) & (bins < n_times)
    weights = rng.integers(1, 4, n).astype(float)
    column = rng.integers(0, n_bins, n).astype(np.uint8)
    return n_times, n_bins, column, bins, happened, weights


@examples(150)
@given(nodes(), st.integers(1, 3), st.integers(0, 2))
def test_the_best_cut_is_the_best_of_all_that_are_allowed(node, min_samples_leaf, min_events_leaf):
    n_times, n_bins, column, bins, happened, weights = node
    rows = np.arange(len(bins))
    scored = score_patients(rows, bins, happened, weights, n_times)
    used, cut, found = best_cut(column, n_bins, rows, happened, weights, *scored, min_samples_leaf, min_events_leaf)

    allowed = {}
    for at in range(n_bins - 1):
        left = column <= at
        sizes, events = (left.sum(), (~left).sum()), (happened[left].sum(), happened[~left].sum())
        if min(sizes) >= min_samples_leaf and min(events) >= min_events_leaf:
            allowed[at] = logrank(left, bins, happened, weights, n_times)
    assert used == len(np.unique(column))
    best = max(allowed.values(), default=0.0)
    if best < 1e-6:
        assert cut == -1 or found < 1e-6
    else:
        assert found == pytest.approx(best, rel=1e-9)
        assert allowed[cut] == pytest.approx(best, rel=1e-9)


def test_log_rank_scores_sum_to_zero_and_skip_patients_who_leave_before_the_first_event():
    bins, happened = np.array([0, 1, 1, 2, 3]), np.array([False, True, False, True, False])
    places, scores, at_risk, _ = score_patients(np.arange(5), bins, happened, np.ones(5), 3)
    assert places.tolist() == [0, 1, 1, 2, 2]
    assert at_risk.tolist() == [4.0, 2.0]
    assert scores.sum() == pytest.approx(0.0, abs=1e-12)


def test_of_cuts_through_empty_bins_the_middle_is_taken():
    bins, happened, ones = np.arange(4), np.ones(4, dtype=np.bool_), np.ones(4)
    scored = score_patients(np.arange(4), bins, happened, ones, 4)
    column = np.array([1, 1, 6, 6], dtype=np.uint8)
    assert best_cut(column, 8, np.arange(4), happened, ones, *scored, 1, 1)[1] == 3


@given(nodes())
def test_a_leafs_curve_is_the_kaplan_meier_estimate(node):
    n_times, _, _, bins, happened, weights = node
    curve = leaf_curve(np.arange(len(bins)), bins, happened, weights, n_times)
    np.testing.assert_allclose(curve, kaplan_meier(*count_by_bin(bins, happened, n_times, weights)), atol=1e-12)
    assert (np.diff(curve) <= 0).all()
    assert curve.min() >= 0.0
    assert curve.max() <= 1.0
