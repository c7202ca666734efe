"""Noise and budget of one site: the noise of a call is added to the release, and its cost is charged.

Noise consists of integer steps of a grid and is added to values that are rounded to the same grid. The cost of a
release is charged to the account of the policy's budget before the release leaves the site.
"""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multicentre.core.calls import Call
from multicentre.core.messages import Declaration, place
from multicentre.core.noise_plan import Mechanism, Noise, PlanShown, Unit
from multicentre.core.steps import R, Release
from multicentre.errors import ConfigurationError, RefusedByPolicy
from multicentre.privacy.accountant import Spent, cost_of
from multicentre.privacy.budget import Account
from multicentre.privacy.mechanisms import (
    MAX_SCALE,
    gaussian_noise,
    geometric_noise,
    quantised_sensitivity,
    rounded_gaussian_noise,
)
from multicentre.privacy.policy import Policy
from multicentre.privacy.secure_sum.fixed_point import plan_grids

_NO_NOISE = "Set epsilon, if the method has this parameter, or ask the site's steward."


class Charging:
    """Noise and budget of one site.

    Parameters
    ----------
    policy : Policy

    Raises
    ------
    IntegrityError
        The account of the policy's budget is not intact.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.account: Account | None = None
        if policy.epsilon is not None:
            self.account = Account(policy.epsilon, policy.delta, _path(policy.account))
            _check_writable(self.account.path)

    def review(self, plan: PlanShown) -> None:
        """Raise RefusedByPolicy unless a plan fits the remaining budget."""
        cost = Spent()
        for noise, times in plan.noises():
            cost = cost + cost_of(noise, times)
        if self.account is not None:
            self.account.check(cost)

    def admit(self, call: Call) -> None:
        """Check, before anything is computed, that a call has the required noise and that its cost fits the budget.

        Raises
        ------
        RefusedByPolicy
            The policy has a budget and the call has no noise, or the cost of the noise exceeds the remaining budget.
        ConfigurationError
            The noise does not fit the release, or too few sites would share it.
        """
        if call.noise is None:
            if self.account is not None:
                raise RefusedByPolicy(
                    "answers must have noise if the policy has a privacy budget; the call has none",
                    where="policy, epsilon",
                    hint=_NO_NOISE,
                )
            return
        call.noise.check(call.step.releases)
        if call.mask is not None and call.mask.colluding < self._policy.colluding_sites:
            raise ConfigurationError(
                f"shares of the noise must be computed for at least {self._policy.colluding_sites} colluding sites; "
                f"got {call.mask.colluding}",
                where="policy, colluding_sites",
                hint="Set the coordinator's colluding_sites to the largest number in any site's policy.",
            )
        if _sharers(call) < 1 or _sharers(call) > max(len(call.peers), 1):
            raise ConfigurationError(
                f"the number of sites that share the noise must be from 1 to {max(len(call.peers), 1)}; got "
                f"{_sharers(call)}",
                where="policy, colluding_sites",
                hint="Set a smaller number of colluding sites.",
            )
        check_scales(call.step.releases, call.noise, _sharers(call), _finest(call))
        if self.account is not None:
            self.account.check(cost_of(call.noise))

    def add_noise(self, call: Call, release: Release) -> Release:
        """Return a release with the noise of the call."""
        if not _is_noised(call):
            return release
        assert call.noise is not None
        return add_noise(release, call.noise, sharers=_sharers(call), finest=_finest(call))

    def pay(self, call: Call, facts: Mapping[str, Any], unit: Unit = "patient") -> dict[str, Any]:
        """Charge the cost of a release, permanently, and return the values of its ledger entry about the cost.

        Parameters
        ----------
        call : Call
        facts : mapping
            Metadata of the call, for the account.
        unit : {"patient", "record"}, default "patient"
            Privacy unit.

        Raises
        ------
        RefusedByPolicy
            The budget was spent in the meantime.
        """
        if not _is_noised(call):
            return {"epsilon": None, "delta": None}
        assert call.noise is not None
        cost, delta = cost_of(call.noise), self._policy.delta
        if self.account is not None:
            self.account.charge(cost, facts)
        return {
            "epsilon": cost.epsilon(delta),
            "delta": delta,
            "rho": cost.rho,
            "unit": unit,
            "neighbours": "add-remove",
            "noise": {"mechanism": call.noise.mechanism, **call.noise.multipliers},
        }


def _sharers(call: Call) -> int:
    return 1 if call.mask is None else call.mask.sharers


def _finest(call: Call) -> dict[str, float]:
    if call.mask is None:
        return {}
    grids = plan_grids(call.step.releases, len(call.peers), call.noise)
    return {name: 2.0**-grid.fraction_bits for name, grid in grids.items()}


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _check_writable(account: Path | None) -> None:
    """Raise ConfigurationError, before a study begins, if an account could not be written."""
    if account is None:
        return
    nearest = next(path for path in (account, *account.parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        raise ConfigurationError(
            "the folder of the account must be writable; it is not",
            where=str(account),
            hint="Permit the user of the site to write to it.",
        )


def _is_noised(call: Call) -> bool:
    return call.noise is not None and call.step.releases.tells_of_patients()


# Rounding to the grid adds at most sqrt(values) / 2**20 of the sensitivity, about a millionth per value.
STEPS_PER_SCALE = 2.0**20
# A sum of shares differs from one draw of the total by less than exp(-19 s**2): 1e-33 for s = 2 steps.
MIN_STEPS = 2.0
# From this scale on, delta of the discrete Gaussian has a relative difference below 1e-8 from the continuous one.
EXACT_FROM = 2.0**16
# Values of up to 2**52 steps stay exact in float64, which has 53 significant bits.
_COUNTED_BITS = 52


def add_noise(release: R, noise: Noise, *, sharers: int = 1, finest: Mapping[str, float] | None = None) -> R:
    """Return a release with noise in every field that depends on patients.

    Parameters
    ----------
    release : Release
        Release whose fields declare a sensitivity.
    noise : Noise
    sharers : int, default 1
        Number of sites that each add a share of the noise to one masked sum. A single share hides little.
    finest : mapping of str to float, optional
        Smallest step that the encoding of the release can represent, by field.

    Raises
    ------
    ConfigurationError
        The noise of a field would be less than two steps of its grid, or more than 2**50.

    Notes
    -----
    The grid has about a million steps per scale of the noise and per sensitivity. Rounding increases the sensitivity by
    at most a factor of 1 + sqrt(values) / 2**20, and the noise is increased accordingly. A sum of shares differs from
    one draw of the total by less than ``exp(-19 s**2)``, where s is the scale of a share in steps: 1e-33 for the
    smallest permitted s.

    The accounting assumes a continuous Gaussian. On fine grids, the exact discrete Gaussian is used, whose delta has a
    relative difference below 1e-8. On coarse grids, such as those of integers, the rounded Gaussian is used, for which
    the accounting is exact.
    """
    finest = finest or {}
    check_scales(type(release), noise, sharers, finest)
    added = {}
    for name, declaration in release.declarations().items():
        value = getattr(release, name)
        if declaration.public or value is None:
            continue
        multiplier = noise.multipliers[name]
        step = grid_step(declaration, multiplier, sharers, finest.get(name, 0.0))
        values = np.asarray(value)
        drawn = _draw(
            noise.mechanism,
            multiplier * _sensitivity(declaration, values.size, step),
            values.shape,
            sharers,
        )
        added[name] = _as_declared((np.rint(values / step).astype(np.int64) + drawn) * step, value, declaration)
    return dataclasses.replace(release, **added)


def check_scales(kind: type[Release], noise: Noise, sharers: int, finest: Mapping[str, float]) -> None:
    """Raise ConfigurationError unless the noise of every field is between 2 and 2**50 steps of its grid.

    The parameters are those of :func:`add_noise`, with the class of the release in place of the release.
    """
    for name, multiplier in noise.multipliers.items():
        declaration = kind.declarations()[name]
        step = grid_step(declaration, multiplier, sharers, finest.get(name, 0.0))
        assert declaration.sensitivity is not None  # the check of the plan guarantees it
        scale = multiplier * declaration.sensitivity / step
        share = scale / math.sqrt(sharers) if noise.mechanism == "gaussian" else math.inf
        if share < MIN_STEPS or scale > MAX_SCALE:
            raise ConfigurationError(
                f"the noise must be from {MIN_STEPS:g} to {MAX_SCALE:.2g} steps of the field's grid; "
                f"got {min(share, scale):.2g}",
                where=place(kind, name),
                hint="Declare a narrower range, or a real number instead of an integer, or plan different noise.",
            )


def grid_step(declaration: Declaration, multiplier: float, sharers: int, finest: float) -> float:
    """Return the step of a field's grid: 1 for integers, otherwise a power of two that float64 can resolve."""
    if declaration.is_whole:
        return 1.0
    assert declaration.sensitivity is not None  # the check of the plan guarantees both
    assert declaration.bound is not None
    scale = declaration.sensitivity * min(multiplier / math.sqrt(sharers), 1.0)
    exact = 2.0 ** math.ceil(math.log2(declaration.bound) - _COUNTED_BITS)
    return max(2.0 ** math.floor(math.log2(scale / STEPS_PER_SCALE)), finest, exact)


def _sensitivity(declaration: Declaration, n_values: int, step: float) -> float:
    assert declaration.sensitivity is not None  # the check of the plan guarantees it
    return quantised_sensitivity(
        declaration.sensitivity, max(n_values, 1), step, declaration.norm, exact=declaration.is_whole
    )


def _draw(mechanism: Mechanism, scale: float, shape: tuple[int, ...], sharers: int) -> NDArray[np.int64]:
    if mechanism == "laplace":
        return geometric_noise(shape, scale, sharers)
    share = scale / math.sqrt(sharers)
    return gaussian_noise(shape, share) if share >= EXACT_FROM else rounded_gaussian_noise(shape, share)


def _as_declared(total: NDArray[Any], value: Any, declaration: Declaration) -> Any:
    if isinstance(value, np.ndarray):
        return total.astype(value.dtype)
    return int(total) if declaration.is_whole else float(total)
