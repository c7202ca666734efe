"""The laws of the noise, where it comes from, and what rounding adds to a sensitivity.

Random checks allow 6 standard errors (7 for the kurtosis) or p > 1e-9 at fixed sample sizes: each raises a false alarm
in about 2 of 10**9 runs, all of them together in fewer than 1 of 10**6.
"""

import functools
import math
import os
import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.stats import chisquare, dlaplace, kstest, laplace, norm

from multicentre.errors import ConfigurationError, MissingExtra
from multicentre.privacy import mechanisms
from multicentre.privacy.conversions import gdp_delta
from multicentre.privacy.mechanisms import EXACT_SIZE, gaussian_noise, geometric_noise, quantised_sensitivity

LARGE = (100_000,)
SMALL_SCALE = 3.0
GRID = np.arange(-60, 61)


def exactly(draw, calls=40):
    pytest.importorskip("opendp")
    return np.concatenate([draw((EXACT_SIZE,), SMALL_SCALE) for _ in range(calls)])


def discrete_gaussian(k, scale):
    weights = np.exp(-0.5 * (k / scale) ** 2)
    return weights / weights.sum()


def rounded_gaussian(k, scale):
    return np.diff(norm.cdf(np.append(k - 0.5, k[-1] + 0.5), scale=scale))


def discrete_laplace(k, scale):
    return dlaplace.pmf(k, 1 / scale)


def assert_follows(noise, law):
    """Pearson's chi-square over the grid; either tail joins the last cell in which 20 numbers are expected."""
    expected = law(GRID, SMALL_SCALE) * noise.size
    first, last = GRID[expected >= 20][[0, -1]]
    observed = np.bincount(noise.clip(first, last) - first)
    expected = np.bincount(GRID.clip(first, last) - first, weights=expected)
    assert chisquare(observed, expected * (noise.size / expected.sum())).pvalue > 1e-9


LAWS = {
    "gaussian, exact": (lambda: exactly(gaussian_noise), discrete_gaussian),
    "gaussian, rounded": (lambda: gaussian_noise(LARGE, SMALL_SCALE), rounded_gaussian),
    "geometric, exact": (lambda: exactly(geometric_noise), discrete_laplace),
    "geometric, by inversion": (lambda: geometric_noise(LARGE, SMALL_SCALE), discrete_laplace),
} | {
    f"geometric, {m} shares": (
        lambda m=m: sum(geometric_noise(LARGE, SMALL_SCALE, share=m) for _ in range(m)),
        discrete_laplace,
    )
    for m in (2, 3, 10)
}


@functools.cache
def drawn(name):
    return LAWS[name][0]()


@pytest.mark.slow
@pytest.mark.parametrize("name", LAWS)
def test_noise_of_a_small_scale_follows_its_law(name):
    assert drawn(name).dtype == np.int64
    assert_follows(drawn(name), LAWS[name][1])


@pytest.mark.parametrize("name", LAWS)
def test_signs_are_symmetric_and_neighbours_independent(name):
    noise = drawn(name)
    nonzero = np.count_nonzero(noise)
    assert abs(int(np.sign(noise).sum())) < 6 * math.sqrt(nonzero)
    for lag in (1, 2, 1000):
        product = noise[:-lag].astype(float) * noise[lag:]
        assert abs(product.mean()) < 6 * product.std() / math.sqrt(product.size)


@pytest.mark.parametrize("scale", [100.0, 2.0**20, 2.0**50])
def test_moments_and_shape_of_a_large_gaussian(scale):
    n = 500_000
    noise = gaussian_noise((n,), scale) / scale
    assert abs(noise.mean()) < 6 / math.sqrt(n)
    assert abs(noise.var() - 1 - 1 / (12 * scale**2)) < 6 * math.sqrt(2 / n)
    assert abs(np.mean(noise**4) / noise.var() ** 2 - 3) < 7 * math.sqrt(24 / n)
    # The grid moves the empirical law by at most half a cell, 0.002 at a scale of 100.
    assert kstest(noise[:50_000] + np.random.default_rng(0).uniform(-0.5, 0.5, 50_000) / scale, norm.cdf).pvalue > 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("scale", [100.0, 2.0**20, 2.0**50])
@pytest.mark.parametrize("share", [1, 4])
def test_moments_and_shape_of_large_geometric_noise(scale, share):
    n = 100_000
    parts = [geometric_noise((n,), scale, share) for _ in range(share)]
    for part in parts:
        assert abs(np.mean(part / scale)) < 6 * math.sqrt(2 / share / n)
        # The kurtosis of one share is 3 + 3 m.
        assert abs(np.mean((part / scale) ** 2) * share / 2 - 1) < 6 * math.sqrt((2 + 3 * share) / n) + 1e-4
    assert kstest(sum(parts)[:50_000] / scale, laplace.cdf).statistic < 0.5 / scale + 3.3 / math.sqrt(50_000)


@pytest.mark.slow
def test_exact_noise_has_the_scale_asked_for():
    pytest.importorskip("opendp")
    noise = np.concatenate([gaussian_noise((10, 100), 1e6).ravel() for _ in range(20)])
    assert abs(noise.std() / 1e6 - 1) < 6 * math.sqrt(1 / (2 * noise.size))
    noise = np.concatenate([geometric_noise((10, 100), 1e6).ravel() for _ in range(20)])
    assert abs(np.abs(noise).mean() / 1e6 - 1) < 6 / math.sqrt(noise.size)


def test_discrete_gaussian_noise_keeps_the_delta_of_the_continuous_one():
    scale = 100.0
    k = np.arange(-4000, 4001)
    law = discrete_gaussian(k, scale)
    for sensitivity, epsilon in [(30, 0.5), (30, 1.0), (100, 1.0), (400, 8.0)]:
        delta = np.maximum(np.roll(law, sensitivity) - math.exp(epsilon) * law, 0).sum()
        assert delta == pytest.approx(gdp_delta(sensitivity / scale, epsilon), rel=1e-3)


@pytest.mark.parametrize("draw", [gaussian_noise, geometric_noise, lambda *a: geometric_noise(*a, share=3)])
@pytest.mark.parametrize("size", [EXACT_SIZE, 2 * EXACT_SIZE])
def test_two_calls_share_nothing_whatever_is_seeded(draw, size):
    pytest.importorskip("opendp")
    calls = []
    for _ in range(2):
        random.seed(7)
        np.random.seed(7)  # noqa: NPY002
        calls.append(draw((size,), 1e6))
    assert np.mean(calls[0] == calls[1]) < 0.1
    assert abs(np.sum(np.sign(calls[0]) * np.sign(calls[1]))) < 6 * math.sqrt(size)


@pytest.mark.parametrize("draw", [gaussian_noise, geometric_noise, lambda *a: geometric_noise(*a, share=3)])
def test_large_noise_is_a_function_of_256_bits_of_the_operating_system(draw, monkeypatch):
    asked = []

    def key(byte):
        return lambda size: asked.append(size) or bytes([byte]) * size

    draws = []
    for byte in (1, 1, 2):
        monkeypatch.setattr(os, "urandom", key(byte))
        draws.append(draw((3 * mechanisms._BLOCK + 5,), 1e6))
    assert asked == [32] * 3
    np.testing.assert_array_equal(draws[0], draws[1])
    assert np.mean(draws[0] == draws[2]) < 0.1
    blocks = draws[0][: 3 * mechanisms._BLOCK].reshape(3, -1)
    assert np.mean(blocks[0] == blocks[1]) < 0.1
    assert np.mean(blocks[1] == blocks[2]) < 0.1


class Constant:
    def __init__(self, uniform):
        self.uniform = uniform

    def uniforms(self, count):
        return np.full(count, self.uniform), np.ones(count, dtype=np.int64)


@pytest.mark.parametrize(("word", "uniform"), [(b"\x00", 2.0**-64), (b"\xff", 1.0)])
def test_uniform_numbers_are_above_zero_and_at_most_one(word, uniform, monkeypatch):
    stream = mechanisms._Stream()
    monkeypatch.setattr(stream, "_cipher", SimpleNamespace(update=lambda zeros: word * len(zeros)))
    uniforms, signs = stream.uniforms(3)
    np.testing.assert_array_equal(uniforms, np.full(3, uniform))
    np.testing.assert_array_equal(np.abs(signs), np.ones(3))


def test_the_tails_reach_as_far_as_63_bits_do():
    last = Constant(2.0**-64)
    assert mechanisms._rounded_gaussian(last, 1, 1e6)[0] == round(-norm.ppf(2.0**-65) * 1e6) > 9.0e6
    assert mechanisms._geometric(last, 1, 1e6)[0] == math.floor(64 * math.log(2) * 1e6)
    assert mechanisms._rounded_gaussian(Constant(1.0), 1, 2.0**50)[0] == 0
    assert mechanisms._geometric(Constant(1.0), 1, 2.0**50)[0] == 0
    assert mechanisms._poisson(last, 1, 2.0)[0] > 20
    assert mechanisms._jumps(last, 1, 1e6, 2)[0] > 0


@pytest.mark.parametrize("scale", [5e-324, 1e-3, 0.02])
def test_noise_far_below_a_grid_step_is_zero(scale):
    pytest.importorskip("opendp")
    for size in (10, 2 * EXACT_SIZE):
        for noise in (gaussian_noise((size,), scale), geometric_noise((size,), scale)):
            assert not noise.any()
        assert not geometric_noise((size,), scale, share=2).any()


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (2, 3), (40, 50)])
def test_noise_has_the_shape_asked_for(shape):
    pytest.importorskip("opendp")
    for noise in (gaussian_noise(shape, 5.0), geometric_noise(shape, 5.0), geometric_noise(shape, 5.0, share=2)):
        assert noise.shape == shape
        assert noise.dtype == np.int64


def test_without_opendp_few_numbers_are_refused_and_many_are_not(monkeypatch):
    monkeypatch.setattr("multicentre.privacy.mechanisms.find_spec", lambda name: None)
    for draw in (gaussian_noise, geometric_noise):
        with pytest.raises(MissingExtra, match=r"pip install 'multicentre\[dp\]'"):
            draw((EXACT_SIZE,), 5.0)
        assert draw((EXACT_SIZE + 1,), 5.0).any()
    assert geometric_noise((EXACT_SIZE,), 5.0, share=2).any()


@pytest.mark.parametrize("size", [1, 2 * EXACT_SIZE])
@pytest.mark.parametrize("scale", [0.0, -1.0, math.nan, math.inf, 2.0**51])
def test_an_unfit_scale_is_refused(scale, size):
    for draw in (gaussian_noise, geometric_noise):
        with pytest.raises(ConfigurationError) as refused:
            draw((size,), scale)
        assert refused.value.where == "scale"
        assert ("coarser grid" in refused.value.hint) == (scale > 1)


@pytest.mark.parametrize("share", [0, -1, 1.5, True])
def test_an_unfit_share_is_refused(share):
    with pytest.raises(ConfigurationError) as refused:
        geometric_noise((2000,), 5.0, share)
    assert refused.value.where == "share"


@st.composite
def neighbours(draw):
    n = draw(st.integers(1, 20))
    pair = arrays(np.float64, n, elements=st.floats(-50, 50))
    return draw(pair), draw(pair), draw(st.sampled_from([0.01, 0.5, 1.0, 7.0]))


@given(neighbours())
def test_rounding_moves_two_inputs_apart_by_no_more_than_declared(inputs):
    x, y, step = inputs
    moved = np.rint(x / step) - np.rint(y / step)
    for norm_name, order in (("l1", 1), ("l2", 2)):
        bound = quantised_sensitivity(np.linalg.norm(x - y, order), len(x), step, norm_name)
        assert np.linalg.norm(moved, order) <= bound * (1 + 1e-12)


def test_what_rounding_adds_is_reached_and_exact_values_add_nothing():
    x, y = np.full(9, 0.5 + 1e-9), np.full(9, 0.5 - 1e-9)
    apart = np.rint(x) - np.rint(y)
    assert np.linalg.norm(apart) == pytest.approx(quantised_sensitivity(6e-9, 9, 1.0), rel=1e-6)
    assert np.abs(apart).sum() == pytest.approx(quantised_sensitivity(1.8e-8, 9, 1.0, "l1"), rel=1e-6)
    assert quantised_sensitivity(3.0, 9, 1.0, exact=True) == 3.0
    assert quantised_sensitivity(3.0, 9, 0.5, "l1", exact=True) == 6.0
    assert quantised_sensitivity(0.0, 4, 1.0) == 2.0


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        ((-1.0, 1, 1.0, "l2"), "sensitivity"),
        ((math.nan, 1, 1.0, "l2"), "sensitivity"),
        ((1.0, 0, 1.0, "l2"), "n_values"),
        ((1.0, 2.0, 1.0, "l2"), "n_values"),
        ((1.0, 1, 0.0, "l2"), "step"),
        ((1.0, 1, math.inf, "l2"), "step"),
        ((1.0, 1, 1.0, "linf"), "norm"),
    ],
)
def test_an_unfit_sensitivity_is_refused_by_its_name(arguments, place):
    with pytest.raises(ConfigurationError) as refused:
        quantised_sensitivity(*arguments)
    assert refused.value.where == place
