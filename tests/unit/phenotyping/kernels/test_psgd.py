from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.phenotyping.kernels.clipped import pass_patients
from multicentre.phenotyping.kernels.hals import squared_error_at_entries
from multicentre.phenotyping.kernels.mttkrp import SparseTensor
from multicentre_papers.entry_descent import pass_entries
from support.examples import examples


def plain_pass_entries(tensor, order, factors, step, elastic_penalty, targets, nonnegative):
    factors = [factor.copy() for factor in factors]
    visits = [np.bincount(tensor.coordinates[:, m], minlength=size) for m, size in enumerate(tensor.shape)]
    for e in order:
        place = tensor.coordinates[e]
        for n, i in enumerate(place):
            others = np.prod([factors[m][place[m]] for m in range(len(place)) if m != n], axis=0)
            slope = (factors[n][i] @ others - tensor.counts[e]) * others
            if n > 0:
                slope = slope + elastic_penalty / visits[n][i] * (factors[n][i] - targets[n - 1][i])
            factors[n][i] = factors[n][i] - step * slope
            if nonnegative:
                factors[n][i] = np.maximum(factors[n][i], 0)
    return factors


@pytest.mark.parametrize("nonnegative", [True, False])
def test_a_pass_over_entries_is_the_plain_one(draw, rng, shape, nonnegative):
    tensor, factors = draw(shape)
    if not nonnegative:
        factors = [rng.standard_normal(factor.shape) for factor in factors]
    targets = [rng.random(factor.shape) for factor in factors[1:]]
    order = rng.permutation(tensor.nnz)
    expected = plain_pass_entries(tensor, order, factors, 0.1, 2.0, targets, nonnegative)
    before = [factor.copy() for factor in factors]
    memberships, features = pass_entries(
        tensor, order, factors[0], factors[1:], 0.1, 2.0, targets, nonnegative=nonnegative
    )
    for found, wanted in zip([memberships, *features], expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-11, atol=1e-12)
    assert all((wanted >= 0).all() for wanted in expected) is nonnegative
    for factor, kept in zip(factors, before, strict=True):
        np.testing.assert_array_equal(factor, kept)


def test_passes_lower_the_error_at_entries(draw, rng):
    tensor, factors = draw((9, 4, 5))
    memberships, features = factors[0], factors[1:]
    for _ in range(200):
        memberships, features = pass_entries(
            tensor, rng.permutation(tensor.nnz), memberships, features, 0.05, 0.0, factors[1:]
        )
    assert squared_error_at_entries(tensor, [memberships, *features]) < 0.2 * squared_error_at_entries(tensor, factors)


def test_a_strong_pull_holds_rows_at_the_target(draw, rng):
    tensor, factors = draw((9, 4, 5))
    targets = [rng.random(factor.shape) for factor in factors[1:]]
    order = np.arange(tensor.nnz)
    loose = pass_entries(tensor, order, factors[0], targets, 0.05, 0.0, targets)[1]
    held = pass_entries(tensor, order, factors[0], targets, 0.05, 10.0, targets)[1]
    for free, pulled, target in zip(loose, held, targets, strict=True):
        assert np.linalg.norm(pulled - target) < np.linalg.norm(free - target)


def project(factor):
    factor = np.maximum(factor, 0)
    return factor / np.maximum(np.linalg.norm(factor, axis=0), 1)


def plain_pass_patients(tensor, order, memberships, features, mode, step, largest_product):
    factor = project(features[mode - 1])
    for i in order:
        membership = memberships[i] / max(1.0, np.abs(memberships[i]).sum())
        weights = np.outer(membership, membership)
        for m in range(1, tensor.n_modes):
            if m != mode:
                weights = weights * (features[m - 1].T @ features[m - 1])
        products = np.zeros_like(factor)
        for place, count in zip(tensor.coordinates, tensor.counts, strict=True):
            if place[0] == i:
                others = [features[m - 1][place[m]] for m in range(1, tensor.n_modes) if m != mode]
                products[place[mode]] += count * membership * np.prod(others, axis=0)
        share = min(1.0, largest_product / max(np.linalg.norm(products), 1e-300))
        factor = project(factor - step * (factor @ weights - share * products))
    return factor


@pytest.mark.parametrize("shape", [(9, 4, 5), (7, 4, 3, 5)], ids=["3 modes", "4 modes"])
@pytest.mark.parametrize("largest_product", [0.3, 50.0])
def test_a_pass_over_patients_is_the_plain_one(draw, rng, shape, largest_product):
    tensor, (memberships, *features) = draw(shape)
    memberships *= rng.random(memberships.shape) < 0.6
    order = rng.permutation(shape[0])
    for mode in range(1, len(shape)):
        expected = plain_pass_patients(tensor, order, memberships, features, mode, 0.4, largest_product)
        found = pass_patients(tensor, order, memberships, features, mode, 0.4, largest_product)
        np.testing.assert_allclose(found, expected, atol=1e-7)
        assert (np.linalg.norm(found, axis=0) <= 1 + 1e-12).all()


def test_a_column_whose_patients_lack_it_stays(draw, rng):
    tensor, (memberships, *features) = draw((9, 4, 5))
    memberships[:, 1] = 0.0
    found = pass_patients(tensor, np.arange(9), memberships, features, 1, 0.5, 1.0)
    np.testing.assert_allclose(found[:, 1], project(features[0])[:, 1], rtol=1e-14)
    assert not np.allclose(found[:, 0], project(features[0])[:, 0])


@examples(150)
@given(
    st.integers(0, 10**6), st.sampled_from([0.01, 0.1, 1.0, 2.0]), st.integers(1, 3), st.sampled_from([1.0, 1e3, 1e300])
)
def test_removing_a_patient_moves_a_factor_by_no_more_than_declared(seed, step, n_passes, scale):
    rng = np.random.default_rng(seed)
    cells = np.argwhere(rng.random((6, 4, 5)) < 0.3)
    tensor = SparseTensor(cells, np.where(cells[:, 0] == 3, scale, 1.0), (6, 4, 5))
    features = [project(rng.random((size, 3))) for size in (4, 5)]
    memberships, bound = 2 * rng.random((6, 3)), rng.choice([0.1, 1.0])
    order = rng.permutation(6)
    with_all = without = features[0]
    for _ in range(n_passes):
        with_all = pass_patients(tensor, order, memberships, [with_all, features[1]], 1, step, bound)
        without = pass_patients(tensor, order[order != 3], memberships, [without, features[1]], 1, step, bound)
    assert np.linalg.norm(with_all - without) <= n_passes * step * (1 + bound) * (1 + 1e-12)


@pytest.mark.parametrize("bad", [np.inf, np.nan, 1.7e308])
def test_records_that_are_not_finite_move_nothing(bad):
    tensor = SparseTensor([[0, 0, 0], [0, 1, 1], [1, 1, 1]], [bad, bad, 1.0], (2, 2, 2))
    features = [project(np.full((2, 2), 0.3)), np.full((2, 2), 0.7)]
    found = pass_patients(tensor, [0, 1], np.ones((2, 2)), features, 1, 0.5, 1.0)
    assert np.isfinite(found).all()
    if not np.isfinite(bad):
        np.testing.assert_array_equal(found, pass_patients(tensor, [1], np.ones((2, 2)), features, 1, 0.5, 1.0))
    unfit = np.array([[bad, 1.0], [0.5, 0.5]])
    sane = SparseTensor([[0, 0, 0], [1, 1, 1]], [1.0, 1.0], (2, 2, 2))
    assert np.isfinite(pass_patients(sane, [0, 1], unfit, features, 1, 0.5, 1.0)).all()
