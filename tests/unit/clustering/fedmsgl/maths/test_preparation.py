"""Views made comparable, and their Gram factor."""

import numpy as np
import pytest

from multicentre.clustering.fedmsgl.maths.preparation import (
    choose_norm,
    count_effective_columns,
    factor_gram,
    manifold_weights,
    measure_length_share,
    prepare_view,
)

NORMS = ("l2", "raw", "z", "mms")


def gram(factor):
    return (factor.vectors * factor.values) @ factor.vectors.T


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_a_prepared_view_is_centred_and_of_unit_size(norm, scale):
    X = scale * np.random.default_rng(0).uniform(0.1, 1.0, (30, 4))
    ready = prepare_view(X, norm)
    assert np.abs(ready.mean(axis=0)).max() < 1e-12
    assert np.mean(np.sum(ready**2, axis=1)) == pytest.approx(1.0, rel=1e-12)
    assert ready == pytest.approx(prepare_view(X / scale * 3.0, norm), abs=1e-9)


@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize(
    "X",
    [np.zeros((5, 3)), np.full((5, 3), 0.1), np.tile([0.1, 0.7, 1e8], (5, 1)), np.full((5, 1), 1e300)],
    ids=["zero", "constant", "same sample", "huge"],
)
def test_a_view_without_differences_is_nought(norm, X):
    assert np.array_equal(prepare_view(X, norm), np.zeros(X.shape))


def test_zero_samples_and_constant_features_do_no_harm():
    X = np.array([[0.0, 0.0, 7.0], [1.0, 2.0, 7.0], [0.0, 0.0, 7.0], [3.0, -1.0, 7.0]])
    assert np.allclose(prepare_view(X, "z")[:, 2], 0.0)
    X[0] = 0.0
    X[2] = 5.0
    for norm in NORMS:
        assert np.isfinite(prepare_view(X, norm)).all()


def test_each_normalisation_is_what_it_says():
    rng = np.random.default_rng(1)
    X = rng.normal(2.0, 3.0, (20, 5))
    low, high = X.min(axis=1, keepdims=True), X.max(axis=1, keepdims=True)
    direct = {
        "l2": X / np.linalg.norm(X, axis=1, keepdims=True),
        "raw": X,
        "z": (X - X.mean(axis=0)) / X.std(axis=0),
        "mms": (X - low) / (high - low),
    }
    for norm, expected in direct.items():
        expected = expected - expected.mean(axis=0)
        expected /= np.sqrt(np.mean(np.sum(expected**2, axis=1)))
        assert prepare_view(X, norm) == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize(("n", "d"), [(12, 5), (12, 12), (12, 40), (12, 1), (2, 1), (2, 7)])
def test_the_factor_rebuilds_the_gram_matrix(n, d):
    X = prepare_view(np.random.default_rng(2).normal(size=(n, d)), "raw")
    factor = factor_gram(X)
    assert gram(factor) == pytest.approx(X @ X.T, abs=1e-12)
    assert factor.vectors.T @ factor.vectors == pytest.approx(np.eye(len(factor.values)), abs=1e-10)
    assert np.all(np.diff(factor.values) <= 0.0)
    assert len(factor.values) == min(n - 1, d)


def test_narrow_and_wide_views_of_the_same_samples_agree():
    rng = np.random.default_rng(3)
    X = prepare_view(rng.normal(size=(10, 4)), "raw")
    wide = X @ np.linalg.qr(rng.normal(size=(30, 4)))[0].T
    narrow, broad = factor_gram(X), factor_gram(wide)
    assert len(narrow.values) == len(broad.values) == 4
    assert narrow.values == pytest.approx(broad.values, rel=1e-10)
    assert gram(narrow) == pytest.approx(gram(broad), abs=1e-12)


def test_rank_is_that_of_the_samples():
    rng = np.random.default_rng(4)
    X = rng.normal(size=(9, 2)) @ rng.normal(size=(2, 6))
    assert len(factor_gram(X).values) == 2
    assert len(factor_gram(X.T @ X).values) == 2
    assert factor_gram(np.zeros((5, 3))).vectors.shape == (5, 0)
    assert factor_gram(np.zeros((3, 5))).values.shape == (0,)


def test_manifold_weights_are_relative_distances():
    X = np.random.default_rng(5).normal(size=(8, 3))
    M = manifold_weights(X)
    distances = np.linalg.norm(X[:, None] - X[None], axis=2)
    assert pytest.approx(distances / (distances.sum(axis=1, keepdims=True) / 7), abs=1e-9) == M
    assert M.sum(axis=1) == pytest.approx(np.full(8, 7.0))


def test_duplicates_weigh_nothing():
    X = np.array([[0.1, 0.7], [0.1, 0.7], [2.0, 1.0]])
    M = manifold_weights(X)
    assert M[0, 1] == M[1, 0] == 0.0
    assert np.array_equal(manifold_weights(np.ones((4, 2))), np.zeros((4, 4)))
    assert np.array_equal(manifold_weights(np.ones((1, 2))), [[0.0]])


def test_columns_of_different_units_are_standardised_and_columns_of_one_kind_are_not():
    rng = np.random.default_rng(5)
    mixed = rng.normal(size=(40, 6)) * [1, 1, 1, 1, 1, 200.0] + [50, 1, 1, 1, 1, 140.0]
    alike = rng.random((40, 12))
    assert (choose_norm(mixed), choose_norm(alike)) == ("z", "l2")
    assert np.array_equal(prepare_view(mixed, "auto"), prepare_view(mixed, "z"))
    assert np.array_equal(prepare_view(alike, "auto"), prepare_view(alike, "l2"))


def test_columns_with_a_common_level_are_standardised_since_rows_of_length_1_would_lose_it():
    rng = np.random.default_rng(6)
    level, noise = rng.uniform(1.0, 3.0, size=(60, 1)), rng.normal(size=(60, 9))
    assert measure_length_share(level + 0.05 * noise) > 0.9
    assert measure_length_share(2.0 + 0.5 * noise) < 0.3
    assert (choose_norm(level + 0.05 * noise), choose_norm(2.0 + 0.5 * noise)) == ("z", "l2")


@pytest.mark.parametrize("unit", [1e-150, 1.0, 1e150])
def test_the_share_of_the_lengths_is_that_of_the_definition_in_any_unit(unit):
    X = np.random.default_rng(7).gamma(2.0, size=(30, 6))
    lengths = np.linalg.norm(X, axis=1)
    mean = (X / lengths[:, None]).mean(axis=0)
    expected = lengths.var() * (mean @ mean) / X.var(axis=0).sum()
    assert measure_length_share(unit * X) == pytest.approx(expected, rel=1e-12)
    assert measure_length_share(np.zeros((3, 2))) == measure_length_share(unit * np.ones((3, 2))) == 0.0


@pytest.mark.parametrize("unit", [1e-150, 1.0, 1e150])
def test_the_effective_number_of_columns_is_the_same_in_any_unit(unit):
    X = np.ones((3, 8)) * np.array([1, 1, 1, 1, 0, 0, 0, 0])
    assert count_effective_columns(unit * X) == pytest.approx(4.0)
    assert count_effective_columns(np.zeros((3, 2))) == 0.0
