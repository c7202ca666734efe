"""The one gate of a site: it lets an answer pass and writes it down, or refuses it and writes that down."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from multicentre.federation.engine import Call
from multicentre.federation.errors import ConfigurationError, DisclosureRefused, MulticentreError, RefusedByPolicy
from multicentre.federation.messages import Declaration, place
from multicentre.federation.noise import PlanReview, PlanShown
from multicentre.federation.steps import Release
from multicentre.privacy.accounting import Spent
from multicentre.privacy.budget import Account, cost_of
from multicentre.privacy.cohorts import CohortMemory
from multicentre.privacy.ledger import Ledger
from multicentre.privacy.noising import add_noise
from multicentre.privacy.policy import Policy
from multicentre.privacy.secure_sum.ring import plan_grids

_MEND = "Ask the site's steward whether its policy can be changed, or leave the site out."
_NO_NOISE = "Give the method an epsilon, where it takes one, or ask the site's steward."
_TOO_FEW = f"Leave out columns and views that few patients have, and patients who alone lack a view. {_MEND}"


class Guard:
    """Holds one site's answers against its policy and keeps its ledger.

    Parameters
    ----------
    policy : Policy
    ledger : Ledger
    ids : iterable, optional
        The site's patients, for the memory of cohorts; stays at the site.

    Raises
    ------
    IntegrityError
        The account of the policy's budget, or the memory of cohorts, is not intact.
    """

    def __init__(self, policy: Policy, ledger: Ledger, ids: Iterable[object] = ()) -> None:
        self.policy = policy
        self.ledger = ledger
        self.memory = CohortMemory(_path(policy.cohorts) if policy.min_difference else None)
        self.cohort = self.memory.fingerprints(ids if policy.min_difference else ())
        self.account = _account(policy)

    def review(self, plan: PlanShown) -> None:
        """Hold a plan against the policy and its budget, before anything is computed.

        Raises
        ------
        RefusedByPolicy
            The method is not allowed here, or the plan does not fit what is left of the budget.
        """
        facts = {"method": plan.method, "step": "plan"}
        if self.policy.methods is not None and plan.method not in self.policy.methods:
            reason = f"the method {plan.method} is not allowed here"
            self._refuse(facts, RefusedByPolicy, reason, "methods")
        cost = Spent()
        for noise, times in plan.noises():
            cost = cost + cost_of(noise, times)
        self._check_budget(facts, cost)

    def admit(self, call: Call) -> None:
        """Check a call against the policy before anything is computed.

        Raises
        ------
        RefusedByPolicy
            The method is not on the policy's list, only masked sums may leave and this is not one, a privacy budget
            asks for noise and there is none, or the noise costs more than is left.
        """
        policy, facts = self.policy, _facts(call)
        if policy.methods is not None and call.step.method not in policy.methods and _concerns_patients(call):
            self._refuse(facts, RefusedByPolicy, f"the method {call.step.method} is not allowed here", "methods")
        if policy.secure_sums_only and call.protection != "masked" and call.step.releases.tells_of_patients():
            self._refuse(facts, RefusedByPolicy, "only masked sums may leave this site", "secure_sums_only")
        if call.mask is not None and min(len(set(call.peers)), call.mask.threshold) < policy.min_sites_in_sum:
            reason = f"a sum of {min(len(call.peers), call.mask.threshold)} sites is too small a crowd"
            self._refuse(facts, RefusedByPolicy, reason, "min_sites_in_sum")
        if call.step.releases.tells_of_patients():
            self._admit_noise(call)

    def release(self, call: Call, release: Release) -> Release:
        """Check an answer, pay for it, write it to the ledger, and return it with the noise that the call asks for.

        Raises
        ------
        DisclosureRefused
            It is not the declared release, a value is beyond its declared range, or too few patients stand behind one
            of its fields.
        RefusedByPolicy
            The budget was spent in the meantime.
        """
        facts = _facts(call)
        if not _is_declared(call, release):
            self._refuse(facts, DisclosureRefused, "the answer is not the release that the step declares", "release")
        try:
            release.checked()
            if call.protection == "masked" or call.noise is not None:
                check_ranges(release)
        except MulticentreError as error:
            self._refuse(facts, DisclosureRefused, f"the answer is not as declared ({error.what})", error.where)
        if type(release).concerns_patients:
            self._check_difference(call)
        fields = [
            self._examine(call, release, field, key, declaration, value)
            for field, key, declaration, value in release.items()
        ]
        if type(release).concerns_patients:
            self._remember(call)
        self.ledger.append("release", {**facts, "fields": fields, **self._paid(call, facts)})
        return self._noised(call, release)

    def note_failure(self, call: Call, kind: str) -> None:
        """Write to the ledger that a step broke, but for a plan's review, which wrote its refusal itself."""
        if call.step.part is not PlanReview:
            self.ledger.append("failure", {**_facts(call), "reason": kind})

    def _admit_noise(self, call: Call) -> None:
        if call.noise is None:
            if self.account is not None:
                reason = "the policy has a privacy budget, and the answer would leave without noise"
                self._refuse(_facts(call), RefusedByPolicy, reason, "epsilon", mend=_NO_NOISE)
            return
        try:
            call.noise.check(call.step.releases)
        except ConfigurationError as error:
            self._refuse(_facts(call), RefusedByPolicy, error.what, error.where, mend=error.mend)
        if self._sharers(call) < 1:
            self._refuse(_facts(call), RefusedByPolicy, "too few sites would share the noise", "colluding_sites")
        self._check_budget(_facts(call), cost_of(call.noise))

    def _check_budget(self, facts: Mapping[str, Any], cost: Spent) -> None:
        try:
            if self.account is not None:
                self.account.check(cost)
        except RefusedByPolicy as error:
            self._refuse(facts, RefusedByPolicy, error.what, error.where, mend=error.mend)

    def _paid(self, call: Call, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Pay for a release and return what its ledger entry says of that."""
        if call.noise is None or not call.step.releases.tells_of_patients():
            return {"epsilon": None, "delta": None}
        cost = cost_of(call.noise)
        if self.account is not None:
            try:
                self.account.charge(cost, facts)
            except RefusedByPolicy as error:
                self._refuse(facts, RefusedByPolicy, error.what, error.where, mend=error.mend)
        delta = self.policy.delta
        return {
            "epsilon": cost.epsilon(delta),
            "delta": delta,
            "rho": cost.rho,
            "unit": "patient",
            "neighbours": "add-remove",
            "noise": {"mechanism": call.noise.mechanism, **call.noise.multipliers},
        }

    def _noised(self, call: Call, release: Release) -> Release:
        if call.noise is None or not type(release).tells_of_patients():
            return release
        finest: dict[str, float] = {}
        if call.mask is not None:
            grids = plan_grids(call.step.releases, len(call.peers), call.noise)
            finest = {name: 2.0**-grid.fraction_bits for name, grid in grids.items()}
        return add_noise(release, call.noise, sharers=self._sharers(call), finest=finest)

    def _sharers(self, call: Call) -> int:
        return 1 if call.mask is None else call.mask.threshold - self.policy.colluding_sites

    def _examine(
        self, call: Call, release: Release, field: str, key: str, declaration: Declaration, value: Any
    ) -> dict[str, Any]:
        if not type(release).concerns_patients:
            return _described(call, field, key, value, None)
        patients = release.patients_behind(field, key)
        where, facts = place(type(release), field, key), _facts(call)
        if patients is None:
            self._refuse(facts, DisclosureRefused, "the answer does not say how many patients it rests on", where)
        if not _is_count(patients):
            self._refuse(facts, DisclosureRefused, "the number of patients behind the answer is not a count", where)
        if patients == 0 and _says_something(declaration, value):
            self._refuse(facts, DisclosureRefused, "a value is said to rest on no patient", where)
        if 0 < patients < self.policy.min_patients:
            reason = f"fewer than {self.policy.min_patients} patients stand behind the answer"
            self._refuse(facts, DisclosureRefused, reason, where, mend=_TOO_FEW)
        return _described(call, field, key, value, int(patients))

    def _check_difference(self, call: Call) -> None:
        least = self.policy.min_difference
        if not least:
            return
        if not len(self.cohort):
            reason = "without patient ids nobody can tell by how many patients two cohorts differ"
            self._refuse(_facts(call), DisclosureRefused, reason, "min_difference")
        closest = self.memory.closest(_step(call), self.cohort)
        if closest is not None and 0 < closest < least:
            reason = f"the cohort differs from one already answered for by fewer than {least} patients"
            self._refuse(_facts(call), DisclosureRefused, reason, "min_difference")

    def _remember(self, call: Call) -> None:
        if self.policy.min_difference:
            self.memory.remember(_step(call), self.cohort)

    def _refuse(
        self,
        facts: Mapping[str, Any],
        kind: Callable[..., MulticentreError],
        reason: str,
        where: str,
        *,
        mend: str = _MEND,
    ) -> NoReturn:
        self.ledger.append("refusal", {**facts, "reason": f"{where}: {reason}"})
        raise kind(f"{reason}, says the site's policy", where=f"{facts['step']}, {where}", mend=mend)


def check_ranges(release: Release) -> None:
    """Raise DisclosureRefused when a value is beyond the range that its field declares; nothing is cut off."""
    for field, key, declaration, value in release.items():
        if declaration.bound is not None and not np.all(np.abs(value) <= declaration.bound):
            raise DisclosureRefused(
                f"a value is beyond the declared range of {declaration.bound:.3g}",
                where=place(type(release), field, key),
                mend="Scale the columns.",
            )


def _account(policy: Policy) -> Account | None:
    if policy.epsilon is None:
        return None
    return Account(policy.epsilon, policy.delta, _path(policy.account))


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


def _step(call: Call) -> str:
    return f"{call.step.method}.{call.step.name}"


def _is_declared(call: Call, release: object) -> bool:
    return isinstance(release, Release) and type(release) is call.step.releases


def _concerns_patients(call: Call) -> bool:
    return bool(call.step.releases.concerns_patients)


def _is_count(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and int(value) >= 0


def _says_something(declaration: Declaration, value: Any) -> bool:
    return len(value) > 0 if declaration.kind in ("text", "texts") else bool(np.any(value))


def _facts(call: Call) -> dict[str, Any]:
    return {
        "study": call.study,
        "session": call.session,
        "call": call.sequence,
        "method": call.step.method,
        "step": call.step.name,
        "protection": call.protection,
        "sites": len(call.peers),
    }


def _described(call: Call, field: str, key: str, value: Any, patients: int | None) -> dict[str, Any]:
    # A masked value does not leave as it is, and a hash of it would let a guess be checked.
    raw = value.tobytes() if isinstance(value, np.ndarray) else repr(value).encode()
    return {
        "field": f"{field}[{key}]" if key else field,
        "shape": list(value.shape) if isinstance(value, np.ndarray) else [],
        "bytes": len(raw),
        "patients": patients,
        "sha256": None if call.protection == "masked" else hashlib.sha256(raw).hexdigest(),
    }
