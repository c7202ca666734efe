"""Sparse tensors drawn at random, with empty rows and slices, and their dense twins."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from multicentre.phenotyping.kernels.mttkrp import SparseTensor

SHAPES = [(9, 4, 5), (7, 4, 3, 5), (6, 5)]


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)


@pytest.fixture
def draw(rng: np.random.Generator) -> Callable[[tuple[int, ...]], tuple[SparseTensor, list[NDArray[np.float64]]]]:
    """Draw a tensor whose patient 2 and last code of every mode have no entry, and factors of rank 3."""

    def drawn(shape: tuple[int, ...]) -> tuple[SparseTensor, list[NDArray[np.float64]]]:
        dense = rng.poisson(0.7, shape).astype(float)
        dense[2] = 0.0
        for axis in range(1, len(shape)):
            np.moveaxis(dense, axis, 0)[-1] = 0.0
        places = np.argwhere(dense)
        factors = [rng.random((side, 3)) for side in shape]
        return SparseTensor(places, dense[tuple(places.T)], shape), factors

    return drawn


@pytest.fixture
def dense() -> Callable[[SparseTensor], NDArray[np.float64]]:
    def made(tensor: SparseTensor) -> NDArray[np.float64]:
        cells = np.zeros(tensor.shape)
        np.add.at(cells, tuple(tensor.coordinates.T), tensor.counts)
        return cells

    return made


@pytest.fixture(params=SHAPES, ids=["3 modes", "4 modes", "2 modes"])
def shape(request: pytest.FixtureRequest) -> tuple[int, ...]:
    return tuple(request.param)
