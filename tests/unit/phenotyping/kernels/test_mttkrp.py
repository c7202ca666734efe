from __future__ import annotations

import numpy as np
import pytest
import pyttb

from multicentre.phenotyping.kernels.mttkrp import SparseTensor, mttkrp

LETTERS = "abcd"


def dense_mttkrp(cells, factors, mode):
    letters = LETTERS[: cells.ndim]
    others = [m for m in range(cells.ndim) if m != mode]
    terms = ",".join([letters, *(f"{letters[m]}r" for m in others)])
    return np.einsum(f"{terms}->{letters[mode]}r", cells, *(factors[m] for m in others))


def test_every_mode_is_that_of_the_dense_tensor(draw, dense, shape):
    tensor, factors = draw(shape)
    for mode in range(len(shape)):
        given = [None if m == mode else factor for m, factor in enumerate(factors)]
        found = mttkrp(tensor, given, mode)
        np.testing.assert_allclose(found, dense_mttkrp(dense(tensor), factors, mode), rtol=1e-12, atol=1e-12)
        assert not found[2 if mode == 0 else -1].any()


@pytest.mark.parametrize("shape", [(30, 12, 17), (15, 6, 7, 8)], ids=["3 modes", "4 modes"])
def test_agrees_with_pyttb(rng, shape):
    places = np.unique(np.stack([rng.integers(side, size=400) for side in shape], axis=1), axis=0)
    counts = rng.integers(1, 9, len(places)).astype(float)
    factors = [rng.standard_normal((side, 5)) for side in shape]
    peer = pyttb.sptensor(places, counts[:, None], shape)
    tensor = SparseTensor(places, counts, shape)
    for mode in range(len(shape)):
        np.testing.assert_allclose(mttkrp(tensor, factors, mode), peer.mttkrp(factors, mode), rtol=1e-11, atol=1e-11)


def test_other_values_take_the_place_of_the_counts(draw, shape):
    tensor, factors = draw(shape)
    values = np.linspace(-1, 1, tensor.nnz)
    other = SparseTensor(tensor.coordinates, values, shape)
    for mode in range(len(shape)):
        np.testing.assert_array_equal(mttkrp(tensor, factors, mode, values), mttkrp(other, factors, mode))


def test_entries_sorted_by_patient_alone_are_enough(draw, rng):
    tensor, factors = draw((9, 4, 5))
    mixed = rng.permutation(tensor.nnz)
    mixed = mixed[np.argsort(tensor.coordinates[mixed, 0], kind="stable")]
    other = SparseTensor(tensor.coordinates[mixed], tensor.counts[mixed], tensor.shape)
    for mode in range(3):
        np.testing.assert_allclose(mttkrp(other, factors, mode), mttkrp(tensor, factors, mode), rtol=1e-13)


def test_a_patients_row_does_not_depend_on_the_others(draw, shape):
    tensor, factors = draw(shape)
    rows = mttkrp(tensor, factors, 0)
    for i in range(shape[0]):
        kept = tensor.coordinates[:, 0] == i
        alone = SparseTensor(
            tensor.coordinates[kept] * ([0] + [1] * (len(shape) - 1)), tensor.counts[kept], (1, *shape[1:])
        )
        np.testing.assert_array_equal(mttkrp(alone, [None, *factors[1:]], 0)[0], rows[i])
