"""The Cox model as a message: its mean survival time is read from a table."""

import numpy as np
import pytest

from multicentre.survival.fitted_models.cox import CoxModel
from multicentre.survival.times import restricted_mean


@pytest.mark.parametrize("size", [0.05, 1.0, 40.0])
@pytest.mark.parametrize("start", [0.0, 0.02])
def test_the_table_is_right_to_a_millionth_of_the_horizon(size, start):
    rng = np.random.default_rng(0)
    times = np.sort(rng.uniform(0.0, 300.0, size=64))
    baseline = start + np.cumsum(rng.exponential(0.02, size=64))
    baseline[: 3 if start == 0.0 else 0] = 0.0
    model = CoxModel(times, size * rng.normal(size=5), rng.normal(size=5), baseline)
    X = rng.normal(size=(2000, 5))
    found, exact = model.restricted_mean(X), restricted_mean(model.survival(X), times)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-6 * times[-1])
    np.testing.assert_allclose(model.restricted_mean(X[:7]), found[:7], rtol=0, atol=1e-13 * times[-1])


def test_a_flat_baseline_means_the_horizon():
    model = CoxModel(np.array([1.0, 4.0]), np.ones(1), np.zeros(1), np.zeros(2))
    assert model.restricted_mean(np.zeros((3, 1))).tolist() == [4.0, 4.0, 4.0]
    assert model.restricted_mean(np.zeros((0, 1))).shape == (0,)
