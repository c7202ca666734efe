from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multicentre.phenotyping.kernels.clipped import clipped_products, unpack_gram
from multicentre.phenotyping.kernels.mttkrp import SparseTensor
from multicentre.phenotyping.kernels.patients import GRID, cooccurrence, patient_norms
from support.examples import examples

HOSTILE = st.one_of(
    st.sampled_from([0.0, 1.0, 1e-320, 1e-160, 1e154, 1e160, 1.7e308, math.inf, math.nan, -1.7e308]),
    st.floats(0, 1e3),
    st.floats(allow_nan=True, allow_infinity=True),
)


def one_patient(tensor, i):
    kept = tensor.coordinates[:, 0] == i
    places = tensor.coordinates[kept].copy()
    places[:, 0] = 0
    return SparseTensor(places, tensor.counts[kept], (1, *tensor.shape[1:]))


def plain_contribution(tensor, i, memberships, features, mode, bounds):
    """A patient's products and Gram matrix after clipping, in units of the bounds, by the book."""
    products = np.zeros((tensor.shape[mode], memberships.shape[1]))
    for place, count in zip(tensor.coordinates, tensor.counts, strict=True):
        if place[0] == i:
            row = count * memberships[i]
            for m in range(1, tensor.n_modes):
                if m != mode:
                    row = row * features[m - 1][place[m]]
            products[place[mode]] += row
    gram = np.outer(memberships[i], memberships[i])
    norms = max(np.linalg.norm(products), 1e-300), max(np.linalg.norm(gram), 1e-300)
    share = min(1.0, bounds[0] / norms[0], bounds[1] / norms[1])
    return share * products / bounds[0], share * gram / bounds[1]


def exact_norm_squared(values):
    return sum(Fraction(value) ** 2 for value in np.ravel(values).tolist())


def on_grid(values):
    return bool((np.asarray(values) * GRID == np.round(np.asarray(values) * GRID)).all())


@st.composite
def hostile_patients(draw):
    """One patient of a tensor with three modes, the memberships and the features, of any size."""
    places = draw(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=6, unique=True))
    counts = [draw(HOSTILE) for _ in places]
    tensor = SparseTensor([(0, *place) for place in places] or np.zeros((0, 3)), counts, (1, 3, 3))
    memberships = np.array([[draw(HOSTILE) for _ in range(2)]])
    features = [np.array([[draw(HOSTILE) for _ in range(2)] for _ in range(3)]) for _ in range(2)]
    return tensor, memberships, features


def test_norms_are_those_of_the_slices(draw, dense, shape):
    tensor, _ = draw(shape)
    expected = np.sqrt((dense(tensor) ** 2).sum(axis=tuple(range(1, len(shape)))))
    np.testing.assert_allclose(patient_norms(tensor), expected, rtol=1e-14)
    assert patient_norms(tensor)[2] == 0


def test_norms_do_not_overflow():
    tensor = SparseTensor([[0, 0], [0, 1], [1, 0]], [3e200, 4e200, 1e-300], (2, 2))
    np.testing.assert_allclose(patient_norms(tensor), [5e200, 1e-300], rtol=1e-14)


@pytest.mark.parametrize("shape", [(9, 4, 5), (7, 4, 3, 5)], ids=["3 modes", "4 modes"])
@pytest.mark.parametrize("bounds", [(0.6, 0.6), (3.0, 0.1), (1e3, 1e3)])
def test_sums_are_those_of_clipped_patients(draw, shape, bounds):
    tensor, (memberships, *features) = draw(shape)
    memberships[0, 1] = memberships[3, 0] = 0.0
    for mode in range(1, len(shape)):
        parts = [plain_contribution(tensor, i, memberships, features, mode, bounds) for i in range(shape[0])]
        products, gram = clipped_products(tensor, memberships, features, mode, *bounds)
        np.testing.assert_allclose(products, sum(part[0] for part in parts), atol=2e-8)
        np.testing.assert_allclose(unpack_gram(gram), sum(part[1] for part in parts), atol=2e-8)


def test_the_packed_gram_keeps_the_norm(rng):
    memberships = rng.random((1, 4))
    tensor = SparseTensor([[0, 0, 0]], [1.0], (1, 1, 1))
    _, gram = clipped_products(tensor, memberships, [np.ones((1, 4))] * 2, 1, 1e3, 1e3)
    assert np.linalg.norm(gram) == pytest.approx(np.linalg.norm(unpack_gram(gram)), abs=1e-12)
    np.testing.assert_allclose(unpack_gram(gram), memberships.T @ memberships / 1e3, atol=1e-8)


@examples(300)
@given(hostile_patients(), st.sampled_from([0.6, 1.0, 1e-3, 7.0]), st.sampled_from([0.6, 1e-3, 5.0]))
def test_nobody_adds_more_than_the_bound(patient, largest_product, largest_gram):
    tensor, memberships, features = patient
    for mode in (1, 2):
        products, gram = clipped_products(tensor, memberships, features, mode, largest_product, largest_gram)
        for part in (products, gram):
            assert np.isfinite(part).all()
            assert on_grid(part)
            assert exact_norm_squared(part) <= 1


@given(st.integers(0, 10**6), st.sampled_from([1.0, 100.0, 1e150]))
def test_the_bound_is_reached_and_never_passed(seed, scale):
    rng = np.random.default_rng(seed)
    places = np.unique(rng.integers(0, 6, (20, 2)), axis=0)
    counts = scale * rng.integers(1, 5, len(places))
    tensor = SparseTensor(np.insert(places, 0, 0, axis=1), counts, (1, 6, 6))
    products, gram = clipped_products(tensor, 3 * rng.random((1, 4)), rng.random((2, 6, 4)), 1, 0.1, 100.0)
    assert 0.999 < float(exact_norm_squared(products)) <= 1
    assert exact_norm_squared(gram) <= 1
    marginals = cooccurrence(tensor)[1, 2].toarray()
    assert 0.999 < float(exact_norm_squared(marginals)) <= 1


def test_a_patient_that_is_not_finite_adds_nothing_to_either_sum():
    tensor = SparseTensor([[0, 0, 0], [1, 1, 1]], [1.7e308, 1.0], (2, 2, 2))
    memberships = np.array([[100.0, 1.0], [0.5, 0.25]])
    features = [np.ones((2, 2))] * 2
    products, gram = clipped_products(tensor, memberships, features, 1, 1.0, 1.0)
    np.testing.assert_allclose(products, [[0.0, 0.0], [0.5, 0.25]])
    np.testing.assert_allclose(unpack_gram(gram), np.outer(memberships[1], memberships[1]), atol=1e-8)


def test_sums_do_not_depend_on_who_comes_first_nor_on_who_else_is_there(draw, rng):
    tensor, (memberships, *features) = draw((9, 4, 5))
    whole = clipped_products(tensor, memberships, features, 2, 0.3, 0.4)
    alone = [clipped_products(one_patient(tensor, i), memberships[[i]], features, 2, 0.3, 0.4) for i in range(9)]
    for part in (0, 1):
        for order in (range(9), rng.permutation(9)):
            np.testing.assert_array_equal(sum(alone[i][part] for i in order), whole[part])
    apart = [cooccurrence(one_patient(tensor, i))[1, 2].toarray() for i in rng.permutation(9)]
    np.testing.assert_array_equal(sum(apart), cooccurrence(tensor)[1, 2].toarray())


def plain_cooccurrence(cells, pairs):
    sums = {pair: np.zeros((cells.shape[pair[0]], cells.shape[pair[1]])) for pair in pairs}
    for slab in cells:
        parts = {}
        for m, n in pairs:
            others = tuple(axis for axis in range(slab.ndim) if axis not in (m - 1, n - 1))
            parts[m, n] = slab.sum(axis=others)
        norm = np.sqrt(sum((part**2).sum() for part in parts.values()))
        for pair, part in parts.items():
            sums[pair] += part / norm if norm > 0 else 0.0
    return sums


def test_cooccurrence_of_four_modes_are_joint_marginals(draw, dense):
    tensor, _ = draw((7, 4, 3, 5))
    found = cooccurrence(tensor)
    expected = plain_cooccurrence(dense(tensor), list(combinations((1, 2, 3), 2)))
    assert found.keys() == expected.keys()
    for pair, part in found.items():
        np.testing.assert_allclose(part.toarray(), expected[pair], atol=7 * 1e-8)


def test_cooccurrence_of_three_modes_are_normalised_patients(draw, dense):
    tensor, _ = draw((9, 4, 5))
    cells = dense(tensor)
    norms = np.linalg.norm(cells.reshape(9, -1), axis=1)
    expected = (cells / np.where(norms > 0, norms, 1)[:, None, None]).sum(axis=0)
    np.testing.assert_allclose(cooccurrence(tensor)[1, 2].toarray(), expected, atol=9e-8)


@pytest.mark.slow
@examples(200)
@given(st.data())
def test_nobody_moves_cooccurrence_by_more_than_one(data):
    places = data.draw(st.lists(st.tuples(*[st.integers(0, 2)] * 3), max_size=6, unique=True))
    counts = [data.draw(HOSTILE) for _ in places]
    tensor = SparseTensor([(0, *place) for place in places] or np.zeros((0, 4)), counts, (1, 3, 3, 3))
    parts = [part.toarray() for part in cooccurrence(tensor).values()]
    assert len(parts) == 3
    assert all(np.isfinite(part).all() and on_grid(part) for part in parts)
    assert sum(exact_norm_squared(part) for part in parts) <= 1
