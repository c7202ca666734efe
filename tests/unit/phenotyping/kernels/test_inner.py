from __future__ import annotations

import numpy as np
import pytest

from multicentre.phenotyping.kernels.hals import (
    hadamard_gram,
    predict_entries,
    squared_error,
    squared_error_at_entries,
)
from multicentre.phenotyping.kernels.mttkrp import SparseTensor

LETTERS = "abcd"


def full(factors):
    letters = LETTERS[: len(factors)]
    return np.einsum(f"{','.join(f'{one}r' for one in letters)}->{letters}", *factors)


def test_predictions_are_those_of_the_full_tensor(draw, shape):
    tensor, factors = draw(shape)
    np.testing.assert_allclose(predict_entries(tensor, factors), full(factors)[tuple(tensor.coordinates.T)], rtol=1e-14)


def test_the_error_over_all_cells_is_the_dense_one(draw, dense, shape):
    tensor, factors = draw(shape)
    residuals = dense(tensor) - full(factors)
    assert squared_error(tensor, factors) == pytest.approx((residuals**2).sum(), rel=1e-12)
    root = np.sqrt(squared_error(tensor, factors) / tensor.nnz)
    assert abs(root - np.linalg.norm(residuals) / np.sqrt(tensor.nnz)) < 1e-12


def test_the_error_at_entries_leaves_zeros_out(draw, dense, shape):
    tensor, factors = draw(shape)
    cells = dense(tensor)
    assert squared_error_at_entries(tensor, factors) == pytest.approx(
        ((cells - full(factors))[cells > 0] ** 2).sum(), rel=1e-12
    )


def test_the_error_of_an_exact_fit_is_not_negative(rng):
    for _ in range(20):
        factors = [rng.random((side, 3)) for side in (4, 3, 5)]
        cells = full(factors)
        tensor = SparseTensor(np.argwhere(cells), cells.ravel(), cells.shape)
        assert 0 <= squared_error(tensor, factors) < 1e-12


def test_the_gram_leaves_out_the_mode_that_is_skipped(rng):
    factors = [rng.random((side, 2)) for side in (4, 3, 5)]
    np.testing.assert_allclose(
        hadamard_gram(factors, skip=1), (factors[0].T @ factors[0]) * (factors[2].T @ factors[2])
    )
    assert hadamard_gram(factors).sum() == pytest.approx((full(factors) ** 2).sum())
