"""Noise of differential privacy as integers, added to values that were rounded to a grid.

Floating-point Gaussian noise never leaves a site, because its last bits disclose the value without noise (Mironov
2012). A value x is released as ``step * (round(x / step) + noise)``. The noise is drawn here, in grid steps, for the
sensitivity returned by `quantised_sensitivity`.

Random numbers come from the operating system: from OpenDP's generator, and from ChaCha20 with a key of ``os.urandom``
that is generated for one call and discarded. There is no seed, because anybody with the seed could subtract the noise.

Numbers from ChaCha20 are exact up to double precision and 63 bits per uniform number. Compared with a computation to 60
digits, the log probability of a number has an average error of less than ``scale * 2**-50``: 1e-12 at a scale of 1000.
Over d numbers, the error of the privacy loss is at most d times that.

References
----------
.. [1] Canonne, Kamath, Steinke (2020). The discrete Gaussian for differential privacy. NeurIPS.
.. [2] Ghosh, Roughgarden, Sundararajan (2012). Universally utility-maximizing privacy mechanisms. SIAM J. Comput.
   41(6).
.. [3] Goryczka, Xiong (2017). A comprehensive comparison of multiparty secure additions with differential privacy.
   IEEE Trans. Dependable Secure Comput. 14(5).
.. [4] Kemp (1981). Efficient generation of logarithmically distributed pseudo-random variables. Appl. Stat. 30(3).
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from numpy.typing import NDArray

from multicentre.errors import ConfigurationError, MissingExtra

Integers = NDArray[np.int64]
Norm = Literal["l1", "l2"]

EXACT_SIZE = 1000  # OpenDP draws this number of values in about 10 ms
MAX_SCALE = 2.0**50  # 2**13 scales fit into 63 bits, far more than the largest possible draw

_BLOCK = 1 << 16  # half a megabyte of uniform numbers at a time


def gaussian_noise(shape: tuple[int, ...], scale: float) -> Integers:
    """Return integer Gaussian noise with a standard deviation of `scale`.

    Up to `EXACT_SIZE` numbers are drawn by OpenDP from the discrete Gaussian distribution, exactly (Canonne et al.
    [1]_). More numbers are drawn as rounded Gaussians, which is 500 times faster.

    Parameters
    ----------
    shape : tuple of int
    scale : float, > 0 and at most 2**50
        Scale in grid steps. From 100 on, delta of both distributions agrees with the continuous one to four digits.
        Below 1, the standard deviation of the discrete Gaussian is smaller than `scale`.

    Returns
    -------
    ndarray of int64, of `shape`

    Raises
    ------
    ConfigurationError
        The scale is out of range.
    MissingExtra
        OpenDP is not installed and at most `EXACT_SIZE` numbers are requested.

    Notes
    -----
    On integers the discrete Gaussian has exactly rho = sensitivity² / (2 scale²) of zCDP (theorem 4 of [1]_). Rounding
    is post-processing of a continuous Gaussian: ``round(x + noise) = x + round(noise)`` for an integer x. The same rho
    and the same Gaussian differential privacy therefore hold for the rounded distribution. Its variance is
    ``scale² + 1/12``.

    A rounded number uses one bit for the sign and 63 bits for the quantile, which reaches to 9.1 standard deviations.
    The probability of the tail is 2**-63 and part of delta.

    Examples
    --------
    >>> noise = gaussian_noise((50, 40), scale=1000.0)
    >>> noise.shape, noise.dtype, bool(800 < noise.std() < 1200)
    ((50, 40), dtype('int64'), True)
    """
    _check_scale(scale)
    if math.prod(shape) <= EXACT_SIZE:
        return _exact("gaussian", shape, scale)
    return rounded_gaussian_noise(shape, scale)


def rounded_gaussian_noise(shape: tuple[int, ...], scale: float) -> Integers:
    """Return rounded Gaussian noise, which has Gaussian differential privacy on integers at every scale.

    Parameters and errors are those of `gaussian_noise`.

    Examples
    --------
    >>> noise = rounded_gaussian_noise((2000,), scale=5.0)
    >>> bool(4 < noise.std() < 6)
    True
    """
    _check_scale(scale)
    return _by_blocks(shape, lambda stream, count: _rounded_gaussian(stream, count, scale))


def geometric_noise(shape: tuple[int, ...], scale: float, share: int = 1) -> Integers:
    """Return two-sided geometric (discrete Laplace) noise: P(k) is proportional to exp(-abs(k) / scale).

    On integers it gives pure differential privacy with epsilon = l1 sensitivity / scale (Ghosh et al. [2]_).

    Parameters
    ----------
    shape : tuple of int
    scale : float, > 0 and at most 2**50
        Scale in grid steps. The standard deviation is about 1.41 times the scale.
    share : int, >= 1, default 1
        Number m of sites that share the noise: the sum of m independent shares has the distribution of the whole noise.
        A single share hides little; use it only for sums that are masked until all shares are included.

    Returns
    -------
    ndarray of int64, of `shape`

    Raises
    ------
    ConfigurationError
        The scale or the share is out of range.
    MissingExtra
        OpenDP is not installed and at most `EXACT_SIZE` numbers of the whole noise are requested.

    Notes
    -----
    The noise is the difference of two geometric numbers. A geometric number is the sum of m negative binomial numbers
    of order 1/m (Polya; Goryczka & Xiong [3]_). A share is the difference of two such numbers. It is drawn as a Poisson
    number of signed logarithmic jumps, with Kemp's algorithm LK [4]_ for the jumps. Unlike numpy's negative binomial
    generator, this can use a cryptographic stream.

    Up to `EXACT_SIZE` numbers of the whole noise come from OpenDP and are exact. Other numbers are at most 44 times the
    scale. The tail beyond has a probability of 2**-63, which is a deviation from pure differential privacy.

    Examples
    --------
    >>> total = sum(geometric_noise((2000,), scale=30.0, share=5) for _ in range(5))
    >>> bool(30 < total.std() < 55)
    True
    """
    _check_scale(scale)
    _check_positive_integer(share, "share")
    if share > 1:
        return _by_blocks(shape, lambda stream, count: _jumps(stream, count, scale, share))
    if math.prod(shape) <= EXACT_SIZE:
        return _exact("laplace", shape, scale)
    return _by_blocks(shape, lambda stream, count: _geometric(stream, count, scale) - _geometric(stream, count, scale))


def quantised_sensitivity(
    sensitivity: float, n_values: int, step: float, norm: Norm = "l2", *, exact: bool = False
) -> float:
    """Return the sensitivity, in grid steps, of values that were rounded to a grid.

    Parameters
    ----------
    sensitivity : float, >= 0
        Sensitivity of the values before rounding: the largest change by one patient, in `norm`.
    n_values : int, >= 1
    step : float, > 0
        Distance between two points of the grid.
    norm : {"l1", "l2"}, default "l2"
    exact : bool, default False
        True if the values are on the grid already, such as counts on a grid of step 1. Nothing is added then.

    Notes
    -----
    Rounding changes a value by at most half a step, so the difference of two neighbouring inputs grows by at most one
    step per value. A vector of n entries of 1 has the l2 norm sqrt(n) and the l1 norm n. By the triangle inequality,
    the sensitivity is at most ``sensitivity / step + sqrt(n)``, or ``+ n``.

    Examples
    --------
    >>> quantised_sensitivity(1.0, n_values=100, step=0.001)
    1010.0
    """
    if not sensitivity >= 0:
        raise ConfigurationError(f"sensitivity must be at least 0; got {sensitivity}", where="sensitivity")
    if not 0 < step < math.inf:
        raise ConfigurationError(f"step must be finite and above 0; got {step}", where="step")
    _check_positive_integer(n_values, "n_values")
    if norm not in ("l1", "l2"):
        raise ConfigurationError(f"norm must be 'l1' or 'l2'; got {norm!r}", where="norm")
    rounding = math.sqrt(n_values) if norm == "l2" else n_values
    return sensitivity / step + (0.0 if exact else rounding)


class _Stream:
    """Key stream of ChaCha20 under a fresh key from the operating system."""

    def __init__(self) -> None:
        self._cipher = Cipher(algorithms.ChaCha20(os.urandom(32), bytes(16)), mode=None).encryptor()

    def uniforms(self, count: int) -> tuple[NDArray[np.float64], Integers]:
        """Return uniform numbers of 63 bits, above 0 and at most 1, and as many independent signs."""
        words = np.frombuffer(self._cipher.update(bytes(8 * count)), dtype="<u8")
        return (words >> 1).astype(np.float64) * 2.0**-63 + 2.0**-64, 1 - 2 * (words & 1).astype(np.int64)


def _by_blocks(shape: tuple[int, ...], draw: Callable[[_Stream, int], Integers]) -> Integers:
    stream, noise = _Stream(), np.empty(math.prod(shape), dtype=np.int64)
    for start in range(0, len(noise), _BLOCK):
        part = noise[start : start + _BLOCK]
        part[:] = draw(stream, len(part))
    return noise.reshape(shape)


def _rounded_gaussian(stream: _Stream, count: int, scale: float) -> Integers:
    from scipy.special import ndtri

    uniforms, signs = stream.uniforms(count)
    magnitudes: Integers = np.rint(-scale * ndtri(uniforms / 2)).astype(np.int64)
    return signs * magnitudes


def _geometric(stream: _Stream, count: int, scale: float) -> Integers:
    """Return numbers k >= 0 with P(k) proportional to exp(-k / scale), by inversion."""
    return np.floor(-scale * np.log(stream.uniforms(count)[0])).astype(np.int64)


def _jumps(stream: _Stream, count: int, scale: float, share: int) -> Integers:
    """Return differences of two negative binomial numbers of order 1 / share: signed jumps of logarithmic size.

    With p = 1 - exp(-1 / scale), the number of jumps is Poisson with mean ``-2 log(p) / share``. A jump exceeds k with
    probability ``(1 - p**U)**k`` given a uniform U.
    """
    log_p = math.log(-math.expm1(-1 / scale))
    numbers = _poisson(stream, count, -2 * log_p / share)
    mixing, signs = stream.uniforms(int(numbers.sum()))
    with np.errstate(divide="ignore"):
        log_ratio = np.log1p(-np.exp(mixing * log_p))
    sizes = 1 + np.floor(np.log(stream.uniforms(len(signs))[0]) / log_ratio).astype(np.int64)
    sums = np.concatenate([np.zeros(1, np.int64), np.cumsum(signs * sizes)])
    ends = np.cumsum(numbers)
    totals: Integers = sums[ends] - sums[ends - numbers]
    return totals


def _poisson(stream: _Stream, count: int, mean: float) -> Integers:
    """Return Poisson numbers, by inversion of the upper tail to 2**-64."""
    from scipy.special import pdtrc

    above = pdtrc(np.arange(math.ceil(mean + 12 * math.sqrt(mean) + 40)), mean)
    rank: Integers = np.searchsorted(above[::-1], stream.uniforms(count)[0], side="right").astype(np.int64)
    return len(above) - rank


def require_sampler() -> None:
    """Raise MissingExtra if OpenDP, which draws the noise of small releases, is not installed.

    Examples
    --------
    >>> require_sampler()
    """
    if find_spec("opendp") is None:
        raise MissingExtra(
            "exact noise for differential privacy requires opendp, which is not installed",
            where="multicentre.privacy.mechanisms",
            hint="Run: pip install 'multicentre[dp]'.",
        )


def _exact(law: Literal["gaussian", "laplace"], shape: tuple[int, ...], scale: float) -> Integers:
    require_sampler()
    make = import_module("opendp.measurements")
    domains, metrics, settings = (import_module(f"opendp.{part}") for part in ("domains", "metrics", "mod"))
    settings.enable_features("contrib")
    integers = domains.vector_domain(domains.atom_domain(T="i64"))
    if law == "gaussian":
        measurement = make.make_gaussian(integers, metrics.l2_distance(T=float), scale)
    else:
        measurement = make.make_laplace(integers, metrics.l1_distance(T="i64"), scale)
    return np.array(measurement([0] * math.prod(shape)), dtype=np.int64).reshape(shape)


def _check_scale(scale: float) -> None:
    if not scale > 0:
        raise ConfigurationError(f"scale must be above 0; got {scale}", where="scale")
    if scale > MAX_SCALE:
        raise ConfigurationError(
            f"scale must be at most {MAX_SCALE:.3g} grid steps, to fit 64-bit integers; got {scale:.3g}",
            where="scale",
            hint="Use a coarser grid, with a larger step.",
        )


def _check_positive_integer(value: object, name: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{name} must be an integer of at least 1; got {value!r}", where=name)
