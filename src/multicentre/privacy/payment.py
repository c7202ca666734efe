"""How one site adds the noise that a call asks for, and pays for the release."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multicentre.federation.engine import Call
from multicentre.federation.errors import ConfigurationError, RefusedByPolicy
from multicentre.federation.noise import PlanShown, Unit
from multicentre.federation.steps import Release
from multicentre.privacy.accounting import Spent
from multicentre.privacy.budget import Account, cost_of
from multicentre.privacy.noising import add_noise, check_scales
from multicentre.privacy.policy import Policy
from multicentre.privacy.secure_sum.ring import plan_grids

_NO_NOISE = "Give the method an epsilon, where it takes one, or ask the site's steward."


class Payment:
    """The noise and the budget of one site.

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
        """Raise RefusedByPolicy unless a whole plan fits what is left of the budget."""
        cost = Spent()
        for noise, times in plan.noises():
            cost = cost + cost_of(noise, times)
        if self.account is not None:
            self.account.check(cost)

    def admit(self, call: Call) -> None:
        """Check, before anything is computed, that a call's noise is there, can be drawn, and can be paid for.

        Raises
        ------
        RefusedByPolicy
            There is no noise and the policy has a budget, or it costs more than is left.
        ConfigurationError
            The noise does not fit the release, or too few sites would share it.
        """
        if call.noise is None:
            if self.account is not None:
                raise RefusedByPolicy(
                    "the policy has a privacy budget, and the answer would leave without noise",
                    where="policy, epsilon",
                    mend=_NO_NOISE,
                )
            return
        call.noise.check(call.step.releases)
        if call.mask is not None and call.mask.colluding < self._policy.colluding_sites:
            raise ConfigurationError(
                "the shares of the noise do not allow for as many colluding sites", where="policy, colluding_sites"
            )
        if _sharers(call) < 1 or _sharers(call) > max(len(call.peers), 1):
            raise ConfigurationError("no such number of sites can share the noise", where="policy, colluding_sites")
        check_scales(call.step.releases, call.noise, _sharers(call), _finest(call))
        if self.account is not None:
            self.account.check(cost_of(call.noise))

    def add_noise(self, call: Call, release: Release) -> Release:
        """Return a release with the noise that its call asks for."""
        if not _is_noised(call):
            return release
        assert call.noise is not None
        return add_noise(release, call.noise, sharers=_sharers(call), finest=_finest(call))

    def pay(self, call: Call, facts: Mapping[str, Any], unit: Unit = "patient") -> dict[str, Any]:
        """Pay for a release, for good, and return what its ledger entry says of that.

        Parameters
        ----------
        call : Call
        facts : mapping
            Facts of the call, for the account.
        unit : {"patient", "record"}, default "patient"
            Whose presence the noise hides.

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
    """Raise ConfigurationError, before a study begins, where an account could not be written."""
    if account is None:
        return
    nearest = next(path for path in (account, *account.parents) if path.exists())
    if not os.access(nearest, os.W_OK):
        raise ConfigurationError(
            "the account cannot be written", where=str(account), mend="Let the site's own user write to its folder."
        )


def _is_noised(call: Call) -> bool:
    return call.noise is not None and call.step.releases.tells_of_patients()
