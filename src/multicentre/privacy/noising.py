"""A release with the noise that its call asks for: whole steps of a grid, added to values rounded to the same grid."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.federation.errors import ConfigurationError
from multicentre.federation.messages import Declaration, place
from multicentre.federation.noise import Mechanism, Noise
from multicentre.federation.steps import R
from multicentre.privacy.mechanisms import (
    gaussian_noise,
    geometric_noise,
    quantised_sensitivity,
    rounded_gaussian_noise,
)

STEPS_A_SCALE = 2.0**20
FEWEST_STEPS = 2.0
EXACT_FROM = 2.0**16
_COUNTED_BITS = 60


def add_noise(release: R, noise: Noise, *, sharers: int = 1, finest: Mapping[str, float] | None = None) -> R:
    """Return a release with noise in every field that depends on patients.

    Parameters
    ----------
    release : Release
        Every such field declares its sensitivity.
    noise : Noise
    sharers : int, default 1
        So many sites add noise to one masked sum, each its share; alone, a share hides little.
    finest : mapping of str to float, optional
        For each field, the smallest step that what carries the release can tell apart.

    Raises
    ------
    ConfigurationError
        A field's noise would be less than a few steps of its grid.

    Notes
    -----
    The grid has about a million steps to one scale of the noise, so rounding adds at most sqrt(values) / 2**20 of a
    scale to the sensitivity, for which the noise is made larger. A sum of shares differs from one draw of the total by
    less than ``exp(-19 s**2)``, with s the steps in a share's scale: 1e-33 at the fewest that are allowed. The exact
    discrete Gaussian serves where it cannot be told from the continuous one that the accounting is for: its delta then
    differs by less than one part in a hundred million. On coarse grids, those of whole numbers, the rounded Gaussian
    serves, for which the accounting is exact.
    """
    added = {}
    for name, declaration in release.declarations().items():
        value = getattr(release, name)
        if declaration.public or value is None:
            continue
        multiplier = noise.multipliers[name]
        step = grid_step(declaration, multiplier, sharers, (finest or {}).get(name, 0.0))
        values = np.asarray(value)
        drawn = _draw(
            noise.mechanism,
            multiplier * _sensitivity(declaration, values.size, step),
            values.shape,
            sharers,
            place(type(release), name),
        )
        added[name] = _as_declared((np.rint(values / step).astype(np.int64) + drawn) * step, value, declaration)
    return dataclasses.replace(release, **added)


def grid_step(declaration: Declaration, multiplier: float, sharers: int, finest: float) -> float:
    """Return the step of a field's grid: a power of two that 64 bits can count the range in, 1 for whole numbers."""
    if declaration.is_whole:
        return 1.0
    assert declaration.sensitivity is not None  # the plan was checked for both
    assert declaration.bound is not None
    scale = multiplier * declaration.sensitivity / math.sqrt(sharers)
    wide = 2.0 ** math.ceil(math.log2(declaration.bound) - _COUNTED_BITS)
    return max(2.0 ** math.floor(math.log2(scale / STEPS_A_SCALE)), finest, wide)


def _sensitivity(declaration: Declaration, n_values: int, step: float) -> float:
    assert declaration.sensitivity is not None  # the plan was checked for it
    return quantised_sensitivity(
        declaration.sensitivity, max(n_values, 1), step, declaration.norm, exact=declaration.is_whole
    )


def _draw(mechanism: Mechanism, scale: float, shape: tuple[int, ...], sharers: int, where: str) -> NDArray[np.int64]:
    if mechanism == "laplace":
        return geometric_noise(shape, scale, sharers)
    share = scale / math.sqrt(sharers)
    if share < FEWEST_STEPS:
        raise ConfigurationError(
            f"the noise is {share:.2g} steps of the field's grid, {FEWEST_STEPS:g} are needed",
            where=where,
            mend="Declare a narrower range, or a real number where it is a whole one.",
        )
    return gaussian_noise(shape, share) if share >= EXACT_FROM else rounded_gaussian_noise(shape, share)


def _as_declared(total: NDArray[Any], value: Any, declaration: Declaration) -> Any:
    if isinstance(value, np.ndarray):
        return total.astype(value.dtype)
    return int(total) if declaration.is_whole else float(total)
