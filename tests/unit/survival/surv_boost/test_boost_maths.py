"""Votes, weights, losses and searches of boosting: closed forms, properties, and what stops the rounds."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.survival.surv_boost.maths import (
    N_BINS,
    N_DIGITS,
    NO_ERROR,
    NO_HYPOTHESIS,
    TOO_MUCH_ERROR,
    Rule,
    brier_losses,
    brier_tables,
    decide,
    effective_number,
    go_to_highest,
    mark_bin,
    normalised,
    resample,
    reweigh,
    scale_weights,
    share_out,
    split_in_folds,
    time_losses,
    vote_of,
    weighted_median,
)

GRID = np.array([1.0, 2.0, 4.0, 7.0])


def test_the_first_of_equal_hypotheses_is_chosen_and_what_is_not_finite_is_passed_over():
    verdict = decide(np.array([np.nan, 0.2, 0.1, 0.1, np.inf]), np.ones(5), 1.0, Rule(), is_first=False)
    assert verdict.index == 2
    assert verdict.error == pytest.approx(0.1)
    assert verdict.vote == pytest.approx(np.log(9.0))


def test_a_hypothesis_with_one_huge_error_does_not_win_by_its_own_scale():
    verdict = decide(np.array([0.3, 0.4]), np.array([1.0, 100.0]), 1.0, Rule(), is_first=False)
    assert verdict.index == 0


def test_an_error_of_a_half_is_kept_once_with_a_small_vote_and_ends_the_rounds():
    first = decide(np.array([0.5]), np.ones(1), 1.0, Rule(), is_first=True)
    later = decide(np.array([0.5]), np.ones(1), 1.0, Rule(), is_first=False)
    assert (first.vote, first.stop, first.is_selected) == (1e-3, TOO_MUCH_ERROR, True)
    assert (later.vote, later.stop, later.is_selected) == (0.0, TOO_MUCH_ERROR, False)


def test_no_error_gives_a_finite_vote_and_ends_the_rounds():
    found = decide(np.array([0.0]), np.ones(1), 1.0, Rule(rate=0.1), is_first=False)
    assert found.stop == NO_ERROR
    assert found.vote == pytest.approx(0.1 * np.log(1e10), rel=1e-9)
    assert decide(np.array([0.0]), np.zeros(1), 1.0, Rule(), is_first=False).error == 0.0


def test_nobody_to_choose_from_is_said():
    for losses, total in ((np.array([np.nan]), 1.0), (np.zeros(0), 1.0), (np.ones(1), 0.0)):
        found = decide(losses, np.ones(len(losses)), total, Rule(), is_first=True)
        assert (found.index, found.stop, found.is_selected) == (-1, NO_HYPOTHESIS, False)


def test_equal_votes_know_no_stop():
    found = decide(np.array([0.9]), np.ones(1), 1.0, Rule(equal=True), is_first=False)
    assert (found.vote, found.stop) == (1.0, "")


def test_samme_stops_at_the_error_of_a_guess_and_votes_one_without_error():
    rule = Rule.of_classes(10, 1.0)
    assert decide(np.array([0.8]), np.ones(1), 1.0, rule, is_first=False).vote == pytest.approx(np.log(0.25 * 9))
    assert not decide(np.array([0.9]), np.ones(1), 1.0, rule, is_first=False).is_selected
    assert decide(np.array([0.0]), np.ones(1), 1.0, rule, is_first=False).vote == 1.0


@given(st.floats(1e-9, 0.499), st.floats(0.01, 1.0))
def test_a_vote_is_the_rate_times_the_logarithm_of_one_over_beta(error, rate):
    assert vote_of(error, Rule(rate)) == pytest.approx(-rate * np.log(error / (1 - error)))


@given(st.lists(st.floats(0, 1), min_size=2, max_size=8), st.floats(0.001, 5))
def test_reweighing_is_druckers_power_of_beta(losses, vote):
    losses = np.array(losses)
    beta = np.exp(-vote)
    np.testing.assert_allclose(np.exp(reweigh(np.zeros(len(losses)), losses, vote)), beta ** (1 - losses))


def test_fifty_rounds_of_extreme_weights_neither_vanish_nor_overflow():
    log_weights, losses = np.zeros(3), np.array([0.0, 0.5, 1.0])
    for _ in range(50):
        log_weights = reweigh(log_weights, losses, 23.0)
    np.testing.assert_allclose(normalised(log_weights), [0.0, 0.0, 3.0], atol=1e-200)
    assert np.isfinite(log_weights).all()
    np.testing.assert_allclose(share_out(log_weights, 6.0)[2], np.log(0.5))
    assert np.isfinite(share_out(log_weights, 6.0)).all()


def test_a_cap_bounds_the_largest_weight():
    scaled = scale_weights(np.log([1.0, 1.0, 8.0]), np.log(10.0), np.log(0.5))
    np.testing.assert_allclose(np.exp(scaled), [0.1, 0.1, 0.5])


def test_those_without_part_weigh_nothing_and_are_never_drawn():
    weights = normalised(np.array([0.0, -np.inf, 1.0]))
    assert weights[1] == 0
    assert weights.sum() == pytest.approx(2.0)
    drawn = resample(weights, np.random.default_rng(0))
    assert drawn[1] == 0
    assert drawn.sum() == 2
    assert not normalised(np.full(2, -np.inf)).any()
    assert not resample(np.zeros(2), np.random.default_rng(0)).any()


def test_the_effective_number_counts_equal_weights():
    assert effective_number(np.array([2.0, 2.0, 0.0])) == 2.0
    assert effective_number(np.array([1.0, 1e-9])) == pytest.approx(1.0)


@given(st.lists(st.integers(0, 1), min_size=2, max_size=40), st.integers(2, 5))
def test_folds_are_even_over_all_and_nearly_so_within_a_stratum(strata, n_splits):
    strata = np.array(strata)
    folds = split_in_folds(strata, n_splits, np.random.default_rng(1))
    sizes = np.bincount(folds, minlength=n_splits + 1)[1:]
    assert sizes.max() - sizes.min() <= 1
    for stratum in (0, 1):
        own = np.bincount(folds[strata == stratum], minlength=n_splits + 1)[1:]
        assert own.max() - own.min() <= 1


def test_a_prediction_later_than_the_end_of_follow_up_costs_nothing():
    predicted = np.array([[3.0, 9.0], [3.0, 9.0]])
    found = time_losses(predicted, np.array([5.0, 5.0]), np.array([True, False]))
    assert found.tolist() == [[2.0, 4.0], [2.0, 0.0]]


def brute_brier(curve, time, event, staying):
    """Integrate the squared error over the grid with inverse censoring weights, term by term."""
    total, before = 0.0, np.concatenate([[1.0], staying])
    k = int(np.searchsorted(GRID, time))
    for place, width in enumerate(np.diff(GRID, prepend=0.0)):
        if k > place:
            total += width * (1 - curve[place]) ** 2 / max(staying[place], 0.1)
        elif event:
            total += width * curve[place] ** 2 / max(before[k], 0.1)
    return total / GRID[-1]


def test_brier_losses_are_those_of_the_definition():
    rng = np.random.default_rng(0)
    curves = np.sort(rng.random((5, 4)), axis=1)[:, ::-1]
    staying = np.array([0.9, 0.5, 0.2, 0.01])
    times = np.array([0.5, 1.0, 3.0, 7.0, 9.0, 6.0])
    happened = np.array([True, False, True, True, False, False])
    row = rng.integers(0, 5, 6)
    found = brier_losses(brier_tables(curves, GRID, staying), row, np.searchsorted(GRID, times), happened, staying)
    wanted = [brute_brier(curves[r], t, e, staying) for r, t, e in zip(row, times, happened, strict=True)]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
    assert found.max() <= 16.0


@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=5))
def test_the_largest_of_all_sites_is_found_from_sums_of_marks(sites):
    values = np.array(sites)
    low, width = np.zeros(3), 1.0
    for _ in range(N_DIGITS):
        width /= N_BINS
        low = go_to_highest(low, width, sum(mark_bin(own, low, width) for own in values))
    np.testing.assert_allclose(low + width, values.max(axis=0), rtol=0, atol=1e-14)


def test_the_weighted_median_is_the_value_at_half_of_the_votes():
    values = np.array([[5.0, 1.0, 3.0], [1.0, 2.0, 3.0]])
    assert weighted_median(values, np.array([1.0, 1.0, 1.0])).tolist() == [3.0, 2.0]
    assert weighted_median(values, np.array([10.0, 1.0, 1.0])).tolist() == [5.0, 1.0]
