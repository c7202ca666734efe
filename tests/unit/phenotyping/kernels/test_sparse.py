from __future__ import annotations

import numpy as np
import pytest

from multicentre.errors import ConfigurationError, DataError
from multicentre.phenotyping.kernels.mttkrp import SparseTensor, checked_factors, stack_features


def test_orders_list_every_entry_of_a_slice(draw, shape):
    tensor, _ = draw(shape)
    for mode, size in enumerate(shape):
        permutation, pointers = tensor.order(mode)
        assert sorted(permutation) == list(range(tensor.nnz))
        for i in range(size):
            listed = permutation[pointers[i] : pointers[i + 1]]
            assert listed.tolist() == np.flatnonzero(tensor.coordinates[:, mode] == i).tolist()


def test_orders_are_computed_once(draw):
    tensor, _ = draw((9, 4, 5))
    assert tensor.order(1) is tensor.order(1)


def test_fibres_are_runs_of_one_patient_and_one_code(draw):
    tensor, _ = draw((9, 4, 5))
    fibres = tensor.fibres
    found = [
        (i, fibres.codes[f], fibres.leaves[e])
        for i in range(9)
        for f in range(fibres.patients[i], fibres.patients[i + 1])
        for e in range(fibres.entries[f], fibres.entries[f + 1])
    ]
    assert found == [tuple(place) for place in tensor.coordinates.tolist()]
    assert len(fibres.codes) == len(np.unique(tensor.coordinates[:, :2], axis=0))


def test_places_point_into_the_stacked_features(draw, shape):
    tensor, factors = draw(shape)
    stacked = stack_features(factors)
    for mode in range(1, len(shape)):
        np.testing.assert_array_equal(stacked[tensor.places[:, mode]], factors[mode][tensor.coordinates[:, mode]])


def test_a_tensor_without_entries_is_a_tensor():
    tensor = SparseTensor(np.zeros((0, 3), dtype=int), [], (2, 3, 4))
    assert (tensor.nnz, tensor.norm_squared) == (0, 0.0)
    assert tensor.order(0)[1].tolist() == [0, 0, 0]
    assert len(tensor.fibres.codes) == 0


@pytest.mark.parametrize(
    ("places", "counts", "said"),
    [
        ([[1, 0], [0, 0]], [1.0, 1.0], "sorted by patient"),
        ([[0, 2]], [1.0], "coordinates must be from 0"),
        ([[-1, 0]], [1.0], "coordinates must be from 0"),
        ([[0, 0]], [1.0, 2.0], "counts must be as many as the 1 entries"),
    ],
)
def test_entries_that_do_not_fit_are_refused(places, counts, said):
    with pytest.raises(DataError, match=said):
        SparseTensor(places, counts, (2, 2))


@pytest.mark.parametrize(
    "shapes", [[(9, 2), (4, 2), (5, 3)], [(9, 2), (4, 2)], [(9, 2), (5, 2), (4, 2)], [(9,), (4,), (5,)]]
)
def test_factors_that_do_not_fit_are_refused(draw, shapes):
    tensor, _ = draw((9, 4, 5))
    with pytest.raises(ConfigurationError, match="factors must fit"):
        checked_factors(tensor, [np.zeros(one) for one in shapes])
