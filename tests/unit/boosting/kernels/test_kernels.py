"""Compiled loops next to plain numpy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import expit, gammaln, softmax

from multicentre.boosting.kernels.derivatives import (
    GAMMA,
    LOGISTIC,
    POISSON,
    SOFTPROB,
    SQUARED,
    TWEEDIE,
    derive,
    find_losses,
)
from multicentre.boosting.kernels.descent import add_leaves, descend
from multicentre.boosting.kernels.histograms import sum_by_bin
from multicentre.trees.kernels.shape import place_children

UNITS = 2.0**30
rng = np.random.default_rng(0)
MARGINS = rng.normal(scale=3.0, size=(200, 1)).astype(np.float32)
SCORES = rng.normal(scale=3.0, size=(200, 4)).astype(np.float32)
CLASSES = rng.integers(0, 4, 200)
ONES = np.ones(200, dtype=np.float32)


def gradients(objective, margins, y, weights=None, power=0.0):
    weights = np.ones(len(y)) if weights is None else weights
    return derive(objective, margins, y.astype(np.float32), np.float32(weights), power, UNITS, UNITS) / UNITS


def test_logistic_gradients_and_weights():
    y = (CLASSES > 1).astype(float)
    share, weight = expit(MARGINS[:, 0].astype(float)), 1 + 2 * y
    expected = np.stack([(share - y) * weight, share * (1 - share) * weight], axis=1)
    np.testing.assert_allclose(gradients(LOGISTIC, MARGINS, y, weight)[0], expected, atol=5e-7)


def test_softmax_gradients():
    share, own = softmax(SCORES.astype(float), axis=1), np.eye(4)[CLASSES]
    found = gradients(SOFTPROB, SCORES, CLASSES)
    np.testing.assert_allclose(found[..., 0].T, share - own, atol=5e-7)
    np.testing.assert_allclose(found[..., 1].T, 2 * share * (1 - share), atol=5e-7)


def test_gradients_of_numbers_and_counts():
    y = CLASSES.astype(float)
    np.testing.assert_allclose(gradients(SQUARED, MARGINS, y)[0, :, 0], MARGINS[:, 0] - y, atol=1e-6)
    assert (gradients(SQUARED, MARGINS, y)[0, :, 1] == 1).all()
    found, mean = gradients(POISSON, MARGINS, y)[0], np.exp(MARGINS[:, 0].astype(float))
    np.testing.assert_allclose(found[:, 0], mean - y, rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[:, 1], mean * np.exp(0.7), rtol=1e-5)


@pytest.mark.parametrize("value", [np.inf, -np.inf, np.nan, 3e38])
def test_margins_that_a_coordinator_made_absurd_give_whole_numbers(value):
    margins = np.full((3, 1), value, dtype=np.float32)
    ones = np.ones(3, dtype=np.float32)
    for objective in (LOGISTIC, SQUARED, POISSON, GAMMA, TWEEDIE):
        assert (np.abs(derive(objective, margins, ones, ones, 1.5, UNITS, UNITS)) <= 2**52).all()
        assert (np.abs(find_losses(objective, margins, ones, ones, 1.5, UNITS)) <= 2**52).all()


def test_losses():
    y = (CLASSES > 1).astype(np.float32)
    margins = MARGINS[:, 0].astype(float)
    expected = {
        LOGISTIC: -np.log(expit(np.where(y == 1, margins, -margins))).sum(),
        SQUARED: ((margins - y) ** 2).sum(),
        POISSON: (gammaln(y + 1) + np.exp(margins) - margins * y).sum(),
    }
    for objective, total in expected.items():
        np.testing.assert_allclose(
            find_losses(objective, MARGINS, y, ONES, 0.0, UNITS).sum() / UNITS,
            total,
            rtol=1e-7,
        )
    total = -np.log(softmax(SCORES.astype(float), axis=1)[np.arange(200), CLASSES]).sum()
    found = find_losses(SOFTPROB, SCORES, CLASSES.astype(np.float32), ONES, 0.0, UNITS).sum() / UNITS
    np.testing.assert_allclose(found, total, rtol=1e-6)


def i4(*values):
    return np.array(values, dtype=np.int32)


@pytest.mark.parametrize(
    ("roots", "column"),
    [
        (i4(0), i4(0, -1)),
        (i4(0), i4(-1, -1)),
        (i4(0), i4(0, -1, -1, -1, -1)),
        (i4(1), i4(-1, -1)),
        (i4(0, 0), i4(-1)),
        (i4(0, 5), i4(-1)),
        (i4(0, -1), i4(-1)),
        (i4(), i4(-1)),
        (i4(0), i4()),
        (i4(0), i4(-1, 0, -1)),
    ],
)
def test_nodes_that_are_no_trees(roots, column):
    assert place_children(roots, column)[1] == -1


@given(st.lists(st.lists(st.booleans(), max_size=15), min_size=1, max_size=4))
def test_trees_that_were_split_in_order_are_read_back(decisions):
    columns, lefts, roots = [], [], []
    for splits in decisions:
        roots.append(len(columns))
        own, left = [-1], [-1]
        for node, split in enumerate(splits):
            if split and node < len(own):
                own[node], left[node] = 0, roots[-1] + len(own)
                own += [-1, -1]
                left += [-1, -1]
        columns += own
        lefts += left
    found, depth = place_children(i4(*roots), i4(*columns))
    assert found.tolist() == lefts
    assert 0 <= depth <= max(len(splits) for splits in decisions)


def test_missing_values_follow_the_default_and_all_others_the_cut():
    bins = np.array([[0], [1], [2], [3]], dtype=np.uint16)
    column, left = i4(0, -1, -1), i4(1, -1, -1)
    for cut, default, expected in [(1, 1, [1, 1, 2, 1]), (-1, 1, [2, 2, 2, 1]), (2, 0, [1, 1, 1, 2])]:
        sides = np.array([default, 0, 0], dtype=np.uint8)
        places = np.zeros((1, 4), dtype=np.int32)
        descend(places, bins, np.array([3]), i4(0), column, i4(cut, 0, 0), sides, left)
        assert places[0].tolist() == expected


def test_sums_by_bin_are_those_of_numpy():
    n_bins, first = np.array([4, 2]), np.array([0, 5, 8])
    binned = np.column_stack([rng.integers(0, n + 1, 300) for n in n_bins]).astype(np.uint16)
    places = rng.integers(0, 2, (2, 300)).astype(np.int32)
    leaves, drawn = places + i4(0, 2)[:, None], rng.random(300) < 0.5
    row, derivatives = i4(-1, 1, 0, -1), rng.integers(-9, 9, (2, 300, 2))
    for chosen in (drawn, np.zeros(0, dtype=np.bool_)):
        sums = sum_by_bin(binned, i4(0, 2), places, row, derivatives, first, 2, 3, chosen)
        for leaf, place in ((1, 1), (2, 0)):
            for column, cell in ((0, 4), (1, 0), (0, 2)):
                here = (leaves == leaf) & (binned[:, column] == cell)[None] & (chosen if len(chosen) else True)
                expected = [*derivatives[here].sum(axis=0).tolist(), here.sum()]
                assert sums[place, first[column] + cell].tolist() == expected
        without = sum_by_bin(binned, i4(0, 2), places, row, derivatives, first, 2, 2, chosen)
        assert (without == sums[..., :2]).all()


def test_leaves_are_added_to_the_margin_of_their_tree():
    places, value = rng.integers(0, 3, (2, 50)).astype(np.int32), rng.normal(size=6).astype(np.float32)
    margins = rng.normal(size=(50, 2)).astype(np.float32)
    expected = margins + value[places + i4(0, 3)[:, None]].T
    add_leaves(margins, places, i4(0, 3), value)
    assert (margins == expected).all()


def test_gradients_of_positive_numbers():
    y, margins = CLASSES + 0.5, MARGINS[:, 0].astype(float)
    mean, weights = np.exp(margins), rng.gamma(2.0, 1.0, 200).astype(np.float32)
    found = gradients(GAMMA, MARGINS, y, weights)[0]
    np.testing.assert_allclose(found[:, 0], weights * (1 - y / mean), rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(found[:, 1], weights * y / mean, rtol=2e-5)
    for power in (1.1, 1.9):
        found = gradients(TWEEDIE, MARGINS, y, weights, power)[0]
        slope = mean ** (2 - power) - y * mean ** (1 - power)
        curvature = (2 - power) * mean ** (2 - power) - (1 - power) * y * mean ** (1 - power)
        np.testing.assert_allclose(found[:, 0], weights * slope, rtol=2e-4, atol=2e-5)
        np.testing.assert_allclose(found[:, 1], weights * curvature, rtol=2e-5)


@pytest.mark.parametrize("objective", [SQUARED, POISSON, GAMMA, TWEEDIE])
def test_slopes_are_derivatives_of_losses(objective):
    margins, y = np.linspace(-1.0, 1.5, 40)[:, None], np.linspace(0.5, 6.0, 40).astype(np.float32)
    weights, power, step = np.linspace(0.5, 2.0, 40).astype(np.float32), 1.4, 2.0**-10
    slopes = derive(objective, np.float32(margins), y, weights, power, UNITS, UNITS)[0, :, 0] / UNITS
    sides = [find_losses(objective, np.float32(margins + h), y, weights, power, UNITS) / UNITS for h in (step, -step)]
    factor = {SQUARED: 2.0, GAMMA: 2.0}.get(objective, 1.0)  # these losses are twice the negative log likelihood
    np.testing.assert_allclose((sides[0] - sides[1]) / (2 * step), factor * slopes, rtol=1e-3, atol=1e-3)
