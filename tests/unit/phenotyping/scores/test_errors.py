from dataclasses import replace

import numpy as np
import pytest

from multicentre.errors import DataError
from multicentre.phenotyping.scores import TensorErrors


def summed(tensor, model):
    at = tensor > 0
    residual = tensor - model
    return TensorErrors(
        n_entries=int(at.sum()),
        n_cells=tensor.size,
        sum_counts=float(tensor.sum()),
        sum_squares=float((tensor**2).sum()),
        squared_error=float((residual**2).sum()),
        squared_error_at_entries=float((residual[at] ** 2).sum()),
    )


@pytest.fixture
def drawn():
    random = np.random.default_rng(0)
    tensor = random.poisson(0.3, (12, 5, 6)).astype(float)
    return tensor, random.random((12, 5, 6))


def test_errors_are_those_of_the_dense_tensor(drawn):
    tensor, model = drawn
    errors, at = summed(tensor, model), tensor > 0
    assert errors.rmse_at_entries == pytest.approx(np.sqrt(np.mean((tensor - model)[at] ** 2)))
    assert errors.rmse == pytest.approx(np.linalg.norm(tensor - model) / np.sqrt(at.sum()))
    assert errors.fit == pytest.approx(1 - np.linalg.norm(tensor - model) / np.linalg.norm(tensor))


def test_the_two_yardsticks_are_errors_of_their_models(drawn):
    tensor, _ = drawn
    mean = tensor[tensor > 0].mean()
    zero, constant = summed(tensor, np.zeros_like(tensor)), summed(tensor, np.full_like(tensor, mean))
    assert zero.rmse_at_entries == pytest.approx(zero.rmse_of_zero)
    assert zero.rmse == pytest.approx(zero.rmse_of_zero)
    assert zero.fit == pytest.approx(0.0)
    assert constant.rmse_at_entries == pytest.approx(constant.rmse_of_constant)
    assert constant.rmse_of_constant == pytest.approx(tensor[tensor > 0].std())
    assert constant.rmse > constant.rmse_of_zero


def test_a_perfect_model_has_fit_one(drawn):
    tensor, _ = drawn
    errors = summed(tensor, tensor)
    assert (errors.fit, errors.rmse, errors.rmse_at_entries) == (1.0, 0.0, 0.0)
    assert replace(errors, squared_error=-1e-13).fit == 1.0


def test_equal_entries_do_not_vary():
    assert TensorErrors(3, 9, 0.3, 0.03, 0.0, 0.0).rmse_of_constant == pytest.approx(0.0, abs=1e-8)


@pytest.mark.parametrize(
    "changed",
    [
        {"n_entries": 0},
        {"n_entries": 11},
        {"sum_squares": 0.0},
        {"squared_error": float("nan")},
        {"squared_error_at_entries": float("inf")},
    ],
)
def test_refuses_sums_of_no_tensor(changed):
    with pytest.raises(DataError):
        replace(TensorErrors(5, 10, 6.0, 8.0, 1.0, 1.0), **changed)
