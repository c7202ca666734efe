import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.errors import ConfigurationError
from multicentre.survival.learners.tree import TreeSettings, fit_trees
from multicentre.survival.times import restricted_mean
from support.examples import examples
from support.tree_patients import draw_data, lossless

SMALL = TreeSettings(min_samples_leaf=1, min_events_leaf=1, max_features=None)


def counts_of_leaves(tree, patients):
    return np.bincount(tree.leaves(patients.rows)[:, 0])


@examples(25)
@given(st.integers(0, 10_000))
def test_whole_weights_are_repeated_patients(seed):
    data = draw_data(80, seed=seed)
    grid = np.unique(data.time)
    drawn = np.random.default_rng(seed).multinomial(80, np.full(80, 1 / 80))
    rows = np.repeat(np.arange(80), drawn)
    weighted = fit_trees(lossless(data, grid=grid), drawn.astype(float), SMALL)
    repeated = lossless(data.take(rows), grid=grid)
    repeated.agreed = lossless(data, grid=grid).agreed
    alone = fit_trees(repeated, np.ones(80), SMALL)
    np.testing.assert_array_equal(weighted.column, alone.column)
    np.testing.assert_array_equal(weighted.threshold, alone.threshold)
    np.testing.assert_allclose(weighted.curves, alone.curves, atol=1e-10)


@pytest.mark.parametrize("scale", [1e-4, 1e6])
def test_only_ratios_of_weights_matter(scale):
    patients, weights = lossless(draw_data()), np.random.default_rng(3).random(240)
    first, second = fit_trees(patients, weights), fit_trees(patients, scale * weights)
    np.testing.assert_array_equal(first.column, second.column)
    np.testing.assert_allclose(first.curves, second.curves, atol=1e-12)


def test_the_same_patients_in_another_order_give_the_same_tree():
    data = draw_data()
    order = np.random.default_rng(1).permutation(len(data))
    one = fit_trees(lossless(data), np.ones(240), TreeSettings(max_features=None))
    other = fit_trees(lossless(data.take(order)), np.ones(240), TreeSettings(max_features=None))
    np.testing.assert_array_equal(one.threshold, other.threshold)
    np.testing.assert_allclose(one.curves, other.curves, atol=1e-12)


def test_leaves_hold_enough_distinct_patients_and_events_whatever_the_weights():
    patients = lossless(draw_data())
    drawn = np.random.default_rng(0).multinomial(240, np.full(240, 1 / 240), size=20).astype(float)
    forest = fit_trees(patients, drawn, TreeSettings(min_samples_leaf=12, min_events_leaf=4))
    leaves, smallest = forest.leaves(patients.rows), []
    for tree, weights in enumerate(drawn):
        own = leaves[weights > 0, tree]
        sizes = np.bincount(own)
        events = np.bincount(own, weights=patients.happened[weights > 0])
        smallest.append(sizes[sizes > 0].min())
        assert events[sizes > 0].min() >= 4
    assert forest.patients == min(smallest) >= 12
    assert len(forest.roots) == 20
    assert len(forest.curves) > 40
    assert forest.valid(5) is forest


def test_thresholds_lie_on_agreed_edges():
    patients = lossless(draw_data())
    forest = fit_trees(patients, np.ones((10, 240)), TreeSettings(min_samples_leaf=5))
    for column, threshold in zip(forest.column, forest.threshold, strict=True):
        assert column < 0 or threshold in patients.agreed.edges_of(column)
    assert (forest.column >= 0).any()


def test_depth_is_limited():
    patients = lossless(draw_data())
    stump = fit_trees(patients, np.ones(240), TreeSettings(max_depth=1))
    assert len(stump.column) == 3
    assert counts_of_leaves(stump, patients).sum() == 240


def test_a_leafs_curve_is_that_of_its_patients():
    patients = lossless(draw_data())
    tree = fit_trees(patients, np.ones(240))
    curves = tree.survival(patients.rows)
    for leaf in np.unique(tree.leaves(patients.rows)):
        inside = tree.leaves(patients.rows)[:, 0] == leaf
        survival = 1.0
        for place, time in enumerate(patients.agreed.times):
            died = (patients.data.time == time) & patients.happened & inside
            at_risk = (patients.data.time >= time) & inside
            survival *= 1.0 - died.sum() / max(at_risk.sum(), 1)
            np.testing.assert_allclose(curves[inside, place], survival, atol=1e-12)


def test_the_seed_draws_columns():
    patients = lossless(draw_data())
    drawn = TreeSettings(max_features=1)
    first, again, other = (fit_trees(patients, np.ones((5, 240)), drawn, np.random.default_rng(s)) for s in (1, 1, 2))
    np.testing.assert_array_equal(first.column, again.column)
    assert len(first.column) != len(other.column) or (first.column != other.column).any()


def test_too_few_events_give_no_tree_and_are_left_out_of_a_forest():
    data = draw_data()
    patients = lossless(data)
    censored = np.where(patients.happened, 0.0, 1.0)
    assert fit_trees(patients, censored).is_empty
    assert fit_trees(patients, np.zeros(240)).is_empty
    forest = fit_trees(patients, np.stack([censored, np.ones(240)]))
    assert forest.shares.tolist() == [1.0]


def test_restricted_means_by_leaf_are_those_of_the_curves():
    patients = lossless(draw_data())
    forest = fit_trees(patients, np.random.default_rng(0).random((7, 240)))
    slow = restricted_mean(forest.survival(patients.rows), forest.times)
    np.testing.assert_allclose(forest.restricted_mean(patients.rows), slow, atol=1e-10)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("min_samples_leaf", 0),
        ("min_events_leaf", -1),
        ("max_features", 0),
        ("max_features", "half"),
        ("max_depth", -1),
    ],
)
def test_settings_out_of_range_are_refused(name, value):
    with pytest.raises(ConfigurationError, match=name):
        TreeSettings(**{name: value})
