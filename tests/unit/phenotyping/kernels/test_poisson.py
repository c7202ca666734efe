from __future__ import annotations

import numpy as np
import pytest

from multicentre.phenotyping.kernels.poisson import column_totals, multiply_rows, poisson_loss, ratio_products

LETTERS = "abcd"


def full(factors):
    letters = LETTERS[: len(factors)]
    return np.einsum(f"{','.join(f'{one}r' for one in letters)}->{letters}", *factors)


def updated(tensor, factors, mode):
    totals = column_totals(factors, skip=mode)
    factors[mode] = multiply_rows(factors[mode], ratio_products(tensor, factors, mode), totals)


def test_the_loss_counts_every_cell(draw, dense, shape):
    tensor, factors = draw(shape)
    model, cells = full(factors), dense(tensor)
    expected = (model - cells * np.log(model)).sum()
    assert poisson_loss(tensor, factors) == pytest.approx(expected, rel=1e-12)


def test_an_update_is_that_of_the_dense_tensor(draw, dense, shape):
    tensor, factors = draw(shape)
    ratios = dense(tensor) / full(factors)
    for mode in range(len(shape)):
        others = [np.ones((1, 3)) if m == mode else factor for m, factor in enumerate(factors)]
        letters = LETTERS[: len(shape)]
        free = [f"{one}r" for m, one in enumerate(letters) if m != mode]
        used = [factor for m, factor in enumerate(others) if m != mode]
        products = np.einsum(f"{letters},{','.join(free)}->{letters[mode]}r", ratios, *used)
        np.testing.assert_allclose(ratio_products(tensor, factors, mode), products, rtol=1e-12)
        expected = factors[mode] * products / np.prod([one.sum(axis=0) for one in used], axis=0)
        found = multiply_rows(factors[mode], products, column_totals(factors, skip=mode))
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_updates_never_raise_the_loss_and_keep_the_total(draw, shape):
    tensor, factors = draw(shape)
    losses = [poisson_loss(tensor, factors)]
    for _ in range(15):
        for mode in range(len(shape)):
            updated(tensor, factors, mode)
            losses.append(poisson_loss(tensor, factors))
            assert column_totals(factors).sum() == pytest.approx(tensor.counts.sum())
    assert (np.diff(losses) <= 1e-9).all()
    assert losses[-1] < losses[0] - 1


def test_a_column_without_mass_becomes_zero(draw):
    tensor, factors = draw((9, 4, 5))
    factors[1][:, 0] = 0.0
    updated(tensor, factors, 2)
    assert not factors[2][:, 0].any()
    assert np.isfinite(factors[2]).all()
    assert np.isfinite(poisson_loss(tensor, [np.zeros((9, 3)), *factors[1:]]))
