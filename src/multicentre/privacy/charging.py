"""Noise and budget of one site: noise that a call asks for is added to the release, and the release is paid for.

Noise consists of whole steps of a grid and is added to values rounded to the same grid. A release is paid for, in the
account of the policy's budget, before it leaves the site.
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

from multicentre.federation.engine import Call
from multicentre.federation.errors import ConfigurationError, RefusedByPolicy
from multicentre.federation.messages import Declaration, place
from multicentre.federation.noise import Mechanism, Noise, PlanShown, Unit
from multicentre.federation.steps import R, Release
from multicentre.privacy.accountant import Spent, cost_of
from multicentre.privacy.budget import Account
from multicentre.privacy.mechanisms import (
    LARGEST_SCALE,
    gaussian_noise,
    geometric_noise,
    quantised_sensitivity,
    rounded_gaussian_noise,
)
from multicentre.privacy.policy import Policy
from multicentre.privacy.secure_sum.fixed_point import plan_grids

_NO_NOISE = "Give the method an epsilon, where it takes one, or ask the site's steward."


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
        """Raise RefusedByPolicy unless a plan fits what is left of the budget."""
        cost = Spent()
        for noise, times in plan.noises():
            cost = cost + cost_of(noise, times)
        if self.account is not None:
            self.account.check(cost)

    def admit(self, call: Call) -> None:
        """Check, before anything is computed, that a call has the required noise and that the noise can be paid for.

        Raises
        ------
        RefusedByPolicy
            The policy has a budget and the call has no noise, or the noise costs more than is left.
        ConfigurationError
            The noise does not fit the release, or too few sites would share it.
        """
        if call.noise is None:
            if self.account is not None:
                raise RefusedByPolicy(
                    "a policy with a privacy budget does not permit answers without noise",
                    where="policy, epsilon",
                    hint=_NO_NOISE,
                )
            return
        call.noise.check(call.step.releases)
        if call.mask is not None and call.mask.colluding < self._policy.colluding_sites:
            raise ConfigurationError(
                "the shares of the noise must allow for at least as many colluding sites as the policy",
                where="policy, colluding_sites",
            )
        if _sharers(call) < 1 or _sharers(call) > max(len(call.peers), 1):
            raise ConfigurationError(
                "the number of sites that share the noise must be between 1 and the number of sites",
                where="policy, colluding_sites",
            )
        check_scales(call.step.releases, call.noise, _sharers(call), _finest(call))
        if self.account is not None:
            self.account.check(cost_of(call.noise))

    def add_noise(self, call: Call, release: Release) -> Release:
        """Return a release with the noise that the call asks for."""
        if not _is_noised(call):
            return release
        assert call.noise is not None
        return add_noise(release, call.noise, sharers=_sharers(call), finest=_finest(call))

    def pay(self, call: Call, facts: Mapping[str, Any], unit: Unit = "patient") -> dict[str, Any]:
        """Pay for a release, for good, and return what its ledger entry states about it.

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
            "the folder of the account must be writable",
            where=str(account),
            hint="Allow the user of the site to write to it.",
        )


def _is_noised(call: Call) -> bool:
    return call.noise is not None and call.step.releases.tells_of_patients()


# Rounding to the grid adds at most sqrt(values) / 2**20 of the sensitivity, about a millionth per value.
STEPS_A_SCALE = 2.0**20
# A sum of shares differs from one draw of the total by less than exp(-19 s**2): 1e-33 for s = 2 steps.
FEWEST_STEPS = 2.0
# From here on, delta of the discrete Gaussian differs by less than 1e-8 of itself from that of the continuous one.
EXACT_FROM = 2.0**16
# Values of up to 2**52 steps stay exact in float64, which has 53 significant bits.
_COUNTED_BITS = 52


def add_noise(release: R, noise: Noise, *, sharers: int = 1, finest: Mapping[str, float] | None = None) -> R:
    """Return a release with noise in every field that depends on patients.

    Parameters
    ----------
    release : Release
        Every such field declares its sensitivity.
    noise : Noise
    sharers : int, default 1
        Number of sites that each add a share of the noise to one masked sum. A single share hides little.
    finest : mapping of str to float, optional
        By field, the smallest step that the encoding of the release can represent.

    Raises
    ------
    ConfigurationError
        The noise of a field would be less than two steps of its grid, or more than 2**50.

    Notes
    -----
    The grid has about a million steps per scale of the noise and per sensitivity. Rounding adds at most
    sqrt(values) / 2**20 of the sensitivity to it, and the noise is enlarged accordingly. A sum of shares differs from
    one draw of the total by less than ``exp(-19 s**2)``, where s is the number of steps in the scale of a share: 1e-33
    for the smallest s that is allowed. The exact discrete Gaussian is used where it cannot be distinguished from the
    continuous one that the accounting assumes: its delta then differs by less than 1e-8 of itself. On coarse grids,
    those of whole numbers, the rounded Gaussian is used, for which the accounting is exact.
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
        assert declaration.sensitivity is not None  # the plan was checked for it
        scale = multiplier * declaration.sensitivity / step
        share = scale / math.sqrt(sharers) if noise.mechanism == "gaussian" else math.inf
        if share < FEWEST_STEPS or scale > LARGEST_SCALE:
            raise ConfigurationError(
                f"the noise must be {FEWEST_STEPS:g} to {LARGEST_SCALE:.2g} steps of the field's grid; "
                f"got {min(share, scale):.2g}",
                where=place(kind, name),
                hint="Declare a narrower range, or a real number in place of a whole one, or plan other noise.",
            )


def grid_step(declaration: Declaration, multiplier: float, sharers: int, finest: float) -> float:
    """Return the step of a field's grid: 1 for whole numbers, otherwise a power of two that float64 can resolve."""
    if declaration.is_whole:
        return 1.0
    assert declaration.sensitivity is not None  # the plan was checked for both
    assert declaration.bound is not None
    scale = declaration.sensitivity * min(multiplier / math.sqrt(sharers), 1.0)
    wide = 2.0 ** math.ceil(math.log2(declaration.bound) - _COUNTED_BITS)
    return max(2.0 ** math.floor(math.log2(scale / STEPS_A_SCALE)), finest, wide)


def _sensitivity(declaration: Declaration, n_values: int, step: float) -> float:
    assert declaration.sensitivity is not None  # the plan was checked for it
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
