"""Noise from a seed, for tests of what is made of noised sums; the tests of the noise itself draw the real one."""

import threading
import zlib
from collections import Counter

import numpy as np
import pytest

from multicentre.privacy import charging


class SeededNoise:
    """The laws of differential privacy's noise, from a seed for each call.

    A draw depends on its law, shape and scale, and on how many such draws there were before; so it does not matter in
    which order the sites of a federation are served, but for which of two equal sites has which noise.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: Counter[str] = Counter()

    def gaussian(self, shape, scale):
        return np.rint(scale * self._generator("gaussian", shape, scale).standard_normal(shape)).astype(np.int64)

    def geometric(self, shape, scale, share=1):
        """Return a share of two-sided geometric noise: a difference of two negative binomial numbers."""
        generator, chance = self._generator("geometric", shape, scale), -np.expm1(-1 / scale)
        first, second = (generator.negative_binomial(1 / share, chance, shape) for _ in range(2))
        return np.asarray(first - second, dtype=np.int64)

    def _generator(self, law, shape, scale):
        key = f"{law} {shape} {scale:.6g}"
        with self._lock:
            number = self._calls[key]
            self._calls[key] += 1
        return np.random.default_rng([zlib.crc32(key.encode()), number])


def seed_noise(patch: pytest.MonkeyPatch) -> None:
    """Replace the noise that sites add by noise from a seed."""
    noise = SeededNoise()
    patch.setattr(charging, "gaussian_noise", noise.gaussian)
    patch.setattr(charging, "rounded_gaussian_noise", noise.gaussian)
    patch.setattr(charging, "geometric_noise", noise.geometric)
