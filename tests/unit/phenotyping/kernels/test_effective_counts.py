"""Patients behind cells: the kernels against a loop over cells and patients."""

import numpy as np
import pytest

from multicentre.phenotyping.kernels.effective_counts import (
    effective_numbers,
    fewest_in_errors,
    fewest_in_gram,
    fewest_in_products,
    fewest_patients,
)
from multicentre.phenotyping.kernels.mttkrp import SparseTensor


def drawn(shape, scale=1.0):
    """Return a sparse tensor and factors with exact zeros."""
    rng = np.random.default_rng(0)
    counts = rng.poisson(0.3, shape)
    places = np.argwhere(counts > 0)
    factors = [rng.gamma(0.3, 1.0, (side, 3)) * scale for side in shape]
    factors[1][0] = 0.0
    return SparseTensor(places, counts[tuple(places.T)].astype(float), shape), factors


def added_to(tensor, factors, mode, code, column):
    """Return what each patient adds to one cell."""
    added = np.zeros(tensor.shape[0])
    for place, count in zip(tensor.coordinates, tensor.counts, strict=True):
        if place[mode] == code:
            others = [factors[m][place[m], column] for m in range(len(factors)) if m != mode]
            added[place[0]] += count * np.prod(others)
    return added


@pytest.mark.parametrize("scale", [1.0, 1e-90, 1e90])
@pytest.mark.parametrize("shape", [(40, 6, 7), (30, 4, 5, 3)], ids=["two code modes", "three"])
def test_cells_of_products_are_counted_one_by_one(shape, scale):
    tensor, factors = drawn(shape, scale)
    for mode in range(1, len(shape)):
        cells = [added_to(tensor, factors, mode, code, r) for code in range(shape[mode]) for r in range(3)]
        expected = fewest_patients(effective_numbers(np.column_stack(cells)), shape[0])
        assert fewest_in_products(tensor, factors, mode) == expected < shape[0]


def test_cells_of_a_gram_matrix_are_counted_one_by_one():
    _, (memberships, *_) = drawn((40, 6, 7))
    memberships[memberships < 1e-3] = 0.0
    cells = [memberships[:, r] * memberships[:, s] for r in range(3) for s in range(3)]
    fewest = fewest_patients(effective_numbers(np.column_stack(cells)), 40)
    assert fewest_in_gram(memberships) == fewest
    # A share so small that squares of its products underflow; nobody else counts for less than before.
    tiny = np.vstack([memberships, [[1e-160, 0.0, 1.0]]])
    cells = [tiny[:, r] * tiny[:, s] for r in range(3) for s in range(3)]
    assert fewest_in_gram(tiny) == fewest_patients(effective_numbers(np.column_stack(cells)), 41)
    assert fewest_in_gram(np.zeros((4, 2))) == 4
    assert fewest_in_gram(np.zeros((4, 0))) == 4


def test_squared_errors_are_counted_by_patient():
    tensor, factors = drawn((40, 6, 7))
    whole = np.zeros(tensor.shape)
    whole[tuple(tensor.coordinates.T)] = tensor.counts
    squares = (whole - np.einsum("ir,jr,kr->ijk", *factors)) ** 2
    both = [squares.sum(axis=(1, 2)), (squares * (whole > 0)).sum(axis=(1, 2))]
    assert fewest_in_errors(tensor, factors) == fewest_patients(effective_numbers(np.column_stack(both)), 40)


def test_what_rounding_leaves_of_an_exact_fit_is_nobodys():
    factors = [np.ones((12, 1)), np.array([[1.0], [3.0]]), np.array([[1 / 3], [2.0]])]
    whole = np.einsum("ir,jr,kr->ijk", *factors)
    tensor = SparseTensor(np.argwhere(whole > 0), whole.ravel(), whole.shape)
    assert fewest_in_errors(tensor, factors) == 12
