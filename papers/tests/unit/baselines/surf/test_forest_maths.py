import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre_papers.baselines.surf.maths import (
    allot_trees,
    brier_gains,
    chances_of,
    concordance_gains,
    draw_trees,
)

seeds = st.integers(0, 2**32)


@given(st.integers(1, 60), st.lists(st.tuples(st.integers(1, 500), st.integers(0, 20)), min_size=1, max_size=6), seeds)
def test_no_site_gives_more_than_it_has_and_all_that_can_be_is_given(n_estimators, sites, seed):
    n_patients, offered = np.array(sites, dtype=float).T
    if not offered.any():
        return
    given_ = allot_trees(n_estimators, n_patients, offered.astype(int), np.random.default_rng(seed))
    assert (given_ >= 0).all()
    assert (given_ <= offered).all()
    assert given_.sum() == min(n_estimators, offered.sum())


def test_sites_give_in_proportion_to_their_patients():
    rng = np.random.default_rng(0)
    given_ = sum(allot_trees(100, np.array([100.0, 300.0, 600.0]), np.full(3, 100), rng) for _ in range(200))
    np.testing.assert_allclose(given_ / given_.sum(), [0.1, 0.3, 0.6], atol=0.01)


def test_with_replacement_no_site_is_short_and_one_without_trees_gives_none():
    given_ = allot_trees(50, np.array([1e6, 1.0, 1e6]), np.array([2, 5, 0]), np.random.default_rng(0), replacement=True)
    assert given_[0] > 2
    assert given_.sum() == 50
    assert given_[2] == 0


def test_the_draw_follows_the_chances():
    rng = np.random.default_rng(1)
    drawn = sum(draw_trees(np.array([0.2, 0.0, 0.8]), 1, rng) for _ in range(4000))
    np.testing.assert_allclose(drawn / 4000, [0.2, 0.0, 0.8], atol=0.02)


@given(st.lists(st.floats(0, 10), min_size=1, max_size=20), st.integers(0, 20), seeds)
def test_without_replacement_each_tree_is_drawn_once_and_those_without_a_chance_last(gains, wanted, seed):
    chances = chances_of(np.array(gains))
    assert chances.sum() == pytest.approx(1.0)
    drawn = draw_trees(chances, wanted, np.random.default_rng(seed))
    assert set(drawn.tolist()) <= {0, 1}
    assert drawn.sum() == min(wanted, len(gains))
    if wanted <= (chances > 0).sum():
        assert not drawn[chances == 0].any()


def test_with_replacement_a_tree_is_drawn_again():
    drawn = draw_trees(np.array([1.0, 0.0]), 5, np.random.default_rng(0), replacement=True)
    assert drawn.tolist() == [5, 0]


def test_brier_gains_are_one_over_the_mean_squared_error_without_censoring():
    rng = np.random.default_rng(0)
    time, event = rng.exponential(10.0, 50), np.ones(50, dtype=np.bool_)
    grid = np.linspace(0.1, time.max(), 30)
    curves = np.sort(rng.random((50, 3, 30)), axis=2)[..., ::-1]
    gains = brier_gains(curves, grid, time, event, time, event)
    times = np.linspace(time.min(), np.sort(time)[-2], 100)
    places = np.searchsorted(grid, times, side="right")
    for tree in range(3):
        padded = np.column_stack([np.ones(50), curves[:, tree]])
        errors = np.mean((padded[:, places] - (time[:, None] > times)) ** 2, axis=0)
        expected = np.trapezoid(errors, times) / (times[-1] - times[0])
        assert gains[tree] == pytest.approx(1.0 / expected)


def test_without_a_stretch_of_time_or_a_pair_all_trees_are_alike():
    time, event = np.full(4, 3.0), np.zeros(4, dtype=np.bool_)
    assert brier_gains(np.ones((4, 2, 1)), np.array([9.0]), time, event, time, event).tolist() == [1.0, 1.0]
    assert concordance_gains(np.ones((4, 2)), time, event).tolist() == [1.0, 1.0]
    assert chances_of(np.ones(4)).tolist() == [0.25] * 4
